//! The compound command.

use super::*;

/// Sub-commands: opcode, key, value, option.
pub(super) type Sub<'s> = (u8, &'s [u8], &'s [u8], u8);

pub(super) fn payload(subs: &[Sub<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    for (at, (opcode, key, value, option)) in subs.iter().enumerate() {
        let head = &mut bytes[16 * at..][..16];
        (head[0], head[1], head[8]) = (*opcode, key.len() as u8, *option);
        head[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        for part in [&[0xdd; 64][..], key, value] {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(64), 0xdd);
        }
    }
    bytes
}

pub(super) fn batch(count: u8, len: usize) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 0x85;
    bytes[40..44].copy_from_slice(&(len as u32 / 4).to_le_bytes());
    bytes[47] = count;
    bytes
}

fn run(rig: &mut Rig, subs: &[Sub<'_>]) -> Completion {
    let data = payload(subs);
    rig.with(batch(subs.len() as u8, data.len()), &data)
}

fn rig() -> Rig {
    Rig::new(Dialect::Samsung, 16 << 10, 1000)
}

fn value_of(rig: &mut Rig, key: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    (bytes[0], bytes[41], bytes[44]) = (0x90, 4, key.len() as u8 - 1);
    bytes[48..48 + key.len()].copy_from_slice(key);
    let (status, len) = rig.command(bytes, 4096);
    (status == 0).then(|| rig.host(len as usize))
}

#[test]
fn sub_commands_are_done_in_their_order() {
    let mut rig = rig();
    let long = [5; 100];
    let subs: [Sub<'_>; 5] = [
        (0x81, b"key1", b"one", 0),
        (0x81, b"key2", &long, 2),
        (0xa1, b"key1", b"", 0),
        (0x81, b"key1", b"again", 2),
        (0x81, &[9; 255], b"", 0),
    ];
    assert_eq!(run(&mut rig, &subs), (0, 0));
    let Some(Op::Compound(ops)) = rig.medium.last_op() else {
        panic!("{:?}", rig.medium.last_op());
    };
    let told: Vec<_> = ops.iter().map(|op| (op.kind, op.len)).collect();
    let store = KvKind::Store;
    let expected = [
        (store, 3),
        (store, 100),
        (KvKind::Delete, 0),
        (store, 5),
        (store, 0),
    ];
    assert_eq!(told, expected);
    assert_eq!(value_of(&mut rig, b"key1").unwrap(), b"again");
    assert_eq!(value_of(&mut rig, b"key2").unwrap(), long);
    assert_eq!(rig.medium.pairs.read().size_of(&[9; 255]), Some(0));
}

#[test]
fn one_that_fails_leaves_the_others() {
    let mut rig = rig();
    let big = vec![1; 17 << 10];
    let subs: [Sub<'_>; 8] = [
        (0x81, b"key1", b"one", 0),
        (0x81, b"key1", b"two", 2),
        (0xa1, b"nokey", b"", 0),
        (0x90, b"key1", b"", 0),
        (0x81, b"abc", b"", 0),
        (0x81, b"key3", &big, 0),
        (0x81, b"key4", b"", 64),
        (0x81, b"key2", b"last", 0),
    ];
    // Four bits each: idempotent 9, no key 6, opcode 3, key size 2, capacity 8, option 4. The
    // status is the first one's.
    assert_eq!(run(&mut rig, &subs), (0x380, 0x0482_3690));
    assert_eq!(value_of(&mut rig, b"key1").unwrap(), b"one");
    assert_eq!(value_of(&mut rig, b"key2").unwrap(), b"last");
    assert_eq!(value_of(&mut rig, b"key3"), None);
    let update: [Sub<'_>; 1] = [(0x81, b"key9", b"", 8)];
    assert_eq!(run(&mut rig, &update), (0x310, 0xa));
    let deletes: [Sub<'_>; 1] = [(0xa0, b"key1", b"", 0)];
    assert_eq!(run(&mut rig, &deletes), (0, 0));
}

#[test]
fn malformed_heads_do_nothing() {
    let mut rig = rig();
    let subs: [Sub<'_>; 2] = [(0x81, b"key1", b"one", 0), (0x81, b"key2", b"two", 0)];
    let data = payload(&subs);
    assert_eq!(rig.with(batch(0, data.len()), &data), (0x002, 0));
    assert_eq!(rig.with(batch(9, data.len()), &data), (0x002, 0));
    assert_eq!(rig.with(batch(2, 508), &data[..508]), (0x301, 0));
    // The data end before the second value, or a size leads out of them: of the sub-command, or of
    // all addresses.
    let end = data.len() - 64;
    assert_eq!(rig.with(batch(2, end), &data[..end]), (0x301, 0));
    for size in [65, 1 << 20, u32::MAX] {
        let mut wrong = data.clone();
        wrong[20..24].copy_from_slice(&size.to_le_bytes());
        assert_eq!(rig.with(batch(2, data.len()), &wrong), (0x301, 0), "{size}");
    }
    let mut wrong = data.clone();
    wrong[17] = 255;
    assert_eq!(rig.with(batch(2, data.len()), &wrong), (0x301, 0));
    assert!(rig.medium.last_op().is_none());
    // The command says that there is less than the host gave.
    assert_eq!(rig.with(batch(2, 512), &data), (0x301, 0));
    assert_eq!(value_of(&mut rig, b"key1"), None);
    // Padding after the last value may be missing.
    let cut = data.len() - 60;
    assert_eq!(rig.with(batch(2, cut), &data[..cut]), (0, 0));
    assert_eq!(value_of(&mut rig, b"key2").unwrap(), b"two");
}
