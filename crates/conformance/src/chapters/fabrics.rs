//! NVMe over Fabrics (Base 2.1, 6, and TCP Transport 1.1): Connect, properties, Keep Alive, and the
//! log page of Asymmetric Namespace Access.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, CC_ENABLE, opcode};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes, zero};
use crate::wire::{Cqe, DataPointer, Sqe, bits, status, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "fabrics",
    title: "Connect, properties, Keep Alive and ANA over NVMe/TCP",
    scope: Scope::Fabrics,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    identify_controller, "Base 2.1, 5.1.13.2.1", "Identify Controller: SUBNQN and CNTLID are those of Connect, and capsules, SGLs and Keep Alive are supported";
    property_get, "Base 2.1, 6.5", "Property Get reads CAP as 8 bytes, and VS, CC and CSTS as 4 bytes with zeros above them";
    property_get_refused, "Base 2.1, 6.5", "Property Get of a reserved property, or of another size, is refused (002h)";
    property_set_refused, "Base 2.1, 6.6", "Property Set of CAP or VS, or of CC as 8 bytes, is refused (002h) and changes nothing";
    life_cycle, "Base 2.1, 3.5.2", "a new controller is disabled; Property Set of CC enables it and shuts it down, as CSTS says";
    connect_format, "Base 2.1, 6.3", "Connect with a reserved record format is refused (180h)";
    connect_subsystem, "Base 2.1, 6.3", "Connect to a subsystem that is not there is refused (182h), and names SUBNQN";
    connect_size, "Base 2.1, 6.3", "Connect with a queue of one entry is refused (182h), and names SQSIZE";
    connect_controller, "Base 2.1, 6.3", "Connect of an I/O queue of a controller that is not there is refused (182h), and names CNTLID";
    connect_queue, "Base 2.1, 6.3", "Connect of a queue beyond those that a controller may have is refused (182h), and names QID";
    connect_host, "Base 2.1, 6.3", "Connect of an I/O queue by a host with another NQN is refused";
    connect_early, "Base 2.1, 6.3", "Connect of an I/O queue before CC.EN is 1 is refused";
    connect_twice, "Base 2.1, 6.3", "Connect of an I/O queue that is connected is refused (00Ch), and the queue goes on";
    all_queues, "Base 2.1, 5.1.25.2.1", "every I/O queue that was granted can be connected, and works";
    queue_commands, "Base 2.1, 5.2", "commands that create and delete queues of PCIe are refused (001h)";
    short_data, "Base 2.1, 4.3.2", "a Read whose descriptor is shorter than its blocks is refused (00Fh), and writes nothing";
    keep_alive, "Base 2.1, 5.1.14", "Keep Alive succeeds";
    keep_alive_timeout, "Base 2.1, 3.9", "a host that sends nothing for its Keep Alive Timeout loses its association";
    ana_fields, "Base 2.1, 5.1.13.2.1", "a controller that reports ANA has a transition time, states and groups";
    ana_log, "Base 2.1, 5.1.12.1.13", "the ANA log has each group once, in order, with a state that ANACAP has, and each namespace in its group";
    ana_groups_only, "Base 2.1, 5.1.12.1.13", "the ANA log without NSIDs has the same groups and states";
];

const CONNECT_INCOMPATIBLE_FORMAT: u16 = 0x180;
const CONNECT_INVALID_PARAMETERS: u16 = 0x182;
const CONNECT_INVALID_HOST: u16 = 0x184;
/// Dword 0 of Connect Invalid Parameters: the field is in the data.
const IN_DATA: u32 = 1 << 16;
/// Bytes of the data of Connect, and where its fields lie.
const CONNECT_LEN: u32 = 1024;
const CNTLID: usize = 16;
const SUBNQN: usize = 256;
const HOSTNQN: usize = 512;

const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
/// ATTRIB of a property: its size.
const BYTES_4: u32 = 0;
const BYTES_8: u32 = 1;

/// Connect of a queue, its data in the capsule.
fn connect_sqe(qid: u32, entries: u32) -> Sqe {
    Sqe::new(0x7f)
        .nsid(0x01)
        .psdt(0b01)
        .dw(8, CONNECT_LEN)
        // A data block at an offset of the capsule.
        .dw(9, 0x01 << 24)
        .dw(10, qid << 16)
        .dw(11, entries - 1)
}

