//! Metrics of the hosts over NVMe/TCP, the NBD clients, the vhost-user-blk front ends, and the
//! block devices of each controller.

use std::collections::BTreeMap;

use reactor::network::NetworkCounts;

use super::ControllerCounts;
use super::metric::{Metric, Value, by, labelled, one};
use super::text::Kind::Counter;
use super::text::Unit::{Bytes, None as Count};

/// Values of a controller over NVMe/TCP; none of another one.
fn over_tcp(c: &ControllerCounts, values: fn(&NetworkCounts) -> Vec<Value>) -> Vec<Value> {
    let is_here = c.status.config.tcp_address().is_some();
    let counts = c.network.as_ref().filter(|_| is_here);
    counts.map_or(Vec::new(), values)
}

/// Values of a controller over NBD; none of another one.
fn over_nbd(c: &ControllerCounts, values: fn(&NetworkCounts) -> Vec<Value>) -> Vec<Value> {
    let is_here = c.status.config.nbd_address().is_some();
    let counts = c.network.as_ref().filter(|_| is_here);
    counts.map_or(Vec::new(), values)
}

/// Values of a controller over vhost-user-blk; none of another one.
fn over_vhost(c: &ControllerCounts, values: fn(&NetworkCounts) -> Vec<Value>) -> Vec<Value> {
    let is_here = c.status.config.vhost_user_blk_socket().is_some();
    let counts = c.network.as_ref().filter(|_| is_here);
    counts.map_or(Vec::new(), values)
}

/// Values of a controller with a block device of this machine; none of another one.
fn over_ublk(c: &ControllerCounts, values: fn(&NetworkCounts) -> Vec<Value>) -> Vec<Value> {
    let is_here = c.status.config.ublk_id().is_some();
    let counts = c.network.as_ref().filter(|_| is_here);
    counts.map_or(Vec::new(), values)
}

/// Reasons are names in the program, so their number is bounded.
fn by_reason(counts: &BTreeMap<&'static str, u64>) -> Vec<Value> {
    let counts = counts.iter();
    counts
        .map(|(reason, count)| labelled("reason", *reason, *count))
        .collect()
}

