//! Block devices at a running reactor, as far as they go without the kernel's driver: which
//! namespace one gets, and how one that is no device ends.

#![expect(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use controller::{ControllerConfig, DoorbellMode, Interface};
use engine::{ControllerSlot, Mode, SubsystemSlot};
use media::{Dialect, Medium, MediumKind, MediumSpec, ZoneSpec};
use port::ChannelId;
use port::namespace::Namespace;
use reactor::handle::ReactorHandle;
use reactor::message::{NewController, NewDevice, NewSubsystem, Way};
use reactor::network::NetworkCounts;
use reactor::presence::Presence;
use rustix::fs::{MemfdFlags, memfd_create};
use subsystem::{Allocated, ControllerSet, OperatorRequest, SubsystemConfig};
use transport::ublk::{Disk, MAX_IO, News};
use ublk::{Device, DeviceInfo};

const BOUND: Duration = Duration::from_secs(20);
/// Bytes of each namespace.
const LEN: u64 = 4 << 20;
const ADAPTIVE: Mode = Mode::Adaptive {
    spin_ns: 50_000,
    budget_percent: 10,
};

/// A reactor with the controller of a block device.
struct Rig {
    reactor: ReactorHandle,
    subsystem: SubsystemSlot,
    slot: ControllerSlot,
    presence: Arc<Presence>,
    media: Vec<Arc<Medium>>,
}

fn medium(kind: MediumKind) -> Arc<Medium> {
    Medium::open(&MediumSpec { kind }).unwrap()
}

fn ram() -> Arc<Medium> {
    medium(MediumKind::Ram { size: LEN })
}

fn zoned(zone_size: u64) -> Arc<Medium> {
    let zones = ZoneSpec {
        zone_size,
        zone_capacity: zone_size,
        max_open: 0,
        max_active: 0,
        descriptor_extension: 0,
        append_limit: 0,
        random: None,
    };
    let of = Box::new(MediumKind::Ram {
        size: LEN / zone_size * zone_size,
    });
    medium(MediumKind::Zoned { of, zones })
}

fn keys() -> Arc<Medium> {
    medium(MediumKind::KeyValue {
        path: None,
        size: LEN,
        keys: None,
        dialect: Dialect::Nvme,
    })
}

/// All of a medium, with its place as the identifier of its channel and its namespace.
fn namespace(medium: &Medium, at: usize) -> Allocated {
    let set = medium.set();
    let has_blocks = set.as_ref().is_none_or(|set| set.has_blocks());
    let namespace = Namespace {
        nsid: at as u32 + 1,
        channel: ChannelId(at as u16),
        start: 0,
        blocks: if has_blocks { medium.size() >> 9 } else { 0 },
        lba_shift: 9,
        nguid: [at as u8 + 1; 16],
        eui64: [at as u8 + 1; 8],
        traits: medium.traits(),
        restrictions: None,
        set,
    };
    Allocated {
        name: Some(format!("disk{at}")),
        len: medium.size(),
        ..Allocated::everywhere(namespace)
    }
}

impl Rig {
    fn new(mode: Mode, media: Vec<Arc<Medium>>, hosts: &[&str]) -> Self {
        let reactor = ReactorHandle::start(0, None, mode).unwrap();
        let mut namespaces = Vec::new();
        for (at, medium) in media.iter().enumerate() {
            let channel = ChannelId(at as u16);
            reactor.open_channel(medium.clone(), channel).unwrap();
            namespaces.push(namespace(medium, at));
        }
        // The last ones are for certain hosts: the kernel has no name.
        for (namespace, host) in namespaces.iter_mut().rev().zip(hosts) {
            namespace.hosts = Some([(*host).to_owned()].into());
        }
        let new = NewSubsystem {
            config: SubsystemConfig {
                namespaces,
                ..SubsystemConfig::with_namespaces(8, [])
            },
            keeper: None,
        };
        let subsystem = reactor.add_subsystem(new).unwrap();
        let presence = Arc::new(Presence::new(|_, _| ()));
        // The keys that the reactor reads are those of any controller.
        let keys = br#"{"name":"c","listen":"nvme-tcp:127.0.0.1:4420"}"#;
        let new = NewController {
            config: ControllerConfig {
                name: "c".into(),
                vendor_id: 0x4e56,
                device_id: 1,
                serial: "S".into(),
                model_number: "M".into(),
                firmware_revision: "1".into(),
                subnqn: "nqn.2026-11.t:s0".into(),
                queues: 1,
                queue_depth: 32,
                max_transfer: 64 << 10,
                doorbells: DoorbellMode::Trapped,
                msix: false,
                intx: false,
                interface: Interface::Pcie,
            },
            subsystem,
            way: Way::Ublk,
            presence: presence.clone(),
            doorbell_messages: Arc::default(),
            keys: Arc::new(api::from_json(keys).unwrap()),
            custody: None,
        };
        let slot = reactor.add_controller(new).unwrap();
        Self {
            reactor,
            subsystem,
            slot,
            presence,
            media,
        }
    }

