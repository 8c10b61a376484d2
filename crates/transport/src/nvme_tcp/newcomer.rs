//! Connections that are no queue's: before their Connect command is there, and when they close.
//!
//! Any process that reaches the port can connect. Until its Connect command is there a newcomer
//! costs a descriptor and [`NEWCOMER_INPUT`] bytes, has no controller, and ends after a bound.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use authentication::Concatenates;
use nvme_spec::cqe::StatusField;
use nvme_spec::fabrics::{CONNECT_DATA_SIZE, ConnectData};
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{Encoder, Event, Head, Offer};
use port::time::Time;
use rustix::net::sockopt;
use tls::Session;
use zerocopy::FromBytes;

use super::TargetConfig;
use super::authentication::Exchange;
use super::connect::{self, Connect, Host, Refusal};
#[cfg(doc)]
use super::connection::NEWCOMER_INPUT;
use super::connection::{Connection, End, Pdu};
use super::peer::Peer;

/// How long a connection is silent before it is probed.
const PROBE_IDLE: Duration = Duration::from_secs(30);
/// Time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Probes without an answer that end a connection.
const PROBES: u32 = 3;
/// How long a newcomer may take for its ICReq, from its accept or the end of its handshake. The
/// Linux host sends it at once.
const IC_NS: u64 = 5_000_000_000;
/// How long it may take for its Connect command, from its ICReq. The Linux host opens all
/// connections of an association before it connects the I/O queues.
const CONNECT_NS: u64 = 5_000_000_000;
/// The same for a host that has proved its key of TLS. Of its connections each has a handshake, by
/// another process of the host, before the first I/O queue is connected.
const SECURE_CONNECT_NS: u64 = 60_000_000_000;
/// How long a host may take to read its last answer and to close its side.
const FAREWELL_NS: u64 = 2_000_000_000;
/// Receives of a newcomer in one poll.
const RECEIVES: usize = 4;

/// Result of a newcomer.
#[derive(Debug)]
pub enum Progress {
    /// It waits for more.
    Waits,
    /// It is to be dropped.
    Ended(End),
    /// Its Connect command is there, right or wrong: see [`Newcomer::arrive`].
    Connects,
}

#[derive(Debug)]
enum Stage {
    /// No ICReq was there.
    Silent,
    /// No whole Connect was there.
    Agreed,
    /// The command is there, and `have` bytes of its data.
    Connecting {
        sqe: Sqe,
        data: Box<[u8; CONNECT_DATA_SIZE]>,
        have: usize,
        /// Status that it ends with, whatever its data are.
        status: Status,
    },
    /// It is there, with its data.
    Arrived {
        sqe: Sqe,
        connect: Result<Connect, Refusal>,
        /// The Host NQN, where it is refused.
        host: Option<String>,
    },
}

/// A connection that has not sent a whole Connect command.
#[derive(Debug)]
pub struct Newcomer {
    connection: Connection,
    config: Arc<TargetConfig>,
    stage: Stage,
    since: Time,
    /// The peer at the other end, through TLS.
    peer: Option<Peer>,
}

/// Has the system ask for a sign of life on a connection that is silent, and end it after about a
/// minute without one.
pub(super) fn keep_alive(stream: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, PROBES)?)
}

