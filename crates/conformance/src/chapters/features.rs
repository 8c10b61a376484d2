//! Get Features and Set Features (Base 2.1, 5.1.11 and 5.1.25).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Feature, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes, zero};
use crate::wire::{Sqe, status, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "features",
    title: "Features: values, scopes, saving",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    mandatory, "Base 2.1, 3.1.3.6", "every I/O controller has Arbitration, Power Management, Temperature Threshold, Error Recovery, Number of Queues, interrupt features and event configuration";
    unknown_get, "Base 2.1, 5.1.11", "Get Features of a reserved feature is refused (002h)";
    unknown_set, "Base 2.1, 5.1.25", "Set Features of a reserved feature is refused (002h)";
    reserved_select, "Base 2.1, 5.1.11", "Get Features with a reserved Select is refused (002h)";
    capabilities, "Base 2.1, 5.1.11", "the supported capabilities of each feature have no reserved bits";
    default_after_reset, "Base 2.1, 4.4", "after a reset each feature has its saved value, which is its default where it cannot be saved";
    not_saveable, "Base 2.1, 5.1.25", "saving a feature that is not saveable is refused (10Dh), and changes nothing";
    saved_survives, "Base 2.1, 4.4", "a value that was saved is there after a reset, the default stays, and a value that was not saved is gone", pcie why::CONTROLLER;
    not_changeable, "Base 2.1, 5.1.25", "setting a feature that is not changeable is refused (10Eh)";
    not_namespace_specific, "Base 2.1, 5.1.25", "setting a feature of the controller for one namespace is refused (10Fh)";
    namespace_specific, "Base 2.1, 5.1.25", "features of namespaces are kept for each, and FFFFFFFFh sets all";
    without_namespace, "NVM 1.1, 4.1.3", "Get Features, Error Recovery, without an NSID is refused, or returns the value of all namespaces";
    bad_namespace, "Base 2.1, 5.1.25", "a feature of namespaces for an NSID beyond NN is refused (00Bh)";
    arbitration, "Base 2.1, 5.1.25.1.1", "Arbitration reads back burst and weights";
    power_management, "Base 2.1, 5.1.25.1.2", "every power state there is can be chosen, one that is not is refused (002h)";
    temperature_values, "Base 2.1, 5.1.25.1.3", "thresholds of the composite temperature read back, over and under apart";
    temperature_selectors, "Base 2.1, 5.1.25.1.3", "a reserved threshold type, or a sensor that is not there, is refused (002h)";
    temperature_event, "Base 2.1, 5.1.2", "a temperature beyond its threshold is an event and a critical warning, until it is not";
    temperature_event_masked, "Base 2.1, 5.1.25.1.5", "no event comes for a critical warning that the host has not enabled";
    error_recovery, "NVM 1.1, 4.1.3", "Error Recovery reads back its time limit";
    error_recovery_dulbe, "NVM 1.1, 4.1.3", "enabling errors for deallocated blocks is refused (002h) where NSFEAT does not have them";
    volatile_write_cache, "Base 2.1, 5.1.25.1.4", "the volatile write cache can be turned off and on, where there is one, and data stays";
    volatile_write_cache_absent, "Base 2.1, 5.1.25.1.4", "without a volatile write cache its feature is refused (002h)";
    number_of_queues, "Base 2.1, 5.1.25.2.1", "Number of Queues grants one of each at least, and reads back what it granted";
    number_of_queues_reserved, "Base 2.1, 5.1.25.2.1", "asking for FFFFh queues is refused (002h)";
    number_of_queues_late, "Base 2.1, 5.1.25.2.1", "Number of Queues cannot be changed once an I/O queue exists (00Ch)";
    number_of_queues_one, "Base 2.1, 5.1.25.2.1", "asking for one queue of each is granted, and one pair works";
    coalescing, "Base 2.1, 5.1.25.2.2", "Interrupt Coalescing reads back threshold and time", pcie why::INTERRUPTS;
    vector_configuration, "Base 2.1, 5.1.25.2.3", "Interrupt Vector Configuration is kept for each vector", pcie why::INTERRUPTS;
    vector_configuration_bad, "Base 2.1, 5.1.25.2.3", "Interrupt Vector Configuration of a vector that is not there is refused (002h)", pcie why::INTERRUPTS;
    write_atomicity, "NVM 1.1, 4.1.3", "Write Atomicity Normal reads back Disable Normal";
    event_configuration, "Base 2.1, 5.1.25.1.5", "Asynchronous Event Configuration reads back the critical warnings and the notices that OAES has";
    timestamp, "Base 2.1, 5.1.25.1.7", "the timestamp goes on from what was set, and says where it came from";
    timestamp_after_reset, "Base 2.1, 5.1.25.1.7", "after a reset the timestamp says that it counts from there, or keeps what was set", pcie why::CONTROLLER;
    host_behavior, "Base 2.1, 5.1.25.1.14", "Host Behavior Support reads back, and refuses values that are no booleans (002h)";
    keep_alive_timer, "Base 2.1, 5.1.25.1.8", "the Keep Alive Timer reads back, rounded up to its granularity, where KAS has one";
    host_identifier, "Base 2.1, 5.1.25.1.28", "the Host Identifier reads back, in the sizes that CTRATT has", pcie why::IDENTIFIER;
    no_buffer_needed, "Base 2.1, 5.1.11", "features without a data structure leave the data buffer alone", pcie why::PRPS;
];

