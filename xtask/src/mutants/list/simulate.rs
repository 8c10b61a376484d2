//! Simulations in virtual time.

use crate::mutants::{Mutation, Test, integration, unit};

const RUNS: &[&str] = &["--test", "runs"];

const fn run(name: &'static str) -> Test {
    integration("simulate", RUNS, name)
}

const CALIBRATE_LIMIT: Test = unit("lab", "calibrate::tests::what_nothing_reaches_is_no_limit");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "simulate-cold",
        guard: "a queue that was idle for long is looked at when its host rings",
        file: "crates/simulate/src/world/mod.rs",
        from: "        if was_aside {\n",
        to: "        if was_aside && false {\n",
        test: run("closed_forms::a_pause_longer_than_a_lane_stays_hot_delays_nothing"),
    },
    Mutation {
        name: "simulate-held",
        guard: "what the drive had no room for is tried again at the instant at which room was made",
        file: "crates/simulate/src/world/mod.rs",
        from: "rung || worked && held || self.is_due()",
        to: "rung || self.is_due()",
        test: run("world::what_finds_no_place_on_the_drive_goes_on_as_soon_as_there_is_one"),
    },
    Mutation {
        name: "simulate-warm-up",
        guard: "what the drive does inside is counted from the very start where there is no warm-up",
        file: "crates/simulate/src/world/mod.rs",
        from: "        self.pass_to(START_NS);\n",
        to: "",
        test: run("world::a_full_buffer_holds_commands_up_and_loses_none"),
    },
    Mutation {
        name: "simulate-host",
        guard: "a host's thread does one thing at a time",
        file: "crates/simulate/src/host.rs",
        from: "                    self.busy_until = now + self.cost.submission_ns;\n",
        to: "",
        test: run("closed_forms::hosts_that_take_time_add_it"),
    },
    Mutation {
        name: "simulate-arrival",
        guard: "the time of a command of a trace counts from its arrival",
        file: "crates/simulate/src/host.rs",
        from: "                Next::Op(arrival.op, at, number)\n",
        to: "                Next::Op(arrival.op, now, number)\n",
        test: run("world::a_trace_arrives_when_it_did_and_waits_for_room"),
    },
    Mutation {
        name: "simulate-once",
        guard: "random places come once before they come again",
        file: "crates/simulate/src/places.rs",
        from: "            if value < self.count {\n                return value;",
        to: "            if value < u64::MAX {\n                return value % self.count;",
        test: unit("simulate", "places::tests::a_shuffle_has_every_number_once"),
    },
    Mutation {
        name: "simulate-refused",
        guard: "a key of a job file that is not taken is refused",
        file: "crates/simulate/src/fio/mod.rs",
        from: "            _ => return Err(unknown()),\n",
        to: "            _ => {}\n",
        test: unit(
            "simulate",
            "fio::tests::what_is_not_taken_is_refused_by_name_and_line",
        ),
    },
    Mutation {
        name: "simulate-own-zones",
        guard: "workers of a job write to zones of their own",
        file: "crates/simulate/src/zones.rs",
        from: "            (usize::from(worker), usize::from(job.workers))\n",
        to: "            (0, 1)\n",
        test: run("zones::zones_are_written_in_order_and_reset_when_they_are_written_again"),
    },
    Mutation {
        name: "simulate-prepared",
        guard: "what was done to prepare a drive counts in no interval",
        file: "crates/simulate/src/world/mod.rs",
        from: "        let done = device.bus().drive(Figures::of);\n",
        to: "        let done = Figures::default();\n",
        test: run("zones::a_prepared_drive_collects_from_the_first_write_on"),
    },
    Mutation {
        name: "simulate-keys",
        guard: "a place of a job is a key of its own",
        file: "crates/simulate/src/job.rs",
        from: "model::key_hash(&driver::program::key(offset))",
        to: "model::key_hash(&driver::program::key(offset & 0))",
        test: run("keys::a_place_is_the_same_key_for_all_jobs"),
    },
    Mutation {
        name: "simulate-fua",
        guard: "a job file that asks keys for FUA is refused",
        file: "crates/simulate/src/fio/mod.rs",
        from: "                must(!(job.fua && job.keyed), NO_FUA)?;\n",
        to: "",
        test: unit("simulate", "fio::tests::for_a_drive_with_keys"),
    },
    Mutation {
        name: "simulate-kinds",
        guard: "a trace asks a drive for nothing that it has not",
        file: "crates/simulate/src/world/work.rs",
        from: "        kind => kind.is_of_keys() != keys,\n",
        to: "        kind => kind.is_of_keys() && !keys,\n",
        test: run("keys::what_a_drive_has_not_is_refused"),
    },
    Mutation {
        name: "simulate-parts",
        guard: "each part of a compound command has its own kind in a recording",
        file: "crates/simulate/src/trace/own.rs",
        from: "let name = name(Kind::of_key(part.kind), false);",
        to: "let name = name(Kind::Store, false);",
        test: unit("simulate", "recording::tests::keys"),
    },
    Mutation {
        name: "simulate-due",
        guard: "a due time that is off by a nanosecond is found",
        file: "crates/simulate/src/recording/mod.rs",
        from: "        if done != *real {\n",
        to: "        if done.abs_diff(*real) > 1 {\n",
        test: unit("simulate", "recording::tests::zones"),
    },
    Mutation {
        name: "keys-missing-time",
        guard: "that there is no such key takes time to find",
        file: "crates/media/src/channel/timed.rs",
        from: "        if matches!(request, Request::Command { .. }) && !self.ask_what_was_done(number) {",
        to: "        if matches!(request, Request::Command { .. })\n            && !matches!(moved, Some((_, outcome)) if is_refused(outcome))\n            && !self.ask_what_was_done(number)\n        {",
        test: integration(
            "media",
            &["--test", "media"],
            "timed::a_key_that_is_not_there_takes_the_time_of_one_that_is",
        ),
    },
    Mutation {
        name: "calibrate-limit",
        guard: "a limit that nothing has reached is none",
        file: "crates/lab/src/calibrate/result.rs",
        from: "            if worse >= POSSIBLE {\n",
        to: "            if worse.is_finite() {\n",
        test: CALIBRATE_LIMIT,
    },
    Mutation {
        name: "calibrate-overwrite",
        guard: "a preset that was written is not overwritten",
        file: "crates/lab/src/cli/calibrate/mod.rs",
        from: "        .create_new(true)\n",
        to: "        .create(true)\n        .truncate(true)\n",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "calibrate::what_was_measured_becomes_a_drive_that_everything_takes",
        ),
    },
];
