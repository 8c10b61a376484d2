//! What the controllers of one subsystem share.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "reservation-read",
        guard: "exclusive access keeps other hosts from reading",
        file: "crates/controller/src/subsystem/reservation/mod.rs",
        from: "(full || admits_readers(held.rtype), full)",
        to: "(true, full)",
        test: unit(
            "controller",
            "subsystem::reservation::tests::access_by_type_and_role",
        ),
    },
    Mutation {
        name: "reservation-write",
        guard: "a reservation keeps other hosts from writing",
        file: "crates/controller/src/subsystem/reservation/mod.rs",
        from: "(full || admits_readers(held.rtype), full)",
        to: "(full || admits_readers(held.rtype), true)",
        test: unit(
            "controller",
            "controller::tests::reservations::a_write_exclusive_reservation_lets_the_other_host_read",
        ),
    },
    Mutation {
        name: "reservation-key",
        guard: "only a registrant with its key acquires",
        file: "crates/controller/src/subsystem/reservation/mod.rs",
        from: "Some(registrant) if registrant.key == key => Ok(()),",
        to: "Some(_) => Ok(()),",
        test: unit("controller", "subsystem::reservation::tests::acquiring"),
    },
    Mutation {
        name: "reservation-drain",
        guard: "a reservation is confirmed when no older write is in flight",
        file: "crates/controller/src/subsystem/reserve.rs",
        from: "operation.steps.extend([step, Step::Drain, Step::Keep]);",
        to: "operation.steps.extend([step, Step::Keep]);",
        test: unit(
            "controller",
            "controller::tests::reservations::a_reservation_is_told_when_no_older_write_is_in_flight",
        ),
    },
    Mutation {
        name: "reservation-keep",
        guard: "a reservation that persists is saved before it is confirmed",
        file: "crates/controller/src/subsystem/reserve.rs",
        from: "operation.steps.extend([step, Step::Drain, Step::Keep]);",
        to: "operation.steps.extend([step, Step::Drain]);",
        test: unit(
            "controller",
            "controller::tests::reservations::what_persists_is_kept_before_it_is_told",
        ),
    },
    Mutation {
        name: "drain-all",
        guard: "an operation waits for every controller",
        file: "crates/controller/src/subsystem/progress.rs",
        from: "present.all(|m| m.acknowledged >= generation)",
        to: "present.any(|m| m.acknowledged >= generation)",
        test: unit(
            "controller",
            "controller::tests::reservations::a_reservation_is_told_when_no_older_write_is_in_flight",
        ),
    },
    Mutation {
        name: "kept-version",
        guard: "an answer waits for the record that has its change",
        file: "crates/controller/src/subsystem/progress.rs",
        from: "                if self.kept_version >= *version {\n",
        to: "                if self.kept_version > 0 || self.version >= *version {\n",
        test: unit(
            "controller",
            "subsystem::tests::an_answer_waits_for_the_record_that_has_its_change",
        ),
    },
    Mutation {
        name: "operation-order",
        guard: "operations on one namespace wait for each other",
        file: "crates/controller/src/subsystem/schedule.rs",
        from: "_ => self.queues.entry(nsid).or_default().push_back(running),",
        to: "_ => self.free.push_back(running),",
        test: unit(
            "controller",
            "subsystem::tests::operations::operations_on_one_namespace_wait_for_each_other",
        ),
    },
    Mutation {
        name: "earlier-life",
        guard: "the answer to a command from before a reset is dropped",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "Requester::Admin { life, cid, .. } if life == self.life.number => {",
        to: "Requester::Admin { cid, .. } => {",
        test: unit(
            "controller",
            "controller::tests::saved_features::a_reset_ends_what_waits_to_be_kept",
        ),
    },
    Mutation {
        name: "format-lock",
        guard: "a namespace that is being formatted takes no commands",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "let begin = namespaces.iter().map(busy(Some(Busy::Formatting)));",
        to: "let begin = namespaces.iter().map(busy(None));",
        test: unit(
            "controller",
            "controller::tests::format::while_it_goes_on_commands_to_the_namespace_end_with_format_in_progress",
        ),
    },
    Mutation {
        name: "format-drain",
        guard: "a format waits for what is in flight before it erases",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "steps.extend([Step::Drain, Step::Erase(erase)]);",
        to: "steps.extend([Step::Erase(erase)]);",
        test: unit(
            "controller",
            "controller::tests::format::it_waits_for_what_is_in_flight",
        ),
    },
    Mutation {
        name: "sanitize-lock",
        guard: "while a sanitize operation goes on, only what it allows is served",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "        sanitize::check(sqe, subsystem)?;\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::sanitize::while_it_goes_on_only_some_admin_commands_are_served",
        ),
    },
    Mutation {
        name: "uncorrectable",
        guard: "blocks marked as uncorrectable are not read",
        file: "crates/controller/src/lane/restrictions.rs",
        from: "            if uncorrectable.overlaps(blocks.slba, blocks.count.into()) {\n                return Err",
        to: "            if uncorrectable.overlaps(blocks.slba, 0) {\n                return Err",
        test: unit(
            "controller",
            "controller::tests::uncorrectable::marked_blocks_read_as_errors_and_others_do_not",
        ),
    },
    Mutation {
        name: "create-erase",
        guard: "a namespace that a host creates holds no data of others",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "Step::Erase(Erase::zero(vec![(channel, extent)])),",
        to: "",
        test: unit(
            "controller",
            "controller::tests::namespaces::a_new_namespace_holds_no_earlier_data",
        ),
    },
    Mutation {
        name: "create-keep",
        guard: "a namespace is created when it is kept",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "Step::Change(Change::SetBusy { nsid, busy: None }),\n            Step::Keep,",
        to: "Step::Change(Change::SetBusy { nsid, busy: None }),",
        test: unit(
            "controller",
            "subsystem::tests::operations::what_a_host_manages_is_kept_before_it_is_told",
        ),
    },
    Mutation {
        name: "mark-check",
        guard: "a mark is checked against the namespace as it is by then",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "if namespace.namespace.bytes(slba, blocks).is_none() {",
        to: "if namespace.namespace.bytes(slba, blocks).is_none() && blocks == 0 {",
        test: unit(
            "controller",
            "subsystem::tests::operations::a_mark_is_checked_against_the_namespace_as_it_is_by_then",
        ),
    },
    Mutation {
        name: "vendor-bytes-erased",
        guard: "the bytes of a namespace with vendor commands are erased, too",
        file: "crates/controller/src/subsystem/erase.rs",
        from: "set.is_none_or(|set| set.keeps_bytes())",
        to: "set.is_none()",
        test: program("vendor::a_host_has_the_vendor_command_of_the_configuration"),
    },
    Mutation {
        name: "presence-checked",
        guard: "a medium's file that was there and is gone is not created again",
        file: "crates/server/src/keep/presence.rs",
        from: "if !self.mark.exists() || !self.is_gone() {",
        to: "if self.mark.exists() || !self.is_gone() {",
        test: program("kept::a_file_that_was_there_and_is_gone_is_not_recreated"),
    },
    Mutation {
        name: "room-looked-for",
        guard: "a full file system is not said to work again by a write that needs no space",
        file: "crates/media/src/trouble.rs",
        from: "if self.room.is_some() {",
        to: "if false {",
        test: unit(
            "media",
            "trouble::tests::a_file_lacks_space_until_its_file_system_has_some",
        ),
    },
    Mutation {
        name: "vendor-state-forgotten",
        guard: "the state of vendor commands goes with its namespace",
        file: "crates/controller/src/subsystem/plan.rs",
        from: "forget.add_state(self.existing(*nsid)?);",
        to: "self.existing(*nsid)?;",
        test: program("vendor::a_host_has_the_vendor_command_of_the_configuration"),
    },
];
