//! Traces of controllers' commands.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "trace-checksum",
        guard: "a block that is damaged gives no record",
        file: "crates/trace-file/src/read.rs",
        from: "        if sum != word(24) {",
        to: "        if sum != word(24) && frame.count == 0 {",
        test: unit("trace-file", "tests::a_bit_that_flips_is_found"),
    },
    Mutation {
        name: "trace-cut-off",
        guard: "a file without an end is read to its last whole block",
        file: "crates/trace-file/src/read.rs",
        from: "            self.tail = Some(Tail::CutOff((FRAME_LEN + len) as u64));",
        to: "            return Err(damaged(\"it ends early\"));",
        test: unit(
            "trace-file",
            "tests::a_file_that_was_cut_off_is_read_to_its_last_whole_block",
        ),
    },
    Mutation {
        name: "trace-missed",
        guard: "a command that finds no room to be watched is counted",
        file: "crates/controller/src/lane/watch.rs",
        from: "                trace.ring.miss();",
        to: "",
        test: unit(
            "controller",
            "lane::tests::watch::what_cannot_be_watched_is_counted",
        ),
    },
    Mutation {
        name: "trace-beside-a-sample",
        guard: "what is always watched stays a sample while a trace goes on",
        file: "crates/controller/src/lane/watch.rs",
        from: "            if self.until_counted > 0 {",
        to: "            if false {",
        test: unit(
            "controller",
            "lane::tests::watch::a_trace_has_every_command_and_what_is_watched_stays_a_sample",
        ),
    },
    Mutation {
        name: "trace-last-of-a-lane",
        guard: "a lane records its posted completions before it ends",
        file: "crates/controller/src/lane/watch.rs",
        from: "impl Drop for Watch {\n    fn drop(&mut self) {\n        self.land_all();",
        to: "impl Drop for Watch {\n    fn drop(&mut self) {",
        test: unit(
            "controller",
            "lane::tests::watch::what_was_posted_is_told_where_the_lane_ends_or_the_trace_does",
        ),
    },
    Mutation {
        name: "trace-largest-size",
        guard: "a trace's file is never larger than it may be",
        file: "crates/server/src/trace/recorder.rs",
        from: "            if self.len + block.len() as u64 + END_ROOM > self.max_size {",
        to: "            if self.len > self.max_size {",
        test: unit(
            "server",
            "trace::recorder::tests::a_file_is_never_larger_than_it_may_be_and_has_as_many_as_fit",
        ),
    },
    Mutation {
        name: "trace-never-over-a-file",
        guard: "a trace never goes into a file that is there",
        file: "crates/server/src/trace/mod.rs",
        from: "        .create_new(true)",
        to: "        .create(true)\n        .truncate(true)",
        test: program("traces::every_command_of_a_host_is_in_the_file"),
    },
    Mutation {
        name: "replay-destroys-nothing-unasked",
        guard: "a replay changes no data unless that is meant",
        file: "crates/load/src/trace/replay/plan.rs",
        from: "        count == 0 || settings.write || settings.reads_only,",
        to: "        count == 0 || !settings.reads_only,",
        test: unit(
            "load",
            "trace::replay::plan::tests::nothing_is_changed_unless_that_is_meant",
        ),
    },
    Mutation {
        name: "replay-in-bounds",
        guard: "what a drive has not is refused before the first command",
        file: "crates/load/src/trace/replay/make.rs",
        from: ".is_some_and(|end| end <= size) {",
        to: ".is_some() {",
        test: unit(
            "load",
            "trace::replay::plan::tests::what_the_drive_has_not_is_refused_before_anything_is_done",
        ),
    },
    Mutation {
        name: "trace-beside-nothing",
        guard: "with sampling off, there are no samples beside a trace",
        file: "crates/controller/src/lane/watch.rs",
        from: "            if self.watching.every == 0 {",
        to: "            if false {",
        test: unit(
            "controller",
            "lane::tests::watch::a_trace_is_all_there_is_where_nothing_else_is_watched",
        ),
    },
    Mutation {
        name: "trace-first-version",
        guard: "a trace of the version before is read by its columns",
        file: "crates/trace-file/src/columns.rs",
        from: "        1 => OF_VERSION_1,",
        to: "        0 => OF_VERSION_1,",
        test: unit("trace-file", "tests::blocks_made_by_hand_are_read"),
    },
    Mutation {
        name: "trace-keys",
        guard: "a trace has the key of a command",
        file: "crates/controller/src/command/mod.rs",
        from: "        key,\n        ..Named::default()",
        to: "        ..Named::default()",
        test: program("traces_keys::keys_become_what_they_were"),
    },
    Mutation {
        name: "sample-while-served",
        guard: "of how many commands the times are taken changes while a host is attached",
        file: "crates/server/src/supervisor/steps.rs",
        from: "Object::Controller(one) => self.tell_of_controller(&one.name),",
        to: "Object::Controller(one) => Ok(drop(one.name.clone())),",
        test: program("sample::the_times_are_taken_of_as_many_commands_as_one_wants"),
    },
];
