//! Media of the program in memory, and drives whose time they have: small and fast ones, which
//! collect all the time.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use media::{KeptFiles, MediumKind, MediumSpec, ZoneSpec};
use model::{
    Arithmetic, CollectionPolicy, Direction, FlashExtras, FlashParameters, Model, NvmParameters,
    Parameters,
};
use port::MediumTraits;
use port::set::CommandSet;

use crate::medium::Port;
use crate::random::Random;

const PAGE: u32 = 4096;

/// A medium in memory that outlives the process.
#[derive(Debug)]
pub struct Real {
    kind: MediumKind,
    timing: Option<Parameters>,
    medium: Arc<media::Medium>,
}

impl Real {
    /// A new one of `size` bytes, with a timing model or without.
    pub(crate) fn new(size: u64, timing: Option<Parameters>) -> Self {
        Self::of(MediumKind::Ram { size }, timing)
    }

    /// The same with zones.
    pub(crate) fn zoned(size: u64, zones: ZoneSpec, timing: Option<Parameters>) -> Self {
        let of = Box::new(MediumKind::Ram { size });
        Self::of(MediumKind::Zoned { of, zones }, timing)
    }

    fn of(kind: MediumKind, timing: Option<Parameters>) -> Self {
        let medium = Self::open(&kind, timing.as_ref(), KeptFiles::default());
        Self {
            kind,
            timing,
            medium,
        }
    }

    /// The same bytes in another process, which begins with a new model of time.
    pub(crate) fn again(&mut self) {
        let copied = |file: BorrowedFd<'_>| file.try_clone_to_owned().expect("a descriptor");
        let files = KeptFiles {
            memory: self.medium.memory_file().map(copied),
            zones: self.medium.zones_file().map(copied),
        };
        assert!(files.memory.is_some(), "it outlives the process");
        self.medium = Self::open(&self.kind, self.timing.as_ref(), files);
    }

    fn open(
        kind: &MediumKind,
        timing: Option<&Parameters>,
        files: KeptFiles,
    ) -> Arc<media::Medium> {
        let kind = kind.clone();
        let mut medium = media::Medium::open_kept(&MediumSpec { kind }, files).expect("memory");
        if let Some(timing) = timing {
            media::Medium::set_timing(&mut medium, timing.clone()).expect("a drive");
        }
        medium
    }

    /// A channel of it.
    pub(crate) fn port(&self, depth: u16) -> Port {
        Port::Ram(self.medium.channel(depth).expect("a channel of memory"))
    }

    /// The command set of its zones.
    pub(crate) fn set(&self) -> Option<Arc<dyn CommandSet>> {
        self.medium.set()
    }

    /// Its traits.
    pub(crate) fn traits(&self) -> MediumTraits {
        self.medium.traits()
    }
}

/// The time of some drive of `size` bytes.
pub(crate) fn timing(random: &mut Random, size: u64) -> Parameters {
    let flash = Parameters::Flash(flash(random, size));
    // Flash of too few lines is refused.
    match Model::new(&flash) {
        Ok(_) => flash,
        Err(_) => Parameters::Nvm(low_latency(random)),
    }
}

/// The timing model of a drive without flash.
pub(crate) fn low_latency(random: &mut Random) -> NvmParameters {
    let mut direction = || Direction {
        latency_ns: random.spread(2_000, 40_000),
        bandwidth_bytes_per_s: random.pick(&[0, 2_400_000_000]),
        rate_per_s: random.pick(&[0, 600_000]),
    };
    NvmParameters {
        arithmetic: Arithmetic::Exact,
        read: direction(),
        write: direction(),
    }
}

fn flash(random: &mut Random, size: u64) -> FlashParameters {
    let oneshot_bytes = PAGE * random.pick(&[1, 1, 2]);
    let policies = [
        CollectionPolicy::Greedy,
        CollectionPolicy::Fifo,
        CollectionPolicy::CostBenefit,
    ];
    FlashParameters {
        arithmetic: Arithmetic::Exact,
        size_bytes: size,
        partitions: 1,
        channels: random.between(1, 2) as u32,
        dies_per_channel: 1,
        flash_page_bytes: PAGE,
        oneshot_bytes,
        block_bytes: u64::from(oneshot_bytes) * random.between(1, 2),
        cell_bits: 1,
        overprovisioning_permille: 280,
        read_4k_ns: [1_000; 4],
        read_ns: [1_500; 4],
        program_ns: random.spread(1_000, 3_000),
        erase_ns: random.spread(1_000, 5_000),
        channel_bandwidth_bytes_per_s: random.pick(&[0, 8_000_000_000]),
        max_channel_transfer_bytes: PAGE,
        firmware_channel_transfer_ns: 0,
        link_bandwidth_bytes_per_s: random.pick(&[0, 16_000_000_000]),
        firmware_read_4k_ns: 500,
        firmware_read_ns: 700,
        // A wordline, or room for a few commands: what does not find any stalls its queue.
        buffer_bytes: u64::from(oneshot_bytes) + random.pick(&[0, 16 << 10, 128 << 10]),
        buffer_base_ns: 100,
        buffer_per_page_ns: 20,
        early_completion: !random.once_in(3),
        deallocate_ns: 1_000,
        collect_below: 2,
        policy: random.pick(&policies),
        extras: FlashExtras {
            seed: random.number(),
            read_jitter_permille: random.pick(&[0, 300]),
            program_jitter_permille: random.pick(&[0, 300]),
            ..FlashExtras::default()
        },
    }
}
