//! Opens a connection: the socket, the first PDU of each side, Connect (Base 2.1, 6.3), and
//! authentication where the target asks for it.
//!
//! It waits, with one deadline for all of it. An error says which of them the target refused, and
//! what to do.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use authentication::Generated;
use nvme_spec::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_SIZE, ConnectCdw10, ConnectCdw11, ConnectData, ConnectDw0,
    FabricsType, InvalidParameterDw0,
};
use nvme_spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::Psdt;
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{Agreement, Encoder, Head};
use rustix::net::sockopt;
use zerocopy::IntoBytes;

use super::address::TcpAddress;
use super::authenticate::{authenticate, make_key};
use super::connection::Connection;
use super::identity::{Identity, terminated};
use super::stream::{Channel, Stream, Unprotected};
use super::talk::{Said, Talk, capsule_with};
use super::wire::{Wire, offer};
use crate::DriverError;

/// Bytes of a capsule's data on the Admin Queue: every target takes so many (TCP 1.1, 3.3.1).
pub(super) const ADMIN_IN_CAPSULE: u32 = 8192;

/// Time until the system asks a silent target for a sign of life, between two of these questions,
/// and how many it leaves unanswered.
const PROBE_IDLE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// Time between two attempts to connect a queue that the target still has.
const RETRY: Duration = Duration::from_millis(20);

/// A queue to be connected.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) qid: u16,
    /// Entries of the submission queue, 2 to 65536.
    pub(super) entries: u32,
    /// The controller of an I/O queue.
    pub(super) cntlid: Option<u16>,
    /// Bytes of data in a capsule at most.
    pub(super) in_capsule: u32,
}

/// The Admin Queue: every target has so many entries.
pub(super) const ADMIN: Wanted = Wanted {
    qid: 0,
    entries: 32,
    cntlid: None,
    in_capsule: ADMIN_IN_CAPSULE,
};

/// Where a connection goes, and how.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) target: &'a TcpAddress,
    /// The address of the first connection: a name may stand for the addresses of several targets,
    /// and is not resolved again.
    pub(super) peer: Option<SocketAddr>,
    pub(super) channel: &'a Channel,
}

/// Connects a queue: its connection, and the controller's identifier.
///
/// # Errors
/// [`DriverError::Target`]; [`DriverError::Timeout`] and the others of a connection.
pub(super) fn open(
    way: Way<'_>,
    identity: &Identity,
    wanted: Wanted,
    timeout: Duration,
) -> Result<(Connection, u16), DriverError> {
    let deadline = Instant::now() + timeout;
    let (sqe, data) = connect(way.target, wanted, identity);
    let (mut talk, encoder, agreement, cqe) = loop {
        let (mut talk, agreement) = agree(way, identity, timeout, deadline)?;
        let encoder = Encoder::new(agreement);
        let cqe = ask(&mut talk, &encoder, &sqe, data.as_bytes())?;
        // The target may not have noticed the end of the last connection of this queue yet.
        let has_it = wanted.qid > 0 && cqe.status.status() == Status::COMMAND_SEQUENCE_ERROR;
        if !has_it || Instant::now() + RETRY >= deadline {
            break (talk, encoder, agreement, cqe);
        }
        drop(talk);
        std::thread::sleep(RETRY);
    };
    let admitted = admitted(&talk, &cqe, identity)?;
    if admitted.ascr() {
        return Err(talk.refused(
            "the target requires a key of TLS that both sides make (secure channel concatenation); write --concat with the secret of this host".to_owned(),
        ));
    }
    let (cntlid, asks) = (admitted.cntlid(), admitted.atr());
    // The controller proves itself on the Admin Queue, or before it where both have made a key.
    let is_proved = matches!(way.channel, Channel::Generated(_));
    if (wanted.qid == 0 && !is_proved) || asks {
        authenticate(&mut talk, &encoder, identity, asks)?;
    }
    // One entry of the queue stays empty.
    let most = u16::try_from(wanted.entries - 1).expect("a queue has at most 65536 entries");
    let (stream, decoder) = talk.into_parts();
    let wire = Wire::new(decoder, agreement, most, wanted.in_capsule);
    Ok((Connection::new(stream, wire), cntlid))
}

