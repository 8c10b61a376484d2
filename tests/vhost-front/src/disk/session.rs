//! One connection to a back end: messages in QEMU's order.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};

use super::{Options, Queue, Slots};
use crate::guest::Guest;
use crate::protocol::{config, feature, protocol_feature};
use crate::raw::{FLAG_NEED_REPLY, Raw, code};

/// Device status (VIRTIO 1.3, 2.1): features accepted, and all up to the driver's start.
const FEATURES_OK: u64 = 8;
const DRIVER_OK: u64 = 15;
const RETRY: Duration = Duration::from_millis(10);

/// A record of the requests in flight, which the back end created.
#[derive(Debug)]
pub(super) struct Inflight {
    file: File,
    len: u64,
    offset: u64,
}

impl Inflight {
    pub(super) fn parts(&self) -> (&File, u64) {
        (&self.file, self.len)
    }
}

/// A connection, negotiated.
pub(super) struct Session {
    frontend: Frontend,
    raw: Raw,
    /// Our end of the back end's channel.
    requests: Option<Raw>,
    need_reply: bool,
    bound: Duration,
    offered: u64,
    protocol: u64,
    config: Vec<u8>,
    is_memory_sent: bool,
}

impl Session {
    /// Connects, within [`crate::BOUND`], and does what QEMU does before a guest starts.
    pub(super) fn open(path: &Path, options: &Options, queues: &[Queue]) -> Result<Self> {
        let stream = connect(path)?;
        let raw = Raw::new(stream.try_clone().context("cannot copy a descriptor")?);
        let count = u64::from(options.queues);
        let mut session = Self {
            frontend: Frontend::from_stream(stream, count),
            raw,
            requests: None,
            need_reply: options.need_reply,
            bound: options.bound,
            offered: 0,
            protocol: 0,
            config: vec![0; config::LEN],
            is_memory_sent: false,
        };
        session.negotiate(options)?;
        for (index, queue) in queues.iter().enumerate() {
            session.ask_replied(|it| it.set_vring_call(index, queue.call.fd()))?;
            session.ask_replied(|it| it.set_vring_err(index, queue.error.fd()))?;
        }
        session.read_config()?;
        Ok(session)
    }

    fn negotiate(&mut self, options: &Options) -> Result<()> {
        let offered = self.ask(|it| it.get_features())?;
        ensure!(
            offered & feature::PROTOCOL_FEATURES != 0,
            "the back end offers no protocol features ({offered:#x})"
        );
        let protocol = self.ask(|it| it.get_protocol_features())?.bits();
        let mut taken = protocol & protocol_feature::TAKEN;
        if !options.inflight {
            taken &= !protocol_feature::INFLIGHT_SHMFD;
        }
        for (is_needed, bit, name) in [
            (true, protocol_feature::CONFIG, "CONFIG"),
            (options.queues > 1, protocol_feature::MQ, "MQ"),
            (
                options.slots == Slots::Add,
                protocol_feature::CONFIGURE_MEM_SLOTS,
                "CONFIGURE_MEM_SLOTS",
            ),
            (
                options.inflight,
                protocol_feature::INFLIGHT_SHMFD,
                "INFLIGHT_SHMFD",
            ),
            (options.need_reply, protocol_feature::REPLY_ACK, "REPLY_ACK"),
        ] {
            ensure!(
                !is_needed || taken & bit != 0,
                "the back end does not offer {name} ({protocol:#x})"
            );
        }
        let bits = VhostUserProtocolFeatures::from_bits_retain(taken);
        self.ask(|it| it.set_protocol_features(bits))?;
        self.protocol = taken;
        if self.has(protocol_feature::MQ) {
            let most = self.ask(|it| it.get_queue_num())?;
            ensure!(
                most >= u64::from(options.queues),
                "the back end has {most} queues, not {}",
                options.queues
            );
        }
        if self.has(protocol_feature::CONFIGURE_MEM_SLOTS) {
            let most = self.ask(|it| it.get_max_mem_slots())?;
            ensure!(
                options.slots == Slots::Table || most >= options.regions as u64,
                "the back end has {most} memory slots, not {}",
                options.regions
            );
        }
        if self.has(protocol_feature::BACKEND_REQ) {
            let (ours, theirs) = UnixStream::pair().context("cannot create a channel")?;
            self.ask_replied(|it| it.set_backend_request_fd(&theirs))?;
            self.requests = Some(Raw::new(ours));
        }
        self.ask(|it| it.set_owner())?;
        self.offered = self.ask(|it| it.get_features())?;
        Ok(())
    }

