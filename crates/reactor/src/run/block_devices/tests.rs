//! Block devices at a reactor whose turns the test takes. A file is in the device's place: it
//! refuses the commands of a ring, which come when the controller is ready.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ::ublk::{Device, DeviceInfo};
use controller::{ControllerConfig, Interrupt};
use engine::{EngineId, Mode};
use machine::clock::Clock;
use memory::{Bell, EventFd};
use port::namespace::Namespace;
use port::{ChannelId, MediumTraits};
use rustix::fs::{MemfdFlags, memfd_create};
use subsystem::{Allocated, SubsystemConfig};
use transport::ublk::News;

use super::*;
use crate::answer::answer;
use crate::hosted::target::tests::template;
use crate::message::{Address, Message, NewController, NewSubsystem, Way};
use crate::presence::Presence;

const BOUND: Duration = Duration::from_secs(10);

/// A reactor with the controller of a block device, and no thread.
struct Rig {
    reactor: Reactor,
    slot: ControllerSlot,
    presence: Arc<Presence>,
}

impl Rig {
    fn new() -> Self {
        let (sender, mailbox) = memory::sync::mailbox::channel(4);
        let (bell, wake) = (Arc::new(Bell::new()), EventFd::new().unwrap());
        let address = Address::new(sender, bell.clone(), wake.clone());
        let (id, counters) = (EngineId(0), Arc::default());
        let clock = Clock::of_process();
        let mode = Mode::Interrupt;
        let made = Reactor::new(id, mode, clock, mailbox, address, bell, wake, counters);
        let mut reactor = made.unwrap();
        let namespace = Namespace {
            nsid: 1,
            channel: ChannelId(0),
            start: 0,
            blocks: 8,
            lba_shift: 9,
            nguid: [1; 16],
            eui64: [1; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set: None,
        };
        let disk = Allocated {
            name: Some("disk".to_owned()),
            ..Allocated::everywhere(namespace)
        };
        let new = NewSubsystem {
            config: SubsystemConfig {
                namespaces: vec![disk],
                ..SubsystemConfig::with_namespaces(8, [])
            },
            keeper: None,
        };
        let subsystem = reactor.subsystems.add(&mut reactor.engine, new).unwrap();
        let presence = Arc::new(Presence::new(|_, _| ()));
        // The keys that the reactor reads are those of any controller.
        let keys = br#"{"name":"c","listen":"nvme-tcp:127.0.0.1:4420"}"#;
        let new = NewController {
            config: ControllerConfig {
                // Less than a request of a device.
                max_transfer: 64 << 10,
                ..template()
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
            slot,
            presence,
        }
    }

    fn attach(&mut self) -> Result<Receiver<News>, String> {
        let (sender, news) = channel();
        let (name, disk) = self.reactor.only_block_namespace(self.slot.0).unwrap();
        let new = NewDevice {
            device: device(),
            name,
            disk,
            news: sender,
        };
        self.reactor.attach_device(self.slot, new)?;
        Ok(news)
    }

    fn turn(&mut self) {
        let now = self.reactor.clock.now();
        let turn = self
            .reactor
            .engine
            .turn(now, |_: ControllerSlot, _: Interrupt| {});
        let posted = turn.worked || turn.completions > 0;
        self.reactor.serve_front_ends(now, posted);
        self.reactor.look_around(Duration::ZERO);
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + BOUND;
        while !is_so(self) {
            self.turn();
            assert!(Instant::now() < until, "it does not come to that");
        }
    }

    fn is_free(&self) -> bool {
        self.reactor.hosts_of_entrance(self.slot.0).is_empty()
    }

    fn counts(&mut self) -> crate::network::NetworkCounts {
        self.reactor.network_counts().remove(0).1
    }
}

fn device() -> Device {
    let file = File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
    let info = DeviceInfo {
        nr_hw_queues: 1,
        queue_depth: 8,
        max_io_buf_bytes: ublk::MAX_IO,
        ..DeviceInfo::default()
    };
    Device::with_file(file, &info).unwrap()
}

fn ended(news: &Receiver<News>, with: &str) {
    let all: Vec<_> = news.try_iter().collect();
    let ends: Vec<_> = all
        .iter()
        .filter(|news| matches!(news, News::Ended(why) if why.contains(with)))
        .collect();
    assert_eq!((ends.len(), all.last()), (1, ends.first().copied()));
}

#[test]
fn a_controller_has_one_device_at_a_time() {
    let mut rig = Rig::new();
    let first = rig.attach().unwrap();
    let hosts = rig.presence.hosts();
    assert_eq!((hosts.len(), hosts[0].export.as_deref()), (1, Some("disk")));
    let second = rig.attach().unwrap_err();
    assert_eq!(second, "the device before it has not gone");
    // A file is no device: that shows when its requests are fetched.
    rig.until(|rig| rig.presence.hosts().is_empty());
    ended(&first, "the kernel's ublk driver refused a command");
    rig.until(Rig::is_free);
    let third = rig.attach().unwrap();
    rig.until(Rig::is_free);
    ended(&third, "refused a command");
    let counts = rig.counts();
    assert_eq!((counts.hosts, counts.ended), (2, [("refused", 2)].into()));
    assert_eq!(counts.refused, [("controller", 1)].into());
}

#[test]
fn an_upgrade_leaves_a_device_and_takes_no_other_one() {
    let mut rig = Rig::new();
    let news = rig.attach().unwrap();
    rig.reactor.disconnect_all();
    assert_eq!(rig.presence.hosts().len(), 1);
    assert!(news.try_recv().is_err(), "it has ended");
    let refused = rig.attach().unwrap_err();
    assert_eq!(refused, "another process is about to take over");
    rig.until(Rig::is_free);
    let refused = rig.attach().unwrap_err();
    assert_eq!(refused, "another process is about to take over");
    rig.reactor.open_targets();
    rig.attach().unwrap();
}

#[test]
fn the_operator_ends_a_device() {
    let mut rig = Rig::new();
    let news = rig.attach().unwrap();
    let cntlid = rig.presence.hosts()[0].cntlid;
    let index = rig.slot.0;
    let ends = |rig: &mut Rig, cntlid| {
        let is_named = |host: &crate::hosted::association::Attached| host.cntlid() == cntlid;
        rig.reactor.end_associations(index, is_named)
    };
    assert!(ends(&mut rig, cntlid + 1).is_empty());
    assert_eq!(ends(&mut rig, cntlid), [cntlid]);
    ended(&news, "the operator ended it");
    assert!(news.try_recv().is_err());
    rig.until(Rig::is_free);
    assert_eq!(rig.counts().ended, [("removed", 1)].into());
}

#[test]
fn a_controller_is_removed_with_its_device() {
    let mut rig = Rig::new();
    let news = rig.attach().unwrap();
    let (answer, removed) = answer();
    rig.reactor
        .handle(Message::RemoveController(rig.slot, answer));
    ended(&news, "the operator ended it");
    let until = Instant::now() + BOUND;
    while removed.within(Duration::ZERO).is_none() {
        rig.turn();
        assert!(Instant::now() < until, "it is not removed");
    }
    let late = rig.reactor.only_block_namespace(rig.slot.0);
    assert_eq!(late.map(|(name, _)| name), Err(0));
}
