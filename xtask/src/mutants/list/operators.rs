//! What operators ask of servers and drives: identities, hosts, states, statuses.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "options-of-a-table",
        guard: "an option of a table asks for those that the table cannot do without",
        file: "crates/client/src/cli/options.rs",
        from: "needed.fold(arg, |arg, other| arg.requires(other.name))",
        to: "needed.fold(arg, |arg, _| arg)",
        test: unit(
            "client",
            "cli::options::tests::a_medium_is_sent_as_it_is_written",
        ),
    },
    Mutation {
        name: "identity-lasts-with-data",
        guard: "a drive that keeps data has the same identities at each start, or is not served",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "Err(error) if !is_a_must => {",
        to: "Err(error) if !is_a_must || self.config.state_dir.is_none() => {",
        test: program("operators::a_drive_in_memory_needs_no_folder_for_state"),
    },
    Mutation {
        name: "identity-lasts-with-later-data",
        guard: "a server without a state folder takes no drive that keeps data later",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "identities.are_saved() || !is_a_must,",
        to: "identities.are_saved() || self.config.state_dir.is_none(),",
        test: program("operators::a_drive_in_memory_needs_no_folder_for_state"),
    },
    Mutation {
        name: "identity-shown",
        guard: "the serial number shown is the one that hosts see",
        file: "crates/server/src/supervisor/controllers.rs",
        from: "derived.map(|ids| ids.serial(&lasting))",
        to: "derived.map(|ids| ids.serial(&lasting[1..]))",
        test: program("operators::a_drive_is_found_by_what_its_guest_sees"),
    },
    Mutation {
        name: "size-whole",
        guard: "a size with decimals is a whole number of bytes",
        file: "crates/api/src/config/size.rs",
        from: "if !product.is_multiple_of(divisor) {",
        to: "if !product.is_multiple_of(1) {",
        test: unit("api", "config::size::tests::sizes_have_units"),
    },
    Mutation {
        name: "depth-mean",
        guard: "top shows the mean depth, by Little's law",
        file: "crates/client/src/top/rates.rs",
        from: "commands as f64 / seconds * mean_s",
        to: "now.depth() as f64 + 0.0 * mean_s",
        test: unit("client", "top::tests::all_controllers_at_80_by_24"),
    },
    Mutation {
        name: "interrupted-status",
        guard: "a command that a signal ends early has the status of shells",
        file: "crates/terminal/src/interrupt.rs",
        from: "signal => u8::try_from(128 + signal).ok(),",
        to: "signal => u8::try_from(128 + signal).ok().filter(|_| false),",
        test: program("demo::interrupted_it_ends_its_server_and_removes_its_files"),
    },
];
