//! The command line as a whole: accepted and rejected lines, and the messages.

use clap::Parser;

use super::{Cli, Command, command};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("nvmirage").chain(line.split_whitespace()))
}

fn refused(line: &str) -> String {
    let error = parse(line).expect_err("this must be refused");
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_definition_is_consistent() {
    command().debug_assert();
}

#[test]
fn the_log_is_explained_once_and_set_by_every_command() {
    let mut all = command();
    all.build();
    assert!(
        all.render_long_help()
            .to_string()
            .contains("--log <FILTER>")
    );
    let ls = all.find_subcommand_mut("ls").unwrap();
    assert!(!ls.render_long_help().to_string().contains("--log"));
    for line in ["--log debug ls", "ls --log debug", "trace --log debug ls"] {
        let line = std::iter::once("nvmirage").chain(line.split_whitespace());
        let matches = command().get_matches_from(line);
        let cli: Cli = clap::FromArgMatches::from_arg_matches(&matches).unwrap();
        assert_eq!(cli.log.as_deref(), Some("debug"));
    }
}

#[test]
fn every_command_has_examples() {
    fn check(command: &clap::Command, path: &str) {
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            let after = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(after.contains("nvmirage "), "{path} has no example");
            check(sub, &path);
        }
    }
    check(&command(), "nvmirage");
}

/// A terminal breaks wider lines anywhere. Examples are meant to be copied, and stay whole.
#[test]
fn what_help_says_below_is_no_wider_than_the_rest() {
    fn check(command: &clap::Command) {
        let after = command.get_after_help().map(ToString::to_string);
        for line in after.unwrap_or_default().lines() {
            let is_example = line.starts_with("  ") && !line.starts_with("      ");
            assert!(is_example || line.len() <= 100, "{line}");
        }
        command.get_subcommands().for_each(check);
    }
    check(&command());
}

#[test]
fn examples_in_help_are_command_lines_that_work() {
    fn collect(command: &clap::Command, found: &mut Vec<String>) {
        let text = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let examples = text
            .lines()
            .filter_map(|line| line.strip_prefix("  nvmirage "));
        found.extend(examples.map(str::to_owned));
        command
            .get_subcommands()
            .for_each(|sub| collect(sub, found));
    }
    let mut examples = Vec::new();
    collect(&command(), &mut examples);
    assert!(examples.len() > 20, "{examples:?}");
    for example in examples {
        let line = example.split([';', '|', '>', '&']).next().unwrap();
        if let Err(error) = parse(line) {
            panic!("{example}: {error}");
        }
    }
}

#[test]
fn lists_multiply_and_have_bounds() {
    let cli = parse("bench --target vfio-user:/s --bs 4k,128KiB --qd 1,32").unwrap();
    let Command::Bench(bench) = cli.command else {
        panic!("another command");
    };
    let jobs = bench.jobs().unwrap();
    let shape: Vec<_> = jobs.iter().map(|j| (j.block_size, j.queue_depth)).collect();
    assert_eq!(shape, [(4096, 1), (4096, 32), (131_072, 1), (131_072, 32)]);
    assert_eq!(jobs[1].name, "randread-4KiB-qd32");
    assert!(refused("bench --target vfio-user:/s --qd 0").contains("--qd"));
    assert!(refused("bench --target vfio-user:/s --qd 1,,2").contains("--qd"));
    assert!(refused("bench --target vfio-user:/s --bs 4096").contains("has no unit"));
    assert!(refused("bench --target vfio-user:/s --rw readrand").contains("randread"));
    assert!(refused("bench --target unix:/s").contains("vfio-user:PATH"));
    assert!(refused("bench --rw read").contains("--target"));
}

#[test]
fn the_floor_needs_no_target() {
    let cli = parse("bench floor --cpus 0,1 --json").unwrap();
    assert!(matches!(cli.command, Command::Bench(_)));
}

