//! Connections to a drive's socket: those that are no hosts, those that come while there is one,
//! and how a host is left.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::host::Host;
use crate::world::{BOUND, World, wait};

const VERSION: u16 = 1;
const GET_INFO: u16 = 4;

fn message(command: u16, body: &[u8]) -> Vec<u8> {
    let size = 16 + u32::try_from(body.len()).unwrap();
    let mut message = vec![7, 0];
    message.extend(command.to_le_bytes());
    message.extend(size.to_le_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn connect(world: &World) -> UnixStream {
    let stream = UnixStream::connect(world.path("nvme.sock")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream
}

/// A host that has agreed on a version and does nothing more.
fn introduced(world: &World) -> UnixStream {
    let mut stream = connect(world);
    stream.write_all(&message(VERSION, &[0; 4])).unwrap();
    stream.read_exact(&mut [0; 16]).unwrap();
    stream
}

fn is_attached(world: &World) -> bool {
    world.inventory()["controllers"][0]["attached"]
        .as_bool()
        .unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_connection_that_says_nothing_is_no_host_and_keeps_nobody_out() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let version = message(VERSION, &[0; 4]);
    let sent: [&[u8]; 4] = [
        b"",
        &version[..9],
        &version[..18],
        &message(GET_INFO, &[0; 16]),
    ];
    let silent: Vec<UnixStream> = sent
        .iter()
        .map(|bytes| {
            let mut stream = connect(&world);
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    assert!(!is_attached(&world));
    world.ok(&["identify", "--target", &world.vfio_user("nvme.sock")]);
    assert!(!is_attached(&world));
    // one that has introduced itself may be quiet for as long as its guest does not run
    let mut quiet = introduced(&world);
    until("it is not attached", || is_attached(&world));
    for mut stream in silent {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    assert!(is_attached(&world));
    quiet.write_all(&message(GET_INFO, &[0; 16])).unwrap();
    quiet.read_exact(&mut [0; 16]).unwrap();
    let log = server.log();
    assert_eq!(log.matches("it sent no VERSION").count(), 1, "{log}");
    server.stop();
}

#[test]
fn a_flood_of_connections_takes_few_descriptors_and_ends() {
    let world = World::new();
    let mut server = world.serve_media("ram:size=16MiB");
    let fds = format!("/proc/{}/fd", server.child().id());
    let open = || std::fs::read_dir(&fds).unwrap().count();
    let before = open();
    let flood: Vec<UnixStream> = (0..20).map(|_| connect(&world)).collect();
    thread::sleep(Duration::from_millis(200));
    let after = open();
    assert!(after <= before + 10, "{before} and then {after}");
    let target = world.vfio_user("nvme.sock");
    world.ok(&["identify", "--target", &target, "--wait=50s"]);
    drop(flood);
    server.stop();
}

/// The error of each command that is a host of a drive.
fn refusals(world: &World) -> Vec<(String, String)> {
    let target = world.vfio_user("nvme.sock");
    let folder = world.path("mnt");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let commands: [&[&str]; 5] = [
        &["identify", "--target", &target],
        &["bench", "--target", &target, "--time", "100ms"],
        &["kv", "--target", &target, "ls"],
        &["conformance", "--target", &target, "--destroy-data"],
        &["mount", "--target", &target, folder],
    ];
    let all = commands.iter();
    all.map(|args| (args[0].to_owned(), world.fails(args)))
        .collect()
}

#[test]
fn a_command_names_the_host_that_has_the_drive() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let host = Host::attach(&world, "nvme.sock");
    let ours = format!(
        "the drive has another host (process {})",
        std::process::id()
    );
    for (command, error) in refusals(&world) {
        assert!(error.contains(&ours), "{command}: {error}");
        assert!(error.contains("--wait"), "{command}: {error}");
    }
    let log = server.log();
    assert_eq!(log.matches("a host is refused").count(), 1, "{log}");
    drop(host);
    server.stop();
}

#[test]
fn a_server_that_does_not_answer_may_have_another_host() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    server.stand_still();
    let target = world.vfio_user("nvme.sock");
    let error = world.fails(&["identify", "--target", &target]);
    assert!(error.contains("did not respond within"), "{error}");
    server.signal(Signal::CONT);
    server.stop();
}

/// Runs `identify` with more arguments, until it says that it waits.
fn waiting(world: &World, option: &str) -> Child {
    let mut child = world
        .program()
        .args([
            "identify",
            "--target",
            &world.vfio_user("nvme.sock"),
            option,
        ])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut byte = [0];
    let mut stderr = child.stderr.take().unwrap();
    while byte != *b"\n" {
        stderr.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("has another host"), "{said}");
    assert!(said.ends_with("; waiting\n"), "{said}");
    child.stderr = Some(stderr);
    child
}

#[test]
fn a_command_waits_for_another_host_where_it_may() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let host = Host::attach(&world, "nvme.sock");
    let mut ever = waiting(&world, "--wait");
    let mut for_a_while = waiting(&world, "--wait=1500ms");
    assert_eq!(wait(&mut for_a_while).code(), Some(1));
    assert!(ever.try_wait().unwrap().is_none());
    drop(host);
    assert!(wait(&mut ever).success());
    // and a signal ends it
    let host = Host::attach(&world, "nvme.sock");
    let mut ever = waiting(&world, "--wait");
    rustix::process::kill_process(rustix::process::Pid::from_child(&ever), Signal::INT).unwrap();
    assert!(!wait(&mut ever).success());
    drop(host);
    server.stop();
}

#[test]
fn a_host_that_comes_as_the_last_one_goes_is_never_refused() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut host = introduced(&world);
    for _ in 0..20 {
        // it comes before the other has gone
        let mut next = connect(&world);
        next.write_all(&message(VERSION, &[0; 4])).unwrap();
        drop(host);
        let mut reply = [0; 16];
        next.read_exact(&mut reply).unwrap();
        assert_eq!(reply[8] & 0x2f, 1, "a reply and no error: {reply:?}");
        host = next;
    }
    server.stop();
}

/// A host that sends without end and never reads; joined, how its connection ended.
fn sender(world: &World) -> (UnixStream, JoinHandle<io::Error>) {
    let stream = introduced(world);
    let mut to = stream.try_clone().unwrap();
    // wants no reply
    let mut message = message(GET_INFO, &[0; 16]);
    message[8] = 0x10;
    let burst = message.repeat(64);
    let sends = thread::spawn(move || {
        loop {
            if let Err(error) = to.write_all(&burst) {
                break error;
            }
        }
    });
    (stream, sends)
}

/// The host reads the end of the file, and no reset.
fn ends(mut stream: UnixStream) {
    let mut bytes = [0; 65536];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    // the connection may have had a moment of this only: what comes then is no reset either
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
}

#[test]
fn a_host_reads_the_end_of_the_file_when_its_controller_is_deleted_or_its_server_stops() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let listen = world.vfio_user("nvme.sock");
    for _ in 0..5 {
        let (stream, sends) = sender(&world);
        delete(&world);
        ends(stream);
        assert_eq!(sends.join().unwrap().kind(), ErrorKind::BrokenPipe);
        let create = [
            "create",
            "controller",
            "nvme0",
            "--namespaces",
            "ns1",
            "--listen",
        ];
        world.ok(&world.steer(&[&create[..], &[&listen]].concat()));
    }
    let (stream, sends) = sender(&world);
    server.stop();
    ends(stream);
    assert_eq!(sends.join().unwrap().kind(), ErrorKind::BrokenPipe);
}

fn delete(world: &World) {
    world.ok(&world.steer(&["delete", "controller", "nvme0", "--detach-hosts"]));
}

#[test]
fn a_host_whose_messages_cannot_be_told_apart_reads_the_end_of_the_file() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut stream = introduced(&world);
    // a header that announces no bytes, and more behind it that the server does not read
    stream.write_all(&[0; 50_000]).unwrap();
    ends(stream);
    server.stop();
}

#[test]
fn hosts_of_a_server_that_stops_have_their_time_together() {
    const COUNT: usize = 40;
    let world = World::new();
    let mut config = String::from("[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"1GiB\"\n");
    for at in 0..COUNT {
        config += &format!(
            "[[controller]]\nname = \"c{at}\"\nnamespaces = []\nlisten = \"vfio-user:c{at}.sock\"\n"
        );
    }
    let file = world.write("many.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let hosts: Vec<UnixStream> = (0..COUNT)
        .map(|at| {
            let path = world.path(&format!("c{at}.sock"));
            until("it does not listen", || path.exists());
            let mut stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(BOUND)).unwrap();
            stream.write_all(&message(VERSION, &[0; 4])).unwrap();
            stream.read_exact(&mut [0; 16]).unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    // none of them closes its side
    server.stop();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    hosts.into_iter().for_each(ends);
}
