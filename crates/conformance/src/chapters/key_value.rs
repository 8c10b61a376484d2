//! The Key Value command set (KV 1.1).

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, CC_ENABLE, Pair, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Cqe, Sqe, bits, status, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "key_value",
    title: "Key Value command set",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    identify, "KV 1.1, 4.1.5.1", "a namespace has a size, and a format with the lengths of keys and values";
    descriptor, "Base 2.1, 5.1.13.2.3", "the namespace's descriptors name its command set";
    not_of_blocks, "NVM 1.1, 4.1.5.1", "Identify of the NVM command set is refused (12Ch), or reports a capacity and no format of blocks";
    hidden_from_others, "Base 2.1, 3.1.4.5", "a host that has enabled the NVM command set alone is not shown it";
    store_and_retrieve, "KV 1.1, 3.2.5", "a value comes back, and Dword 0 is its size";
    retrieve_in_part, "KV 1.1, 3.2.4", "a buffer that is too small gets as much as fits, and Dword 0 is the whole size";
    empty_value, "KV 1.1, 3.2.5", "a value may be empty";
    overwrite, "KV 1.1, 3.2.5", "a store replaces what there was, by more and by less";
    large_value, "KV 1.1, 3.2.5", "a value of the largest size that one command moves comes back";
    value_too_large, "KV 1.1, 3.2.5", "a value of more than KVVML bytes is refused (085h)";
    only_new, "KV 1.1, 3.2.5", "a store of a new key alone is refused where it exists (089h), and changes nothing";
    only_existing, "KV 1.1, 3.2.5", "a store of an existing key alone is refused where it does not (087h)";
    keys_apart, "KV 1.1, 3.1", "keys that differ in their length or their last byte are different keys";
    key_sizes, "KV 1.1, 3.1", "a key of no bytes is refused (086h), and one of more than 16 (002h)";
    missing_key, "KV 1.1, 3.2.4", "Retrieve of a key that does not exist is refused (087h)";
    exist, "KV 1.1, 3.2.2", "Exist succeeds where a key exists, and is refused where it does not (087h)";
    delete, "KV 1.1, 3.2.1", "a deleted key is gone, and its space is not used any more";
    list_all, "KV 1.1, 3.2.3", "List returns each key once, with its length";
    list_from_key, "KV 1.1, 3.2.3", "List goes on from a key where the list before it ended";
    list_ends_with_buffer, "KV 1.1, 3.2.3", "List writes no more than the host's buffer";
    unknown_opcode, "Base 2.1, 4.2.3.1", "a command of the NVM command set that this one has not is refused (001h)";
    prp_offset, "Base 2.1, 4.1.1", "values may begin inside a page and end at any byte";
    format, "Base 2.1, 5.1.10", "Format NVM leaves no key";
];

/// Invalid I/O Command Set.
const INVALID_IO_COMMAND_SET: u16 = 0x12c;
const INVALID_VALUE_SIZE: u16 = 0x085;
const INVALID_KEY_SIZE: u16 = 0x086;
const KEY_DOES_NOT_EXIST: u16 = 0x087;
const KEY_EXISTS: u16 = 0x089;

const STORE: u8 = 0x01;
const RETRIEVE: u8 = 0x02;
const LIST: u8 = 0x06;
const DELETE: u8 = 0x10;
const EXIST: u8 = 0x14;

struct Rig {
    nsid: u32,
    pair: Pair,
    /// Identify Namespace of the command set.
    identity: Vec<u8>,
}

/// A namespace of keys, on a controller with all command sets enabled; without the keys of these
/// tests.
fn rig(bench: &mut Bench) -> Verdict<Rig> {
    // CAP.CSS, bit 6: one or more other command sets.
    if bits(bench.cap(), 43, 43) == 0 {
        return not_supported("CAP.CSS has no other command set than NVM");
    }
    bench.start_with(64, 64, CC_ENABLE | 0b110 << 4)?;
    let (sqe, page) = bench.identify_sqe(0x07, 0)?;
    let cqe = bench.admin(sqe.dw(11, 1 << 24))?;
    let nsid = u32_at(&page.bytes(0, 4), 0);
    if cqe.status() != status::SUCCESS || nsid == 0 {
        return not_supported("there is no namespace of the Key Value command set");
    }
    let mut rig = Rig {
        nsid,
        pair: bench.pair(16)?,
        identity: set_identity(bench, nsid)?,
    };
    for key in list(bench, &mut rig, b"conf", 4096)? {
        if key.starts_with(b"conf") {
            run(bench, &mut rig, DELETE, &key, 0, 0)?.ok()?;
        }
    }
    Ok(rig)
}

