//! What runs the book: that nothing in it is passed over.

use super::super::{Mutation, Test};

/// A test of xtask.
pub(super) const fn of_xtask(name: &'static str) -> Test {
    Test {
        package: "xtask",
        program: &["--bin", "xtask"],
        name,
    }
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "book-block-fails",
        guard: "a command of the book that fails fails its page",
        file: "xtask/src/book/session.sh",
        from: "set -Eeo pipefail",
        to: "set -Eo pipefail",
        test: of_xtask("book::session::tests::a_block_that_fails_fails_the_page"),
    },
    Mutation {
        name: "book-server-ends-well",
        guard: "a server of a page that ends with a failure fails the page",
        file: "xtask/src/book/session.sh",
        from: "        echo \"a server of this page ended with status $?\"\n        return 1",
        to: "        echo \"a server of this page ended with status $?\"",
        test: of_xtask(
            "book::session::tests::a_server_runs_beside_the_rest_and_is_ended_with_the_page",
        ),
    },
    Mutation {
        name: "book-reason",
        guard: "what is not run says why",
        file: "xtask/src/book/page/mod.rs",
        from: "if reason.is_empty() {",
        to: "if rest.is_empty() {",
        test: of_xtask("book::page::tests::what_is_not_run_has_a_reason"),
    },
    Mutation {
        name: "book-language",
        guard: "no block is passed over because of its language",
        file: "xtask/src/book/page/mod.rs",
        from: "(language, None) if SHOWN.contains(&language) => Ok(Kind::Shown),",
        to: "(_, None) => Ok(Kind::Shown),",
        test: of_xtask(
            "book::page::tests::a_fence_without_a_language_or_of_an_unknown_one_is_refused",
        ),
    },
    Mutation {
        name: "book-output",
        guard: "what a page shows is what comes",
        file: "xtask/src/book/output.rs",
        from: "Some((line, after)) if like(first, line) =>",
        to: "Some((line, after)) if like(first, line) || first.len() == line.len() =>",
        test: of_xtask("book::session::tests::an_output_that_does_not_come_fails"),
    },
    Mutation {
        name: "links-headings",
        guard: "a link to a heading leads to one",
        file: "xtask/src/tidy/links.rs",
        from: "(!of_page.contains(anchor)).then",
        to: "of_page.is_empty().then",
        test: of_xtask("tidy::links::tests::links_to_nothing_are_found"),
    },
    Mutation {
        name: "tidy-circle-below",
        guard: "modules below the top of a crate are in no circle",
        file: "xtask/src/tidy/cycles/mod.rs",
        from: "        for scope in tree.scopes() {",
        to: "        for scope in tree.scopes().into_iter().take(1) {",
        test: of_xtask("tidy::cycles::tests::children_of_a_module_are_looked_at_as_well"),
    },
    Mutation {
        name: "tidy-arrow",
        guard: "a crate depends on those that the table allows",
        file: "xtask/src/tidy/arrows.rs",
        from: "if ours && !listed(allowed, from, to)",
        to: "if ours && test && !listed(allowed, from, to)",
        test: of_xtask("tidy::arrows::tests::other_arrows_are_found"),
    },
    Mutation {
        name: "tidy-http",
        guard: "only client and server use an HTTP library",
        file: "xtask/src/tidy/arrows.rs",
        from: "    (\"hyper\", &[\"client\", \"server\"]),\n",
        to: "",
        test: of_xtask("tidy::arrows::tests::crates_of_others_may_be_restricted"),
    },
    Mutation {
        name: "tidy-clause",
        guard: "a sentence begins as a question does only where it asks",
        file: "xtask/src/tidy/prose.rs",
        from: "(text.is_empty() && is_new) || ",
        to: "",
        test: of_xtask("tidy::prose::tests::a_sentence_begins_with_a_clause_only_where_it_asks"),
    },
    Mutation {
        name: "tidy-limits",
        guard: "CONTRIBUTING states the limits that tidy enforces",
        file: "xtask/src/tidy/truth.rs",
        from: "limits().into_iter().filter(",
        to: "limits().into_iter().take(1).filter(",
        test: of_xtask(
            "tidy::truth::tests::the_limits_that_are_written_are_those_that_are_checked",
        ),
    },
];
