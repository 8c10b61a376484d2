//! Rules for a controller with `listen = "vhost-user-blk:PATH"`: keys without effect, and its one
//! namespace.

use std::path::Path;

use super::index::Index;
use super::not_nvme::Protocol;
use super::problem::Place;
use super::{Controller, Listen};

/// Default of `queue_depth`.
const USUAL_DEPTH: u16 = 1024;
/// Default of `max_transfer`.
const USUAL_TRANSFER: u64 = 1 << 20;

const PROTOCOL: Protocol = Protocol {
    name: "vhost-user-blk",
    hosts: "front ends",
    device: "whose PCI device is the front end's",
    queues: "whose guest chooses the size of rings and requests",
    zones: true,
};

impl Controller {
    /// The socket of its vhost-user-blk front end, if it has one.
    pub fn vhost_user_blk_socket(&self) -> Option<&Path> {
        match &self.listen {
            Listen::VhostUserBlk(path) => Some(path),
            _ => None,
        }
    }

    /// Appends what is wrong with a controller of a vhost-user-blk front end.
    pub(super) fn validate_vhost(&self, objects: &Index<'_>, place: &mut Place<'_>) {
        if self.vhost_user_blk_socket().is_none() {
            return;
        }
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

    const UNIX: &str = "vhost-user-blk:/run/x.sock";
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
        let listen: Listen = UNIX.parse().unwrap();
        let new = Controller::new("c".to_owned(), listen);
        assert_eq!(new.queue_depth, super::USUAL_DEPTH);
        assert_eq!(new.max_transfer.0, super::USUAL_TRANSFER);
        // rings of the device
        assert_eq!((new.queues, MAX_QUEUES), (64, 64));
        assert_eq!(
            new.vhost_user_blk_socket().unwrap().to_str(),
            Some("/run/x.sock")
        );
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
            let found = problems(UNIX, &format!("namespaces = [\"a\"]\n{line}"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            let start = format!("controller c: {key}");
            assert!(found[0].starts_with(&start), "{line}: {found:?}");
        }
        let moves = problems(UNIX, "namespaces = [\"a\"]\nmigration = true");
        assert!(moves[0].contains("migration: only hosts over vfio-user"));
        for line in [
            "queues = 1",
            "queues = 64",
            "socket_mode = \"0660\"",
            "serial = \"S\"\nsubnqn = \"nqn.2026-01.org.example:x\"\nmodel_number = \"M\"",
            "sample = 0\nrecords = 16\nreactor = 0",
        ] {
            let found = problems(UNIX, &format!("namespaces = [\"a\"]\n{line}"));
            assert_eq!(found, [""; 0], "{line}");
        }
    }

    #[test]
    fn a_socket_is_used_once_whatever_its_protocol() {
        for (second, why) in [
            (UNIX, "is used by controller c"),
            ("vfio-user:/run/x.sock", "controller c has the same socket"),
            ("nbd:/run/x.sock", "controller c has the same socket"),
        ] {
            let more = format!(
                "namespaces = [\"a\"]\n[[controller]]\nname = \"d\"\nlisten = \"{second}\"\nnamespaces = [\"b\"]"
            );
            let found = problems(UNIX, &more);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
        let other = "namespaces = [\"a\"]\n[[controller]]\nname = \"d\"\nlisten = \"vhost-user-blk:/run/y.sock\"\nnamespaces = [\"b\"]";
        assert_eq!(problems(UNIX, other), [""; 0]);
    }

    #[test]
    fn namespaces_with_zones_are_served_and_those_that_virtio_cannot_express_are_refused() {
        let with = |medium: &str, namespace: &str| {
            let text = format!(
                "namespaces = [\"ns\"]\n[[media]]\nname = \"n\"\nsize = \"64MiB\"\n{medium}\n[[namespace]]\nname = \"ns\"\nmedia = \"n\"\n{namespace}"
            );
            problems(UNIX, &text)
        };
        assert_eq!(with("kind = \"ram\"", ""), [""; 0]);
        assert_eq!(with("kind = \"ram\"", "lba_size = 512"), [""; 0]);
        let zoned = "kind = \"ram\"\n[media.zoned]\nzone_size = \"4MiB\"";
        assert_eq!(with(zoned, ""), [""; 0]);
        for (medium, namespace, why) in [
            ("kind = \"keyvalue\"", "", "has keys and values"),
            (
                "kind = \"ram\"",
                "hosts = [\"nqn.2014-08.org.nvmexpress:uuid:1\"]",
                "and front ends have no NQN",
            ),
        ] {
            let found = with(medium, namespace);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
    }
}
