//! What a command may name, and where its data is.

use super::super::{Mutation, Test, integration, unit};

/// Random programs against a model of the controller.
const PROGRAMS: Test = integration(
    "tests-model",
    &["--test", "programs"],
    "the_controller_does_as_the_model_says",
);

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "partition-offset",
        guard: "blocks are counted from where the namespace begins in its medium",
        file: "crates/port/src/namespace.rs",
        from: "offset: self.start + (slba << self.lba_shift),",
        to: "offset: slba << self.lba_shift,",
        test: unit(
            "port",
            "namespace::tests::ranges_that_pass_the_end_or_wrap_are_refused",
        ),
    },
    Mutation {
        name: "bounds",
        guard: "no block behind the end of a namespace is reached",
        file: "crates/port/src/namespace.rs",
        from: "if end > self.blocks {",
        to: "if end > self.blocks + 1 {",
        test: unit(
            "port",
            "namespace::tests::ranges_that_pass_the_end_or_wrap_are_refused",
        ),
    },
    Mutation {
        name: "bounds-wrap",
        guard: "a range that passes the last block address is refused",
        file: "crates/port/src/namespace.rs",
        from: "let end = slba.checked_add(blocks)?;",
        to: "let end = slba.wrapping_add(blocks);",
        test: unit(
            "port",
            "namespace::tests::ranges_that_pass_the_end_or_wrap_are_refused",
        ),
    },
    Mutation {
        name: "mdts",
        guard: "a transfer above MDTS is refused",
        file: "crates/controller/src/lane/issue.rs",
        from: "if range.len > u64::from(self.mdts_bytes) {",
        to: "if range.len > u64::from(self.mdts_bytes) + 4096 {",
        test: unit(
            "controller",
            "lane::tests::commands::quirk_mdts_is_enforced_on_transfers_only",
        ),
    },
    Mutation {
        name: "prp-offset",
        guard: "only the first PRP entry has an offset",
        file: "crates/port/src/prp/mod.rs",
        from: "        if page_offset(entry) != 0 {\n",
        to: "        if page_offset(entry) & 3 != 0 {\n",
        test: unit("port", "prp::tests::offsets_where_none_may_be_are_refused"),
    },
    Mutation {
        name: "prp-chain",
        guard: "a pointer to the next page of a PRP list has no offset",
        file: "crates/port/src/prp/mod.rs",
        from: "            if page_offset(list) != 0 {\n",
        to: "            if page_offset(list) & 7 != 0 {\n",
        test: unit("port", "prp::tests::a_chain_pointer_has_no_offset"),
    },
    Mutation {
        name: "sgl-length",
        guard: "an SGL that describes less than the data is refused",
        file: "crates/controller/src/sgl/mod.rs",
        from: "    if walk.left > 0 {\n",
        to: "    if walk.left > 4096 {\n",
        test: unit(
            "controller",
            "sgl::tests::a_list_may_be_longer_than_the_data_and_not_shorter",
        ),
    },
    Mutation {
        name: "sgl-end",
        guard: "an SGL descriptor ends at the last address at most",
        file: "crates/controller/src/sgl/mod.rs",
        from: "    match descriptor.address.checked_add(last) {\n",
        to: "    match Some(descriptor.address.wrapping_add(last)) {\n",
        test: unit(
            "controller",
            "sgl::tests::nothing_ends_behind_the_last_address",
        ),
    },
    Mutation {
        name: "sgl-circle",
        guard: "segments that lead back to themselves end with the limit",
        file: "crates/controller/src/sgl/mod.rs",
        from: "if descriptors > u64::from(MAX_DESCRIPTORS) {",
        to: "if descriptors > 2 * u64::from(MAX_DESCRIPTORS) {",
        test: unit(
            "controller",
            "sgl::tests::as_many_descriptors_as_the_limit_and_no_more",
        ),
    },
    Mutation {
        name: "sgl-keyed",
        guard: "descriptors that are no addresses are refused",
        file: "crates/controller/src/sgl/mod.rs",
        from: "if identifier.sub_type() != SglDescriptorSubType::ADDRESS {",
        to: "if identifier.sub_type().0 > 1 {",
        test: unit(
            "controller",
            "sgl::tests::other_types_and_sub_types_are_invalid_types",
        ),
    },
    Mutation {
        name: "restrictions",
        guard: "a namespace that is restricted takes no such command",
        file: "crates/controller/src/lane/issue.rs",
        from: "&& restrictions::check(restrictions, &command)?",
        to: "&& restrictions::check(restrictions, &command).unwrap_or_default()",
        test: unit(
            "controller",
            "controller::tests::reservations::a_write_exclusive_reservation_lets_the_other_host_read",
        ),
    },
    Mutation {
        name: "restrictions-straight",
        guard: "a plain command looks at restrictions as any other does",
        file: "crates/controller/src/lane/issue.rs",
        from: "if namespace.restrictions.is_some() || plain.writes && !is_plain_write {",
        to: "if plain.writes && !is_plain_write {",
        test: unit(
            "controller",
            "controller::tests::uncorrectable::marked_blocks_read_as_errors_and_others_do_not",
        ),
    },
    Mutation {
        name: "write-through-straight",
        guard: "a plain write is durable without the volatile write cache, too",
        file: "crates/controller/src/lane/issue.rs",
        from: "if namespace.restrictions.is_some() || plain.writes && !is_plain_write {",
        to: "if namespace.restrictions.is_some() {",
        test: unit(
            "controller",
            "controller::tests::features::turning_the_write_cache_off_takes_effect",
        ),
    },
    Mutation {
        name: "straight-pages",
        guard: "two pages are one run only where the second follows the first",
        file: "crates/port/src/prp/mod.rs",
        from: "len <= first + PAGE && prp1.wrapping_add(first.into()) == prp2;",
        to: "len <= first + PAGE;",
        test: unit("port", "prp::tests::quirk_the_first_entry_has_an_offset"),
    },
    Mutation {
        name: "straight-flags",
        guard: "a command with Force Unit Access or a directive is no plain one",
        file: "crates/controller/src/command/mod.rs",
        from: "|| cdw12 > u32::from(u16::MAX) {",
        to: "{",
        test: unit(
            "controller",
            "command::tests::a_plain_command_is_what_is_parsed",
        ),
    },
    Mutation {
        name: "fused-half",
        guard: "half of a fused pair is not done",
        file: "crates/controller/src/lane/fused.rs",
        from: "        if sqe.flags.fuse() == Fuse::SECOND {\n            self.finish(",
        to: "        if sqe.flags.fuse() == Fuse::SECOND && sqe.nsid == 0 {\n            self.finish(",
        test: unit(
            "controller",
            "lane::tests::fused::any_row_of_halves_ends_as_it_must",
        ),
    },
    Mutation {
        name: "compare-and-write",
        guard: "a fused write is not done where its comparison fails",
        file: "crates/media/src/ram/mod.rs",
        from: "    if there != old {\n",
        to: "    if there != old && offset == 1 {\n",
        test: PROGRAMS,
    },
    Mutation {
        name: "deallocate-checks",
        guard: "a list with a range outside the namespace deallocates nothing",
        file: "crates/controller/src/lane/issue.rs",
        from: "            let bytes = range(namespace, Blocks { slba, count })?;\n",
        to: "            let Ok(bytes) = range(namespace, Blocks { slba, count }) else {\n                continue;\n            };\n",
        test: unit(
            "controller",
            "lane::tests::commands::deallocate_checks_every_range_before_any",
        ),
    },
    Mutation {
        name: "write-through",
        guard: "without the volatile write cache every write is durable",
        file: "crates/controller/src/lane/issue.rs",
        from: "let fua = fua || self.write_through;",
        to: "let fua = fua && self.write_through;",
        test: unit(
            "controller",
            "controller::tests::features::turning_the_write_cache_off_takes_effect",
        ),
    },
    Mutation {
        name: "event-requests",
        guard: "more Asynchronous Event Requests than AERL says are refused",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "if !self.admin.events.hold(sqe.cid) {",
        to: "if !self.admin.events.hold(sqe.cid) && sqe.cid == 0 {",
        test: unit(
            "controller",
            "controller::tests::events::requests_are_held_up_to_aerl_and_then_refused",
        ),
    },
    Mutation {
        name: "used-completion-queue",
        guard: "a completion queue with submission queues is not deleted",
        file: "crates/controller/src/controller/admin/queues.rs",
        from: "        if used {\n",
        to: "        if used && cqid == 0 {\n",
        test: unit(
            "controller",
            "controller::tests::queues::a_completion_queue_with_submission_queues_is_not_deleted",
        ),
    },
    Mutation {
        name: "vector-range",
        guard: "a completion queue has a vector that there is",
        file: "crates/controller/src/controller/admin/queues.rs",
        from: "if cdw11.iv() >= self.vectors() {",
        to: "if cdw11.iv() > self.vectors() {",
        test: unit(
            "controller",
            "controller::tests::queues::vectors_out_of_range_are_refused",
        ),
    },
    Mutation {
        name: "saved-feature",
        guard: "a value that is set with Save outlives a reset",
        file: "crates/controller/src/controller/admin/features/mod.rs",
        from: "                self.saved.set(sqe, data, context)?;\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::saved_features::a_saved_value_outlives_a_reset_and_one_that_is_not_saved_does_not",
        ),
    },
    Mutation {
        name: "unsaveable-feature",
        guard: "what cannot be saved is refused with Save",
        file: "crates/controller/src/controller/admin/features/mod.rs",
        from: "if cdw10.sv() && !traits.saveable {",
        to: "if cdw10.sv() && !traits.saveable && sqe.nsid != 0 {",
        test: unit(
            "controller",
            "controller::tests::saved_features::what_belongs_to_a_host_or_its_queues_cannot_be_saved",
        ),
    },
    Mutation {
        name: "queues-before",
        guard: "the number of queues is settled before the first of them",
        file: "crates/controller/src/controller/admin/features/values.rs",
        from: "if context.queues_exist {",
        to: "if context.queues_exist && context.queues == 0 {",
        test: unit(
            "controller",
            "controller::tests::features::number_of_queues_is_asked_once_before_the_first_queue",
        ),
    },
    Mutation {
        name: "overlap",
        guard: "a command that meets another on the same bytes waits for it",
        file: "crates/media/src/overlap.rs",
        from: "!meets || self.find_blocker(slot, ranges)",
        to: "self.find_blocker(slot, ranges) || !meets || slot < NONE",
        test: unit(
            "media",
            "overlap::tests::commands_run_as_a_list_of_them_says",
        ),
    },
];
