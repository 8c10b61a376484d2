//! Samsung's commands.

use super::*;

/// A command: opcode, key of up to 16 bytes, bytes of the value or the buffer, option.
pub(super) fn sqe(opcode: u8, key: &[u8], len: usize, option: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = opcode;
    bytes[4] = 1;
    bytes[40..44].copy_from_slice(&(len.div_ceil(4) as u32).to_le_bytes());
    bytes[44] = (key.len() as u8).wrapping_sub(1);
    bytes[45] = option;
    bytes[46] = (4 - len % 4) as u8 % 4;
    let inline = key.len().min(16);
    bytes[48..48 + inline].copy_from_slice(&key[..inline]);
    bytes
}

fn rig() -> Rig {
    Rig::new(Dialect::Samsung, 64 << 10, 1000)
}

fn store(rig: &mut Rig, key: &[u8], value: &[u8], option: u8) -> Completion {
    rig.with(sqe(0x81, key, value.len(), option), value)
}

fn retrieve(rig: &mut Rig, key: &[u8], offset: u32, room: usize) -> (Completion, Vec<u8>) {
    let mut bytes = sqe(0x90, key, room, 0);
    bytes[16..20].copy_from_slice(&offset.to_le_bytes());
    rig.fill(room);
    (rig.command(bytes, room), rig.host(room))
}

/// An iterator request: handle, option, prefix and mask.
pub(super) fn request(handle: u8, option: u8, prefix: &[u8; 4], mask: &[u8; 4]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 0xb1;
    bytes[44] = handle;
    bytes[45] = option;
    bytes[48..52].copy_from_slice(prefix);
    bytes[52..56].copy_from_slice(mask);
    bytes
}

pub(super) fn read(handle: u8, len: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 0xb2;
    bytes[40..44].copy_from_slice(&(len / 4).to_le_bytes());
    bytes[44] = handle;
    bytes
}

/// The keys of an iterator's buffer.
fn keys(bytes: &[u8]) -> Vec<Vec<u8>> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 4;
    let mut keys = Vec::new();
    for _ in 0..word(0) {
        let len = word(at);
        keys.push(bytes[at + 4..at + 4 + len].to_vec());
        at += 4 + len.next_multiple_of(4);
    }
    keys
}

#[test]
fn values_come_back_from_any_offset() {
    let mut rig = rig();
    let value: Vec<u8> = (0..5003).map(|n| (n % 251) as u8).collect();
    assert_eq!(store(&mut rig, b"key1", &value, 0), (0, 0));
    let (done, got) = retrieve(&mut rig, b"key1", 0, 5003);
    assert_eq!((done, got), ((0, 5003), value.clone()));
    let (done, got) = retrieve(&mut rig, b"key1", 5000, 8);
    assert_eq!(done, (0, 5003));
    assert_eq!(got, [&value[5000..], &[0xee; 5]].concat());
    assert_eq!(retrieve(&mut rig, b"key1", 5003, 8).0, (0, 5003));
    assert_eq!(retrieve(&mut rig, b"key1", 5004, 8).0, (0x302, 0));
    assert_eq!(retrieve(&mut rig, b"key2", 0, 8).0, (0x310, 0));
    // Only the size.
    assert_eq!(rig.command(sqe(0x90, b"key1", 0, 2), 0), (0, 5003));
    assert_eq!(rig.command(sqe(0x90, b"key1", 0, 4), 0), (0x304, 0));
}

#[test]
fn options_ask_what_there_is() {
    let mut rig = rig();
    assert_eq!(store(&mut rig, b"key1", b"one", 8), (0x310, 0));
    assert_eq!(store(&mut rig, b"key1", b"one", 2 | 1), (0, 0));
    assert_eq!(store(&mut rig, b"key1", b"two", 2), (0x380, 0));
    assert_eq!(store(&mut rig, b"key1", b"two", 8 | 4), (0, 0));
    assert_eq!(store(&mut rig, b"key1", b"no", 8 | 2), (0x304, 0));
    assert_eq!(store(&mut rig, b"key1", b"no", 16), (0x304, 0));
    assert_eq!(retrieve(&mut rig, b"key1", 0, 3).1, b"two");
    assert_eq!(rig.command(sqe(0xb3, b"key1", 0, 0), 0), (0, 0));
    assert_eq!(rig.command(sqe(0xa1, b"key1", 0, 0), 0), (0, 0));
    assert_eq!(rig.command(sqe(0xa1, b"key1", 0, 1), 0), (0x310, 0));
    assert_eq!(rig.command(sqe(0xb3, b"key1", 0, 0), 0), (0x310, 0));
}

