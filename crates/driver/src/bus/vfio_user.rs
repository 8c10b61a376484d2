//! A controller in another process, over a vfio-user socket.
//!
//! The socket carries register accesses, one at a time, each bounded by the timeout; with mapped
//! doorbells a command does not use it. The client rejects unsolicited requests of the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use memory::{DoorbellPages, EventFd, HostMemory, Iova, Lent, PAGE};
use nvme_spec::registers::DOORBELLS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vfio_user::message::{
    DmaMapFlags, LoggingRange, LoggingReport, MigrationState, RegionFlags, irq_index, region_index,
};
use vfio_user::{Client, ClientError, Region};

use super::{Bus, MappedDoorbells, NAP, spin_then_nap};
use crate::DriverError;

/// How long a server may take to reply to a new host: if the previous one has just disconnected,
/// its commands are drained first.
const ANSWER: Duration = Duration::from_secs(6);

/// The bus to a server of vfio-user.
pub struct VfioUser {
    client: Mutex<Client>,
    /// The client's socket once more: to wait on while others use the client.
    socket: OwnedFd,
    doorbells: Option<MappedDoorbells>,
    vectors: u16,
    timeout: Duration,
    started: Instant,
}

impl VfioUser {
    /// Connects to a server's socket. Each request is bounded by `timeout`.
    ///
    /// # Errors
    /// [`DriverError::Connect`]; [`DriverError::InUse`] and [`DriverError::NoAnswer`] where the
    /// drive has, or may have, another host; [`DriverError::Broken`] for a device without a BAR0
    /// that holds registers.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, DriverError> {
        let after = timeout.min(ANSWER);
        let mut client = Client::connect(path, after).map_err(|source| {
            let path = path.to_owned();
            match source {
                ClientError::InUse { host } => DriverError::InUse { path, host },
                ClientError::Timeout => DriverError::NoAnswer { path, after },
                error => DriverError::Connect { path, error },
            }
        })?;
        client.set_timeout(timeout);
        Self::from_client(client, timeout)
    }

    /// Speaks over a connected socket.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn from_stream(stream: UnixStream, timeout: Duration) -> Result<Self, DriverError> {
        let client = Client::from_stream(stream, timeout)
            .map_err(|error| DriverError::from_client("the version negotiation", error, timeout))?;
        Self::from_client(client, timeout)
    }

    fn from_client(mut client: Client, timeout: Duration) -> Result<Self, DriverError> {
        let map = |what| move |error| DriverError::from_client(what, error, timeout);
        client
            .device_info()
            .map_err(map("the device info request"))?;
        let bar0 = client
            .region_info(region_index::BAR0)
            .map_err(map("the region info request for BAR0"))?;
        if bar0.info.size <= DOORBELLS {
            return Err(DriverError::Unsupported(format!(
                "BAR0 has {} bytes, too few for doorbells: not an NVMe controller",
                bar0.info.size
            )));
        }
        let doorbells = map_doorbells(bar0)?;
        let irqs = client
            .irq_info(irq_index::MSIX)
            .map_err(map("the interrupt info request for MSI-X"))?;
        let socket = client
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| DriverError::System {
                what: "duplicate the socket's descriptor",
                source,
            })?;
        Ok(Self {
            client: Mutex::new(client),
            socket,
            doorbells,
            vectors: u16::try_from(irqs.count).unwrap_or(u16::MAX),
            timeout,
            started: Instant::now(),
        })
    }

    /// A panic of another user of the bus leaves the client in step: it keeps
    /// no state between requests but the socket's.
    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another thread uses it.
    fn try_client(&self) -> Option<MutexGuard<'_, Client>> {
        match self.client.try_lock() {
            Ok(client) => Some(client),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn request<T>(
        &self,
        what: &'static str,
        ask: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, DriverError> {
        ask(&mut self.client()).map_err(|error| DriverError::from_client(what, error, self.timeout))
    }

    /// Whether the server moves the device to another server.
    pub(super) fn migrates(&self) -> Result<bool, DriverError> {
        self.request("the migration features request", |client| {
            client.can_migrate(self.timeout)
        })
    }

    /// Has the device take a state.
    pub(super) fn set_migration_state(&self, state: MigrationState) -> Result<(), DriverError> {
        let what = match state {
            MigrationState::RUNNING => "the start of the device (RUNNING)",
            MigrationState::STOP_COPY => "the stop of the device (STOP_COPY)",
            MigrationState::RESUMING => "the preparation of the device (RESUMING)",
            _ => "a state of the device",
        };
        self.request(what, |client| {
            client.set_migration_state(state, self.timeout)
        })
    }

    /// The next bytes of the device's state; fewer than `len` are the last.
    pub(super) fn read_migration_data(&self, len: usize) -> Result<Vec<u8>, DriverError> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.request("a read of the device's state", |client| {
            client.read_migration_data(len, self.timeout)
        })
    }

    /// The next bytes of a state for the device.
    pub(super) fn write_migration_data(&self, data: &[u8]) -> Result<(), DriverError> {
        self.request("a write of the device's state", |client| {
            client.write_migration_data(data, self.timeout)
        })
    }

    /// Has the drive log the pages that it writes in these ranges.
    pub(super) fn start_logging(&self, ranges: &[LoggingRange]) -> Result<(), DriverError> {
        self.request("the start of the log of written pages", |client| {
            client.start_logging(ranges, PAGE, self.timeout)
        })
    }

    /// Ends that.
    pub(super) fn stop_logging(&self) -> Result<(), DriverError> {
        self.request("the end of the log of written pages", |client| {
            client.stop_logging(self.timeout)
        })
    }

    /// The pages of a range that it has written since it was asked last; none where it has lost the
    /// log.
    pub(super) fn report_logging(
        &self,
        base: Iova,
        len: u64,
    ) -> Result<Option<Vec<u64>>, DriverError> {
        let asked = LoggingReport {
            iova: base.0,
            length: len,
            page_size: PAGE,
        };
        self.request("the report of written pages", |client| {
            match client.report_logging(asked, self.timeout) {
                Err(ClientError::Refused(_)) => Ok(None),
                reply => reply.map(Some),
            }
        })
    }

    /// Lets the drive read and write a file from its start, at `base`.
    pub(super) fn share_file(
        &self,
        fd: BorrowedFd<'_>,
        len: u64,
        base: Iova,
    ) -> Result<(), DriverError> {
        self.request("the mapping of memory", |client| {
            let flags = DmaMapFlags::READ | DmaMapFlags::WRITE;
            client.dma_map(base.0, len, flags, Some((fd, 0)))
        })
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N], DriverError> {
        let mut bytes = [0; N];
        self.request("a register read", |client| {
            client.region_read(region_index::BAR0, offset, &mut bytes)
        })?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.request("a register write", |client| {
            client.region_write(region_index::BAR0, offset, bytes)
        })
    }
}

