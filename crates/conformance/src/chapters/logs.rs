//! Get Log Page (Base 2.1, 5.1.12).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, opcode};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes, zero};
use crate::wire::{Cqe, Sqe, status, u8_at, u16_at, u32_at, u64_at, u128_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "logs",
    title: "Log pages",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    mandatory, "Base 2.1, 3.1.3.5", "every I/O controller has the error, SMART and firmware slot logs, and what LPA claims";
    supported_agrees, "Base 2.1, 5.1.12.1.1", "pages that Supported Log Pages has answer, and others are refused (109h)";
    reserved_pages, "Base 2.1, 5.1.12", "a reserved log page is refused (109h)";
    writes_what_was_asked, "Base 2.1, 5.1.12", "as many bytes are written as NUMD says, and none beside them";
    longer_than_the_page, "Base 2.1, 5.1.12", "reading past the end of a page succeeds";
    offsets, "Base 2.1, 5.1.12", "a page read in pieces by its offset is the page";
    offset_past_the_end, "Base 2.1, 5.1.12", "an offset past the end of the page is refused (002h)";
    offset_misaligned, "Base 2.1, 5.1.12", "an offset that is not a multiple of four is refused (002h)";
    offset_type, "Base 2.1, 5.1.12", "an index offset into a page that has none is refused (002h)";
    longer_than_mdts, "Base 2.1, 5.1.12", "more bytes than MDTS are refused (002h)";
    several_pages_of_memory, "Base 2.1, 4.3.1", "log data may start inside a page of memory and go on in others", pcie why::PRPS;
    smart_of_namespace, "Base 2.1, 5.1.12.1.3", "SMART of one namespace is refused (002h) where LPA does not have it";
    smart_fields, "Base 2.1, 5.1.12.1.3", "SMART: fields are within their bounds and reserved ones are 0";
    smart_counts_commands, "Base 2.1, 5.1.12.1.3", "SMART counts each Read and each Write of the host";
    smart_counts_data, "Base 2.1, 5.1.12.1.3", "SMART counts data in thousands of 512 bytes, rounded up";
    smart_survives_reset, "Base 2.1, 5.1.12.1.3", "SMART counters do not go back at a reset", pcie why::CONTROLLER;
    smart_counts_shutdowns, "Base 2.1, 5.1.12.1.3", "a normal shutdown is no unsafe one";
    firmware_slots, "Base 2.1, 5.1.12.1.4", "the active firmware slot has the revision in Identify Controller";
    changed_namespaces, "Base 2.1, 5.1.12.1.5", "the list of changed namespaces rises, and is empty once it was read";
    effects_admin, "Base 2.1, 5.1.12.1.6", "admin opcodes that Commands Supported and Effects has answer, and others are refused (001h)";
    effects_io, "Base 2.1, 5.1.12.1.6", "I/O opcodes that Commands Supported and Effects has answer, and others are refused (001h)";
    effects_fields, "Base 2.1, 5.1.12.1.6", "Commands Supported and Effects: what ONCS and OACS have is there, writes change blocks, reserved is 0";
    error_entry, "Base 2.1, 5.1.12.1.2", "a completion with More has an entry: queue, command, status and namespace";
    error_order, "Base 2.1, 5.1.12.1.2", "error entries are newest first, numbered from 1, and zeros follow";
    error_count_in_smart, "Base 2.1, 5.1.12.1.3", "SMART counts as many error entries as the newest entry's number";
    errors_survive_reset, "Base 2.1, 5.1.12.1.2", "the error log is there after a reset";
];

fn mandatory(bench: &mut Bench) -> Verdict {
    for (lid, len) in [(0x01, 64), (0x02, 512), (0x03, 512)] {
        bench.log(lid, len)?;
    }
    let lpa = u8_at(&bench.controller()?, 261);
    if lpa >> 1 & 1 == 1 {
        bench.log(0x05, 4096)?;
    }
    if lpa >> 5 & 1 == 1 {
        bench.log(0x00, 1024)?;
    }
    // Attached Namespace Attribute Notices (OAES bit 8) need their list.
    if u32_at(&bench.controller()?, 92) >> 8 & 1 == 1 {
        bench.log(0x04, 4096)?;
    }
    Ok(())
}

