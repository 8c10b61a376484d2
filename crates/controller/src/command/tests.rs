//! Expectations: NVM Command Set 1.1, chapter 3, and Base 2.1, 3.3.3.1.

use nvme_spec::copy::CopyDescriptorFormat;
use nvme_spec::{Sqe, Status};
use proptest::prelude::*;

use super::{Blocks, Command, CopyRanges, DeallocateRanges, first_block, parse, plain};

fn sqe(opcode: u8) -> Sqe {
    Sqe {
        opcode,
        nsid: 1,
        cdw10: 0x89AB_CDEF,
        cdw11: 0x0123_4567,
        ..Sqe::default()
    }
}

const BLOCKS: Blocks = Blocks {
    slba: 0x0123_4567_89AB_CDEF,
    count: 1,
};

#[test]
fn numbers_of_blocks_are_zero_based() {
    for nlb in [0, 1, 0xFFFF] {
        let mut read = sqe(0x02);
        read.cdw12 = nlb;
        let Ok(Command::Read { blocks, fua: false }) = parse(&read) else {
            panic!("a read")
        };
        assert_eq!((blocks.slba, blocks.count), (BLOCKS.slba, nlb + 1));
    }
}

/// A command set beside NVM asks `port` for the effects of NVM's own commands.
#[test]
fn effects_are_known_of_the_opcodes_that_are_parsed() {
    for opcode in 0..=u8::MAX {
        let command = Sqe {
            opcode,
            ..Sqe::default()
        };
        let is_parsed = parse(&command) != Err(Status::INVALID_COMMAND_OPCODE);
        let effects = port::set::nvm_effects(opcode);
        assert_eq!(effects.is_some(), is_parsed, "{opcode:#04x}");
    }
}

proptest! {
    /// Bits are drawn sparsely, or no command would be a plain one.
    #[test]
    fn a_plain_command_is_what_is_parsed(
        words: [u64; 8],
        opcode in 0..3u16,
        high in prop_oneof![4 => Just(0u32), 1 => any::<u32>()],
        flags in prop_oneof![4 => Just(0u16), 1 => any::<u16>()],
    ) {
        let mut words = words;
        words[0] = words[0] & !0xFFFF | u64::from(opcode | flags << 8);
        words[6] = words[6] & !0xFFFF_0000 | u64::from(high & 0xFFFF_0000);
        let sqe = Sqe::from_words(words);
        let unusual = opcode == 0 || flags & 0xFF != 0 || high >> 16 != 0;
        prop_assert_eq!(plain(&words).is_none(), unusual);
        if let Some(plain) = plain(&words) {
            prop_assert_eq!((plain.nsid, plain.prp), (sqe.nsid, [sqe.prp1, sqe.prp2]));
            let (blocks, fua) = (plain.blocks, false);
            let command = if !plain.writes { Command::Read { blocks, fua } } else { Command::Write { blocks, fua } };
            prop_assert_eq!(parse(&sqe), Ok(command));
        }
    }
}

#[test]
fn flags_are_where_the_specification_has_them() {
    let mut write = sqe(0x01);
    let blocks = BLOCKS;
    assert_eq!(parse(&write), Ok(Command::Write { blocks, fua: false }));
    write.cdw12 = 1 << 30;
    assert_eq!(parse(&write), Ok(Command::Write { blocks, fua: true }));
    let mut zeroes = sqe(0x08);
    zeroes.cdw12 = 1 << 25;
    let expected = Command::WriteZeroes {
        blocks,
        deallocate: true,
        fua: false,
    };
    assert_eq!(parse(&zeroes), Ok(expected));
    zeroes.cdw12 = 1 << 30;
    let expected = Command::WriteZeroes {
        blocks,
        deallocate: false,
        fua: true,
    };
    assert_eq!(parse(&zeroes), Ok(expected));
    zeroes.cdw12 = 1 << 23;
    assert_eq!(parse(&zeroes), Err(Status::INVALID_FIELD_IN_COMMAND));
    let opcodes = [0x02, 0x05, 0x0C];
    let both = opcodes.map(|opcode| [(opcode, false), (opcode, true)]);
    for (opcode, fua) in both.into_iter().flatten() {
        let mut command = sqe(opcode);
        command.cdw12 = u32::from(fua) << 30;
        let expected = match opcode {
            0x02 => Command::Read { blocks, fua },
            0x0C => Command::Verify { blocks, fua },
            _ => Command::Compare { blocks, fua },
        };
        assert_eq!(parse(&command), Ok(expected));
    }
    assert_eq!(parse(&sqe(0x00)), Ok(Command::Flush));
}

#[test]
fn dataset_management_without_deallocate_is_a_hint() {
    let mut dsm = sqe(0x09);
    dsm.cdw10 = 0xFF;
    dsm.cdw11 = 0b011;
    assert_eq!(parse(&dsm), Ok(Command::Hint));
    dsm.cdw11 = 0b100;
    assert_eq!(parse(&dsm), Ok(Command::Deallocate { ranges: 256 }));
    dsm.cdw10 = 0;
    assert_eq!(parse(&dsm), Ok(Command::Deallocate { ranges: 1 }));
}