fn set_identity(bench: &mut Bench, nsid: u32) -> Verdict<Vec<u8>> {
    let (sqe, page) = bench.identify_sqe(0x05, nsid)?;
    bench.admin(sqe.dw(11, 1 << 24))?.ok()?;
    Ok(page.bytes(0, 4096))
}

/// A command: its key in Dwords 2, 3, 14 and 15, a size in 10, options and the key's length in 11.
fn sqe(rig: &Rig, opcode: u8, key: &[u8], size: u32, options: u32) -> Sqe {
    let word = |at: usize| u32_at(key, at);
    let len = u32::try_from(key.len()).unwrap_or(255);
    Sqe::new(opcode)
        .nsid(rig.nsid)
        .dw(2, word(0))
        .dw(3, word(4))
        .dw(10, size)
        .dw(11, options << 8 | len)
        .dw(14, word(8))
        .dw(15, word(12))
}

/// Does a command without data.
fn run(
    bench: &mut Bench,
    rig: &mut Rig,
    opcode: u8,
    key: &[u8],
    size: u32,
    options: u32,
) -> Verdict<Cqe> {
    let sqe = sqe(rig, opcode, key, size, options);
    bench.run(&mut rig.pair, sqe)
}

/// Store, whatever its status.
fn try_store(
    bench: &mut Bench,
    rig: &mut Rig,
    key: &[u8],
    value: &[u8],
    options: u32,
) -> Verdict<Cqe> {
    let mem = bench.mem(value.len().max(4))?;
    mem.write(0, value);
    let data = bench.pointer(&mem, 0, value.len().max(1))?;
    let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let sqe = sqe(rig, STORE, key, size, options).data(data);
    bench.run(&mut rig.pair, sqe)
}

fn store(bench: &mut Bench, rig: &mut Rig, key: &[u8], value: &[u8]) -> Verdict {
    try_store(bench, rig, key, value, 0)?.ok()?;
    Ok(())
}

/// Retrieve into `room` bytes of A5h, whatever its status: the completion, and the bytes.
fn retrieve(bench: &mut Bench, rig: &mut Rig, key: &[u8], room: usize) -> Verdict<(Cqe, Vec<u8>)> {
    let mem = bench.mem(room.max(4))?;
    mem.fill(0xa5);
    let data = bench.pointer(&mem, 0, room.max(1))?;
    let size = u32::try_from(room).unwrap_or(u32::MAX);
    let sqe = sqe(rig, RETRIEVE, key, size, 0).data(data);
    let cqe = bench.run(&mut rig.pair, sqe)?;
    Ok((cqe, mem.bytes(0, room)))
}

/// A key has this value, and no other.
fn holds(bench: &mut Bench, rig: &mut Rig, key: &[u8], value: &[u8]) -> Verdict {
    let (cqe, found) = retrieve(bench, rig, key, value.len() + 8)?;
    let len = cqe.ok()?.dw0();
    same("Dword 0 of Retrieve", u64::from(len), value.len() as u64)?;
    same_bytes("the value", &found[..value.len()], value)?;
    same_bytes(
        "the buffer behind the value",
        &found[value.len()..],
        &[0xa5; 8],
    )
}

fn is(cqe: &Cqe, expected: u16) -> Verdict {
    same("status", cqe.status(), expected)
}