fn supported_agrees(bench: &mut Bench) -> Verdict {
    let (cqe, pages) = bench.try_log(0x00, 0, 1024)?;
    if cqe.status() == status::INVALID_LOG_PAGE {
        return not_supported("there is no Supported Log Pages");
    }
    cqe.ok()?;
    for lid in 0..0xc0_u8 {
        let claims = u32_at(&pages, usize::from(lid) * 4) & 1 == 1;
        let (cqe, _) = bench.try_log(lid, 0, 64)?;
        let answers = cqe.status() != status::INVALID_LOG_PAGE;
        check(claims == answers, || {
            format!(
                "log page {lid:02x}h: Supported Log Pages says {claims}, and it ends with {}",
                status::shown(cqe.status())
            )
        })?;
    }
    Ok(())
}

fn reserved_pages(bench: &mut Bench) -> Verdict {
    for lid in [0x5f, 0xbf] {
        bench
            .try_log(lid, 0, 64)?
            .0
            .expect(status::INVALID_LOG_PAGE)?;
    }
    Ok(())
}

fn writes_what_was_asked(bench: &mut Bench) -> Verdict {
    let whole = bench.log(0x03, 512)?;
    let mem = bench.mem(4096)?;
    for len in [4, 8, 64, 508] {
        mem.fill(0xa5);
        let sqe = bench.log_sqe(0x03, 0, len, &mem)?;
        bench.admin(sqe)?.ok()?;
        same_bytes("a part of a page", &mem.bytes(0, len), &whole[..len])?;
        let beside = mem.bytes(len, 4096 - len);
        check(beside.iter().all(|b| *b == 0xa5), || {
            format!("more than {len} bytes were written")
        })?;
    }
    Ok(())
}

fn longer_than_the_page(bench: &mut Bench) -> Verdict {
    let whole = bench.log(0x03, 512)?;
    let (cqe, data) = bench.try_log(0x03, 0, 4096)?;
    cqe.ok()?;
    same_bytes("the page itself", &data[..512], &whole)
}

/// Not supported without Log Page Extended Data (LPA bit 2).
fn needs_offsets(bench: &mut Bench) -> Verdict {
    let lpa = u8_at(&bench.controller()?, 261);
    if lpa >> 2 & 1 == 0 {
        return not_supported("LPA bit 2: no offsets");
    }
    Ok(())
}

fn offsets(bench: &mut Bench) -> Verdict {
    needs_offsets(bench)?;
    for (lid, len) in [(0x03, 512_usize), (0x05, 4096)] {
        let (cqe, whole) = bench.try_log(lid, 0, len)?;
        if cqe.status() == status::INVALID_LOG_PAGE {
            continue;
        }
        cqe.ok()?;
        for (at, piece) in [(0, 4), (4, 60), (64, 128), (256, 256), (len - 4, 4)] {
            let offset = u64::try_from(at).expect("it is small");
            let (cqe, data) = bench.try_log(lid, offset, piece)?;
            cqe.ok()?;
            let what = format!("log page {lid:02x}h from {at} on");
            same_bytes(&what, &data, &whole[at..at + piece])?;
        }
    }
    Ok(())
}