    fn only(&self) -> Result<(String, Disk), usize> {
        self.reactor.devices(self.slot).only_namespace().unwrap()
    }

    fn attach_to(&self, slot: ControllerSlot, info: &DeviceInfo) -> anyhow::Result<Receiver<News>> {
        let (name, disk) = self.only().unwrap();
        let file = File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
        let (sender, news) = channel();
        let new = NewDevice {
            device: Device::with_file(file, info).unwrap(),
            name,
            disk,
            news: sender,
        };
        self.reactor.devices(slot).attach(new)?;
        Ok(news)
    }

    /// Attaches a device once the controller of the one before is gone, soon after its end.
    fn attach_next(&self) -> Receiver<News> {
        let until = Instant::now() + BOUND;
        loop {
            match self.attach_to(self.slot, &info()) {
                Ok(news) => return news,
                Err(error) => assert_eq!(error.to_string(), "the device before it has not gone"),
            }
            assert!(Instant::now() < until, "it does not go");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn counts(&self) -> NetworkCounts {
        let all = self.reactor.network_counts().unwrap();
        let mut its = all.into_iter().filter(|(slot, _)| *slot == self.slot);
        its.next().unwrap().1
    }

    fn request(&self, request: OperatorRequest) {
        let answered = self.reactor.request(self.subsystem, request);
        answered.unwrap().unwrap();
    }
}

fn info() -> DeviceInfo {
    DeviceInfo {
        nr_hw_queues: 2,
        queue_depth: 64,
        max_io_buf_bytes: MAX_IO,
        ..DeviceInfo::default()
    }
}

fn until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_only_namespace_is_the_one_that_a_disk_can_express() {
    for (media, hosts, only) in [
        (vec![], vec![], Err(0)),
        (vec![ram()], vec![], Ok("disk0")),
        (vec![ram(), ram()], vec![], Err(2)),
        (vec![ram(), ram(), ram()], vec!["h"], Err(2)),
        (vec![ram(), ram()], vec!["h"], Ok("disk0")),
        (vec![ram()], vec!["h"], Err(0)),
        (vec![keys()], vec![], Err(0)),
        (vec![keys(), ram()], vec![], Ok("disk1")),
        (vec![zoned(1 << 20)], vec![], Ok("disk0")),
        // Zones whose size is no power of two.
        (vec![zoned(768 << 10)], vec![], Err(0)),
        (vec![ram(), zoned(1 << 20)], vec![], Err(2)),
    ] {
        let what = format!("{media:?} {hosts:?}");
        let rig = Rig::new(Mode::Interrupt, media, &hosts);
        let found = rig.only();
        let name = found.as_ref().map(|(name, _)| name.as_str());
        assert_eq!(name, only.as_ref().copied(), "{what}");
        let Ok((_, disk)) = &found else {
            continue;
        };
        let nsid = if name == Ok("disk1") { 2 } else { 1 };
        assert_eq!((disk.nsid, disk.sectors()), (nsid, LEN / 512));
        assert_eq!(disk.features().zoned(), disk.zone_blocks > 0);
    }
}

#[test]
fn the_only_namespace_follows_the_operator() {
    let rig = Rig::new(Mode::Interrupt, vec![ram(), ram()], &[]);
    assert_eq!(rig.only().map(|(name, _)| name), Err(2));
    let entrance = rig.reactor.view(rig.subsystem).unwrap().controllers[0].id;
    let controllers = ControllerSet::NONE.with(entrance);
    let detach = |nsid| {
        rig.request(OperatorRequest::Detach { nsid, controllers });
    };
    detach(1);
    let (name, before) = rig.only().unwrap();
    assert_eq!((&*name, before.nsid), ("disk1", 2));
    rig.request(OperatorRequest::Resize {
        nsid: 2,
        len: 1 << 20,
    });
    let (_, after) = rig.only().unwrap();
    assert_eq!((after.sectors(), after.mark), (2048, before.mark));
    detach(2);
    assert_eq!(rig.only().map(|(name, _)| name), Err(0));
}

#[test]
fn what_is_no_device_ends_in_every_mode() {
    for mode in [Mode::Interrupt, ADAPTIVE, Mode::Poll] {
        for medium in [ram(), zoned(1 << 20)] {
            let rig = Rig::new(mode, vec![medium], &[]);
            for round in 1..=3_u64 {
                let news = rig.attach_next();
                assert_eq!(news.recv_timeout(BOUND), Ok(News::Fetched));
                let Ok(News::Ended(why)) = news.recv_timeout(BOUND) else {
                    panic!("it does not end");
                };
                assert!(why.contains("refused a command"), "{why}");
                assert!(news.recv_timeout(BOUND).is_err(), "it ends once");
                until(|| rig.reactor.associations(rig.slot).unwrap().is_empty());
                until(|| rig.presence.hosts().is_empty());
                let counts = rig.counts();
                assert_eq!((counts.hosts, counts.ublk.requests), (round, 0));
                assert_eq!(counts.ended, [("refused", round)].into());
            }
        }
    }
}

#[test]
fn a_device_whose_namespace_has_gone_meanwhile_ends() {
    let rig = Rig::new(Mode::Interrupt, vec![ram()], &[]);
    let (name, disk) = rig.only().unwrap();
    let entrance = rig.reactor.view(rig.subsystem).unwrap().controllers[0].id;
    rig.request(OperatorRequest::Detach {
        nsid: 1,
        controllers: ControllerSet::NONE.with(entrance),
    });
    let file = File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
    let (sender, news) = channel();
    let new = NewDevice {
        device: Device::with_file(file, &info()).unwrap(),
        name,
        disk,
        news: sender,
    };
    rig.reactor.devices(rig.slot).attach(new).unwrap();
    let ended = "its namespace is not what it was".to_owned();
    assert_eq!(news.recv_timeout(BOUND), Ok(News::Ended(ended)));
    until(|| rig.counts().ended.get("changed") == Some(&1));
}

#[test]
fn a_controller_is_removed_without_a_device_and_its_medium_is_free_then() {
    let rig = Rig::new(Mode::Interrupt, vec![ram()], &[]);
    assert_eq!(rig.reactor.associations(rig.slot).unwrap(), []);
    rig.reactor.remove_controller(rig.slot).unwrap();
    // A late request finds nothing.
    let late = rig.reactor.devices(rig.slot).only_namespace().unwrap();
    assert_eq!(late.map(|(name, _)| name), Err(0));
    assert!(rig.reactor.end_subsystem(rig.subsystem).unwrap());
    rig.reactor.close_channel(rig.media[0].clone()).unwrap();
}

#[test]
fn a_controller_without_a_block_device_takes_none() {
    let rig = Rig::new(Mode::Interrupt, vec![ram()], &[]);
    let none = ControllerSlot(rig.slot.0 + 7);
    let refused = rig.attach_to(none, &info()).unwrap_err();
    assert_eq!(refused.to_string(), "the controller has no block device");
}

#[test]
fn no_device_is_taken_during_an_upgrade() {
    let rig = Rig::new(Mode::Interrupt, vec![ram()], &[]);
    rig.reactor.disconnect_all().unwrap();
    assert!(rig.reactor.has_parted().unwrap());
    let refused = rig.attach_to(rig.slot, &info()).unwrap_err();
    let why = "another process is about to take over";
    assert_eq!(refused.to_string(), why);
    assert_eq!(rig.counts().refused, [("controller", 1)].into());
    rig.reactor.set_paused(false).unwrap();
    let news = rig.attach_to(rig.slot, &info()).unwrap();
    assert_eq!(news.recv_timeout(BOUND), Ok(News::Fetched));
}