/// Connects over another connection, which ends with the answer. `change` changes the data.
fn connect(bench: &Bench, sqe: Sqe, change: impl FnOnce(&mut [u8])) -> Verdict<Cqe> {
    let fabrics = bench.fabrics()?;
    let mut data = fabrics.connect_data();
    change(&mut data);
    Ok(Cqe {
        dwords: fabrics.connect(&sqe.bytes(), &data)?,
        of: format!("Connect of queue {}", sqe.0[10] >> 16),
    })
}

/// Asks for a controller, and not for the bench's.
fn any_controller(data: &mut [u8]) {
    data[CNTLID..][..2].fill(0xff);
}

/// Fails unless Connect was refused for this field.
fn names(cqe: Cqe, field: u32) -> Verdict {
    let of = cqe.of.clone();
    let cqe = cqe.expect(CONNECT_INVALID_PARAMETERS)?;
    same(&format!("{of}, dword 0"), cqe.dw0() & 0x1_ffff, field)
}

fn execute(bench: &Bench, sqe: Sqe, of: &str) -> Verdict<Cqe> {
    Ok(Cqe {
        dwords: bench.fabrics()?.execute(&sqe.bytes())?,
        of: of.to_owned(),
    })
}

fn get(bench: &Bench, offset: u32, size: u32) -> Verdict<Cqe> {
    let sqe = Sqe::new(0x7f).nsid(0x04).dw(10, size).dw(11, offset);
    execute(bench, sqe, &format!("Property Get of {offset:02x}h"))
}

fn set(bench: &Bench, offset: u32, size: u32, value: u64) -> Verdict<Cqe> {
    let sqe = Sqe::new(0x7f).nsid(0x00).dw(10, size).dw(11, offset);
    let of = format!("Property Set of {offset:02x}h");
    execute(bench, sqe.qword(12, value), &of)
}

fn value(cqe: &Cqe) -> u64 {
    u64::from(cqe.dw1()) << 32 | u64::from(cqe.dw0())
}

fn identify_controller(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    let connected = bench.fabrics()?.connect_data();
    same_bytes("SUBNQN", &c[768..1024], &connected[SUBNQN..][..256])?;
    same("CNTLID", u16_at(&c, 78), u16_at(&connected, CNTLID))?;
    check(u16_at(&c, 320) > 0, || "KAS is 0: no Keep Alive".into())?;
    check(u32_at(&c, 536) & 0b11 != 0, || {
        "SGLS bits 1:0 are 0: no SGLs".into()
    })?;
    check(u16_at(&c, 514) > 0, || "MAXCMD is 0".into())?;
    check(u32_at(&c, 1792) >= 4, || {
        "IOCCSZ is below 4: no room for a command".into()
    })?;
    check(u32_at(&c, 1796) >= 1, || {
        "IORCSZ is 0: no room for a completion".into()
    })?;
    same("CNTRLTYPE (I/O controller)", u8_at(&c, 111), 1)
}

fn property_get(bench: &mut Bench) -> Verdict {
    let cap = get(bench, CAP, BYTES_8)?.ok()?;
    same("CAP", value(&cap), bench.cap())?;
    same("CAP.CQR", bits(value(&cap), 16, 16), 1)?;
    let vs = get(bench, VS, BYTES_4)?.ok()?;
    check(vs.dw0() >> 16 >= 1, || format!("VS is {:#010x}", vs.dw0()))?;
    same("dword 1 of VS", vs.dw1(), 0)?;
    let cc = get(bench, CC, BYTES_4)?.ok()?;
    same("CC", value(&cc), CC_ENABLE.into())?;
    let csts = get(bench, CSTS, BYTES_4)?.ok()?;
    same("CSTS but bit 4", value(&csts) & !0x10, 1)
}

fn property_get_refused(bench: &mut Bench) -> Verdict {
    for (offset, size) in [
        (0x18, BYTES_4),
        (0x24, BYTES_4),
        (0x28, BYTES_8),
        (0x1000, BYTES_4),
        (u32::MAX, BYTES_4),
        (VS, BYTES_8),
        (VS + 1, BYTES_4),
        (VS, 0b010),
    ] {
        get(bench, offset, size)?.expect(status::INVALID_FIELD)?;
    }
    bench.controller().map(drop)
}