#[test]
fn quirk_unknown_opcode_is_invalid_opcode_never_success() {
    let known = [
        0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x0D, 0x0E, 0x11, 0x15, 0x19,
    ];
    for opcode in 0..=255 {
        let result = parse(&sqe(opcode));
        if known.contains(&opcode) {
            assert!(result.is_ok(), "{opcode:#x}");
        } else {
            assert_eq!(result, Err(Status::INVALID_COMMAND_OPCODE), "{opcode:#x}");
        }
    }
}

#[test]
fn reserved_data_pointers_and_fused_commands_are_refused() {
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0C, 0x19] {
        for flags in [0x01, 0x02, 0x03, 0x41, 0x82, 0xC0] {
            let mut command = sqe(opcode);
            command.flags = flags.into();
            let error = Err(Status::INVALID_FIELD_IN_COMMAND);
            assert_eq!(parse(&command), error, "{opcode:#x} {flags:#x}");
        }
    }
    let mut unknown = sqe(0x7F);
    unknown.flags = 0xFF.into();
    assert_eq!(parse(&unknown), Err(Status::INVALID_COMMAND_OPCODE));
}

#[test]
fn sgls_are_taken_whatever_mptr_would_be() {
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09] {
        let plain = parse(&sqe(opcode));
        assert!(plain.is_ok());
        for flags in [0x40, 0x80] {
            let mut command = sqe(opcode);
            command.flags = flags.into();
            assert_eq!(parse(&command), plain, "{opcode:#x} {flags:#x}");
        }
    }
}

#[test]
fn directives_are_refused_where_they_are_a_field() {
    for dtype in 1..16 {
        let mut write = sqe(0x01);
        write.cdw12 = dtype << 20;
        assert_eq!(parse(&write), Err(Status::INVALID_FIELD_IN_COMMAND));
        // Reserved in Read.
        let mut read = sqe(0x02);
        read.cdw12 = dtype << 20;
        let (blocks, fua) = (BLOCKS, false);
        assert_eq!(parse(&read), Ok(Command::Read { blocks, fua }));
    }
}

#[test]
fn quirk_reserved_and_unused_fields_are_ignored() {
    for opcode in [0x00, 0x02, 0x05] {
        let mut command = sqe(opcode);
        command.cdw12 = 1 << 30;
        let plain = parse(&command);
        command.flags = 0b0011_1100.into();
        command.cdw2 = u32::MAX;
        command.cdw3 = u32::MAX;
        command.mptr = u64::MAX;
        // Protection information, storage tag check, limited retry and what is reserved; with FUA,
        // and not NLB.
        command.cdw12 = 0xFFFF_0000;
        command.cdw13 = u32::MAX;
        command.cdw14 = u32::MAX;
        command.cdw15 = u32::MAX;
        assert_eq!(parse(&command), plain, "{opcode:#x}");
    }
}

#[test]
fn ranges_are_sixteen_bytes_each() {
    let mut ranges = DeallocateRanges::new(2);
    let bytes = ranges.as_mut_bytes();
    assert_eq!(bytes.len(), 32);
    bytes[4..8].copy_from_slice(&7u32.to_le_bytes());
    bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    let seen = ranges.entries().iter().map(|range| (range.slba, range.nlb));
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen, [(0, 7), (u64::MAX, 0)]);
    assert_eq!(DeallocateRanges::new(256).as_mut_bytes().len(), 4096);
}

#[test]
fn a_list_has_no_more_room_than_its_most() {
    assert_eq!(CopyRanges::new(128).as_mut_bytes().len(), 4096);
    assert_eq!(CopyRanges::new(256).entries().len(), 128);
}

#[test]
fn copy_says_where_to_how_many_and_how() {
    let mut copy = sqe(0x19);
    copy.cdw12 = 0x4000_0000 | 2 << 8 | 4;
    let expected = Command::Copy {
        slba: BLOCKS.slba,
        ranges: 5,
        format: CopyDescriptorFormat::FORMAT_2,
        fua: true,
    };
    assert_eq!(parse(&copy), Ok(expected));
    for format in [1, 3, 4, 5, 15] {
        copy.cdw12 = format << 8;
        assert_eq!(parse(&copy), Err(Status::INVALID_FIELD_IN_COMMAND));
    }
    // A directive.
    copy.cdw12 = 1 << 20;
    assert_eq!(parse(&copy), Err(Status::INVALID_FIELD_IN_COMMAND));
}

#[test]
fn blocks_overlap_where_one_is_in_both() {
    let blocks = |slba, count| Blocks { slba, count };
    assert!(blocks(5, 3).overlaps(blocks(7, 1)));
    assert!(blocks(7, 1).overlaps(blocks(5, 3)));
    assert!(blocks(5, 3).overlaps(blocks(0, 100)));
    assert!(!blocks(5, 3).overlaps(blocks(8, 1)));
    assert!(!blocks(5, 3).overlaps(blocks(4, 1)));
}

#[test]
fn the_error_log_gets_a_block_only_where_there_is_one() {
    assert_eq!(first_block(&sqe(0x02)), BLOCKS.slba);
    assert_eq!(first_block(&sqe(0x09)), 0);
    assert_eq!(first_block(&sqe(0x00)), 0);
}
