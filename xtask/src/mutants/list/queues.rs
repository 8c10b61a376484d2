//! Doorbells, queues, and going to sleep.

use super::super::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "tail-value",
        guard: "a tail advances at most by the free entries, or its queue freezes",
        file: "crates/controller/src/queue/sq.rs",
        from: "if value >= self.entries || distance(self.tail, value, self.entries) > free {",
        to: "if value >= self.entries {",
        test: unit(
            "controller",
            "queue::tests::quirk_a_tail_advances_at_most_by_the_free_entries",
        ),
    },
    Mutation {
        name: "tail-range",
        guard: "a tail behind the ring's end freezes its queue",
        file: "crates/controller/src/queue/sq.rs",
        from: "if value >= self.entries || distance(self.tail, value, self.entries) > free {",
        to: "if value > self.entries || distance(self.tail, value, self.entries) > free {",
        test: unit(
            "controller",
            "queue::tests::quirk_a_tail_advances_at_most_by_the_free_entries",
        ),
    },
    Mutation {
        name: "head-value",
        guard: "a head advances at most to the posted tail, or its queue freezes",
        file: "crates/controller/src/queue/cq.rs",
        from: "if value >= self.entries || distance(self.head, value, self.entries) > posted {",
        to: "if value >= self.entries {",
        test: unit(
            "controller",
            "queue::tests::quirk_a_head_advances_at_most_to_the_posted_tail",
        ),
    },
    Mutation {
        name: "frozen-tail",
        guard: "a bad tail takes nothing of what was submitted before it",
        file: "crates/controller/src/queue/sq.rs",
        from: "            self.tail = self.head;\n",
        to: "",
        test: unit(
            "controller",
            "queue::tests::quirk_a_tail_advances_at_most_by_the_free_entries",
        ),
    },
    Mutation {
        name: "full-queue",
        guard: "a full completion queue stalls its submission queues",
        file: "crates/controller/src/lane/fetch.rs",
        from: "let places = self.share.allowance(position, self.cq.free());",
        to: "let places = self.share.allowance(position, self.cq.entries());",
        test: unit(
            "controller",
            "lane::tests::doorbells::quirk_a_full_completion_queue_stalls_and_loses_nothing",
        ),
    },
    Mutation {
        name: "full-admin-queue",
        guard: "a full admin completion queue stalls the admin submission queue",
        file: "crates/controller/src/admin/mod.rs",
        from: "if self.sq.available() == 0 || self.cq.free() == 0 {",
        to: "if self.sq.available() == 0 {",
        test: unit(
            "controller",
            "controller::tests::queues::a_full_admin_completion_queue_stalls_and_loses_nothing",
        ),
    },
    Mutation {
        name: "shared-minimum",
        guard: "a flood leaves the other queues of a completion queue their places",
        file: "crates/controller/src/lane/share.rs",
        from: "free.min(own + free.saturating_sub(self.kept))",
        to: "free.min(own + free)",
        test: unit(
            "controller",
            "lane::tests::doorbells::quirk_a_shared_completion_queue_keeps_a_minimum_for_each_queue",
        ),
    },
    Mutation {
        name: "phase-bit",
        guard: "an entry has the phase of its round",
        file: "crates/controller/src/queue/cq.rs",
        from: "        self.phase ^= self.tail == 0;\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::doorbells::quirk_a_completion_queue_of_two_entries_serves",
        ),
    },
    Mutation {
        name: "phase-order",
        guard: "the word with the phase is stored last",
        file: "crates/memory/src/order.rs",
        from: "    words[0].store(low, Ordering::Relaxed);\n    words[1].store(high, Ordering::Release);\n",
        to: "    words[1].store(high, Ordering::Release);\n    words[0].store(low, Ordering::Relaxed);\n",
        test: integration(
            "memory",
            &["--test", "store_order"],
            "the_word_with_the_phase_is_stored_last",
        ),
    },
    Mutation {
        name: "lane-second-look",
        guard: "a lane that looks again after arming sees a new tail",
        file: "crates/controller/src/lane/control.rs",
        from: "known || member.sq.has_news(bells)",
        to: "known",
        test: unit(
            "controller",
            "lane::tests::shadow::quirk_after_arming_a_second_look_finds_what_came_meanwhile",
        ),
    },
    Mutation {
        name: "engine-second-look",
        guard: "a reactor looks at every lane again after arming, before it sleeps",
        file: "crates/engine/src/turn.rs",
        from: "let mut found = self.lanes.second_look();",
        to: "let mut found = false;",
        test: integration(
            "engine",
            &["--test", "engine"],
            "the_second_look_finds_a_doorbell_that_rang_meanwhile",
        ),
    },
    Mutation {
        name: "full-fence",
        guard: "between arming and the second look stands a full fence",
        file: "crates/memory/src/order.rs",
        from: "crate::sync::fence(Ordering::SeqCst);",
        to: "crate::sync::fence(Ordering::AcqRel);",
        test: integration(
            "memory",
            &["--release", "--features", "loom", "--test", "loom"],
            "no_submission_is_lost_past_the_event_index",
        ),
    },
    Mutation {
        name: "tail-event-index",
        guard: "EventIdx of a submission queue is the tail that was seen",
        file: "crates/controller/src/queue/sq.rs",
        from: "shadow.store_event_idx(self.doorbell.slot, self.tail);",
        to: "shadow.store_event_idx(self.doorbell.slot, self.tail + 1);",
        test: unit(
            "controller",
            "lane::tests::shadow::quirk_event_idx_is_written_only_when_armed_and_is_the_known_tail",
        ),
    },
    Mutation {
        name: "head-event-index",
        guard: "EventIdx of a completion queue lags its tail",
        file: "crates/controller/src/queue/cq.rs",
        from: "shadow.store_event_idx(self.doorbell.slot, self.head);",
        to: "shadow.store_event_idx(self.doorbell.slot, self.tail);",
        test: unit(
            "controller",
            "lane::tests::shadow::quirk_event_idx_of_a_full_completion_queue_is_the_head_and_lags_the_tail",
        ),
    },
    Mutation {
        name: "late-register",
        guard: "once the shadow has moved, a late trapped write turns no queue back",
        file: "crates/controller/src/queue/mod.rs",
        from: "        if self.moved {\n            return value;\n        }\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::shadow::quirk_a_shadow_that_comes_round_to_its_first_value_still_counts",
        ),
    },
    Mutation {
        name: "stale-shadow",
        guard: "what the shadow held before a queue was made is no doorbell",
        file: "crates/controller/src/queue/mod.rs",
        from: "(Some(now), Some(then)) if now != then => {",
        to: "(Some(now), Some(_)) => {",
        test: unit(
            "controller",
            "lane::tests::shadow::quirk_what_the_shadow_held_before_is_no_doorbell",
        ),
    },
    Mutation {
        name: "kick",
        guard: "a trapped doorbell write is work for its lane",
        file: "crates/controller/src/lane/mod.rs",
        from: "self.queues.kicked = true;",
        to: "",
        test: unit(
            "controller",
            "lane::tests::doorbells::a_trapped_write_is_work",
        ),
    },
    Mutation {
        name: "kick-heats",
        guard: "a kick makes a cold lane hot at once",
        file: "crates/engine/src/lanes.rs",
        from: "            lane.kick();\n            self.heat(slot_of(key));\n",
        to: "            lane.kick();\n",
        test: integration(
            "engine",
            &["--test", "engine"],
            "a_trapped_doorbell_makes_its_lane_hot",
        ),
    },
    Mutation {
        name: "cold-look",
        guard: "a cold lane whose doorbell moved is found again",
        file: "crates/engine/src/lanes.rs",
        from: "            if !slot.hot && slot.lane.as_ref().is_some_and(Lane::has_work) {\n                self.heat(self.cursor);\n",
        to: "            if !slot.hot && slot.lane.as_ref().is_some_and(Lane::has_work) {\n",
        test: integration(
            "engine",
            &["--test", "engine"],
            "a_cold_lane_is_found_again",
        ),
    },
    Mutation {
        name: "late-ticket",
        guard: "a ticket whose slot has another command now completes nothing",
        file: "crates/controller/src/lane/slots.rs",
        from: "(slot.generation == generation && slot.outstanding > 0).then_some(slot)",
        to: "(slot.outstanding > 0).then_some(slot)",
        test: unit(
            "controller",
            "lane::tests::control::a_ticket_that_comes_back_twice_does_not_complete_the_next_command",
        ),
    },
    Mutation {
        name: "late-lane",
        guard: "a ticket of a lane that is gone finds no other lane in its place",
        file: "crates/engine/src/lanes.rs",
        from: "(slot.generation == generation_of(key)).then_some(slot.lane.as_mut())?",
        to: "slot.lane.as_mut()",
        test: integration(
            "engine",
            &["--test", "engine"],
            "a_ticket_of_a_lane_that_is_gone_completes_nothing",
        ),
    },
    Mutation {
        name: "saved-before-told",
        guard: "what a completion tells is saved before it is posted",
        file: "crates/controller/src/admin/mod.rs",
        from: "        self.save_posting(&cqe);\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::queues::what_outlives_the_process_is_written_before_it_is_told",
        ),
    },
];
