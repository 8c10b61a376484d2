//! Connections to a drive's socket, and commands whose other side goes away.

use super::super::{Mutation, integration, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "host-silent",
        guard: "a connection that sends no VERSION is closed",
        file: "crates/transport/src/vfio_user/caller.rs",
        from: "            Stage::Silent => Some(self.since + SILENCE_NS),",
        to: "            Stage::Silent => None,",
        test: integration(
            "transport",
            &["--test", "transport"],
            "caller::half_a_message_and_messages_before_version_win_no_time",
        ),
    },
    Mutation {
        name: "host-hand-over",
        guard: "a host that comes as the last one goes is not refused",
        file: "crates/transport/src/vfio_user/caller.rs",
        from: "is_taken.then(|| self.since + TURN_NS)",
        to: "is_taken.then_some(self.since)",
        test: program("hosts::a_host_that_comes_as_the_last_one_goes_is_never_refused"),
    },
    Mutation {
        name: "host-flood",
        guard: "connections that are no hosts take a bounded number of descriptors",
        file: "crates/reactor/src/door.rs",
        from: "const MAX_CALLERS: usize = 8;",
        to: "const MAX_CALLERS: usize = 1000;",
        test: program("hosts::a_flood_of_connections_takes_few_descriptors_and_ends"),
    },
    Mutation {
        name: "host-end-of-file",
        guard: "a host that is sent away reads the end of the file and no reset",
        file: "crates/vfio-user/src/parting.rs",
        from: "        let _ = self.socket.shutdown(Shutdown::Both);\n        self.is_over(LAST_READS);\n",
        to: "",
        test: unit(
            "vfio-user",
            "parting::tests::a_host_with_unread_messages_sees_the_end_of_file",
        ),
    },
    Mutation {
        name: "hosts-together",
        guard: "hosts of a server that stops have their time together",
        file: "crates/server/src/supervisor/mod.rs",
        from: "        result = result.and(state.send_hosts_away());\n",
        to: "",
        test: program("hosts::hosts_of_a_server_that_stops_have_their_time_together"),
    },
    Mutation {
        name: "terminal-gone",
        guard: "a command whose terminal goes away ends",
        file: "crates/client/src/top/screen.rs",
        from: "    hangup::end_with_terminal().context(\"cannot watch the terminal\")?;\n",
        to: "",
        test: program("hangups::a_command_whose_terminal_goes_away_ends_or_is_idle"),
    },
    Mutation {
        name: "log-unread",
        guard: "an unread log does not stop the server",
        file: "crates/server/src/logging.rs",
        from: "        .log_internal_errors(false)\n",
        to: "        .log_internal_errors(true)\n",
        test: program("hangups::a_server_whose_log_is_not_read_goes_on"),
    },
];
