//! `serve --survive` with zones: a host appends while the server's processes die.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use nvme_spec::zoned::{ZoneSendAction, ZoneState};

use crate::every_kind::{Drive, pattern};
use crate::survive::replace;
use crate::world::World;

const CONFIG: &str = r#"
[[media]]
name = "zns"
MEDIUM
size = "64MiB"
[media.zoned]
zone_size = "4MiB"
zone_capacity = "3MiB"
max_open = 4
max_active = 6
[[namespace]]
name = "zns"
media = "zns"
[[controller]]
name = "zns"
namespaces = ["zns"]
listen = "vfio-user:zns.sock"
"#;
/// Blocks of a zone, and those of its capacity.
const ZONE: u64 = 1024;
const CAPACITY: u64 = 768;
/// Zones that the host fills, one after the other, again and again.
const FILLED: u64 = 3;

/// State, and where the write pointer is from the zone's start on.
fn zone(drive: &mut Drive, number: u64) -> (ZoneState, u64) {
    let (zone, _) = drive.zone(number * ZONE);
    (zone.state.zs(), zone.wp.wrapping_sub(zone.zslba))
}

/// Appends until `stop`; how many. Each goes where the last one ended: none was done twice or lost.
fn append_until(drive: &mut Drive, stop: &AtomicBool) -> u64 {
    let mut appended = 0;
    while !stop.load(Relaxed) {
        let number = appended / (CAPACITY / 2) % FILLED;
        let at = appended * 2 % CAPACITY;
        if at == 0 {
            drive.send(number * ZONE, ZoneSendAction::RESET);
        }
        let place = drive
            .append(number * ZONE, &pattern(appended as usize))
            .unwrap();
        assert_eq!(place, number * ZONE + at, "append {appended}");
        appended += 1;
    }
    appended
}

/// The last two blocks of each append that are still there, in the zone that is being filled.
fn check(drive: &mut Drive, appended: u64) {
    let last = appended - 1;
    let (number, in_zone) = (last / (CAPACITY / 2) % FILLED, last % (CAPACITY / 2));
    for back in 0..=in_zone {
        let bytes = drive.read(number * ZONE + 2 * (in_zone - back), 2);
        assert!(
            bytes == pattern((last - back) as usize),
            "append {}",
            last - back
        );
    }
    let (state, pointer) = zone(drive, number);
    let expected = 2 * (in_zone + 1);
    if expected == CAPACITY {
        assert_eq!(state, ZoneState::FULL);
    } else {
        assert_eq!((state, pointer), (ZoneState::IMPLICITLY_OPENED, expected));
        let behind = drive.read(number * ZONE + expected, 2);
        assert!(behind == vec![0; 8192], "behind the write pointer");
    }
}

fn survives(medium: &str) {
    survives_as(CONFIG, medium, CAPACITY);
}

/// `least`: appends that a host gets done in the time of four deaths.
fn survives_as(config: &str, medium: &str, least: u64) {
    let world = World::new();
    let config = world.write("config.toml", &config.replace("MEDIUM", medium));
    let mut server = world.serve(&["--survive", "--config", config.to_str().unwrap()]);
    let mut drive = Drive::attach(&world, "zns");
    // A state that no power cycle leaves: an open zone.
    drive.send(8 * ZONE, ZoneSendAction::OPEN);
    drive.append(9 * ZONE, &pattern(9)).unwrap();
    drive.send(9 * ZONE, ZoneSendAction::FINISH);
    let stop = AtomicBool::new(false);
    let appended = thread::scope(|scope| {
        let host = scope.spawn(|| append_until(&mut drive, &stop));
        for _ in 0..4 {
            replace(&mut server);
        }
        stop.store(true, Relaxed);
        host.join().unwrap()
    });
    assert!(appended > least, "{appended}");
    check(&mut drive, appended);
    assert_eq!(zone(&mut drive, 8), (ZoneState::EXPLICITLY_OPENED, 0));
    assert_eq!(zone(&mut drive, 9).0, ZoneState::FULL);
    assert!(drive.read(9 * ZONE, 2) == pattern(9));
    drop(drive);
    server.stop();
}

