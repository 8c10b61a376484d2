//! What a running server shows of itself.

use super::super::{Mutation, Test, program, unit};

const METRICS: Test = program("metrics::a_scraper_reads_what_hosts_did");

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "metrics-of-its-controller",
        guard: "a controller has the numbers of its own reactor's place",
        file: "crates/server/src/supervisor/inventory.rs",
        from: "(*at, *slot) == (served.reactor, served.slot)",
        to: "*slot == served.slot",
        test: METRICS,
    },
    Mutation {
        name: "metrics-end",
        guard: "OpenMetrics text says that it is whole",
        file: "crates/server/src/observe/text.rs",
        from: "    if format == Format::OpenMetrics {\n        text.push_str",
        to: "    if format == Format::Text {\n        text.push_str",
        test: METRICS,
    },
    Mutation {
        name: "metrics-label-escaped",
        guard: "a label cannot end early",
        file: "crates/server/src/observe/text.rs",
        from: ".replace('\"', \"\\\\\\\"\")",
        to: "",
        test: unit(
            "server",
            "observe::text::tests::both_formats_are_what_their_specifications_have",
        ),
    },
    Mutation {
        name: "watched-at-random",
        guard: "no pattern of a host hides from watching",
        file: "crates/controller/src/lane/watch.rs",
        from: "        1 + ((u64::from(self.random) * span) >> 32) as u32",
        to: "        span as u32 / 2 + 1",
        test: unit(
            "controller",
            "lane::tests::watch::one_of_so_many_is_watched_and_no_pattern_hides",
        ),
    },
    Mutation {
        name: "watched-makes-room",
        guard: "the place of a watched command that is aborted becomes free",
        file: "crates/controller/src/lane/watch.rs",
        from: "        self.free.push(at);\n        Some(open)",
        to: "        if open.handed.is_none() {\n            self.free.push(at);\n        }\n        Some(open)",
        test: unit(
            "controller",
            "lane::tests::watch::what_is_given_up_makes_room_for_others",
        ),
    },
    Mutation {
        name: "watched-one-only",
        guard: "of a batch every chosen command is watched",
        file: "crates/controller/src/lane/watched.rs",
        from: "            left = left.min(self.available(position)).min(self.room(position));\n        }\n        Went::On",
        to: "            return Went::On;\n        }\n        Went::On",
        test: unit(
            "controller",
            "lane::tests::watch::one_of_so_many_is_watched_and_no_pattern_hides",
        ),
    },
    Mutation {
        name: "inspected-oldest",
        guard: "of more commands than are asked for the oldest are shown",
        file: "crates/controller/src/lane/inspection.rs",
        from: "            self.0.pop();",
        to: "            self.0 = std::mem::take(&mut self.0).into_sorted_vec().into_iter().skip(1).collect();",
        test: unit(
            "controller",
            "lane::tests::inspection::of_128_commands_all_are_shown_or_the_oldest",
        ),
    },
    Mutation {
        name: "inspected-given-up",
        guard: "a command that has completed for its host is not shown",
        file: "crates/controller/src/lane/inspection.rs",
        from: "CommandState::FREE | CommandState::ZOMBIE",
        to: "CommandState::FREE",
        test: unit(
            "controller",
            "lane::tests::inspection::what_was_given_up_is_counted_and_not_shown",
        ),
    },
    Mutation {
        name: "inspected-age-at-least",
        guard: "no command is shown older than it is",
        file: "crates/controller/src/inspect.rs",
        from: "    (now.0.wrapping_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as u32",
        to: "    (now.0 >> TICK_SHIFT) as u32",
        test: unit(
            "controller",
            "inspect::tests::an_age_is_a_lower_bound_to_a_tick",
        ),
    },
    Mutation {
        name: "namespaces-kept-of-the-gone",
        guard: "what came to a namespace stays counted when its queue is gone",
        file: "crates/controller/src/counters.rs",
        from: "        self.namespaces.absorb(&counters.namespaces);\n",
        to: "",
        test: program("metrics::a_scraper_reads_what_hosts_did"),
    },
    Mutation {
        name: "namespaces-apart",
        guard: "a batch for several namespaces is counted for each",
        file: "crates/controller/src/lane/straight.rs",
        from: "            if plain.nsid != tally.nsid {",
        to: "            if plain.nsid != tally.nsid && tally.done() == 0 {",
        test: unit(
            "controller",
            "lane::tests::commands::what_comes_to_each_namespace_is_counted",
        ),
    },
    Mutation {
        name: "top-restarted-server",
        guard: "rates are of one server, and not of two that have the same socket",
        file: "crates/client/src/top/rates.rs",
        from: "last.is_some_and(|last| sample.time_ns < last.time_ns)",
        to: "last.is_none()",
        test: unit(
            "client",
            "top::tests::a_restarted_server_is_not_compared_with_the_one_before",
        ),
    },
    Mutation {
        name: "top-not-over-a-gap",
        guard: "a server that was gone may be another one",
        file: "crates/client/src/top/rates.rs",
        from: "        self.is_broken = true;",
        to: "",
        test: unit(
            "client",
            "top::tests::a_restarted_server_is_not_compared_with_the_one_before",
        ),
    },
    Mutation {
        name: "top-leaves-the-terminal",
        guard: "the terminal is left as it was",
        file: "crates/client/src/top/screen.rs",
        from: "    let restored = ratatui::try_restore().context(\"cannot change the terminal back\");",
        to: "    let restored = Ok(());",
        test: program("top::a_terminal_shows_what_a_load_does_and_is_left_as_it_was"),
    },
    Mutation {
        name: "watched-kept-of-the-gone",
        guard: "what a queue has counted outlives it",
        file: "crates/controller/src/counters.rs",
        from: "            self.flight.absorb(&watched.flight);",
        to: "",
        test: METRICS,
    },
    Mutation {
        name: "watched-last-of-the-gone",
        guard: "the last commands of a queue that is gone are there",
        file: "crates/controller/src/counters.rs",
        from: "            self.records.absorb(&watched.records);",
        to: "",
        test: METRICS,
    },
    Mutation {
        name: "histogram-bounds",
        guard: "a classic bucket has what is as large as its bound",
        file: "crates/server/src/observe/histogram.rs",
        from: "|(last, _)| *last <= bound",
        to: "|(last, _)| *last < bound",
        test: unit(
            "server",
            "observe::histogram::tests::classic_buckets_have_what_is_at_most_their_bound",
        ),
    },
    Mutation {
        name: "histogram-native-bucket",
        guard: "a native bucket ends where its schema says",
        file: "crates/server/src/observe/histogram.rs",
        from: "* PER_OCTAVE).ceil() as i32",
        to: "* PER_OCTAVE).floor() as i32",
        test: unit(
            "server",
            "observe::histogram::tests::native_buckets_are_those_of_their_schema",
        ),
    },
    Mutation {
        name: "metrics-form-asked-for",
        guard: "a request for protocol buffers as text is not answered with binary ones",
        file: "crates/server/src/observe/text.rs",
        from: "                        && has(\"encoding=delimited\") =>",
        to: " =>",
        test: unit(
            "server",
            "observe::text::tests::a_scraper_gets_the_format_that_it_asks_for",
        ),
    },
    Mutation {
        name: "map-in-parts",
        guard: "a look at a large drive takes a bounded part in a turn",
        file: "crates/reactor/src/maps/mod.rs",
        from: "                if *most == 0 {\n                    return false;\n                }\n                *most -= 1;\n                self.take_line",
        to: "                *most = most.saturating_sub(1);\n                self.take_line",
        test: unit(
            "reactor",
            "maps::tests::a_map_is_the_same_however_it_is_taken_and_has_every_page",
        ),
    },
    Mutation {
        name: "zones-counted-once",
        guard: "a zone counts in one state",
        file: "crates/media/src/zoned/zones/mod.rs",
        from: "        self.states[place(from)] -= 1;\n",
        to: "",
        test: program("map::zones_are_as_a_host_is_told"),
    },
];
