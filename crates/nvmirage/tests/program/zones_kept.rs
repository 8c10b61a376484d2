//! Zones on a file: over the death of their server, over a clean stop, and what a server says that
//! cannot take them.

use std::fs;

use nvme_spec::zoned::{ZoneSendAction, ZoneState};
use rustix::process::Signal;

use crate::every_kind::{Drive, pattern};
use crate::kept::wait_for_unlock;
use crate::world::{Server, World};

const CONFIG: &str = r#"
[[media]]
name = "zns"
kind = "file"
path = "zns.img"
size = "16MiB"
[media.zoned]
zone_size = "2MiB"
zone_capacity = "1152KiB"
max_active = 4
[[namespace]]
name = "zns"
media = "zns"
[[controller]]
name = "zns"
namespaces = ["zns"]
listen = "vfio-user:zns.sock"
"#;
/// With a timing model.
const TIMING: &str = r#"
[media.timing]
preset = "zns-prototype"
zone_size = "2MiB"
zone_capacity = "1152KiB"
[[namespace]]"#;
/// Blocks of a zone.
const ZONE: u64 = 512;

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// State, and where the write pointer is from the zone's start on.
fn zone(drive: &mut Drive, number: u64) -> (ZoneState, u64) {
    let (zone, _) = drive.zone(number * ZONE);
    (zone.state.zs(), zone.wp.wrapping_sub(zone.zslba))
}

#[test]
fn what_was_flushed_survives_the_death_of_the_server() {
    let timed = CONFIG.replace("[[namespace]]", TIMING);
    for config in [CONFIG, &timed] {
        let world = World::new();
        let image = world.path("zns.img");
        for life in 0..4 {
            let server = serve(&world, config);
            let mut drive = Drive::attach(&world, "zns");
            if life == 0 {
                drive.append(2 * ZONE, &pattern(77)).unwrap();
                drive.send(2 * ZONE, ZoneSendAction::FINISH);
            } else {
                check(&mut drive, life);
            }
            let appended = drive.append(0, &pattern(life as usize)).unwrap();
            assert_eq!(appended, 2 * life);
            drive.append(ZONE, &pattern(5)).unwrap();
            drive.flush();
            drive.send(ZONE, ZoneSendAction::RESET);
            drive.append(3 * ZONE, &pattern(6)).unwrap();
            server.signal(Signal::KILL);
            server.end();
            wait_for_unlock(&image);
        }
    }
}

/// State that this many earlier lives have left.
fn check(drive: &mut Drive, lives: u64) {
    assert_eq!(zone(drive, 0), (ZoneState::CLOSED, 2 * lives));
    for life in 0..lives {
        assert!(drive.read(2 * life, 2) == pattern(life as usize), "{life}");
    }
    assert_eq!(zone(drive, 1), (ZoneState::EMPTY, 0));
    assert!(drive.read(ZONE, 2) == vec![0; 8192]);
    assert_eq!(zone(drive, 2).0, ZoneState::FULL);
    assert!(drive.read(2 * ZONE, 2) == pattern(77));
    // The host has not flushed this one.
    match zone(drive, 3) {
        (ZoneState::CLOSED, 2) => assert!(drive.read(3 * ZONE, 2) == pattern(6)),
        other => assert_eq!(other, (ZoneState::EMPTY, 0)),
    }
    drive.send(3 * ZONE, ZoneSendAction::RESET);
}

