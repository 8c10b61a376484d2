//! What modelled drives have become: their state, snapshots of it, and files that keep it.

use crate::mutants::{Mutation, Test, integration, program, unit};

const fn state(name: &'static str) -> Test {
    unit("model", name)
}

const SNAPSHOT: &str = "flash::tests::state::a_snapshot_is_what_was_there_when_it_was_begun";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "wear-cache-takes-time",
        guard: "a cache of single-level cells programs in some time",
        file: "crates/model/src/parameter/check.rs",
        from: "if cache > 0 && flash.extras.slc_program_ns == 0 {",
        to: "if cache == 0 && flash.extras.slc_program_ns == 0 {",
        test: state("parameter::tests::values_that_do_not_fit_each_other"),
    },
    Mutation {
        name: "wear-keep",
        guard: "a page that gets another place before its turn is taken first",
        file: "crates/model/src/flash/ftl.rs",
        from: "        self.keep(logical);\n        if let Some(place) = self.lookup(logical) {",
        to: "        if let Some(place) = self.lookup(logical) {",
        test: state(SNAPSHOT),
    },
    Mutation {
        name: "wear-filled-credits",
        guard: "a filled drive collects when one whose pages were placed does",
        file: "crates/model/src/flash/ftl.rs",
        from: "shape.logical.div_ceil(shape.line)) * line - pages",
        to: "shape.logical.div_ceil(shape.line)) * line - pages + 1",
        test: state("flash::tests::prepare::a_filled_drive_is_as_one_whose_pages_were_placed"),
    },
    Mutation {
        name: "wear-filled-places",
        guard: "places behind the last page of a filled drive hold none",
        file: "crates/model/src/flash/ftl.rs",
        from: "index < self.filled { !index }",
        to: "self.filled > 0 { !index }",
        test: state("flash::tests::prepare::a_filled_drive_is_as_one_whose_pages_were_placed"),
    },
    Mutation {
        name: "wear-unmapped-once",
        guard: "a read of a page without data is counted, in whatever partition it is",
        file: "crates/model/src/flash/read.rs",
        from: "                unmapped,\n                done,",
        to: "                unmapped: false,\n                done,",
        test: state("flash::tests::prepare::reads_of_pages_without_data_count"),
    },
    Mutation {
        name: "wear-filled-by-default",
        guard: "a new drive is filled where nothing else is written",
        file: "crates/api/src/config/initial.rs",
        from: "    Fresh,\n    /// Every block was written once, in order.\n    #[default]\n",
        to: "    #[default]\n    Fresh,\n    /// Every block was written once, in order.\n",
        test: unit(
            "api",
            "config::initial::tests::a_new_drive_of_flash_is_filled_unless_told_otherwise",
        ),
    },
    Mutation {
        name: "wear-unmapped-line",
        guard: "a simulation says how many reads cost no flash read",
        file: "crates/lab/src/cli/simulate/shown.rs",
        from: "if drive.unmapped_reads > 0 {",
        to: "if drive.unmapped_reads > drive.reads {",
        test: program("simulate::a_fresh_drive_says_so"),
    },
    Mutation {
        name: "wear-once",
        guard: "and only what it was at the begin",
        file: "crates/model/src/flash/map_copy.rs",
        from: "        if *word & bit == 0 {\n",
        to: "        if *word & bit <= bit {\n",
        test: state(SNAPSHOT),
    },
    Mutation {
        name: "wear-early",
        guard: "what was taken early is not taken again",
        file: "crates/model/src/flash/map_copy.rs",
        from: "if early >> bit & 1 == 0 {",
        to: "if early >> bit & 1 <= 1 {",
        test: state(SNAPSHOT),
    },
    Mutation {
        name: "wear-finished",
        guard: "a zone that was finished has all its wordlines programmed",
        file: "crates/model/src/zones/mod.rs",
        from: "if is_full && self.finish_writes {",
        to: "if is_full && self.finish_writes && false {",
        test: state("zones::tests::a_zone_that_was_finished_before_is_reset_as_a_whole"),
    },
    Mutation {
        name: "wear-unchanged",
        guard: "a drive that has not changed is not written again",
        file: "crates/server/src/keep/timing/checkpoints.rs",
        from: "Some(now.changes) == since",
        to: "since == Some(u64::MAX)",
        test: program("timing_state::a_drive_that_rests_is_not_written_again"),
    },
    Mutation {
        name: "wear-taken",
        guard: "the bytes of a medium in memory are taken once",
        file: "crates/server/src/keep/memory.rs",
        from: "self.file.write_all_at(&head(medium, IN_USE), 0)?;\n            self.file.set_len(HEAD)?;\n",
        to: "",
        test: program("timing_state::a_medium_in_memory_is_kept_over_a_clean_stop_only"),
    },
    Mutation {
        name: "wear-given-back",
        guard: "a start that fails gives media in memory back to their files",
        file: "crates/server/src/supervisor/mod.rs",
        from: "if let Err(error) = supervisor.stop() {",
        to: "if let Err(error) = anyhow::Ok(()) {",
        test: program("zones_kept::zones_in_memory_are_kept_over_a_clean_stop_only"),
    },
    Mutation {
        name: "wear-shape",
        guard: "zones are not taken by a medium of other zones",
        file: "crates/server/src/keep/memory.rs",
        from: "if shape != medium.record_shape() {",
        to: "if shape[0] != medium.record_shape()[0] {",
        test: program("zones_kept::zones_in_memory_are_kept_over_a_clean_stop_only"),
    },
    Mutation {
        name: "wear-arrival",
        guard: "a command arrives no earlier than its host has told of it",
        file: "crates/media/src/channel/timed.rs",
        from: "            self.now = self.now.max(clock());\n",
        to: "",
        test: integration(
            "media",
            &["--test", "media"],
            "timed::a_command_is_not_done_before_its_time_has_gone_by_since_it_came",
        ),
    },
    Mutation {
        name: "wear-raw",
        guard: "a file with zones is no medium of bytes",
        file: "crates/media/src/medium/mod.rs",
        from: "            refuse_state(&file)?;\n            Ok(file)",
        to: "            Ok(file)",
        test: integration(
            "media",
            &["--test", "media"],
            "kept::a_file_with_zones_is_no_medium_of_bytes",
        ),
    },
    Mutation {
        name: "wear-raw-damaged",
        guard: "nor is one whose log can no longer be read",
        file: "crates/media/src/medium/mod.rs",
        from: "Err(StateError::NotOurs) => return Ok(()),",
        to: "Err(_) => return Ok(()),",
        test: integration(
            "media",
            &["--test", "media"],
            "kept::a_file_with_zones_is_no_medium_of_bytes",
        ),
    },
    Mutation {
        name: "wear-earlier-frames",
        guard: "a frame of an earlier time is no continuation of the log",
        file: "crates/media/src/journal/layout.rs",
        from: "is_it && self.incarnation.get() >= earliest;",
        to: "is_it && earliest < u32::MAX;",
        test: unit(
            "media",
            "journal::tests::a_frame_of_an_earlier_time_is_no_continuation",
        ),
    },
    Mutation {
        name: "wear-torn-frames",
        guard: "a torn frame that later writes complete does not come back",
        file: "crates/media/src/journal/replay.rs",
        from: "earliest = earliest.max(superblock.incarnation);",
        to: "earliest = earliest.max(0);",
        test: unit(
            "media",
            "journal::tests::a_torn_frame_that_becomes_whole_stays_lost",
        ),
    },
    Mutation {
        name: "wear-incarnations",
        guard: "a log that has no number left for another time is refused",
        file: "crates/media/src/journal/mod.rs",
        from: "last.max(superblock.incarnation).checked_add(1);",
        to: "Some(last.max(superblock.incarnation).wrapping_add(1));",
        test: unit(
            "media",
            "journal::tests::a_log_that_was_opened_too_often_is_refused",
        ),
    },
    Mutation {
        name: "wear-cloned",
        guard: "a clone shares blocks where the file system can",
        file: "crates/lab/src/cli/clone.rs",
        from: "match ioctl_ficlone(made, source) {",
        to: "match Err::<(), _>(Errno::OPNOTSUPP) {",
        test: program("clone::slow::blocks_are_shared_where_the_file_system_can"),
    },
];
