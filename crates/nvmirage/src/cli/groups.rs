//! The help of the program: its commands by what they are for, where clap knows one flat list.

use std::fmt::Write as _;

/// The commands of each group, the most common first.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Serve drives",
        &[
            "up",
            "down",
            "serve",
            "check",
            "reload",
            "stop",
            "upgrade",
            "qemu-args",
            "mount",
        ],
    ),
    (
        "See a running server",
        &[
            "ls",
            "hosts",
            "disconnect",
            "show",
            "top",
            "dashboard",
            "latency",
            "queues",
            "events",
            "trace",
            "export",
        ],
    ),
    (
        "Change a running server",
        &[
            "create",
            "delete",
            "attach",
            "detach",
            "resize",
            "move",
            "set",
            "partition",
        ],
    ),
    (
        "Measure and test drives",
        &[
            "demo",
            "bench",
            "identify",
            "kv",
            "zone",
            "conformance",
            "migrate",
        ],
    ),
    (
        "Simulated drives",
        &[
            "explain",
            "simulate",
            "calibrate",
            "precondition",
            "clone",
            "fidelity",
        ],
    ),
    ("This machine", &["doctor", "drive"]),
    ("Help", &["help", "completions", "man"]),
];

/// Gives the program's command a help with groups.
pub(super) fn grouped(command: clap::Command) -> clap::Command {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        // writing to a string does not fail
        let _ = writeln!(template, "\n{title}:");
        for name in names {
            let about = match command.find_subcommand(name) {
                Some(found) => found.get_about().map(ToString::to_string),
                // clap adds it later
                None => Some("Print this message, or the help of the command behind it".to_owned()),
            };
            let _ = writeln!(template, "  {name:<12}  {}", about.unwrap_or_default());
        }
    }
    template += "\nOptions:\n{options}{after-help}\n";
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let command = Cli::command();
        let all = command.get_subcommands().filter(|c| !c.is_hide_set());
        let mut all: BTreeSet<&str> = all.map(clap::Command::get_name).collect();
        all.insert("help");
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(listed.len(), all.len(), "a command is listed twice");
        let help = grouped(command.clone()).render_help().to_string();
        assert!(
            help.contains("\nServe drives:\n  up            Create a drive"),
            "{help}"
        );
        assert!(
            help.contains("--log") && help.contains("Examples:"),
            "{help}"
        );
    }
}
