//! Controllers with a block device of this machine: their IDs, keys without effect and one
//! namespace; and how the server, the command line and the doctor show them.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "over-ublk-id",
        guard: "an ID is one that the driver has",
        file: "crates/api/src/config/listen.rs",
        from: "*id <= MAX_UBLK_ID",
        to: "*id < u32::MAX",
        test: unit(
            "api",
            "config::listen::tests::a_ublk_address_is_an_id_or_none",
        ),
    },
    Mutation {
        name: "over-ublk-digits",
        guard: "an ID has digits only",
        file: "crates/api/src/config/listen.rs",
        from: "let number = is_digits.then(|| id.parse().ok()).flatten();",
        to: "let number = (is_digits || true).then(|| id.parse().ok()).flatten();",
        test: unit(
            "api",
            "config::listen::tests::a_ublk_address_is_an_id_or_none",
        ),
    },
    Mutation {
        name: "over-ublk-overlap",
        guard: "block devices whose IDs the driver chooses do not meet",
        file: "crates/api/src/config/listen.rs",
        from: "return one.is_some() && one == another;",
        to: "return one == another;",
        test: unit(
            "api",
            "config::over_ublk::tests::an_id_is_used_once_and_chosen_ones_do_not_meet",
        ),
    },
    Mutation {
        name: "over-ublk-twice",
        guard: "an ID is used once",
        file: "crates/api/src/config/validate.rs",
        from: "same.filter(|other| other.listen.overlaps(&self.listen))",
        to: "same.filter(|other| other.listen.path().is_some() && other.listen.overlaps(&self.listen))",
        test: unit(
            "api",
            "config::over_ublk::tests::an_id_is_used_once_and_chosen_ones_do_not_meet",
        ),
    },
    Mutation {
        name: "over-ublk-keys",
        guard: "keys of queues that only NVMe has are refused",
        file: "crates/api/src/config/over_ublk.rs",
        from: "(\"queue_depth\", self.queue_depth != USUAL_DEPTH)",
        to: "(\"queue_depth\", false)",
        test: unit(
            "api",
            "config::over_ublk::tests::each_key_without_effect_is_refused_by_name",
        ),
    },
    Mutation {
        name: "over-ublk-mode",
        guard: "a block device has no socket whose mode could be set",
        file: "crates/api/src/config/over_ublk.rs",
        from: "self.socket_mode == SocketMode::default()",
        to: "true",
        test: unit(
            "api",
            "config::over_ublk::tests::each_key_without_effect_is_refused_by_name",
        ),
    },
    Mutation {
        name: "over-ublk-zones",
        guard: "a block device may have zones",
        file: "crates/api/src/config/over_ublk.rs",
        from: "    zones: true,\n",
        to: "    zones: false,\n",
        test: unit(
            "api",
            "config::over_ublk::tests::namespaces_with_zones_are_served_and_those_with_keys_are_refused",
        ),
    },
    Mutation {
        name: "over-ublk-pairs",
        guard: "a namespace of keys and values is no block device",
        file: "crates/api/src/config/over_ublk.rs",
        from: "        self.refuse_more_than_blocks(&PROTOCOL, objects, place);\n",
        to: "        let _ = objects;\n",
        test: unit(
            "api",
            "config::over_ublk::tests::namespaces_with_zones_are_served_and_those_with_keys_are_refused",
        ),
    },
    Mutation {
        name: "over-ublk-namespaces",
        guard: "a block device has one namespace",
        file: "crates/api/src/config/single_namespace.rs",
        from: "            Listen::Ublk(_) => Some(\"ublk\"),\n",
        to: "            Listen::Ublk(_) => None,\n",
        test: unit(
            "api",
            "config::single_namespace::tests::exactly_one_namespace_is_served",
        ),
    },
    Mutation {
        name: "over-ublk-counters",
        guard: "counters of block devices are those of their controllers",
        file: "crates/server/src/observe/network.rs",
        from: "c.status.config.ublk_id().is_some()",
        to: "c.status.config.ublk_id().is_none()",
        test: unit(
            "server",
            "observe::network::tests::counters_of_a_block_device_are_those_of_its_protocol",
        ),
    },
    Mutation {
        name: "over-ublk-disconnect",
        guard: "a block device is not disconnected under its users",
        file: "crates/server/src/supervisor/hosts.rs",
        from: "Some(Protocol::NvmeTcp | Protocol::Nbd | Protocol::VhostUserBlk) => Ok(()),",
        to: "Some(_) => Ok(()),",
        test: unit(
            "server",
            "supervisor::hosts::tests::a_block_device_is_deleted_and_not_disconnected",
        ),
    },
    Mutation {
        name: "over-ublk-guests",
        guard: "guests get no options for a block device of the server's machine",
        file: "crates/client/src/cli/qemu_args.rs",
        from: "            Listen::Ublk(_) => bail!(",
        to: "            Listen::Ublk(_) if name.is_empty() => bail!(",
        test: unit(
            "client",
            "cli::qemu_args::tests::a_block_device_is_refused_with_what_it_is",
        ),
    },
    Mutation {
        name: "over-ublk-listed",
        guard: "the path of a block device is shown where other hosts have an address",
        file: "crates/client/src/cli/hosts.rs",
        from: "Protocol::Ublk => controller.disk.clone().unwrap_or(\"-\".to_owned()),",
        to: "Protocol::Ublk => address(host),",
        test: unit(
            "client",
            "cli::hosts::tests::each_host_of_a_namespace_has_a_row",
        ),
    },
    Mutation {
        name: "over-ublk-kernel",
        guard: "a kernel without the driver's commands is a problem",
        file: "crates/lab/src/doctor/block_devices.rs",
        from: "Some(version) if version < COMMANDS =>",
        to: "Some(version) if version < (5, 0) =>",
        test: unit(
            "lab",
            "doctor::block_devices::tests::the_kernel_has_what_the_disk_uses",
        ),
    },
    Mutation {
        name: "over-ublk-admin",
        guard: "a server without privileges gets advice",
        file: "crates/lab/src/doctor/block_devices.rs",
        from: "    if is_admin {",
        to: "    if is_admin || !is_admin {",
        test: unit(
            "lab",
            "doctor::block_devices::tests::the_driver_is_loaded_and_given_to_the_server",
        ),
    },
    Mutation {
        name: "over-ublk-rings",
        guard: "a machine without io_uring serves no block device",
        file: "crates/lab/src/doctor/block_devices.rs",
        from: "checks.push(match rings.level {",
        to: "checks.push(match Level::Ok {",
        test: unit(
            "lab",
            "doctor::block_devices::tests::block_devices_need_io_uring",
        ),
    },
    Mutation {
        name: "over-ublk-zoned-load",
        guard: "a zoned disk is used by its own programs",
        file: "crates/machine/src/ublk.rs",
        from: "    if is_zoned {",
        to: "    if is_zoned && disk.is_empty() {",
        test: unit("machine", "ublk::tests::a_zoned_disk_is_written_in_order"),
    },
    Mutation {
        name: "ublk-lasts",
        guard: "a device of a namespace in memory does not outlive the server",
        file: "crates/server/src/supervisor/ublk/mod.rs",
        from: "medium.is_some_and(|it| matches!(",
        to: "medium.is_some_and(|it| true || matches!(",
        test: unit(
            "server",
            "supervisor::ublk::tests::a_device_outlives_the_server_only_where_its_medium_does",
        ),
    },
];
