//! What a running server shows of itself.

use super::super::{Mutation, integration, of_program};

const METRICS: super::super::Test = integration(
    "nvmirage",
    &["--test", "program"],
    "metrics::a_scraper_reads_what_hosts_did",
);

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "metrics-of-its-controller",
        guard: "a controller has the numbers of its own reactor's place",
        file: "crates/nvmirage/src/supervisor/inventory.rs",
        from: "(*at, *slot) == (served.reactor, served.slot)",
        to: "*slot == served.slot",
        test: METRICS,
    },
    Mutation {
        name: "metrics-end",
        guard: "OpenMetrics text says that it is whole",
        file: "crates/nvmirage/src/observe/text.rs",
        from: "    if format == Format::OpenMetrics {\n        text.push_str",
        to: "    if format == Format::Text {\n        text.push_str",
        test: METRICS,
    },
    Mutation {
        name: "metrics-label-escaped",
        guard: "a label cannot end early",
        file: "crates/nvmirage/src/observe/text.rs",
        from: ".replace('\"', \"\\\\\\\"\")",
        to: "",
        test: of_program("observe::text::tests::both_formats_are_what_their_specifications_have"),
    },
];
