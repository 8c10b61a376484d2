//! Commands that go on for long, when what they live for goes away: their terminal, the reader of
//! their pipe, or the other side of their connection. Each ends, or goes on without work.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::world::{BOUND, Server, World, wait};

/// How long a command is looked at that goes on.
const LOOK: Duration = Duration::from_secs(1);
/// Processor time that it may take meanwhile: what spins takes all that it can have.
const IDLE: Duration = Duration::from_millis(250);

/// A running command, which does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of a process, in all its threads.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // proc_pid_stat(5): fields 14 and 15 are ticks; the name, field 2, may have spaces in it
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
}

#[track_caller]
fn is_idle(what: &str, pid: u32) {
    // what it does about the end itself
    thread::sleep(Duration::from_millis(300));
    let before = cpu_time(pid);
    thread::sleep(LOOK);
    let took = cpu_time(pid) - before;
    assert!(took < IDLE, "{what} takes {took:?} of {LOOK:?}");
}

/// Both ends of a terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (master, slave)
}

/// Starts a command on a terminal, and waits until it has written something; the terminal's other
/// end.
fn on_terminal(mut command: Command) -> (Running, OwnedFd) {
    let (master, slave) = terminal();
    let end = || Stdio::from(slave.try_clone().unwrap());
    command.env("TERM", "xterm-256color");
    command.stdin(end()).stdout(end()).stderr(end());
    // a session of its own: the terminal is none of ours
    command.process_group(0);
    let child = Running(command.spawn().unwrap());
    let mut output = File::from(master.try_clone().unwrap());
    let read = output.read(&mut [0; 4096]).unwrap();
    assert!(read > 0);
    (child, master)
}

const CONFIG: &str = r#"
[[media]]
name = "m"
kind = "ram"
size = "64MiB"
[[namespace]]
name = "n"
media = "m"
[[controller]]
name = "vm1"
namespaces = ["n"]
listen = "vfio-user:vm1.sock"
"#;

/// A server that has events to tell.
fn serve(world: &World) -> Server {
    let file = world.write("one.toml", CONFIG);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    world.ok(&["identify", "--target", &world.vfio_user("vm1.sock")]);
    server
}

fn steered(world: &World, args: &[&str]) -> Command {
    let mut command = world.program();
    command.args(world.steer(args));
    command
}

#[test]
fn a_command_whose_terminal_goes_away_ends_or_is_idle() {
    let world = World::new();
    let server = serve(&world);
    let dashboard = ["dashboard", "--address", "127.0.0.1:0"];
    let other = world.write("two.toml", &CONFIG.replace("vm1", "vm2"));
    let other = ["serve", "--config", other.to_str().unwrap(), "--control"];
    let mut serves = world.program();
    serves.args(other).arg(world.unix("other"));
    let mut bench = world.program();
    let target = world.vfio_user("vm1.sock");
    bench.args(["bench", "--target", &target, "--time", "2s"]);
    // the status of those that end
    let commands = [
        ("top", steered(&world, &["top"]), Some(129)),
        ("top vm1", steered(&world, &["top", "vm1"]), Some(129)),
        (
            "top --batch",
            steered(&world, &["top", "--batch", "1000", "--interval", "100ms"]),
            Some(0),
        ),
        (
            "events",
            steered(&world, &["events", "--since", "0"]),
            Some(0),
        ),
        ("dashboard", steered(&world, &dashboard), None),
        ("serve", serves, None),
        ("bench", bench, Some(0)),
    ];
    for (name, command, status) in commands {
        let (mut child, master) = match name {
            // it says nothing before its end
            "bench" => {
                let (master, slave) = terminal();
                let mut command = command;
                let end = || Stdio::from(slave.try_clone().unwrap());
                command.stdin(end()).stdout(end()).stderr(end());
                (Running(command.spawn().unwrap()), master)
            }
            _ => on_terminal(command),
        };
        thread::sleep(Duration::from_millis(300));
        drop(master);
        match status {
            // where a write meets the end first, that is an error
            Some(status) => {
                let code = wait(&mut child.0).code();
                assert!(code == Some(status) || code == Some(1), "{name}: {code:?}");
            }
            None => {
                is_idle(name, child.0.id());
                assert!(child.0.try_wait().unwrap().is_none(), "{name}");
            }
        }
    }
    server.stop();
}

#[test]
fn a_command_whose_reader_goes_away_ends_in_silence() {
    let world = World::new();
    let server = serve(&world);
    let commands = [
        steered(&world, &["events", "--since", "0"]),
        steered(&world, &["top", "--batch", "100000", "--interval", "100ms"]),
        steered(&world, &["ls"]),
        steered(&world, &["queues", "vm1"]),
        steered(&world, &["queues", "vm1", "--watch=100ms"]),
        steered(&world, &["latency", "vm1"]),
    ];
    for mut command in commands {
        let args = format!("{command:?}");
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = Running(spawned.unwrap());
        let mut output = BufReader::new(child.0.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        drop(output);
        let status = wait(&mut child.0);
        assert!(status.success(), "{args}: {status}");
        let mut said = String::new();
        let mut stderr = child.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "{args}");
    }
    server.stop();
}

