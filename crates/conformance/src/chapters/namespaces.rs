//! Namespace Management and Namespace Attachment (Base 2.1, 5.1.20, 5.1.21 and
//! 8.1.15).

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Mem, Ns, opcode, pattern};
use crate::verdict::{Verdict, check, fail, not_supported, same, same_bytes, zero};
use crate::wire::{Cqe, Sqe, status, u8_at, u16_at, u32_at, u64_at, u128_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "namespaces",
    title: "Namespace Management and Attachment",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    life, "Base 2.1, 8.1.15", "a namespace is created, attached, used, detached and deleted, and lists show it at each step";
    capacity, "Base 2.1, 8.1.15", "creating takes unallocated capacity, deleting gives it back";
    create_too_large, "Base 2.1, 5.1.21", "creating more than there is is refused (115h)";
    create_bad_sizes, "Base 2.1, 5.1.21", "creating with NCAP above NSZE, or below it without thin provisioning, is refused";
    create_bad_format, "Base 2.1, 5.1.21", "creating with an LBA format that is not there is refused (10Ah)";
    create_bad_command_set, "Base 2.1, 5.1.21", "creating for a command set that is not there is refused (129h)";
    management_bad_select, "Base 2.1, 5.1.21", "a reserved Select of Namespace Management is refused (002h)";
    delete_bad_namespace, "Base 2.1, 5.1.21", "deleting a namespace that does not exist is refused";
    delete_attached, "Base 2.1, 5.1.21", "deleting an attached namespace detaches it, and commands to it are refused";
    attach_twice, "Base 2.1, 5.1.20", "attaching twice is refused (118h), detaching twice too (11Ah)";
    attach_bad_controller, "Base 2.1, 5.1.20", "attaching to a controller that does not exist is refused (11Ch)";
    attach_bad_namespace, "Base 2.1, 5.1.20", "attaching a namespace that does not exist is refused";
    attach_bad_select, "Base 2.1, 5.1.20", "a reserved Select of Namespace Attachment is refused (002h)";
    new_is_empty, "Base 2.1, 8.1.15", "a new namespace has none of an old one's data";
    new_identifiers, "Base 2.1, 4.5.1", "namespaces that were created have identifiers of their own, also where an NSID is used again";
    created_stays, "Base 2.1, 8.1.15", "a namespace that was created, and its data, are there after a reset";
    granularity, "NVM 1.1, 5.6", "the namespace granularity list has descriptors that are multiples, where CTRATT has it";
    write_protection, "Base 2.1, 8.1.16", "a write protected namespace refuses what writes (020h), until it is no more";
];

/// Formats without metadata of a namespace: index and bytes of a block.
pub(super) fn formats(identity: &[u8]) -> Vec<(u32, u64)> {
    let count = u32::from(u8_at(identity, 25)) + 1;
    let mut found = Vec::new();
    for index in 0..count.min(64) {
        let at = 128 + 4 * usize::try_from(index).unwrap_or(0);
        let format = u32_at(identity, at);
        let lbads = format >> 16 & 0xff;
        if format & 0xffff == 0 && (9..=16).contains(&lbads) {
            found.push((index, 1 << lbads));
        }
    }
    found
}

pub(super) fn ns_again(bench: &mut Bench, nsid: u32) -> Verdict<Ns> {
    let identity = bench.identify(0x00, nsid)?;
    match Ns::new(nsid, identity) {
        Some(ns) => Ok(ns),
        None => fail(format!("namespace {nsid} is not usable any more")),
    }
}

/// A namespace to create: blocks and format; other fields are 0.
pub(super) fn create_sqe(
    bench: &mut Bench,
    nsze: u64,
    ncap: u64,
    flbas: u8,
) -> Verdict<(Sqe, Mem)> {
    let mem = bench.mem(4096)?;
    mem.write64(0, nsze);
    mem.write64(8, ncap);
    mem.write(26, &[flbas]);
    let data = bench.pointer(&mem, 0, 4096)?;
    Ok((Sqe::new(0x0d).data(data), mem))
}