#[test]
fn zones_in_memory_go_on_when_their_process_dies() {
    survives("kind = \"ram\"");
}

/// The state file has the bytes and zones of a clean stop, whichever process loaded or saved them.
#[test]
fn zones_in_memory_are_saved_at_a_stop_by_the_process_that_is_there_then() {
    let world = World::new();
    let medium = "kind = \"ram\"\nstate = \"zns.state\"";
    let config = world.write("config.toml", &CONFIG.replace("MEDIUM", medium));
    let config = config.to_str().unwrap();
    let mut server = world.serve(&["--survive", "--config", config]);
    let mut drive = Drive::attach(&world, "zns");
    drive.append(0, &pattern(1)).unwrap();
    replace(&mut server);
    assert!(drive.read(0, 2) == pattern(1), "the file has none of it");
    let log = server.log();
    assert!(!log.contains("did not stop cleanly"), "{log}");
    drive.append(0, &pattern(2)).unwrap();
    drop(drive);
    server.stop();
    // The process that loads them dies, and then another one stops.
    let mut server = world.serve(&["--survive", "--config", config]);
    replace(&mut server);
    let mut drive = Drive::attach(&world, "zns");
    assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 4));
    assert!(drive.read(0, 2) == pattern(1) && drive.read(2, 2) == pattern(2));
    drive.append(0, &pattern(3)).unwrap();
    drop(drive);
    server.stop();
    let server = world.serve(&["--config", config]);
    let mut drive = Drive::attach(&world, "zns");
    assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 6));
    assert!(drive.read(4, 2) == pattern(3));
    drop(drive);
    server.stop();
}

#[test]
fn a_medium_that_is_created_again_is_new() {
    let world = World::new();
    let config = world.write("config.toml", &CONFIG.replace("MEDIUM", "kind = \"ram\""));
    let mut server = world.serve(&["--survive", "--config", config.to_str().unwrap()]);
    let mut drive = Drive::attach(&world, "zns");
    drive.append(0, &pattern(1)).unwrap();
    replace(&mut server);
    drive.append(0, &pattern(2)).unwrap();
    drop(drive);
    for kind in ["controller", "namespace", "media"] {
        world.ok(&world.steer(&["delete", kind, "zns"]));
    }
    let zoned = ["--zone-size", "4MiB", "--zone-capacity", "3MiB"];
    let media = ["create", "media", "zns", "--kind", "ram", "--size", "64MiB"];
    world.ok(&world.steer(&[&media[..], &zoned].concat()));
    world.ok(&world.steer(&["create", "namespace", "zns", "--media", "zns"]));
    let listen = world.vfio_user("zns.sock");
    let controller = [
        "create",
        "controller",
        "zns",
        "--namespaces",
        "zns",
        "--listen",
    ];
    world.ok(&world.steer(&[&controller[..], &[&listen]].concat()));
    let mut drive = Drive::attach(&world, "zns");
    assert_eq!(zone(&mut drive, 0), (ZoneState::EMPTY, 0));
    assert!(drive.read(0, 2) == vec![0; 8192]);
    drive.append(0, &pattern(3)).unwrap();
    replace(&mut server);
    assert!(drive.read(0, 2) == pattern(3));
    assert_eq!(zone(&mut drive, 0), (ZoneState::IMPLICITLY_OPENED, 2));
    drop(drive);
    server.stop();
}

#[test]
fn zones_with_a_timing_model_go_on_when_their_process_dies() {
    let timing = "[media.timing]\npreset = \"zns-prototype\"\nzone_size = \"4MiB\"\n\
                  zone_capacity = \"3MiB\"\n[[namespace]]";
    survives_as(
        &CONFIG.replace("[[namespace]]", timing),
        "kind = \"ram\"",
        50,
    );
}

#[test]
fn zones_in_a_file_go_on_when_their_process_dies() {
    survives("kind = \"file\"\npath = \"zns.img\"");
}
