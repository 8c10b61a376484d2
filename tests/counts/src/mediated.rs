//! A drive of nothing in this process: behind a controller whose host's commands are shadowed, and
//! driven directly.
//!
//! The drive is another controller of ours, which takes its turns while its queue pair is polled.

use std::sync::Arc;

use controller::config::DEFAULT_VENDOR_ID;
use controller::{Controller, ControllerConfig};
use driver::{Device, Options, QueuePair};
use loopback::InProcess;
use media::Channel;
use media::drive::{Drive, DriveChannel, Keeper};
use memory::{Buffer, Claims, DoorbellPages};
use nvme_spec::Sqe;
use port::{ChannelId, Channels};
use subsystem::{Subsystem, SubsystemConfig};

use crate::{COMMANDS, DATA_LEN, Doorbells, ENTRIES, Load, Rig, channel, config, namespace, null};

type Bus = InProcess<Channel>;

/// A drive of nothing, enabled.
fn device() -> Device<Bus> {
    let config = ControllerConfig {
        vendor_id: DEFAULT_VENDOR_ID,
        ..config(Doorbells::Mapped)
    };
    let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let mut channels = Channels::new();
    assert!(channels.insert(channel(null())).is_ok(), "it is the first");
    let subsystem = SubsystemConfig::with_namespaces(4, [namespace(ChannelId(0))]);
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
    let options = Options {
        memory_len: 32 << 20,
        transfer_len_max: 1 << 20,
        ..Options::default()
    };
    let mut device =
        loopback::device(controller, subsystem, pages, true, channels, &options).unwrap();
    device.enable().unwrap();
    device
}

/// A host whose commands become commands of a drive: everything between its doorbell and its
/// completion.
pub struct Mediated {
    rig: Rig<DriveChannel<Bus>>,
    _keeper: Keeper<Bus>,
}

impl Mediated {
    /// A host with a queue full of commands. The drive reaches its memory; nothing was rung.
    #[must_use]
    pub fn new(load: Load) -> Self {
        let reopen = Box::new(|| Ok(device()));
        let (drive, mut keeper) = Drive::of("counted".into(), device(), None, reopen).unwrap();
        let claimant = Claims::new().claimant().unwrap();
        let channel = drive.channel(1023, claimant).unwrap();
        keeper.look(1);
        let mut rig = Rig::on(channel, Doorbells::Mapped, load);
        rig.tend();
        // The drive does not reach the host's memory yet, which the first command asks for.
        rig.batches(1, 1);
        rig.tend();
        (2..4).for_each(|tick| keeper.look(tick));
        rig.tend();
        rig.batches(1, 30);
        Mediated {
            rig,
            _keeper: keeper,
        }
    }

    /// See [`Rig::batches`].
    #[inline]
    pub fn batches(&mut self, count: u32, size: u32) {
        self.rig.batches(count, size);
    }

    /// See [`Rig::check`].
    pub fn check(&self) {
        self.rig.check();
    }
}

impl Rig<DriveChannel<Bus>> {
    fn tend(&mut self) {
        let channels = self.engine.channels_mut();
        channels.iter_mut().for_each(|(_, drive)| drive.tend());
    }
}

/// The same drive without a controller between.
pub struct Direct {
    pair: QueuePair<Bus>,
    entries: Vec<[u64; 8]>,
    next: usize,
    _data: Buffer,
    _device: Device<Bus>,
}

impl Direct {
    /// A queue pair of it, and commands at the same blocks as those of [`Mediated`].
    #[must_use]
    pub fn new(load: Load) -> Self {
        let mut device = device();
        let depth = u16::try_from(ENTRIES - 1).unwrap();
        let pair = device.create_queue_pair(depth, false).unwrap();
        let data = device.alloc(DATA_LEN).unwrap();
        data.fill(1);
        let base = pair.iova(&data).0;
        let places = DATA_LEN as u64 / u64::from(load.bytes);
        let blocks = load.bytes / 4096;
        assert!((1..=2).contains(&blocks), "without lists");
        let entry = |index: u64| {
            let prp1 = base + index * 389 % places * u64::from(load.bytes);
            let sqe = Sqe {
                opcode: load.opcode,
                nsid: 1,
                prp1,
                prp2: if blocks == 2 { prp1 + 4096 } else { 0 },
                cdw10: (index * 769 % places) as u32 * blocks,
                cdw12: blocks - 1,
                ..Sqe::default()
            };
            sqe.to_words()
        };
        let mut direct = Direct {
            pair,
            entries: (0..u64::from(COMMANDS)).map(entry).collect(),
            next: 0,
            _data: data,
            _device: device,
        };
        direct.batches(1, 31);
        direct.next = 0;
        direct
    }

    /// `count` times: submits `size` commands and takes their completions.
    ///
    /// # Panics
    /// A command failed, or was not completed in a turn of the drive.
    #[inline]
    pub fn batches(&mut self, count: u32, size: u32) {
        for _ in 0..count {
            for _ in 0..size {
                let entry = self.entries[self.next % self.entries.len()];
                self.next += 1;
                self.pair.submit_words(entry).unwrap();
            }
            self.pair.ring().unwrap();
            let taken = self.pair.poll_up_to(size as usize).unwrap();
            assert_eq!(taken, size as usize);
            while let Some(cqe) = self.pair.next_completion() {
                assert!(cqe.status.status().is_success());
            }
        }
    }
}
