//! Hosts that keep their drives when the server's process dies or is replaced.

use super::super::{Mutation, Test, integration, program, unit};

/// A test of the holder.
const fn holder(name: &'static str) -> Test {
    unit("holder", name)
}

/// A test of zones whose process dies.
const fn zones(name: &'static str) -> Test {
    integration("media", &["--test", "media"], name)
}

const OUTLIVING: &str = "crates/media/src/zoned/outliving.rs";
const SESSION: &str = "crates/holder/src/hold/session/mod.rs";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "survive-reservations-lost",
        guard: "a replaced process is no power failure for reservations",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "namespace.reservation = its.map(|it| it.reservation.clone()).unwrap_or_default();",
        to: "let _ = (its, &mut namespace.reservation);",
        test: program(
            "survive::a_reservation_is_the_same_hosts_after_a_death_and_released_once_for_all",
        ),
    },
    Mutation {
        name: "survive-zone-note-unread",
        guard: "a write to a zone that was begun is completed, and not begun again",
        file: "crates/controller/src/lane/issue_once.rs",
        from: "let again = slot.marks.noted() && channel.has_begun(request, slot.result);",
        to: "let again = false;",
        test: zones("outlived::a_command_to_a_zone_has_one_effect_wherever_the_process_dies"),
    },
    Mutation {
        name: "survive-zone-note-late",
        guard: "the note is stored before the medium acts",
        file: "crates/controller/src/lane/issue_once.rs",
        from: "                slot.take_note(note);\n",
        to: "                let _ = note;\n",
        test: zones("outlived::a_command_to_a_zone_has_one_effect_wherever_the_process_dies"),
    },
    Mutation {
        name: "survive-zone-note-lost",
        guard: "a note outlives a second death",
        file: "crates/controller/src/state/slot.rs",
        from: ".with_noted(noted);",
        to: ".with_noted(false);",
        test: zones("outlived::a_command_to_a_zone_has_one_effect_wherever_the_process_dies"),
    },
    Mutation {
        name: "survive-zones-unswept",
        guard: "bytes behind a write pointer that had not moved are zero",
        file: OUTLIVING,
        from: "        if self.found.is_empty() {\n            return;\n",
        to: "        if store.len() > 0 {\n            return;\n",
        test: zones("outlived_zones::bytes_behind_a_write_pointer_that_has_not_moved_are_zero"),
    },
    Mutation {
        name: "survive-zone-of-now",
        guard: "a command has begun if the zone was so when the process started",
        file: OUTLIVING,
        from: "let begun = is_in(self.found[number as usize]) && is_in(now)",
        to: "let begun = is_in(now)",
        test: zones(
            "outlived_zones::an_append_that_had_not_begun_does_not_take_the_place_of_another_one",
        ),
    },
    Mutation {
        name: "survive-zone-torn",
        guard: "a zone is as before a change or as after it",
        file: "crates/media/src/zoned/table.rs",
        from: "&mut self.copies[1 - current];",
        to: "&mut self.copies[current];",
        test: unit(
            "media",
            "zoned::table::tests::a_zone_is_as_before_a_change_or_as_after_it",
        ),
    },
    Mutation {
        name: "survive-zone-opened-again",
        guard: "a write that is completed leaves its zone as it is",
        file: "crates/media/src/zoned/mod.rs",
        from: "        if times == Times::Again {\n",
        to: "        if times == Times::Again && write.end == 0 {\n",
        test: zones("outlived_zones::a_write_that_had_begun_does_not_open_its_zone_again"),
    },
    Mutation {
        name: "survive-zone-refused-note",
        guard: "a command that would be rejected has no note",
        file: OUTLIVING,
        from: "self.admits(sent).then_some(0)",
        to: "Some(0)",
        test: zones("outlived_zones::what_would_be_refused_has_no_note"),
    },
    Mutation {
        name: "survive-version-early",
        guard: "the last program can continue until the next one serves",
        file: "crates/controller/src/controller/restore.rs",
        from: "            self.saved.renew_version();\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::restart::the_version_before_can_go_on_until_the_next_one_serves",
        ),
    },
    Mutation {
        name: "survive-version-4-marks",
        guard: "a number of a sample of version 4 is no note",
        file: "crates/controller/src/state/mod.rs",
        from: "    if version < FORMAT_VERSION {",
        to: "    if version < OLDEST_VERSION {",
        test: integration(
            "controller",
            &["--test", "crash"],
            "a_process_continues_what_the_version_before_it_left",
        ),
    },
    Mutation {
        name: "survive-host-anonymous",
        guard: "a host that goes on has its identifier",
        file: "crates/controller/src/controller/restore.rs",
        from: "        subsystem.continue_host(controller.id, identifier);\n",
        to: "        let _ = identifier;\n",
        test: unit(
            "controller",
            "controller::tests::restart::a_host_keeps_its_identifier",
        ),
    },
    Mutation {
        name: "survive-posted-reply",
        guard: "a host that wants no reply gets none",
        file: SESSION,
        from: "if !request.header.no_reply() {",
        to: "if request.id > 0 {",
        test: holder(
            "hold::session::tests::a_posted_write_is_given_with_a_reply_that_goes_no_further",
        ),
    },
    Mutation {
        name: "survive-request-lost",
        guard: "the next worker gets the requests that have no reply",
        file: SESSION,
        from: "        self.given = 0;\n",
        to: "        self.given = self.pending.len();\n",
        test: holder("hold::session::tests::the_next_worker_gets_what_has_no_reply_and_in_order"),
    },
    Mutation {
        name: "survive-reply-unread",
        guard: "a reply that a worker sent before it died reaches the host",
        file: SESSION,
        from: "            match self.hear_worker() {",
        to: "            match Ok::<usize, Fate>(0) {",
        test: holder("hold::session::tests::the_next_worker_gets_what_has_no_reply_and_in_order"),
    },
    Mutation {
        name: "survive-refused-learnt",
        guard: "what the server refuses is not set up at the next worker",
        file: SESSION,
        from: "if Known::learns(request.header.command) && !header.is_error() {",
        to: "if Known::learns(request.header.command) {",
        test: holder("hold::session::tests::the_next_worker_learns_what_the_host_has_set_up"),
    },
    Mutation {
        name: "survive-memory-order",
        guard: "a host's memory is remembered in the order of its requests",
        file: SESSION,
        from: "given.position(|request| Known::learns(request.header.command))",
        to: "given.position(|request| request.is_granted)",
        test: holder("hold::session::tests::memory_is_remembered_in_the_order_of_the_requests"),
    },
    Mutation {
        name: "survive-host-keeps",
        guard: "a host cannot send what is between holder and worker",
        file: SESSION,
        from: "command if is_between(command) => Some(unknown(&header, is_host)),",
        to: "command if is_between(command) && header.id == 0 => Some(unknown(&header, is_host)),",
        test: holder("hold::session::tests::messages_between_holder_and_worker_are_no_host_s"),
    },
    Mutation {
        name: "survive-host-unbounded",
        guard: "a host makes the holder keep a bounded number of requests",
        file: SESSION,
        from: "self.pending.len() < MAX_PENDING && self.pending_len < MAX_PENDING_LEN",
        to: "self.pending_len < MAX_PENDING_LEN",
        test: holder("hold::session::tests::a_host_that_only_asks_is_read_to_a_limit"),
    },
    Mutation {
        name: "survive-unmap-forgotten",
        guard: "memory that a host has unmapped is not mapped at the next worker",
        file: "crates/holder/src/hold/known.rs",
        from: "            Command::DMA_UNMAP => self.unmap(&body),\n",
        to: "",
        test: holder("hold::known::tests::ranges_go_with_an_unmap"),
    },
    Mutation {
        name: "survive-irqs-grow",
        guard: "a request that sets an interrupt again replaces the one before",
        file: "crates/holder/src/hold/known.rs",
        from: "            self.irqs.retain(|irq| !key.replaces(&irq.key));\n",
        to: "            let _ = key.replaces(&key);\n",
        test: holder("hold::known::tests::the_last_request_for_an_interrupt_counts"),
    },
    Mutation {
        name: "survive-deaths-forever",
        guard: "a worker that dies again and again is not replaced for ever",
        file: "crates/holder/src/hold/child.rs",
        from: "        self.0.len() < Self::MAX\n",
        to: "        self.0.len() <= Self::MAX\n",
        test: holder("hold::child::tests::three_deaths_without_service_are_the_end"),
    },
    Mutation {
        name: "survive-first-connection",
        guard: "a host that connects while there is no worker is served by the next one",
        file: "crates/reactor/src/run/controllers.rs",
        from: "        self.poll_hosted(slot.0, self.clock.now(), Hosted::poll_door);\n",
        to: "",
        test: program("survive::a_host_that_connects_while_there_is_no_worker_is_served"),
    },
    Mutation {
        name: "survive-edited-configuration",
        guard: "the next process begins with the configuration that the last one had read",
        file: "crates/nvmirage/src/cli/serve.rs",
        from: "kept.map_or_else(|| config::text_of(file, read_text), Ok)?",
        to: "kept.map_or_else(|| config::text_of(file, read_text), |_| config::text_of(file, read_text))?",
        test: program("survive::an_edit_of_the_configuration_counts_when_it_is_reloaded"),
    },
    Mutation {
        name: "survive-memory-new",
        guard: "the next process has the bytes of a medium in memory",
        file: "crates/server/src/supervisor/media.rs",
        from: "            memory: fetch(&memory)?,",
        to: "            memory: fetch(&memory)?.filter(|_| false),",
        test: program("survive::a_host_keeps_bytes_features_and_requests_over_a_death"),
    },
    Mutation {
        name: "survive-drive-unknown",
        guard: "a process continues without a drive that is gone, and knows it when it is back",
        file: "crates/server/src/supervisor/media.rs",
        from: "Some(known) => Medium::open_known(spec, known),",
        to: "Some(_) => Medium::open(spec),",
        test: program(
            "survive_drives::a_drive_that_is_gone_when_its_host_dies_costs_commands_and_comes_back",
        ),
    },
    Mutation {
        name: "survive-drive-another",
        guard: "a drive of other properties is not the one that the last process had",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "            if facts == *self.facts {",
        to: "            if facts.nsid == self.facts.nsid {",
        test: unit("media", "drive::tests::again::another_drive_is_not_used"),
    },
    Mutation {
        name: "survive-drive-one-attempt",
        guard: "a drive that is not there at once is tried in each tick while commands wait for it",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "if self.now < self.retries_until {",
        to: "if self.retries_until < self.now {",
        test: unit("media", "drive::tests::again::commands_wait_for_it"),
    },
    Mutation {
        name: "survive-drive-of-machine",
        guard: "a drive whose commands nothing ends is refused",
        file: "crates/server/src/survival.rs",
        from: "Place::Pci(_) => Some(\"a drive of this machine has no process that ends its commands\"),",
        to: "Place::Pci(_) => None,",
        test: program("survive::what_would_be_lost_is_refused"),
    },
    Mutation {
        name: "survive-unsupported-medium",
        guard: "a medium that would be lost is refused",
        file: "crates/server/src/survival.rs",
        from: ".is_some_and(|it| it.record.is_some())",
        to: ".is_some_and(|it| it.record.is_some() && medium.vendor.is_some())",
        test: program("survive::what_would_be_lost_is_refused"),
    },
    Mutation {
        name: "survive-timing-unchecked",
        guard: "a damaged checkpoint of a timing model is refused",
        file: "crates/server/src/keep/timing/kept.rs",
        from: "            sum == checksum(&numbers[..5]),",
        to: "            sum == checksum(&numbers[..5]) || sum > 0,",
        test: unit(
            "server",
            "keep::timing::kept::tests::a_checkpoint_with_another_length_or_bit_is_refused",
        ),
    },
    Mutation {
        name: "survive-timing-upgrade",
        guard: "an upgrade saves the state of timing models",
        file: "crates/server/src/supervisor/upgrade.rs",
        from: "        state.checkpoints.save_all(SAVE);\n",
        to: "        let _ = SAVE;\n",
        test: program("survive_timed::an_upgrade_carries_the_state_of_a_model_exactly"),
    },
    Mutation {
        name: "survive-mount-dead",
        guard: "a folder whose mount's process has died is unmounted",
        file: "crates/server/src/supervisor/controllers.rs",
        from: "            unmount_dead(&gone.listen);\n",
        to: "",
        test: program("survive_mounts::a_mount_that_has_ended_leaves_the_rest_of_the_server_alone"),
    },
    Mutation {
        name: "survive-vendor-numbers",
        guard: "another process continues with the state of vendor commands",
        file: "crates/media/src/vendor/numbers.rs",
        from: "file.adopt(0, MAX_NUMBERS)",
        to: "file.take(0, MAX_NUMBERS)",
        test: unit(
            "media",
            "vendor::numbers::tests::another_process_has_the_numbers_that_are_there",
        ),
    },
    Mutation {
        name: "survive-mount-found",
        guard: "another process finds the mount of the last one",
        file: "crates/server/src/supervisor/mounts/mod.rs",
        from: "    holder.keep(&survival::mount_name(&config.name), ours.as_fd())?;\n",
        to: "",
        test: program(
            "survive_mounts::a_file_in_a_mount_is_read_and_written_while_the_server_dies",
        ),
    },
    Mutation {
        name: "survive-mount-reply",
        guard: "a reply of a mount to a former process is skipped",
        file: "crates/fuse/src/process.rs",
        from: "if let Some(reply) = message.strip_prefix(&prefix) {",
        to: "if let Some((_, reply)) = message.split_once(' ') {",
        test: unit(
            "fuse",
            "process::tests::a_reply_to_another_process_is_skipped_and_an_end_is_seen",
        ),
    },
];