fn property_set_refused(bench: &mut Bench) -> Verdict {
    for (offset, size) in [
        (CAP, BYTES_8),
        (VS, BYTES_4),
        (CC, BYTES_8),
        (0x18, BYTES_4),
    ] {
        set(bench, offset, size, 0)?.expect(status::INVALID_FIELD)?;
    }
    same("CAP", value(&get(bench, CAP, BYTES_8)?.ok()?), bench.cap())?;
    let cc = get(bench, CC, BYTES_4)?.ok()?;
    same("CC", value(&cc), CC_ENABLE.into())?;
    bench.controller().map(drop)
}

/// Waits until bits of CSTS have a value.
fn await_status(bench: &mut Bench, mask: u32, wanted: u32, bound: Duration) -> Verdict {
    let mut csts = 0;
    let reached = bench.until(bound, |bench| {
        csts = get(bench, CSTS, BYTES_4)?.ok()?.dw0();
        Ok(csts & mask == wanted)
    })?;
    check(reached, || {
        format!("CSTS is {csts:#x} after {bound:?}, and bits {mask:#x} should be {wanted:#x}")
    })
}

fn life_cycle(bench: &mut Bench) -> Verdict {
    // Another association, which has another controller.
    bench.bus().reset_function()?;
    bench.forget();
    let cc = get(bench, CC, BYTES_4)?.ok()?;
    same("CC.EN of a new controller", cc.dw0() & 1, 0)?;
    let csts = get(bench, CSTS, BYTES_4)?.ok()?;
    same("CSTS of a new controller", csts.dw0() & 0b1111, 0)?;
    let bound = bench.ready_bound()?;
    set(bench, CC, BYTES_4, CC_ENABLE.into())?.ok()?;
    await_status(bench, 0b1111, 0b0001, bound)?;
    // A normal shutdown.
    let bound = bench.options().bound;
    set(bench, CC, BYTES_4, u64::from(CC_ENABLE | 0b01 << 14))?.ok()?;
    await_status(bench, 0b1110, 0b1000, bound)?;
    bench.bus().reset_function()?;
    Ok(())
}

fn connect_format(bench: &mut Bench) -> Verdict {
    let sqe = connect_sqe(0, 32);
    let cqe = connect(bench, sqe.dw(10, 1), any_controller)?;
    cqe.expect(CONNECT_INCOMPATIBLE_FORMAT).map(drop)
}

fn connect_subsystem(bench: &mut Bench) -> Verdict {
    let cqe = connect(bench, connect_sqe(0, 32), |data| {
        any_controller(data);
        let other = b"nqn.2014-08.org.nvmexpress:uuid:6f1d1f0e-0000-4000-8000-000000000000\0";
        data[SUBNQN..][..other.len()].copy_from_slice(other);
    })?;
    names(cqe, IN_DATA | 256)
}

fn connect_size(bench: &mut Bench) -> Verdict {
    names(connect(bench, connect_sqe(0, 1), any_controller)?, 44)
}

fn connect_controller(bench: &mut Bench) -> Verdict {
    let cqe = connect(bench, connect_sqe(1, 32), |data| {
        // Controllers have identifiers up to FFEFh.
        data[CNTLID..][..2].copy_from_slice(&0xfff7_u16.to_le_bytes());
    })?;
    names(cqe, IN_DATA | 16)
}

fn connect_queue(bench: &mut Bench) -> Verdict {
    let cqe = connect(bench, connect_sqe(0xffff, 32), |_| ())?;
    names(cqe, 42)
}

fn connect_host(bench: &mut Bench) -> Verdict {
    bench.grant()?;
    let cqe = connect(bench, connect_sqe(1, 32), |data| {
        let other = b"nqn.2014-08.org.nvmexpress:uuid:6f1d1f0e-0000-4000-8000-000000000001\0";
        data[HOSTNQN..][..other.len()].copy_from_slice(other);
    })?;
    cqe.expect_any(&[CONNECT_INVALID_PARAMETERS, CONNECT_INVALID_HOST])?;
    bench.pair(8).map(drop)
}

