//! The choice of stages for a change: nothing that looks at it is left out.

use super::super::Mutation;
use super::book::of_xtask;

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "since-unknown-file",
        guard: "a file that no line of the table knows needs every stage",
        file: "xtask/src/stages/since.rs",
        from: "longest.map_or(Needs::Everything, |(_, needs)| *needs)",
        to: "longest.map_or(Needs::Only(&[]), |(_, needs)| *needs)",
        test: of_xtask("stages::since::tests::an_unknown_file_needs_everything"),
    },
    Mutation {
        name: "since-packages-behind",
        guard: "a stage runs for a change of what its packages depend on, however indirectly",
        file: "xtask/src/stages/since.rs",
        from: "open.extend(self.code.get(name).into_iter().flatten());",
        to: "",
        test: of_xtask("stages::since::tests::a_change_reaches_what_depends_on_it_indirectly"),
    },
];
