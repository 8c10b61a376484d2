//! Help, completions and manual pages.

use crate::world::{World, names};

const COMMANDS: [&str; 28] = [
    "serve",
    "up",
    "down",
    "demo",
    "bench",
    "identify",
    "kv",
    "conformance",
    "simulate",
    "fidelity",
    "qemu-args",
    "check",
    "drive",
    "partition",
    "explain",
    "ls",
    "latency",
    "queues",
    "top",
    "trace",
    "create",
    "reload",
    "dashboard",
    "events",
    "delete",
    "completions",
    "man",
    "mount",
];

#[test]
fn every_command_has_help_with_examples() {
    let world = World::new();
    let all = world.ok(&["--help"]);
    for command in COMMANDS {
        assert!(
            all.contains(&format!("  {command} ")),
            "{command} is missing in\n{all}"
        );
        let help = world.ok(&[command, "--help"]);
        assert!(
            help.contains("Examples:") && help.contains("Usage:"),
            "{help}"
        );
    }
    assert!(world.ok(&["bench", "floor", "--help"]).contains("--cpus"));
    assert!(
        world
            .ok(&["create", "controller", "--help"])
            .contains("--namespaces")
    );
    assert!(world.ok(&["--version"]).starts_with("nvmirage "));
}

#[test]
fn nothing_and_nonsense_have_status_2() {
    let world = World::new();
    for args in [&[][..], &["sevre"], &["serve", "--nonsense"], &["check"]] {
        let ran = world.run(args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(ran.err.contains("Usage:"), "{}", ran.err);
    }
    assert!(world.run(&["sevre"]).err.contains("serve"));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let world = World::new();
    assert!(world.ok(&["man"]).contains(".TH nvmirage 1"));
    let sections = [
        ".SH \"EXIT STATUS\"",
        ".SH ENVIRONMENT",
        ".SH FILES",
        ".SH \"SEE ALSO\"",
    ];
    let page = world.ok(&["man"]);
    assert!(
        sections.iter().all(|section| page.contains(section)),
        "{page}"
    );
    world.ok(&["man", "--out", "pages"]);
    let pages = names(&world.path("pages/man1"));
    for command in COMMANDS {
        assert!(
            pages.contains(&format!("nvmirage-{command}.1")),
            "{command} is missing: {pages:?}"
        );
    }
    assert!(pages.contains(&"nvmirage-bench-floor.1".to_owned()));
    let page = std::fs::read_to_string(world.path("pages/man1/nvmirage-up.1")).unwrap();
    assert!(
        sections.iter().all(|section| page.contains(section)),
        "{page}"
    );
    let page = std::fs::read_to_string(world.path("pages/man5/nvmirage.toml.5")).unwrap();
    assert!(page.contains("\n.SH \"[[MEDIA]]\"\n"), "{page}");
    assert_eq!(world.ok(&["man", "--configuration"]), page);
    world.write("file", "");
    assert!(
        world
            .fails(&["man", "--out", "file"])
            .contains("cannot write manual pages to file")
    );
}
