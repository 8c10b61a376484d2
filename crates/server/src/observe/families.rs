//! The list of metrics, from which `/metrics` and the book's page are generated.

use Kind::{Counter, Gauge, Histogram};
use Unit::{Bytes, None as Count, Seconds};
use api::config::{Ana, AnaState};
use api::{NamespaceStatus, ReactorStatus, TenantStatus};
use controller::flight::Operation;
use subsystem::MAX_ANA_GROUP;

use super::by_queue::Sums;
use super::media::MEDIA;
use super::metric::{Metric, Value, by, labelled, one};
use super::network::NETWORK;
use super::text::{Family, Kind, Number, Sample, Unit};
use super::{ControllerCounts, Snapshot, latency, process};

const REACTORS: &[Metric<ReactorStatus>] = &[
    Metric {
        name: "nvmirage_reactor_commands",
        kind: Counter,
        unit: Count,
        help: "I/O commands completed by the reactor.",
        values: |r| one(r.commands),
    },
    Metric {
        name: "nvmirage_reactor_turns",
        kind: Counter,
        unit: Count,
        help: "Turns of the polling loop, by whether they found work.",
        values: |r| {
            by(
                "found",
                &[
                    ("work", r.turns_with_work),
                    ("nothing", r.turns.saturating_sub(r.turns_with_work)),
                ],
            )
        },
    },
    Metric {
        name: "nvmirage_reactor_time_seconds",
        kind: Counter,
        unit: Seconds,
        help: "Time of the reactor by state: busy, spinning without work, asleep, or stalled while the system ran something else. Busy and spinning use a CPU.",
        values: |r| {
            by(
                "state",
                &[
                    ("busy", r.busy_ns),
                    ("spinning", r.spinning_ns),
                    ("asleep", r.asleep_ns),
                    ("stalled", r.stalled_ns),
                ],
            )
        },
    },
    Metric {
        name: "nvmirage_reactor_sleeps",
        kind: Counter,
        unit: Count,
        help: "Number of times the reactor went to sleep.",
        values: |r| one(r.sleeps),
    },
    Metric {
        name: "nvmirage_reactor_stalls",
        kind: Counter,
        unit: Count,
        help: "Turns during which the system ran something else for more than 200 us.",
        values: |r| one(r.stalls),
    },
];

fn by_state(ana: &Ana) -> Vec<Value> {
    let groups = || (1..=MAX_ANA_GROUP).map(|group| ana.state(group));
    let count = |state: AnaState| groups().filter(|other| *other == state).count() as u64;
    let all = AnaState::ALL.into_iter();
    all.map(|(word, state)| labelled("state", word, count(state)))
        .collect()
}

