//! Zones that an operator has a drive lose while its host uses it: how the drive notifies the host,
//! what the host meets then, and after a restart.

use std::time::{Duration, Instant};

use driver::DriverError;
use nvme_spec::Status;
use nvme_spec::event::EventDw0;
use nvme_spec::features::{AsynchronousEventConfiguration, FeatureId};
use nvme_spec::log::LogPageId;
use nvme_spec::zoned::{ChangedZoneList, ZoneSendAction, ZoneState};
use zerocopy::{FromZeros, IntoBytes};

use crate::every_kind::{Drive, pattern};
use crate::world::{Server, World};

const CONFIG: &str = r#"
[[media]]
name = "zns"
kind = "file"
path = "zns.img"
size = "16MiB"
[media.zoned]
zone_size = "2MiB"
max_active = 4
[[media]]
name = "plain"
kind = "null"
size = "16MiB"
[[namespace]]
name = "zns"
media = "zns"
[[controller]]
name = "zns"
namespaces = ["zns"]
listen = "vfio-user:zns.sock"
"#;
const IN_MEMORY: &str = "kind = \"ram\"\nstate = \"zns.state\"";
/// Blocks of a zone.
const ZONE: u64 = 512;

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn set(world: &World, change: &[&str]) {
    world.ok(&world.steer(&[&["set", "media", "zns"], change].concat()));
}

/// The next event, which comes: in less time than a campaign of mutations has for a test.
fn event(drive: &mut Drive) -> EventDw0 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(event) = drive.device().poll_event().unwrap() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event comes");
        std::thread::yield_now();
    }
}

/// The Changed Zone List, which is empty when it was read.
fn changed(drive: &mut Drive) -> Vec<u64> {
    let mut list = ChangedZoneList::new_zeroed();
    let page = LogPageId::CHANGED_ZONE_LIST;
    let device = drive.device();
    device
        .get_log_page(page, 1, 0, list.as_mut_bytes())
        .unwrap();
    list.zids[..usize::from(list.nrzid)].to_vec()
}

fn state(drive: &mut Drive, zone: u64) -> ZoneState {
    drive.zone(zone * ZONE).0.state.zs()
}

fn status<T: std::fmt::Debug>(result: Result<T, DriverError>) -> Status {
    match result {
        Err(DriverError::Status { status, .. }) => status,
        other => panic!("{other:?}"),
    }
}

/// A host's findings in zone 1, which is read only, and in zone 2, which is offline.
fn meets(drive: &mut Drive) {
    assert_eq!(state(drive, 1), ZoneState::READ_ONLY);
    assert_eq!(state(drive, 2), ZoneState::OFFLINE);
    assert!(drive.read(ZONE, 2) == pattern(1));
    assert_eq!(status(drive.try_read(2 * ZONE)), Status::ZONE_IS_OFFLINE);
    for (zone, expected) in [(1, Status::ZONE_IS_READ_ONLY), (2, Status::ZONE_IS_OFFLINE)] {
        let appended = drive.append(zone * ZONE, &pattern(3));
        assert_eq!(status(appended), expected);
        let reset = drive.try_send(zone * ZONE, ZoneSendAction::RESET);
        assert_eq!(status(reset), Status::INVALID_ZONE_STATE_TRANSITION);
    }
}

#[test]
fn a_host_is_told_of_zones_that_its_drive_gives_up() {
    let in_memory = CONFIG.replacen("kind = \"file\"\npath = \"zns.img\"", IN_MEMORY, 1);
    for config in [CONFIG, &in_memory] {
        let world = World::new();
        let server = serve(&world, config);
        let mut drive = Drive::attach(&world, "zns");
        let all = AsynchronousEventConfiguration::new().with_zdcn(true);
        let feature = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
        drive.device().set_feature(feature, 0, all.into()).unwrap();
        drive.device().request_event().unwrap();
        for zone in [1, 2] {
            drive.append(zone * ZONE, &pattern(zone as usize)).unwrap();
        }
        assert!(changed(&mut drive).is_empty());
        set(&world, &["zone.1=read-only", "zone.2=offline"]);
        // Notice, Zone Descriptor Changed (ZNS 1.1, 4.1.1), and the page that says which.
        let event = event(&mut drive);
        assert_eq!(u32::from(event), 0x00bf_ef02);
        assert_eq!(changed(&mut drive), [ZONE, 2 * ZONE]);
        assert!(changed(&mut drive).is_empty());
        meets(&mut drive);
        // A zone in order is as it was.
        drive.append(3 * ZONE, &pattern(3)).unwrap();
        drop(drive);
        refused(&world);
        server.stop();

        // They are worn out for good. The host itself may take one offline.
        let server = serve(&world, config);
        let mut drive = Drive::attach(&world, "zns");
        meets(&mut drive);
        drive.send(ZONE, ZoneSendAction::OFFLINE);
        assert_eq!(state(&mut drive, 1), ZoneState::OFFLINE);
        drop(drive);
        server.stop();
    }
}

/// Rejected requests, each in words.
fn refused(world: &World) {
    for (media, change, says) in [
        ("zns", "zone.1=read-only", "zone 1 is read only already"),
        ("zns", "zone.2=read-only", "zone 2 is offline already"),
        (
            "zns",
            "zone.8=offline",
            "it has 8 zones: name one of 0 to 7",
        ),
        ("plain", "zone.0=offline", "it has no zones"),
        ("other", "zone.0=offline", "there is no medium `other`"),
    ] {
        let error = world.fails(&world.steer(&["set", "media", media, change]));
        assert!(error.contains(says), "{error}");
    }
    for change in ["zone.x=offline", "zone.1=full", "zone=offline", "speed.1=2"] {
        let ran = world.run(&world.steer(&["set", "media", "zns", change]));
        assert_eq!(ran.status.code(), Some(2), "{change}");
        assert!(
            ran.err.contains("write timing.PARAMETER=VALUE"),
            "{}",
            ran.err
        );
    }
}