#[test]
fn a_server_whose_log_is_not_read_goes_on() {
    let world = World::new();
    let file = world.write("one.toml", CONFIG);
    let mut command = world.program();
    command.args([
        "serve",
        "--config",
        file.to_str().unwrap(),
        "--log",
        "debug",
    ]);
    command.args(["--control", &world.unix("control")]);
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Running(spawned.unwrap());
    let mut ready = BufReader::new(child.0.stdout.take().unwrap());
    ready.read_line(&mut String::new()).unwrap();
    drop(ready);
    drop(child.0.stderr.take());
    // each a line in the log, of a reactor and of other threads
    for _ in 0..3 {
        world.ok(&["identify", "--target", &world.vfio_user("vm1.sock")]);
        world.ok(&world.steer(&["delete", "controller", "vm1"]));
        let listen = world.vfio_user("vm1.sock");
        let create = [
            "create",
            "controller",
            "vm1",
            "--namespaces",
            "n",
            "--listen",
            &listen,
        ];
        world.ok(&world.steer(&create));
    }
    is_idle("serve", child.0.id());
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert!(wait(&mut child.0).success());
}

#[test]
fn a_command_whose_errors_nobody_reads_ends_with_its_status() {
    let world = World::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let commands: [(&[&str], i32); 3] = [
        (&["ls", "--control", "unix:/nowhere"], 1),
        (&["serve", "--config", "/nowhere"], 1),
        (&["qemu-args", "nothing"], 1),
    ];
    for (args, status) in commands {
        let mut command = world.program();
        command.args(args).stdout(Stdio::null());
        let spawned = command.stderr(writer.try_clone().unwrap()).spawn();
        let mut child = Running(spawned.unwrap());
        assert_eq!(wait(&mut child.0).code(), Some(status), "{args:?}");
    }
}

#[test]
fn a_command_whose_input_is_closed_ends() {
    let world = World::new();
    let file = world.write("one.toml", CONFIG);
    let commands: [&[&str]; 3] = [
        &["top", "--control", "unix:/nowhere"],
        &["serve", "--stop-at-eof", "--config", file.to_str().unwrap()],
        &["kv", "--target", "vfio-user:/nowhere", "put", "key"],
    ];
    for args in commands {
        let program = world.program().get_program().to_owned();
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg("exec \"$@\" <&-")
            .arg("sh")
            .arg(program);
        shell.args(args).current_dir(world.path("."));
        shell.env("XDG_STATE_HOME", world.path("state"));
        shell.env("XDG_RUNTIME_DIR", world.path("run"));
        let spawned = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        wait(&mut Running(spawned.unwrap()).0);
    }
}

#[test]
fn a_command_whose_server_is_killed_ends_or_is_idle() {
    let commands: [(&[&str], bool); 5] = [
        (&["events", "--since", "0"], true),
        (&["bench", "--time", "1min"], true),
        (
            &["bench", "--time", "1min", "--qd", "32", "--rw", "randread"],
            true,
        ),
        (&["dashboard", "--address", "127.0.0.1:0"], false),
        (&["top"], false),
    ];
    for (args, ends) in commands {
        let world = World::new();
        let server = serve(&world);
        let mut command = match args[0] {
            "bench" => {
                let mut command = world.program();
                let target = world.vfio_user("vm1.sock");
                command.args(args).args(["--target", &target]);
                command
            }
            _ => steered(&world, args),
        };
        let (master, slave) = terminal();
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.env("TERM", "xterm-256color");
        command.stdin(end()).stdout(end()).stderr(end());
        let mut child = Running(command.spawn().unwrap());
        let mut output = File::from(master);
        thread::spawn(move || while let Ok(1..) = output.read(&mut [0; 4096]) {});
        thread::sleep(Duration::from_millis(700));
        assert!(child.0.try_wait().unwrap().is_none(), "{args:?} has ended");
        server.signal(Signal::KILL);
        if ends {
            assert_eq!(wait(&mut child.0).code(), Some(1), "{args:?}")
        } else {
            is_idle(&args.join(" "), child.0.id())
        }
    }
}

#[test]
fn a_server_whose_clients_go_away_is_idle() {
    let world = World::new();
    let mut server = serve(&world);
    let control = || UnixStream::connect(world.path("control")).unwrap();
    let asked = |text: &str| {
        let mut stream = control();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let events = asked("GET /v1/events HTTP/1.1\r\nhost: a\r\n\r\n");
    let kept_alive = asked("GET /v1 HTTP/1.1\r\nhost: a\r\n\r\n");
    let half = asked("POST /v1/media HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{");
    let half_shut = asked("GET /v1 HT");
    half_shut.shutdown(std::net::Shutdown::Write).unwrap();
    let silent = control();
    let host = UnixStream::connect(world.path("vm1.sock")).unwrap();
    thread::sleep(Duration::from_millis(300));
    is_idle(
        "a server with clients that say nothing",
        server.child().id(),
    );
    drop((events, kept_alive, half, silent, host));
    is_idle("a server without them", server.child().id());
    drop(half_shut);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < BOUND);
}

#[test]
fn a_server_that_has_no_descriptor_for_a_host_is_idle_and_accepts_it_later() {
    let world = World::new();
    let mut server = serve(&world);
    let pid = Pid::from_child(server.child());
    let limit = |current: u64| Rlimit {
        current: Some(current),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    // what it has stays open
    let before = prlimit(Some(pid), Resource::Nofile, limit(3)).unwrap();
    let target = world.vfio_user("vm1.sock");
    let mut identify = world.program();
    identify.args(["identify", "--target", &target, "--wait"]);
    let spawned = identify.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut identify = Running(spawned.unwrap());
    is_idle("a server without descriptors", server.child().id());
    assert!(
        server.log().contains("cannot accept a host"),
        "{}",
        server.log()
    );
    prlimit(Some(pid), Resource::Nofile, before).unwrap();
    assert!(wait(&mut identify.0).success());
    server.stop();
}
