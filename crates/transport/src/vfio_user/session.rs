//! One connected host: each message gets its reply.
//!
//! A poll handles a bounded number of messages and never blocks. A reply that must wait (`waiting`)
//! delays only itself, except that after a DEVICE_RESET no message is read until the reset is done.
//! Replies that the host has not read yet are kept, up to the limit of [`Connection`].

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::{fmt, io};

use controller::controller::{MigrateError, Moved};
use controller::{Controller, Failure, Interrupt};
use memory::{ClientMappings, DmaView, DoorbellPages, EventFd, LostFlag};
use port::time::Time;
use rustix::io::Errno;
use vfio_user::message::{
    Access, DeviceFeature, DeviceFlags, DeviceInfo, FeatureFlags, Version, irq_index, region_index,
};
use vfio_user::relayed::{KEEP, RESUMED};
use vfio_user::{Command, Connection, Header, Message, Parting};

use super::hearing::{ResumeError, hear};
use super::interrupts::Interrupts;
use super::logging::is_logging;
use super::memory_map::MemoryMap;
use super::migration::{Migration, claim};
use super::waiting::{Until, Waiting, WaitingList};
use super::{Answer, Polled, SessionConfig, SessionEnd, logging, number, regions};

/// Messages handled in one poll, so that a host that talks without end does not keep its reactor.
const MAX_MESSAGES: u32 = 16;
/// Polls in a row that end at [`MAX_MESSAGES`], after which all messages have been read that were
/// sent before the first one: a socket's buffer (`net.core.rmem_default` and `wmem_default`,
/// 208 KiB each) holds fewer than 16,384 of 32 bytes.
const POLLS_OF_A_SOCKET: u32 = 1024;

/// A connected host and its state.
pub struct Session {
    connection: Connection,
    process: Option<u32>,
    device: Device,
    waiting: WaitingList,
    /// Polls in a row that found more messages than they may read, while an admin command waits
    /// for them to be read.
    busy_polls: u32,
}

/// A state on its way into a controller.
#[derive(Debug)]
pub struct Moving {
    /// The state.
    pub state: Moved,
    /// The doorbells that the host rings.
    pub doorbells: Arc<DoorbellPages>,
    /// The host's memory.
    pub view: Arc<DmaView>,
}

/// Everything but the socket.
struct Device {
    config: SessionConfig,
    /// Whether the descriptor of the doorbells was sent: from then on they change without a
    /// message.
    doorbells_sent: bool,
    doorbells: Arc<DoorbellPages>,
    memory: MemoryMap,
    interrupts: Interrupts,
    migration: Migration,
    /// The body of the reply.
    body: Vec<u8>,
}

impl Session {
    /// Serves the host at the other end of `connection`, with which a version is agreed
    /// ([`super::Caller`]).
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub(super) fn new(
        connection: Connection,
        process: Option<u32>,
        doorbells: Arc<DoorbellPages>,
        config: SessionConfig,
    ) -> io::Result<Self> {
        Ok(Self {
            connection,
            process,
            device: Device {
                interrupts: Interrupts::new(&config)?,
                migration: Migration::new(config.custody.clone()),
                config,
                doorbells_sent: false,
                doorbells,
                memory: MemoryMap::new(),
                body: Vec::new(),
            },
            waiting: WaitingList::default(),
            busy_polls: 0,
        })
    }

    /// The host's process, where this one can see it.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Whether the host was sent the descriptor of the doorbells by a former process.
    pub(super) fn doorbells_were_sent(&mut self, sent: bool) {
        self.device.doorbells_sent = sent;
    }

    /// Applies the next message that a former process has applied, for which this waits; false at
    /// their end.
    pub(super) fn hear_again(&mut self) -> Result<bool, ResumeError> {
        let Self {
            connection, device, ..
        } = self;
        hear(connection, |message| {
            let command = message.header.command;
            if command == RESUMED {
                return Ok(false);
            }
            let applied = device.apply_again(message)?;
            applied.map_err(|errno| ResumeError::Refused { command, errno })?;
            Ok(true)
        })?
    }

    /// Takes the media from another server, for a host that begins here, unless that one has them.
    pub(super) fn claim(&self, controller: &mut Controller) {
        claim(self.device.config.custody.as_deref(), controller);
    }

    /// Answers the host's VERSION.
    pub(super) fn introduce(
        &mut self,
        request: &Header,
        reply: &Version,
    ) -> Result<(), SessionEnd> {
        let body = &mut self.device.body;
        body.clear();
        reply.encode(body);
        Ok(self.connection.reply(request, &[body], &[])?)
    }

