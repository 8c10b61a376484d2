//! The Key Value command set.

use super::*;

/// A command of the Key Value command set: opcode, key, Dword 10, options.
pub(super) fn sqe(opcode: u8, key: &[u8], size: u32, options: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = opcode;
    bytes[4] = 1;
    let mut field = [0; 16];
    field[..key.len()].copy_from_slice(key);
    bytes[8..16].copy_from_slice(&field[..8]);
    bytes[56..64].copy_from_slice(&field[8..]);
    bytes[40..44].copy_from_slice(&size.to_le_bytes());
    bytes[44] = key.len() as u8;
    bytes[45] = options;
    bytes
}

fn rig() -> Rig {
    Rig::new(Dialect::Nvme, 64 << 10, 100)
}

fn store(rig: &mut Rig, key: &[u8], value: &[u8], options: u8) -> Completion {
    rig.with(sqe(0x01, key, value.len() as u32, options), value)
}

fn list(rig: &mut Rig, from: &[u8], room: u32) -> Vec<u8> {
    rig.fill(room as usize + 8);
    let done = rig.command(sqe(0x06, from, room, 0), room as usize);
    assert_eq!(done, (0, 0));
    rig.host(room as usize + 8)
}

#[test]
fn a_value_comes_back_whole_and_in_part() {
    let mut rig = rig();
    let value: Vec<u8> = (0..5003).map(|n| (n % 251) as u8).collect();
    assert_eq!(store(&mut rig, b"key", &value, 0), (0, 0));
    rig.fill(8192);
    // Dword 0 is the size of the value, whatever fits.
    assert_eq!(rig.command(sqe(0x02, b"key", 8192, 0), 8192), (0, 5003));
    assert_eq!(rig.host(5003), value);
    assert_eq!(rig.host(8192)[5003..], [0xee; 3189]);
    rig.fill(8192);
    assert_eq!(rig.command(sqe(0x02, b"key", 100, 1), 100), (0, 5003));
    assert_eq!(rig.host(101), [&value[..100], &[0xee]].concat());
    assert_eq!(rig.command(sqe(0x02, b"key", 0, 0), 0), (0, 5003));
    assert_eq!(store(&mut rig, b"key", b"", 0), (0, 0));
    assert_eq!(rig.command(sqe(0x02, b"key", 10, 0), 10), (0, 0));
}

#[test]
fn keys_exist_and_are_deleted() {
    let mut rig = rig();
    assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0x087, 0));
    assert_eq!(rig.command(sqe(0x10, b"key", 0, 0), 0), (0x087, 0));
    assert_eq!(rig.command(sqe(0x02, b"key", 8, 0), 8), (0x087, 0));
    store(&mut rig, b"key", b"value", 0);
    assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0, 0));
    // Another length is another key, also where the bytes are the same.
    assert_eq!(rig.command(sqe(0x14, b"key\0", 0, 0), 0), (0x087, 0));
    assert_eq!(rig.command(sqe(0x10, b"key", 0, 0), 0), (0, 0));
    assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0x087, 0));
}

#[test]
fn store_options_ask_what_there_is() {
    let mut rig = rig();
    assert_eq!(store(&mut rig, b"key", b"one", 1), (0x087, 0));
    assert_eq!(store(&mut rig, b"key", b"one", 2 | 4), (0, 0));
    assert_eq!(store(&mut rig, b"key", b"two", 2), (0x089, 0));
    assert_eq!(store(&mut rig, b"key", b"three", 1), (0, 0));
    assert_eq!(store(&mut rig, b"key", b"four", 3), (0x002, 0));
    assert_eq!(rig.command(sqe(0x02, b"key", 8, 0), 8), (0, 5));
    assert_eq!(rig.host(5), b"three");
}

