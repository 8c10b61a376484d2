//! A connection to the discovery controller.
//!
//! Commands are executed one at a time: the next one is read when the answer of the last has gone.
//! So one buffer is enough for the data of all, and a host that does not read its answers is not
//! read from either.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use memory::HostMemory;
use nvme_spec::cqe::StatusField;
use nvme_spec::fabrics::{ConnectDw0, FabricsType, PropertyCdw10, PropertySize};
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{Event, Fault, Pieces};
use port::time::Time;

use super::{Answer, Discovery, DiscoveryLog, Reader, TRANSFER_MAX};
use crate::nvme_tcp::connection::{Connection, End, Pdu};
use crate::nvme_tcp::judge::{Gate, Limits, judge};
use crate::nvme_tcp::newcomer::{Arrival, Farewell};

/// Bytes of data in a command capsule that are taken: no command has any, and admin commands may.
const IN_CAPSULE: u32 = 8192;
/// Receives in one poll.
const RECEIVES: usize = 4;
/// How long a host may take to read an answer.
const UNREAD_NS: u64 = 10_000_000_000;

/// See the module.
#[derive(Debug)]
pub struct DiscoverySession {
    connection: Connection,
    discovery: Discovery,
    /// The data of the answer that is sent.
    data: HostMemory,
    /// Entries of the queue, and its head; no head where flow control is off.
    entries: u16,
    head: Option<u16>,
    /// Since when an answer waits for its host to read.
    unread: Option<Time>,
    /// A command whose capsule has data that are still to come, and their bytes.
    command: Option<(Sqe, u32)>,
}