#[test]
fn a_clean_stop_keeps_all_and_what_does_not_fit_is_refused() {
    let world = World::new();
    let server = serve(&world, CONFIG);
    let mut drive = Drive::attach(&world, "zns");
    drive.append(0, &pattern(1)).unwrap();
    drop(drive);
    server.stop();
    let server = serve(&world, CONFIG);
    let mut drive = Drive::attach(&world, "zns");
    assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 2));
    assert!(drive.read(0, 2) == pattern(1));
    drop(drive);
    server.stop();

    let before = fs::read(world.path("zns.img")).unwrap();
    for (from, to, expected) in [
        (
            "16MiB",
            "32MiB",
            "its size is 16 MiB, but 32 MiB is configured",
        ),
        (
            "zone_size = \"2MiB\"",
            "zone_size = \"4MiB\"",
            "its zone size is 2 MiB, but 4 MiB is configured",
        ),
    ] {
        let config = world.write("config.toml", &CONFIG.replace(from, to));
        let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
        assert!(error.contains(expected), "{error}");
    }
    // Nor is it a medium of bytes, for a server or for the preparation of a drive.
    let start = CONFIG.find("[media.zoned]").unwrap();
    let end = CONFIG.find("[[namespace]]").unwrap();
    let raw = [&CONFIG[..start], &CONFIG[end..]].concat();
    let unsized_raw = raw.replace("size = \"16MiB\"\n", "");
    for config in [&raw, &unsized_raw] {
        let config = world.write("config.toml", config);
        let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
        assert!(error.contains("add [media.zoned]"), "{error}");
    }
    let flash = "[media.timing]\npreset = \"samsung-970-pro\"\n[[namespace]]";
    let config = world.write("config.toml", &unsized_raw.replace("[[namespace]]", flash));
    let config = config.to_str().unwrap();
    let error = world.fails(&["precondition", "zns", "--config", config]);
    assert!(error.contains("add [media.zoned]"), "{error}");
    assert!(!world.path("zns.img.timing").exists());
    let listen = world.vfio_user("zns.sock");
    let error = world.fails(&["serve", "--media", "file:path=zns.img", "--listen", &listen]);
    assert!(error.contains("add [media.zoned]"), "{error}");
    assert!(fs::read(world.path("zns.img")).unwrap() == before);
    // A clone has its zones.
    world.ok(&["clone", "zns.img", "other.img"]);
    assert!(fs::read(world.path("other.img")).unwrap() == before);
    let server = serve(&world, &CONFIG.replace("zns.img", "other.img"));
    let mut drive = Drive::attach(&world, "zns");
    assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 2));
    drop(drive);
    server.stop();

    // Neither is one that is damaged.
    let mut damaged = before.clone();
    let log = 16 << 20;
    damaged[log + 40] ^= 1;
    fs::write(world.path("zns.img"), &damaged).unwrap();
    let config = world.write("config.toml", CONFIG);
    let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
    assert!(error.contains("its state is damaged"), "{error}");
    assert!(fs::read(world.path("zns.img")).unwrap() == damaged);
}

/// Zones in memory have a file for the time between a clean stop and the next start. A start that
/// fails has taken it, and gives it back.
#[test]
fn zones_in_memory_are_kept_over_a_clean_stop_only() {
    let in_memory = CONFIG.replace(
        "\"file\"\npath = \"zns.img\"",
        "\"ram\"\nstate = \"zns.state\"",
    );
    let timed = in_memory.replace("[[namespace]]", TIMING);
    for config in [&in_memory, &timed] {
        let world = World::new();
        let life = |written: bool| {
            let server = serve(&world, config);
            let mut drive = Drive::attach(&world, "zns");
            if written {
                assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 2));
                assert!(drive.read(0, 2) == pattern(1));
                assert_eq!(zone(&mut drive, 2).0, ZoneState::FULL);
            } else {
                assert_eq!(zone(&mut drive, 0), (ZoneState::EMPTY, 0));
                drive.append(0, &pattern(1)).unwrap();
                drive.send(2 * ZONE, ZoneSendAction::FINISH);
            }
            server
        };
        life(false).stop();
        life(true).stop();
        let nowhere = config.replace("zns.sock", "missing/zns.sock");
        let file = world.write("config.toml", &nowhere);
        let error = world.fails(&["serve", "--config", file.to_str().unwrap()]);
        assert!(error.contains("missing"), "{error}");
        let other = config.replace("1152KiB", "960KiB");
        let file = world.write("config.toml", &other);
        let error = world.fails(&["serve", "--config", file.to_str().unwrap()]);
        assert!(error.contains("with other zones"), "{error}");
        let server = life(true);
        server.signal(Signal::KILL);
        server.end();
        life(false).stop();
    }
}