const CONTROLLERS: &[Metric<ControllerCounts>] = &[
    Metric {
        name: "nvmirage_controller_host_attached",
        kind: Gauge,
        unit: Count,
        help: "1 while a host is attached.",
        values: |c| one(u64::from(c.status.attached)),
    },
    Metric {
        name: "nvmirage_hosts",
        kind: Gauge,
        unit: Count,
        help: "Number of attached hosts; more than 1 only over NVMe/TCP and NBD.",
        values: |c| {
            let hosts = c.status.hosts.len() as u64;
            one(hosts.max(u64::from(c.status.attached)))
        },
    },
    Metric {
        name: "nvmirage_ana_groups",
        kind: Gauge,
        unit: Count,
        help: "ANA groups by their state for hosts over NVMe/TCP, of the 128 that each controller with a TCP address has.",
        values: |c| match c.status.config.tcp_address() {
            Some(_) => by_state(&c.status.config.ana),
            None => Vec::new(),
        },
    },
    Metric {
        name: "nvmirage_controller_commands",
        kind: Counter,
        unit: Count,
        help: "Commands that transferred data, as the SMART log counts them: Compare counts as a read, Copy as a read and a write. Persistent, except for hosts over NVMe/TCP, NBD clients, vhost-user-blk front ends and block devices of ublk.",
        values: |c| {
            let counted = &c.counted.health;
            by(
                "op",
                &[
                    ("read", counted.read_commands),
                    ("write", counted.write_commands),
                ],
            )
        },
    },
    Metric {
        name: "nvmirage_controller_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes transferred by commands, as the SMART log counts them. Persistent, except for hosts over NVMe/TCP, NBD clients, vhost-user-blk front ends and block devices of ublk.",
        values: |c| {
            let counted = &c.counted.health;
            by(
                "op",
                &[
                    ("read", counted.bytes_read),
                    ("write", counted.bytes_written),
                ],
            )
        },
    },
    Metric {
        name: "nvmirage_controller_media_errors",
        kind: Counter,
        unit: Count,
        help: "Commands that a medium failed. Persistent.",
        values: |c| one(c.counted.health.media_errors),
    },
    Metric {
        name: "nvmirage_controller_error_log_entries",
        kind: Counter,
        unit: Count,
        help: "Entries added to the Error Information log page over the controller's lifetime.",
        values: |c| one(c.counted.health.error_log_entries),
    },
    Metric {
        name: "nvmirage_controller_unsafe_shutdowns",
        kind: Counter,
        unit: Count,
        help: "Number of times the server ended while a host used the controller.",
        values: |c| one(c.counted.health.unsafe_shutdowns),
    },
    Metric {
        name: "nvmirage_controller_errors",
        kind: Counter,
        unit: Count,
        help: "I/O commands that ended with an error since the server started, by status; more sums the statuses beyond 24 per queue.",
        values: |c| {
            let errors = latency::errors(&c.counted).into_iter();
            errors
                .map(|one| labelled("status", one.status, one.count))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_controller_watched_commands",
        kind: Counter,
        unit: Count,
        help: "Timed I/O commands: on average one in `sample` (a key of the controller).",
        values: |c| {
            let watched = c.latencies().iter();
            watched
                .map(|one| labelled("op", one.operation.clone(), one.count))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_controller_watched_latency_seconds",
        kind: Counter,
        unit: Seconds,
        help: "Sum of the latencies of timed commands, from the turn that found the doorbell until the completion was posted.",
        values: |c| {
            let watched = c.latencies().iter();
            watched
                .map(|one| labelled("op", one.operation.clone(), one.sum_ns))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_controller_latency_seconds",
        kind: Histogram,
        unit: Seconds,
        help: "Histogram of the latencies of timed commands, from the turn that found the doorbell until the completion was posted; native in the protocol buffer format.",
        values: |c| {
            let watched = c.latencies().iter();
            watched
                .map(|one| {
                    let label = ("op", one.operation.clone());
                    Value(vec![label], Number::Distribution(one.clone().into()))
                })
                .collect()
        },
    },
    Metric {
        name: "nvmirage_controller_watched_stage_seconds",
        kind: Counter,
        unit: Seconds,
        help: "Sum of the times of timed commands by stage: in the host's ring, waiting for the tenant's turn, in checks and translation, at the medium, waiting for the timing model, and until the interrupt.",
        values: |c| {
            let stages = latency::stages(&c.counted).into_iter();
            stages
                .map(|one| labelled("stage", one.stage, one.sum_ns))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_controller_doorbell_messages",
        kind: Counter,
        unit: Count,
        help: "Doorbell writes of I/O queues that arrived as messages; each causes a VM exit.",
        values: |c| one(c.status.doorbell_messages),
    },
    Metric {
        name: "nvmirage_queue_in_flight",
        kind: Gauge,
        unit: Count,
        help: "Commands in flight (fetched, not completed) of the submission queues that complete into the completion queue: the queue depth. Over NVMe/TCP, NBD, vhost-user-blk and ublk, the sum of all hosts.",
        values: |c| sums(c, |q| q.in_flight),
    },
    Metric {
        name: "nvmirage_queue_completions",
        kind: Counter,
        unit: Count,
        help: "Completions posted to the completion queue since its creation. Over NVMe/TCP, NBD, vhost-user-blk and ublk, the sum of all hosts, those that have left included.",
        values: |c| sums(c, |q| q.completions),
    },
    Metric {
        name: "nvmirage_queue_errors",
        kind: Counter,
        unit: Count,
        help: "Completions with an error since the queue's creation. Over NVMe/TCP, NBD, vhost-user-blk and ublk, the sum of all hosts, those that have left included.",
        values: |c| sums(c, |q| q.errors),
    },
    Metric {
        name: "nvmirage_queue_interrupts",
        kind: Counter,
        unit: Count,
        help: "Interrupts sent for the completion queue since its creation.",
        values: |c| queues(c, |q| q.interrupts),
    },
    Metric {
        name: "nvmirage_queue_interrupts_spared",
        kind: Counter,
        unit: Count,
        help: "Interrupts omitted because the host had already consumed every entry.",
        values: |c| queues(c, |q| q.interrupts_spared),
    },
    Metric {
        name: "nvmirage_queue_rests",
        kind: Counter,
        unit: Count,
        help: "Requests to a host with doorbell buffers to ring for its next command, because none had arrived for 1 ms.",
        values: |c| queues(c, |q| q.rests),
    },
    Metric {
        name: "nvmirage_queue_reactor",
        kind: Gauge,
        unit: Count,
        help: "Reactor that serves the completion queue.",
        values: |c| {
            let places = c.status.placement.iter();
            places
                .map(|p| labelled("queue", p.queue.to_string(), p.reactor as u64))
                .collect()
        },
    },
];

/// By completion queue; of hosts over NVMe/TCP, NBD, vhost-user-blk or ublk by its number.
fn sums(counts: &ControllerCounts, of: fn(&Sums) -> u64) -> Vec<Value> {
    let sums = counts.by_queue().into_iter();
    sums.map(|(cqid, sums)| labelled("queue", cqid.to_string(), of(&sums)))
        .collect()
}

fn queues(
    counts: &ControllerCounts,
    of: fn(&controller::counters::QueueCounted) -> u64,
) -> Vec<Value> {
    let queues = counts.counted.queues.iter();
    queues
        .map(|queue| labelled("queue", queue.cqid.to_string(), of(queue)))
        .collect()
}

const NAMESPACES: &[Metric<NamespaceStatus>] = &[
    Metric {
        name: "nvmirage_namespace_size_bytes",
        kind: Gauge,
        unit: Bytes,
        help: "Size of the namespace.",
        values: |n| one(n.blocks * u64::from(n.config.lba_size)),
    },
    Metric {
        name: "nvmirage_namespace_controllers",
        kind: Gauge,
        unit: Count,
        help: "Number of controllers that the namespace is attached to.",
        values: |n| one(n.controllers.len() as u64),
    },
];

/// Counters of a namespace on one controller.
struct Attached {
    namespace: String,
    controller: String,
    totals: Option<latency::NamespaceTotals>,
    /// Counters of the timed commands only.
    traffic: latency::NamespaceTraffic,
}

impl Attached {
    fn each_way(&self, of: fn(&latency::NamespaceTotals) -> [u64; 2]) -> Vec<Value> {
        let all = self.totals.iter().flat_map(|totals| {
            let both = ["read", "write"].into_iter().zip(of(totals));
            both.map(|(way, count)| {
                let labels = vec![
                    ("controller", self.controller.clone()),
                    ("op", way.to_owned()),
                ];
                Value(labels, Number::Whole(count))
            })
        });
        all.collect()
    }

    fn values(&self, of: fn((u64, u64)) -> u64) -> Vec<Value> {
        let all = Operation::ALL.iter().zip(self.traffic);
        all.map(|(operation, traffic)| {
            let labels = vec![
                ("controller", self.controller.clone()),
                ("op", operation.word().to_owned()),
            ];
            Value(labels, Number::Whole(of(traffic)))
        })
        .collect()
    }

    /// All attachments of a snapshot.
    fn all(snapshot: &Snapshot) -> Vec<Self> {
        let mut all = Vec::new();
        for namespace in &snapshot.namespaces {
            let Some(nsid) = namespace.nsid else {
                continue;
            };
            for name in &namespace.controllers {
                let mut controllers = snapshot.controllers.iter();
                let found = controllers.find(|c| c.status.config.name == *name);
                all.extend(found.map(|controller| Attached {
                    namespace: namespace.config.name.clone(),
                    controller: name.clone(),
                    totals: latency::totals(&controller.counted, nsid),
                    traffic: latency::traffic(&controller.counted, nsid),
                }));
            }
        }
        all
    }
}

const ATTACHED: &[Metric<Attached>] = &[
    Metric {
        name: "nvmirage_namespace_commands",
        kind: Counter,
        unit: Count,
        help: "Commands to the namespace that transferred data, counted like the controller's; only for namespace identifiers up to 32. Reset when the controller is recreated.",
        values: |n| n.each_way(|totals| totals.commands),
    },
    Metric {
        name: "nvmirage_namespace_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes transferred by commands to the namespace.",
        values: |n| n.each_way(|totals| totals.bytes),
    },
    Metric {
        name: "nvmirage_namespace_errors",
        kind: Counter,
        unit: Count,
        help: "I/O commands to the namespace that ended with an error; the controller's metric counts them by status.",
        values: |n| {
            let errors = n.totals.iter().map(|totals| totals.errors);
            let labels = vec![("controller", n.controller.clone())];
            errors
                .map(|count| Value(labels.clone(), Number::Whole(count)))
                .collect()
        },
    },
    Metric {
        name: "nvmirage_namespace_watched_commands",
        kind: Counter,
        unit: Count,
        help: "Timed I/O commands to the namespace that succeeded: on average one in `sample` (a key of the controller). Only for the first 32 namespaces of a controller that receive timed commands.",
        values: |n| n.values(|(commands, _)| commands),
    },
    Metric {
        name: "nvmirage_namespace_watched_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes transferred by these commands.",
        values: |n| n.values(|(_, bytes)| bytes),
    },
];

const TENANTS: &[Metric<TenantStatus>] = &[
    Metric {
        name: "nvmirage_tenant_commands",
        kind: Counter,
        unit: Count,
        help: "Commands of the tenant submitted to media.",
        values: |t| one(t.commands),
    },
    Metric {
        name: "nvmirage_tenant_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes transferred by these commands.",
        values: |t| one(t.bytes),
    },
    Metric {
        name: "nvmirage_tenant_waited",
        kind: Counter,
        unit: Count,
        help: "Commands that were delayed: by the tenant's `iops` or `bandwidth` (cap), or by scheduling and its `in_flight` limit (turn).",
        values: |t| by("for", &[("cap", t.capped), ("turn", t.held)]),
    },
    Metric {
        name: "nvmirage_tenant_in_flight",
        kind: Gauge,
        unit: Count,
        help: "Commands of the tenant in flight at media.",
        values: |t| one(t.at_media),
    },
];

/// All families, with the values of a snapshot.
pub(super) fn of(snapshot: &Snapshot) -> Vec<Family> {
    let mut all = Vec::new();
    let reactors = &snapshot.reactors;
    all.extend(kind(REACTORS, "reactor", reactors, |r| {
        r.reactor.to_string()
    }));
    let controllers = &snapshot.controllers;
    all.extend(kind(CONTROLLERS, "controller", controllers, |c| {
        c.status.config.name.clone()
    }));
    all.extend(kind(NETWORK, "controller", controllers, |c| {
        c.status.config.name.clone()
    }));
    let namespaces = &snapshot.namespaces;
    all.extend(kind(NAMESPACES, "namespace", namespaces, |n| {
        n.config.name.clone()
    }));
    all.extend(kind(ATTACHED, "namespace", &Attached::all(snapshot), |n| {
        n.namespace.clone()
    }));
    all.extend(kind(MEDIA, "media", &snapshot.media, |m| {
        m.config.name.clone()
    }));
    all.extend(kind(TENANTS, "tenant", &snapshot.tenants, |t| {
        t.config.name.clone()
    }));
    all.push(Family {
        name: "nvmirage_build_info",
        kind: Gauge,
        unit: Count,
        help: "1, with the version of the program.",
        samples: vec![Sample {
            labels: vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
            value: Number::Whole(1),
        }],
    });
    all.extend(process::families(snapshot));
    all
}

fn kind<T>(
    metrics: &[Metric<T>],
    label: &'static str,
    objects: &[T],
    name: impl Fn(&T) -> String,
) -> Vec<Family> {
    let family = |metric: &Metric<T>| {
        let mut samples = Vec::new();
        for object in objects {
            for Value(further, value) in (metric.values)(object) {
                let mut labels = vec![(label, name(object))];
                labels.extend(further);
                samples.push(Sample { labels, value });
            }
        }
        Family {
            name: metric.name,
            kind: metric.kind,
            unit: metric.unit,
            help: metric.help,
            samples,
        }
    };
    metrics.iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The book's table.
    fn page() -> String {
        let mut rows = String::new();
        for family in of(&Snapshot::default()) {
            let total = if family.kind == Counter { "_total" } else { "" };
            rows += &format!(
                "| `{}{total}` | {} | {} |\n",
                family.name,
                family.kind.word(),
                family.help
            );
        }
        rows
    }

    #[test]
    fn the_page_in_the_book_has_all_of_them() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../book/src/reference/metrics.md"
        );
        let book = std::fs::read_to_string(path).unwrap();
        let (before, rest) = book.split_once("|---|---|---|\n").expect("it has a table");
        let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
        let wanted = format!("{before}|---|---|---|\n{}\n{after}", page());
        if std::env::var_os("UPDATE_BOOK").is_some() {
            std::fs::write(path, wanted).unwrap();
            return;
        }
        assert_eq!(
            book, wanted,
            "renew it with UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage the_page_in_the_book"
        );
    }

    /// The metrics and labels in the example for Grafana exist.
    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let text = include_str!("../../../../examples/grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let all = of(&Snapshot::default());
        let mut asked = 0;
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for name in words.filter(|word| word.starts_with("nvmirage_")) {
                    let family = all.iter().find(|family| {
                        let ends: &[&str] = match family.kind {
                            Counter => &["_total"],
                            Gauge => &[""],
                            Histogram => &["", "_bucket", "_sum", "_count"],
                        };
                        let mut ends = ends.iter();
                        ends.any(|end| name.strip_suffix(end) == Some(family.name))
                    });
                    assert!(family.is_some(), "{name} of {query}");
                    asked += 1;
                }
            }
        }
        assert!(asked >= 10);
    }

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let all = of(&Snapshot::default());
        let mut names: Vec<_> = all.iter().map(|family| family.name).collect();
        for family in &all {
            // OpenMetrics 1.0, 4.2: the unit is the end of the name
            assert!(family.name.ends_with(family.unit.word()), "{}", family.name);
            assert!(!family.name.ends_with("_total"), "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.help);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }
}