    /// The features to acknowledge.
    pub(super) fn select(&self, options: &Options) -> Result<u64> {
        let mut wanted = feature::TAKEN;
        for (is_wanted, bit, name) in [
            (options.is_packed, feature::RING_PACKED, "RING_PACKED"),
            (options.event_idx, feature::EVENT_IDX, "EVENT_IDX"),
            (options.is_indirect, feature::INDIRECT_DESC, "INDIRECT_DESC"),
            (true, feature::VERSION_1, "VERSION_1"),
        ] {
            if is_wanted {
                ensure!(
                    self.offered & bit != 0,
                    "the back end does not offer {name} ({:#x})",
                    self.offered
                );
                wanted |= bit;
            }
        }
        Ok(self.offered & wanted & !options.without)
    }

    /// Starts the rings at `bases`, as QEMU does when the guest's driver is ready. The record of
    /// requests in flight is created by the first start.
    pub(super) fn start(
        &mut self,
        features: u64,
        guest: &Guest,
        options: &Options,
        queues: &[Queue],
        bases: &[u32],
        inflight: &mut Option<Inflight>,
    ) -> Result<()> {
        self.ask(|it| it.set_features(features))?;
        self.set_status(FEATURES_OK)?;
        if options.inflight {
            self.send_inflight(options, inflight)?;
        }
        for (index, queue) in queues.iter().enumerate() {
            self.ask_replied(|it| it.set_vring_call(index, queue.call.fd()))?;
        }
        self.ask(|it| it.set_features(features))?;
        if self.has(protocol_feature::STATUS) {
            self.get_status()?;
        }
        self.send_memory(guest, options.slots)?;
        for (index, (queue, base)) in queues.iter().zip(bases).enumerate() {
            self.start_ring(index, queue, *base, guest, options)?;
        }
        self.enable(queues.len(), true)?;
        self.set_status(DRIVER_OK)
    }

    fn start_ring(
        &mut self,
        index: usize,
        queue: &Queue,
        base: u32,
        guest: &Guest,
        options: &Options,
    ) -> Result<()> {
        self.ask(|it| it.set_vring_num(index, options.size))?;
        let mut state = (index as u32).to_ne_bytes().to_vec();
        state.extend_from_slice(&base.to_ne_bytes());
        self.raw.send(code::SET_VRING_BASE, 0, &state, &[])?;
        let [descriptors, driver, device] = queue.ring.areas();
        let addresses = VringConfigData {
            queue_max_size: options.size,
            queue_size: options.size,
            flags: 0,
            desc_table_addr: guest.user_address(descriptors)?,
            avail_ring_addr: guest.user_address(driver)?,
            used_ring_addr: guest.user_address(device)?,
            log_addr: None,
        };
        self.ask(|it| it.set_vring_addr(index, &addresses))?;
        self.ask_replied(|it| it.set_vring_kick(index, queue.kick.fd()))
    }

    fn send_inflight(&mut self, options: &Options, inflight: &mut Option<Inflight>) -> Result<()> {
        if inflight.is_none() {
            let wish = VhostUserInflight::new(0, 0, options.queues, options.size);
            let (granted, file) = self.ask(|it| it.get_inflight_fd(&wish))?;
            let (len, offset) = (granted.mmap_size, granted.mmap_offset);
            *inflight = Some(Inflight { file, len, offset });
        }
        if let Some(Inflight { file, len, offset }) = inflight {
            let area = VhostUserInflight::new(*len, *offset, options.queues, options.size);
            self.ask(|it| it.set_inflight_fd(&area, file.as_raw_fd()))?;
        }
        Ok(())
    }

    fn send_memory(&mut self, guest: &Guest, slots: Slots) -> Result<()> {
        let fd = guest.memory().fd().as_raw_fd();
        let regions: Vec<_> = guest
            .regions()
            .iter()
            .map(|region| VhostUserMemoryRegionInfo {
                guest_phys_addr: region.guest,
                memory_size: region.len,
                userspace_addr: region.user,
                mmap_offset: region.offset,
                mmap_handle: fd,
            })
            .collect();
        match slots {
            Slots::Table => {
                self.ask_replied(|it| it.set_mem_table(&regions))?;
            }
            Slots::Add if !self.is_memory_sent => {
                for region in &regions {
                    self.ask_replied(|it| it.add_mem_region(region))?;
                }
            }
            Slots::Add => {}
        }
        self.is_memory_sent = true;
        Ok(())
    }

    /// Stops the rings: the base of each.
    pub(super) fn stop(&mut self, count: usize) -> Result<Vec<u32>> {
        self.enable(count, false)?;
        let bases: Result<Vec<_>> = (0..count)
            .map(|index| self.ask(|it| it.get_vring_base(index)))
            .collect();
        let bases = bases?;
        if self.has(protocol_feature::STATUS) {
            self.send_status(0)?;
        }
        Ok(bases)
    }

