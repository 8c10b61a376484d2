//! Shells complete what the running server has, asked as a shell asks: by its completion function.

use std::path::Path;
use std::process::Command;

use api::config::Controller;
use api::config::object::{Object, When};

use crate::world::World;

/// Completions of bash for a line, where a program of that name is on the `PATH`.
fn bash(world: &World, line: &str) -> Vec<String> {
    let script = world.write("completion.bash", &world.ok(&["completions", "bash"]));
    let asked = format!(
        "source '{}'; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _nvmirage; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    asked_of(world, "bash", &["--norc", "--noprofile", "-c", &asked])
}

fn asked_of(world: &World, shell: &str, args: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_nvmirage"));
    let folders = [program.parent().unwrap().to_owned()].into_iter();
    let others = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&others))).unwrap();
    let mut command = Command::new(shell);
    command
        .args(args)
        .env("PATH", path)
        .current_dir(world.path("."));
    command
        .env("XDG_RUNTIME_DIR", world.path("run"))
        .env("HOME", world.path("."));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "a shell's user sees nothing");
    let offered = String::from_utf8(output.stdout).unwrap();
    let lines = offered.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_and_parameters_of_the_running_server() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    world.ok(&world.steer(&["up", "optane-p4800x", "--size", "16MiB", "--name", "fast"]));
    world.ok(&world.steer(&["create", "media", "slow", "--kind", "ram", "--size", "1MiB"]));
    world.ok(&world.steer(&["create", "tenant", "web"]));
    let there = format!("--control {}", world.unix("control"));
    let offered = |line: &str| bash(&world, &line.replace("@", &there));
    assert_eq!(offered("nvmirage set @ media "), ["fast", "slow"]);
    assert_eq!(offered("nvmirage delete media @ sl"), ["slow"]);
    assert_eq!(offered("nvmirage show @ tenant "), ["web"]);
    assert_eq!(offered("nvmirage move @ "), ["fast"]);
    assert_eq!(offered("nvmirage attach @ f"), ["fast"]);
    assert_eq!(
        offered("nvmirage create controller @ x --namespaces "),
        ["fast"]
    );
    assert_eq!(offered("nvmirage queues @ "), ["fast"]);
    world.ok(&world.steer(&["trace", "start", "fast", "--file", "f", "--name", "mine"]));
    assert_eq!(offered("nvmirage trace start @ "), ["fast"]);
    assert_eq!(offered("nvmirage trace stop @ "), ["mine"]);
    let parameters = offered("nvmirage set @ media fast timing.read_");
    assert!(
        parameters.contains(&"timing.read_latency=".to_owned()),
        "{parameters:?}"
    );
    let keys = Controller::KEYS.iter();
    let live = keys.filter(|key| key.when == When::Live);
    // A part of `ana` is set by the number of its group.
    let mut live: Vec<String> = live
        .map(|key| match key.name {
            "ana" => "ana.".to_owned(),
            name => format!("{name}="),
        })
        .collect();
    live.sort();
    assert!(live.contains(&"sample=".to_owned()));
    let mut keys = offered("nvmirage set @ controller fast ");
    keys.sort();
    assert_eq!(keys, live);
    // whatever needs no server is offered, too
    assert!(offered("nvmirage sim").contains(&"simulate".to_owned()));
    let optane = "optane-p4800x".to_owned();
    assert!(offered("nvmirage explain opt").contains(&optane));
    assert!(offered("nvmirage simulate --preset opt").contains(&optane));
    assert_eq!(offered("nvmirage up opt"), ["optane-p4800x"]);
    assert_eq!(offered("nvmirage up keyv"), ["keyvalue"]);
    server.stop();
    // without a server there is nothing to offer, and nothing is said
    assert_eq!(offered("nvmirage set @ media "), [""; 0]);
}

/// Names of files come from bash, which quotes them: a name that is a command to it is none on the
/// line.
#[test]
fn names_of_files_are_left_to_bash() {
    let world = World::new();
    world.write("x;touch found", "");
    world.write("*", "");
    for line in [
        "nvmirage check x",
        "nvmirage serve --config ",
        "nvmirage check ",
    ] {
        assert_eq!(bash(&world, line), [""; 0], "{line}");
    }
}

#[test]
fn every_shell_has_a_script_that_asks_the_program() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.ok(&["completions", shell]);
        assert!(script.contains("_NVMIRAGE_COMPLETE"), "{shell}: {script}");
    }
    // what other shells would ask
    for shell in ["zsh", "fish"] {
        let mut command = world.program();
        command
            .env("_NVMIRAGE_COMPLETE", shell)
            .env("_CLAP_COMPLETE_INDEX", "1");
        command
            .env("_CLAP_IFS", "\n")
            .args(["--", "nvmirage", "simul"]);
        let output = command.output().unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert!(offered.contains("simulate"), "{shell}: {offered}");
    }
}
