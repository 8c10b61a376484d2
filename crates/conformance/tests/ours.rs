//! Our own controller against the specification: every medium, every way of
//! ringing, every test.
//!
//! The controller runs on the test's thread, in a time of its own; the program
//! itself, behind a socket, is tested in the same way by its own tests.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::sync::Arc;
use std::time::Duration;

use conformance::{Bench, Miss, Options, Outcome, Selection};
use controller::Controller;
use controller::config::{ControllerConfig, DoorbellMode, Interface};
use driver::Doorbells;
use loopback::InProcess;
use media::{Dialect, Direct, FileIo, Medium, MediumKind, MediumSpec, ZoneLoss, ZoneSpec};
use memory::DoorbellPages;
use port::namespace::Namespace;
use port::set::RandomAreas;
use port::{ChannelId, Channels};
use subsystem::{Subsystem, SubsystemConfig};

/// Bytes of the medium: half for each namespace.
const MEDIUM_LEN: u64 = 64 << 20;

/// Namespace 1 with blocks of 512 bytes, and 2 with blocks of 4096.
fn namespaces(medium: &Medium) -> Vec<Namespace> {
    let half = MEDIUM_LEN / 2;
    let namespace = |nsid: u8, lba_shift: u8| Namespace {
        nsid: nsid.into(),
        channel: ChannelId(0),
        start: u64::from(nsid - 1) * half,
        blocks: half >> lba_shift,
        lba_shift,
        nguid: [nsid; 16],
        eui64: [nsid; 8],
        traits: medium.traits(),
        restrictions: None,
        set: None,
    };
    vec![namespace(1, 9), namespace(2, 12)]
}

fn config(doorbells: DoorbellMode) -> ControllerConfig {
    ControllerConfig {
        name: "conformance".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S0001".into(),
        model_number: "conformance".into(),
        firmware_revision: "1.0".into(),
        subnqn: "nqn.2024-01.org.example:conformance".into(),
        queues: 4,
        queue_depth: 256,
        max_transfer: 4 << 20,
        doorbells,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

/// All of a medium, as the namespace of its command set.
fn whole(medium: &Medium) -> Vec<Namespace> {
    let set = medium.set();
    let has_blocks = set.as_ref().is_none_or(|set| set.has_blocks());
    vec![Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: if has_blocks { medium.size() >> 9 } else { 0 },
        lba_shift: 9,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set,
    }]
}

fn bench(kind: MediumKind, doorbells: Doorbells, nsid: u32) -> Bench {
    bench_of(kind, doorbells, nsid, namespaces)
}

fn bench_of(
    kind: MediumKind,
    doorbells: Doorbells,
    nsid: u32,
    namespaces: fn(&Medium) -> Vec<Namespace>,
) -> Bench {
    let mode = match doorbells {
        Doorbells::Auto | Doorbells::Mapped => DoorbellMode::Mapped,
        Doorbells::Shadow | Doorbells::Trapped => DoorbellMode::Unmapped,
    };
    let is_file = matches!(kind, MediumKind::File { .. });
    let medium = Medium::open(&MediumSpec { kind }).unwrap();
    let namespaces = namespaces(&medium);
    let mut channels = Channels::new();
    assert!(channels.insert(medium.channel(256).unwrap()).is_ok());
    let config = config(mode);
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces);
    // A namespace without blocks has a place all the same.
    for allocated in &mut subsystem.namespaces {
        if !allocated.namespace.has_blocks() {
            allocated.len = medium.size();
        }
    }
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
    let mapped = mode == DoorbellMode::Mapped;
    let bus = InProcess::new(controller, subsystem, pages, mapped, channels);
    // It sleeps where the host can wake it, so that EventIdx has a meaning.
    bus.set_sleeps(!mapped);
    // A file takes real time, however fast the bus's goes: about as long as a turn does.
    let (turn_ns, bound) = if is_file {
        (200, Duration::from_secs(20))
    } else {
        (1000, Duration::from_millis(500))
    };
    bus.set_turn_ns(turn_ns);
    let options = Options {
        doorbells,
        // In the bus's time.
        bound,
        quiet: Duration::from_millis(2),
        nsid: Some(nsid),
        ..Options::default()
    };
    Bench::new(Box::new(bus), &options).unwrap()
}