/// Features whose value is dword 0 alone, with a value that each can have and
/// that is not its default.
const PLAIN: &[(u32, u32)] = &[
    (0x01, 0x0102_0303),
    (0x02, 0x0000_0020),
    (0x05, 0x0000_1234),
    (0x08, 0x0000_0405),
    (0x0a, 0x0000_0001),
    (0x0b, 0x0000_001f),
];

/// NSID to use with a feature: the first active namespace for those of
/// namespaces.
fn scope(bench: &mut Bench, fid: u32) -> Verdict<u32> {
    match fid {
        0x05 => Ok(bench.ns()?.nsid),
        _ => Ok(0),
    }
}

/// Those features that a controller has: interrupts are PCIe's.
fn applicable(bench: &Bench, fids: &[u32]) -> Vec<u32> {
    let all = fids.iter().copied();
    let over_fabrics = bench.is_over_fabrics();
    all.filter(|fid| !(over_fabrics && matches!(fid, 0x08 | 0x09)))
        .collect()
}

/// Those of [`PLAIN`] that a controller has.
fn plain(bench: &Bench) -> Vec<(u32, u32)> {
    let fids: Vec<u32> = PLAIN.iter().map(|(fid, _)| *fid).collect();
    let applicable = applicable(bench, &fids);
    let all = PLAIN.iter().copied();
    all.filter(|(fid, _)| applicable.contains(fid)).collect()
}

fn mandatory(bench: &mut Bench) -> Verdict {
    let all = [0x01, 0x02, 0x04, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b];
    for fid in applicable(bench, &all) {
        let nsid = scope(bench, fid)?;
        bench.get_feature(fid, Feature::Current, nsid)?.ok()?;
    }
    Ok(())
}

const RESERVED: [u32; 3] = [0x00, 0x6f, 0xbf];

