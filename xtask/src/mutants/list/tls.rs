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
        from: "Some(_) if !is_discovery && !config.access.comes_through_tls(nqn, has_generated) => {",
        to: "Some(_) if is_discovery && !config.access.comes_through_tls(nqn, has_generated) => {",
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
        from: "listed.secured.get(hostnqn).copied(),",
        to: "listed.secured.values().next().copied(),",
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
    Mutation {
        name: "concat-group",
        guard: "a key that both sides make needs a Diffie-Hellman group",
        file: "crates/authentication/src/controller.rs",
        from: "if has_key && group == Some(Group::Null) {",
        to: "if has_key && group.is_none() {",
        test: unit(
            "authentication",
            "tests::concatenation::a_key_is_made_where_both_sides_want_it_and_have_a_group",
        ),
    },
    Mutation {
        name: "concat-required",
        guard: "a host that has to make a key does not prove its secret without one",
        file: "crates/authentication/src/controller.rs",
        from: "(Concatenation::NONE, Concatenates::Never | Concatenates::WhenAsked)",
        to: "(Concatenation::NONE, _)",
        test: host(
            "nvme_tcp::concatenation::a_host_that_must_make_a_key_does_not_prove_its_secret_alone",
        ),
    },
    Mutation {
        name: "concat-clear",
        guard: "a connection on which a key was made serves nothing",
        file: "crates/transport/src/nvme_tcp/authentication.rs",
        from: "Self::Pending | Self::Concatenated => Gate::Closed,",
        to: "Self::Pending => Gate::Closed,\n            Self::Concatenated => Gate::Passed,",
        test: host("nvme_tcp::concatenation::a_connection_on_which_a_key_was_made_serves_nothing"),
    },
    Mutation {
        name: "concat-io-clear",
        guard: "a host that has to make a key connects no I/O queue in clear",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "None if qid > 0 && must_concatenate =>",
        to: "None if qid > 1024 && must_concatenate =>",
        test: host(
            "nvme_tcp::concatenation::a_host_that_must_make_a_key_does_not_prove_its_secret_alone",
        ),
    },
    Mutation {
        name: "concat-secret",
        guard: "a key that was made is good for as long as its host has the secret",
        file: "crates/transport/src/nvme_tcp/generated.rs",
        from: "kept.secret.is_same(secret).then(|| found(&kept.psk))",
        to: "Some(found(&kept.psk)).filter(|_| kept.secret.is_same(&kept.secret))",
        test: host(
            "nvme_tcp::concatenation::a_host_comes_with_the_key_that_it_has_made_for_as_long_as_it_has_its_secret",
        ),
    },
    Mutation {
        name: "concat-lifetime",
        guard: "a key that was made has a time limit",
        file: "crates/transport/src/nvme_tcp/generated.rs",
        from: "keys.retain(|kept| now < kept.until);",
        to: "keys.retain(|kept| now <= kept.until);",
        test: unit(
            "transport",
            "nvme_tcp::generated::tests::a_key_lasts_for_an_hour_and_for_the_secret_that_it_was_made_by",
        ),
    },
    Mutation {
        name: "concat-bounded",
        guard: "a host has few keys that it has made",
        file: "crates/transport/src/nvme_tcp/generated.rs",
        from: "if keys.len() >= OF_PAIR {",
        to: "if keys.len() >= PAIRS {",
        test: unit(
            "transport",
            "nvme_tcp::generated::tests::keys_are_few_for_one_pair_and_in_all",
        ),
    },
    Mutation {
        name: "concat-proof",
        guard: "both sides say in their proofs that they make a key",
        file: "crates/authentication/src/proof.rs",
        from: "&[self.sc_c.0],",
        to: "&[0],",
        test: unit(
            "authentication",
            "tests::concatenation::both_sides_make_the_key_of_another_program",
        ),
    },
];