    fn enable(&mut self, count: usize, is_enabled: bool) -> Result<()> {
        for index in 0..count {
            self.ask_replied(|it| it.set_vring_enable(index, is_enabled))?;
        }
        Ok(())
    }

    /// Resets the device, where the back end can.
    pub(super) fn reset_device(&mut self) -> Result<()> {
        if self.has(protocol_feature::RESET_DEVICE) {
            self.raw.send(code::RESET_DEVICE, 0, &[], &[])?;
        }
        Ok(())
    }

    fn set_status(&mut self, status: u64) -> Result<()> {
        if !self.has(protocol_feature::STATUS) {
            return Ok(());
        }
        let before = self.get_status()?;
        self.send_status(before | status)
    }

    fn send_status(&self, status: u64) -> Result<()> {
        self.raw
            .send(code::SET_STATUS, 0, &status.to_ne_bytes(), &[])
    }

    /// The device status.
    pub(super) fn get_status(&self) -> Result<u64> {
        let reply = self.raw.ask(code::GET_STATUS, 0, &[], self.bound)?;
        reply.u64()
    }

    /// Reads the configuration space again.
    pub(super) fn read_config(&mut self) -> Result<()> {
        let has_more = self.offered & (feature::ZONED | feature::SECURE_ERASE) != 0;
        let len = if has_more {
            config::WHOLE_LEN
        } else {
            config::LEN
        };
        let zeros = vec![0; len];
        let flags = VhostUserConfigFlags::empty();
        self.config = self
            .ask(|it| it.get_config(0, len as u32, flags, &zeros))?
            .1;
        Ok(())
    }

    pub(super) fn config(&self) -> &[u8] {
        &self.config
    }

    pub(super) fn write_config(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let at = u32::try_from(at).context("an offset of more than 32 bits")?;
        self.ask(|it| it.set_config(at, VhostUserConfigFlags::empty(), bytes))?;
        self.read_config()
    }

    /// Waits for the back end's message that the configuration space has changed, and answers it.
    pub(super) fn wait_config_change(&mut self, timeout: Duration) -> Result<bool> {
        let channel = self.requests.as_ref();
        let channel = channel.context("the back end does not offer BACKEND_REQ")?;
        let Some(message) = channel.receive(timeout)? else {
            return Ok(false);
        };
        ensure!(
            message.request == code::BACKEND_CONFIG_CHANGE
                && message.body.is_empty()
                && message.fds.is_empty(),
            "the back end sent request {} of {} bytes",
            message.request,
            message.body.len()
        );
        self.read_config()?;
        if message.flags & FLAG_NEED_REPLY != 0 {
            let channel = self.requests.as_ref().context("the channel is open")?;
            channel.send(
                message.request,
                crate::raw::FLAG_REPLY,
                &0u64.to_ne_bytes(),
                &[],
            )?;
        }
        Ok(true)
    }

    pub(super) fn raw(&self) -> &Raw {
        &self.raw
    }

    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    pub(super) fn has(&self, bit: u64) -> bool {
        self.protocol & bit != 0
    }

    /// A message to which QEMU asks for a reply.
    fn ask_replied<T>(
        &mut self,
        call: impl FnOnce(&mut Frontend) -> vhost::Result<T>,
    ) -> Result<T> {
        let flags = if self.need_reply {
            VhostUserHeaderFlag::NEED_REPLY
        } else {
            VhostUserHeaderFlag::empty()
        };
        self.frontend.set_hdr_flags(flags);
        let answer = self.ask(call);
        self.frontend.set_hdr_flags(VhostUserHeaderFlag::empty());
        answer
    }

    /// Sends a message and receives its reply. The crate waits for a reply without a bound, so the
    /// connection is shut down when none comes within [`Options::bound`].
    fn ask<T>(&mut self, call: impl FnOnce(&mut Frontend) -> vhost::Result<T>) -> Result<T> {
        let (stream, bound) = (self.raw.stream(), self.bound);
        let frontend = &mut self.frontend;
        thread::scope(|scope| {
            let (done, wait) = channel::<()>();
            scope.spawn(move || {
                if wait.recv_timeout(bound) == Err(RecvTimeoutError::Timeout) {
                    // An error means that it is closed already.
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
            });
            let answer = call(frontend).map_err(|error| anyhow!("the back end: {error}"));
            drop(done);
            answer
        })
    }
}

fn connect(path: &Path) -> Result<UnixStream> {
    let deadline = Instant::now() + crate::BOUND;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("cannot connect to {}", path.display()));
            }
            Err(_) => thread::sleep(RETRY),
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("stream", &self.raw.stream().as_fd())
            .field("offered", &self.offered)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}