#[test]
fn append_goes_on_and_ends_at_the_largest_value() {
    let mut rig = Rig::new(Dialect::Samsung, 8 << 20, 10);
    let append = |rig: &mut Rig, value: &[u8]| rig.with(sqe(0x83, b"key1", value.len(), 0), value);
    assert_eq!(append(&mut rig, b"abc"), (0, 0));
    assert_eq!(append(&mut rig, &[7; 1000]), (0, 0));
    assert_eq!(
        rig.op().map(|op| (op.kind, op.len)),
        Some((KvKind::Append, 1000))
    );
    let (done, got) = retrieve(&mut rig, b"key1", 1, 1002);
    assert_eq!((done, got), ((0, 1003), [&b"bc"[..], &[7; 1000]].concat()));
    assert_eq!(append(&mut rig, &vec![1; (2 << 20) - 1003]), (0, 0));
    assert_eq!(append(&mut rig, &[1]), (0x381, 0));
}

#[test]
fn sizes_and_offsets_are_checked() {
    let mut rig = rig();
    assert_eq!(store(&mut rig, b"abc", b"v", 0), (0x303, 0));
    assert_eq!(store(&mut rig, b"0123456789abcdef", b"v", 0), (0, 0));
    // Its key is said to lie at an address that is none of the host's.
    assert_eq!(store(&mut rig, b"0123456789abcdefg", b"v", 0), (0x004, 0));
    let mut huge = sqe(0xb3, b"key1", 0, 0);
    huge[44] = 255;
    assert_eq!(rig.command(huge, 0), (0x303, 0));
    let mut offset = sqe(0x81, b"key1", 4, 0);
    offset[16] = 4;
    assert_eq!(rig.command(offset, 4), (0x302, 0));
    let mut wrong = sqe(0x81, b"key1", 0, 0);
    wrong[46] = 1;
    assert_eq!(rig.command(wrong, 0), (0x301, 0));
    assert_eq!(rig.command(sqe(0x81, b"key1", 8, 0), 4), (0x004, 0));
    assert_eq!(
        store(&mut rig, b"key1", &vec![0; (64 << 10) + 1], 0),
        (0x312, 0)
    );
    assert_eq!(rig.command(sqe(0x82, b"key1", 0, 0), 0), (0x001, 0));
}

#[test]
fn iterators_find_what_their_prefix_and_mask_say() {
    let mut rig = rig();
    for key in ["aaaa1", "aaaa2", "aaab1", "baaa1", "aaaa0", "zzzz"] {
        store(&mut rig, key.as_bytes(), key.as_bytes(), 0);
    }
    assert_eq!(
        rig.command(request(0, 1 | 4, b"aaaa", &[0xff; 4]), 0),
        (0, 1)
    );
    assert_eq!(
        rig.command(request(0, 1, b"?aa?", &[0, 0xff, 0xff, 0]), 0),
        (0, 2)
    );
    assert_eq!(
        rig.command(request(0, 1 | 8, b"zz..", &[0xff, 0xff, 0, 0]), 0),
        (0, 3)
    );
    assert_eq!(
        rig.command(request(0, 1 | 4, b"aaaa", &[0xff; 4]), 0),
        (0x392, 0)
    );
    rig.fill(64);
    assert_eq!(rig.command(read(1, 64), 64), (0x393, 40));
    assert_eq!(keys(&rig.host(64)), [b"aaaa0", b"aaaa1", b"aaaa2"]);
    assert_eq!(rig.host(64)[40..], [0xee; 24]);
    // Again and again the end.
    assert_eq!(rig.command(read(1, 64), 64), (0x393, 4));
    // In parts: a key of 5 bytes takes 12.
    assert_eq!(rig.command(read(2, 28), 28), (0, 28));
    assert_eq!(keys(&rig.host(28)), [b"aaaa0", b"aaaa1"]);
    assert_eq!(rig.command(read(2, 8), 8), (0x301, 0));
    // Keys ahead of its position are found; deleted keys and keys behind it are not.
    store(&mut rig, b"aaaa00", b"", 0);
    store(&mut rig, b"aaac", b"", 0);
    rig.command(sqe(0xa1, b"aaaa2", 0, 0), 0);
    assert_eq!(rig.command(read(2, 64), 64), (0x393, 36));
    assert_eq!(keys(&rig.host(64)), [&b"aaab1"[..], b"aaac", b"baaa1"]);
    // Keys and values.
    assert_eq!(rig.command(read(3, 64), 64), (0x393, 20));
    let pair = [
        &[1, 0, 0, 0, 4, 0, 0, 0][..],
        b"zzzz",
        &[4, 0, 0, 0],
        b"zzzz",
    ]
    .concat();
    assert_eq!(rig.host(20), pair);
    assert_eq!(rig.command(request(3, 2, &[0; 4], &[0; 4]), 0), (0, 0));
    assert_eq!(rig.command(request(3, 2, &[0; 4], &[0; 4]), 0), (0x390, 0));
    assert_eq!(rig.command(read(3, 64), 64), (0x390, 0));
    assert_eq!(rig.command(read(0, 64), 64), (0x390, 0));
    assert_eq!(rig.command(read(200, 64), 64), (0x390, 0));
}