    /// The host's memory, for a controller that goes on with it.
    pub(super) fn view(&self) -> (Arc<DmaView>, LostFlag) {
        self.device.memory.view()
    }

    /// A controller that was restored takes over.
    ///
    /// # Errors
    /// Its holder is gone.
    pub fn continue_with(&mut self, controller: &mut Controller) -> Result<(), SessionEnd> {
        let (view, lost) = self.view();
        controller.set_view(view, lost);
        self.device.interrupts.follow(controller);
        self.keep(controller)
    }

    /// Gives a holder what another process needs to go on with this controller.
    pub(super) fn keep(&mut self, controller: &Controller) -> Result<(), SessionEnd> {
        if self.connection.is_relayed() {
            let fds = [controller.state_file().fd(), self.device.doorbells.fd()];
            let header = Header::posted(0, KEEP);
            self.connection.send(&header, &[], &fds)?;
        }
        Ok(())
    }

    /// The files of the host's memory that are mapped.
    #[must_use]
    pub fn memory(&self) -> &ClientMappings {
        self.device.memory.files()
    }

    /// Sends pending data, and handles the next messages. Due when the socket or [`Self::unmasked`]
    /// is readable, when the socket is writable and [`Self::wants_write`], in every turn while
    /// [`Self::has_pending`], and at [`Self::next_deadline`].
    pub fn poll(&mut self, controller: &mut Controller, now: Time) -> Polled {
        let mut messages = 0;
        let ended = self.serve(controller, now, &mut messages).err();
        if matches!(ended, Some(SessionEnd::FramingLost { .. })) {
            controller.fail(Failure::ClientLost);
        }
        Polled { messages, ended }
    }

    fn serve(
        &mut self,
        controller: &mut Controller,
        now: Time,
        messages: &mut u32,
    ) -> Result<(), SessionEnd> {
        self.connection.flush()?;
        if self.device.interrupts.take_unmasked() {
            controller.recheck_interrupts(true);
        }
        self.send_due(controller, now)?;
        while *messages < MAX_MESSAGES && self.waiting.has_room() {
            let Some(message) = self.connection.receive()? else {
                self.note_read(controller);
                break;
            };
            *messages += 1;
            let header = message.header;
            let answer = self.device.handle(message, controller);
            self.answer(&header, answer, now)?;
        }
        if *messages == MAX_MESSAGES && controller.waits_for_messages() {
            self.busy_polls += 1;
            if self.busy_polls == POLLS_OF_A_SOCKET {
                self.note_read(controller);
            }
        }
        self.send_due(controller, now)
    }

    /// Everything has been read that was sent before the controller looked at its doorbells.
    fn note_read(&mut self, controller: &mut Controller) {
        self.busy_polls = 0;
        controller.messages_read();
    }

    /// Ends it, so that the host sees an end of file. Its mappings are the session's no longer.
    #[must_use]
    pub fn part(self) -> Parting {
        Parting::new(self.connection)
    }

    fn answer(
        &mut self,
        request: &Header,
        answer: Result<Answer, Errno>,
        now: Time,
    ) -> Result<(), SessionEnd> {
        let body = [self.device.body.as_slice()];
        match answer {
            Ok(Answer::Reply) => self.connection.reply(request, &body, &[])?,
            Ok(Answer::ReplyWithDoorbells) => {
                let fds = [self.device.doorbells.fd()];
                self.connection.reply(request, &body, &fds)?;
                self.device.doorbells_sent = true;
            }
            Ok(Answer::Later(until)) => self.waiting.push(*request, until, now),
            Ok(Answer::Nothing) => {}
            Err(errno) => {
                let Header { command, .. } = request;
                tracing::debug!(
                    controller = self.device.config.name,
                    "rejected {command}: {errno}"
                );
                self.connection.reply_error(request, number(errno))?;
            }
        }
        Ok(())
    }

    fn take_due(
        &mut self,
        controller: &mut Controller,
        now: Time,
    ) -> Option<(Waiting, Result<(), Errno>)> {
        let migration = &mut self.device.migration;
        self.waiting.take_due(controller, migration, now)
    }

    /// Whether the host waits for a step for which the controller and its session are not enough:
    /// [`Self::asks_to_leave`], [`Self::take_arrived`].
    #[must_use]
    pub fn migrates(&self) -> bool {
        let migration = &self.device.migration;
        migration.asks_to_leave() || migration.has_arrived()
    }

    /// Whether the controller is to leave this server. [`Self::may_leave`] follows.
    #[must_use]
    pub fn asks_to_leave(&self) -> bool {
        self.device.migration.asks_to_leave()
    }

