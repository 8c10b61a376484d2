//! A trace of zones: a drive that is asked for the same has the same zones.

use nvme_spec::zoned::{ZoneSendAction, ZoneState};

use crate::every_kind::{Drive, pattern};
use crate::traces::{start, stop};
use crate::world::World;

const ZONES: &str = r#"
[[media]]
name = "zns"
kind = "ram"
size = "16MiB"
[media.zoned]
zone_size = "2MiB"
[[namespace]]
name = "zns"
media = "zns"
[[controller]]
name = "nvme0"
namespaces = ["zns"]
listen = "vfio-user:nvme0.sock"
"#;
/// Blocks of a zone.
const ZONE: u64 = 512;

/// State and write pointer of the first zones, as a host finds them that comes now.
fn zones(world: &World) -> Vec<(ZoneState, u64)> {
    let mut drive = Drive::attach(world, "nvme0");
    let mut zone = |number| {
        let (zone, _) = drive.zone(number * ZONE);
        (zone.state.zs(), zone.wp.wrapping_sub(zone.zslba))
    };
    (0..5).map(&mut zone).collect()
}

#[test]
fn zones_become_what_they_were() {
    let world = World::new();
    let config = world.write("zones.toml", ZONES);
    let args = ["--config", config.to_str().unwrap()];
    let server = world.serve(&args);
    start(&world, "t.trace", &[]);
    let mut drive = Drive::attach(&world, "nvme0");
    drive.send(0, ZoneSendAction::OPEN);
    for (zone, times) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
        for _ in 0..times {
            drive.append(zone * ZONE, &pattern(1)).unwrap();
        }
    }
    drive.send(2 * ZONE, ZoneSendAction::FINISH);
    drive.send(3 * ZONE, ZoneSendAction::RESET);
    drive.send(4 * ZONE, ZoneSendAction::CLOSE);
    drop(drive);
    stop(&world, "nvme0");
    let were = zones(&world);
    assert_eq!(were[1].1, 6);
    assert_eq!(were[2].0, ZoneState::FULL);
    assert_eq!(were[3], (ZoneState::EMPTY, 0));
    assert_eq!(were[4], (ZoneState::CLOSED, 2));
    server.stop();

    let server = world.serve(&args);
    assert_eq!(zones(&world), [(ZoneState::EMPTY, 0); 5]);
    let target = world.vfio_user("nvme0.sock");
    let replay = ["trace", "replay", "t.trace", "--target", &target];
    // one after the other, so that none comes before one that it was behind
    let more = ["--destroy-data", "--qd", "1", "--json"];
    let report = world.json(&[&replay[..], &more].concat());
    assert_eq!(report["commands"], 11, "{report}");
    assert_eq!(zones(&world), were);
    server.stop();
}