/// Makes a key of TLS with a controller (secure channel concatenation): on an Admin Queue in clear,
/// which serves nothing else and ends here. Returns the address that it had, too.
///
/// # Errors
/// Those of [`open`].
pub(super) fn concatenate(
    target: &TcpAddress,
    peer: Option<SocketAddr>,
    identity: &Identity,
    timeout: Duration,
) -> Result<(Generated, Option<SocketAddr>), DriverError> {
    let deadline = Instant::now() + timeout;
    let (sqe, data) = connect(target, ADMIN, identity);
    let way = Way {
        target,
        peer,
        channel: &Channel::Plain,
    };
    let (mut talk, agreement) = agree(way, identity, timeout, deadline)?;
    let encoder = Encoder::new(agreement);
    let cqe = ask(&mut talk, &encoder, &sqe, data.as_bytes())?;
    if !admitted(&talk, &cqe, identity)?.atr() {
        return Err(talk.refused(
            "the target does not ask for authentication, by which a key of TLS is made; give it the secret of this host".to_owned(),
        ));
    }
    let generated = make_key(&mut talk, &encoder, identity)?;
    let peer = rustix::net::getpeername(talk.into_parts().0);
    let peer = peer.ok().flatten();
    Ok((generated, peer.and_then(|peer| peer.try_into().ok())))
}

/// A connection whose sides have agreed how PDUs look.
pub(super) fn agree<'a>(
    way: Way<'a>,
    identity: &Identity,
    timeout: Duration,
    deadline: Instant,
) -> Result<(Talk<'a>, Agreement), DriverError> {
    let Way { target, peer, .. } = way;
    let socket = reach(target, peer, deadline)?;
    let names = [identity.name(), target.nqn()];
    let stream = Stream::new(socket, way.channel, names, deadline);
    let stream = stream.map_err(|Unprotected { reason, is_refused }| DriverError::Target {
        address: target.to_string(),
        reason,
        kind: is_refused.then_some(ErrorKind::PermissionDenied),
    })?;
    let offer = offer(identity.digests);
    let mut talk = Talk::new((target, offer), stream, timeout, deadline);
    talk.send(&Head::from(&offer.request()))?;
    // The decoder lets nothing else come first.
    let Said::Agreed(agreement) = talk.receive("the answer to ICReq")? else {
        return Err(talk.refused("it answers ICReq with a completion".to_owned()));
    };
    talk.agree(agreement);
    Ok((talk, agreement))
}

/// Sends Connect with its data: the completion.
pub(super) fn ask(
    talk: &mut Talk<'_>,
    encoder: &Encoder,
    sqe: &Sqe,
    data: &[u8],
) -> Result<Cqe, DriverError> {
    talk.send(&capsule_with(encoder, sqe, data))?;
    match talk.receive("the answer to Connect")? {
        Said::Completed(cqe) if cqe.cid == sqe.cid => Ok(cqe),
        _ => Err(talk.refused("it does not answer Connect".to_owned())),
    }
}

/// Has the system ask a silent target for a sign of life, and end the connection after about a
/// minute without one, or without an acknowledgement of what was sent.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    let unanswered = PROBE_IDLE + PROBE_INTERVAL * PROBES;
    let unanswered_ms = u32::try_from(unanswered.as_millis()).expect("a minute");
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(sockopt::set_tcp_user_timeout(stream, unanswered_ms)?)
}

/// A socket to the first address that takes one: each of them has its part of the time.
fn reach(
    target: &TcpAddress,
    peer: Option<SocketAddr>,
    deadline: Instant,
) -> Result<TcpStream, DriverError> {
    let failed = |error: &std::io::Error, what: &str| DriverError::Target {
        address: target.to_string(),
        reason: format!("{what}: {error}; check the address, and that the target is running"),
        kind: Some(error.kind()),
    };
    let addresses = peer.map_or_else(|| target.resolve(), |peer| Ok(vec![peer]));
    let addresses = addresses.map_err(|error| failed(&error, "the name has no address"))?;
    let mut others = u32::try_from(addresses.len()).expect("a name has few addresses");
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()) / others;
        others -= 1;
        // A timeout of 0 is refused.
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(stream) => {
                // Without it only commands notice a target that has vanished.
                let _ = keep_alive(&stream);
                let settled = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_nonblocking(true));
                return match settled {
                    Ok(()) => Ok(stream),
                    Err(error) => Err(failed(&error, "the socket cannot be set up")),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(failed(&last, "the target cannot be reached"))
}

