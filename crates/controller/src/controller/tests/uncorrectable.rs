//! Write Uncorrectable (NVM 1.1, 3.3.7): blocks that read as errors until they are written.

use nvme_spec::Sqe;
use port::testing::Manner;
use subsystem::SubsystemConfig;

use super::rig::*;

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const VERIFY: u8 = 0x0c;
const COPY: u8 = 0x19;
const UNRECOVERED_READ: u16 = 0x281;
const LBA_OUT_OF_RANGE: u16 = 0x080;

struct Io {
    rig: Rig,
    sent: u32,
}

impl Io {
    fn new(manner: Manner) -> Self {
        Self::with(manner, SubsystemConfig::with_namespaces(32, namespaces()))
    }

    fn with(manner: Manner, subsystem: SubsystemConfig) -> Self {
        let mut rig = Rig::of(config(), subsystem);
        rig.medium(0).manner = manner;
        rig.enable();
        rig.create_pair(1, 64);
        Io { rig, sent: 0 }
    }

    fn send(&mut self, opcode: u8, slba: u32, blocks: u32) -> u32 {
        let number = self.sent;
        self.sent += 1;
        let sqe = Sqe {
            opcode,
            cid: number as u16,
            nsid: 1,
            prp1: self.rig.data_page().0,
            cdw10: slba,
            cdw12: blocks - 1,
            ..Sqe::default()
        };
        self.rig.submit_io(1, number, sqe);
        self.rig.turns(12);
        number
    }

    fn done(&self, number: u32) -> Option<u16> {
        self.rig.io_cqe(1, number).map(|cqe| code(&cqe))
    }

    fn io(&mut self, opcode: u8, slba: u32, blocks: u32) -> u16 {
        let number = self.send(opcode, slba, blocks);
        self.done(number).expect("it completes")
    }
}

#[test]
fn marked_blocks_read_as_errors_and_others_do_not() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut io = Io::new(manner);
        assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 4), OK);
        for opcode in [READ, COMPARE, VERIFY] {
            assert_eq!(io.io(opcode, 8, 1), UNRECOVERED_READ, "{opcode:#x}");
            assert_eq!(io.io(opcode, 11, 1), UNRECOVERED_READ, "{opcode:#x}");
            assert_eq!(io.io(opcode, 0, 9), UNRECOVERED_READ, "{opcode:#x}");
            assert_eq!(io.io(opcode, 0, 8), OK, "{opcode:#x}");
            assert_eq!(io.io(opcode, 12, 8), OK, "{opcode:#x}");
        }
        assert_eq!(io.io(WRITE_UNCORRECTABLE, 2047, 2), LBA_OUT_OF_RANGE);
        let seen = io.rig.medium(0).seen.len();
        io.io(READ, 8, 4);
        assert_eq!(io.rig.medium(0).seen.len(), seen, "the medium is not asked");
    }
}

#[test]
fn writing_makes_blocks_readable_again_and_no_others() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut io = Io::new(manner);
        assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 8), OK);
        assert_eq!(io.io(WRITE, 10, 2), OK);
        assert_eq!(io.io(WRITE_ZEROES, 14, 8), OK);
        let read = |io: &mut Io| {
            (8..16)
                .map(|at| io.io(READ, at, 1) == OK)
                .collect::<Vec<_>>()
        };
        let expected = [false, false, true, true, false, false, true, true];
        assert_eq!(read(&mut io), expected);
        let both: Vec<_> = io
            .rig
            .subsystem
            .directory()
            .get(1)
            .unwrap()
            .uncorrectable
            .iter()
            .collect();
        assert_eq!(both, [(8, 2), (12, 2)]);
    }
}

#[test]
fn a_write_that_fails_clears_no_mark() {
    let mut io = Io::new(Manner::Asynchronous);
    assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 1), OK);
    io.rig.medium(0).fault = Some(port::Cause::WriteFailed);
    // Write Fault (NVM 1.1, figure 20).
    assert_eq!(io.io(WRITE, 8, 1), 0x280);
    io.rig.medium(0).fault = None;
    assert_eq!(io.io(READ, 8, 1), UNRECOVERED_READ);
}

#[test]
fn copy_reads_no_marked_block_and_clears_where_it_writes() {
    let mut io = Io::new(Manner::Asynchronous);
    assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 4), OK);
    let copy = |io: &mut Io, from: u64, count: u16, to: u32| {
        // One range of format 0h: SLBA at byte 8, NLB (0's based) at byte 16.
        let mut range = [0; 32];
        range[8..16].copy_from_slice(&from.to_le_bytes());
        range[16..18].copy_from_slice(&(count - 1).to_le_bytes());
        io.rig.host.write(io.rig.data_page(), &range);
        io.io(COPY, to, 1)
    };
    assert_eq!(copy(&mut io, 6, 3, 100), UNRECOVERED_READ);
    assert_eq!(copy(&mut io, 0, 3, 9), OK);
    let read: Vec<bool> = (8..12).map(|at| io.io(READ, at, 1) == OK).collect();
    assert_eq!(read, [false, true, true, true]);
}

#[test]
fn marks_are_kept_before_the_command_completes_and_so_is_their_end() {
    let mut io = Io::with(
        Manner::Asynchronous,
        SubsystemConfig {
            keeping: true,
            ..SubsystemConfig::with_namespaces(32, namespaces())
        },
    );
    let keep = |io: &mut Io| {
        let (version, record) = io.rig.subsystem.take_record().expect("it changed");
        io.rig.subsystem.kept(version);
        io.rig.turns(8);
        record.namespaces[0].uncorrectable.clone()
    };
    keep(&mut io);
    let mark = io.send(WRITE_UNCORRECTABLE, 8, 4);
    assert_eq!(io.done(mark), None);
    assert_eq!(keep(&mut io), [(8, 4)]);
    assert_eq!(io.done(mark), Some(OK));
    let write = io.send(WRITE, 8, 4);
    assert_eq!(io.done(write), None);
    assert_eq!(io.rig.medium(0).seen.len(), 1, "it was written before");
    assert_eq!(keep(&mut io), []);
    assert_eq!(io.done(write), Some(OK));
}

#[test]
fn an_unrecovered_read_is_a_media_error_in_both_logs() {
    let mut io = Io::new(Manner::Asynchronous);
    assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 1), OK);
    assert_eq!(io.io(READ, 8, 1), UNRECOVERED_READ);
    io.rig.turns(4);
    let health = io.rig.log(0x02, 0, 512).unwrap();
    assert_eq!(u64_at(&health, 160), 1, "media and data integrity errors");
    let entry = io.rig.log(0x01, 0, 64).unwrap();
    assert_eq!(u64_at(&entry, 16), 8, "LBA");
    assert_eq!(u16_at(&entry, 12) >> 1 & 0x7ff, UNRECOVERED_READ);
}

#[test]
fn a_reset_gives_up_nothing_that_was_marked() {
    let mut io = Io::new(Manner::Asynchronous);
    assert_eq!(io.io(WRITE_UNCORRECTABLE, 8, 1), OK);
    io.rig.disable();
    io.rig.enable();
    io.rig.create_pair(1, 64);
    io.sent = 0;
    assert_eq!(io.io(READ, 8, 1), UNRECOVERED_READ);
}