    /// Says whether the subsystem has something that would be lost.
    pub fn may_leave(&mut self, controller: &Controller, obstacle: Result<(), MigrateError>) {
        self.device.migration.may_leave(controller, obstacle);
    }

    /// The state of a controller on another server, which one in the place of this controller is
    /// to take: with these doorbells and this memory. [`Self::moved`] follows.
    pub fn take_arrived(&mut self, controller: &Controller) -> Option<Moving> {
        if !self.device.migration.has_arrived() || !controller.is_quiet() {
            return None;
        }
        Some(Moving {
            state: self.device.migration.take_arrived()?,
            doorbells: self.device.doorbells.clone(),
            view: self.view().0,
        })
    }

    /// Another controller is in the place of the last one, with the state that had arrived or as
    /// after power-on.
    ///
    /// # Errors
    /// Its holder is gone.
    pub fn moved(
        &mut self,
        controller: &mut Controller,
        taken: Result<(), MigrateError>,
    ) -> Result<(), SessionEnd> {
        if let Err(error) = taken {
            self.device.migration.fail(controller, &error);
        }
        controller.expect_messages();
        self.continue_with(controller)
    }

    /// Sends the replies that need not wait any longer.
    fn send_due(&mut self, controller: &mut Controller, now: Time) -> Result<(), SessionEnd> {
        while let Some((waiting, result)) = self.take_due(controller, now) {
            self.device.body.clear();
            match waiting.until {
                Until::Drained { request, .. } => request.encode(&mut self.device.body),
                Until::Settled(Some(request)) | Until::OffBus(request) => {
                    request.encode(&mut self.device.body)
                }
                Until::Settled(None) => (),
                Until::Logging { epoch, reply } => {
                    if result.is_err() {
                        self.device.memory.stop_log(Some(epoch), controller);
                    }
                    self.device.body = reply;
                }
                Until::Migrated(reply) => {
                    reply.encode(&mut self.device.body);
                    self.device.migration.value().encode(&mut self.device.body);
                }
                Until::Reset => {
                    let interrupts = &mut self.device.interrupts;
                    interrupts.forget_pending();
                    interrupts.follow(controller);
                }
            }
            self.answer(&waiting.request, result.map(|()| Answer::Reply), now)?;
        }
        Ok(())
    }

    /// Interrupts the host. Where it has not assigned an eventfd, or has masked the interrupt, that
    /// waits.
    #[inline]
    pub fn raise(&mut self, interrupt: Interrupt) {
        self.device.interrupts.raise(interrupt);
    }

    /// Count of changes to the delivery of MSI-X vectors; never 0.
    #[must_use]
    pub fn line_changes(&self) -> u64 {
        self.device.interrupts.changes()
    }

    /// By vector of MSI-X: the eventfd that interrupts the host now, for another thread to signal.
    /// For a vector without one, the session delivers the interrupt when it can.
    #[must_use]
    pub fn lines(&self) -> Vec<Option<EventFd>> {
        self.device.interrupts.lines_of_msix()
    }