pub(super) const NETWORK: &[Metric<ControllerCounts>] = &[
    Metric {
        name: "nvmirage_tcp_hosts_connected",
        kind: Counter,
        unit: Count,
        help: "Hosts over NVMe/TCP that have connected.",
        values: |c| over_tcp(c, |n| one(n.hosts)),
    },
    Metric {
        name: "nvmirage_tcp_hosts_ended",
        kind: Counter,
        unit: Count,
        help: "Hosts over NVMe/TCP that have left, by the reason.",
        values: |c| over_tcp(c, |n| by_reason(&n.ended)),
    },
    Metric {
        name: "nvmirage_tcp_queues_ended",
        kind: Counter,
        unit: Count,
        help: "I/O queues over NVMe/TCP that ended before their host, by the reason.",
        values: |c| over_tcp(c, |n| by_reason(&n.all.ended)),
    },
    Metric {
        name: "nvmirage_tcp_connections_refused",
        kind: Counter,
        unit: Count,
        help: "TCP connections that became no queue, by the reason.",
        values: |c| over_tcp(c, |n| by_reason(&n.refused)),
    },
    Metric {
        name: "nvmirage_tcp_commands",
        kind: Counter,
        unit: Count,
        help: "Commands that arrived over NVMe/TCP, admin commands included.",
        values: |c| over_tcp(c, |n| one(n.all.commands)),
    },
    Metric {
        name: "nvmirage_tcp_commands_refused",
        kind: Counter,
        unit: Count,
        help: "Commands over NVMe/TCP that ended with an error before they reached the controller.",
        values: |c| over_tcp(c, |n| one(n.all.refused)),
    },
    Metric {
        name: "nvmirage_tcp_commands_waited",
        kind: Counter,
        unit: Count,
        help: "Commands over NVMe/TCP that waited for memory for their data (`memory` of `tcp`).",
        values: |c| over_tcp(c, |n| one(n.all.waited)),
    },
    Metric {
        name: "nvmirage_tcp_commands_lost",
        kind: Counter,
        unit: Count,
        help: "Commands over NVMe/TCP that the controller abandoned while a medium had their data; that memory stays out of use until the host leaves.",
        values: |c| over_tcp(c, |n| one(n.all.lost)),
    },
    Metric {
        name: "nvmirage_tcp_digest_errors",
        kind: Counter,
        unit: Count,
        help: "Data over NVMe/TCP that arrived with a wrong digest.",
        values: |c| over_tcp(c, |n| one(n.all.digest_errors)),
    },
    Metric {
        name: "nvmirage_tcp_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes over TCP connections of hosts, by direction.",
        values: |c| {
            over_tcp(c, |n| {
                by(
                    "direction",
                    &[("received", n.all.received), ("sent", n.all.sent)],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_nbd_clients_connected",
        kind: Counter,
        unit: Count,
        help: "NBD clients that have chosen an export.",
        values: |c| over_nbd(c, |n| one(n.hosts)),
    },
    Metric {
        name: "nvmirage_nbd_clients_ended",
        kind: Counter,
        unit: Count,
        help: "NBD clients that have left, by the reason.",
        values: |c| over_nbd(c, |n| by_reason(&n.ended)),
    },
    Metric {
        name: "nvmirage_nbd_connections_refused",
        kind: Counter,
        unit: Count,
        help: "NBD connections that became no client, by the reason.",
        values: |c| over_nbd(c, |n| by_reason(&n.refused)),
    },
    Metric {
        name: "nvmirage_nbd_requests",
        kind: Counter,
        unit: Count,
        help: "Requests of NBD clients.",
        values: |c| over_nbd(c, |n| one(n.nbd.requests)),
    },
    Metric {
        name: "nvmirage_nbd_requests_failed",
        kind: Counter,
        unit: Count,
        help: "Requests of NBD clients that were answered with an error.",
        values: |c| over_nbd(c, |n| one(n.nbd.failed)),
    },
    Metric {
        name: "nvmirage_nbd_partial_writes",
        kind: Counter,
        unit: Count,
        help: "Writes of NBD clients to a part of a block; each reads the block first.",
        values: |c| over_nbd(c, |n| one(n.nbd.partial)),
    },
    Metric {
        name: "nvmirage_nbd_partial_writes_retried",
        kind: Counter,
        unit: Count,
        help: "Writes to a part of a block that were repeated because another write had changed the block.",
        values: |c| over_nbd(c, |n| one(n.nbd.retried)),
    },
    Metric {
        name: "nvmirage_nbd_data_bytes",
        kind: Counter,
        unit: Bytes,
        help: "Bytes over the connections of NBD clients, by direction.",
        values: |c| {
            over_nbd(c, |n| {
                by(
                    "direction",
                    &[("received", n.nbd.received), ("sent", n.nbd.sent)],
                )
            })
        },
    },
    Metric {
        name: "nvmirage_vhost_front_ends_connected",
        kind: Counter,
        unit: Count,
        help: "vhost-user-blk front ends that have connected.",
        values: |c| over_vhost(c, |n| one(n.hosts)),
    },
    Metric {
        name: "nvmirage_vhost_front_ends_ended",
        kind: Counter,
        unit: Count,
        help: "vhost-user-blk front ends that have left, by the reason.",
        values: |c| over_vhost(c, |n| by_reason(&n.ended)),
    },
    Metric {
        name: "nvmirage_vhost_connections_refused",
        kind: Counter,
        unit: Count,
        help: "vhost-user-blk connections that became no front end, by the reason.",
        values: |c| over_vhost(c, |n| by_reason(&n.refused)),
    },
    Metric {
        name: "nvmirage_vhost_requests",
        kind: Counter,
        unit: Count,
        help: "Requests that vhost-user-blk front ends have made available in their rings.",
        values: |c| over_vhost(c, |n| one(n.vhost.requests)),
    },
    Metric {
        name: "nvmirage_vhost_requests_failed",
        kind: Counter,
        unit: Count,
        help: "Requests of vhost-user-blk front ends that ended with an error.",
        values: |c| over_vhost(c, |n| one(n.vhost.failed)),
    },
    Metric {
        name: "nvmirage_vhost_requests_resubmitted",
        kind: Counter,
        unit: Count,
        help: "Requests in flight that were executed again after a vhost-user-blk front end had connected again.",
        values: |c| over_vhost(c, |n| one(n.vhost.resubmitted)),
    },
    Metric {
        name: "nvmirage_vhost_kicks",
        kind: Counter,
        unit: Count,
        help: "Notifications of new requests that arrived from the guests of vhost-user-blk front ends.",
        values: |c| over_vhost(c, |n| one(n.vhost.kicks)),
    },
    Metric {
        name: "nvmirage_vhost_calls",
        kind: Counter,
        unit: Count,
        help: "Interrupts that were sent to the guests of vhost-user-blk front ends.",
        values: |c| over_vhost(c, |n| one(n.vhost.calls)),
    },
    Metric {
        name: "nvmirage_vhost_rings_broken",
        kind: Counter,
        unit: Count,
        help: "Rings of vhost-user-blk front ends that stopped because their driver broke a rule of virtio.",
        values: |c| over_vhost(c, |n| one(n.vhost.broken)),
    },
    Metric {
        name: "nvmirage_ublk_devices_attached",
        kind: Counter,
        unit: Count,
        help: "Block devices of this machine that the server began to serve, also again after a restart.",
        values: |c| over_ublk(c, |n| one(n.hosts)),
    },
    Metric {
        name: "nvmirage_ublk_devices_ended",
        kind: Counter,
        unit: Count,
        help: "Block devices of this machine that the server stopped serving, by the reason.",
        values: |c| over_ublk(c, |n| by_reason(&n.ended)),
    },
    Metric {
        name: "nvmirage_ublk_requests",
        kind: Counter,
        unit: Count,
        help: "Requests of Linux to block devices of this machine.",
        values: |c| over_ublk(c, |n| one(n.ublk.requests)),
    },
    Metric {
        name: "nvmirage_ublk_requests_failed",
        kind: Counter,
        unit: Count,
        help: "Requests of Linux to block devices of this machine that ended with an error.",
        values: |c| over_ublk(c, |n| one(n.ublk.failed)),
    },
];

#[cfg(test)]
mod tests {
    use controller::counters::Counted;

    use super::*;
    use crate::observe::{Format, Snapshot, metrics};

    /// The metrics of a controller at an address, whose hosts have done this.
    fn text(listen: &str, counts: NetworkCounts) -> String {
        let status = format!(r#"{{"name":"c","listen":"{listen}","attached":true}}"#);
        let snapshot = Snapshot {
            controllers: vec![ControllerCounts {
                status: serde_json::from_str(&status).unwrap(),
                counted: Counted::default(),
                latencies: std::cell::OnceCell::new(),
                network: Some(counts),
            }],
            ..Snapshot::default()
        };
        String::from_utf8(metrics(&snapshot, Format::Text)).unwrap()
    }

    #[test]
    fn counters_of_a_block_device_are_those_of_its_protocol() {
        let mut counts = NetworkCounts::default();
        counts.hosts = 3;
        counts.ended = [("stopped", 2)].into();
        counts.ublk.requests = 70;
        counts.ublk.failed = 5;
        let lines = [
            "nvmirage_ublk_devices_attached_total{controller=\"c\"} 3\n",
            "nvmirage_ublk_devices_ended_total{controller=\"c\",reason=\"stopped\"} 2\n",
            "nvmirage_ublk_requests_total{controller=\"c\"} 70\n",
            "nvmirage_ublk_requests_failed_total{controller=\"c\"} 5\n",
        ];
        for listen in ["ublk:", "ublk:7"] {
            let text = text(listen, counts.clone());
            for line in lines {
                assert!(text.contains(line), "{line}\n{text}");
            }
            assert!(!text.contains("nvmirage_vhost_") && !text.contains("nvmirage_nbd_"));
        }
        for listen in ["vhost-user-blk:/b.sock", "nbd:/x", "nvme-tcp:127.0.0.1:1"] {
            assert!(!text(listen, counts.clone()).contains("nvmirage_ublk_"));
        }
    }
}
