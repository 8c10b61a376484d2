//! Back-pressure of the discovery controller. Its answers are tested beside it.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nvme_spec::Sqe;
use nvme_spec::discovery::WELL_KNOWN_DISCOVERY_NQN;
use nvme_spec::fabrics::FabricsType;
use nvme_spec::opcode::AdminOpcode;
use port::time::Time;
use transport::nvme_tcp::{DiscoveryLog, DiscoverySession, Listed, Newcomer, Progress};
use zerocopy::IntoBytes as _;

use super::host::{Connect, Peer, beside, offer, set_name};
use super::rig::config;

/// Bytes of the log that a command reads.
const PIECE: u32 = 128 << 10;

/// A session that is enabled, and its host.
fn session() -> (DiscoverySession, Peer) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let now = Time(0);
    let mut peer = Peer::new(theirs, offer(false, false));
    let mut newcomer = Newcomer::new(ours.into(), Arc::new(config()), now).unwrap();
    peer.icreq();
    assert!(matches!(newcomer.poll(now), Progress::Waits));
    peer.take();
    let mut connect = Connect::new(0, 32, 0xffff);
    set_name(&mut connect.data.subnqn, WELL_KNOWN_DISCOVERY_NQN);
    peer.send_capsule(&connect.sqe, connect.data.as_bytes());
    assert!(matches!(newcomer.poll(now), Progress::Connects));
    let arrival = newcomer.arrive(now).unwrap();
    let here: SocketAddr = "127.0.0.1:4420".parse().unwrap();
    let subnqn = "nqn.2014-08.org.example:s".to_owned();
    let listed = Listed::new("e".to_owned(), subnqn, here);
    let log = DiscoveryLog {
        generation: 1,
        subsystems: vec![listed; 200],
    };
    let log = Arc::new(log);
    let mut session = DiscoverySession::new(arrival, log, ["e", "nqn.d"], here, 1, now).unwrap();
    let mut enable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x46_0061);
    enable.cdw11 = 0x14;
    beside(&mut enable, 0);
    peer.send_capsule(&enable, &[]);
    session.poll(now).unwrap();
    peer.take();
    assert!(session.wants_read());
    (session, peer)
}

#[test]
fn a_session_is_not_read_while_its_answer_waits_and_ends_in_time() {
    let (mut session, mut peer) = session();
    let mut read = Sqe {
        opcode: AdminOpcode::GET_LOG_PAGE.0,
        cdw10: 0x70 | (PIECE / 4 - 1) << 16,
        cdw11: (PIECE / 4 - 1) >> 16,
        ..Sqe::default()
    };
    beside(&mut read, PIECE);
    // More than the socket takes.
    for _ in 0..8 {
        peer.send_capsule(&read, &[]);
    }
    for _ in 0..8 {
        session.poll(Time(0)).unwrap();
    }
    assert!(session.wants_write() && !session.wants_read());
    // Some bytes go, and the bound is of all of them.
    let second = 1_000_000_000;
    let mut bytes = [0; 4096];
    for now in 1..10 {
        peer.stream.read_exact(&mut bytes).unwrap();
        session.poll(Time(now * second)).unwrap();
    }
    assert!(!session.wants_read(), "it is still the same answer");
    assert_eq!(session.deadline(), Time(10 * second));
    let end = session.poll(Time(10 * second)).unwrap_err();
    assert_eq!(end.name(), "does-not-read");
}