pub(super) fn delete(bench: &mut Bench, nsid: u32) -> Verdict<Cqe> {
    bench.admin(Sqe::new(0x0d).nsid(nsid).dw(10, 1))
}

/// Attaches (0) or detaches (1) for these controllers.
pub(super) fn attach(
    bench: &mut Bench,
    nsid: u32,
    select: u32,
    controllers: &[u16],
) -> Verdict<Cqe> {
    let mem = bench.mem(4096)?;
    let count = u16::try_from(controllers.len()).unwrap_or(0);
    mem.write(0, &count.to_le_bytes());
    for (index, id) in controllers.iter().enumerate() {
        mem.write(2 + 2 * index, &id.to_le_bytes());
    }
    let data = bench.pointer(&mem, 0, 4096)?;
    let sqe = Sqe::new(0x15).nsid(nsid).data(data);
    bench.admin(sqe.dw(10, select))
}

pub(super) fn own_id(bench: &mut Bench) -> Verdict<u16> {
    Ok(u16_at(&bench.controller()?, 78))
}

fn unallocated(bench: &mut Bench) -> Verdict<u128> {
    Ok(u128_at(&bench.controller()?, 296))
}

pub(super) const BLOCKS: u64 = 2048;

/// Not supported without Namespace Management, or without room for a namespace;
/// the FLBAS to create with.
pub(super) fn needs_management(bench: &mut Bench) -> Verdict<u8> {
    bench.needs_oacs(3, "Namespace Management")?;
    let common = bench.identify(0x00, 0xffff_ffff)?;
    let Some((index, block_len)) = formats(&common).first().copied() else {
        return not_supported("there is no LBA format without metadata");
    };
    let free = unallocated(bench)?;
    if free < 4 * u128::from(BLOCKS * block_len) {
        return not_supported(format!("UNVMCAP: {free} bytes are unallocated"));
    }
    let flbas = index & 0xf | (index >> 4 & 0b11) << 5;
    Ok(u8::try_from(flbas).unwrap_or(0))
}

/// Creates a namespace; its identifier.
fn create(bench: &mut Bench, flbas: u8) -> Verdict<u32> {
    let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS, flbas)?;
    let nsid = bench.admin(sqe)?.ok()?.dw0();
    let nn = u32_at(&bench.controller()?, 516);
    check((1..=nn).contains(&nsid), || {
        format!("the namespace that was created is {nsid:#x}, of NN {nn}")
    })?;
    Ok(nsid)
}

/// Does something with a new namespace, and deletes it whatever comes of that.
fn with_new(
    bench: &mut Bench,
    attached: bool,
    work: impl FnOnce(&mut Bench, u32, u16) -> Verdict,
) -> Verdict {
    let flbas = needs_management(bench)?;
    let own = own_id(bench)?;
    let nsid = create(bench, flbas)?;
    let mut judged = Ok(());
    if attached {
        judged = attach(bench, nsid, 0, &[own]).and_then(|cqe| cqe.ok().map(drop));
    }
    let judged = judged.and_then(|()| work(bench, nsid, own));
    let allocated = list(bench, 0x10)?.contains(&nsid);
    if allocated {
        delete(bench, nsid)?.ok()?;
    }
    judged
}

/// Identifiers in a list of namespaces.
fn list(bench: &mut Bench, cns: u32) -> Verdict<Vec<u32>> {
    let data = bench.identify(cns, 0)?;
    let ids = (0..1024).map(|n| u32_at(&data, 4 * n));
    Ok(ids.take_while(|id| *id != 0).collect())
}

fn is_listed(bench: &mut Bench, nsid: u32, allocated: bool, active: bool, when: &str) -> Verdict {
    for (cns, name, expected) in [(0x10, "allocated", allocated), (0x02, "active", active)] {
        let found = list(bench, cns)?.contains(&nsid);
        check(found == expected, || {
            format!(
                "{when}, namespace {nsid} is listed as {name}: {found}; {expected} was expected"
            )
        })?;
    }
    Ok(())
}