/// A Connect command and its data.
pub(super) fn connect(
    target: &TcpAddress,
    wanted: Wanted,
    identity: &Identity,
) -> (Sqe, ConnectData) {
    let mut sqe = Sqe::fabrics(FabricsType::CONNECT);
    sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
    sqe.set_sgl1(SglDescriptor {
        length: u32::try_from(CONNECT_DATA_SIZE).expect("1024 bytes"),
        identifier: SglIdentifier::new()
            .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
            .with_sub_type(SglDescriptorSubType::OFFSET),
        ..SglDescriptor::default()
    });
    sqe.cdw10 = ConnectCdw10::new().with_qid(wanted.qid).into();
    let sqsize_z = u16::try_from(wanted.entries - 1).expect("a queue has at most 65536 entries");
    sqe.cdw11 = ConnectCdw11::new().with_sqsize_z(sqsize_z).into();
    // KATO stays 0, no keep alive: this bus has no thread that could send one while its caller does
    // something else. A process that ends closes its sockets, which the target sees.
    let data = ConnectData {
        hostid: identity.id,
        cntlid: wanted.cntlid.unwrap_or(CNTLID_DYNAMIC),
        reserved_18: [0; 238],
        subnqn: terminated(target.nqn()),
        hostnqn: identity.nqn,
        reserved_768: [0; 256],
    };
    (sqe, data)
}

/// Content of the answer to a Connect that succeeded: the controller's identifier, and whether it
/// asks for authentication, and for a key of TLS.
fn admitted(talk: &Talk<'_>, cqe: &Cqe, identity: &Identity) -> Result<ConnectDw0, DriverError> {
    let status = cqe.status.status();
    if !status.is_success() {
        return Err(talk.refused(refusal(status, cqe.dw0, talk.target, identity)));
    }
    Ok(ConnectDw0::from(cqe.dw0))
}