#[test]
fn there_are_sixteen_iterators_and_one_that_deletes() {
    let mut rig = rig();
    for n in 0..16u8 {
        let opened = rig.command(request(0, 1, &[n, 0, 0, 0], &[0xff; 4]), 0);
        assert_eq!(opened, (0, u32::from(n) + 1));
    }
    assert_eq!(
        rig.command(request(0, 1, &[99; 4], &[0xff; 4]), 0),
        (0x391, 0)
    );
    assert_eq!(rig.command(request(5, 2, &[0; 4], &[0; 4]), 0), (0, 0));
    for key in ["keep", "kill1", "kill2", "kill3"] {
        store(&mut rig, key.as_bytes(), b"", 0);
    }
    assert_eq!(
        rig.command(request(0, 1 | 16, b"kill", &[0xff; 4]), 0),
        (0, 5)
    );
    assert_eq!(rig.command(read(5, 28), 28), (0, 28));
    assert_eq!(rig.command(read(5, 28), 28), (0x393, 16));
    assert_eq!(rig.command(sqe(0xb3, b"keep", 0, 0), 0), (0, 0));
    for key in [b"kill1", b"kill2", b"kill3"] {
        assert_eq!(rig.command(sqe(0xb3, key, 0, 0), 0), (0x310, 0));
    }
    for option in [0, 3, 1 | 4 | 8, 1 | 32] {
        assert_eq!(
            rig.command(request(0, option, &[7; 4], &[1; 4]), 0),
            (0x304, 0)
        );
    }
}

/// A command whose key lies in the host's memory at these two PRP entries.
fn with_long_key(opcode: u8, key_len: usize, len: usize, prps: (u64, u64)) -> [u8; 64] {
    let mut bytes = sqe(opcode, &vec![0; key_len], len, 0);
    bytes[48..56].copy_from_slice(&prps.0.to_le_bytes());
    bytes[56..64].copy_from_slice(&prps.1.to_le_bytes());
    bytes
}

#[test]
fn long_keys_lie_in_the_hosts_memory() {
    const AT: u64 = 2 << 20;
    let mut rig = rig();
    let long: Vec<u8> = (0..255).collect();
    // In one page; and in two that do not follow each other: 100 bytes, and the rest.
    rig.memory.write_from(AT as usize + 8, &long[..17]);
    let short = (AT + 8, 0);
    let apart = (AT + 8192 - 100, AT);
    assert_eq!(rig.with(with_long_key(0x81, 17, 3, short), b"abc"), (0, 0));
    rig.memory
        .write_from((AT + 8192 - 100) as usize, &long[..100]);
    rig.memory.write_from(AT as usize, &long[100..]);
    assert_eq!(
        rig.with(with_long_key(0x81, 255, 5, apart), b"value"),
        (0, 0)
    );
    assert_eq!(rig.command(with_long_key(0xb3, 255, 0, apart), 0), (0, 0));
    rig.fill(8);
    assert_eq!(rig.command(with_long_key(0x90, 255, 8, apart), 8), (0, 5));
    assert_eq!(rig.host(8), b"value\xee\xee\xee");
    // Another last byte is another key.
    rig.memory.write_from((AT + 154) as usize, &[0]);
    assert_eq!(
        rig.command(with_long_key(0xb3, 255, 0, apart), 0),
        (0x310, 0)
    );
    rig.memory.write_from((AT + 154) as usize, &[254]);
    // An iterator returns both, completely.
    assert_eq!(rig.command(request(0, 5, &[0; 4], &[0; 4]), 0), (0, 1));
    let (status, len) = rig.command(read(1, 1024), 1024);
    assert_eq!((status, len), (0x393, 4 + 4 + 20 + 4 + 256));
    assert_eq!(keys(&rig.host(1024)), [long[..17].to_vec(), long.clone()]);
    assert_eq!(rig.command(with_long_key(0xa1, 255, 0, apart), 0), (0, 0));
    assert_eq!(
        rig.command(with_long_key(0xa1, 255, 0, apart), 0),
        (0x310, 0)
    );
}

#[test]
fn long_keys_that_cannot_be_reached_are_refused() {
    const AT: u64 = 2 << 20;
    let mut rig = rig();
    let mut exist = |len, prps| rig.command(with_long_key(0xb3, len, 0, prps), 0).0;
    assert_eq!(exist(17, (AT, 0)), 0x310);
    assert_eq!(exist(17, (AT + 2, 0)), 0x013, "PRP Offset Invalid");
    assert_eq!(exist(100, (AT + 4096 - 16, AT + 8)), 0x013);
    assert_eq!(exist(17, (4 << 20, 0)), 0x004, "Data Transfer Error");
    assert_eq!(exist(17, ((4 << 20) - 16, 4 << 20)), 0x004);
    assert_eq!(exist(17, (!3, 0)), 0x004);
    assert_eq!(exist(256, (AT, 0)), 0x303, "Invalid Key Size");
}
