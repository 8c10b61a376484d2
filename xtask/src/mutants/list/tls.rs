//! TLS: which key a connection has, whom it stands for, and what a handshake may take.

use super::super::{Mutation, Test, integration, unit};

/// A test of hosts that come through TLS.
const fn host(name: &'static str) -> Test {
    integration("transport", &["--test", "transport"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "tls-host",
        guard: "a key of TLS stands for one host",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "Some(peer) if peer.hostnqn != nqn =>",
        to: "Some(peer) if peer.hostnqn.is_empty() =>",
        test: host("nvme_tcp::secure::a_key_is_for_one_host_and_one_subsystem"),
    },
    Mutation {
        name: "tls-subsystem",
        guard: "a key of TLS is for one subsystem",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "Some(peer) if peer.subnqn != subnqn =>",
        to: "Some(peer) if peer.subnqn.is_empty() =>",
        test: host("nvme_tcp::secure::a_key_is_for_one_host_and_one_subsystem"),
    },
    Mutation {
        name: "tls-required",
        guard: "a host with a key of TLS does not connect without TLS",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "None if !is_discovery && has_key =>",
        to: "None if is_discovery && has_key =>",
        test: host("nvme_tcp::secure::a_host_that_has_a_key_does_not_connect_without_tls"),
    },
    Mutation {
        name: "tls-key-taken",
        guard: "a host whose key was removed does not connect by its handshake",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "Some(_) if !is_discovery && !has_key =>",
        to: "Some(_) if is_discovery && !has_key =>",
        test: host("nvme_tcp::secure::a_key_that_was_removed_is_none_after_its_handshake"),
    },
    Mutation {
        name: "tls-binder",
        guard: "of the keys of one name the host's is taken",
        file: "crates/transport/src/nvme_tcp/secure.rs",
        from: "psks.iter().find(|psk| psk.binds(offer.hello, offer.binder));",
        to: "psks.first();",
        test: host("nvme_tcp::secure::a_host_connects_with_its_key_in_each_form"),
    },
    Mutation {
        name: "tls-digest",
        guard: "the digest in a name is that of the key",
        file: "crates/authentication/src/tls/mod.rs",
        from: "(name == identity.name).then_some(psk)",
        to: "name.starts_with(&identity.name[..8]).then_some(psk)",
        test: unit(
            "authentication",
            "tls::tests::keys_and_names_are_those_of_another_program",
        ),
    },
    Mutation {
        name: "tls-time",
        guard: "a handshake has a time limit",
        file: "crates/transport/src/nvme_tcp/secure.rs",
        from: "Err(_) if now >= self.until =>",
        to: "Err(_) if now == Time(0) =>",
        test: host("nvme_tcp::secure::handshakes_of_one_address_are_few_and_have_a_time_limit"),
    },
    Mutation {
        name: "tls-address",
        guard: "one address has few handshakes in progress",
        file: "crates/transport/src/nvme_tcp/places.rs",
        from: "taken >= of_one || ",
        to: "",
        test: host("nvme_tcp::secure::handshakes_of_one_address_are_few_and_have_a_time_limit"),
    },
    Mutation {
        name: "tls-network",
        guard: "all addresses of a network of IPv6 have the places of one",
        file: "crates/transport/src/nvme_tcp/secure.rs",
        from: "address.to_bits() & !u128::from(u64::MAX)",
        to: "address.to_bits()",
        test: host("nvme_tcp::secure::handshakes_of_one_address_are_few_and_have_a_time_limit"),
    },
    Mutation {
        name: "tls-whole-hello",
        guard: "only a whole ClientHello has a place",
        file: "crates/transport/src/nvme_tcp/greeting.rs",
        from: "Ok(there >= (HEADER + record) as u64)",
        to: "Ok(there > HEADER as u64)",
        test: host("nvme_tcp::secure::one_that_has_not_sent_a_whole_hello_has_no_place"),
    },
    Mutation {
        name: "tls-patience",
        guard: "a host has time for the handshakes of all of its connections",
        file: "crates/transport/src/nvme_tcp/newcomer.rs",
        from: "_ if self.peer.is_some() => SECURE_CONNECT_NS,",
        to: "_ if self.peer.is_some() => CONNECT_NS,",
        test: host(
            "nvme_tcp::secure::a_host_with_a_key_has_time_for_the_handshakes_of_its_other_connections",
        ),
    },
    Mutation {
        name: "tls-log",
        guard: "the discovery log says to each host whether it needs TLS",
        file: "crates/transport/src/nvme_tcp/discovery/log.rs",
        from: "listed.secured.contains(hostnqn),",
        to: "!listed.secured.is_empty(),",
        test: unit(
            "transport",
            "nvme_tcp::discovery::log::tests::a_page_lists_itself_and_each_subsystem_at_its_address",
        ),
    },
    Mutation {
        name: "tls-unwatched",
        guard: "one that waits for a place wakes no reactor",
        file: "crates/reactor/src/hosted/target/mod.rs",
        from: "let watched = if interest == Interest::NONE {",
        to: "let watched = if before == Interest::NONE {",
        test: unit(
            "reactor",
            "hosted::target::tests::one_that_has_not_sent_its_hello_is_not_watched_and_keeps_its_number",
        ),
    },
    Mutation {
        name: "tls-rank",
        guard: "silent connections give way before handshakes",
        file: "crates/reactor/src/hosted/target/mod.rs",
        from: "u8::from(greeting.is_shaking())",
        to: "0",
        test: unit(
            "reactor",
            "hosted::target::tests::one_whose_handshake_is_in_progress_stays_longer_than_a_silent_one",
        ),
    },
    Mutation {
        name: "tls-staged",
        guard: "a record that the socket did not take is sent, and not the next one",
        file: "crates/transport/src/nvme_tcp/stream.rs",
        from: "if self.staged == 0 {\n                self.staged = fill",
        to: "if self.staged < RECORD {\n                self.staged = fill",
        test: unit(
            "transport",
            "nvme_tcp::stream::tests::parts_leave_in_order_in_clear_and_through_tls",
        ),
    },
    Mutation {
        name: "tls-abandoned",
        guard: "an abandoned handshake leaves its place",
        file: "crates/transport/src/nvme_tcp/secure.rs",
        from: "if Arc::strong_count(&self.bell) == 1 {",
        to: "if Arc::strong_count(&self.bell) == 0 {",
        test: host("nvme_tcp::secure::handshakes_of_one_address_are_few_and_have_a_time_limit"),
    },
    Mutation {
        name: "tls-key-of-name",
        guard: "a key is given for its own name",
        file: "crates/tls/src/context.rs",
        from: "self.agreed = Some((offer.identity.to_vec(), psk));",
        to: "self.agreed = Some((Vec::new(), psk));",
        test: unit(
            "tls",
            "tests::data_arrive_in_order_whatever_the_socket_takes",
        ),
    },
    Mutation {
        name: "tls-hello",
        guard: "the binders end a ClientHello",
        file: "crates/tls/src/hello.rs",
        from: "if !is_last || !data.is_empty() {",
        to: "if !data.is_empty() {",
        test: unit("tls", "hello::tests::pieces_and_other_bytes_are_no_hello"),
    },
    Mutation {
        name: "tls-consent",
        guard: "a host without a key or a secret is not authenticated",
        file: "crates/api/src/config/host.rs",
        from: "host.dhchap_key.is_some() || host.tls_key.is_some()",
        to: "host.dhchap_key.is_some() || host.tls_key.is_none()",
        test: unit(
            "api",
            "config::host::tests::hosts_with_a_key_of_tls_are_authenticated",
        ),
    },
];