/// Tests that pass however the controller is made, each for a guard that it must have: were one of
/// them said to be not supported, nothing would notice.
const MUST_PASS: [&str; 18] = [
    "registers/ready_edges",
    "registers/shutdown_keeps_data",
    "pci/function_level_reset",
    "queues/laps",
    "queues/full_cq",
    "queues/full_cq_shared",
    "queues/bad_tail",
    "queues/head_past_posted",
    "interrupts/every_completion",
    "admin/event_request_limit",
    "features/saved_survives",
    "logs/effects_io",
    "logs/error_entry",
    "io/overflow",
    "io/namespaces_apart",
    "pointers/prp_list_chained",
    "pointers/prp_chain_offset",
    "errors/each_its_own",
];
/// Those of Doorbell Buffer Config, where doorbells are not mapped.
const MUST_PASS_UNMAPPED: [&str; 4] = [
    "doorbells/commands",
    "doorbells/admin_commands",
    "doorbells/late_wake",
    "doorbells/ends_with_reset",
];
/// Tests that pass at least.
const PASSED_MIN: usize = 330;

/// Runs every test; none may fail, and enough must pass.
fn judge(kind: MediumKind, doorbells: Doorbells, nsid: u32) {
    let mut bench = bench(kind, doorbells, nsid);
    let only: Vec<String> = std::env::var("CONFORMANCE_ONLY")
        .map(|names| names.split(',').map(str::to_owned).collect())
        .unwrap_or_default();
    let selection = Selection::of(&only).unwrap();
    let mut outcomes = Vec::new();
    conformance::run(&mut bench, &selection, &mut |outcome| {
        outcomes.push(outcome);
        true
    });
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            Err(Miss::Failed(why)) => Some(format!(
                "{}/{} ({}): {why}",
                outcome.chapter, outcome.name, outcome.section
            )),
            _ => None,
        })
        .collect();
    for outcome in &outcomes {
        if let Err(Miss::NotSupported(why)) = &outcome.verdict {
            println!("not supported: {}/{}: {why}", outcome.chapter, outcome.name);
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} tests fail:\n{}",
        failures.len(),
        outcomes.len(),
        failures.join("\n")
    );
    if only.is_empty() {
        expect_enough(&outcomes, doorbells);
    }
}

fn expect_enough(outcomes: &[Outcome], doorbells: Doorbells) {
    let passed: Vec<String> = outcomes
        .iter()
        .filter(|outcome| outcome.verdict.is_ok())
        .map(|outcome| format!("{}/{}", outcome.chapter, outcome.name))
        .collect();
    let unmapped = doorbells != Doorbells::Mapped;
    let more = MUST_PASS_UNMAPPED.iter().filter(|_| unmapped);
    for name in MUST_PASS.iter().chain(more) {
        assert!(
            passed.iter().any(|other| other == name),
            "{name} was not done"
        );
    }
    let count = passed.len();
    assert!(
        count >= PASSED_MIN,
        "{count} tests passed, {PASSED_MIN} are the least"
    );
}

/// All of a medium of zones, of which it has lost three.
fn worn(medium: &Medium) -> Vec<Namespace> {
    for (zone, to) in [
        (0, ZoneLoss::Offline),
        (3, ZoneLoss::ReadOnly),
        (9, ZoneLoss::ReadOnly),
    ] {
        medium.lose_zone(zone, to).unwrap();
    }
    whole(medium)
}

/// Runs the tests of a chapter that namespaces of another command set have: all pass but those that
/// are named, which are not supported.
fn judge_set(kind: MediumKind, chapter: &str, without: &[&str]) {
    judge_namespaces(kind, chapter, without, whole);
}

