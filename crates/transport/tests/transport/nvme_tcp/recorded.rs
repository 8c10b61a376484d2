//! A session of Linux 7.3, recorded against another target: an admin queue from its Connect to the
//! shutdown, and an I/O queue.

use nvme_spec::Status;
use nvme_spec::opcode::AdminOpcode;

use super::host::{Peer, offer};
use super::rig::{Rig, config};

const ADMIN: &[u8] = include_bytes!("../../../../nvme-tcp/src/decoder/recorded/host.bin");
/// Without the 65,536 bytes of its one H2CData, which were zeros: the test has others.
const IO: &[u8] = include_bytes!("recorded/io_queue.bin");
static H2C_DATA: [u8; 65536] = [0xa5; 65536];

/// PDU types.
const CAPSULE: u8 = 4;
const H2C: u8 = 6;

/// The PDUs of a recorded stream.
fn pdus(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut pdus = Vec::new();
    while !stream.is_empty() {
        let plen = u32::from_le_bytes(stream[4..8].try_into().unwrap()) as usize;
        let len = if stream[0] == H2C { 24 } else { plen };
        let (pdu, rest) = stream.split_at(len);
        pdus.push(pdu.to_vec());
        stream = rest;
    }
    pdus
}

/// Opcode, FCTYPE and identifier of a capsule.
fn command(pdu: &[u8]) -> (AdminOpcode, u8, u16) {
    let cid = u16::from_le_bytes([pdu[10], pdu[11]]);
    (AdminOpcode(pdu[8]), pdu[12], cid)
}

/// Sends a capsule, and checks what it is answered with.
fn send(rig: &mut Rig, peer: &mut Peer, pdu: &[u8]) {
    peer.send(pdu);
    peer.pump(rig);
    let (opcode, _, cid) = command(pdu);
    let expected = match opcode {
        AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => {
            assert!(peer.responses.is_empty());
            return;
        }
        _ => Status::SUCCESSFUL_COMPLETION,
    };
    let cqe = peer.responses.pop_front().expect("an answer");
    assert_eq!(
        (cqe.cid, cqe.status.status()),
        (cid, expected),
        "{opcode:?}"
    );
}

#[test]
fn a_recorded_session_is_served() {
    let mut target = config();
    // As the recorded target had them.
    target.queue_depth = 128;
    target.max_transfer = 1 << 20;
    let mut rig = Rig::with(target);
    let mut admin = Peer::new(rig.connect(), offer(false, false));
    let pdus_of_admin = pdus(ADMIN);
    let (before, after) = pdus_of_admin.split_at(12);
    let is_set_features = |pdu: &Vec<u8>| command(pdu).0 == AdminOpcode::SET_FEATURES;
    assert!(before.iter().any(is_set_features), "queues were asked for");
    for pdu in before {
        if pdu[0] == CAPSULE {
            send(&mut rig, &mut admin, pdu);
        } else {
            admin.send(pdu);
            admin.pump(&mut rig);
        }
    }

    let mut io = Peer::new(rig.connect(), offer(false, false));
    let cntlid = rig.association.as_ref().unwrap().cntlid();
    for mut pdu in pdus(IO) {
        match pdu[0] {
            CAPSULE if command(&pdu).0 == AdminOpcode::FABRICS => {
                pdu[72 + 16..][..2].copy_from_slice(&cntlid.to_le_bytes());
                send(&mut rig, &mut io, &pdu);
            }
            // A write of 64 KiB, whose data are the next PDU.
            CAPSULE if pdu[8] == 1 && pdu.len() == 72 => {
                io.send(&pdu);
                io.pump(&mut rig);
            }
            CAPSULE => {
                io.send(&pdu);
                let cqe = io.response(&mut rig);
                assert_eq!(cqe.cid, command(&pdu).2);
                assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
            }
            H2C => {
                let r2t = io.r2ts.pop_front().expect("an R2T for the whole command");
                assert_eq!((r2t.r2to, r2t.r2tl), (0, 65536));
                pdu[10..12].copy_from_slice(&r2t.ttag.to_le_bytes());
                pdu.extend(H2C_DATA);
                io.send(&pdu);
                let cqe = io.response(&mut rig);
                assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
            }
            _ => {
                io.send(&pdu);
                io.pump(&mut rig);
            }
        }
    }
    let read = io.data.values().find(|data| data.len() == 262_144);
    let read = read.expect("it read what it had written");
    assert!(read[..65536] == H2C_DATA);
    assert!(read[65536..].iter().all(|byte| *byte == 0));
    for data in io.data.values().filter(|data| data.len() == 4096) {
        assert!(
            data.iter().all(|byte| *byte == 0),
            "the first read was of nothing"
        );
    }

    for pdu in after {
        send(&mut rig, &mut admin, pdu);
    }
    assert!(rig.ends.is_empty(), "{:?}", rig.ends);
    assert!(!admin.data.is_empty());
}