impl DiscoverySession {
    /// Takes a connection to the entrance `entrance`, at the address `here`, whose Connect names
    /// the discovery subsystem `subnqn`, and answers it.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub fn new(
        arrival: Arrival,
        log: Arc<DiscoveryLog>,
        [entrance, subnqn]: [&str; 2],
        here: SocketAddr,
        cntlid: u16,
        now: Time,
    ) -> io::Result<Self> {
        let Arrival {
            mut connection,
            connect,
            ..
        } = arrival;
        let data = HostMemory::new(TRANSFER_MAX as usize)?;
        connection.widen(&data, IN_CAPSULE, 1);
        let has_flow_control = !connect.attributes.disable_sq_flow_control();
        let reader = Reader {
            entrance: entrance.to_owned(),
            here,
            subnqn: subnqn.to_owned(),
            hostnqn: connect.host.nqn.clone(),
        };
        let discovery = Discovery::new(log, reader, cntlid, connect.kato_ms, now);
        let mut session = Self {
            connection,
            discovery,
            data,
            entries: connect.entries,
            head: has_flow_control.then_some(0),
            unread: None,
            command: None,
        };
        let mut cqe = session.cqe(connect.cid, Status::SUCCESSFUL_COMPLETION);
        cqe.dw0 = ConnectDw0::new().with_cntlid(cntlid).into();
        if session.head.is_none() {
            // Where flow control is off this says so (Base 2.1, 6.3).
            cqe.sq_head = 0xffff;
        }
        session.respond(&cqe);
        Ok(session)
    }

    /// The server has another log.
    pub fn set_log(&mut self, log: Arc<DiscoveryLog>) {
        self.discovery.set_log(log);
    }

    /// Reads commands and sends answers. Due when the socket is readable and [`Self::wants_read`],
    /// or writable and [`Self::wants_write`], at [`Self::deadline`], and after [`Self::set_log`].
    ///
    /// # Errors
    /// The connection is over.
    pub fn poll(&mut self, now: Time) -> Result<(), End> {
        let served = self.serve(now);
        if let Err(End::Fault(fault)) = &served {
            self.connection.terminate(*fault);
        }
        served
    }

    /// The connection, after its end.
    #[must_use]
    pub fn leave(self, now: Time) -> Farewell {
        Farewell::new(self.connection, now)
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let unread = self.unread.map(|since| since + UNREAD_NS);
        unread
            .into_iter()
            .fold(self.discovery.deadline(), Time::min)
    }

    /// Whether it is to be polled for writing.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.is_blocked()
    }

    /// Whether it is to be polled for reading: it is not read while an answer waits, so that bytes
    /// which are there would wake its poller again and again.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.connection.waiting() == 0
    }

    fn serve(&mut self, now: Time) -> Result<(), End> {
        self.connection.send(now, |_| ())?;
        for received in 0.. {
            let is_enough = received >= RECEIVES && !self.connection.has_pending();
            let is_free = self.connection.waiting() == 0;
            if is_enough
                || !is_free
                || (self.connection.input.bytes().is_empty() && !self.receive(now)?)
            {
                break;
            }
            let mut input = std::mem::take(&mut self.connection.input);
            let mut bytes = input.bytes();
            let decoded = self.decode(&mut bytes, now);
            let left = bytes.len();
            input.keep(left);
            self.connection.input = input;
            decoded?;
        }
        if let Some((cid, dw0)) = self.discovery.take_event() {
            let mut cqe = self.cqe(cid, Status::SUCCESSFUL_COMPLETION);
            cqe.dw0 = dw0;
            self.respond(&cqe);
            self.connection.send(now, |_| ())?;
        }
        // Of the whole answer: each poll reads the next command only when it has gone.
        self.unread = match self.connection.waiting() {
            0 => None,
            _ => self.unread.or(Some(now)),
        };
        if self.unread.is_some_and(|since| now >= since + UNREAD_NS) {
            return Err(End::DoesNotRead);
        }
        if now >= self.discovery.deadline() {
            return Err(End::KeepAlive);
        }
        Ok(())
    }

    fn receive(&mut self, now: Time) -> Result<bool, End> {
        let received = self.connection.receive()?;
        if received {
            self.discovery.heard(now);
        }
        Ok(received)
    }

    /// Takes commands as long as their answers go at once.
    fn decode(&mut self, bytes: &mut &[u8], now: Time) -> Result<(), End> {
        while self.connection.waiting() == 0
            && let Some(event) = self.connection.decoder.step(bytes)?
        {
            match event {
                Event::Capsule { sqe, data: 0 } => self.execute(&sqe, 0),
                Event::Capsule { sqe, data } => self.command = Some((sqe, data)),
                Event::Data(_) => {}
                Event::DataEnd { .. } => {
                    if let Some((sqe, data)) = self.command.take() {
                        self.execute(&sqe, data);
                    }
                }
                Event::Terminated { fes, fei } => return Err(End::Terminated { fes, fei }),
                Event::H2cData(header) => return Err(Fault::TransferTag(header.ttag).into()),
                Event::IcReq(_)
                | Event::IcResp(_)
                | Event::Response(_)
                | Event::C2hData(_)
                | Event::R2t(_) => unreachable!("a decoder that has agreed takes none of them"),
            }
            self.connection.send(now, |_| ())?;
        }
        Ok(())
    }

    fn execute(&mut self, sqe: &Sqe, in_capsule: u32) {
        if let Some(head) = &mut self.head {
            *head = (*head + 1) % self.entries;
        }
        let limits = Limits {
            gate: Gate::None,
            max_transfer: TRANSFER_MAX as u32,
            small: 0,
            namespaces: None,
            ready: true,
        };
        let answer = match judge(sqe, in_capsule, &limits) {
            Err(status) => Err(status).into(),
            Ok(_) if sqe.admin_opcode() == AdminOpcode::FABRICS => return self.property(sqe),
            Ok(_) => self.discovery.command(sqe),
        };
        match answer {
            Answer::Held => {}
            Answer::Done { status, dw0 } => {
                let mut cqe = self.cqe(sqe.cid, status);
                cqe.dw0 = dw0;
                self.respond(&cqe);
            }
            Answer::Data(data) => {
                self.data.write(0, &data);
                // `judge` has compared the length with the descriptor's.
                let len = u32::try_from(data.len()).expect("a page of the log is limited");
                for piece in Pieces::of_read(sqe.cid, len, u32::MAX) {
                    let at = piece.offset as usize;
                    self.connection.push_data(&piece, false, at, None);
                }
                let cqe = self.cqe(sqe.cid, Status::SUCCESSFUL_COMPLETION);
                self.respond(&cqe);
            }
        }
    }

    fn property(&mut self, sqe: &Sqe) {
        let size = match PropertyCdw10::from(sqe.cdw10).size() {
            PropertySize::BYTES_8 => 8,
            _ => 4,
        };
        let value = match sqe.fabrics_type() {
            FabricsType::PROPERTY_GET => self.discovery.property(sqe.cdw11, size),
            _ => {
                let set = self.discovery.set_property(sqe.cdw11, size, sqe.property());
                set.map(|()| 0)
            }
        };
        let cqe = match value {
            Ok(value) => {
                let cqe = self.cqe(sqe.cid, Status::SUCCESSFUL_COMPLETION);
                cqe.with_property(value)
            }
            Err(status) => self.cqe(sqe.cid, status),
        };
        self.respond(&cqe);
    }

    fn cqe(&self, cid: u16, status: Status) -> Cqe {
        Cqe {
            sq_head: self.head.unwrap_or(0),
            cid,
            status: StatusField::new()
                .with_status(status)
                .with_dnr(!status.is_success()),
            ..Cqe::default()
        }
    }

    fn respond(&mut self, cqe: &Cqe) {
        let head = self.connection.encoder().response(cqe);
        self.connection.push(Pdu::bare(head, None));
    }
}

impl AsFd for DiscoverySession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
