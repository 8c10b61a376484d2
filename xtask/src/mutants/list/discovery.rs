//! What hosts read in a discovery log.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "discovery-loopback",
        guard: "hosts elsewhere do not read of loopback addresses",
        file: "crates/transport/src/nvme_tcp/discovery/log.rs",
        from: "(ip.is_loopback() && !here.is_loopback())",
        to: "(ip.is_loopback() && here.is_unspecified())",
        test: unit(
            "transport",
            "nvme_tcp::discovery::log::tests::a_host_reads_only_addresses_that_it_can_reach",
        ),
    },
    Mutation {
        name: "discovery-family",
        guard: "an entrance for all addresses of IPv4 is not listed at one of IPv6",
        file: "crates/transport/src/nvme_tcp/discovery/log.rs",
        from: "ip.is_unspecified() && (ip.is_ipv6() || here.is_ipv4())",
        to: "ip.is_unspecified()",
        test: unit(
            "transport",
            "nvme_tcp::discovery::log::tests::a_host_reads_only_addresses_that_it_can_reach",
        ),
    },
    Mutation {
        name: "discovery-admitted",
        guard: "a host does not read of entrances that refuse it",
        file: "crates/transport/src/nvme_tcp/discovery/log.rs",
        from: "            let is_seen = listed.admits(&reader.hostnqn);\n",
        to: "            let is_seen = true;\n",
        test: unit(
            "transport",
            "nvme_tcp::discovery::log::tests::a_host_reads_only_of_entrances_that_admit_it",
        ),
    },
    Mutation {
        name: "discovery-unseen",
        guard: "a host gets no event of entrances that refuse it",
        file: "crates/transport/src/nvme_tcp/discovery/mod.rs",
        from: "        if before != after {\n",
        to: "        if log.generation != self.log.generation {\n",
        test: unit(
            "transport",
            "nvme_tcp::discovery::tests::a_change_of_what_a_host_does_not_read_is_no_event",
        ),
    },
    Mutation {
        name: "discovery-link-local",
        guard: "no host reads an address that needs an interface",
        file: "crates/api/src/config/host_address.rs",
        from: " || ip.is_unicast_link_local()",
        to: "",
        test: unit(
            "api",
            "config::host_address::tests::an_address_has_a_port_or_not",
        ),
    },
    Mutation {
        name: "discovery-both-families",
        guard: "an entrance for all addresses of IPv6 is for those of IPv4 as well",
        file: "crates/server/src/supervisor/network.rs",
        from: "set_ipv6_v6only(&socket, false)",
        to: "set_ipv6_v6only(&socket, true)",
        test: unit(
            "server",
            "supervisor::network::tests::a_socket_for_all_addresses_takes_those_of_ipv4",
        ),
    },
    Mutation {
        name: "discovery-referrals",
        guard: "an entrance has few referrals",
        file: "crates/api/src/config/host_address.rs",
        from: "referrals.len() <= MAX_REFERRALS",
        to: "referrals.len() < usize::MAX",
        test: unit(
            "api",
            "config::over_tcp::tests::referrals_are_few_and_different",
        ),
    },
    Mutation {
        name: "discovery-live",
        guard: "a changed key is in the log at once",
        file: "crates/server/src/supervisor/controllers.rs",
        from: "        let told = told.and_then(|()| self.list_again(at));\n",
        to: "",
        test: program(
            "network::discovered::an_advertised_address_and_referrals_are_set_while_a_host_is_connected",
        ),
    },
];
