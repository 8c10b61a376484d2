//! What goes wrong under load only: seen by the simulation.

use crate::mutants::{Mutation, Test, integration, unit};

const FROM_1: Test = integration("tests-sim", &["--test", "seeds"], "seeds_from_1");
const REPEATS: Test = integration("tests-sim", &["--test", "seeds"], "a_seed_repeats_exactly");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "load-second-look",
        guard: "a reactor that is about to sleep looks again",
        file: "crates/engine/src/turn.rs",
        from: "!lanes && !members && !mail",
        to: "true",
        test: REPEATS,
    },
    Mutation {
        name: "load-arm",
        guard: "a lane that rests asks its host to ring",
        file: "crates/controller/src/lane/mod.rs",
        from: "            member.sq.arm(bells);",
        to: "            let _ = &member.sq;",
        test: FROM_1,
    },
    Mutation {
        name: "load-drained",
        guard: "an unmap is answered when nothing issued before it is in flight",
        file: "crates/controller/src/controller/mod.rs",
        from: ".all(|(_, cq)| cq.lane.is_none() || cq.drained >= epoch)",
        to: ".all(|(_, cq)| cq.lane.is_none() || cq.drained <= epoch || true)",
        test: FROM_1,
    },
    Mutation {
        name: "load-part",
        guard: "a command that is out in part waits for that part, although its next try is refused",
        file: "crates/controller/src/lane/fetch.rs",
        from: "            Issued::Ended(status) if slot.outstanding > 0 => {",
        to: "            Issued::Ended(status) if slot.outstanding > 9 => {",
        test: unit(
            "controller",
            "lane::tests::commands::a_command_whose_namespace_goes_while_a_part_of_it_is_out_ends_with_that_part",
        ),
    },
    Mutation {
        name: "load-arm-head",
        guard: "a lane that a full completion queue holds up asks its host to ring when it has consumed",
        file: "crates/controller/src/lane/mod.rs",
        from: "            self.queues.cq.arm(bells);",
        to: "            let _ = bells;",
        test: FROM_1,
    },
    Mutation {
        name: "load-rings",
        guard: "a lane finds its rings anew when the map changes",
        file: "crates/controller/src/lane/control.rs",
        from: "                self.queues.resolve(&view);\n",
        to: "",
        test: FROM_1,
    },
    Mutation {
        name: "load-head",
        guard: "a completion queue that is made again begins at its first entry",
        file: "crates/controller/src/controller/admin/queues.rs",
        from: "        self.doorbells.pages.store(cq_head_slot(cqid), 0);\n",
        to: "",
        test: FROM_1,
    },
    Mutation {
        name: "load-withheld",
        guard: "a reactor does not sleep past the time of an interrupt that is withheld",
        file: "crates/controller/src/controller/exchange.rs",
        from: "stage.chain(silent).chain(withheld)",
        to: "stage.chain(silent).chain(withheld.filter(|_| false))",
        test: FROM_1,
    },
    Mutation {
        name: "load-kick",
        guard: "a doorbell that is a message heats its lane",
        file: "crates/engine/src/lanes/mod.rs",
        from: "            lane.kick();\n            self.heat(slot_of(key));",
        to: "            lane.kick();",
        test: FROM_1,
    },
    Mutation {
        name: "load-kick-away",
        guard: "a doorbell that is a message reaches a lane elsewhere",
        file: "crates/engine/src/lanes/mod.rs",
        from: "            self.send(to, key, About::Kick);",
        to: "            let _ = to;",
        test: FROM_1,
    },
    Mutation {
        name: "load-lines",
        guard: "where interrupts go another way, what is unacknowledged is told again",
        file: "crates/engine/src/deliver.rs",
        from: "                && lane.is_unacknowledged()\n",
        to: "                && false\n",
        test: FROM_1,
    },
    Mutation {
        name: "load-end",
        guard: "a lane elsewhere has ended before its home hears that it has stopped",
        file: "crates/engine/src/lanes/travel.rs",
        from: "                return self.vacate(index);",
        to: "                return;",
        test: FROM_1,
    },
    Mutation {
        name: "load-program-over",
        guard: "a program of commands ends when its clock says so",
        file: "crates/driver/src/program/run.rs",
        from: "        if pace.is_over(look.last - begun) {\n",
        to: "        if false {\n",
        test: integration(
            "driver",
            &["--test", "driver"],
            "workload::nothing_is_submitted_once_it_is_over",
        ),
    },
    Mutation {
        name: "load-plot-names",
        guard: "a bar has all of its name, in lines",
        file: "crates/plot/src/draw.rs",
        from: "        text::write(&area, below, SMALL, HPos::Center, more)?;\n",
        to: "        let _ = (below, more);\n",
        test: unit("plot", "tests::a_place_has_all_of_its_name"),
    },
];
