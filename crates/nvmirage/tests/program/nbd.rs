//! Drives over NBD, as clients that are not ours use them: libnbd's tools, QEMU's and fio.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use guest_rig::{Rig, libnbd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fuse_bytes::fsx;
use crate::network::{Port, until};
use crate::survive::worker;
use crate::world::{BOUND, Server, World, wait};

/// Bytes of each namespace.
pub(crate) const LEN: u64 = 32 << 20;

/// A namespace of each size of a block, of which hosts over vfio-user see the first as well.
fn config(world: &World, listen: &str) -> String {
    let vm = world.vfio_user("vm.sock");
    format!(
        r#"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "32MiB"
        [[media]]
        name = "other"
        kind = "ram"
        size = "32MiB"
        [[namespace]]
        name = "small"
        media = "disk"
        lba_size = 512
        [[namespace]]
        name = "large"
        media = "other"
        lba_size = 4096
        [[controller]]
        name = "vm"
        subsystem = "s"
        namespaces = ["small"]
        listen = "{vm}"
        [[controller]]
        name = "door"
        subsystem = "s"
        namespaces = ["small", "large"]
        listen = "{listen}"
        "#
    )
}

pub(crate) struct Served {
    pub(crate) world: World,
    pub(crate) server: Server,
    socket: String,
}

impl Served {
    /// At a UNIX socket.
    pub(crate) fn new() -> Self {
        let world = World::new();
        let socket = world.path("nbd.sock").display().to_string();
        let file = world.write("config.toml", &config(&world, &format!("nbd:{socket}")));
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        Self {
            world,
            server,
            socket,
        }
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket)
    }
}

