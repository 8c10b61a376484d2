//! What a process that dies leaves, and its successor's restoring of it.

use super::super::{Mutation, Test, integration};

/// A test of lanes that die.
const fn crash(name: &'static str) -> Test {
    integration("controller", &["--test", "crash"], name)
}

const ONCE: Test = crash("every_command_completes_once_wherever_the_process_dies");
const DAMAGED: Test = crash("a_damaged_area_is_refused_or_goes_on");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "restart-status-unsaved",
        guard: "a completion that is written again has the status that it had",
        file: "crates/controller/src/lane/complete.rs",
        from: "        slot.error = status;\n",
        to: "",
        test: ONCE,
    },
    Mutation {
        name: "restart-posting-dropped",
        guard: "a completion that was being written is written",
        file: "crates/controller/src/lane/restore.rs",
        from: "CommandState::POSTING if slot.posting() == tail => Way::Post,",
        to: "CommandState::POSTING if slot.posting() == u16::MAX => Way::Post,",
        test: ONCE,
    },
    Mutation {
        name: "restart-posted-twice",
        guard: "a completion that was written is not written again",
        file: "crates/controller/src/lane/restore.rs",
        from: "CommandState::POSTING if slot.posting() == tail => Way::Post,",
        to: "CommandState::POSTING => Way::Post,",
        test: ONCE,
    },
    Mutation {
        name: "restart-fetched-twice",
        guard: "a command whose fetch was being saved is not fetched again",
        file: "crates/controller/src/lane/restore.rs",
        from: "if slot.number() == progress.fetched() {",
        to: "if slot.number() == progress.fetched().wrapping_add(1) {",
        test: ONCE,
    },
    Mutation {
        name: "restart-shadow-forgotten",
        guard: "a shadow that has moved counts, and the register does not",
        file: "crates/controller/src/queue/mod.rs",
        from: "            moved: bell.moved(),\n",
        to: "            moved: false,\n",
        test: ONCE,
    },
    Mutation {
        name: "restart-interrupt-lost",
        guard: "the interrupt of completions that were posted is raised again",
        file: "crates/controller/src/lane/restore.rs",
        from: "        self.unannounced.add(self.cq.posted());\n",
        to: "",
        test: ONCE,
    },
    Mutation {
        name: "restart-queue-unknown",
        guard: "a queue that the controller does not know has no command",
        file: "crates/controller/src/lane/restore.rs",
        from: "            if sqs >> position & 1 == 0 {",
        to: "            if sqs == 0 {",
        test: ONCE,
    },
    Mutation {
        name: "restart-pair-again",
        guard: "a pair that its medium may have executed is not executed again",
        file: "crates/controller/src/lane/restore.rs",
        from: "        return if is_alone { Way::Again } else { interrupted };",
        to: "        return Way::Again;",
        test: ONCE,
    },
    Mutation {
        name: "restart-tickets-of-before",
        guard: "a command has no ticket of the process that died",
        file: "crates/controller/src/state/slot.rs",
        from: "        self.counted = Counted::new();\n        self.outstanding = 0;\n",
        to: "        self.counted = Counted::new();\n",
        test: ONCE,
    },
    Mutation {
        name: "restart-unchecked",
        guard: "positions that were saved are in their rings",
        file: "crates/controller/src/lane/restore.rs",
        from: "    if saved.tail >= saved.entries || saved.progress.head() >= saved.entries {",
        to: "    if saved.tail > saved.entries && saved.progress.head() > saved.entries {",
        test: DAMAGED,
    },
];
