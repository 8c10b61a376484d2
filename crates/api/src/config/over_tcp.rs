//! Rules for a controller with `listen = "nvme-tcp:ADDRESS:PORT"`: keys without effect, and who may
//! reach it.

use std::net::SocketAddr;

use super::object::Object;
use super::problem::Place;
use super::{Config, Controller, Doorbells, Listen, Size, SocketMode, host_address};

/// Most entries of an I/O queue that initiators ask for (Linux, `NVMF_MAX_QUEUE_SIZE`).
const MAX_DEPTH: u16 = 1024;

impl Controller {
    /// The address of its NVMe/TCP hosts, if it has any.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self.listen {
            Listen::NvmeTcp(address) => Some(address),
            _ => None,
        }
    }

    /// The address that hosts connect to, as far as the controller knows it.
    pub fn host_address(&self) -> Option<SocketAddr> {
        let listen = self.tcp_address()?;
        let advertised = self.advertise.map(|at| at.or_port(listen.port()));
        Some(advertised.unwrap_or(listen))
    }

    /// Appends what is wrong with the keys of NVMe/TCP.
    pub(super) fn validate_tcp(&self, config: &Config, place: &mut Place<'_>) {
        let Some(address) = self.tcp_address() else {
            let only_here = [
                ("tcp", self.tcp.is_some()),
                ("ana", !self.ana.0.is_empty()),
                ("advertise", self.advertise.is_some()),
                ("referrals", !self.referrals.is_empty()),
            ];
            for (key, is_written) in only_here {
                place.require(!is_written, || {
                    format!("{key}: only for a controller with listen = \"nvme-tcp:ADDRESS:PORT\": remove it, or change listen")
                });
            }
            return;
        };
        let tcp = self.tcp.clone().unwrap_or_default();
        for problem in tcp.wrong_keys() {
            place.problem(format!("tcp: {problem}"));
        }
        place.require(
            tcp.allow_anonymous
                || address.ip().to_canonical().is_loopback()
                || config.authenticates_all(self),
            || {
                format!(
                    "listen = \"{}\": other machines reach this address, and not every host that may connect is authenticated: write a [[host]] with a dhchap_key or a tls_key for each of them, a loopback address as 127.0.0.1, or allow_anonymous = true in its `tcp`",
                    self.listen
                )
            },
        );
        host_address::validate(&self.referrals, place);
        config.validate_listed(
            "tcp: allow",
            tcp.allow.as_deref().unwrap_or_default(),
            place,
        );
        let least = self.max_transfer.0.saturating_mul(2);
        place.require(tcp.memory.0 >= least, || {
            format!(
                "tcp: memory = \"{}\": write at least twice max_transfer, which is {}",
                tcp.memory,
                Size(least)
            )
        });
        place.require(self.queue_depth <= MAX_DEPTH, || {
            format!(
                "queue_depth = {}: hosts over NVMe/TCP use at most {MAX_DEPTH} entries: write that or less",
                self.queue_depth
            )
        });
        let without = [
            ("doorbells", self.doorbells != Doorbells::default()),
            ("msix", !self.msix),
            ("intx", self.intx),
            ("vendor_id", self.vendor_id.is_some()),
            ("device_id", self.device_id.is_some()),
            ("socket_mode", self.socket_mode != SocketMode::default()),
        ];
        for (key, is_written) in without {
            place.require(!is_written, || {
                format!("{key}: no effect with NVMe/TCP, which has no PCI device and no UNIX socket: remove it")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Size, Success, Tcp, from_toml};

    /// Problems of a controller with these lines.
    fn problems(listen: &str, lines: &str) -> Vec<String> {
        let text = format!("[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\n{lines}\n");
        let Err(error) = from_toml(&text) else {
            return Vec::new();
        };
        error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let tcp = Tcp::default();
        assert_eq!(tcp.in_capsule_data, Size(8192));
        assert_eq!(tcp.success, Success::Specified);
        assert!(tcp.header_digest && tcp.data_digest && !tcp.allow_anonymous);
        assert_eq!((tcp.memory, tcp.hosts), (Size(64 << 20), 64));
    }

    #[test]
    fn each_key_without_effect_is_refused_by_name() {
        assert_eq!(problems("nvme-tcp:127.0.0.1:4420", ""), [""; 0]);
        for (line, key) in [
            ("socket_mode = \"0660\"", "socket_mode"),
            ("doorbells = \"mapped\"", "doorbells"),
            ("msix = false", "msix"),
            ("intx = true", "intx"),
            ("vendor_id = 0x1b36", "vendor_id"),
            ("device_id = 0x10", "device_id"),
            ("fuse = { page_cache = true }", "fuse"),
            ("queue_depth = 1025", "queue_depth"),
            ("tcp = { hosts = 0 }", "tcp: hosts"),
            ("tcp = { hosts = 1025 }", "tcp: hosts"),
            (
                "tcp = { in_capsule_data = \"4097B\" }",
                "tcp: in_capsule_data",
            ),
            (
                "tcp = { in_capsule_data = \"128KiB\" }",
                "tcp: in_capsule_data",
            ),
            ("tcp = { memory = \"1MiB\" }", "tcp: memory"),
        ] {
            let found = problems("nvme-tcp:127.0.0.1:4420", line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            let start = format!("controller c: {key}");
            assert!(found[0].starts_with(&start), "{line}: {found:?}");
        }
        for line in [
            "tcp = { memory = \"2MiB\", in_capsule_data = \"0B\", hosts = 256 }",
            "tcp = { success = \"always\", header_digest = false, data_digest = false }",
            "queue_depth = 1024\nqueues = 8\nserial = \"S\"\nsample = 0\nrecords = 16\nreactors = [0]",
        ] {
            assert_eq!(problems("nvme-tcp:127.0.0.1:4420", line), [""; 0], "{line}");
        }
    }

    #[test]
    fn referrals_are_few_and_different() {
        let list = |count: usize| {
            let all = (1..=count).map(|host| format!("\"192.0.2.{host}\""));
            let all: Vec<String> = all.collect();
            format!("referrals = [{}]", all.join(", "))
        };
        assert_eq!(problems("nvme-tcp:127.0.0.1:1", &list(16)), [""; 0]);
        let many = problems("nvme-tcp:127.0.0.1:1", &list(17));
        assert!(
            many.len() == 1 && many[0].contains("17 addresses"),
            "{many:?}"
        );
        for other in ["192.0.2.1:8009", "::ffff:192.0.2.1"] {
            let twice = format!("referrals = [\"192.0.2.1\", \"{other}\"]");
            let twice = problems("nvme-tcp:127.0.0.1:1", &twice);
            assert!(twice.len() == 1 && twice[0].contains("twice"), "{twice:?}");
        }
    }

    #[test]
    fn only_loopback_is_served_without_consent() {
        for listen in [
            "nvme-tcp:127.1.2.3:1",
            "nvme-tcp:[::1]:1",
            "nvme-tcp:[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(problems(listen, ""), [""; 0]);
        }
        for listen in [
            "nvme-tcp:10.0.0.1:1",
            "nvme-tcp:0.0.0.0:1",
            "nvme-tcp:[::]:1",
        ] {
            let found = problems(listen, "");
            assert!(
                found.len() == 1 && found[0].contains("allow_anonymous"),
                "{found:?}"
            );
            let consent = problems(listen, "tcp = { allow_anonymous = true }");
            assert_eq!(consent, [""; 0]);
        }
    }

    #[test]
    fn the_table_is_only_for_tcp_and_addresses_are_used_once() {
        let found = problems("vfio-user:/a", "tcp = {}");
        assert!(
            found.len() == 1 && found[0].contains("tcp: only for"),
            "{found:?}"
        );
        for (key, value) in [
            ("ana", "{ 1 = \"change\" }"),
            ("advertise", "\"192.0.2.1\""),
            ("referrals", "[\"192.0.2.1\"]"),
        ] {
            let line = format!("{key} = {value}");
            let found = problems("vfio-user:/a", &line);
            let says = format!("{key}: only for");
            assert!(found.len() == 1 && found[0].contains(&says), "{found:?}");
            assert_eq!(problems("nvme-tcp:127.0.0.1:1", &line), [""; 0]);
        }
        let some = "ana = { 1 = \"change\", 128 = \"optimized\" }";
        assert_eq!(problems("nvme-tcp:127.0.0.1:1", some), [""; 0]);
        let twice = |first: &str, second: &str| {
            let more = format!(
                "subsystem = \"s\"\ntcp = {{ allow_anonymous = true }}\n[[controller]]\nname = \"d\"\nsubsystem = \"s\"\nlisten = \"{second}\""
            );
            problems(first, &more)
        };
        let both = twice("nvme-tcp:0.0.0.0:4420", "nvme-tcp:127.0.0.1:4420");
        assert!(
            both.len() == 1 && both[0].contains("controller c"),
            "{both:?}"
        );
        assert_eq!(
            twice("nvme-tcp:127.0.0.1:1", "nvme-tcp:127.0.0.1:2"),
            [""; 0]
        );
        assert_eq!(twice("nvme-tcp:127.0.0.1:1", "vfio-user:/a"), [""; 0]);
    }
}
