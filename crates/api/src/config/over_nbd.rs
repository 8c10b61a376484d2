//! Rules for a controller with `listen = "nbd:…"`: keys without effect, namespaces that NBD cannot
//! express, and who may reach it.

use super::index::Index;
use super::not_nvme::Protocol;
use super::object::Object;
use super::problem::Place;
use super::{Controller, Listen, MAX_QUEUES, NbdAddress, SocketMode};

/// Default of `queue_depth`.
const USUAL_DEPTH: u16 = 1024;
/// Default of `max_transfer`.
const USUAL_TRANSFER: u64 = 1 << 20;

const PROTOCOL: Protocol = Protocol {
    name: "NBD",
    hosts: "NBD clients",
    device: "which has no PCI device",
    queues: "whose clients see no queues: the server sets it",
    zones: false,
};

impl Controller {
    /// The address of its NBD clients, if it has any.
    pub fn nbd_address(&self) -> Option<&NbdAddress> {
        match &self.listen {
            Listen::Nbd(address) => Some(address),
            _ => None,
        }
    }

    /// Appends what is wrong with the keys of NBD.
    pub(super) fn validate_nbd(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        let Some(address) = self.nbd_address() else {
            place.require(self.nbd.is_none(), || {
                "nbd: only for a controller with listen = \"nbd:PATH\" or \"nbd:ADDRESS:PORT\": remove it, or change listen".into()
            });
            return;
        };
        let nbd = self.nbd.clone().unwrap_or_default();
        match address {
            NbdAddress::Tcp(address) => {
                let is_loopback = address.ip().to_canonical().is_loopback();
                let is_safe = is_loopback || nbd.authenticates();
                place.require(nbd.allow_anonymous || is_safe, || {
                    let lack = if nbd.has_tls() {
                        "NBD clients are not authenticated: write tls_client_ca in its `nbd`"
                    } else {
                        "NBD clients are neither authenticated nor their data encrypted: write tls_psk, or tls_cert, tls_cert_key and tls_client_ca in its `nbd`"
                    };
                    format!(
                        "listen = \"{}\": other machines reach this address, and {lack}, a loopback address as 127.0.0.1, a UNIX socket as nbd:/PATH, or allow_anonymous = true in its `nbd`",
                        self.listen
                    )
                });
                place.require(self.socket_mode == SocketMode::default(), || {
                    "socket_mode: a TCP address has no UNIX socket: remove it, or listen at nbd:/PATH".into()
                });
            }
            NbdAddress::Unix(_) => place.require(!nbd.allow_anonymous, || {
                "nbd: allow_anonymous: no effect with a UNIX socket, to which socket_mode admits users: remove it".into()
            }),
        }
        for problem in nbd.wrong_keys().into_iter().chain(nbd.wrong_tls()) {
            place.problem(format!("nbd: {problem}"));
        }
        let fixed = [
            ("queues", self.queues != MAX_QUEUES),
            ("queue_depth", self.queue_depth != USUAL_DEPTH),
            ("max_transfer", self.max_transfer.0 != USUAL_TRANSFER),
        ];
        self.refuse_keys_of_nvme(&PROTOCOL, &fixed, place);
        self.refuse_more_than_blocks(&PROTOCOL, objects, place);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Controller, Listen, Nbd, from_toml};

    const TCP: &str = "nbd:127.0.0.1:10809";
    const UNIX: &str = "nbd:/run/x.sock";