/// The region of a base address register.
fn region(bar: u8) -> u32 {
    assert!(bar < 6, "a function has base address registers 0 to 5");
    region_index::BAR0 + u32::from(bar)
}

/// Maps the area of BAR0 in which the doorbells begin, where there is one.
fn map_doorbells(bar0: Region) -> Result<Option<MappedDoorbells>, DriverError> {
    let Some(fd) = bar0.fd else { return Ok(None) };
    if !bar0.info.flags.contains(RegionFlags::MMAP) {
        return Ok(None);
    }
    // No list of areas: the whole region may be mapped.
    let (start, len) = if bar0.areas.is_empty() {
        (0, bar0.info.size)
    } else {
        let holds = |area: &&vfio_user::message::SparseArea| {
            area.offset <= DOORBELLS && DOORBELLS - area.offset < area.size
        };
        match bar0.areas.iter().find(holds) {
            Some(area) => (area.offset, area.size),
            None => return Ok(None),
        }
    };
    let broken = || {
        DriverError::Broken(format!(
            "a mappable area of BAR0 has the invalid size of {len} bytes"
        ))
    };
    let len = usize::try_from(len).map_err(|_| broken())?;
    let at = bar0.info.offset.checked_add(start).ok_or_else(broken)?;
    let pages = DoorbellPages::map_client(fd, at, len).map_err(|error| {
        DriverError::Broken(format!("its doorbell page cannot be mapped: {error}"))
    })?;
    Ok(Some(MappedDoorbells {
        pages: Arc::new(pages),
        start,
    }))
}