pub(crate) fn run(mut command: Command) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // Their outputs are short, except where they fail.
    let status = wait(&mut child);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut stdout)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_end(&mut stderr)
        .unwrap();
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Runs a program of libnbd, or fio, which succeeds: its output.
pub(crate) fn libnbd(world: &World, name: &str, args: &[&str]) -> String {
    let mut command = libnbd::program(name).unwrap().command();
    // fio leaves files where it runs.
    command.args(args).current_dir(world.path(""));
    let output = run(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{name} {args:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs a program of QEMU: whether it succeeded, and what it says.
pub(crate) fn qemu(name: &str, args: &[&str]) -> (bool, String) {
    let rig = Rig::locate().unwrap();
    let mut command = rig.qemu(name).command();
    command.args(args);
    let output = run(command);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

pub(crate) fn qemu_ok(name: &str, args: &[&str]) -> String {
    let (succeeded, said) = qemu(name, args);
    assert!(succeeded, "{name} {args:?}: {said}");
    said
}

pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut number = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn libnbd_finds_the_exports_and_what_they_can() {
    let served = Served::new();
    let list = libnbd(
        &served.world,
        "nbdinfo",
        &["--list", "--json", &served.uri("")],
    );
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["protocol"], "newstyle-fixed");
    let exports = list["exports"].as_array().unwrap();
    let names: Vec<&str> = exports
        .iter()
        .filter_map(|it| it["export-name"].as_str())
        .collect();
    assert_eq!(names, ["small", "large"]);
    for export in exports {
        assert_eq!(export["export-size"], LEN);
        for can in ["is_read_only", "is_rotational"] {
            assert_eq!(export[can], false, "{can}");
        }
        for can in [
            "can_cache",
            "can_df",
            "can_fast_zero",
            "can_flush",
            "can_fua",
            "can_multi_conn",
            "can_trim",
            "can_zero",
        ] {
            assert_eq!(export[can], true, "{can}");
        }
        assert_eq!(export["block_size_minimum"], 1);
        assert_eq!(export["block_size_maximum"], 32 << 20);
    }
    let size = libnbd(&served.world, "nbdinfo", &["--size", &served.uri("large")]);
    assert_eq!(size.trim(), LEN.to_string());
    // There are two, so none of them is the default.
    let mut command = libnbd::program("nbdinfo").unwrap().command();
    command.args(["--size", &served.uri("")]);
    assert!(!run(command).status.success());
    served.server.stop();
}

/// Through several connections, and by QEMU through another one.
#[test]
fn images_are_copied_there_and_back() {
    let served = Served::new();
    let image = bytes(LEN as usize, 5);
    fs::write(served.world.path("image"), &image).unwrap();
    let path = |name: &str| served.world.path(name).display().to_string();
    for export in ["small", "large"] {
        let uri = served.uri(export);
        libnbd(
            &served.world,
            "nbdcopy",
            &["--connections=4", "--flush", &path("image"), &uri],
        );
        libnbd(
            &served.world,
            "nbdcopy",
            &["--request-size=33554432", &uri, &path("back")],
        );
        assert!(fs::read(path("back")).unwrap() == image, "{export}");
        let same = qemu_ok(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", &path("image"), &uri],
        );
        assert!(same.contains("identical"), "{same}");
        fs::remove_file(path("back")).unwrap();
    }
    // Data that one front end wrote another one reads.
    let vm = format!("vfio-user:{}", path("vm.sock"));
    let read = served.world.ok(&[
        "bench", "--target", &vm, "--rw", "randread", "--time", "200ms", "--json",
    ]);
    assert!(read.contains("iops"), "{read}");
    qemu_ok(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "raw",
            &served.uri("small"),
            &path("image2"),
        ],
    );
    assert!(fs::read(path("image2")).unwrap() == image);
    served.server.stop();
}

#[test]
fn qemu_reads_and_writes_parts_of_blocks() {
    let served = Served::new();
    for export in ["small", "large"] {
        let uri = served.uri(export);
        let said = qemu_ok(
            "qemu-io",
            &[
                "-f",
                "raw",
                &uri,
                "-c",
                "write -P 17 1000 5001",
                "-c",
                "write -f -P 18 4097 1",
                "-c",
                "write -z 2000 100",
                "-c",
                "write -z -u 8192 4096",
                "-c",
                "discard 12288 8192",
                "-c",
                "flush",
                "-c",
                "read -P 17 1000 1000",
                "-c",
                "read -P 0 2000 100",
                "-c",
                "read -P 17 2100 1997",
                "-c",
                "read -P 18 4097 1",
                "-c",
                "read -P 17 4098 1903",
                "-c",
                "read -P 0 6001 14000",
            ],
        );
        assert!(
            !said.contains("failed") && !said.contains("error"),
            "{said}"
        );
        let (_, said) = qemu(
            "qemu-io",
            &["-f", "raw", &uri, "-c", &format!("read {} 4096", LEN)],
        );
        assert!(said.contains("error") || said.contains("past"), "{said}");
    }
    served.server.stop();
}

/// Writes of parts of the same blocks through several connections at the same time, read back.
#[test]
fn fio_finds_what_it_wrote_through_many_connections() {
    let served = Served::new();
    for export in ["small", "large"] {
        let uri = format!("--uri={}", served.uri(export));
        let mut args = [
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--iodepth=16",
        ]
        .map(str::to_owned)
        .to_vec();
        // None of them writes whole blocks, and their regions meet within one.
        let mut offset = 100;
        for (name, block) in [("a", 1000), ("b", 300), ("c", 5000), ("d", 9999)] {
            let size = block * 400;
            let of_job = [
                format!("--name={name}"),
                format!("--bs={block}"),
                format!("--offset={offset}"),
                format!("--size={size}"),
            ];
            args.extend(of_job);
            offset += size;
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = libnbd(&served.world, "fio", &args);
        assert_eq!(said.matches("err= 0").count(), 4, "{said}");
    }
    served.server.stop();
}

/// A mount, which ends with the test.
struct Mounted(Child);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        wait(&mut self.0);
    }
}

/// Through a file of the machine, which is what NBD is to many.
#[test]
fn fsx_finds_what_it_wrote() {
    let served = Served::new();
    for export in ["small", "large"] {
        let folder = served.world.path(export);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("nbd");
        let mut command = libnbd::program("nbdfuse").unwrap().command();
        command.arg(&file).arg(served.uri(export));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mounted = Mounted(command.stderr(Stdio::null()).spawn().unwrap());
        until("it is mounted", || {
            fs::metadata(&file).is_ok_and(|it| it.len() == LEN)
        });
        // nbdfuse makes a trim of a hole, behind which bytes may be what they were.
        fsx(&served.world, &file, "7", 0);
        drop(mounted);
    }
    served.server.stop();
}

/// A file as medium `disk`, of a controller that listens there.
fn with_file(world: &World, listen: &str) -> String {
    format!(
        r#"
        [[media]]
        name = "disk"
        kind = "file"
        path = "{}"
        size = "32MiB"
        [[namespace]]
        name = "data"
        media = "disk"
        [[controller]]
        name = "door"
        namespaces = ["data"]
        listen = "{listen}"
        "#,
        world.path("disk.img").display(),
    )
}

/// QEMU's block layer, which connects again when its connection ends.
pub(crate) struct Guest {
    process: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Guest {
    fn new(server: &str) -> Self {
        Self::with(server, &[])
    }

    /// The same, with more options of QEMU's.
    pub(crate) fn with(server: &str, options: &[&str]) -> Self {
        let image = format!("driver=nbd,{server},export=data,reconnect-delay=60");
        let mut command = Rig::locate().unwrap().qemu("qemu-io").command();
        command.args(options).args(["--image-opts", &image]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut guest = Self {
            stdin: process.stdin.take().unwrap(),
            stdout: process.stdout.take().unwrap(),
            process,
        };
        guest.said();
        guest
    }

    /// Its output up to the next prompt: nothing has failed by then.
    fn said(&mut self) -> String {
        let mut said = Vec::new();
        while !said.ends_with(b"qemu-io> ") {
            let mut ready = [PollFd::new(&self.stdout, PollFlags::IN)];
            let bound = Timespec::try_from(BOUND).unwrap();
            assert_eq!(poll(&mut ready, Some(&bound)), Ok(1), "it hangs");
            let mut bytes = [0; 4096];
            let len = self.stdout.read(&mut bytes).unwrap();
            assert!(len > 0, "it has ended");
            said.extend_from_slice(&bytes[..len]);
        }
        let said = String::from_utf8(said).unwrap();
        assert!(!said.contains("failed"), "{said}");
        said
    }

    /// Has it do something, and waits for the prompt: it loses lines that come together.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        writeln!(self.stdin, "{request}").unwrap();
        self.said()
    }

    pub(crate) fn end(mut self) {
        writeln!(self.stdin, "quit").unwrap();
        assert!(wait(&mut self.process).success());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It has ended, except where the test fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// QEMU connects again, and what it wrote is in the file.
#[test]
fn a_guest_goes_on_when_the_server_is_killed_and_started_again() {
    let world = World::new();
    let socket = world.path("nbd.sock").display().to_string();
    let toml = with_file(&world, &format!("nbd:{socket}"));
    let file = world.write("config.toml", &toml);
    let start = || world.serve(&["--config", file.to_str().unwrap()]);
    let server = start();
    let mut guest = Guest::new(&format!("server.type=unix,server.path={socket}"));
    assert!(guest.ask("write -P 1 100 5000").contains("wrote 5000/5000"));
    server.signal(Signal::KILL);
    server.end();
    let server = start();
    for (request, answer) in [
        ("write -f -P 2 10000 5000", "wrote 5000/5000"),
        ("read -P 1 100 5000", "read 5000/5000"),
        ("read -P 2 10000 5000", "read 5000/5000"),
    ] {
        assert!(guest.ask(request).contains(answer), "{request}");
    }
    guest.end();
    server.stop();
    let disk = fs::read(world.path("disk.img")).unwrap();
    assert!(disk[100..5100].iter().all(|byte| *byte == 1));
    assert!(disk[10_000..15_000].iter().all(|byte| *byte == 2));
}

/// With requests in flight, over a UNIX socket and over TCP.
#[test]
fn a_guest_goes_on_when_workers_die() {
    for is_tcp in [false, true] {
        let world = World::new();
        let socket = world.path("nbd.sock").display().to_string();
        let port = Port::new();
        let (listen, server) = if is_tcp {
            let server = format!(
                "server.type=inet,server.host=127.0.0.1,server.port={}",
                port.number
            );
            (format!("nbd:{}", port.address()), server)
        } else {
            (
                format!("nbd:{socket}"),
                format!("server.type=unix,server.path={socket}"),
            )
        };
        let file = world.write("config.toml", &with_file(&world, &listen));
        let options = ["--config", file.to_str().unwrap(), "--survive"];
        let mut serving = world.serve(&options);
        let mut guest = Guest::new(&server);
        for round in 0..3 {
            // Three that serve for less than a second would be the last.
            thread::sleep(Duration::from_millis(1100));
            // Many at a time, of parts of blocks.
            let (writes, mut said) = (60, String::new());
            for write in 0..writes {
                let (byte, at) = (1 + (round * writes + write) % 250, 100 + 7001 * write);
                said += &guest.ask(&format!("aio_write -P {byte} {at} 7001"));
            }
            kill_process(worker(&mut serving, None), Signal::KILL).unwrap();
            said += &guest.ask("aio_flush");
            assert_eq!(said.matches("wrote 7001/7001").count(), writes);
            for write in 0..writes {
                let (byte, at) = (1 + (round * writes + write) % 250, 100 + 7001 * write);
                let said = guest.ask(&format!("read -P {byte} {at} 7001"));
                assert!(said.contains("read 7001/7001"), "{said}");
            }
        }
        guest.end();
        serving.stop();
    }
}