/// The keys that List returns from one on, into `room` bytes.
fn list(bench: &mut Bench, rig: &mut Rig, from: &[u8], room: usize) -> Verdict<Vec<Vec<u8>>> {
    let mem = bench.mem(room + 8)?;
    mem.fill(0xa5);
    let data = bench.pointer(&mem, 0, room)?;
    let size = u32::try_from(room).unwrap_or(u32::MAX);
    let sqe = sqe(rig, LIST, from, size, 0).data(data);
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let bytes = mem.bytes(0, room + 8);
    same_bytes("the buffer's end", &bytes[room..], &[0xa5; 8])?;
    let mut keys = Vec::new();
    let mut at = 4;
    for _ in 0..u32_at(&bytes, 0) {
        let len = usize::from(u16_at(&bytes, at));
        check(at + 2 + len <= room, || {
            format!("a key of {len} bytes at {at} is not in the buffer of {room}")
        })?;
        keys.push(bytes[at + 2..at + 2 + len].to_vec());
        at += (2 + len).next_multiple_of(4);
    }
    Ok(keys)
}

fn identify(bench: &mut Bench) -> Verdict {
    let rig = rig(bench)?;
    let id = &rig.identity;
    check(u64_at(id, 0) > 0, || "NSZE is 0".into())?;
    check(u64_at(id, 16) <= u64_at(id, 0), || {
        "NUSE is above NSZE".into()
    })?;
    check(u8_at(id, 25) < 16, || {
        "NKVF: there are 16 formats at most".into()
    })?;
    let kvkml = u16_at(id, 72);
    check((1..=16).contains(&kvkml), || format!("KVKML is {kvkml}"))?;
    check(u32_at(id, 76) > 0, || "KVVML is 0".into())
}

fn descriptor(bench: &mut Bench) -> Verdict {
    let rig = rig(bench)?;
    let list = bench.identify(0x03, rig.nsid)?;
    let mut at = 0;
    while u8_at(&list, at) != 0 && at < 4096 {
        let len = usize::from(u8_at(&list, at + 1));
        // NIDT 4h: Command Set Identifier.
        if u8_at(&list, at) == 4 {
            return same("CSI", u8_at(&list, at + 4), 1);
        }
        at += 4 + len;
    }
    check(false, || {
        "no descriptor has a Command Set Identifier".into()
    })
}

fn not_of_blocks(bench: &mut Bench) -> Verdict {
    let rig = rig(bench)?;
    let (cqe, page) = bench.try_identify(0x00, rig.nsid)?;
    // The specification has an error, which SPDK's driver takes for a controller that does not
    // work.
    if cqe.status() != status::SUCCESS {
        return is(&cqe, INVALID_IO_COMMAND_SET);
    }
    check(u64_at(&page, 8) != 0, || {
        "NCAP is 0: that says inactive".into()
    })?;
    let lbads = bits(u64::from(u32_at(&page, 128)), 23, 16);
    same("LBADS of format 0", lbads, 0)
}

fn hidden_from_others(bench: &mut Bench) -> Verdict {
    let rig = rig(bench)?;
    bench.start()?;
    let active = bench.active()?;
    check(!active.contains(&rig.nsid), || {
        format!("namespace {} is active with CC.CSS 000b", rig.nsid)
    })
}

fn store_and_retrieve(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    for (key, len) in [
        (&b"conf"[..], 1),
        (b"conf-0123456789a", 4096),
        (b"conf2", 9001),
    ] {
        let value = pattern(len, 0x6b1);
        store(bench, &mut rig, key, &value)?;
        holds(bench, &mut rig, key, &value)?;
    }
    Ok(())
}

fn retrieve_in_part(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let value = pattern(5000, 0x6b2);
    store(bench, &mut rig, b"conf", &value)?;
    let (cqe, found) = retrieve(bench, &mut rig, b"conf", 1000)?;
    same("Dword 0", cqe.ok()?.dw0(), 5000)?;
    same_bytes("the first 1000 bytes", &found, &value[..1000])?;
    let (cqe, _) = retrieve(bench, &mut rig, b"conf", 0)?;
    same("Dword 0, with no buffer", cqe.ok()?.dw0(), 5000)
}

fn empty_value(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    store(bench, &mut rig, b"conf", &[])?;
    holds(bench, &mut rig, b"conf", &[])?;
    run(bench, &mut rig, EXIST, b"conf", 0, 0)?.ok()?;
    Ok(())
}

