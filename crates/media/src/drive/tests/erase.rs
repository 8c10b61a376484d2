//! A part of a drive is erased: all of it and nothing beside it.

use std::sync::Arc;

use driver::io::Namespace;

use super::rig::{Mood, SIZE, Shape, device};
use crate::drive::erase::erase;
use crate::drive::facts::Facts;
use crate::{Medium, MediumKind, MediumSpec};

#[test]
fn erased_bytes_read_as_zeros_and_no_others_do() {
    for (lba_shift, has_zeroes) in [(9, true), (12, true), (9, false), (12, false)] {
        let kind = MediumKind::Ram { size: SIZE };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let shape = Shape {
            lba_shift,
            ..Shape::default()
        };
        let mut device = device(&medium, &Arc::<Mood>::default(), shape, &Arc::default()).unwrap();
        let mut facts = Facts::learn(&mut device, None).unwrap();
        assert_ne!(facts.zeroes_len, 0);
        if !has_zeroes {
            facts.zeroes_len = 0;
        }
        let namespace = Namespace {
            nsid: 1,
            blocks: facts.blocks,
            block_len: facts.block_bytes(),
        };
        let mut pair = device.create_queue_pair(2, false).unwrap();
        let piece = device.alloc(8192).unwrap();
        let blocks = 8192 >> lba_shift;
        let pieces = 0..SIZE / 8192;
        piece.write_from(0, &[7; 8192]);
        for at in pieces.clone() {
            let lba = at * u64::from(blocks);
            pair.write(&namespace, lba, blocks, &piece, false).unwrap();
        }
        // More than one command, and a part of the last one.
        let (offset, len) = (1 << 20, (1 << 20) + 12288);
        erase(&device, &mut pair, &facts, offset, len).unwrap();
        for at in pieces {
            let lba = at * u64::from(blocks);
            pair.read(&namespace, lba, blocks, &piece).unwrap();
            let mut found = [1; 8192];
            piece.read_into(0, &mut found);
            let expected = std::array::from_fn::<u8, 8192, _>(|byte| {
                let is_erased = (offset..offset + len).contains(&(at * 8192 + byte as u64));
                if is_erased { 0 } else { 7 }
            });
            assert!(found == expected, "{at}: {lba_shift}, {has_zeroes}");
        }
    }
}