fn judge_namespaces(
    kind: MediumKind,
    chapter: &str,
    without: &[&str],
    namespaces: fn(&Medium) -> Vec<Namespace>,
) {
    let mut bench = bench_of(kind, Doorbells::Mapped, 1, namespaces);
    let selection = Selection::of(&[chapter.to_owned()]).unwrap();
    let mut passed = 0;
    let mut failures = Vec::new();
    conformance::run(&mut bench, &selection, &mut |outcome| {
        let unsupported = matches!(outcome.verdict, Err(Miss::NotSupported(_)));
        match &outcome.verdict {
            _ if without.contains(&outcome.name) != unsupported => {
                failures.push(format!("{}: {:?}", outcome.name, outcome.verdict));
            }
            Err(Miss::Failed(why)) => failures.push(format!("{}: {why}", outcome.name)),
            Err(Miss::NotApplicable(why)) => failures.push(format!("{}: {why}", outcome.name)),
            Err(Miss::NotSupported(_)) => {}
            Ok(()) => passed += 1,
        }
        true
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(passed + without.len(), selection.tests().count());
}

#[test]
fn keys_and_values() {
    let kind = MediumKind::KeyValue {
        path: None,
        size: 16 << 20,
        keys: None,
        dialect: Dialect::Nvme,
    };
    judge_set(kind, "key_value", &[]);
}

/// Sixteen zones of 1 MiB, of which 768 KiB can be written.
const ZONES: ZoneSpec = ZoneSpec {
    zone_size: 1 << 20,
    zone_capacity: 768 << 10,
    max_open: 4,
    max_active: 6,
    descriptor_extension: 64,
    append_limit: 64 << 10,
    random: Some(RandomAreas {
        bytes: 64 << 10,
        granularity: 16 << 10,
        zones: 3,
    }),
};

fn zoned(zones: ZoneSpec) -> MediumKind {
    MediumKind::Zoned {
        of: Box::new(MediumKind::Ram { size: 16 << 20 }),
        zones,
    }
}

#[test]
fn zones() {
    // All but those of drives without extensions and random write areas, and with lost zones.
    let without = ["extension_refused", "random_refused"];
    judge_set(zoned(ZONES), "zones", &[&without[..], &LOST].concat());
}

/// Tests of lost zones.
const LOST: [&str; 6] = [
    "read_only_data",
    "offline_data",
    "lost_actions",
    "lost_select_all",
    "lost_random",
    "lost_reports",
];

#[test]
fn zones_of_which_some_were_given_up() {
    let without = ["extension_refused", "random_refused"];
    judge_namespaces(zoned(ZONES), "zones", &without, worn);
}

/// Zones without limits or options: what is about these is not supported, and nothing else.
#[test]
fn zones_without_options() {
    let plain = ZoneSpec {
        zone_capacity: 1 << 20,
        max_open: 0,
        max_active: 0,
        descriptor_extension: 0,
        append_limit: 0,
        random: None,
        ..ZONES
    };
    let without = [
        "open_limit",
        "implicit_room",
        "active_limit",
        "append_limit",
        "extension",
        "random_identify",
        "random_order",
        "random_implicit",
        "random_explicit",
        "random_flush_refused",
        "random_outside",
        "random_empty_only",
        "random_limit",
        "random_append",
    ];
    judge_set(zoned(plain), "zones", &[&without[..], &LOST].concat());
}

fn ram() -> MediumKind {
    MediumKind::Ram { size: MEDIUM_LEN }
}

#[test]
fn ram_with_mapped_doorbells() {
    judge(ram(), Doorbells::Mapped, 1);
}

#[test]
fn ram_with_shadow_doorbells() {
    judge(ram(), Doorbells::Shadow, 1);
}

#[test]
fn ram_with_trapped_doorbells() {
    judge(ram(), Doorbells::Trapped, 1);
}

#[test]
fn ram_with_large_blocks() {
    judge(ram(), Doorbells::Mapped, 2);
}

#[test]
fn a_file() {
    let folder = tempfile::tempdir().unwrap();
    let kind = MediumKind::File {
        path: folder.path().join("disk.img"),
        size: Some(MEDIUM_LEN),
        direct: Direct::Auto,
        io: FileIo::default(),
    };
    judge(kind, Doorbells::Mapped, 1);
}
