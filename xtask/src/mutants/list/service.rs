//! The service: who may connect, notifications to a service manager, and what is logged.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "service-ready",
        guard: "a service manager hears that hosts can attach",
        file: "crates/server/src/service/mod.rs",
        from: "tell(&[NotifyState::Ready, NotifyState::Status(status)]);",
        to: "tell(&[NotifyState::Status(status)]);",
        test: program("service::a_manager_hears_that_it_is_ready_lives_and_stops"),
    },
    Mutation {
        name: "watchdog-silent-reactor",
        guard: "the watchdog is not told that we live where a reactor does not answer",
        file: "crates/server/src/service/watchdog.rs",
        from: "answer.is_none_or(|answer| answer.within(left).is_none())",
        to: "answer.is_none_or(|_| left.is_zero())",
        test: unit(
            "server",
            "service::watchdog::tests::a_reactor_that_does_not_answer_is_named",
        ),
    },
    Mutation {
        name: "service-socket-stays",
        guard: "a control socket that a service manager made stays when we end",
        file: "crates/server/src/control/server.rs",
        from: "        if self.inherited {",
        to: "        if false {",
        test: program("service::the_control_socket_may_be_the_managers_and_stays_when_we_end"),
    },
    Mutation {
        name: "log-filter-live",
        guard: "another filter counts from the next line on",
        file: "crates/server/src/logging.rs",
        from: "    live.filter.reload(filter).map_err(failed)?;",
        to: "    let _ = filter;",
        test: program("service::the_log_changes_while_it_runs"),
    },
    Mutation {
        name: "socket-mode-ours",
        guard: "a mode of a socket leaves it to us",
        file: "crates/api/src/config/socket_mode.rs",
        from: "mode & !0o066 == 0o600",
        to: "mode & !0o666 == 0",
        test: unit(
            "api",
            "config::socket_mode::tests::only_modes_that_leave_us_the_socket",
        ),
    },
    Mutation {
        name: "socket-mode-set",
        guard: "others may connect where the configuration says so",
        file: "crates/vfio-user/src/listener/mod.rs",
        from: "        rustix::fs::chmod(&self.path, mode)",
        to: "        Ok::<(), Errno>(drop(mode))",
        test: unit(
            "vfio-user",
            "listener::tests::the_file_is_for_its_owner_only",
        ),
    },
];
