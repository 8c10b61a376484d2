//! The completion side of a drive on other reactors.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "split-room",
        guard: "nothing is brought over a completion that was not taken",
        file: "crates/driver/src/queue/carrier.rs",
        from: "if !is_new(words, self.phase) || next == taken {",
        to: "if !is_new(words, self.phase) || next > taken + 65_536 {",
        test: unit(
            "driver",
            "queue::tests::carried::a_controller_that_posts_more_than_it_was_asked_for_is_kept_waiting",
        ),
    },
    Mutation {
        name: "split-phase",
        guard: "the reactor that reports heads knows where the queue wraps around",
        file: "crates/driver/src/queue/carrier.rs",
        from: "self.phase ^= head < self.told;",
        to: "self.phase ^= head > self.told + 65_536;",
        test: unit(
            "driver",
            "queue::tests::carried::every_completion_comes_once_in_order_and_every_place_is_given_back",
        ),
    },
    Mutation {
        name: "split-delete",
        guard: "a queue is not deleted while another reactor may ring its doorbell",
        file: "crates/media/src/drive/keeper/relays.rs",
        from: "if !self.relays.has(channel) {",
        to: "if self.relays.leaving.is_empty() {",
        test: unit(
            "media",
            "drive::tests::relay::a_queue_is_deleted_when_its_halves_have_come_back",
        ),
    },
    Mutation {
        name: "split-wait",
        guard: "a channel waits for a queue that is to come back, and the drive is not abandoned for it",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "if self.relays.is_parting() {",
        to: "if self.relays.is_parting() && self.clients.is_empty() {",
        test: unit(
            "media",
            "drive::tests::relay::a_channel_waits_for_a_queue_that_is_to_come_back",
        ),
    },
    Mutation {
        name: "split-rouse",
        guard: "who brings completions wakes who takes them",
        file: "crates/media/src/drive/relay.rs",
        from: "readers.iter().for_each(Sleeper::rouse);",
        to: "readers.iter().skip(8).for_each(Sleeper::rouse);",
        test: unit("media", "drive::tests::relay::each_wakes_the_next_one"),
    },
    Mutation {
        name: "split-announce",
        guard: "a channel that goes to sleep says so to who brings its completions",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "            bell.announce();",
        to: "            bell.awake();",
        test: unit("media", "drive::tests::relay::each_wakes_the_next_one"),
    },
    Mutation {
        name: "split-tell-taken",
        guard: "a channel that goes to sleep leaves no completion untold",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "            self.tell_taken();",
        to: "",
        test: unit("media", "drive::tests::relay::each_wakes_the_next_one"),
    },
    Mutation {
        name: "split-interrupt",
        guard: "the drive's interrupt wakes the reactor that polls for the channel",
        file: "crates/media/src/drive/keeper/wakes.rs",
        from: "relay.map_or(&client.wake, |its| &its.wake)",
        to: "relay.map_or(&client.wake, |_| &client.wake)",
        test: unit("media", "drive::tests::relay::each_wakes_the_next_one"),
    },
];