impl Newcomer {
    /// Takes a connection that was accepted at `now`.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn new(stream: OwnedFd, config: Arc<TargetConfig>, now: Time) -> io::Result<Self> {
        // A host without a keep alive timeout may vanish without a word. Not every socket has it.
        let _ = keep_alive(&stream);
        Ok(Self {
            connection: Connection::new(stream)?,
            config,
            stage: Stage::Silent,
            since: now,
            peer: None,
        })
    }

    /// Takes a connection whose handshake is complete at `now`.
    ///
    /// # Errors
    /// The name of its key is none of a host's.
    pub(super) fn secured(
        session: Session,
        config: Arc<TargetConfig>,
        now: Time,
    ) -> Result<Self, End> {
        let peer = config.access.peer(&session);
        let peer = peer.ok_or(End::Tls(tls::Failed::Identity))?;
        Ok(Self {
            connection: Connection::secured(session),
            config,
            stage: Stage::Silent,
            since: now,
            peer: Some(peer),
        })
    }

    /// Reads until its Connect command is there. Due when the socket is readable, or writable and
    /// [`Self::wants_write`], and at [`Self::deadline`].
    pub fn poll(&mut self, now: Time) -> Progress {
        match self.serve(now) {
            Err(end) => Progress::Ended(end),
            Ok(()) if matches!(self.stage, Stage::Arrived { .. }) => Progress::Connects,
            Ok(()) if now >= self.deadline() => Progress::Ended(End::Silent),
            Ok(()) => Progress::Waits,
        }
    }

    /// When it must have got further.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let bound = match self.stage {
            Stage::Silent => IC_NS,
            _ if self.peer.is_some() => SECURE_CONNECT_NS,
            _ => CONNECT_NS,
        };
        self.since + bound
    }

    /// Whether it is to be polled for writing.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.is_blocked()
    }

    /// Whether it has shown nothing: neither that it has a key nor its ICReq.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.peer.is_none() && matches!(self.stage, Stage::Silent)
    }

    fn serve(&mut self, now: Time) -> Result<(), End> {
        self.connection.send(now, |_| ())?;
        for received in 0.. {
            let is_enough = received >= RECEIVES && !self.connection.has_pending();
            let is_over = is_enough || matches!(self.stage, Stage::Arrived { .. });
            if is_over || !self.connection.receive()? {
                break;
            }
            let mut input = std::mem::take(&mut self.connection.input);
            let mut bytes = input.bytes();
            let decoded = self.decode(&mut bytes, now);
            let left = bytes.len();
            input.keep(left);
            self.connection.input = input;
            if let Err(End::Fault(fault)) = &decoded {
                self.connection.terminate(*fault);
            }
            self.connection.send(now, |_| ())?;
            decoded?;
        }
        Ok(())
    }

    /// Takes events until the command is there; what stands behind it stays.
    fn decode(&mut self, bytes: &mut &[u8], now: Time) -> Result<(), End> {
        while !matches!(self.stage, Stage::Arrived { .. })
            && let Some(event) = self.connection.decoder.step(bytes)?
        {
            match event {
                Event::IcReq(request) => {
                    let offer = Offer {
                        digests: self.config.digests,
                        alignment_z: 0,
                        max_h2c_data: self.config.max_transfer,
                        max_r2t_z: 0,
                    };
                    let (response, agreement) = offer.answer(&request)?;
                    self.connection.decoder.agree(agreement);
                    self.connection.agree(Encoder::new(agreement));
                    let head = Head::from(&response);
                    self.connection.push(Pdu::bare(head, None));
                    self.stage = Stage::Agreed;
                    self.since = now;
                }
                Event::Capsule { sqe, data } => {
                    let status = match connect::first(&sqe, data) {
                        Ok(()) => Status::SUCCESSFUL_COMPLETION,
                        Err(status) => status,
                    };
                    self.stage = if data == 0 {
                        let connect = Err(Refusal::Other(status));
                        Stage::Arrived {
                            sqe,
                            connect,
                            host: None,
                        }
                    } else {
                        Stage::Connecting {
                            sqe,
                            data: Box::new([0; CONNECT_DATA_SIZE]),
                            have: 0,
                            status,
                        }
                    };
                }
                Event::Data(piece) => {
                    if let Stage::Connecting { data, have, .. } = &mut self.stage {
                        // Of data that are too long the command is refused in any case.
                        let room = &mut data[(*have).min(CONNECT_DATA_SIZE)..];
                        let len = piece.len().min(room.len());
                        room[..len].copy_from_slice(&piece[..len]);
                        *have += piece.len();
                    }
                }
                Event::DataEnd { intact } => {
                    if let Stage::Connecting {
                        sqe, data, status, ..
                    } = &self.stage
                    {
                        let mut host = None;
                        let connect = if !status.is_success() {
                            Err(Refusal::Other(*status))
                        } else if !intact {
                            Err(Refusal::Other(Status::TRANSIENT_TRANSPORT_ERROR))
                        } else {
                            let data = ConnectData::ref_from_bytes(&data[..])
                                .expect("it has the length of its type, and any alignment");
                            let judged =
                                connect::judge(sqe, data, &self.config, self.peer.as_ref());
                            if judged.is_err() {
                                host = connect::name(&data.hostnqn).map(str::to_owned);
                            }
                            judged
                        };
                        let sqe = *sqe;
                        self.stage = Stage::Arrived { sqe, connect, host };
                    }
                }
                Event::Terminated { fes, fei } => return Err(End::Terminated { fes, fei }),
                Event::H2cData(header) => {
                    return Err(nvme_tcp::Fault::TransferTag(header.ttag).into());
                }
                Event::IcResp(_) | Event::Response(_) | Event::C2hData(_) | Event::R2t(_) => {
                    unreachable!("a decoder of a controller takes none of them")
                }
            }
        }
        Ok(())
    }

    /// The arrival, after [`Progress::Connects`]. One that is wrong in itself is refused, and so is
    /// a host that is to authenticate itself while too many do.
    ///
    /// # Errors
    /// The connection, which is to close.
    #[expect(
        clippy::result_large_err,
        reason = "once for a connection, and both are moved on at once"
    )]
    pub fn arrive(self, now: Time) -> Result<Arrival, Farewell> {
        let Self {
            connection,
            config,
            stage,
            ..
        } = self;
        let Stage::Arrived { sqe, connect, host } = stage else {
            return Err(Farewell::new(connection, now));
        };
        match connect {
            Ok(connect) => match exchange(&connect, &config, connection.is_secured(), now) {
                Ok(exchange) => Ok(Arrival {
                    connection,
                    config,
                    connect,
                    exchange,
                }),
                Err(refusal) => Err(refuse(connection, connect.cid, connect.qid, refusal, now)),
            },
            Err(refusal) => Err(Farewell {
                host,
                ..refuse(connection, sqe.cid, 0, refusal, now)
            }),
        }
    }
}

