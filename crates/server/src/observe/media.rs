//! Metrics of media: storage, timing models, zones, and key-value pairs.

use Kind::{Counter, Gauge};
use Unit::{Bytes, Kelvin, None as Count, Seconds, Thousandths};
use api::{FlashStatus, MediumStatus, ModelStatus};

use super::metric::{Metric, Value, by, labelled, maybe, one};
use super::text::{Kind, Number, Unit};

/// A value of the timing model, if there is one.
fn model(medium: &MediumStatus, of: impl FnOnce(&ModelStatus) -> Vec<Value>) -> Vec<Value> {
    medium.model.as_ref().map_or(Vec::new(), of)
}

/// A value of a model of conventional flash.
fn flash(medium: &MediumStatus, of: impl FnOnce(&FlashStatus) -> Vec<Value>) -> Vec<Value> {
    let flash = medium.model.as_ref().and_then(|model| model.flash.as_ref());
    flash.map_or(Vec::new(), of)
}

pub(super) const MEDIA: &[Metric<MediumStatus>] = &[
    Metric {
        name: "nvmirage_medium_size_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Size of the medium.",
        values: |m| one(m.bytes),
    },
    Metric {
        name: "nvmirage_medium_preallocated_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Memory allocated in advance, of a medium with preallocate.",
        values: |m| maybe(m.preallocated_bytes),
    },
    Metric {
        name: "nvmirage_medium_commands",
        kind: Counter,
        unit: Count,
        help: "Commands to a file that transferred data, by how the kernel accessed their memory: registered in advance (registered), or pinned for the command (plain).",
        values: |m| {
            m.io.map_or(Vec::new(), |io| {
                by(
                    "memory",
                    &[("registered", io.registered), ("plain", io.plain)],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_medium_submissions",
        kind: Counter,
        unit: Count,
        help: "Submission calls of a file: one for each group of operations handed to the kernel; for a file in memory, one for each operation.",
        values: |m| maybe(m.file.map(|file| file.submissions)),
    },
    Metric {
        name: "nvmirage_medium_flushes",
        kind: Counter,
        unit: Count,
        help: "Successful flushes of a file.",
        values: |m| maybe(m.file.map(|file| file.flushes)),
    },
    Metric {
        name: "nvmirage_medium_errors",
        kind: Counter,
        unit: Count,
        help: "Failed requests to the medium's underlying storage, by cause: no-space, file-size (a limit on the file's size), read-only, gone, read, write.",
        values: |m| {
            let errors = m.errors.iter();
            errors
                .map(|error| labelled("cause", &error.cause, error.count))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_medium_failing",
        kind: Gauge,
        unit: Count,
        help: "1 while requests to the medium's underlying storage fail for this cause.",
        values: |m| {
            let errors = m.errors.iter();
            errors
                .map(|error| labelled("cause", &error.cause, error.current.into()))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_medium_zones",
        kind: Gauge,
        unit: Count,
        help: "Zones by state.",
        values: |m| {
            let states = m.zones.iter().flat_map(|zones| &zones.states);
            states
                .map(|(state, zones)| labelled("state", state, u64::from(*zones)))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_medium_zone_resources",
        kind: Gauge,
        unit: Count,
        help: "Zones that are open, active (open or closed), or have a random write area, by resource.",
        values: |m| {
            m.zones.as_ref().map_or(Vec::new(), |zones| {
                let mut all = by(
                    "resource",
                    &[("open", zones.open.into()), ("active", zones.active.into())],
                );
                let random = zones.random_areas.iter();
                all.extend(random.map(|areas| labelled("resource", "random", areas.used.into())));
                all
            })
        },
    },
    Metric {
        name: "nvmirage_medium_zone_resources_limit",
        kind: Gauge,
        unit: Count,
        help: "Limit of each zone resource, if any.",
        values: |m| {
            m.zones.as_ref().map_or(Vec::new(), |zones| {
                let random = zones.random_areas.map_or(0, |areas| areas.most);
                let limits = [
                    ("open", zones.max_open),
                    ("active", zones.max_active),
                    ("random", random),
                ];
                let limits = limits.into_iter().filter(|(_, limit)| *limit > 0);
                limits
                    .map(|(resource, limit)| labelled("resource", resource, limit.into()))
                    .collect()
            })
        },
    },
    Metric {
        name: "nvmirage_medium_pairs",
        kind: Gauge,
        unit: Count,
        help: "Key-value pairs.",
        values: |m| maybe(m.pairs.map(|pairs| pairs.pairs)),
    },
    Metric {
        name: "nvmirage_medium_pairs_limit",
        kind: Gauge,
        unit: Count,
        help: "Maximum number of pairs.",
        values: |m| maybe(m.pairs.map(|pairs| pairs.most_pairs)),
    },
    Metric {
        name: "nvmirage_medium_pair_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Bytes of all keys and of all values.",
        values: |m| {
            m.pairs.map_or(Vec::new(), |pairs| {
                by(
                    "of",
                    &[("keys", pairs.key_bytes), ("values", pairs.value_bytes)],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_medium_used_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Bytes in use of a key-value medium, in whole allocation units.",
        values: |m| maybe(m.pairs.map(|pairs| pairs.used_bytes)),
    },
    Metric {
        name: "nvmirage_drive_present",
        kind: Gauge,
        unit: Count,
        help: "1 while the drive is present.",
        values: |m| maybe(m.drive.map(|drive| drive.present.into())),
    },
    Metric {
        name: "nvmirage_drive_commands",
        kind: Counter,
        unit: Count,
        help: "Commands completed by the drive; one host command may be several.",
        values: |m| maybe(m.drive.map(|drive| drive.commands)),
    },
    Metric {
        name: "nvmirage_drive_interrupted_commands",
        kind: Counter,
        unit: Count,
        help: "Host requests that ended as interrupted because the drive timed out, was reset, or was lost.",
        values: |m| maybe(m.drive.map(|drive| drive.interrupted)),
    },
    Metric {
        name: "nvmirage_drive_failures",
        kind: Counter,
        unit: Count,
        help: "Failures of the drive: a queue pair was abandoned, the drive was reset, or the drive was lost.",
        values: |m| {
            m.drive.map_or(Vec::new(), |drive| {
                by(
                    "of",
                    &[
                        ("queue", drive.queues_given_up),
                        ("reset", drive.resets),
                        ("drive", drive.losses),
                    ],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_drive_temperature_kelvin",
        kind: Gauge,
        unit: Kelvin,
        help: "Last reported Composite Temperature.",
        values: |m| maybe(m.drive.and_then(|drive| drive.temperature_kelvin)),
    },
    Metric {
        name: "nvmirage_drive_available_spare_percent",
        kind: Gauge,
        unit: Count,
        help: "Last reported Available Spare, in percent.",
        values: |m| maybe(m.drive.and_then(|drive| drive.available_spare_percent)),
    },
    Metric {
        name: "nvmirage_drive_used_percent",
        kind: Gauge,
        unit: Count,
        help: "Last reported Percentage Used.",
        values: |m| maybe(m.drive.and_then(|drive| drive.percentage_used)),
    },
    Metric {
        name: "nvmirage_model_commands",
        kind: Counter,
        unit: Count,
        help: "Operations requested of the medium's timing model; one command may be several, such as Copy.",
        values: |m| {
            model(m, |model| {
                let asked = &model.commands;
                by(
                    "op",
                    &[
                        ("read", asked.read),
                        ("write", asked.write),
                        ("deallocate", asked.deallocate),
                        ("flush", asked.flush),
                        ("zone", asked.zone),
                        ("key", asked.key),
                    ],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_model_stalls",
        kind: Counter,
        unit: Count,
        help: "Periods in which the model accepted no command because a buffer was full.",
        values: |m| model(m, |model| one(model.stalls.count)),
    },
    Metric {
        name: "nvmirage_model_stall_seconds",
        kind: Counter,
        unit: Seconds,
        help: "Total duration of these periods that ended.",
        values: |m| model(m, |model| one(model.stalls.time_ns)),
    },
    Metric {
        name: "nvmirage_model_servers",
        kind: Gauge,
        unit: Count,
        help: "Servers of the modelled drive: dies, channels, links, pipelines or units.",
        values: |m| {
            model(m, |model| {
                let servers = model.servers.iter();
                servers
                    .map(|server| labelled("server", &server.server, server.count))
                    .collect()
            })
        },
    },
    Metric {
        name: "nvmirage_model_operations",
        kind: Counter,
        unit: Count,
        help: "Operations of the servers, by type of work: senses, programs, erases, transfers.",
        values: |m| busy(m, |busy| busy.operations),
    },
    Metric {
        name: "nvmirage_model_busy_seconds",
        kind: Counter,
        unit: Seconds,
        help: "Busy time summed over the servers; its rate divided by their number is their utilization. Operations count when they are requested, so this runs ahead by the work that is queued.",
        values: |m| busy(m, |busy| busy.busy_ns),
    },
    Metric {
        name: "nvmirage_model_buffer_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Write buffer of the modelled drive: bytes used and bytes free.",
        values: |m| {
            let buffer = m.model.as_ref().and_then(|model| model.buffer);
            buffer.map_or(Vec::new(), |buffer| {
                let free = buffer.bytes.saturating_sub(buffer.used_bytes);
                by("state", &[("used", buffer.used_bytes), ("free", free)])
            })
        },
    },
    Metric {
        name: "nvmirage_model_host_pages",
        kind: Counter,
        unit: Count,
        help: "Pages of 4096 bytes written by hosts. Saved with the state of the drive.",
        values: |m| flash(m, |flash| one(flash.host_pages)),
    },
    Metric {
        name: "nvmirage_model_media_pages",
        kind: Counter,
        unit: Count,
        help: "Pages written by hosts and rewritten by collection; divided by the pages written by hosts, this is the write amplification.",
        values: |m| flash(m, |flash| one(flash.host_pages + flash.collected_pages)),
    },
    Metric {
        name: "nvmirage_model_collections",
        kind: Counter,
        unit: Count,
        help: "Lines collected: for a host's write (foreground), or while the drive was idle (background).",
        values: |m| {
            flash(m, |flash| {
                let collections = flash.collections;
                by(
                    "why",
                    &[
                        ("foreground", collections.foreground),
                        ("background", collections.background),
                    ],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_model_collected_pages",
        kind: Counter,
        unit: Count,
        help: "Pages rewritten by collection.",
        values: |m| flash(m, |flash| one(flash.collected_pages)),
    },
    Metric {
        name: "nvmirage_model_erased_lines",
        kind: Counter,
        unit: Count,
        help: "Lines erased; a line is one block on every die of a partition.",
        values: |m| flash(m, |flash| one(flash.erased_lines)),
    },
    Metric {
        name: "nvmirage_model_lines",
        kind: Gauge,
        unit: Count,
        help: "Lines by state.",
        values: |m| {
            flash(m, |flash| {
                let lines = flash.lines;
                by(
                    "state",
                    &[
                        ("free", lines.free),
                        ("open", lines.open),
                        ("full", lines.full),
                    ],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_model_fewest_free_lines",
        kind: Gauge,
        unit: Count,
        help: "Free lines of the partition with the fewest.",
        values: |m| flash(m, |flash| one(flash.lines.fewest_free)),
    },
    Metric {
        name: "nvmirage_model_valid_pages",
        kind: Gauge,
        unit: Count,
        help: "Valid pages.",
        values: |m| flash(m, |flash| one(flash.valid_pages)),
    },
    Metric {
        name: "nvmirage_model_line_erases",
        kind: Gauge,
        unit: Thousandths,
        help: "Erases per line: least, most and mean.",
        values: |m| {
            flash(m, |flash| {
                let wear = flash.wear;
                let mean = flash.erased_lines * 1000 / flash.lines.all.max(1);
                by(
                    "line",
                    &[
                        ("least", wear.least * 1000),
                        ("mean", mean),
                        ("most", wear.most * 1000),
                    ],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_model_slc_pages",
        kind: Gauge,
        unit: Count,
        help: "Pages of the cache of single-bit cells: used and free.",
        values: |m| {
            flash(m, |flash| {
                flash.slc.map_or(Vec::new(), |slc| {
                    let free = slc.pages.saturating_sub(slc.used_pages);
                    by("state", &[("used", slc.used_pages), ("free", free)])
                })
            })
        },
    },
    Metric {
        name: "nvmirage_model_folded_pages",
        kind: Counter,
        unit: Count,
        help: "Pages folded out of the cache of single-bit cells.",
        values: |m| flash(m, |flash| maybe(flash.slc.map(|slc| slc.folded_pages))),
    },
    Metric {
        name: "nvmirage_model_map_misses",
        kind: Counter,
        unit: Count,
        help: "Map pages that were not in memory and were sensed.",
        values: |m| flash(m, |flash| one(flash.map_misses)),
    },
    Metric {
        name: "nvmirage_model_unmapped_reads",
        kind: Counter,
        unit: Count,
        help: "Reads that touched a page without data, which costs no sense.",
        values: |m| flash(m, |flash| one(flash.unmapped_reads)),
    },
];

fn busy(medium: &MediumStatus, of: fn(&api::BusyStatus) -> u64) -> Vec<Value> {
    model(medium, |model| {
        let busy = model.busy.iter();
        busy.map(|busy| {
            let labels = vec![("server", busy.server.clone()), ("work", busy.work.clone())];
            Value(labels, Number::Whole(of(busy)))
        })
        .collect()
    })
}