impl Bus for VfioUser {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        Ok(u32::from_le_bytes(self.read(offset)?))
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        Ok(u64::from_le_bytes(self.read(offset)?))
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write(offset, &value.to_le_bytes())
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.write(offset, &value.to_le_bytes())
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.request("a doorbell write", |client| {
            client.region_write_posted(region_index::BAR0, offset, &value.to_le_bytes())
        })
    }

    fn try_ring(&self, offset: u64, value: u32) -> Result<bool, DriverError> {
        let Some(mut client) = self.try_client() else {
            return Ok(false);
        };
        client
            .try_region_write_posted(region_index::BAR0, offset, &value.to_le_bytes())
            .map_err(|error| DriverError::from_client("a doorbell write", error, self.timeout))
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.request("a read of PCI configuration space", |client| {
            client.region_read(region_index::CONFIG, offset, out)
        })
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.request("a write to PCI configuration space", |client| {
            client.region_write(region_index::CONFIG, offset, data)
        })
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        self.request("the region info request for a BAR", |client| {
            Ok(client.region_info(region(bar))?.info.size)
        })
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.request("a read of a BAR", |client| {
            client.region_read(region(bar), offset, out)
        })
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.request("a write to a BAR", |client| {
            client.region_write(region(bar), offset, data)
        })
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.request("a device reset", Client::reset)
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        self.doorbells.clone()
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        let len = u64::try_from(memory.len()).expect("usize fits in 64 bits");
        self.share_file(memory.fd(), len, base)
    }

    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        let file = memory.file().ok_or_else(|| {
            DriverError::Unsupported(
                "memory without a file descriptor cannot be shared with a drive".to_owned(),
            )
        })?;
        let flags = if memory.is_writable() {
            DmaMapFlags::READ | DmaMapFlags::WRITE
        } else {
            DmaMapFlags::READ
        };
        let (_, len) = memory.as_raw();
        self.request("the mapping of a host's memory", |client| {
            client.dma_map(base.0, len, flags, Some(file))
        })
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        self.request("the unmapping of memory", |client| {
            client.dma_unmap(base.0, len)
        })
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.request("the assignment of an eventfd", |client| {
            client.set_irqs(irq_index::MSIX, u32::from(vector), &[eventfd.as_fd()])
        })
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        self.request("the removal of an eventfd", |client| {
            client.clear_irqs(irq_index::MSIX, u32::from(vector), 1)
        })
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        let irqs = self.request("the interrupt info request for MSI", |client| {
            client.irq_info(irq_index::MSI)
        })?;
        if u32::from(message) >= irqs.count {
            return Err(DriverError::Unsupported(format!(
                "the drive has {} MSI messages: number {message} does not exist",
                irqs.count
            )));
        }
        self.request("the assignment of an eventfd", |client| {
            client.set_irqs(irq_index::MSI, u32::from(message), &[eventfd.as_fd()])
        })
    }

    fn pause(&self) {
        thread::sleep(NAP);
    }

    fn relax(&self, empty: u32) {
        spin_then_nap(empty);
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a timeout fits in a timespec");
            let mut fds = [
                PollFd::new(eventfd, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(DriverError::System {
                        what: "wait for an interrupt",
                        source: errno.into(),
                    });
                }
            }
            let signalled = !fds[0].revents().is_empty();
            let spoken_to = !fds[1].revents().is_empty();
            if signalled && eventfd.drain() {
                return Ok(true);
            }
            if spoken_to {
                self.check_alive()?;
            }
        }
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        if self.doorbells.as_ref().is_some_and(|d| d.pages.is_lost()) {
            return Err(DriverError::Broken(
                "its server truncated the mapped doorbell page".to_owned(),
            ));
        }
        // The thread that has the client finds out, and may have to wait for a server that is
        // stopped; a thread that polls must not.
        let Some(mut client) = self.try_client() else {
            return Ok(());
        };
        client.service().map_err(|error| {
            DriverError::from_client("a request of the server", error, self.timeout)
        })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