fn life(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, nsid, own| {
        is_listed(bench, nsid, true, false, "after creation")?;
        zero(
            "CNS 00h of what is not attached",
            &bench.identify(0x00, nsid)?,
        )?;
        let n = bench.identify(0x11, nsid)?;
        same("NSZE as created, by CNS 11h", u64_at(&n, 0), BLOCKS)?;
        attach(bench, nsid, 0, &[own])?.ok()?;
        is_listed(bench, nsid, true, true, "after attachment")?;
        let attached = bench.identify(0x12, nsid)?;
        same("controllers it is attached to", u16_at(&attached, 0), 1)?;
        same(
            "the controller it is attached to",
            u16_at(&attached, 2),
            own,
        )?;
        let ns = ns_again(bench, nsid)?;
        let mut pair = bench.pair(16)?;
        let data = pattern(ns.block_len, 0x11fe);
        for slba in [0, BLOCKS - 1] {
            bench.write_blocks(&mut pair, &ns, slba, &data)?;
            let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
            same_bytes("a block of a new namespace", &found, &data)?;
        }
        attach(bench, nsid, 1, &[own])?.ok()?;
        is_listed(bench, nsid, true, false, "after detachment")?;
        let (cqe, _) = bench.try_read_blocks(&mut pair, &ns, 0, 1)?;
        cqe.expect(status::INVALID_FIELD)?;
        attach(bench, nsid, 0, &[own])?.ok()?;
        let found = bench.read_blocks(&mut pair, &ns, 0, 1)?;
        same_bytes("a block after it was attached again", &found, &data)?;
        attach(bench, nsid, 1, &[own])?.ok()?;
        delete(bench, nsid)?.ok()?;
        is_listed(bench, nsid, false, false, "after deletion")?;
        zero("CNS 11h of what was deleted", &bench.identify(0x11, nsid)?)
    })
}

fn capacity(bench: &mut Bench) -> Verdict {
    needs_management(bench)?;
    let before = unallocated(bench)?;
    let total = u128_at(&bench.controller()?, 280);
    check(before <= total, || {
        format!("UNVMCAP {before} is above TNVMCAP {total}")
    })?;
    with_new(bench, false, |bench, nsid, _| {
        let taken = u128_at(&bench.identify(0x11, nsid)?, 48);
        let blocks = u128::from(BLOCKS) * 512;
        check(taken >= blocks, || {
            format!("NVMCAP of {BLOCKS} blocks is {taken} bytes")
        })?;
        let left = unallocated(bench)?;
        same("UNVMCAP after creation", left, before.wrapping_sub(taken))
    })?;
    same("UNVMCAP after deletion", unallocated(bench)?, before)
}

fn create_too_large(bench: &mut Bench) -> Verdict {
    let flbas = needs_management(bench)?;
    let free = unallocated(bench)?;
    let blocks = u64::try_from(free / 512 + 2048).unwrap_or(u64::MAX);
    for nsze in [blocks, 1 << 60, u64::MAX] {
        let (sqe, _) = create_sqe(bench, nsze, nsze, flbas)?;
        bench.admin(sqe)?.expect(status::INSUFFICIENT_CAPACITY)?;
    }
    same("UNVMCAP after what was refused", unallocated(bench)?, free)
}

fn create_bad_sizes(bench: &mut Bench) -> Verdict {
    let flbas = needs_management(bench)?;
    let thin = u8_at(&bench.identify(0x00, 0xffff_ffff)?, 24) & 1 == 1;
    let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS + 1, flbas)?;
    bench.admin(sqe)?.expect(status::INVALID_FIELD)?;
    let (sqe, _) = create_sqe(bench, 0, 0, flbas)?;
    bench.admin(sqe)?.expect_error()?;
    if !thin {
        let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS / 2, flbas)?;
        bench
            .admin(sqe)?
            .expect_any(&[status::THIN_NOT_SUPPORTED, status::INVALID_FIELD])?;
    }
    Ok(())
}

