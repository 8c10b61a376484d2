//! The host's memory map, and where its addresses lead.

use super::super::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "stream-whole-lines",
        guard: "only whole cache lines are stored past the caches",
        file: "crates/memory/src/store/stream.rs",
        from: "    if !(to as usize | len).is_multiple_of(LINE) {\n",
        to: "    if !(to as usize).is_multiple_of(LINE) {\n",
        test: unit(
            "memory",
            "store::stream::tests::every_byte_is_copied_or_none",
        ),
    },
    Mutation {
        name: "copy-in-parts",
        guard: "the parts of a copy are all of it",
        file: "crates/memory/src/store/stream.rs",
        from: "len.is_multiple_of(PARTS * LINE) && ",
        to: "len.is_multiple_of(LINE) && ",
        test: unit("memory", "store::stream::tests::parts_are_the_whole"),
    },
    Mutation {
        name: "preallocate-end",
        guard: "an allocation in advance ends with its medium",
        file: "crates/media/src/ram/preallocation.rs",
        from: "let len = SLICE.min(store.len() - done);",
        to: "let len = SLICE;",
        test: unit(
            "media",
            "ram::preallocation::tests::it_goes_on_to_the_end_and_changes_no_bytes",
        ),
    },
    Mutation {
        name: "care-always",
        guard: "memory for another process is on huge pages without being configured",
        file: "crates/reactor/src/memory_care.rs",
        from: "self.collapse || new.pieces.upgrade().is_some_and(|new| new.always())",
        to: "self.collapse",
        test: unit(
            "reactor",
            "memory_care::tests::memory_that_is_to_be_on_huge_pages_is_put_together_where_that_is_off",
        ),
    },
    Mutation {
        name: "epoch-drain",
        guard: "a lane is drained when nothing issued before is in flight",
        file: "crates/controller/src/lane/epochs.rs",
        from: "        if oldest.count == 0 {\n            self.current\n",
        to: "        if oldest.count < u32::MAX {\n            self.current\n",
        test: unit(
            "controller",
            "lane::tests::maps::a_change_of_the_map_is_acknowledged_when_nothing_from_before_flies",
        ),
    },
    Mutation {
        name: "controller-drain",
        guard: "a controller is drained when all of its lanes are",
        file: "crates/controller/src/controller/mod.rs",
        from: "cq.lane.is_none() || cq.drained >= epoch",
        to: "cq.lane.is_none() || cq.drained <= epoch",
        test: unit(
            "controller",
            "controller::tests::lifecycle::an_unmap_is_drained_when_nothing_from_before_is_in_flight",
        ),
    },
    Mutation {
        name: "unmap-reply",
        guard: "the reply to an unmap waits for what is in flight",
        file: "crates/transport/src/vfio_user/waiting.rs",
        from: "let due = controller.drained(epoch) && is_kept || waited >= ANSWER_NS;",
        to: "let due = controller.drained(epoch) && is_kept || waited < ANSWER_NS;",
        test: integration(
            "tests-protocol",
            &["--test", "protocol"],
            "cases::dma_unmap::the_reply_waits_for_commands_in_flight_and_nothing_else_does",
        ),
    },
    Mutation {
        name: "submission-ring",
        guard: "an I/O submission queue is found again after the map has changed",
        file: "crates/controller/src/lane/queues.rs",
        from: "            member.sq.resolve(view);\n",
        to: "            let _ = member;\n",
        test: unit(
            "controller",
            "lane::tests::maps::rings_are_where_the_map_says_now",
        ),
    },
    Mutation {
        name: "completion-ring",
        guard: "an I/O completion queue is found again after the map has changed",
        file: "crates/controller/src/lane/queues.rs",
        from: "        self.cq.resolve(view);\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::maps::rings_are_where_the_map_says_now",
        ),
    },
    Mutation {
        name: "shadow-pages",
        guard: "doorbell buffers are found again after the map has changed",
        file: "crates/controller/src/lane/doorbells.rs",
        from: "            shadow.resolve(view);\n",
        to: "            let _ = shadow;\n",
        test: unit(
            "controller",
            "lane::tests::shadow::a_shadow_that_vanishes_says_nothing_until_it_returns",
        ),
    },
    Mutation {
        name: "admin-submission-ring",
        guard: "the admin submission queue is found again after the map has changed",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "        self.sq.resolve(view);\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::maps::the_admin_queue_is_where_the_map_says_now",
        ),
    },
    Mutation {
        name: "admin-completion-ring",
        guard: "the admin completion queue is found again after the map has changed",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "        self.cq.resolve(view);\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::maps::the_admin_queue_is_where_the_map_says_now",
        ),
    },
    Mutation {
        name: "write-access",
        guard: "memory that the device may only read is not written",
        file: "crates/memory/src/guest/dma/mod.rs",
        from: "Need::DeviceWrites => self.access.write,",
        to: "Need::DeviceWrites => self.access.write || self.access.read,",
        test: integration(
            "memory",
            &["--test", "client_memory"],
            "map::the_map_does_what_single_pages_do",
        ),
    },
    Mutation {
        name: "map-wrap",
        guard: "a range that ends behind the last address is not mapped",
        file: "crates/memory/src/guest/dma/mod.rs",
        from: "iova.checked_add(len - 1).ok_or(DmaError::Wraps)",
        to: "Ok(Iova(iova.0.wrapping_add(len - 1)))",
        test: integration(
            "memory",
            &["--test", "client_memory"],
            "map::the_last_page_may_end_where_the_address_space_does",
        ),
    },
    Mutation {
        name: "translate-wrap",
        guard: "data that ends behind the last address is not reached",
        file: "crates/memory/src/guest/dma/mod.rs",
        from: "if at.0.checked_add(u64::from(len.saturating_sub(1))).is_none() {",
        to: "if at.0.saturating_add(u64::from(len.saturating_sub(1))) == 0 {",
        test: integration(
            "memory",
            &["--test", "client_memory"],
            "map::the_last_page_may_end_where_the_address_space_does",
        ),
    },
    Mutation {
        name: "absent-queue-waits",
        guard: "a queue whose memory is gone is no work, and fails nothing",
        file: "crates/controller/src/queue/sq.rs",
        from: "self.still = Some(Still::Absent);",
        to: "self.still = None;",
        test: unit(
            "controller",
            "lane::tests::maps::a_submission_ring_used_while_absent_goes_on_when_it_returns",
        ),
    },
];
