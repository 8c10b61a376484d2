//! What a process that dies leaves, and its successor's restoring of it.

use super::super::{Mutation, Test, integration, unit};

/// A test of lanes that die.
const fn crash(name: &'static str) -> Test {
    integration("controller", &["--test", "crash"], name)
}

const ONCE: Test = crash("every_command_completes_once_wherever_the_process_dies");
const CONTROLLER: Test = unit(
    "controller",
    "controller::tests::saved::the_state_is_of_one_moment_wherever_the_process_dies",
);
const ADMIN: Test = unit(
    "controller",
    "controller::tests::restart::every_admin_command_completes_once_wherever_the_process_dies",
);
const REFUSED: Test = unit(
    "controller",
    "controller::tests::restart::what_another_version_or_controller_has_saved_is_refused",
);
const ZONE_CHANGED: Test = unit(
    "controller",
    "controller::tests::sets::a_zone_that_changed_before_a_death_is_not_forgotten",
);
const POISON: Test =
    crash("a_command_that_ends_the_process_twice_ends_with_an_error_and_no_other_does");
const DAMAGED: Test = crash("a_damaged_area_is_refused_or_goes_on");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "restart-off-the-bus",
        guard: "a lane that was restored and leaves the bus reports its replays",
        file: "crates/controller/src/lane/service.rs",
        from: "Stop::No | Stop::Leaving if self.restored == Restored::Replaying => {",
        to: "Stop::No if self.restored == Restored::Replaying => {",
        test: unit(
            "controller",
            "controller::tests::bus::a_controller_that_is_off_the_bus_goes_on_in_another_process",
        ),
    },
    Mutation {
        name: "restart-poison-again",
        guard: "a command by which the process died twice is not executed a third time",
        file: "crates/controller/src/lane/restore.rs",
        from: "self.slots.slot(slot).begin_again(suspected);",
        to: "self.slots.slot(slot).begin_again(false);",
        test: POISON,
    },
    Mutation {
        name: "restart-poison-nameless",
        guard: "which command it was is stored before it is executed again",
        file: "crates/controller/src/lane/restore.rs",
        from: "self.slots.queue().trying = Index::to(slot);",
        to: "self.slots.queue().trying = Index::NONE;",
        test: POISON,
    },
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
        from: "                None => *saved = SqState::default(),\n",
        to: "                None => {}\n",
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
        name: "restart-written-in-place",
        guard: "the state of a controller is written beside the one that counts",
        file: "crates/controller/src/controller/saved.rs",
        from: "        let next = 1 - current;\n",
        to: "        let next = current;\n",
        test: CONTROLLER,
    },
    Mutation {
        name: "restart-current-too-early",
        guard: "a state of a controller counts when all of it is written",
        file: "crates/controller/src/controller/saved.rs",
        from: "            sequence: head[next].sequence,",
        to: "            sequence: head[current].sequence + 1,",
        test: CONTROLLER,
    },
    Mutation {
        name: "restart-completion-queues-unsaved",
        guard: "the saved state names the completion queues",
        file: "crates/controller/src/controller/saved.rs",
        from: "            cqs: self.queues.saved_cqs(),",
        to: "            cqs: u64::MAX,",
        test: CONTROLLER,
    },
    Mutation {
        name: "restart-waiting-unsaved",
        guard: "a command that waits is saved with its entry",
        file: "crates/controller/src/controller/saved.rs",
        from: "sqe: sqe.map_or([0; 8], |sqe| sqe.to_words()),",
        to: "sqe: [0; 8],",
        test: CONTROLLER,
    },
    Mutation {
        name: "restart-executing-told",
        guard: "a command that another's completion precedes is not told as fetched",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "                self.executing = true;\n",
        to: "",
        test: ADMIN,
    },
    Mutation {
        name: "restart-held-lost",
        guard: "held requests stay held",
        file: "crates/controller/src/controller/restore.rs",
        from: "                self.admin.events.hold(*cid);\n",
        to: "",
        test: ADMIN,
    },
    Mutation {
        name: "restart-admin-posting-lost",
        guard: "an admin completion that was being posted is posted",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "            posted = cq.post(entry, cqe);\n",
        to: "            let _ = cqe;\n            cq.release(entry);\n            posted = Ok(());\n",
        test: ADMIN,
    },
    Mutation {
        name: "restart-aborted-lost",
        guard: "a request that was aborted completes",
        file: "crates/controller/src/controller/restore.rs",
        from: "            if saved.aborted >> at & 1 == 1 {",
        to: "            if saved.aborted >> at & 1 == 2 {",
        test: unit(
            "controller",
            "controller::tests::restart::an_aborted_request_that_waits_for_a_place_completes",
        ),
    },
    Mutation {
        name: "restart-waiting-lost",
        guard: "a command that waited waits again",
        file: "crates/controller/src/controller/restore.rs",
        from: "        self.admin.pending.add(cid, waits, self.now);\n",
        to: "",
        test: ADMIN,
    },
    Mutation {
        name: "restart-admin-interrupt-lost",
        guard: "the interrupt of admin completions that were posted is raised again",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "            // The interrupt of the last completion may have been lost.\n            posted: true,",
        to: "            posted: false,",
        test: ADMIN,
    },
    Mutation {
        name: "restart-version-unchecked",
        guard: "what another version has saved is refused",
        file: "crates/controller/src/controller/saved.rs",
        from: "if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&found) {",
        to: "if found == 0 {",
        test: REFUSED,
    },
    Mutation {
        name: "restart-reset-forgotten",
        guard: "a reset that was going on goes on",
        file: "crates/controller/src/controller/restore.rs",
        from: "        controller.continue_reset();\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::restart::a_reset_or_a_shutdown_that_was_going_on_ends",
        ),
    },
    Mutation {
        name: "restart-queue-on-its-way",
        guard: "a queue that was on its way to its lane is there",
        file: "crates/controller/src/lane/restore.rs",
        from: "                Some(sq) if saved.life == SqLife::NONE => {",
        to: "                Some(sq) if saved.life == SqLife::NONE && sqs.is_empty() => {",
        test: integration("tests-sim", &["--test", "seeds"], "seeds_with_kills"),
    },
    Mutation {
        name: "restart-queue-s-shadow-forgotten",
        guard: "a queue that was on its way knows which value of its shadow is from before it",
        file: "crates/controller/src/lane/restore.rs",
        from: "let (shadow, bell) = known_bell(initial);",
        to: "let (shadow, bell) = known_bell(initial.and(None));",
        test: unit(
            "controller",
            "controller::tests::restart::a_queue_that_was_on_its_way_to_its_lane_is_rung_where_its_host_rings",
        ),
    },
    Mutation {
        name: "restart-buffers-on-their-way",
        guard: "a lane that had not heard of doorbell buffers knows what they had",
        file: "crates/controller/src/lane/restore.rs",
        from: "    let bell = |slot| known_bell(registration.initial(slot));",
        to: "    let bell = |slot| known_bell(registration.initial(slot).and(None));",
        test: unit(
            "controller",
            "controller::tests::restart::doorbell_buffers_that_were_on_their_way_to_a_lane_are_known_to_it",
        ),
    },
    Mutation {
        name: "restart-messages-unordered",
        guard: "admin commands wait for the messages sent before them, also after a restart",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "            self.ordered.get_or_insert(self.sq.tail());\n",
        to: "",
        test: integration("tests-sim", &["--test", "seeds"], "seeds_with_kills"),
    },
    Mutation {
        name: "restart-released-too-early",
        guard: "a lane that was restored fetches nothing before all have replayed",
        file: "crates/controller/src/lane/service.rs",
        from: "self.to_move || self.off_bus || self.restored != Restored::No",
        to: "self.to_move || self.off_bus",
        test: crash("nothing_is_fetched_before_the_release"),
    },
    Mutation {
        name: "restart-unchecked",
        guard: "positions that were saved are in their rings",
        file: "crates/controller/src/lane/restore.rs",
        from: "    if saved.tail >= saved.entries || saved.progress.head() >= saved.entries {",
        to: "    if saved.tail > saved.entries && saved.progress.head() > saved.entries {",
        test: DAMAGED,
    },
    Mutation {
        name: "restart-changed-zones-forgotten",
        guard: "a host hears of zones that changed before a death",
        file: "crates/controller/src/controller/saved.rs",
        from: "with_zones(self.logs.changed_zones.first().is_some())",
        to: "with_zones(false)",
        test: ZONE_CHANGED,
    },
    Mutation {
        name: "restart-zone-event-unsaved",
        guard: "an event that no request waits for is saved at once",
        file: "crates/controller/src/controller/exchange.rs",
        from: "            self.logs.changed_zones.add(failed.nsid, zslba);\n            self.raise(Event::ZoneChanged);\n            self.save();\n",
        to: "            self.logs.changed_zones.add(failed.nsid, zslba);\n            self.raise(Event::ZoneChanged);\n",
        test: ZONE_CHANGED,
    },
    Mutation {
        name: "restart-changed-namespaces-forgotten",
        guard: "a host hears of namespaces that changed before a death",
        file: "crates/controller/src/controller/saved.rs",
        from: "with_namespaces(!self.logs.changed_namespaces.is_empty())",
        to: "with_namespaces(false)",
        test: unit(
            "controller",
            "controller::tests::logs::namespaces_that_changed_before_a_death_are_not_forgotten",
        ),
    },
    Mutation {
        name: "restart-reads-not-late",
        guard: "commands that read are executed again when all writes have been",
        file: "crates/controller/src/lane/restore.rs",
        from: "Way::Again if LATE.contains(&opcode) => Order::Late,",
        to: "Way::Again if LATE.contains(&opcode) => Order::Usual,",
        test: integration(
            "tests-sim",
            &["--test", "seeds"],
            "a_read_that_is_executed_again_sees_no_half_of_a_write",
        ),
    },
];