fn unknown_get(bench: &mut Bench) -> Verdict {
    for fid in RESERVED {
        bench
            .get_feature(fid, Feature::Current, 0)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn unknown_set(bench: &mut Bench) -> Verdict {
    for fid in RESERVED {
        bench
            .set_feature(fid, 0, 0)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

/// Not supported without Save and Select (ONCS bit 4).
fn needs_select(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(4, "Save and Select Feature Support")
}

fn reserved_select(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    for sel in 4..8 {
        let sqe = Sqe::new(0x0a).dw(10, sel << 8 | 0x01);
        bench.admin(sqe)?.expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

/// Supported capabilities: bit 0 saveable, bit 1 of namespaces, bit 2
/// changeable; `None` for a feature that is not there.
fn capabilities_of(bench: &mut Bench, fid: u32) -> Verdict<Option<u32>> {
    let nsid = scope(bench, fid)?;
    let cqe = bench.get_feature(fid, Feature::Supported, nsid)?;
    Ok(cqe.is_success().then(|| cqe.dw0()))
}

fn capabilities(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    for fid in 0x01..0xc0 {
        if let Some(found) = capabilities_of(bench, fid)? {
            let what = format!("feature {fid:02x}h, supported capabilities 31:3");
            same(&what, found >> 3, 0)?;
        }
    }
    for (fid, of_namespaces) in [(0x01, 0), (0x02, 0), (0x05, 1), (0x07, 0), (0x0b, 0)] {
        let Some(found) = capabilities_of(bench, fid)? else {
            return crate::verdict::fail(format!("feature {fid:02x}h reports no capabilities"));
        };
        let what = format!("feature {fid:02x}h, of namespaces");
        same(&what, found >> 1 & 1, of_namespaces)?;
    }
    Ok(())
}

fn default_after_reset(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    for (fid, _) in plain(bench) {
        let nsid = scope(bench, fid)?;
        let current = bench.get_feature(fid, Feature::Current, nsid)?.ok()?.dw0();
        let saved = bench.get_feature(fid, Feature::Saved, nsid)?.ok()?.dw0();
        let what = format!("feature {fid:02x}h after a reset, against its saved value");
        same(&what, current, saved)?;
        let saveable = capabilities_of(bench, fid)?.unwrap_or(0) & 1 == 1;
        if !saveable {
            let default = bench.get_feature(fid, Feature::Default, nsid)?.ok()?.dw0();
            let what = format!("feature {fid:02x}h, not saveable: saved against default");
            same(&what, saved, default)?;
        }
    }
    Ok(())
}

fn set_and_save(bench: &mut Bench, fid: u32, nsid: u32, value: u32) -> Verdict<crate::wire::Cqe> {
    let sqe = Sqe::new(0x09).nsid(nsid).dw(10, 1 << 31 | fid);
    bench.admin(sqe.dw(11, value))
}

fn not_saveable(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    let mut any = false;
    for (fid, value) in plain(bench) {
        if capabilities_of(bench, fid)?.is_none_or(|found| found & 1 == 1) {
            continue;
        }
        any = true;
        let nsid = scope(bench, fid)?;
        let before = bench.get_feature(fid, Feature::Current, nsid)?.ok()?.dw0();
        set_and_save(bench, fid, nsid, value)?.expect(status::NOT_SAVEABLE)?;
        let after = bench.get_feature(fid, Feature::Current, nsid)?.ok()?.dw0();
        same(
            &format!("feature {fid:02x}h after it was refused"),
            after,
            before,
        )?;
    }
    if any {
        Ok(())
    } else {
        not_supported("every feature that is tried is saveable")
    }
}

fn saved_survives(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    let mut any = false;
    for (fid, value) in plain(bench) {
        // Saveable and changeable.
        if capabilities_of(bench, fid)?.is_none_or(|found| found & 0b101 != 0b101) {
            continue;
        }
        any = true;
        let nsid = scope(bench, fid)?;
        let get = |bench: &mut Bench, which: Feature| -> Verdict<u32> {
            let cqe = bench.get_feature(fid, which, nsid)?.ok()?;
            Ok(cqe.dw0())
        };
        let default: u32 = get(bench, Feature::Default)?;
        let saved_before: u32 = get(bench, Feature::Saved)?;
        set_and_save(bench, fid, nsid, value)?.ok()?;
        let what = |when: &str| format!("feature {fid:02x}h, {when}");
        let saved: Verdict<u32> = get(bench, Feature::Saved);
        // Not saved: it must not survive.
        bench.set_feature(fid, nsid, default)?.ok()?;
        bench.start()?;
        let current: Verdict<u32> = get(bench, Feature::Current);
        let default_after: Verdict<u32> = get(bench, Feature::Default);
        set_and_save(bench, fid, nsid, saved_before)?.ok()?;
        same(&what("saved value after saving"), saved?, value)?;
        same(&what("current value after a reset"), current?, value)?;
        same(&what("default after saving"), default_after?, default)?;
        same(
            &what("saved value put back"),
            get(bench, Feature::Saved)?,
            saved_before,
        )?;
    }
    if any {
        Ok(())
    } else {
        not_supported("no feature that is tried is saveable")
    }
}

fn not_changeable(bench: &mut Bench) -> Verdict {
    needs_select(bench)?;
    let mut any = false;
    for (fid, value) in plain(bench) {
        if capabilities_of(bench, fid)?.is_none_or(|found| found & 0b100 != 0) {
            continue;
        }
        any = true;
        let nsid = scope(bench, fid)?;
        bench
            .set_feature(fid, nsid, value)?
            .expect(status::NOT_CHANGEABLE)?;
    }
    if any {
        Ok(())
    } else {
        not_supported("every feature that is tried is changeable")
    }
}

fn not_namespace_specific(bench: &mut Bench) -> Verdict {
    let nsid = bench.ns()?.nsid;
    for fid in applicable(bench, &[0x01, 0x02, 0x08, 0x0b]) {
        bench
            .set_feature(fid, nsid, 0)?
            .expect(status::NOT_NAMESPACE_SPECIFIC)?;
    }
    Ok(())
}

fn namespace_specific(bench: &mut Bench) -> Verdict {
    let active = bench.active()?;
    let get = |bench: &mut Bench, nsid: u32| -> Verdict<u32> {
        let cqe = bench.get_feature(0x05, Feature::Current, nsid)?.ok()?;
        Ok(cqe.dw0())
    };
    for (value, &nsid) in (0x100..).zip(&active) {
        bench.set_feature(0x05, nsid, value)?.ok()?;
    }
    for (value, &nsid) in (0x100..).zip(&active) {
        let found: u32 = get(bench, nsid)?;
        same(&format!("Error Recovery of namespace {nsid}"), found, value)?;
    }
    bench.set_feature(0x05, 0xffff_ffff, 0x77)?.ok()?;
    for &nsid in &active {
        let found: u32 = get(bench, nsid)?;
        let what = format!("Error Recovery of namespace {nsid} after it was set for all");
        same(&what, found, 0x77)?;
    }
    Ok(())
}

fn without_namespace(bench: &mut Bench) -> Verdict {
    bench.set_feature(0x05, 0xffff_ffff, 0x66)?.ok()?;
    let cqe = bench.get_feature(0x05, Feature::Current, 0)?;
    match cqe.status() {
        status::SUCCESS => same("Error Recovery of all namespaces", cqe.dw0(), 0x66),
        _ => cqe.expect(status::INVALID_NAMESPACE).map(drop),
    }
}

fn bad_namespace(bench: &mut Bench) -> Verdict {
    let nn = u32_at(&bench.controller()?, 516);
    let nsid = nn.saturating_add(1);
    bench
        .set_feature(0x05, nsid, 0)?
        .expect(status::INVALID_NAMESPACE)?;
    bench
        .get_feature(0x05, Feature::Current, nsid)?
        .expect(status::INVALID_NAMESPACE)
        .map(drop)
}

/// Sets a value for the controller and expects to read this one.
fn keeps(bench: &mut Bench, fid: u32, value: u32, expected: u32) -> Verdict {
    bench.set_feature(fid, 0, value)?.ok()?;
    let found = bench.get_feature(fid, Feature::Current, 0)?.ok()?.dw0();
    same(
        &format!("feature {fid:02x}h, set to {value:#x}"),
        found,
        expected,
    )
}

fn arbitration(bench: &mut Bench) -> Verdict {
    // Weights in the upper bytes, burst in bits 2:0; bits 7:3 are reserved.
    for value in [0x1e14_0a03, 0xffff_ff07, 0] {
        keeps(bench, 0x01, value, value)?;
    }
    Ok(())
}

fn power_management(bench: &mut Bench) -> Verdict {
    let npss = u32::from(u8_at(&bench.controller()?, 263));
    for state in 0..=npss {
        keeps(bench, 0x02, state, state)?;
    }
    // A workload hint, in bits 7:5.
    keeps(bench, 0x02, 0b010 << 5, 0b010 << 5)?;
    keeps(bench, 0x02, 0, 0)?;
    if npss < 31 {
        bench
            .set_feature(0x02, 0, npss + 1)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

const OVER: u32 = 0;
const UNDER: u32 = 1 << 20;

fn threshold(bench: &mut Bench, selector: u32) -> Verdict<u32> {
    let cqe = bench.get_feature_with(0x04, Feature::Current, 0, selector)?;
    Ok(cqe.ok()?.dw0() & 0xffff)
}

fn temperature_values(bench: &mut Bench) -> Verdict {
    bench.set_feature(0x04, 0, OVER | 0x0190)?.ok()?;
    bench.set_feature(0x04, 0, UNDER | 0x0100)?.ok()?;
    same(
        "over temperature threshold",
        threshold(bench, OVER)?,
        0x0190,
    )?;
    same(
        "under temperature threshold",
        threshold(bench, UNDER)?,
        0x0100,
    )
}

fn temperature_selectors(bench: &mut Bench) -> Verdict {
    for kind in [0b10, 0b11] {
        bench
            .set_feature(0x04, 0, kind << 20 | 300)?
            .expect(status::INVALID_FIELD)?;
    }
    let smart = bench.log(0x02, 512)?;
    // A sensor that reports 0 is not there; 9h to Eh are reserved.
    let absent = (1..=8).find(|n| u16_at(&smart, 198 + 2 * n) == 0);
    for sensor in absent.into_iter().chain([9, 14]) {
        let sensor = u32::try_from(sensor).expect("it is small");
        bench
            .set_feature(0x04, 0, sensor << 16 | 300)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn temperature_event(bench: &mut Bench) -> Verdict {
    bench.set_feature(0x0b, 0, 0x1f)?.ok()?;
    let smart = bench.log(0x02, 512)?;
    let now = u32::from(u16_at(&smart, 1));
    check(now > 1, || format!("the composite temperature is {now} K"))?;
    same("critical warning before", u8_at(&smart, 0) & 0b10, 0)?;
    let request = bench.request_event()?;
    bench.set_feature(0x04, 0, OVER | (now - 1))?.ok()?;
    let dw0 = bench.event(request)?;
    same("event type (SMART / health)", dw0 & 0b111, 1)?;
    same("event information (temperature)", dw0 >> 8 & 0xff, 1)?;
    same("log page", dw0 >> 16 & 0xff, 0x02)?;
    let smart = bench.log(0x02, 512)?;
    same(
        "critical warning, temperature",
        u8_at(&smart, 0) & 0b10,
        0b10,
    )?;
    bench.set_feature(0x04, 0, OVER | 0xffff)?.ok()?;
    let smart = bench.log(0x02, 512)?;
    same("critical warning after", u8_at(&smart, 0) & 0b10, 0)?;
    // The same from below.
    let request = bench.request_event()?;
    bench.set_feature(0x04, 0, UNDER | (now + 1))?.ok()?;
    let dw0 = bench.event(request)?;
    same("event information (temperature, under)", dw0 >> 8 & 0xff, 1)
}

fn temperature_event_masked(bench: &mut Bench) -> Verdict {
    bench.set_feature(0x0b, 0, 0)?.ok()?;
    let request = bench.request_event()?;
    bench.set_feature(0x04, 0, OVER | 1)?.ok()?;
    let came = bench.admin_completes(request)?;
    check(!came, || {
        "an event came that the host has not enabled".into()
    })
}

fn error_recovery(bench: &mut Bench) -> Verdict {
    let nsid = bench.ns()?.nsid;
    for value in [0x1234, 0xffff, 0] {
        bench.set_feature(0x05, nsid, value)?.ok()?;
        let found = bench.get_feature(0x05, Feature::Current, nsid)?.ok()?;
        same("Error Recovery, time limit", found.dw0(), value)?;
    }
    Ok(())
}

fn error_recovery_dulbe(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    if u8_at(&ns.identity, 24) >> 2 & 1 == 1 {
        bench.set_feature(0x05, ns.nsid, 1 << 16)?.ok()?;
        let found = bench.get_feature(0x05, Feature::Current, ns.nsid)?.ok()?;
        return same("Error Recovery, DULBE", found.dw0() >> 16, 1);
    }
    bench
        .set_feature(0x05, ns.nsid, 1 << 16)?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn has_cache(bench: &mut Bench) -> Verdict<bool> {
    Ok(u8_at(&bench.controller()?, 525) & 1 == 1)
}

fn volatile_write_cache(bench: &mut Bench) -> Verdict {
    if !has_cache(bench)? {
        return not_supported("VWC bit 0: there is no volatile write cache");
    }
    let (ns, mut pair) = bench.io()?;
    for (value, seed) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        keeps(bench, 0x06, value, value)?;
        let data = pattern(ns.block_len * 2, seed);
        bench.write_blocks(&mut pair, &ns, 5, &data)?;
        let found = bench.read_blocks(&mut pair, &ns, 5, 2)?;
        same_bytes("data with the cache changed", &found, &data)?;
    }
    Ok(())
}

fn volatile_write_cache_absent(bench: &mut Bench) -> Verdict {
    if has_cache(bench)? {
        return not_supported("VWC bit 0: there is a volatile write cache");
    }
    bench
        .get_feature(0x06, Feature::Current, 0)?
        .expect(status::INVALID_FIELD)?;
    bench
        .set_feature(0x06, 0, 1)?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn number_of_queues(bench: &mut Bench) -> Verdict {
    let (sqs, cqs) = bench.grant()?;
    let found = bench.get_feature(0x07, Feature::Current, 0)?.ok()?.dw0();
    same("Number of Queues", found, (cqs - 1) << 16 | (sqs - 1))
}

fn number_of_queues_reserved(bench: &mut Bench) -> Verdict {
    for value in [0xffff_0000, 0x0000_ffff, 0xffff_ffff] {
        bench
            .set_feature(0x07, 0, value)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn number_of_queues_late(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    bench
        .set_feature(0x07, 0, 0)?
        .expect(status::SEQUENCE_ERROR)
        .map(drop)
}

fn number_of_queues_one(bench: &mut Bench) -> Verdict {
    let granted = bench.set_feature(0x07, 0, 0)?.ok()?.dw0();
    // A controller may grant more than was asked for.
    check(granted & 0xffff < 0xffff && granted >> 16 < 0xffff, || {
        format!("Number of Queues granted {granted:#x}")
    })?;
    let again = bench.get_feature(0x07, Feature::Current, 0)?.ok()?.dw0();
    same("Number of Queues", again, granted)
}

fn coalescing(bench: &mut Bench) -> Verdict {
    for value in [0x0a05, 0xffff, 0] {
        keeps(bench, 0x08, value, value)?;
    }
    Ok(())
}

fn vector_configuration(bench: &mut Bench) -> Verdict {
    let vectors = u32::from(bench.bus().vectors());
    if vectors < 2 {
        return not_supported("the target has fewer than two vectors");
    }
    let odd = |vector: u32| (vector % 2) << 16;
    for vector in 0..vectors {
        bench.set_feature(0x09, 0, odd(vector) | vector)?.ok()?;
    }
    for vector in 0..vectors {
        let cqe = bench.get_feature_with(0x09, Feature::Current, 0, vector)?;
        let what = format!("Interrupt Vector Configuration of {vector}");
        same(&what, cqe.ok()?.dw0(), odd(vector) | vector)?;
    }
    Ok(())
}

fn vector_configuration_bad(bench: &mut Bench) -> Verdict {
    let vectors = u32::from(bench.bus().vectors());
    for vector in [vectors, 0xffff] {
        bench
            .set_feature(0x09, 0, vector)?
            .expect(status::INVALID_FIELD)?;
        bench
            .get_feature_with(0x09, Feature::Current, 0, vector)?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn write_atomicity(bench: &mut Bench) -> Verdict {
    for value in [1, 0] {
        keeps(bench, 0x0a, value, value)?;
    }
    Ok(())
}

fn event_configuration(bench: &mut Bench) -> Verdict {
    let oaes = u32_at(&bench.controller()?, 92);
    // Notices of OAES have the same bits in the configuration; discovery and
    // the upper ones are not an I/O controller's.
    let notices = oaes & 0x0000_ff00;
    for value in [0x1f | notices, 0x0a, notices, 0] {
        keeps(bench, 0x0b, value, value)?;
    }
    Ok(())
}

fn timestamp(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(6, "Timestamp")?;
    let set: u64 = 0x0123_4567_89ab;
    bench.set_feature_data(0x0e, 0, &set.to_le_bytes())?.ok()?;
    let data = bench.get_feature_data(0x0e, Feature::Current, 8)?;
    let found = u64_at(&data, 0) & 0xffff_ffff_ffff;
    // A minute is more than any of this takes.
    check((set..set + 60_000).contains(&found), || {
        format!("the timestamp was set to {set} ms and reads {found} ms")
    })?;
    same(
        "timestamp origin: set by Set Features",
        data[6] >> 1 & 0b111,
        0b001,
    )?;
    same("reserved byte 7", data[7], 0)?;
    bench.pass(std::time::Duration::from_millis(3))?;
    let later = bench.get_feature_data(0x0e, Feature::Current, 8)?;
    let later = u64_at(&later, 0) & 0xffff_ffff_ffff;
    check(later > found, || {
        format!("the timestamp stands still at {found} ms")
    })
}

fn timestamp_after_reset(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(6, "Timestamp")?;
    let set: u64 = 0x0123_4567_89ab;
    bench.set_feature_data(0x0e, 0, &set.to_le_bytes())?.ok()?;
    bench.start()?;
    let data = bench.get_feature_data(0x0e, Feature::Current, 8)?;
    let found = u64_at(&data, 0) & 0xffff_ffff_ffff;
    match data[6] >> 1 & 0b111 {
        // It counts from the reset.
        0b000 => check(found < set, || {
            format!("the timestamp reads {found} ms and claims to count from the reset")
        }),
        0b001 => check(found >= set, || {
            format!("the timestamp reads {found} ms and claims to go on from {set} ms")
        }),
        other => same("timestamp origin", other, 0),
    }
}

fn host_behavior(bench: &mut Bench) -> Verdict {
    let before = bench.get_feature(0x16, Feature::Current, 0)?;
    if before.status() == status::INVALID_FIELD {
        return not_supported("there is no Host Behavior Support");
    }
    let data = bench.get_feature_data(0x16, Feature::Current, 512)?;
    zero("Host Behavior Support, reserved bytes", &data[8..])?;
    // Advanced Command Retry Enable.
    for acre in [1, 0] {
        let mut data = vec![0; 512];
        data[0] = acre;
        bench.set_feature_data(0x16, 0, &data)?.ok()?;
        let found = bench.get_feature_data(0x16, Feature::Current, 512)?;
        same_bytes("Host Behavior Support", &found, &data)?;
    }
    let mut data = vec![0; 512];
    data[0] = 2;
    bench
        .set_feature_data(0x16, 0, &data)?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn keep_alive_timer(bench: &mut Bench) -> Verdict {
    // KAS: granularity in units of 100 ms.
    let granularity = u32::from(u16_at(&bench.controller()?, 320)) * 100;
    if granularity == 0 {
        return not_supported("KAS is 0: there is no Keep Alive");
    }
    bench.set_feature(0x0f, 0, 3_600_001)?.ok()?;
    let found = bench.get_feature(0x0f, Feature::Current, 0)?.ok()?.dw0();
    check(
        (3_600_001..3_600_001 + granularity).contains(&found),
        || {
            format!(
                "the Keep Alive Timer was set to 3600001 ms and reads {found} ms, in steps of {granularity} ms"
            )
        },
    )?;
    bench.admin(Sqe::new(0x18))?.ok()?;
    bench.set_feature(0x0f, 0, 0)?.ok()?;
    let found = bench.get_feature(0x0f, Feature::Current, 0)?.ok()?.dw0();
    same("Keep Alive Timer, disabled", found, 0)
}

fn host_identifier(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(5, "Reservations")?;
    let extended = u32_at(&bench.controller()?, 96) & 1 == 1;
    let id = pattern(16, 0x81);
    let len = if extended { 16 } else { 8 };
    let exhid = u32::from(extended);
    bench.set_feature_data(0x81, exhid, &id[..len])?.ok()?;
    let page = bench.mem(4096)?;
    let sqe = Sqe::new(0x0a)
        .prps((page.iova(), 0))
        .dw(10, 0x81)
        .dw(11, exhid);
    bench.admin(sqe)?.ok()?;
    same_bytes("Host Identifier", &page.bytes(0, len), &id[..len])
}

fn no_buffer_needed(bench: &mut Bench) -> Verdict {
    let page = bench.mem(4096)?;
    page.fill(0xa5);
    for fid in [0x01, 0x07, 0x0b] {
        let sqe = Sqe::new(0x0a).prps((page.iova(), 0)).dw(10, fid);
        bench.admin(sqe)?.ok()?;
        // Nor is a pointer looked at.
        bench.admin(sqe.prps((u64::MAX, u64::MAX)))?.ok()?;
    }
    check(page.bytes(0, 4096).iter().all(|b| *b == 0xa5), || {
        "a feature without data was written to the buffer".into()
    })
}
