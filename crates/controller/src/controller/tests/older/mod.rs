//! A controller goes on from the state that the format before has saved.
//!
//! `state-7.txt` is the state file of this script in a program of format 7: each line has an offset
//! in bytes and 32 bytes, both hexadecimal; all other bytes are zero. Replace it with one of the
//! format before whenever [`FORMAT_VERSION`] grows: [`dumped`] gives the text.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use memory::StateFile;
use nvme_spec::Sqe;
use port::testing::{Manner, Seen};

use super::rig::*;
use crate::controller::Interrupt;
use crate::state::FORMAT_VERSION;

/// Bytes of a line.
const LINE: usize = 32;

const WRITE: u8 = 0x01;

/// Two pairs of queues. A completion that the host has consumed, one that it has not, a read and a
/// write that are in their media, a request for an event, and an Abort that waits for its lane.
fn script() -> Rig {
    let mut rig = Rig::enabled();
    rig.create_pair(3, 8);
    rig.create_pair(1, 8);
    let read = rig.read_sqe(0x10, 1);
    rig.submit_io(1, 0, read);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(0x10));
    rig.write32(0x100c, 1);
    rig.turns(2);
    let read = rig.read_sqe(0x11, 1);
    rig.submit_io(1, 1, read);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 1).map(|cqe| cqe.cid), Some(0x11));
    rig.async_event();
    rig.turns(2);
    rig.medium(0).manner = Manner::Hanging;
    let write = Sqe {
        opcode: WRITE,
        cdw10: 40,
        ..rig.read_sqe(0x12, 2)
    };
    rig.submit_io(1, 2, write);
    let read = rig.read_sqe(0x30, 4);
    rig.submit_io(3, 0, read);
    rig.turns(3);
    rig.submit(Sqe {
        opcode: ABORT,
        cdw10: 0x12 << 16 | 1,
        ..Sqe::default()
    });
    rig.controller.turn(
        rig.now,
        &mut rig.channels,
        &mut rig.lanes,
        &mut rig.subsystem,
    );
    rig
}

/// The rig's state file as text.
fn dumped(rig: &Rig) -> String {
    let file = File::from(rig.controller.state().fd().try_clone_to_owned().unwrap());
    let len = file.metadata().unwrap().len();
    let mut text = format!("{len:x}\n");
    for at in (0..len).step_by(LINE) {
        let mut bytes = [0; LINE];
        file.read_exact_at(&mut bytes, at).unwrap();
        if bytes != [0; LINE] {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{at:x} {hex}\n");
        }
    }
    text
}

/// The state file that such a text describes.
fn loaded(text: &str) -> Arc<StateFile> {
    let mut lines = text.lines();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let mut bytes = vec![0; number(lines.next().unwrap())];
    for line in lines {
        let (at, hex) = line.split_once(' ').unwrap();
        for (index, byte) in bytes[number(at)..][..LINE].iter_mut().enumerate() {
            *byte = number(&hex[2 * index..2 * index + 2]) as u8;
        }
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    // An area has its offset and its length in the header.
    let lens: Vec<usize> = (32..4096)
        .step_by(16)
        .take_while(|at| word(*at) != 0)
        .map(|at| word(at + 8))
        .collect();
    let file = StateFile::create("older", FORMAT_VERSION, &lens).unwrap();
    let fd = File::from(file.fd().try_clone_to_owned().unwrap());
    assert_eq!(fd.metadata().unwrap().len(), bytes.len() as u64);
    fd.write_all_at(&bytes, 0).unwrap();
    StateFile::open(fd.into()).unwrap()
}

#[test]
fn a_controller_goes_on_from_the_format_before() {
    let mut rig = script();
    let this = loaded(&dumped(&rig));
    assert_eq!(this.format_version(), FORMAT_VERSION);
    let before = loaded(include_str!("state-7.txt"));
    assert_eq!(before.format_version(), FORMAT_VERSION - 1);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.revive_from(before);
    rig.turns(8);

    // The host has not consumed this one: its interrupt is raised again.
    assert!(rig.interrupts.contains(&Interrupt::Vector(1)));
    let completed = |rig: &Rig, qid, at| rig.io_cqe(qid, at).map(|cqe| (cqe.cid, code(&cqe)));
    assert_eq!(completed(&rig, 1, 1), Some((0x11, OK)));
    // Each of those in a medium completes once, the write before the read.
    let seen = &rig.medium(0).seen;
    assert_eq!(
        seen[seen.len() - 2..],
        [
            Seen::Write(40 * 512, 2 * 512, false),
            Seen::Read(0, 4 * 512)
        ]
    );
    assert_eq!(completed(&rig, 1, 2), Some((0x12, OK)));
    assert_eq!(completed(&rig, 3, 0), Some((0x30, OK)));
    assert_eq!(completed(&rig, 3, 1), None);
    // That format had no numbers of Aborts: this one has aborted nothing, and says so.
    let abort = rig.reap().expect("the Abort is answered");
    assert_eq!((code(&abort), abort.dw0), (OK, 1));
    assert_eq!(completed(&rig, 1, 3), None);
    assert_eq!(rig.peek(), None, "the request for an event is held");

    // It goes on, in the format of this program.
    let read = rig.read_sqe(0x13, 1);
    rig.submit_io(1, 3, read);
    rig.turns(6);
    assert_eq!(completed(&rig, 1, 3), Some((0x13, OK)));
    assert!(rig.identify(1, 0, 0).is_ok());
    assert_eq!(rig.controller.state().format_version(), FORMAT_VERSION);
}
