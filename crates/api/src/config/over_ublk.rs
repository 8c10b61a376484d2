//! Rules for a controller with `listen = "ublk:"` or `"ublk:ID"`: keys without effect.

use super::index::Index;
use super::not_nvme::Protocol;
use super::problem::Place;
use super::{Controller, Listen, SocketMode};

/// Default of `queue_depth`.
const USUAL_DEPTH: u16 = 1024;
/// Default of `max_transfer`.
const USUAL_TRANSFER: u64 = 1 << 20;

const PROTOCOL: Protocol = Protocol {
    name: "ublk",
    hosts: "block devices",
    device: "which has no PCI device",
    queues: "where the server chooses the depth of queues and the size of requests",
    zones: true,
};

impl Controller {
    /// The ID of its block device, `/dev/ublkbID`, if it has one by ublk: `Some(None)` where the
    /// driver chooses an unused ID.
    pub fn ublk_id(&self) -> Option<Option<u32>> {
        match self.listen {
            Listen::Ublk(id) => Some(id),
            _ => None,
        }
    }

    /// Appends what is wrong with a controller of a block device.
    pub(super) fn validate_ublk(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        if self.ublk_id().is_none() {
            return;
        }
        place.require(self.socket_mode == SocketMode::default(), || {
            "socket_mode: no effect with ublk, which has no socket: remove it, and let udev set the mode of /dev/ublkbID".into()
        });
        let fixed = [
            ("queue_depth", self.queue_depth != USUAL_DEPTH),
            ("max_transfer", self.max_transfer.0 != USUAL_TRANSFER),
        ];
        self.refuse_keys_of_nvme(&PROTOCOL, &fixed, place);
        self.refuse_more_than_blocks(&PROTOCOL, objects, place);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Controller, Listen, MAX_QUEUES, from_toml};

    const MEDIA: &str = r#"
        [[media]]
        name = "m"
        kind = "ram"
        size = "64MiB"
        [[namespace]]
        name = "a"
        media = "m"
        range = "0MiB..32MiB"
        [[namespace]]
        name = "b"
        media = "m"
        range = "32MiB..64MiB"
    "#;

    /// Problems of a controller with these lines.
    fn problems(listen: &str, lines: &str) -> Vec<String> {
        let text = format!("{MEDIA}[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\n{lines}\n");
        let Err(error) = from_toml(&text) else {
            return Vec::new();
        };
        error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn defaults_are_those_of_the_rules() {
        let new = |listen: &str| Controller::new("c".to_owned(), listen.parse::<Listen>().unwrap());
        let any = new("ublk:");
        assert_eq!(any.queue_depth, super::USUAL_DEPTH);
        assert_eq!(any.max_transfer.0, super::USUAL_TRANSFER);
        // hardware queues of the device
        assert_eq!((any.queues, MAX_QUEUES), (64, 64));
        assert_eq!(any.ublk_id(), Some(None));
        assert_eq!(new("ublk:7").ublk_id(), Some(Some(7)));
        assert_eq!(new("nbd:/x").ublk_id(), None);
    }

    #[test]
    fn each_key_without_effect_is_refused_by_name() {
        for (line, key) in [
            ("doorbells = \"mapped\"", "doorbells"),
            ("msix = false", "msix"),
            ("intx = true", "intx"),
            ("vendor_id = 0x1b36", "vendor_id"),
            ("device_id = 0x10", "device_id"),
            ("queue_depth = 512", "queue_depth"),
            ("max_transfer = \"128KiB\"", "max_transfer"),
            ("socket_mode = \"0660\"", "socket_mode"),
            ("fuse = { page_cache = true }", "fuse"),
            ("tcp = {}", "tcp"),
            ("nbd = {}", "nbd"),
            ("ana = { 1 = \"change\" }", "ana"),
            ("advertise = \"192.0.2.1\"", "advertise"),
            ("referrals = [\"192.0.2.1\"]", "referrals"),
            ("reactors = [0]", "reactors"),
            ("queues = 0", "queues"),
            ("queues = 65", "queues"),
        ] {
            for listen in ["ublk:", "ublk:3"] {
                let found = problems(listen, &format!("namespaces = [\"a\"]\n{line}"));
                assert_eq!(found.len(), 1, "{line}: {found:?}");
                let start = format!("controller c: {key}");
                assert!(found[0].starts_with(&start), "{line}: {found:?}");
            }
        }
        let moves = problems("ublk:", "namespaces = [\"a\"]\nmigration = true");
        assert!(moves[0].contains("migration: only hosts over vfio-user"));
        for line in [
            "queues = 1",
            "queues = 64",
            "serial = \"S\"\nsubnqn = \"nqn.2026-01.org.example:x\"\nmodel_number = \"M\"",
            "sample = 0\nrecords = 16\nreactor = 0",
        ] {
            let found = problems("ublk:", &format!("namespaces = [\"a\"]\n{line}"));
            assert_eq!(found, [""; 0], "{line}");
        }
    }

    #[test]
    fn an_id_is_used_once_and_chosen_ones_do_not_meet() {
        let second = |first: &str, second: &str| {
            let more = format!(
                "namespaces = [\"a\"]\n[[controller]]\nname = \"d\"\nlisten = \"{second}\"\nnamespaces = [\"b\"]"
            );
            problems(first, &more)
        };
        let found = second("ublk:3", "ublk:3");
        assert_eq!(
            found,
            [
                "controller d: listen = \"ublk:3\" is used by controller c already: write another ID, or `ublk:` for an unused one"
            ]
        );
        for (one, another) in [
            ("ublk:", "ublk:"),
            ("ublk:", "ublk:0"),
            ("ublk:1", "ublk:2"),
        ] {
            assert_eq!(second(one, another), [""; 0]);
        }
    }

    #[test]
    fn namespaces_with_zones_are_served_and_those_with_keys_are_refused() {
        let with = |medium: &str, namespace: &str| {
            let text = format!(
                "namespaces = [\"ns\"]\n[[media]]\nname = \"n\"\nsize = \"64MiB\"\n{medium}\n[[namespace]]\nname = \"ns\"\nmedia = \"n\"\n{namespace}"
            );
            problems("ublk:", &text)
        };
        for (medium, namespace) in [
            ("kind = \"ram\"", ""),
            ("kind = \"ram\"", "lba_size = 512"),
            ("kind = \"ram\"\n[media.zoned]\nzone_size = \"4MiB\"", ""),
        ] {
            assert_eq!(with(medium, namespace), [""; 0]);
        }
        for (medium, namespace, why) in [
            (
                "kind = \"keyvalue\"",
                "",
                "has keys and values instead of blocks, which ublk cannot express",
            ),
            (
                "kind = \"ram\"",
                "hosts = [\"nqn.2014-08.org.nvmexpress:uuid:1\"]",
                "and block devices have no NQN",
            ),
        ] {
            let found = with(medium, namespace);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
    }
}
