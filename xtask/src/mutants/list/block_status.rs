//! Block status over NBD, and the query for allocated blocks behind it.

use super::super::{Mutation, Test, integration, unit};

/// A test of a client on a controller.
const fn client(name: &'static str) -> Test {
    integration("transport", &["--test", "transport"], name)
}

/// A test of a medium.
const fn medium(name: &'static str) -> Test {
    integration("media", &["--test", "media"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "nbd-status-context",
        guard: "block status needs the metadata context",
        file: "crates/transport/src/nbd/judge.rs",
        from: "if style.has_allocation && asked.len > 0",
        to: "if asked.len > 0",
        test: client("nbd::status::wrong_requests_are_refused"),
    },
    Mutation {
        name: "nbd-status-offer",
        guard: "only a medium that knows its holes has the context",
        file: "crates/transport/src/nbd/offer.rs",
        from: "allocation: traits.allocation,",
        to: "allocation: true,",
        test: unit(
            "transport",
            "nbd::offer::tests::only_a_medium_that_knows_its_holes_has_the_context",
        ),
    },
    Mutation {
        name: "nbd-status-extents",
        guard: "the extents of a reply are bounded by their slot",
        file: "crates/transport/src/nbd/extents.rs",
        from: "Some(_) if self.stored + 1 == self.most =>",
        to: "Some(_) if self.stored == u16::MAX =>",
        test: unit(
            "transport",
            "nbd::extents::tests::extents_and_queries_are_bounded",
        ),
    },
    Mutation {
        name: "nbd-status-queries",
        guard: "the queries for one request are bounded",
        file: "crates/transport/src/nbd/extents.rs",
        from: " || self.queries == QUERIES",
        to: "",
        test: unit(
            "transport",
            "nbd::extents::tests::extents_and_queries_are_bounded",
        ),
    },
    Mutation {
        name: "nbd-status-one",
        guard: "a request for one extent gets one",
        file: "crates/transport/src/nbd/extents.rs",
        from: "let most = if is_one { 1 }",
        to: "let most = if false && is_one { 1 }",
        test: unit("transport", "nbd::extents::tests::one_extent_is_one"),
    },
    Mutation {
        name: "nbd-status-empty",
        guard: "no answer of a medium makes an empty extent",
        file: "crates/transport/src/nbd/extents.rs",
        from: ".clamp(1, self.end - self.next)",
        to: ".min(self.end - self.next)",
        test: unit(
            "transport",
            "nbd::extents::tests::a_run_is_between_one_block_and_all",
        ),
    },
    Mutation {
        name: "nbd-status-unreadable",
        guard: "blocks that cannot be read are no hole",
        file: "crates/transport/src/nbd/work.rs",
        from: "Status::UNRECOVERED_READ_ERROR => extents.rest(),",
        to: "Status::UNRECOVERED_READ_ERROR => Run { is_hole: true, ..extents.rest() },",
        test: client("nbd::status::what_cannot_be_read_is_no_hole"),
    },
    Mutation {
        name: "nbd-status-inside",
        guard: "only a host inside the process sends queries",
        file: "crates/controller/src/lane/allocation.rs",
        from: "self.is_inside\n            && ",
        to: "",
        test: unit(
            "controller",
            "lane::tests::allocation::only_a_host_inside_asks_and_only_where_there_is_an_answer",
        ),
    },
    Mutation {
        name: "nbd-status-range",
        guard: "a query ends with the namespace",
        file: "crates/controller/src/lane/allocation.rs",
        from: "        range(namespace, blocks)?;\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::allocation::blocks_that_are_not_there_are_refused",
        ),
    },
    Mutation {
        name: "nbd-status-marked",
        guard: "a query is refused where a read is",
        file: "crates/controller/src/lane/allocation.rs",
        from: "        permit(namespace, &Command::Read { blocks, fua: false })?;\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::allocation::a_query_is_refused_where_a_read_is",
        ),
    },
    Mutation {
        name: "nbd-status-whole",
        guard: "a block is a hole only if all of its bytes are",
        file: "crates/media/src/channel/survey.rs",
        from: "!run.is_allocated && whole > 0",
        to: "!run.is_allocated",
        test: unit(
            "media",
            "channel::survey::tests::a_block_is_a_hole_only_as_a_whole",
        ),
    },
    Mutation {
        name: "nbd-status-question",
        guard: "a query outside its namespace is refused",
        file: "crates/media/src/channel/survey.rs",
        from: "    is_inside.then_some(Question {",
        to: "    (is_inside || true).then_some(Question {",
        test: medium("allocation::a_query_outside_the_namespace_is_refused"),
    },
    Mutation {
        name: "nbd-status-wake",
        guard: "an answer wakes the reactor",
        file: "crates/media/src/channel/survey.rs",
        from: "let _ = wake.signal();",
        to: "let _ = &wake;",
        test: medium("allocation::a_hole_is_filled_and_made"),
    },
    Mutation {
        name: "nbd-status-shrunk",
        guard: "a file that has become shorter has no hole behind its end",
        file: "crates/memory/src/store/allocated.rs",
        from: ".is_none_or(|end| end > size)",
        to: ".is_none_or(|end| end > size && false)",
        test: unit(
            "memory",
            "store::allocated::tests::a_file_has_space_where_it_was_written",
        ),
    },
    Mutation {
        name: "nbd-status-shared",
        guard: "pages that another process has written are allocated",
        file: "crates/memory/src/store/allocated.rs",
        from: "            return Run::of_file(file, offset, len);",
        to: "            let _ = file;",
        test: unit(
            "memory",
            "store::allocated::tests::pages_that_another_process_has_written_are_allocated",
        ),
    },
    Mutation {
        name: "nbd-status-pages",
        guard: "a query examines a limited number of pages",
        file: "crates/memory/src/store/allocated.rs",
        from: "end.min(first + PAGES_PER_CALL)",
        to: "end",
        test: unit("memory", "store::allocated::tests::a_call_is_bounded"),
    },
];