#[test]
fn sizes_of_keys_and_values_are_checked() {
    let mut rig = Rig::new(Dialect::Nvme, 4 << 20, 100);
    for opcode in [0x01, 0x02, 0x10, 0x14] {
        assert_eq!(rig.command(sqe(opcode, b"", 0, 0), 0), (0x086, 0));
        let mut long = sqe(opcode, b"0123456789abcdef", 0, 0);
        long[44] = 17;
        assert_eq!(rig.command(long, 0), (0x002, 0));
    }
    let value = vec![7; (2 << 20) + 1];
    assert_eq!(store(&mut rig, b"key", &value, 0), (0x085, 0));
    assert_eq!(store(&mut rig, b"key", &value[1..], 0), (0, 0));
    assert_eq!(rig.command(sqe(0x7f, b"key", 0, 0), 0), (0x001, 0));
    // Data shorter than the length in Dword 10 are rejected.
    assert_eq!(rig.command(sqe(0x01, b"key", 100, 0), 99), (0x004, 0));
    assert_eq!(rig.command(sqe(0x06, b"", 3, 0), 3), (0x002, 0));
}

#[test]
fn a_full_medium_says_so() {
    let mut rig = Rig::new(Dialect::Nvme, 1024, 3);
    assert_eq!(store(&mut rig, b"a", &[1; 1024], 0), (0, 0));
    assert_eq!(store(&mut rig, b"b", &[2; 1], 0), (0x081, 0));
    assert_eq!(rig.command(sqe(0x14, b"b", 0, 0), 0), (0x087, 0));
    assert_eq!(rig.command(sqe(0x10, b"a", 0, 0), 0), (0, 0));
    for key in [b"b", b"c", b"d"] {
        assert_eq!(store(&mut rig, key, b"", 0), (0, 0));
    }
    assert_eq!(store(&mut rig, b"e", b"", 0), (0x081, 0));
}

#[test]
fn lists_are_in_order_and_end_where_the_buffer_does() {
    let mut rig = rig();
    for key in [&b"bb"[..], b"a", b"abcdefghijklmnop", b"c", b"b"] {
        store(&mut rig, key, key, 0);
    }
    let all = [
        &[5, 0, 0, 0][..],
        &[1, 0, b'a', 0],
        &[16, 0],
        b"abcdefghijklmnop",
        &[0, 0],
        &[1, 0, b'b', 0],
        &[2, 0, b'b', b'b'],
        &[1, 0, b'c', 0],
        &[0xee; 8],
    ]
    .concat();
    assert_eq!(list(&mut rig, b"", 40), all);
    // From a key on, with it; and from where one would be.
    let tail = [
        &[2, 0, 0, 0, 2, 0, b'b', b'b', 1, 0, b'c', 0][..],
        &[0xee; 8],
    ]
    .concat();
    assert_eq!(list(&mut rig, b"bb", 12), tail);
    assert_eq!(list(&mut rig, b"ba", 12), tail);
    // The second entry does not fit into 27 bytes, the rest of the buffer is left alone.
    let short = list(&mut rig, b"", 27);
    assert_eq!(short[..8], [1, 0, 0, 0, 1, 0, b'a', 0]);
    assert_eq!(short[8..], [0xee; 27]);
    assert_eq!(
        list(&mut rig, b"d", 4),
        [0, 0, 0, 0, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee]
    );
}

#[test]
fn the_timing_model_is_told_what_was_moved() {
    let mut rig = rig();
    let hash = |key: &[u8]| {
        key.iter().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
    };
    let op = |kind, hash, len| Some(KvOp { kind, hash, len });
    store(&mut rig, b"key", &[1; 300], 0);
    assert_eq!(rig.op(), op(KvKind::Store, hash(b"key"), 300));
    rig.command(sqe(0x02, b"key", 200, 0), 200);
    assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"key"), 200));
    rig.command(sqe(0x02, b"key", 400, 0), 400);
    assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"key"), 300));
    rig.command(sqe(0x02, b"kez", 400, 0), 400);
    assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"kez"), 0));
    rig.command(sqe(0x14, b"key", 0, 0), 0);
    assert_eq!(rig.op(), op(KvKind::Exist, hash(b"key"), 0));
    list(&mut rig, b"", 100);
    assert_eq!(rig.op(), op(KvKind::List, 0, 12));
    rig.command(sqe(0x10, b"key", 0, 0), 0);
    assert_eq!(rig.op(), op(KvKind::Delete, hash(b"key"), 0));
    rig.command(sqe(0x10, b"", 0, 0), 0);
    assert_eq!(rig.op(), None);
}