impl AsFd for Newcomer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// The proof that a host owes after its Connect command: on each of its queues, as anyone may name
/// another one's association. One that comes with a generated key has proved it before.
fn exchange(
    connect: &Connect,
    config: &TargetConfig,
    is_secured: bool,
    now: Time,
) -> Result<Option<Exchange>, Refusal> {
    if connect.is_discovery || connect.generated.is_some() {
        return Ok(None);
    }
    let (nqn, subnqn, access) = (&connect.host.nqn, &config.subnqn, &config.access);
    // A key is made on an admin queue in clear.
    let concatenates = match access.concatenates(nqn) {
        _ if connect.qid > 0 || is_secured => Concatenates::Never,
        Concatenates::WhenAsked if config.tls.is_none() => Concatenates::Never,
        concatenates => concatenates,
    };
    let generated = access.generated().cloned().unwrap_or_default();
    let asked = access.asks(nqn, subnqn);
    asked
        .map(|(parties, powers)| Exchange::new(parties, powers, (concatenates, generated), now))
        .transpose()
}

/// A connection whose Connect command is there, right in itself and not answered.
#[derive(Debug)]
pub struct Arrival {
    pub(super) connection: Connection,
    pub(super) config: Arc<TargetConfig>,
    pub(super) connect: Connect,
    /// Proof that its host owes.
    pub(super) exchange: Option<Exchange>,
}

impl Arrival {
    /// Its queue: 0 is a new host's admin queue.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.connect.qid
    }

    /// The controller that the I/O queue is to be of; FFFFh for an admin queue.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.connect.cntlid
    }

    /// Whether it is for the discovery subsystem: see
    /// [`DiscoverySession`](super::DiscoverySession).
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.connect.is_discovery
    }

    /// The host that connects.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.connect.host
    }

    /// Whether its host is to prove who it is.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.exchange.is_some()
    }

    /// Whether it has come through TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.connection.is_secured()
    }

    /// Keep Alive Timeout of an admin queue, in ms; 0 is none.
    #[must_use]
    pub fn kato_ms(&self) -> u32 {
        self.connect.kato_ms
    }

    /// Refuses it: the connection closes when the answer has gone.
    #[must_use]
    pub fn refuse(self, refusal: Refusal, now: Time) -> Farewell {
        let Connect { cid, qid, .. } = self.connect;
        refuse(self.connection, cid, qid, refusal, now)
    }
}

impl AsFd for Arrival {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Answers a Connect command that is refused.
pub(super) fn refuse(
    mut connection: Connection,
    cid: u16,
    qid: u16,
    refusal: Refusal,
    now: Time,
) -> Farewell {
    let (status, dw0, is_final) = refusal.answer();
    let cqe = Cqe {
        dw0,
        sq_head: 1,
        sq_id: qid,
        cid,
        status: StatusField::new().with_status(status).with_dnr(is_final),
        ..Cqe::default()
    };
    let head = connection.encoder().response(&cqe);
    connection.forget();
    connection.push(Pdu::bare(head, None));
    Farewell {
        refused: Some(refusal.name()),
        ..Farewell::new(connection, now)
    }
}

/// A connection that closes when its last answer has gone and its host has closed it, and at a
/// deadline at the latest.
///
/// The host sees the end of the stream, and what it still sends is received and dropped. A socket
/// that is closed with bytes that were not received, or that gets more, resets its connection: the
/// host then loses answers that it has not read, and Linux sends SIGPIPE to the program whose
/// command it was about to send.
#[derive(Debug)]
pub struct Farewell {
    connection: Connection,
    until: Time,
    shut: bool,
    /// Why its Connect command was refused, if it was.
    refused: Option<&'static str>,
    /// The Host NQN of that command.
    host: Option<String>,
}

impl Farewell {
    pub(super) fn new(mut connection: Connection, now: Time) -> Self {
        connection.stop_decoding();
        Self {
            connection,
            until: now + FAREWELL_NS,
            shut: false,
            refused: None,
            host: None,
        }
    }

    /// The name of the refusal of its Connect command, for counters.
    #[must_use]
    pub fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// The Host NQN of a Connect command that was wrong in itself. Anyone can say so.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Sends what is left. True when it is to be dropped. Due when the socket is readable, or
    /// writable and [`Self::wants_write`], and at [`Self::deadline`].
    pub fn poll(&mut self, now: Time) -> bool {
        if now >= self.until || self.connection.send(now, |_| ()).is_err() {
            return true;
        }
        if self.connection.waiting() == 0 && !self.shut {
            self.shut = true;
            self.connection.shut();
        }
        self.connection.discard()
    }

    /// When it is dropped at the latest.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.until
    }

    /// Whether it is to be polled for writing.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.is_blocked()
    }
}

impl AsFd for Farewell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
