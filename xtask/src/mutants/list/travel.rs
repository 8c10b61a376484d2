//! Lanes that live on another reactor than their controller, and that move.

use crate::mutants::{Mutation, integration};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "travel-behind",
        guard: "a lane elsewhere fetches nothing before it knows what its host may know",
        file: "crates/controller/src/lane/fetch.rs",
        from: "if self.place.is_behind() {",
        to: "if false {",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_elsewhere_fetches_nothing_before_it_knows_what_its_host_may_know",
        ),
    },
    Mutation {
        name: "travel-told",
        guard: "a change of the map is counted before its reply goes out",
        file: "crates/controller/src/controller/news.rs",
        from: "        self.due.view = true;\n        self.mail_count.add();",
        to: "        self.due.view = true;",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_elsewhere_fetches_nothing_before_it_knows_what_its_host_may_know",
        ),
    },
    Mutation {
        name: "travel-paused",
        guard: "a lane that is to move fetches nothing more",
        file: "crates/controller/src/lane/service.rs",
        from: "self.serving && !self.is_paused()",
        to: "self.serving",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::nothing_is_lost_or_doubled_while_a_lane_moves_to_and_fro",
        ),
    },
    Mutation {
        name: "travel-empty",
        guard: "only a lane that holds nothing leaves",
        file: "crates/engine/src/lanes/travel.rs",
        from: "let manner = manner(controller).filter(|_| lane.is_empty());",
        to: "let manner = manner(controller);",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_whose_commands_hang_goes_on_where_it_was",
        ),
    },
    Mutation {
        name: "travel-pauses",
        guard: "that a lane was empty before does not count for this move",
        file: "crates/engine/src/deliver.rs",
        from: "&& (away.engine, away.pauses) == (from, pauses)",
        to: "&& away.engine == from && pauses < u32::MAX",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_that_was_empty_once_is_asked_for_only_while_it_is",
        ),
    },
    Mutation {
        name: "travel-kept",
        guard: "what a controller says to a lane on its way is kept for it",
        file: "crates/engine/src/lanes/travel.rs",
        from: "for command in kept.into_iter().flatten() {",
        to: "for command in kept.into_iter().flatten().take(0) {",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::queues_are_deleted_and_the_controller_is_reset_wherever_its_lanes_are",
        ),
    },
    Mutation {
        name: "travel-resume",
        guard: "a lane that does not become empty in time goes on",
        file: "crates/engine/src/lanes/travel.rs",
        from: "                self.command(key, LaneCommand::Resume);\n                return Some(Err",
        to: "                return Some(Err",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_that_was_empty_once_is_asked_for_only_while_it_is",
        ),
    },
    Mutation {
        name: "travel-home-key",
        guard: "tickets of the subsystem carry the key that the lane has at its home",
        file: "crates/controller/src/lane/place.rs",
        from: "        self.key = key;",
        to: "        (self.key, self.home_key) = (key, key);",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::what_the_subsystem_answers_reaches_a_lane_elsewhere",
        ),
    },
    Mutation {
        name: "travel-shadow",
        guard: "doorbell buffers hold no doorbell when they are registered, whenever the lane hears of them",
        file: "crates/controller/src/lane/queues.rs",
        from: "self.tell_doorbells(|slot| registration.initial(slot));",
        to: "let _ = registration;\n        self.tell_doorbells(|_| None);",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_shadow_that_is_written_before_the_lane_knows_of_it_counts",
        ),
    },
    Mutation {
        name: "travel-silent",
        guard: "doorbells in mapped pages are looked at where their lane lives",
        file: "crates/engine/src/deliver.rs",
        from: "if !slot.hot && matches!(&slot.lane",
        to: "if slot.hot && matches!(&slot.lane",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_doorbell_in_a_mapped_page_is_found_by_the_engine_of_the_lane",
        ),
    },
    Mutation {
        name: "travel-home",
        guard: "lanes come home when their interrupts need them there",
        file: "crates/engine/src/deliver.rs",
        from: "} else if !may && self.residence(index) != self.engine {",
        to: "} else if !may && self.residence(index) == self.engine {",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::lanes_come_home_when_their_host_takes_messages",
        ),
    },
    Mutation {
        name: "travel-rest",
        guard: "a lane that is to move does not rest before it has said that it is empty",
        file: "crates/controller/src/lane/mod.rs",
        from: "!self.has_work() && !self.queues.service.is_to_move()",
        to: "!self.has_work()",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::a_lane_unused_for_long_moves_at_once",
        ),
    },
    Mutation {
        name: "mail-limit",
        guard: "what a host causes piles up nowhere, also where a reactor takes no mail",
        file: "crates/engine/src/turn.rs",
        from: "            if lanes.owes_much(index) {\n",
        to: "            if false && lanes.owes_much(index) {\n",
        test: integration(
            "engine",
            &["--test", "engine"],
            "travel::mail_for_an_engine_that_takes_none_has_a_limit",
        ),
    },
];