fn offset_past_the_end(bench: &mut Bench) -> Verdict {
    needs_offsets(bench)?;
    // The second is where 32 bits end, the third where 64 do.
    for offset in [516, 1 << 32, u64::MAX - 3] {
        bench
            .try_log(0x03, offset, 4)?
            .0
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn offset_misaligned(bench: &mut Bench) -> Verdict {
    needs_offsets(bench)?;
    for offset in [1, 2, 3, 63] {
        bench
            .try_log(0x03, offset, 4)?
            .0
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn offset_type(bench: &mut Bench) -> Verdict {
    needs_offsets(bench)?;
    let mem = bench.mem(4096)?;
    let sqe = bench.log_sqe(0x03, 0, 64, &mem)?;
    bench
        .admin(sqe.dw(14, 1 << 23))?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn longer_than_mdts(bench: &mut Bench) -> Verdict {
    let Some(most) = bench.mdts()? else {
        return not_supported("MDTS is 0: transfers have no limit");
    };
    if most > 16 << 20 {
        return not_supported("MDTS allows more than these tests have memory for");
    }
    bench
        .try_log(0x02, 0, most + 4)?
        .0
        .expect(status::INVALID_FIELD)?;
    let (cqe, _) = bench.try_log(0x02, 0, most)?;
    cqe.ok().map(drop)
}

fn several_pages_of_memory(bench: &mut Bench) -> Verdict {
    let (cqe, whole) = bench.try_log(0x05, 0, 4096)?;
    if cqe.status() == status::INVALID_LOG_PAGE {
        return not_supported("there is no log page of 4096 bytes");
    }
    let mem = bench.mem(5 * 4096)?;
    // From inside a page, through a list, over pages in reverse order.
    let list = bench.prp_list(&[mem.at(3 * 4096), mem.at(2 * 4096)])?;
    let len = 4096 * 2 + 1024;
    let numd = u32::try_from(len / 4 - 1).expect("it is small");
    let sqe = Sqe::new(0x02)
        .nsid(0xffff_ffff)
        .dw(10, numd << 16 | 0x05)
        .prps((mem.at(2048), list));
    bench.admin(sqe)?.ok()?;
    let mut found = mem.bytes(2048, 2048);
    found.extend(mem.bytes(3 * 4096, 2048));
    same_bytes("a log page through a list", &found, &whole)
}

fn smart_of_namespace(bench: &mut Bench) -> Verdict {
    let lpa = u8_at(&bench.controller()?, 261);
    let nsid = bench.ns()?.nsid;
    let mem = bench.mem(4096)?;
    let sqe = bench.log_sqe(0x02, 0, 512, &mem)?.nsid(nsid);
    let cqe = bench.admin(sqe)?;
    if lpa & 1 == 1 {
        return cqe.ok().map(drop);
    }
    cqe.expect(status::INVALID_FIELD).map(drop)
}

fn smart_fields(bench: &mut Bench) -> Verdict {
    let smart = bench.log(0x02, 512)?;
    same(
        "critical warning, reserved bits 7:6",
        u8_at(&smart, 0) >> 6,
        0,
    )?;
    let kelvins = u16_at(&smart, 1);
    check((200..500).contains(&kelvins), || {
        format!("the composite temperature is {kelvins} K")
    })?;
    check(u8_at(&smart, 3) <= 100, || {
        format!("available spare is {} %", u8_at(&smart, 3))
    })?;
    check(u8_at(&smart, 4) <= 100, || {
        format!("the threshold of available spare is {} %", u8_at(&smart, 4))
    })?;
    zero("SMART bytes 31:7 (reserved)", &smart[7..32])?;
    zero("SMART bytes 511:232 (reserved)", &smart[232..])
}

fn smart_counts_commands(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let before = bench.log(0x02, 512)?;
    let data = crate::bench::pattern(ns.block_len, 7);
    for _ in 0..5 {
        bench.write_blocks(&mut pair, &ns, 0, &data)?;
    }
    for _ in 0..3 {
        bench.read_blocks(&mut pair, &ns, 0, 1)?;
    }
    let after = bench.log(0x02, 512)?;
    let moved = |at: usize| u128_at(&after, at).wrapping_sub(u128_at(&before, at));
    same("Host Read Commands, after 3 Reads", moved(64), 3)?;
    same("Host Write Commands, after 5 Writes", moved(80), 5)
}

fn smart_counts_data(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    // 512 KiB in all: 1024 units of 512 bytes, one thousand and a bit.
    let piece = 32 << 10;
    if bench.mdts()?.is_some_and(|most| most < piece) || ns.block_len > piece {
        return not_supported("MDTS is below 32 KiB");
    }
    let blocks = u32::try_from(piece / ns.block_len).expect("it is small");
    let before = bench.log(0x02, 512)?;
    let data = crate::bench::pattern(piece, 7);
    for _ in 0..16 {
        bench.write_blocks(&mut pair, &ns, 0, &data)?;
        bench.read_blocks(&mut pair, &ns, 0, blocks)?;
    }
    let after = bench.log(0x02, 512)?;
    for (name, at) in [("Data Units Read", 32), ("Data Units Written", 48)] {
        let moved = u128_at(&after, at).wrapping_sub(u128_at(&before, at));
        // 0 means that it is not reported; rounding up may add one.
        let unreported = u128_at(&after, at) == 0;
        check(unreported || (1..=2).contains(&moved), || {
            format!("{name}: moved by {moved} over 1024 units of 512 bytes; 1 or 2 were expected")
        })?;
    }
    Ok(())
}

fn smart_survives_reset(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    bench.read_blocks(&mut pair, &ns, 0, 1)?;
    let before = bench.log(0x02, 512)?;
    bench.start()?;
    let after = bench.log(0x02, 512)?;
    for (name, at) in [
        ("Data Units Read", 32),
        ("Data Units Written", 48),
        ("Host Read Commands", 64),
        ("Host Write Commands", 80),
        ("Power On Hours", 128),
        ("Media and Data Integrity Errors", 160),
        ("Number of Error Information Log Entries", 176),
    ] {
        let (was, is) = (u128_at(&before, at), u128_at(&after, at));
        check(is >= was, || {
            format!("{name} went back from {was} to {is} at a reset")
        })?;
    }
    let (was, is) = (u128_at(&before, 112), u128_at(&after, 112));
    same("Power Cycles after a controller reset", is, was)
}

fn smart_counts_shutdowns(bench: &mut Bench) -> Verdict {
    let before = u128_at(&bench.log(0x02, 512)?, 144);
    bench.write32(0x14, crate::bench::CC_ENABLE | 0b01 << 14)?;
    let bound = bench.options().bound;
    let done = bench.until(bound, |bench| Ok(bench.csts()? & 0b1100 == 0b1000))?;
    check(done, || "the shutdown does not end".into())?;
    bench.start()?;
    let after = u128_at(&bench.log(0x02, 512)?, 144);
    same("Unsafe Shutdowns after a normal shutdown", after, before)
}

fn firmware_slots(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    let log = bench.log(0x03, 512)?;
    let afi = u8_at(&log, 0);
    let active = usize::from(afi & 0b111);
    let slots = usize::from(u8_at(&c, 260) >> 1 & 0b111);
    check((1..=slots).contains(&active), || {
        format!("the active firmware slot is {active} of {slots}")
    })?;
    same("AFI, reserved bits 3 and 7", afi & 0b1000_1000, 0)?;
    let revision = &log[8 * active..8 * active + 8];
    same_bytes("revision in the active slot", revision, &c[64..72])?;
    zero("firmware slot log bytes 7:1 (reserved)", &log[1..8])?;
    zero("slots that do not exist", &log[8 * (slots + 1)..64])?;
    zero("firmware slot log bytes 511:64 (reserved)", &log[64..])
}

fn changed_namespaces(bench: &mut Bench) -> Verdict {
    if u32_at(&bench.controller()?, 92) >> 8 & 1 == 0 {
        return not_supported("OAES bit 8: no Attached Namespace Attribute Notices");
    }
    let first = bench.log(0x04, 4096)?;
    let ids: Vec<u32> = (0..1024)
        .map(|n| u32_at(&first, 4 * n))
        .take_while(|id| *id != 0)
        .collect();
    check(ids.windows(2).all(|two| two[0] < two[1]), || {
        format!("the list of changed namespaces does not rise: {ids:?}")
    })?;
    zero("changed namespaces, read again", &bench.log(0x04, 4096)?)
}

/// The page of effects: a dword for each admin opcode, then one for each I/O
/// opcode.
fn effects(bench: &mut Bench) -> Verdict<Vec<u8>> {
    let lpa = u8_at(&bench.controller()?, 261);
    if lpa >> 1 & 1 == 0 {
        return not_supported("LPA bit 1: no Commands Supported and Effects");
    }
    bench.log(0x05, 4096)
}

/// A command of this opcode that no controller carries out: a namespace that
/// cannot be, every other field all ones.
fn impossible(bench: &Bench, opcode: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode).nsid(0xffff_fff0);
    // Over fabrics no pointer reaches the controller.
    if !bench.is_over_fabrics() {
        sqe = sqe.prps((1, 1));
    }
    (10..16).fold(sqe, |sqe, index| sqe.dw(index, u32::MAX))
}

fn claims_agree(claims: bool, kind: &str, opcode: u8, cqe: &Cqe) -> Verdict {
    let answers = cqe.status() != status::INVALID_OPCODE;
    check(claims == answers, || {
        format!(
            "{kind} opcode {opcode:02x}h: Commands Supported and Effects says {claims}, and it ends with {}",
            status::shown(cqe.status())
        )
    })
}

fn effects_admin(bench: &mut Bench) -> Verdict {
    let log = effects(bench)?;
    for opcode in 0..0xc0_u8 {
        let claims = u32_at(&log, usize::from(opcode) * 4) & 1 == 1;
        if opcode == 0x0c {
            // A request for an event waits, which is an answer.
            check(claims, || "Asynchronous Event Request is not there".into())?;
            continue;
        }
        let cqe = bench.admin_of_target(impossible(bench, opcode))?;
        claims_agree(claims, "admin", opcode, &cqe)?;
    }
    bench.controller().map(drop)
}

fn effects_io(bench: &mut Bench) -> Verdict {
    let log = effects(bench)?;
    let (ns, mut pair) = bench.io()?;
    let first = pair.sq.tail;
    for opcode in 0..0x80_u8 {
        let claims = u32_at(&log, 1024 + usize::from(opcode) * 4) & 1 == 1;
        let sqe = impossible(bench, opcode);
        let cqe = bench.run(&mut pair, sqe)?;
        claims_agree(claims, "I/O", opcode, &cqe)?;
    }
    check(pair.sq.tail == first, || {
        "128 commands are two laps of 64".into()
    })?;
    bench
        .run(&mut pair, Sqe::new(opcode::FLUSH).nsid(ns.nsid))?
        .ok()
        .map(drop)
}

fn effects_fields(bench: &mut Bench) -> Verdict {
    let log = effects(bench)?;
    let c = bench.controller()?;
    let (oacs, oncs) = (u16_at(&c, 256), u16_at(&c, 520));
    let admin = |opcode: usize| u32_at(&log, opcode * 4);
    let io = |opcode: u8| u32_at(&log, 1024 + usize::from(opcode) * 4);
    for (bit, opcode) in [
        (1, 0x80),
        (2, 0x10),
        (2, 0x11),
        (3, 0x0d),
        (3, 0x15),
        (8, 0x7c),
    ] {
        let claims = u32::from(oacs >> bit & 1);
        let what = format!("admin opcode {opcode:02x}h against OACS bit {bit}");
        same(&what, admin(opcode) & 1, claims)?;
    }
    for (bit, opcode) in [
        (0, opcode::COMPARE),
        (1, opcode::WRITE_UNCORRECTABLE),
        (2, opcode::DATASET_MANAGEMENT),
        (3, opcode::WRITE_ZEROES),
        (5, opcode::RESERVATION_REGISTER),
        (5, opcode::RESERVATION_ACQUIRE),
        (7, opcode::VERIFY),
        (8, opcode::COPY),
    ] {
        let claims = u32::from(oncs >> bit & 1);
        let what = format!("I/O opcode {opcode:02x}h against ONCS bit {bit}");
        same(&what, io(opcode) & 1, claims)?;
    }
    for opcode in [opcode::FLUSH, opcode::READ, opcode::WRITE] {
        same(
            &format!("I/O opcode {opcode:02x}h, supported"),
            io(opcode) & 1,
            1,
        )?;
    }
    for opcode in [
        opcode::WRITE,
        opcode::WRITE_ZEROES,
        opcode::DATASET_MANAGEMENT,
        opcode::COPY,
        opcode::WRITE_UNCORRECTABLE,
    ] {
        // LBCC: it may change logical blocks. Deallocation may, so may all these.
        if io(opcode) & 1 == 1 {
            let what = format!("I/O opcode {opcode:02x}h, changes logical blocks");
            same(&what, io(opcode) >> 1 & 1, 1)?;
        }
    }
    let unsupported = (0..512).find(|n| {
        let dword = u32_at(&log, n * 4);
        dword & 1 == 0 && dword != 0
    });
    check(unsupported.is_none(), || {
        format!("entry {unsupported:?} has effects of a command that is not supported")
    })?;
    zero(
        "Commands Supported and Effects bytes 4095:2048 (reserved)",
        &log[2048..],
    )
}

/// A command that fails with More set, and its completion.
fn error_with_more(bench: &mut Bench) -> Verdict<(Cqe, u32, u64)> {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(ns.block_len)?;
    let slba = ns.blocks;
    let past = bench.transfer(&ns, opcode::READ, slba, 1, &page)?;
    let cqe = bench.run(&mut pair, past)?.expect_error()?;
    if cqe.more() {
        return Ok((cqe, ns.nsid, slba));
    }
    let cqe = bench.delete_sq(0x1234)?.expect_error()?;
    if cqe.more() {
        return Ok((cqe, 0, 0));
    }
    not_supported("no completion here says More")
}

fn error_entry(bench: &mut Bench) -> Verdict {
    let before = bench.error_count()?;
    let (cqe, nsid, lba) = error_with_more(bench)?;
    let log = bench.log(0x01, 64)?;
    check(u64_at(&log, 0) > before, || {
        format!("a completion says More, and the newest entry is still number {before}")
    })?;
    same(
        "entry, SQ identifier",
        u32::from(u16_at(&log, 8)),
        cqe.sq_id(),
    )?;
    same("entry, command identifier", u16_at(&log, 10), cqe.cid())?;
    // Bit 0 is the phase tag's.
    same("entry, status", u16_at(&log, 12) >> 1 & 0x7ff, cqe.status())?;
    if nsid != 0 {
        same("entry, namespace", u32_at(&log, 24), nsid)?;
        same("entry, LBA", u64_at(&log, 16), lba)?;
    }
    Ok(())
}

fn error_order(bench: &mut Bench) -> Verdict {
    let entries = usize::from(u8_at(&bench.controller()?, 262)) + 1;
    for _ in 0..5 {
        error_with_more(bench)?;
        bench.start()?;
    }
    let log = bench.log(0x01, 64 * entries)?;
    let numbers: Vec<u64> = (0..entries).map(|n| u64_at(&log, 64 * n)).collect();
    let count = numbers.iter().take_while(|n| **n != 0).count();
    check(count >= 1, || "the error log is empty after errors".into())?;
    check(
        numbers[..count].windows(2).all(|two| two[0] == two[1] + 1),
        || {
            format!(
                "numbers of error entries do not fall by one: {:?}",
                &numbers[..count]
            )
        },
    )?;
    zero("behind the last error entry", &log[64 * count..])
}

fn error_count_in_smart(bench: &mut Bench) -> Verdict {
    error_with_more(bench)?;
    let newest = u128::from(bench.error_count()?);
    let smart = bench.log(0x02, 512)?;
    same(
        "Number of Error Information Log Entries",
        u128_at(&smart, 176),
        newest,
    )
}

fn errors_survive_reset(bench: &mut Bench) -> Verdict {
    error_with_more(bench)?;
    let before = bench.log(0x01, 64)?;
    bench.start()?;
    let after = bench.log(0x01, 64)?;
    same_bytes("the newest error entry", &after, &before)
}
