//! The front end of vhost-user-blk that tests of back ends use.

use super::super::{Mutation, Test, integration, unit};

const fn front(name: &'static str) -> Test {
    integration("tests-vhost-front", &["--test", "front"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "front-split-event",
        guard: "a device is notified when its event index lies in what was published",
        file: "tests/vhost-front/src/ring/split.rs",
        from: "event.wrapping_sub(old) < new.wrapping_sub(old)",
        to: "event == new",
        test: front("split::a_full_ring_of_either_queue_wraps"),
    },
    Mutation {
        name: "front-suppressed-event",
        guard: "suppressed interrupts stay suppressed for any number of requests",
        file: "tests/vhost-front/src/ring/split.rs",
        from: "self.seen.is_multiple_of(SUPPRESSED_EVERY)",
        to: "self.seen == 0",
        test: unit(
            "tests-vhost-front",
            "ring::split::tests::suppressed_interrupts_stay_suppressed",
        ),
    },
    Mutation {
        name: "front-split-suppress",
        guard: "a suppressed event index lies behind every later entry",
        file: "tests/vhost-front/src/ring/split.rs",
        from: "self.store_used_event(self.seen.wrapping_sub(1));",
        to: "self.store_used_event(self.seen);",
        test: front("split::interrupts_come_where_they_are_wanted"),
    },
    Mutation {
        name: "front-used-index",
        guard: "a device uses no more entries than are available",
        file: "tests/vhost-front/src/ring/split.rs",
        from: "index.wrapping_sub(self.seen) <= in_flight,",
        to: "index.wrapping_sub(self.seen) <= u16::MAX.max(in_flight),",
        test: unit(
            "tests-vhost-front",
            "ring::split::tests::a_device_that_uses_what_it_has_not_is_an_error",
        ),
    },
    Mutation {
        name: "front-packed-wrap",
        guard: "the wrap counters turn at the end of a packed ring",
        file: "tests/vhost-front/src/ring/packed.rs",
        from: "            self.wrap = !self.wrap;\n",
        to: "",
        test: front("packed::a_full_packed_ring_of_any_size_wraps"),
    },
    Mutation {
        name: "front-packed-event",
        guard: "a device is notified when its event position lies in what was published",
        file: "tests/vhost-front/src/ring/packed.rs",
        from: "event.since(old, self.size) < new.since(old, self.size)",
        to: "event.since(old, self.size) <= new.since(old, self.size)",
        test: unit(
            "tests-vhost-front",
            "ring::packed::tests::a_notification_is_wanted_when_the_event_is_passed",
        ),
    },
    Mutation {
        name: "front-packed-used",
        guard: "a packed descriptor is used when both flags equal the wrap counter",
        file: "tests/vhost-front/src/ring/packed.rs",
        from: "flags & both == if self.used.wrap { both } else { 0 }",
        to: "(flags & USED != 0) == self.used.wrap",
        test: front("packed::a_full_packed_ring_of_any_size_wraps"),
    },
    Mutation {
        name: "front-restart-base",
        guard: "stopped rings go on behind what was used",
        file: "tests/vhost-front/src/disk/mod.rs",
        from: "self.queues.iter().map(|it| it.ring.used_base()).collect()",
        to: "self.queues.iter().map(|_| 0).collect()",
        test: front("split::a_disk_goes_on_with_the_next_daemon"),
    },
    Mutation {
        name: "front-same-record",
        guard: "the record of requests in flight outlives the back end",
        file: "tests/vhost-front/src/disk/session.rs",
        from: "if inflight.is_none() {",
        to: "if true {",
        test: front("packed::a_packed_disk_goes_on_with_the_next_back_end_and_the_same_record"),
    },
    Mutation {
        name: "front-memory-once",
        guard: "a region is added once in a connection, as QEMU does",
        file: "tests/vhost-front/src/disk/session.rs",
        from: "Slots::Add if !self.is_memory_sent => {",
        to: "Slots::Add if !self.is_memory_sent || true => {",
        test: front("messages::messages_come_in_qemus_order"),
    },
    Mutation {
        name: "front-user-address",
        guard: "ring addresses are those of the region that holds the ring",
        file: "tests/vhost-front/src/guest.rs",
        from: "Ok(region.user + at - region.offset)",
        to: "Ok(USER_BASE + at)",
        test: unit(
            "tests-vhost-front",
            "guest::tests::an_area_in_two_regions_has_no_address",
        ),
    },
    Mutation {
        name: "front-written",
        guard: "a device writes no more than there is room for",
        file: "tests/vhost-front/src/disk/mod.rs",
        from: "used.written as usize <= room,",
        to: "used.written as usize <= room + 1,",
        test: front("packed::a_device_that_writes_too_much_is_an_error"),
    },
    Mutation {
        name: "front-answer-bound",
        guard: "a back end that does not answer is an error within the bound",
        file: "tests/vhost-front/src/disk/session.rs",
        from: "wait.recv_timeout(bound)",
        to: "wait.recv_timeout(bound * 20)",
        test: front("messages::a_back_end_that_does_not_answer_is_an_error"),
    },
    Mutation {
        name: "front-stall-time",
        guard: "the rate of a measurement leaves the time of stalls out",
        file: "tests/vhost-front/src/bench.rs",
        from: "self.newest.duration_since(begin) - self.stalled;",
        to: "self.newest.duration_since(begin);",
        test: unit(
            "tests-vhost-front",
            "bench::tests::a_stall_and_the_requests_in_flight_in_it_are_left_out",
        ),
    },
    Mutation {
        name: "front-stall-requests",
        guard: "a request in flight in a stall has no latency",
        file: "tests/vhost-front/src/bench.rs",
        from: "if started >= self.resumed {",
        to: "if started <= self.newest {",
        test: unit(
            "tests-vhost-front",
            "bench::tests::a_stall_and_the_requests_in_flight_in_it_are_left_out",
        ),
    },
];