    /// If the controller has a pin, a descriptor that becomes readable when the host unmasks the
    /// pin without a message: the same one as long as the session lives.
    #[must_use]
    pub fn unmasked(&self) -> Option<BorrowedFd<'_>> {
        self.device.interrupts.unmasked()
    }

    /// Whether replies wait for commands in flight: poll in every turn.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When a bound on such a wait is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiting.next_deadline()
    }

    /// Whether there is data to send when the socket is writable.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the host may have mapped the doorbells: it then rings them without a message.
    #[must_use]
    pub fn doorbells_mapped(&self) -> bool {
        self.device.doorbells_sent
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl fmt::Debug for Session {
    /// Without the host's bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("config", &self.device.config)
            .field("connection", &self.connection)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Executes a message. The reply's body is in `self.body`.
    fn handle(
        &mut self,
        message: Message<'_>,
        controller: &mut Controller,
    ) -> Result<Answer, Errno> {
        self.body.clear();
        let header = message.header;
        if header.is_reply() {
            // The server sends a host no commands, so a host's reply answers none.
            return Ok(Answer::Nothing);
        }
        if !header.is_command() {
            return Err(Errno::INVAL);
        }
        if header.command == Command::VERSION {
            // It is agreed.
            return Err(Errno::INVAL);
        }
        self.serve(message, controller)
    }

    /// Applies a message that a former process has applied.
    fn apply_again(&mut self, message: Message<'_>) -> Result<Result<(), Errno>, ResumeError> {
        let Message {
            header, body, fds, ..
        } = message;
        match header.command {
            Command::DMA_MAP => Ok(self.memory.add(body, fds, &self.config.name)),
            Command::DEVICE_SET_IRQS => Ok(self.interrupts.set(body, fds).map(drop)),
            other => Err(ResumeError::Unexpected(other)),
        }
    }

    fn serve(
        &mut self,
        message: Message<'_>,
        controller: &mut Controller,
    ) -> Result<Answer, Errno> {
        let Message {
            header,
            body,
            fds,
            fds_truncated,
        } = message;
        let out = &mut self.body;
        match header.command {
            // Some of their descriptors are lost.
            Command::DMA_MAP | Command::DEVICE_SET_IRQS if fds_truncated => Err(Errno::INVAL),
            Command::DMA_MAP => self.memory.map(body, fds, controller),
            Command::DMA_UNMAP => self.memory.unmap(body, controller),
            Command::DEVICE_GET_INFO => info(body, out),
            Command::DEVICE_GET_REGION_INFO => {
                let len = self.doorbells.len() as u64;
                let mappable = self.config.doorbells_mapped.then_some(len);
                regions::info(body, controller, mappable, out)
            }
            Command::DEVICE_GET_REGION_IO_FDS => regions::io_fds(body, out),
            Command::DEVICE_GET_IRQ_INFO => self.interrupts.info(body, out),
            Command::DEVICE_SET_IRQS => {
                let answer = self.interrupts.set(body, fds)?;
                if !self.interrupts.has_pin() {
                    return Ok(answer);
                }
                // An UNMASK: before the guest goes on, it must have been asked to ring for its next
                // acknowledgement.
                controller.recheck_interrupts(false);
                Ok(Answer::Later(Until::Settled(None)))
            }
            Command::REGION_READ => self.read(body, controller),
            Command::REGION_WRITE => self.write(header, body, controller),
            Command::DEVICE_RESET => {
                self.migration.reset(controller);
                controller.function_reset();
                Ok(Answer::Later(Until::Reset))
            }
            Command::DEVICE_FEATURE
                if self.config.custody.is_some()
                    && DeviceFeature::parse(body)
                        .is_ok_and(|head| is_logging(FeatureFlags(head.flags.index()))) =>
            {
                logging::feature(body, &mut self.memory, controller, out)
            }
            Command::DEVICE_FEATURE if self.config.custody.is_some() => {
                let later = self.migration.feature(body, controller, out)?;
                Ok(later.map_or(Answer::Reply, |reply| Answer::Later(Until::Migrated(reply))))
            }
            Command::MIG_DATA_READ if self.config.custody.is_some() => {
                self.migration.read(body, out)
            }
            Command::MIG_DATA_WRITE if self.config.custody.is_some() => {
                self.migration.write(body, controller, out)
            }
            // Ours to send, migration, messages that were not offered, and unknown ones.
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn read(&mut self, body: &[u8], controller: &mut Controller) -> Result<Answer, Errno> {
        let request = Access::parse(body).map_err(|_| Errno::INVAL)?;
        if request.region == region_index::BAR4 {
            // The pending bits there are about what waits here.
            for vector in 0..self.config.vectors {
                controller.set_pending(vector, self.interrupts.is_pending(vector));
            }
        }
        regions::read(&request, controller, &mut self.body)
    }

    fn write(
        &mut self,
        header: Header,
        body: &[u8],
        controller: &mut Controller,
    ) -> Result<Answer, Errno> {
        let (request, data) = Access::parse_with_data(body).map_err(|_| Errno::INVAL)?;
        let answer = regions::write(&request, data, controller, &mut self.body)?;
        if request.region == region_index::CONFIG {
            self.interrupts.follow(controller);
            if !controller.has_left_bus() && !header.no_reply() {
                return Ok(Answer::Later(Until::OffBus(request)));
            }
        }
        if controller.rechecks_interrupts() && !header.no_reply() {
            // QEMU holds its lock until the reply. Where this acknowledges the cause of the
            // pin's trigger, the server withdraws the trigger before, or QEMU takes it after all.
            return Ok(Answer::Later(Until::Settled(Some(request))));
        }
        Ok(answer)
    }
}

/// DEVICE_GET_INFO.
fn info(body: &[u8], out: &mut Vec<u8>) -> Result<Answer, Errno> {
    let request = DeviceInfo::parse(body).map_err(|_| Errno::INVAL)?;
    if (request.argsz as usize) < DeviceInfo::LEN {
        return Err(Errno::INVAL);
    }
    let info = DeviceInfo {
        argsz: DeviceInfo::LEN as u32,
        flags: DeviceFlags::PCI | DeviceFlags::RESET,
        num_regions: region_index::COUNT,
        num_irqs: irq_index::COUNT,
    };
    info.encode(out);
    Ok(Answer::Reply)
}