fn overwrite(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    for len in [600, 5000, 5001, 3, 700, 0, 40] {
        let value = pattern(len, 0x6b3 + len as u64);
        store(bench, &mut rig, b"conf", &value)?;
        holds(bench, &mut rig, b"conf", &value)?;
    }
    Ok(())
}

/// Bytes of the largest value that one command moves.
fn largest(bench: &mut Bench, rig: &Rig) -> Verdict<usize> {
    let kvvml = u32_at(&rig.identity, 76) as usize;
    let mdts = bench.mdts()?.unwrap_or(4 << 20).min(4 << 20);
    Ok(kvvml.min(mdts))
}

fn large_value(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let value = pattern(largest(bench, &rig)?, 0x6b4);
    store(bench, &mut rig, b"conf", &value)?;
    let (cqe, found) = retrieve(bench, &mut rig, b"conf", value.len())?;
    same("Dword 0", u64::from(cqe.ok()?.dw0()), value.len() as u64)?;
    same_bytes("the value", &found, &value)
}

fn value_too_large(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let kvvml = u32_at(&rig.identity, 76) as usize;
    if largest(bench, &rig)? <= kvvml && bench.mdts()?.is_some_and(|mdts| mdts <= kvvml) {
        return not_supported("no command moves more than KVVML bytes (MDTS)");
    }
    let cqe = try_store(bench, &mut rig, b"conf", &vec![1; kvvml + 1], 0)?;
    is(&cqe, INVALID_VALUE_SIZE)?;
    is(
        &run(bench, &mut rig, EXIST, b"conf", 0, 0)?,
        KEY_DOES_NOT_EXIST,
    )
}

fn only_new(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    try_store(bench, &mut rig, b"conf", b"first", 0b010)?.ok()?;
    is(
        &try_store(bench, &mut rig, b"conf", b"second", 0b010)?,
        KEY_EXISTS,
    )?;
    holds(bench, &mut rig, b"conf", b"first")
}

fn only_existing(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    is(
        &try_store(bench, &mut rig, b"conf", b"first", 0b001)?,
        KEY_DOES_NOT_EXIST,
    )?;
    is(
        &run(bench, &mut rig, EXIST, b"conf", 0, 0)?,
        KEY_DOES_NOT_EXIST,
    )?;
    store(bench, &mut rig, b"conf", b"first")?;
    try_store(bench, &mut rig, b"conf", b"second", 0b001)?.ok()?;
    holds(bench, &mut rig, b"conf", b"second")
}

fn keys_apart(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let keys = [
        &b"conf"[..],
        b"conf\0",
        b"conf\0\0",
        b"confa",
        b"conf0123456789ab",
        b"conf0123456789ac",
    ];
    for key in keys {
        store(bench, &mut rig, key, key)?;
    }
    for key in keys {
        holds(bench, &mut rig, key, key)?;
    }
    Ok(())
}

fn key_sizes(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    for opcode in [RETRIEVE, DELETE, EXIST] {
        is(&run(bench, &mut rig, opcode, b"", 0, 0)?, INVALID_KEY_SIZE)?;
        let long = sqe(&rig, opcode, b"conf", 0, 0).dw(11, 17);
        is(&bench.run(&mut rig.pair, long)?, status::INVALID_FIELD)?;
    }
    is(
        &try_store(bench, &mut rig, b"", b"value", 0)?,
        INVALID_KEY_SIZE,
    )
}

fn missing_key(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let (cqe, found) = retrieve(bench, &mut rig, b"conf", 64)?;
    is(&cqe, KEY_DOES_NOT_EXIST)?;
    same_bytes("the buffer", &found, &[0xa5; 64])
}

fn exist(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    is(
        &run(bench, &mut rig, EXIST, b"conf", 0, 0)?,
        KEY_DOES_NOT_EXIST,
    )?;
    store(bench, &mut rig, b"conf", b"value")?;
    run(bench, &mut rig, EXIST, b"conf", 0, 0)?.ok()?;
    Ok(())
}

/// NUSE.
fn used(bench: &mut Bench, nsid: u32) -> Verdict<u64> {
    Ok(u64_at(&set_identity(bench, nsid)?, 16))
}