    /// Problems of a controller with these lines.
    fn problems(listen: &str, lines: &str) -> Vec<String> {
        let text = format!("[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\n{lines}\n");
        let Err(error) = from_toml(&text) else {
            return Vec::new();
        };
        error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn defaults_are_those_of_the_rules() {
        let nbd = Nbd::default();
        assert_eq!((nbd.clients, nbd.allow_anonymous), (16, false));
        let listen: Listen = "nbd:/x".parse().unwrap();
        let new = Controller::new("c".to_owned(), listen);
        assert_eq!(new.queue_depth, super::USUAL_DEPTH);
        assert_eq!(new.max_transfer.0, super::USUAL_TRANSFER);
    }

    #[test]
    fn each_key_without_effect_is_refused_by_name() {
        for listen in [TCP, UNIX] {
            assert_eq!(problems(listen, ""), [""; 0]);
            for (line, key) in [
                ("doorbells = \"mapped\"", "doorbells"),
                ("msix = false", "msix"),
                ("intx = true", "intx"),
                ("vendor_id = 0x1b36", "vendor_id"),
                ("device_id = 0x10", "device_id"),
                ("queues = 8", "queues"),
                ("queue_depth = 512", "queue_depth"),
                ("max_transfer = \"128KiB\"", "max_transfer"),
                ("fuse = { page_cache = true }", "fuse"),
                ("tcp = {}", "tcp"),
                ("ana = { 1 = \"change\" }", "ana"),
                ("advertise = \"192.0.2.1\"", "advertise"),
                ("referrals = [\"192.0.2.1\"]", "referrals"),
                ("reactors = [0]", "reactors"),
                ("nbd = { clients = 0 }", "nbd: clients"),
                ("nbd = { clients = 257 }", "nbd: clients"),
            ] {
                let found = problems(listen, line);
                assert_eq!(found.len(), 1, "{line}: {found:?}");
                let start = format!("controller c: {key}");
                assert!(found[0].starts_with(&start), "{line}: {found:?}");
            }
            let moves = problems(listen, "migration = true");
            assert!(moves[0].contains("migration: only hosts over vfio-user"));
            for line in [
                "nbd = { clients = 256 }",
                "serial = \"S\"\nsubnqn = \"nqn.2026-01.org.example:x\"\nmodel_number = \"M\"",
                "sample = 0\nrecords = 16\nreactor = 0",
            ] {
                assert_eq!(problems(listen, line), [""; 0], "{line}");
            }
        }
        assert_eq!(problems(UNIX, "socket_mode = \"0660\""), [""; 0]);
        let found = problems(TCP, "socket_mode = \"0660\"");
        assert!(found.len() == 1 && found[0].contains("socket_mode: a TCP address"));
        let found = problems(UNIX, "nbd = { allow_anonymous = true }");
        assert!(found.len() == 1 && found[0].contains("allow_anonymous: no effect"));
        for other in ["vfio-user:/a", "nvme-tcp:127.0.0.1:1", "fuse:/mnt/a"] {
            let found = problems(other, "nbd = {}");
            assert!(found.len() == 1 && found[0].contains("nbd: only for"));
        }
    }

    #[test]
    fn only_loopback_is_served_without_consent() {
        for listen in ["nbd:127.1.2.3:1", "nbd:[::1]:1", "nbd:[::ffff:127.0.0.1]:1"] {
            assert_eq!(problems(listen, ""), [""; 0]);
        }
        for listen in ["nbd:10.0.0.1:1", "nbd:0.0.0.0:1", "nbd:[::]:1"] {
            let found = problems(listen, "");
            assert_eq!(found.len(), 1, "{found:?}");
            for next in ["127.0.0.1", "nbd:/PATH", "allow_anonymous = true"] {
                assert!(found[0].contains(next), "{found:?}");
            }
            let consent = problems(listen, "nbd = { allow_anonymous = true }");
            assert_eq!(consent, [""; 0]);
            // consent for another protocol is none for this one
            let other = problems(listen, "tcp = { allow_anonymous = true }");
            assert_eq!(other.len(), 2, "{other:?}");
        }
    }

    #[test]
    fn tls_that_authenticates_is_served_to_other_machines() {
        const CERT: &str = "tls_cert = \"/c\", tls_cert_key = \"/k\"";
        let outside = |keys: &str| problems("nbd:0.0.0.0:1", &format!("nbd = {{ {keys} }}"));
        assert_eq!(outside("tls_psk = \"/p\""), [""; 0]);
        let demands = format!("{CERT}, tls_client_ca = \"/a\"");
        assert_eq!(outside(&demands), [""; 0]);
        assert_eq!(outside(&format!("{demands}, tls_psk = \"/p\"")), [""; 0]);
        let found = outside(CERT);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("not authenticated: write tls_client_ca"),
            "{found:?}"
        );
        assert_eq!(outside(&format!("{CERT}, allow_anonymous = true")), [""; 0]);
        assert_eq!(problems(UNIX, &format!("nbd = {{ {CERT} }}")), [""; 0]);
    }

    #[test]
    fn keys_of_tls_that_lack_another_one_are_refused() {
        for (keys, says) in [
            (
                "tls_cert = \"/c\"",
                "tls_cert: a certificate has a private key: write tls_cert_key",
            ),
            (
                "tls_cert_key = \"/k\"",
                "tls_cert_key: a private key is that of a certificate: write tls_cert",
            ),
            (
                "tls_client_ca = \"/a\"",
                "tls_client_ca: clients show certificates only to a server that has one: write tls_cert",
            ),
            (
                "tls_cert = \"/c\", tls_cert_key = \"/k\", tls_psk = \"/p\"",
                "tls_psk: with tls_cert and without tls_client_ca",
            ),
            ("tls_psk = \"\"", "tls_psk = \"\": write the path"),
        ] {
            let found = problems(UNIX, &format!("nbd = {{ {keys} }}"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with("controller c: nbd: ") && found[0].contains(says),
                "{found:?}"
            );
        }
    }

    #[test]
    fn an_address_is_used_once_whatever_its_protocol() {
        let twice = |first: &str, second: &str| {
            let more = format!("[[controller]]\nname = \"d\"\nlisten = \"{second}\"");
            problems(first, &more)
        };
        for (first, second, why) in [
            (UNIX, UNIX, "is used by controller c"),
            (
                UNIX,
                "vfio-user:/run/x.sock",
                "controller c has the same socket",
            ),
            (
                "vfio-user:/run/x.sock",
                UNIX,
                "controller c has the same socket",
            ),
            (TCP, "nvme-tcp:127.0.0.1:10809", "write another port"),
            ("nvme-tcp:127.0.0.1:10809", TCP, "write another port"),
        ] {
            let found = twice(first, second);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
        assert_eq!(twice(UNIX, "nbd:/run/y.sock"), [""; 0]);
        assert_eq!(twice(TCP, "nbd:127.0.0.1:10810"), [""; 0]);
        assert_eq!(twice(TCP, UNIX), [""; 0]);
    }

    #[test]
    fn namespaces_that_nbd_cannot_express_are_refused() {
        let with = |medium: &str, namespace: &str| {
            let text = format!(
                "namespaces = [\"ns\"]\n[[media]]\nname = \"m\"\nsize = \"64MiB\"\n{medium}\n[[namespace]]\nname = \"ns\"\nmedia = \"m\"\n{namespace}"
            );
            problems(UNIX, &text)
        };
        assert_eq!(with("kind = \"ram\"", ""), [""; 0]);
        assert_eq!(with("kind = \"ram\"", "lba_size = 512"), [""; 0]);
        for (medium, namespace, why) in [
            ("kind = \"keyvalue\"", "", "has keys and values"),
            (
                "kind = \"ram\"\n[media.zoned]\nzone_size = \"4MiB\"",
                "",
                "has zones",
            ),
            (
                "kind = \"ram\"",
                "hosts = [\"nqn.2014-08.org.nvmexpress:uuid:1\"]",
                "have no NQN",
            ),
        ] {
            let found = with(medium, namespace);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
    }
}
