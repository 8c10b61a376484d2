//! Controllers over vhost-user-blk: their one namespace, keys without effect and sockets; and what
//! monitors get.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "vhost-keys",
        guard: "keys of queues that only NVMe has are refused",
        file: "crates/api/src/config/over_vhost.rs",
        from: "(\"queue_depth\", self.queue_depth != USUAL_DEPTH)",
        to: "(\"queue_depth\", false)",
        test: unit(
            "api",
            "config::over_vhost::tests::each_key_without_effect_is_refused_by_name",
        ),
    },
    Mutation {
        name: "vhost-namespaces",
        guard: "a virtio disk has one namespace",
        file: "crates/api/src/config/single_namespace.rs",
        from: "self.namespaces.len() < 2",
        to: "self.namespaces.len() < 3",
        test: unit(
            "api",
            "config::single_namespace::tests::exactly_one_namespace_is_served",
        ),
    },
    Mutation {
        name: "vhost-none",
        guard: "a configuration that is read names the namespace of a virtio disk",
        file: "crates/api/src/config/read.rs",
        from: "config.problems_of_new()",
        to: "config.validate()",
        test: unit(
            "api",
            "config::single_namespace::tests::exactly_one_namespace_is_served",
        ),
    },
    Mutation {
        name: "vhost-detached",
        guard: "a served controller stays valid when its namespace is detached",
        file: "crates/api/src/config/single_namespace.rs",
        from: "self.namespaces.len() < 2",
        to: "self.namespaces.len() == 1",
        test: unit(
            "api",
            "config::single_namespace::tests::a_served_controller_may_lose_its_namespace",
        ),
    },
    Mutation {
        name: "vhost-created",
        guard: "a controller over vhost-user-blk is not created without a namespace",
        file: "crates/server/src/supervisor/steps.rs",
        from: "let Some(what) = controller.lack()",
        to: "let Some(what) = controller.lack().filter(|_| false)",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::a_controller_is_created_with_one_namespace",
        ),
    },
    Mutation {
        name: "vhost-attached",
        guard: "no second namespace is attached to a virtio disk",
        file: "crates/server/src/supervisor/vhost_user_blk/mod.rs",
        from: "if is_attached && other != name {",
        to: "if is_attached && other.is_empty() {",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::the_namespace_may_be_detached_and_another_one_take_its_place",
        ),
    },
    Mutation {
        name: "vhost-listed",
        guard: "a namespace takes the place of one that was detached",
        file: "crates/server/src/supervisor/operate.rs",
        from: "config.namespaces = vec![namespace.to_owned()];",
        to: "config.namespaces.push(namespace.to_owned());",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::the_namespace_may_be_detached_and_another_one_take_its_place",
        ),
    },
    Mutation {
        name: "vhost-socket",
        guard: "the socket of a front end goes with its controller",
        file: "crates/server/src/supervisor/vhost_user_blk/mod.rs",
        from: "        served.socket = Some(socket);\n",
        to: "        std::mem::forget(socket);\n",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::a_socket_replaces_a_stale_one_has_its_mode_and_goes_with_its_controller",
        ),
    },
    Mutation {
        name: "vhost-protocol",
        guard: "front ends are hosts of their protocol",
        file: "crates/server/src/supervisor/vhost_user_blk/mod.rs",
        from: "Some(Protocol::VhostUserBlk);",
        to: "Some(Protocol::Nbd);",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::its_counters_are_those_of_its_protocol",
        ),
    },
    Mutation {
        name: "vhost-counters",
        guard: "counters of front ends are those of their controllers",
        file: "crates/server/src/observe/network.rs",
        from: "c.status.config.vhost_user_blk_socket().is_some()",
        to: "c.status.config.vhost_user_blk_socket().is_none()",
        test: unit(
            "server",
            "supervisor::vhost_user_blk::tests::its_counters_are_those_of_its_protocol",
        ),
    },
    Mutation {
        name: "vhost-rings",
        guard: "monitors use no more rings than the device has",
        file: "crates/machine/src/vhost_user.rs",
        from: "self.rings.min(USUAL_RINGS)",
        to: "USUAL_RINGS",
        test: unit(
            "machine",
            "vhost_user::tests::no_more_rings_are_used_than_there_are",
        ),
    },
    Mutation {
        name: "vhost-reconnect",
        guard: "an older QEMU gets the option that it knows",
        file: "crates/machine/src/vhost_user.rs",
        from: "if version < RECONNECT_MS",
        to: "if version <= RECONNECT_MS",
        test: unit(
            "machine",
            "vhost_user::tests::qemu_shares_its_memory_and_connects_again",
        ),
    },
];
