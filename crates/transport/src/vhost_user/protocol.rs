//! Messages of a front end, and what they do to the session.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use controller::Controller;
use memory::EventFd;
use memory::guest::dma::Reach;
use port::time::Time;
use vhost_user::{
    ConfigAccess, Features, Header, Inflight as Description, MAX_BODY, MAX_FDS, Message,
    ProtocolFeatures, Region, Request, VringAddr, VringFd, VringState,
};

use super::config::protocol_features;
use super::end::End;
use super::queue::{Inflight, RingFault};
use super::regions::MAX_REGIONS;
use super::session::Session;
use super::waiting::{Until, Waiting};
use crate::eventfd::eventfd;

/// Entries of a ring at most (VIRTIO 1.3, 2.7 and 2.8).
const MAX_ENTRIES: u32 = 1 << 15;
/// Stores to the used ring are to be logged (`VHOST_VRING_F_LOG`).
const VRING_LOG: u32 = 1;
/// Device status: the device has met an error that it cannot go on with (VIRTIO 1.3, 2.1).
const NEEDS_RESET: u8 = 0x40;

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal(&'static str);

/// The outcome of a message.
enum Answer {
    /// It was done. It is acknowledged where the front end wants that.
    Done,
    /// A reply with these bytes.
    Reply(Vec<u8>, Option<OwnedFd>),
    /// A reply that waits.
    Later(Until),
}

impl Answer {
    fn number(number: u64) -> Self {
        Self::Reply(number.to_le_bytes().to_vec(), None)
    }
}

type Fds = ArrayVec<OwnedFd, MAX_FDS>;

impl Session {
    /// Does what the message says that the connection has.
    ///
    /// # Errors
    /// It breaks a rule, or is refused and the front end takes no reply that says so.
    pub(super) fn handle(
        &mut self,
        header: &Header,
        controller: &mut Controller,
        now: Time,
    ) -> Result<(), End> {
        let mut body = [0; MAX_BODY];
        let (body, fds) = self.connection.take(&mut body);
        let message = Message::parse(header.request, body, fds.len())?;
        let answer = self.apply(message, fds, controller);
        match answer {
            Ok(Answer::Done) => self.acknowledge(header, 0, now),
            Ok(Answer::Reply(bytes, fd)) => self.connection.reply(header, &[&bytes], fd, now),
            Ok(Answer::Later(until)) => {
                self.waiting = Some(Waiting::new(header, until, now));
                Ok(())
            }
            Err(Refusal(why)) => {
                tracing::debug!(
                    controller = self.name,
                    "refused {} of a front end: {why}",
                    header.request
                );
                let can_say = self.protocol.reply_ack() && header.needs_reply;
                if can_say && !has_own_reply(header.request) {
                    return self.acknowledge(header, 1, now);
                }
                Err(End::Refused(why))
            }
        }
    }

    /// Acknowledges a message that has no reply by itself, where the front end wants that: 0 is
    /// success.
    pub(super) fn acknowledge(
        &mut self,
        header: &Header,
        number: u64,
        now: Time,
    ) -> Result<(), End> {
        if !self.protocol.reply_ack() || !header.needs_reply {
            return Ok(());
        }
        let body = number.to_le_bytes();
        self.connection.reply(header, &[&body], None, now)
    }

    fn apply(
        &mut self,
        message: Message<'_>,
        mut fds: Fds,
        controller: &mut Controller,
    ) -> Result<Answer, Refusal> {
        match message {
            Message::GetFeatures => {
                self.offer(controller);
                return Ok(Answer::number(self.offered.into()));
            }
            Message::SetFeatures(features) => self.agree(Features::from(features))?,
            Message::GetProtocolFeatures => {
                return Ok(Answer::number(protocol_features().into()));
            }
            Message::SetProtocolFeatures(features) => {
                if features & !u64::from(protocol_features()) != 0 {
                    return Err(Refusal(
                        "the front end uses features of the protocol that were not offered",
                    ));
                }
                self.protocol = ProtocolFeatures::from(features);
            }
            Message::GetQueueNum => return Ok(Answer::number(self.rings.len() as u64)),
            Message::GetMaxMemSlots => return Ok(Answer::number(MAX_REGIONS as u64)),
            Message::SetOwner => {}
            Message::SetMemTable(table) => return self.set_memory(&table, fds, controller),
            Message::AddMemReg(region) => {
                let fd = fds.pop().ok_or(MISSING)?;
                self.add_memory(region, fd)?;
                self.publish_memory(controller);
            }
            Message::RemMemReg(region) => {
                self.regions.remove(&region).map_err(|error| {
                    tracing::debug!(controller = self.name, "{error}");
                    Refusal("the front end removes memory that it has not shared")
                })?;
                return Ok(self.changed_memory(controller));
            }
            Message::SetVringNum(state) => {
                let ring = self.stopped_ring(&state)?;
                if state.num == 0 || state.num > MAX_ENTRIES {
                    return Err(Refusal("a ring must have 1 to 32768 entries"));
                }
                self.rings[ring].size = state.num as u16;
            }
            Message::SetVringBase(state) => {
                let ring = self.stopped_ring(&state)?;
                self.rings[ring].base = state.num;
            }
            Message::SetVringAddr(addresses) => self.set_addresses(addresses)?,
            Message::GetVringBase(state) => {
                let ring = self.ring(state.index)?;
                self.rings[ring].is_stopping = true;
                return Ok(Answer::Later(Until::Stopped(ring)));
            }
            Message::SetVringKick(VringFd { index, .. }) => {
                let ring = self.ring(index.into())?;
                let kick = event(&mut fds)?;
                let set = self.rings[ring].set_kick(kick, &self.kicks);
                set.map_err(|_| Refusal("there is no memory to watch a ring's kick"))?;
                if !self.features.protocol_features() {
                    self.rings[ring].is_enabled = true;
                }
                self.start_ring(ring);
            }
            Message::SetVringCall(VringFd { index, .. }) => {
                let ring = self.ring(index.into())?;
                let call = event(&mut fds)?;
                self.rings[ring].set_call(call);
            }
            Message::SetVringErr(VringFd { index, .. }) => {
                let ring = self.ring(index.into())?;
                let err = event(&mut fds)?;
                self.rings[ring].set_err(err);
            }
            Message::SetVringEnable(VringState { index, num }) => {
                let ring = self.ring(index)?;
                self.rings[ring].is_enabled = num != 0;
                self.rearm();
            }
            Message::SetBackendReqFd => {
                let fd = fds.pop().ok_or(MISSING)?;
                self.news.set_channel(fd);
            }
            Message::GetConfig(access) => return Ok(self.get_config(&access)),
            Message::SetConfig(_) => {
                return Err(Refusal(
                    "the front end writes to the configuration space, of which no field can be written",
                ));
            }
            Message::GetInflightFd(asked) => return self.make_inflight(&asked),
            Message::SetInflightFd(given) => {
                let fd = fds.pop().ok_or(MISSING)?;
                self.use_inflight(&given, fd)?;
            }
            Message::ResetOwner | Message::ResetDevice => return Ok(self.begin_reset()),
            Message::SetStatus(0) => return Ok(self.begin_reset()),
            Message::SetStatus(status) => {
                self.status = u8::try_from(status)
                    .map_err(|_| Refusal("a device status has 8 bits"))?
                    & !NEEDS_RESET;
            }
            Message::GetStatus => {
                let is_broken = self.rings.iter().any(|ring| ring.is_broken());
                let status = self.status & !self.refused_status();
                let status = status | if is_broken { NEEDS_RESET } else { 0 };
                return Ok(Answer::number(status.into()));
            }
            Message::Unknown => {
                return Err(Refusal(
                    "the front end sends a message that was not offered",
                ));
            }
        }
        Ok(Answer::Done)
    }

    /// Offers the features that the device has now.
    fn offer(&mut self, controller: &Controller) {
        if let Some(features) = self.features_now(controller) {
            self.offered = features;
        }
    }

    /// The driver has agreed on features.
    fn agree(&mut self, agreed: Features) -> Result<(), Refusal> {
        // A namespace that was read only may have become writable.
        let allowed = u64::from(self.offered.with_ro(true));
        if u64::from(agreed) & !allowed != 0 {
            return Err(Refusal(
                "the driver uses features of the device that were not offered",
            ));
        }
        let is_running = self.rings.iter().any(|ring| ring.queue.is_some());
        if is_running && agreed != self.features {
            return Err(Refusal("the features change while a ring runs"));
        }
        self.set_features(agreed);
        if self.refused_status() != 0 {
            self.note_unaware();
        }
        Ok(())
    }

    fn ring(&self, index: u32) -> Result<usize, Refusal> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index < self.rings.len() {
            Ok(index)
        } else {
            Err(Refusal(
                "the front end names a ring that the device does not have: give it fewer queues",
            ))
        }
    }

    /// A ring whose numbers may change: it does not run.
    fn stopped_ring(&self, state: &VringState) -> Result<usize, Refusal> {
        let index = self.ring(state.index)?;
        if self.rings[index].queue.is_some() {
            return Err(Refusal("the numbers of a ring change while it runs"));
        }
        Ok(index)
    }

    fn set_addresses(&mut self, addresses: VringAddr) -> Result<(), Refusal> {
        let ring = self.ring(addresses.index)?;
        if addresses.flags & VRING_LOG != 0 {
            return Err(Refusal(
                "writes to memory are to be logged, which was not offered",
            ));
        }
        if self.rings[ring].queue.is_some() {
            // Some repeat it.
            return if self.rings[ring].addresses == Some(addresses) {
                Ok(())
            } else {
                Err(Refusal("the address of a ring changes while it runs"))
            };
        }
        self.rings[ring].addresses = Some(addresses);
        self.start_ring(ring);
        Ok(())
    }

    /// Has a ring run, where nothing is missing.
    fn start_ring(&mut self, index: usize) {
        self.rings[index].forgive();
        if let Err(fault) = self.try_ring(index) {
            self.broke(index, &fault);
        }
    }

    /// The same; the fault of one that cannot run.
    fn try_ring(&mut self, index: usize) -> Result<(), RingFault> {
        let record = self
            .inflight
            .as_ref()
            .and_then(|it| it.record(index as u16));
        let regions = &self.regions;
        let started = self.rings[index].start(self.features, &self.view, record, |user| {
            regions.guest(user)
        });
        self.begun(index);
        started
    }

    fn add_memory(&mut self, region: Region, fd: OwnedFd) -> Result<(), Refusal> {
        self.regions.add(region, fd).map_err(|error| {
            tracing::warn!(
                controller = self.name,
                address = region.guest,
                bytes = region.len,
                "memory of a front end cannot be used: {error}"
            );
            Refusal("memory of the front end cannot be used: the log says why")
        })
    }

    fn set_memory(
        &mut self,
        table: &[Region],
        fds: Fds,
        controller: &mut Controller,
    ) -> Result<Answer, Refusal> {
        self.regions.clear();
        for (region, fd) in table.iter().zip(fds) {
            if let Err(refusal) = self.add_memory(*region, fd) {
                // The regions before are gone in any case: all sides see one memory, which is none.
                self.regions.clear();
                self.publish_memory(controller);
                return Err(refusal);
            }
        }
        Ok(self.changed_memory(controller))
    }

    /// Has the controller and the rings see memory that was added; what devices could still reach
    /// of what was removed.
    fn publish_memory(&mut self, controller: &mut Controller) -> Vec<Arc<Reach>> {
        let reached = self.regions.publish(controller);
        self.view = self.regions.view();
        for index in 0..self.rings.len() {
            let ring = &mut self.rings[index];
            let resolved = ring.queue.as_mut().map(|queue| queue.resolve(&self.view));
            let is_known = ring.is_broken();
            if let Some(Err(fault)) = resolved {
                ring.lose();
                if !is_known {
                    self.broke(index, &fault);
                }
            }
            // It may have waited for its memory. One that goes on waiting is counted already.
            let started = self.try_ring(index);
            if let Err(fault) = started
                && !is_known
            {
                self.broke(index, &fault);
            }
        }
        reached
    }

    /// The same where memory was removed: the reply waits until nothing uses it.
    fn changed_memory(&mut self, controller: &mut Controller) -> Answer {
        let reached = self.publish_memory(controller);
        Answer::Later(Until::Drained {
            epoch: self.view.epoch(),
            reached,
        })
    }

    fn get_config(&self, access: &ConfigAccess<'_>) -> Answer {
        let len = access.bytes.len();
        let words = [access.offset, len as u32, access.flags];
        let mut bytes = words.map(u32::to_le_bytes).concat();
        let from = usize::try_from(access.offset).unwrap_or(usize::MAX);
        // Behind the fields of this device are those that it does not have.
        let field = |at| self.config.get(from.saturating_add(at)).copied();
        bytes.extend((0..len).map(|at| field(at).unwrap_or(0)));
        Answer::Reply(bytes, None)
    }

    fn make_inflight(&self, asked: &Description) -> Result<Answer, Refusal> {
        self.check_inflight(asked)?;
        let is_packed = self.features.ring_packed();
        let made = Inflight::create(asked.queues, asked.queue_size, is_packed);
        let (_, fd, len) = made.map_err(|error| {
            tracing::warn!(
                controller = self.name,
                "no memory for what is in flight: {error}"
            );
            Refusal("there is no memory for what is in flight")
        })?;
        let description = Description {
            len,
            offset: 0,
            ..*asked
        };
        let bytes = description.encode().to_vec();
        Ok(Answer::Reply(bytes, Some(fd)))
    }

    fn use_inflight(&mut self, given: &Description, fd: OwnedFd) -> Result<(), Refusal> {
        self.check_inflight(given)?;
        if self.rings.iter().any(|ring| ring.queue.is_some()) {
            return Err(Refusal(
                "the memory for what is in flight changes while a ring runs",
            ));
        }
        let is_packed = self.features.ring_packed();
        let (len, offset) = (given.len, given.offset);
        let adopted = Inflight::adopt(fd, len, offset, given.queues, given.queue_size, is_packed);
        let adopted = adopted.map_err(|error| {
            tracing::warn!(
                controller = self.name,
                "memory for what is in flight cannot be used: {error}"
            );
            Refusal("the memory for what is in flight cannot be used: the log says why")
        })?;
        self.inflight = Some(adopted);
        Ok(())
    }

    fn check_inflight(&self, it: &Description) -> Result<(), Refusal> {
        let is_size = (1..=MAX_ENTRIES).contains(&it.queue_size.into());
        if it.queues == 0 || usize::from(it.queues) > self.rings.len() || !is_size {
            return Err(Refusal(
                "memory for what is in flight of more rings, or longer ones, than the device has",
            ));
        }
        Ok(())
    }

    /// Takes no more requests, and resets the device when none is in flight.
    fn begin_reset(&mut self) -> Answer {
        for ring in &mut self.rings {
            ring.is_stopping = true;
        }
        Answer::Later(Until::Reset)
    }

    /// The device is as it was at the beginning. Memory, calls and what the connection has agreed
    /// on stay.
    pub(super) fn reset(&mut self) {
        for index in 0..self.rings.len() {
            self.stop_ring(index);
            let ring = &mut self.rings[index];
            (ring.is_enabled, ring.addresses) = (false, None);
            (ring.size, ring.base) = (0, 0);
        }
        self.inflight = None;
        self.status = 0;
        self.set_features(Features::new());
    }
}

/// Whether a message that can be refused has a reply with a body of its own, which would be read
/// out of an acknowledgement.
fn has_own_reply(request: Request) -> bool {
    matches!(request, Request::GET_VRING_BASE | Request::GET_INFLIGHT_FD)
}

/// A descriptor is missing, which its message has checked.
const MISSING: Refusal = Refusal("a descriptor is missing");

/// The eventfd of a message about a ring.
fn event(fds: &mut Fds) -> Result<Option<EventFd>, Refusal> {
    let taken = fds.pop().map(eventfd).transpose();
    taken.map_err(|_| Refusal("a ring's descriptor is no eventfd: send one of eventfd(2)"))
}