/// Why a target refused Connect, and the next step.
fn refusal(status: Status, dw0: u32, target: &TcpAddress, identity: &Identity) -> String {
    let host = identity.name();
    let not_allowed = format!(
        "the target does not admit this host; allow any host there, or the host NQN {host}, which is another one in each process without --hostnqn"
    );
    match status {
        Status::CONNECT_INVALID_PARAMETERS => {
            let parameter = InvalidParameterDw0::from(dw0);
            let (at, in_data) = (parameter.ipo(), parameter.iattr());
            let field = match (in_data, at) {
                (true, 256) => {
                    return format!(
                        "the target has no subsystem {}, or hides it from this host; check the NQN",
                        target.nqn()
                    );
                }
                (true, 512) => return not_allowed,
                (true, 0) => "Host Identifier; another host NQN may have it there now",
                (true, 16) => "Controller ID",
                (false, 40) => "Record Format",
                (false, 42) => "Queue ID; it may have fewer queues",
                (false, 44) => "SQ Size; use a smaller queue depth",
                (false, 46) => "Connect Attributes",
                (false, 48) => "Keep Alive Timeout",
                _ => "an unknown field",
            };
            let of = if in_data { "data" } else { "command" };
            format!("the target rejects byte {at} of Connect's {of}: {field}")
        }
        Status::CONNECT_INVALID_HOST => format!("{not_allowed}; a host with a key of TLS there needs --tls-key, and one that has to make a key --concat"),
        Status::CONNECT_INCOMPATIBLE_FORMAT => {
            "the target does not support this format of Connect".to_owned()
        }
        Status::CONNECT_CONTROLLER_BUSY => {
            "the controller has another host, or no controller is free; disconnect another host"
                .to_owned()
        }
        Status::CONNECT_RESTART_DISCOVERY => {
            "the subsystem is no longer at this address; look it up again".to_owned()
        }
        Status::AUTHENTICATION_REQUIRED => {
            "the target requires authentication before Connect of this queue, which this host does after it".to_owned()
        }
        other => format!("the target rejects Connect: {other}; see its log"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    fn to(listener: &TcpListener) -> TcpAddress {
        let port = listener.local_addr().unwrap().port();
        format!("localhost:{port}/nqn.2026-11.t:s0")
            .parse()
            .unwrap()
    }

    /// Answers Connect of an I/O queue with one of these statuses on each connection.
    fn answering(statuses: &'static [u16]) -> (TcpAddress, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = to(&listener);
        let answers = std::thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut request, mut capsule) = ([0; 128], [0; 72 + CONNECT_DATA_SIZE]);
                stream.read_exact(&mut request).unwrap();
                let mut agrees = [0; 128];
                (agrees[0], agrees[2], agrees[4]) = (1, 128, 128);
                agrees[12..16].copy_from_slice(&4096u32.to_le_bytes());
                stream.write_all(&agrees).unwrap();
                stream.read_exact(&mut capsule).unwrap();
                let mut response = [0; 24];
                (response[0], response[2], response[4]) = (5, 24, 24);
                response[20..22].copy_from_slice(&capsule[10..12]);
                response[22..24].copy_from_slice(&(status << 1).to_le_bytes());
                stream.write_all(&response).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            }
        });
        (address, answers)
    }

    /// A target may notice late that the last connection of a queue has ended.
    #[test]
    fn a_queue_that_the_target_still_has_is_connected_later() {
        let wanted = Wanted {
            qid: 1,
            entries: 32,
            cntlid: Some(1),
            in_capsule: 0,
        };
        let identity = Identity::of_process().unwrap();
        // Command Sequence Error, and Invalid Field in Command, which is final.
        for (statuses, is_connected) in [(&[0x0c, 0x0c, 0][..], true), (&[0x02], false)] {
            let (target, answers) = answering(statuses);
            let way = Way {
                target: &target,
                peer: None,
                channel: &Channel::Plain,
            };
            let opened = open(way, identity, wanted, Duration::from_secs(10));
            assert_eq!(opened.is_ok(), is_connected, "{statuses:?}");
            drop(opened);
            answers.join().unwrap();
        }
    }

    #[test]
    fn a_target_that_vanishes_is_noticed_by_the_system() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let stream = reach(&to(&listener), None, deadline).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), PROBES);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 60_000);
    }

    #[test]
    fn an_io_queue_goes_where_the_admin_queue_is() {
        let (admin, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), "192.0.2.1:1");
        let peer = admin.local_addr().unwrap();
        // The present address of the name does not matter.
        let target = format!("{other}/nqn.2026-11.t:s0").parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let stream = reach(&target, Some(peer), deadline).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), peer);
    }

    #[test]
    fn a_connect_is_the_one_that_linux_sends() {
        // Recorded: bytes 0 to 63 of the capsule of Linux 7.3 for a queue of 32 entries; here KATO
        // is 0.
        let target: TcpAddress = "h:1/nqn.2026-11.t:s0".parse().unwrap();
        let identity = Identity::of_process().unwrap();
        let wanted = Wanted {
            qid: 0,
            entries: 32,
            cntlid: None,
            in_capsule: ADMIN_IN_CAPSULE,
        };
        let (sqe, data) = connect(&target, wanted, identity);
        let mut expected = [0u32; 16];
        (expected[0], expected[1], expected[8]) = (0x407f, 1, 0x400);
        (expected[9], expected[11]) = (0x0100_0000, 31);
        assert_eq!(sqe.as_bytes(), expected.as_bytes());
        let bytes = data.as_bytes();
        assert_eq!(bytes[..16], identity.id);
        assert_eq!(bytes[16..18], [0xff, 0xff]);
        assert_eq!(&bytes[256..273], b"nqn.2026-11.t:s0\0");
        assert!(bytes[512..].starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"));
        let io = Wanted {
            qid: 2,
            entries: 128,
            cntlid: Some(1),
            ..wanted
        };
        let (sqe, data) = connect(&target, io, identity);
        assert_eq!((sqe.cdw10, sqe.cdw11), (2 << 16, 127));
        assert_eq!(data.cntlid, 1);
    }

    #[test]
    fn a_refusal_names_the_field_and_the_next_step() {
        let target: TcpAddress = "h:1/nqn.2026-11.t:s0".parse().unwrap();
        let identity = Identity::of_process().unwrap();
        let reason = |status, dw0| refusal(status, dw0, &target, identity);
        // Recorded: status 4184h, DW0 10200h of a host that is not allowed.
        let denied = reason(Status(0x184), 0x1_0200);
        assert!(denied.contains("host NQN nqn.2014-08.org"), "{denied}");
        let invalid = Status(0x182);
        for (dw0, words) in [
            (0x1_0100, "no subsystem nqn.2026-11.t:s0"),
            (0x1_0200, "does not admit this host"),
            (0x1_0010, "Controller ID"),
            (0x0_002a, "byte 42 of Connect's command: Queue ID"),
            (0x0_002c, "smaller queue depth"),
            (0x0_0001, "an unknown field"),
        ] {
            let reason = reason(invalid, dw0);
            assert!(reason.contains(words), "{dw0:#x}: {reason}");
        }
        let other = reason(Status::INVALID_FIELD_IN_COMMAND, 0);
        assert!(other.contains("Invalid Field in Command"), "{other}");
    }
}