fn connect_early(bench: &mut Bench) -> Verdict {
    bench.bus().reset_function()?;
    bench.forget();
    let cqe = connect(bench, connect_sqe(1, 32), |_| ())?;
    cqe.expect_any(&[status::SEQUENCE_ERROR, CONNECT_INVALID_PARAMETERS])?;
    bench.start()?;
    bench.pair(8).map(drop)
}

fn connect_twice(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let qid = u32::from(pair.sq.id);
    let cqe = connect(bench, connect_sqe(qid, 32), |_| ())?;
    cqe.expect(status::SEQUENCE_ERROR)?;
    bench.read_blocks(&mut pair, &ns, 0, 1).map(drop)
}

fn all_queues(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let (sqs, cqs) = bench.grant()?;
    let mut pairs = Vec::new();
    for _ in 0..sqs.min(cqs) {
        pairs.push(bench.pair(8)?);
    }
    for pair in pairs.iter_mut().rev() {
        bench.read_blocks(pair, &ns, 0, 1)?;
    }
    Ok(())
}

fn queue_commands(bench: &mut Bench) -> Verdict {
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x7c] {
        // Queue 9 of two entries, contiguous.
        let sqe = Sqe::new(opcode).dw(10, 1 << 16 | 9).dw(11, 1);
        let cqe = execute(bench, sqe, &format!("opcode {opcode:02x}h"))?;
        cqe.expect(status::INVALID_OPCODE)?;
    }
    Ok(())
}

fn short_data(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.bytes(2))?;
    mem.fill(0xa5);
    let len = u32::try_from(ns.block_len).expect("a block is short");
    let sqe = ns.sqe(opcode::READ, 0, 2);
    let cqe = bench.run(&mut pair, sqe.data(DataPointer::Block(mem.iova(), len)))?;
    cqe.expect(status::DATA_SGL_LENGTH_INVALID)?;
    let untouched = mem.bytes(0, mem.len()).iter().all(|byte| *byte == 0xa5);
    check(untouched, || "a refused Read wrote data".into())?;
    bench.read_blocks(&mut pair, &ns, 0, 2).map(drop)
}

fn keep_alive(bench: &mut Bench) -> Verdict {
    bench.admin(Sqe::new(0x18))?.ok().map(drop)
}

fn keep_alive_timeout(bench: &mut Bench) -> Verdict {
    // KAS has units of 100 ms.
    let granularity_ms = u32::from(u16_at(&bench.controller()?, 320)) * 100;
    let kato_ms = granularity_ms.max(1000);
    // Before the timer starts.
    let start = bench.bus().now_ns();
    bench.set_feature(0x0f, 0, kato_ms)?.ok()?;
    let kato = Duration::from_millis(kato_ms.into());
    // With traffic based Keep Alive the timer runs once more after a period with commands.
    let bound = 2 * kato + bench.options().bound;
    let step = Duration::from_millis(100);
    let waited = |bench: &Bench| Duration::from_nanos(bench.bus().now_ns().saturating_sub(start));
    while bench.bus().check_alive().is_ok() {
        check(waited(bench) < bound, || {
            format!("the association is there {bound:?} after the last command, with KATO {kato:?}")
        })?;
        // The bus may notice the end inside the wait.
        if bench.pass(step).is_err() {
            break;
        }
    }
    let waited = waited(bench);
    check(waited >= kato, || {
        format!("the association ended after {waited:?}, before KATO {kato:?}")
    })?;
    bench.recover()?;
    bench.start()
}

/// Identify Controller of a controller that reports ANA.
fn with_ana(bench: &mut Bench) -> Verdict<Vec<u8>> {
    let c = bench.controller()?;
    if u8_at(&c, 76) >> 3 & 1 == 0 {
        return not_supported("CMIC bit 3: no Asymmetric Namespace Access");
    }
    Ok(c)
}

fn ana_fields(bench: &mut Bench) -> Verdict {
    let c = with_ana(bench)?;
    check(u8_at(&c, 342) > 0, || "ANATT is 0".into())?;
    check(u8_at(&c, 343) & 0b1_1111 != 0, || {
        "ANACAP bits 4:0 are 0: no state is reported".into()
    })?;
    let (most, groups) = (u32_at(&c, 344), u32_at(&c, 348));
    check(groups > 0 && groups <= most, || {
        format!("NANAGRPID {groups} should be 1 to ANAGRPMAX, {most}")
    })
}

