//! The program as a service manager sees it, played by the test: sd_notify(3), sd_listen_fds(3),
//! sd-daemon(3); and its log, which may change while it runs.

use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::Signal;

use crate::world::{BOUND, Server, World};

/// A server of one drive in memory, with `more` of its environment.
fn serve(world: &World, more: &[(&str, &str)]) -> Server {
    let mut command = world.program();
    let listen = world.vfio_user("nvme.sock");
    command
        .args([
            "serve",
            "--media",
            "ram:size=1MiB",
            "--listen",
            &listen,
            "--control",
            &world.unix("control"),
        ])
        .envs(more.iter().copied());
    Server::start(command, world.path("server.log"))
}

/// Waits until the log of the server has `text`.
fn wait_for(server: &Server, text: &str) {
    let deadline = Instant::now() + BOUND;
    while !server.log().contains(text) {
        assert!(Instant::now() < deadline, "no {text}: {}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_manager_hears_that_it_is_ready_lives_and_stops() {
    let world = World::new();
    let path = world.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(BOUND)).unwrap();
    let hear = || {
        let mut message = [0; 1024];
        let len = manager.recv(&mut message).expect("it says nothing");
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let server = serve(
        &world,
        &[
            ("NOTIFY_SOCKET", path.to_str().unwrap()),
            ("WATCHDOG_USEC", "300000"),
        ],
    );
    let ready = hear();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    assert!(ready.contains("STATUS=serving 1 controller"), "{ready}");
    for _ in 0..3 {
        assert_eq!(hear().trim(), "WATCHDOG=1");
    }
    server.signal(Signal::TERM);
    let deadline = Instant::now() + BOUND;
    while !hear().lines().any(|line| line == "STOPPING=1") {
        assert!(Instant::now() < deadline, "it does not say that it stops");
    }
    assert!(server.end().success());
}

/// The program with these arguments, started by a manager that passes `listener`: as descriptor 3,
/// and with the process id that exec keeps (sd_listen_fds(3)).
pub(crate) fn activated(world: &World, listener: &UnixListener, args: &[&str]) -> Command {
    let program = world.program();
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"",
            "sh",
        ])
        .arg(program.get_program())
        .args(args)
        .current_dir(world.path(""))
        .stdin(OwnedFd::from(listener.try_clone().unwrap()));
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[test]
fn the_control_socket_may_be_the_managers_and_stays_when_we_end() {
    let world = World::new();
    let path = world.path("managers.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let activated = |args: &[&str]| activated(&world, &listener, args);
    let control = format!("unix:{}", path.display());
    let file = world.write("empty.toml", "");
    let file = file.to_str().unwrap();
    let server = Server::start(
        activated(&["serve", "--config", file]),
        world.path("server.log"),
    );
    world.ok(&["ls", "--control", &control]);
    server.stop();
    assert!(path.exists(), "the manager's socket is gone");

    let other = world.unix("other.sock");
    let mut two = activated(&["serve", "--config", file, "--control", &other]);
    let ran = crate::world::ran(two.output().unwrap());
    assert_eq!(ran.status.code(), Some(1), "{}", ran.err);
    assert!(ran.err.contains("ListenStream="), "{}", ran.err);
}

#[test]
fn the_log_changes_while_it_runs() {
    let world = World::new();
    let server = serve(&world, &[]);
    let set = |changes: &[&str]| world.steer(&[&["set", "log"], changes].concat());
    world.ok(&set(&["filter=debug", "format=json"]));
    wait_for(&server, "log settings changed");
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("log settings changed"));
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).expect(&log);
    assert_eq!(line["level"], "INFO");
    assert!(line["timestamp"].is_string(), "{line}");
    assert_eq!(line["target"], "server::control::routes::log");

    // lines of one module, and of none of the others
    world.ok(&set(&["filter=off,nvmirage::control=info", "format=text"]));
    wait_for(&server, " INFO log settings changed");
    let before = server.log().len();
    world.ok(&world.steer(&["create", "media", "more", "--kind", "ram", "--size", "1MiB"]));
    world.ok(&set(&["filter=off"]));
    let silent = world.run(&set(&["format=json"]));
    assert!(silent.status.success(), "{}", silent.err);
    assert_eq!(&server.log()[before..], "", "it logs what nobody asked for");

    let refused = world.fails(&set(&["filter=loud=9"]));
    assert!(refused.contains("invalid log filter"), "{refused}");
    let usage = world.run(&set(&["colour=red"]));
    assert_eq!(usage.status.code(), Some(2), "{}", usage.err);
    server.signal(Signal::TERM);
    assert!(server.end().success());
}

#[test]
fn a_configuration_says_how_it_is_logged_and_the_command_line_counts_first() {
    let world = World::new();
    let file = world.write("a.toml", "[log]\nfilter = \"off\"\nformat = \"json\"\n");
    let file = file.to_str().unwrap();
    let server = world.serve(&["--config", file]);
    assert_eq!(server.log(), "");
    server.stop();
    let server = world.serve(&["--log", "info", "--config", file]);
    server.signal(Signal::TERM);
    wait_for(&server, "stopping");
    let log = server.log();
    let first = log.lines().next().unwrap();
    serde_json::from_str::<serde_json::Value>(first).expect(&log);

    let wrong = world.write("b.toml", "[log]\nfilter = \"loud=9\"\n");
    let ran = world.run(&["check", wrong.to_str().unwrap()]);
    assert!(
        ran.err.contains("invalid log filter"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let world = World::new();
    let log = world.write("server.log", "");
    let stream = fs::metadata(&log).unwrap();
    // systemd.exec(5): device and inode of standard error
    let stream = format!("{}:{}", stream.st_dev(), stream.st_ino());
    let server = serve(&world, &[("JOURNAL_STREAM", &stream)]);
    server.signal(Signal::TERM);
    wait_for(&server, "<6>stopping: SIGTERM\n");
    assert!(server.end().success());
}

#[test]
fn a_typo_in_a_filter_of_the_log_is_refused_wherever_it_stands() {
    let world = World::new();
    let server = serve(&world, &[]);
    let refused = world.fails(&world.steer(&["set", "log", "filter=inof"]));
    assert!(refused.contains("did you mean `info`?"), "{refused}");
    let refused = world.fails(&world.steer(&["set", "log", "filter=transprot=debug"]));
    assert!(refused.contains("did you mean `transport`?"), "{refused}");
    server.signal(Signal::TERM);
    wait_for(&server, "stopping");
    assert!(server.end().success());

    let file = world.write("a.toml", "[log]\nformat = \"text\"\nfilter = \"warnn\"\n");
    let check = world.run(&["check", file.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(1), "{}", check.err);
    let says = ["line 3", "did you mean `warn`?"];
    assert!(
        says.iter().all(|word| check.err.contains(word)),
        "{}",
        check.err
    );
    let option = world.run(&["ls", "--log", "loud"]);
    let mut command = world.program();
    let variable = command.env("NVMIRAGE_LOG", "wrn").args(["ls"]).output();
    let variable = crate::world::ran(variable.unwrap());
    for (ran, place) in [(option, "--log: "), (variable, "NVMIRAGE_LOG: ")] {
        assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
        assert!(
            ran.err.contains(place) && ran.err.contains("unknown level"),
            "{}",
            ran.err
        );
    }
}