fn create_bad_format(bench: &mut Bench) -> Verdict {
    needs_management(bench)?;
    let common = bench.identify(0x00, 0xffff_ffff)?;
    let count = u8_at(&common, 25) + 1;
    if count > 15 {
        return not_supported("every LBA format is there");
    }
    for flbas in [count, 15] {
        let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS, flbas)?;
        bench.admin(sqe)?.expect(status::INVALID_FORMAT)?;
    }
    Ok(())
}

fn create_bad_command_set(bench: &mut Bench) -> Verdict {
    let flbas = needs_management(bench)?;
    let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS, flbas)?;
    bench
        .admin(sqe.dw(11, 0x30 << 24))?
        .expect(status::COMMAND_SET_NOT_SUPPORTED)
        .map(drop)
}

fn management_bad_select(bench: &mut Bench) -> Verdict {
    let flbas = needs_management(bench)?;
    for select in [2, 7, 15] {
        let (sqe, _) = create_sqe(bench, BLOCKS, BLOCKS, flbas)?;
        bench
            .admin(sqe.dw(10, select))?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

/// A valid NSID that nothing is allocated for.
fn unused(bench: &mut Bench) -> Verdict<u32> {
    let nn = u32_at(&bench.controller()?, 516);
    let allocated = list(bench, 0x10)?;
    match (1..=nn).rev().find(|nsid| !allocated.contains(nsid)) {
        Some(nsid) => Ok(nsid),
        None => not_supported("every valid namespace is allocated"),
    }
}

const ABSENT: [u16; 2] = [status::INVALID_NAMESPACE, status::INVALID_FIELD];

fn delete_bad_namespace(bench: &mut Bench) -> Verdict {
    needs_management(bench)?;
    let nn = u32_at(&bench.controller()?, 516);
    for nsid in [0, nn.saturating_add(1)] {
        delete(bench, nsid)?.expect(status::INVALID_NAMESPACE)?;
    }
    let nsid = unused(bench)?;
    delete(bench, nsid)?.expect_any(&ABSENT).map(drop)
}

fn delete_attached(bench: &mut Bench) -> Verdict {
    with_new(bench, true, |bench, nsid, _| {
        let ns = ns_again(bench, nsid)?;
        let mut pair = bench.pair(16)?;
        let data = pattern(ns.block_len, 0xde1);
        bench.write_blocks(&mut pair, &ns, 0, &data)?;
        delete(bench, nsid)?.ok()?;
        is_listed(bench, nsid, false, false, "after deletion")?;
        let (cqe, _) = bench.try_read_blocks(&mut pair, &ns, 0, 1)?;
        cqe.expect(status::INVALID_FIELD).map(drop)
    })
}

fn attach_twice(bench: &mut Bench) -> Verdict {
    with_new(bench, true, |bench, nsid, own| {
        attach(bench, nsid, 0, &[own])?.expect(status::ALREADY_ATTACHED)?;
        attach(bench, nsid, 1, &[own])?.ok()?;
        attach(bench, nsid, 1, &[own])?
            .expect(status::NOT_ATTACHED)
            .map(drop)
    })
}

fn attach_bad_controller(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, nsid, own| {
        for select in [0, 1] {
            attach(bench, nsid, select, &[0xffef])?.expect(status::CONTROLLER_LIST_INVALID)?;
            attach(bench, nsid, select, &[])?
                .expect_any(&[status::CONTROLLER_LIST_INVALID, status::INVALID_FIELD])?;
        }
        // All or nothing.
        attach(bench, nsid, 0, &[own, 0xffef])?.expect_error()?;
        is_listed(
            bench,
            nsid,
            true,
            false,
            "after attachments that were refused",
        )
    })
}

fn attach_bad_namespace(bench: &mut Bench) -> Verdict {
    needs_management(bench)?;
    let own = own_id(bench)?;
    let nn = u32_at(&bench.controller()?, 516);
    let nsid = unused(bench)?;
    for nsid in [0, nn.saturating_add(1), nsid] {
        attach(bench, nsid, 0, &[own])?.expect_any(&ABSENT)?;
    }
    Ok(())
}

fn attach_bad_select(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, nsid, own| {
        for select in [2, 15] {
            attach(bench, nsid, select, &[own])?.expect(status::INVALID_FIELD)?;
        }
        Ok(())
    })
}