fn delete(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let nsid = rig.nsid;
    let before = used(bench, nsid)?;
    store(bench, &mut rig, b"conf", &pattern(50_000, 0x6b5))?;
    let with = used(bench, nsid)?;
    check(with > before, || {
        format!("NUSE is {with} with a value, {before} without")
    })?;
    run(bench, &mut rig, DELETE, b"conf", 0, 0)?.ok()?;
    is(
        &run(bench, &mut rig, EXIST, b"conf", 0, 0)?,
        KEY_DOES_NOT_EXIST,
    )?;
    let after = used(bench, nsid)?;
    same("NUSE when the value is gone", after, before)
}

/// Thirty keys of several lengths.
fn thirty(bench: &mut Bench, rig: &mut Rig) -> Verdict<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for n in 0..30usize {
        let mut key = b"conf".to_vec();
        key.resize(5 + n % 12, 0x30 + n as u8);
        key[4] = n as u8;
        store(bench, rig, &key, b"v")?;
        keys.push(key);
    }
    keys.sort();
    Ok(keys)
}

fn ours(keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = keys
        .into_iter()
        .filter(|key| key.starts_with(b"conf"))
        .collect();
    keys.sort();
    keys
}

fn list_all(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let keys = thirty(bench, &mut rig)?;
    let listed = ours(list(bench, &mut rig, b"", 64 << 10)?);
    check(listed == keys, || {
        format!("{keys:x?} were stored, {listed:x?} are listed")
    })
}

fn list_from_key(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let keys = thirty(bench, &mut rig)?;
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1000 {
        let from = all.last().cloned().unwrap_or_default();
        let part = list(bench, &mut rig, &from, 100)?;
        if !from.is_empty() {
            check(part.first() == Some(&from), || {
                format!("List from {from:x?} begins with {:x?}", part.first())
            })?;
        }
        let new = part.len() - usize::from(!from.is_empty());
        all.extend(part.into_iter().skip(usize::from(!from.is_empty())));
        if new == 0 {
            let listed = ours(all);
            return check(listed == keys, || {
                format!("{keys:x?} were stored, {listed:x?} are listed")
            });
        }
    }
    check(false, || "List comes to no end".into())
}

fn list_ends_with_buffer(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    thirty(bench, &mut rig)?;
    // Bytes behind the buffer are looked at in `list`.
    for room in [4, 8, 23, 24, 25, 63] {
        list(bench, &mut rig, b"conf", room)?;
    }
    Ok(())
}

fn unknown_opcode(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    // Compare, Write Zeroes, Dataset Management, and one that is not defined.
    for opcode in [0x05, 0x08, 0x09, 0x7f] {
        is(
            &run(bench, &mut rig, opcode, b"conf", 0, 0)?,
            status::INVALID_OPCODE,
        )?;
    }
    Ok(())
}

fn prp_offset(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(3 * 4096)?;
    let value = mem.pattern(1000, 5003, 0x6b6);
    let data = bench.pointer(&mem, 1000, 5003)?;
    let stored = sqe(&rig, STORE, b"conf", 5003, 0).data(data);
    bench.run(&mut rig.pair, stored)?.ok()?;
    mem.fill(0xa5);
    let data = bench.pointer(&mem, 2004, 5003)?;
    let retrieved = sqe(&rig, RETRIEVE, b"conf", 5003, 0).data(data);
    bench.run(&mut rig.pair, retrieved)?.ok()?;
    same_bytes("the value", &mem.bytes(2004, 5003), &value)?;
    same_bytes("what is before it", &mem.bytes(1996, 8), &[0xa5; 8])?;
    same_bytes("what is behind it", &mem.bytes(7007, 8), &[0xa5; 8])
}

fn format(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(1, "Format NVM")?;
    let mut rig = rig(bench)?;
    store(bench, &mut rig, b"conf", &pattern(10_000, 0x6b7))?;
    bench.admin(Sqe::new(0x80).nsid(rig.nsid))?.ok()?;
    is(
        &run(bench, &mut rig, EXIST, b"conf", 0, 0)?,
        KEY_DOES_NOT_EXIST,
    )?;
    same("NUSE", used(bench, rig.nsid)?, 0)
}