#[test]
fn serve_takes_a_file_or_the_short_form() {
    parse("serve --config a.toml --control unix:/c").unwrap();
    parse("serve --media ram:size=1GiB --media null:size=1GiB --listen vfio-user:/s").unwrap();
    // without either, /etc/nvmirage/nvmirage.toml
    parse("serve").unwrap();
    assert!(refused("serve --media ram:size=1GiB").contains("--listen"));
    assert!(refused("serve --config a --media ram").contains("cannot be used with"));
    assert!(
        refused("serve --media rom:size=1GiB --listen vfio-user:/s")
            .contains("null, ram, file, drive or keyvalue")
    );
    assert!(refused("serve --media ram:size=1GiB --listen /s").contains("has no scheme"));
    assert!(refused("serve --config a --control vfio-user:/s").contains("unix:PATH"));
}

/// The option is global: its position does not matter.
#[test]
fn the_control_socket_stands_before_or_behind_the_verb() {
    for line in [
        "--control unix:/c delete controller vm1",
        "delete --control unix:/c controller vm1",
        "delete controller vm1 --control unix:/c",
        "--control unix:/other stop --control unix:/c",
        "--control unix:/c serve --config a.toml",
        "trace --control unix:/c ls",
    ] {
        let cli = parse(line).unwrap();
        assert_eq!(cli.control.as_deref(), Some("/c".as_ref()), "{line}");
    }
    let Command::Stop(stop) = parse("--control unix:/c stop").unwrap().command else {
        panic!("another command");
    };
    assert!(format!("{stop:?}").contains("\"/c\""), "{stop:?}");
    assert!(refused("--control vfio-user:/c ls").contains("unix:PATH"));
}

/// Whether the command of a line talks to a server.
fn asks_a_server(line: &str) -> bool {
    let line = std::iter::once("nvmirage").chain(line.split_whitespace());
    let matches = command().get_matches_from(line);
    let cli = clap::FromArgMatches::from_arg_matches(&matches).unwrap();
    super::check_control(&cli, &matches).is_ok()
}

#[test]
fn the_control_socket_is_for_commands_that_ask_a_server() {
    for line in [
        "ls",
        "stop",
        "delete media m",
        "trace ls",
        "up ram --size 1MiB",
        "top",
    ] {
        assert!(
            asks_a_server(&format!("--control unix:/c {line}")),
            "{line}"
        );
        assert!(asks_a_server(line), "{line}");
    }
    for line in [
        "check a.toml",
        "explain",
        "bench floor",
        "trace stat a.trace",
        "doctor",
    ] {
        assert!(
            !asks_a_server(&format!("--control unix:/c {line}")),
            "{line}"
        );
        assert!(
            !asks_a_server(&format!("{line} --control unix:/c")),
            "{line}"
        );
        assert!(asks_a_server(line), "{line}");
    }
}

#[test]
fn names_of_media_and_namespaces_in_the_short_form() {
    let line = "serve --media ram:size=1GiB --media file:path=a,lba_size=512 --listen vfio-user:/s --doorbells mapped";
    let Command::Serve(serve) = parse(line).unwrap().command else {
        panic!("another command");
    };
    let config = serve.config().unwrap();
    let names: Vec<_> = config.media.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["disk", "disk2"]);
    assert_eq!(config.namespace[0].name, "ns1");
    assert_eq!(
        (
            config.namespace[1].name.as_str(),
            config.namespace[1].lba_size
        ),
        ("ns2", 512)
    );
    let controller = &config.controller[0];
    assert_eq!(
        (controller.name.as_str(), controller.namespaces.len()),
        ("nvme0", 2)
    );
    assert_eq!(controller.doorbells, api::config::Doorbells::Mapped);
}

/// An interrupted run submits nothing more, and waits for the commands in flight.
#[test]
fn a_course_of_fidelity_ends_when_it_is_told_to() {
    let (done, all) = lab::cli::fidelity::interrupted(server::process::in_process).unwrap();
    assert!((1..all / 100).contains(&done), "{done} of {all}");
}
