//! The choice of stages for a change, and which of them run at the same time.

use super::super::Mutation;
use super::book::of_xtask;

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "stages-guests-in-turn",
        guard: "every guest runs with one commit of three",
        file: "xtask/src/stages/long.rs",
        from: ".then_some(seed % GUEST_PARTS + 1)",
        to: ".then_some(1)",
        test: of_xtask(
            "stages::long::tests::commits_take_turns_with_the_guests_and_a_change_of_them_takes_all",
        ),
    },
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
    Mutation {
        name: "stages-beside-machine",
        guard: "a stage that uses every processor runs alone",
        file: "xtask/src/stages/schedule.rs",
        from: "a.uses != Uses::Machine && b.uses != Uses::Machine",
        to: "a.uses != Uses::Machine || b.uses != Uses::Machine",
        test: of_xtask(
            "stages::schedule::tests::nothing_runs_beside_the_machine_and_one_waits_beside_one_that_computes",
        ),
    },
    Mutation {
        name: "stages-one-clock",
        guard: "of the stages that may depend on time, one runs at a time",
        file: "xtask/src/stages/schedule.rs",
        from: "track.retain(|stage| stage.uses == uses);",
        to: "",
        test: of_xtask(
            "stages::schedule::tests::nothing_runs_beside_the_machine_and_one_waits_beside_one_that_computes",
        ),
    },
];