fn new_is_empty(bench: &mut Bench) -> Verdict {
    let secret = |block_len: usize, slba: u64| pattern(block_len, slba ^ 0x5ec3e7);
    with_new(bench, true, |bench, nsid, _| {
        let ns = ns_again(bench, nsid)?;
        let mut pair = bench.pair(16)?;
        for slba in 0..64 {
            bench.write_blocks(&mut pair, &ns, slba, &secret(ns.block_len, slba))?;
        }
        Ok(())
    })?;
    bench.start()?;
    with_new(bench, true, |bench, nsid, _| {
        let ns = ns_again(bench, nsid)?;
        let mut pair = bench.pair(16)?;
        for slba in 0..64 {
            let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
            check(found != secret(ns.block_len, slba), || {
                format!("block {slba} of a new namespace has a deleted one's data")
            })?;
        }
        Ok(())
    })
}

fn new_identifiers(bench: &mut Bench) -> Verdict {
    let mut seen = Vec::new();
    for _ in 0..3 {
        with_new(bench, true, |bench, nsid, _| {
            let n = bench.identify(0x00, nsid)?;
            let id = n[104..128].to_vec();
            check(id.iter().any(|b| *b != 0), || {
                format!("namespace {nsid} has no NGUID and no EUI-64")
            })?;
            check(!seen.contains(&id), || {
                format!("two namespaces had the identifiers {id:02x?}")
            })?;
            seen.push(id);
            Ok(())
        })?;
    }
    Ok(())
}

fn created_stays(bench: &mut Bench) -> Verdict {
    with_new(bench, true, |bench, nsid, _| {
        let ns = ns_again(bench, nsid)?;
        let mut pair = bench.pair(16)?;
        let data = pattern(ns.block_len, 0x57a7);
        bench.write_blocks(&mut pair, &ns, 9, &data)?;
        bench.start()?;
        is_listed(bench, nsid, true, true, "after a reset")?;
        let again = ns_again(bench, nsid)?;
        same_bytes("identity after a reset", &again.identity, &ns.identity)?;
        let mut pair = bench.pair(16)?;
        let found = bench.read_blocks(&mut pair, &ns, 9, 1)?;
        same_bytes("a block after a reset", &found, &data)
    })
}

fn granularity(bench: &mut Bench) -> Verdict {
    let ctratt = u32_at(&bench.controller()?, 96);
    if ctratt >> 7 & 1 == 0 {
        return not_supported("CTRATT bit 7: no namespace granularity");
    }
    let data = bench.identify(0x16, 0)?;
    let count = usize::from(u8_at(&data, 4)) + 1;
    check(count <= 16, || {
        format!("{count} descriptors of granularity")
    })?;
    for index in 0..count {
        let at = 32 + 16 * index;
        let (size, capacity) = (u64_at(&data, at), u64_at(&data, at + 8));
        check(capacity <= size || size == 0, || {
            format!("granularity {index}: capacity {capacity} is above size {size}")
        })?;
    }
    zero("behind the last descriptor", &data[32 + 16 * count..])
}

fn write_protection(bench: &mut Bench) -> Verdict {
    if u8_at(&bench.controller()?, 531) & 1 == 0 {
        return not_supported("NWPC bit 0: no namespace write protection");
    }
    const WRITE_PROTECTED: u16 = 0x020;
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0x3b);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    bench.set_feature(0x84, ns.nsid, 1)?.ok()?;
    let mem = bench.mem(ns.block_len)?;
    let write = bench.transfer(&ns, opcode::WRITE, 0, 1, &mem)?;
    let refused = bench
        .run(&mut pair, write)?
        .expect(WRITE_PROTECTED)
        .map(drop);
    let found = bench.read_blocks(&mut pair, &ns, 0, 1);
    bench.set_feature(0x84, ns.nsid, 0)?.ok()?;
    refused?;
    same_bytes("a write protected block", &found?, &data)?;
    bench.write_blocks(&mut pair, &ns, 0, &data)
}