/// A group of the log page.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    id: u32,
    state: u8,
    nsids: Vec<u32>,
}

/// The ANA log page; without NSIDs where `only_groups` (RGO) is set.
fn groups(bench: &mut Bench, c: &[u8], only_groups: bool) -> Verdict<Vec<Group>> {
    let active = bench.active()?.len();
    let most = u32_at(c, 348).min(4096) as usize;
    let len = 16 + 32 * most + 4 * active;
    let mem = bench.mem(len)?;
    let sqe = bench.log_sqe(0x0c, 0, len, &mem)?;
    let rgo = u32::from(only_groups) << 8;
    bench.admin(sqe.dw(10, sqe.0[10] | rgo))?.ok()?;
    let log = mem.bytes(0, len);
    let count = usize::from(u16_at(&log, 8));
    check(count <= most, || {
        format!("the log has {count} groups, and NANAGRPID is {most}")
    })?;
    zero("bytes 15:10 of the log", &log[10..16])?;
    let mut at = 16;
    let mut found = Vec::new();
    for _ in 0..count {
        let nsids = u32_at(&log, at + 4) as usize;
        check(at + 32 + 4 * nsids <= len, || {
            format!("{nsids} NSIDs of a group go beyond {len} bytes of the log")
        })?;
        found.push(Group {
            id: u32_at(&log, at),
            state: u8_at(&log, at + 16) & 0xf,
            nsids: (0..nsids).map(|n| u32_at(&log, at + 32 + 4 * n)).collect(),
        });
        at += 32 + 4 * nsids;
    }
    Ok(found)
}

fn ana_log(bench: &mut Bench) -> Verdict {
    let c = with_ana(bench)?;
    let groups = groups(bench, &c, false)?;
    let rises = groups.windows(2).all(|pair| pair[0].id < pair[1].id);
    check(rises, || format!("the groups are not in order: {groups:?}"))?;
    let anacap = u8_at(&c, 343);
    for group in &groups {
        let (id, most) = (group.id, u32_at(&c, 344));
        check((1..=most).contains(&id), || {
            format!("group {id} is outside 1 to ANAGRPMAX, {most}")
        })?;
        // States and their bits of ANACAP.
        let states = [(0x1, 0), (0x2, 1), (0x3, 2), (0x4, 3), (0xf, 4)];
        let bit = states.iter().find(|(state, _)| *state == group.state);
        check(bit.is_some_and(|(_, bit)| anacap >> bit & 1 == 1), || {
            format!(
                "group {id} has state {:x}h, ANACAP is {anacap:#04x}",
                group.state
            )
        })?;
        let rises = group.nsids.windows(2).all(|pair| pair[0] < pair[1]);
        check(rises, || {
            format!("the NSIDs of group {id} are not in order")
        })?;
    }
    let active: BTreeSet<u32> = bench.active()?.into_iter().collect();
    for &nsid in &active {
        let own = u32_at(&bench.identify(0x00, nsid)?, 92);
        let within = groups.iter().filter(|group| group.nsids.contains(&nsid));
        let within: Vec<u32> = within.map(|group| group.id).collect();
        check(within == [own], || {
            format!("namespace {nsid} has ANAGRPID {own}, and the log has it in {within:?}")
        })?;
    }
    let mut listed = groups.iter().flat_map(|group| &group.nsids);
    check(listed.all(|nsid| active.contains(nsid)), || {
        format!("the log has namespaces that are not active: {groups:?}")
    })
}

fn ana_groups_only(bench: &mut Bench) -> Verdict {
    let c = with_ana(bench)?;
    let mut whole = groups(bench, &c, false)?;
    whole.iter_mut().for_each(|group| group.nsids.clear());
    let only = groups(bench, &c, true)?;
    check(only == whole, || {
        format!("without NSIDs the log has {only:?}, with them {whole:?}")
    })?;
    let first = bench.log(0x0c, 16)?;
    let again = bench.log(0x0c, 16)?;
    same("Change Count", u64_at(&again, 0), u64_at(&first, 0))
}
