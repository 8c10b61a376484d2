//! Status of timing models, zones, and key-value pairs.

use api::{
    AskedStatus, BufferStatus, BusyStatus, CollectionStatus, FlashStatus, LineStatus, ModelStatus,
    PairsStatus, RandomAreaStatus, ServerStatus, SlcStatus, StallStatus, WearStatus, ZonesStatus,
};
use media::{Asked, PairsLook, Stalls, TimingLook, ZonesLook};
use model::{Flash, Model};
use nvme_spec::zoned::ZoneState;

/// Sums over the lines of a drive, collected line by line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinesSeen {
    pub(super) least: Option<u32>,
    pub(super) most: u32,
    pub(super) valid: u64,
}

/// Names of zone states (ZNS 1.1, figure 34).
pub(super) const ZONE_STATES: [(ZoneState, &str); 7] = [
    (ZoneState::EMPTY, "empty"),
    (ZoneState::IMPLICITLY_OPENED, "implicitly-opened"),
    (ZoneState::EXPLICITLY_OPENED, "explicitly-opened"),
    (ZoneState::CLOSED, "closed"),
    (ZoneState::FULL, "full"),
    (ZoneState::READ_ONLY, "read-only"),
    (ZoneState::OFFLINE, "offline"),
];

/// The name of a zone state.
pub(super) fn zone_word(state: ZoneState) -> &'static str {
    let mut states = ZONE_STATES.iter();
    let found = states.find(|(its, _)| *its == state);
    found.map_or("reserved", |(_, word)| word)
}

/// Status of a model, given the sums over its lines.
pub(super) fn model(look: &TimingLook<'_>, lines: &LinesSeen) -> ModelStatus {
    let TimingLook {
        model,
        asked,
        stalls,
    } = *look;
    let activity = model.activity();
    let servers = activity.servers.iter().map(|(server, count)| ServerStatus {
        server: server.word().to_owned(),
        count: *count,
    });
    let busy = activity.busy.iter().map(|busy| BusyStatus {
        server: busy.server.word().to_owned(),
        work: busy.work.word().to_owned(),
        operations: busy.operations,
        busy_ns: busy.busy_ns,
    });
    ModelStatus {
        kind: model.kind().name().to_owned(),
        commands: asked_status(asked),
        stalls: stall_status(stalls),
        servers: servers.collect(),
        busy: busy.collect(),
        buffer: Model::buffer(model).map(|(bytes, used_bytes)| BufferStatus { bytes, used_bytes }),
        flash: model.flash().map(|flash| flash_status(flash, lines)),
    }
}

fn asked_status(asked: Asked) -> AskedStatus {
    let Asked {
        reads,
        writes,
        deallocations,
        flushes,
        zone_actions,
        keys,
    } = asked;
    AskedStatus {
        read: reads,
        write: writes,
        deallocate: deallocations,
        flush: flushes,
        zone: zone_actions,
        key: keys,
    }
}

fn stall_status(Stalls { count, time_ns }: Stalls) -> StallStatus {
    StallStatus { count, time_ns }
}

fn flash_status(flash: &Flash, seen: &LinesSeen) -> FlashStatus {
    let counters = flash.counters();
    let collections = flash.collections();
    let mut lines = LineStatus {
        fewest_free: flash.free_lines() as u64,
        ..LineStatus::default()
    };
    for partition in flash.partitions() {
        lines.free += partition.lines.free() as u64;
        lines.open += partition.open.iter().flatten().count() as u64;
        lines.full += partition.full() as u64;
        lines.all += partition.lines.all().len() as u64;
    }
    FlashStatus {
        host_pages: counters.host_pages,
        collected_pages: counters.collected_pages,
        collections: CollectionStatus {
            foreground: collections.foreground,
            background: collections.background,
        },
        erased_lines: counters.erased_lines,
        lines,
        wear: WearStatus {
            least: seen.least.unwrap_or_default().into(),
            mean: counters.erased_lines as f64 / lines.all.max(1) as f64,
            most: seen.most.into(),
        },
        valid_pages: seen.valid,
        slc: flash.slc().map(|slc| SlcStatus {
            pages: slc.pages,
            used_pages: slc.used_pages,
            folded_pages: counters.folded_pages,
        }),
        map_misses: counters.map_misses,
        unmapped_reads: counters.unmapped_reads,
    }
}

/// Status of the zones of a medium.
pub(super) fn zones(look: &ZonesLook<'_>) -> ZonesStatus {
    let all = look.all();
    let states = ZONE_STATES.iter();
    ZonesStatus {
        zones: all.zones,
        zone_bytes: all.zone_bytes,
        capacity_bytes: all.capacity,
        open: all.open,
        max_open: all.max_open,
        active: all.active,
        max_active: all.max_active,
        random_areas: (all.max_random > 0).then_some(RandomAreaStatus {
            used: all.random,
            most: all.max_random,
            bytes: all.random_bytes,
        }),
        states: states
            .map(|(state, word)| ((*word).to_owned(), look.count(*state)))
            .collect(),
    }
}

/// Status of the keys and values of a medium.
pub(super) fn pairs(look: PairsLook) -> PairsStatus {
    PairsStatus {
        pairs: look.pairs.into(),
        most_pairs: look.max_pairs.into(),
        key_bytes: look.key_bytes,
        value_bytes: look.value_bytes,
        used_bytes: look.used_bytes,
        free_bytes: look.bytes - look.used_bytes,
        unit_bytes: look.unit_bytes,
        index_bytes: look.index_bytes,
    }
}
