//! A client that moves a controller here, and has changed its state on the way.
//!
//! Found would be: a panic, a turn without end, a reset that hangs, a byte written where the host
//! does not allow it. A change that makes another right state is no finding: the client is the
//! host, which may set its controller up as it likes.

use arbitrary::Arbitrary;
use controller::DoorbellMode;
use controller::controller::Moved;
use nvme_spec::Sqe;

use crate::rig::{BASE, PAGE, Rig};

/// Bytes before the sections, and where the checksum of these is.
const HEAD_LEN: usize = 32;
const CRC_AT: usize = 24;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    /// Bytes in place of a state.
    raw: Option<Vec<u8>>,
    edits: Vec<Edit>,
    /// Bytes that are missing at the end.
    cut: u8,
    /// The checksum stays that of the right state.
    damaged: bool,
    /// Doorbells that the host rings after it.
    rung: Vec<(u8, u16)>,
    shadow: bool,
}

/// A change of some bytes.
#[derive(Arbitrary, Debug)]
struct Edit {
    at: u32,
    bytes: [u8; 8],
    len: u8,
    /// Counted from the end of the stream, where the small sections are.
    from_end: bool,
}

/// Pages of the rings.
const ADMIN_SQ: usize = 0;
const ADMIN_CQ: usize = 1;
const IO_SQ: usize = 2;
const IO_CQ: usize = 3;
const DATA: usize = 4;
const SHADOW: usize = 5;

fn iova(page: usize) -> u64 {
    BASE + (page * PAGE) as u64
}

fn put(rig: &Rig, page: usize, index: usize, sqe: Sqe) {
    let words = sqe.to_words();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    rig.ram.write_from(page * PAGE + index * 64, &bytes);
}

/// A host that has used a queue pair; in the rings and the memory of `rig`.
fn use_controller(rig: &mut Rig, shadow: bool) {
    let registers: [(u64, Vec<u8>); 4] = [
        (0x24, 0x000f_000f_u32.to_le_bytes().to_vec()),
        (0x28, iova(ADMIN_SQ).to_le_bytes().to_vec()),
        (0x30, iova(ADMIN_CQ).to_le_bytes().to_vec()),
        (0x14, 0x0046_0001_u32.to_le_bytes().to_vec()),
    ];
    for (offset, value) in registers {
        rig.controller().bar_write(0, offset, &value);
    }
    rig.turns(8);
    let mut commands = vec![
        // Create I/O Completion Queue, Create I/O Submission Queue (Base 2.1, 5.2.1, 5.2.2)
        Sqe {
            opcode: 5,
            prp1: iova(IO_CQ),
            cdw10: 1 | 15 << 16,
            cdw11: 3 | 1 << 16,
            ..Sqe::default()
        },
        Sqe {
            opcode: 1,
            prp1: iova(IO_SQ),
            cdw10: 1 | 15 << 16,
            cdw11: 1 | 1 << 16,
            ..Sqe::default()
        },
        // Asynchronous Event Request
        Sqe {
            opcode: 0x0c,
            ..Sqe::default()
        },
    ];
    if shadow {
        // Doorbell Buffer Config
        commands.push(Sqe {
            opcode: 0x7c,
            prp1: iova(SHADOW),
            prp2: iova(SHADOW + 1),
            ..Sqe::default()
        });
    }
    for (index, command) in commands.into_iter().enumerate() {
        put(rig, ADMIN_SQ, index, command);
        rig.doorbells.store(0, index as u32 + 1);
        rig.turns(6);
    }
    for index in 0..3 {
        let read = Sqe {
            opcode: 2,
            nsid: 1,
            prp1: iova(DATA),
            ..Sqe::default()
        };
        put(rig, IO_SQ, index, read);
    }
    rig.doorbells.store(2, 2);
    rig.turns(6);
}

/// The state that the client writes.
fn state(right: Vec<u8>, input: &Input) -> Vec<u8> {
    let mut state = input.raw.clone().unwrap_or(right);
    for edit in &input.edits {
        let len = usize::from(edit.len % 9);
        let at = edit.at as usize % state.len().max(1);
        let at = if edit.from_end {
            state.len().saturating_sub(1 + at % 4096)
        } else {
            at
        };
        for (byte, new) in state.iter_mut().skip(at).zip(&edit.bytes[..len]) {
            *byte = *new;
        }
    }
    state.truncate(state.len().saturating_sub(usize::from(input.cut)));
    if !input.damaged && state.len() > HEAD_LEN {
        let crc = crc32c::crc32c(&state[HEAD_LEN..]);
        state[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
    state
}

pub(crate) fn run(input: Input) {
    let mode = if input.shadow {
        DoorbellMode::Unmapped
    } else {
        DoorbellMode::Mapped
    };
    let mut rig = Rig::new(mode);
    use_controller(&mut rig, input.shadow);
    rig.controller().halt(true);
    rig.turns(8);
    let right = rig.controller().give("here").expect("it has halted");
    let state = state(right, &input);
    rig.controller().function_reset();
    rig.turns(8);
    let appearance = rig.controller().appearance();
    if let Ok(moved) = Moved::read(&state, &appearance) {
        let (slot, doorbells, view) = (rig.slot, rig.doorbells.clone(), rig.view());
        // What a state cannot be is an error.
        let _ = rig.engine.replace_controller(slot, moved, doorbells, view);
        rig.show_view();
    }
    rig.controller().halt(false);
    rig.turns(8);
    for (slot, value) in &input.rung {
        let slots = rig.doorbells.slots();
        rig.doorbells
            .store(usize::from(*slot) % slots, (*value).into());
        rig.turns(2);
    }
    rig.turns(8);
    rig.finish();
}
