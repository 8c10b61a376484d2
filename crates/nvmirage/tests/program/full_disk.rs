//! A disk that is full for a while, and a limit of file sizes: commands of hosts fail, the log
//! tells the operator once, and all works again.
//!
//! Root mounts a small tmpfs. Anyone else lowers the server's own limit of file sizes, which
//! refuses writes just so.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use driver::DriverError;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::{ZoneSendAction, ZoneState};
use nvme_spec::{Sqe, Status};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::{Pid, Resource, Rlimit, geteuid, prlimit};

use crate::every_kind::{Drive, pattern};
use crate::survive::replace;
use crate::world::{BOUND, Server, World};

const MIB: u64 = 1 << 20;

/// A file system that is there until this is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn tmpfs(folder: &Path, options: &str) -> Self {
        let options = CString::new(options).unwrap();
        mount("tmpfs", folder, "tmpfs", MountFlags::empty(), &*options).unwrap();
        Mounted(folder.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The folder `small` of a world, in which files take so many bytes, and no more until there is
/// room.
struct Small {
    mounted: Option<Mounted>,
    mib: u64,
}

impl Small {
    fn new(world: &World, mib: u64) -> Self {
        let folder = world.path("small");
        fs::create_dir(&folder).unwrap();
        let options = format!("size={mib}m");
        let mounted = geteuid()
            .is_root()
            .then(|| Mounted::tmpfs(&folder, &options));
        Small { mounted, mib }
    }

    /// Without a file system: the server's limit, from now on.
    fn limited(world: &World, mib: u64) -> Self {
        fs::create_dir(world.path("small")).unwrap();
        Small { mounted: None, mib }
    }

    /// From now on it is small, for a server that has made its files.
    fn begin(&self, server: &mut Server) {
        if self.mounted.is_none() {
            limit(server, Some(self.mib * MIB));
        }
    }

    fn make_room(&self, server: &mut Server) {
        match &self.mounted {
            Some(Mounted(folder)) => {
                mount_remount(folder, MountFlags::empty(), c"size=256m").unwrap()
            }
            None => limit(server, None),
        }
    }
}

fn limit(server: &mut Server, current: Option<u64>) {
    let pid = Pid::from_child(server.child());
    let limit = Rlimit {
        current,
        maximum: None,
    };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn is_full<T: std::fmt::Debug>(result: Result<T, DriverError>) -> bool {
    match result {
        Err(DriverError::Status { status, .. }) => {
            assert_eq!(status, Status::CAPACITY_EXCEEDED);
            true
        }
        other => {
            other.unwrap();
            false
        }
    }
}

fn flush(drive: &mut Drive) -> Result<(), DriverError> {
    let flush = Sqe {
        opcode: NvmOpcode::FLUSH.0,
        nsid: 1,
        ..Sqe::default()
    };
    drive.queue.run("Flush", flush).map(drop)
}

/// Waits until something holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

const KEYS: &str = r#"
[[media]]
name = "pairs"
kind = "keyvalue"
path = "small/pairs.kv"
size = "64MiB"
[[namespace]]
name = "pairs"
media = "pairs"
[[controller]]
name = "kv"
namespaces = ["pairs"]
listen = "vfio-user:kv.sock"
"#;

/// Message of a host whose drive could not write everything when it was shut down.
const UNKEPT: &str = "the last writes may not be durable";

const ZONES: &str = r#"
[[media]]
name = "zns"
kind = "file"
path = "small/zns.img"
size = "16MiB"
[media.zoned]
zone_size = "2MiB"
zone_capacity = "1152KiB"
max_active = 4
[[namespace]]
name = "zns"
media = "zns"
[[controller]]
name = "zns"
namespaces = ["zns"]
listen = "vfio-user:zns.sock"
"#;
/// Blocks of a zone, and those of it that can be written.
const ZONE: u64 = 512;
const CAPACITY: u64 = 288;

fn zone(drive: &mut Drive, number: u64) -> (ZoneState, u64) {
    let (zone, _) = drive.zone(number * ZONE);
    (zone.state.zs(), zone.wp.wrapping_sub(zone.zslba))
}

/// Writes on, two blocks at a time, until there is no space: the zone that has no more, and its
/// write pointer.
fn fill(drive: &mut Drive, (mut number, mut at): (u64, u64)) -> (u64, u64) {
    loop {
        if is_full(drive.write(number * ZONE + at, &pattern(3))) {
            return (number, at);
        }
        at += 2;
        if at == CAPACITY {
            (number, at) = (number + 1, 0);
        }
    }
}

fn none_is_read_only(drive: &mut Drive) {
    for number in 0..8 {
        let (state, _) = zone(drive, number);
        let gone = [ZoneState::READ_ONLY, ZoneState::OFFLINE];
        assert!(!gone.contains(&state), "zone {number} is {state:?}");
    }
}

#[test]
fn a_full_disk_is_told_once_and_again_when_it_has_room() {
    let world = World::new();
    let small = Small::new(&world, 4);
    let mut server = world.serve_media("file:path=small/disk.img,size=64MiB");
    small.begin(&mut server);
    let mut drive = Drive::attach(&world, "nvme");
    let mut failed = 0;
    for at in 0..1500 {
        failed += u64::from(is_full(drive.write(at * 2, &pattern(1))));
    }
    assert!(failed > 100, "{failed}");
    let log = |server: &Server, words: &str| server.log().matches(words).count();
    wait_for("a line", || log(&server, "writes fail: ") > 0);
    let cause = if small.mounted.is_some() {
        "no-space"
    } else {
        "file-size"
    };
    let shown = world.json(&world.steer(&["show", "media", "disk", "--json"]));
    let error = &shown["errors"][0];
    assert_eq!(
        (&error["cause"], &error["current"]),
        (&cause.into(), &true.into()),
        "{shown:#}"
    );
    assert_eq!(error["count"], failed);
    let listed = world.ok(&world.steer(&["ls"]));
    assert!(
        listed.contains("fails") && listed.contains(cause),
        "{listed}"
    );
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;

    let counted =
        format!("nvmirage_medium_errors_total{{media=\"disk\",cause=\"{cause}\"}} {failed}");
    assert!(metrics.contains(&counted), "{metrics}");

    if small.mounted.is_some() {
        // a block that has its space already, while the disk has no other
        drive.write(0, &pattern(1)).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(4));
        assert_eq!(log(&server, "works again"), 0, "it is still full");
    }
    small.make_room(&mut server);
    drive.write(2900, &pattern(2)).unwrap();
    wait_for("a line that it works", || log(&server, "works again") > 0);
    assert_eq!(
        (log(&server, "writes fail: "), log(&server, "works again")),
        (1, 1)
    );
    let told = world.ok(&world.steer(&["events", "--since", "0", "--count", "3"]));
    let words = [
        format!("media-error    media disk: {cause}"),
        format!("media-recovered media disk: {cause}"),
    ];
    for words in words {
        assert!(told.contains(&words), "{words} in {told}");
    }
    let listed = world.ok(&world.steer(&["ls"]));
    assert!(!listed.contains("fails"), "{listed}");
    drop(drive);
    server.stop();
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_who_asks_and_ends_no_drive() {
    let world = World::new();
    let mut server = world.serve_media("file:path=disk.img,size=8MiB");
    limit(&mut server, Some(16 * MIB));
    let mut drive = Drive::attach(&world, "nvme");
    for kind in ["file", "keyvalue"] {
        let path = world.path("big.img");
        let path = path.to_str().unwrap();
        let create = [
            "create", "media", "big", "--kind", kind, "--path", path, "--size", "1GiB",
        ];
        let error = world.fails(&world.steer(&create));
        for words in ["RLIMIT_FSIZE", "is 16 MiB", "LimitFSIZE="] {
            assert!(error.contains(words), "{error}");
        }
        assert!(!world.path("big.img").exists());
    }
    drive.write(7, &pattern(1)).unwrap();
    assert!(drive.read(7, 2) == pattern(1), "it goes on");
    drop(drive);
    server.stop();
}

#[test]
fn a_server_that_starts_under_a_limit_of_file_sizes_says_so() {
    let world = World::new();
    let mut command = std::process::Command::new("sh");
    let program = world.program();
    let line = format!(
        "ulimit -f 20480; exec '{}' serve --media file:path=disk.img,size=64MiB --listen '{}' --control '{}'",
        program.get_program().to_str().unwrap(),
        world.vfio_user("nvme.sock"),
        world.unix("control"),
    );
    command.args(["-c", &line]).current_dir(world.path(""));
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let ran = crate::world::ran(command.output().unwrap());
    assert_eq!(ran.status.code(), Some(1), "{}", ran.err);
    assert!(ran.err.contains("RLIMIT_FSIZE"), "{}", ran.err);
}

#[test]
fn the_state_of_a_timing_is_kept_as_it_was_and_written_when_there_is_room() {
    let world = World::new();
    let small = Small::new(&world, 4);
    let config = r#"
[[media]]
name = "pro"
kind = "ram"
size = "5GiB"
[media.timing]
preset = "samsung-970-pro"
state = "small/its.state"
state_interval = "50ms"
# Its state is smaller than the disk.
initial = "fresh"
[[namespace]]
name = "ns"
media = "pro"
[[controller]]
name = "c"
namespaces = ["ns"]
listen = "vfio-user:c.sock"
"#;
    let mut server = serve(&world, config);
    let mut drive = Drive::attach(&world, "c");
    let state = world.path("small/its.state");
    drive.write(0, &pattern(1)).unwrap();
    wait_for("a first state", || state.exists());
    // Full except for what the state has.
    let ballast = world.path("small/ballast");
    match &small.mounted {
        Some(_) => {
            let mut size = 4 * MIB;
            while fs::write(&ballast, vec![1; size as usize]).is_err() {
                size -= 64 << 10;
            }
            fs::remove_file(&ballast).unwrap();
            while fs::write(&ballast, vec![1; size as usize]).is_ok() {
                size += 4096;
            }
        }
        None => limit(&mut server, Some(4096)),
    }
    let written = fs::read(&state).unwrap();
    drive.write(100, &pattern(1)).unwrap();
    wait_for("an error", || {
        server.log().contains("timing model cannot be saved")
    });
    assert_eq!(
        fs::read(&state).unwrap(),
        written,
        "the one before is there"
    );
    // An attempt that fails leaves nothing; the next one may have begun.
    wait_for("nothing is left", || {
        !world.path("small/its.state.new").exists()
    });
    match &small.mounted {
        Some(_) => fs::remove_file(&ballast).unwrap(),
        None => limit(&mut server, None),
    }
    wait_for("a line", || {
        server.log().contains("timing model is saved again")
    });
    drop(drive);
    server.stop();
}

#[test]
fn what_is_made_while_the_disk_is_full_is_saved_with_the_next_change() {
    let world = World::new();
    let small = Small::new(&world, 1);
    world.write("config.toml", "state_dir = \"small\"\n");
    let config = world.path("config.toml");
    let serve = || world.serve(&["--config", config.to_str().unwrap()]);
    let mut server = serve();
    let create =
        |name: &str| world.steer(&["create", "media", name, "--kind", "ram", "--size", "1MiB"]);
    world.ok(&create("first"));
    let ballast = world.path("small/ballast");
    match &small.mounted {
        Some(_) => {
            let _ = fs::write(&ballast, vec![1; 2 << 20]);
        }
        None => limit(&mut server, Some(0)),
    }
    let error = world.fails(&create("second"));
    assert!(error.contains("cannot be saved"), "{error}");
    match &small.mounted {
        Some(_) => fs::remove_file(&ballast).unwrap(),
        None => limit(&mut server, None),
    }
    world.ok(&create("third"));
    server.signal(rustix::process::Signal::KILL);
    server.end();
    let server = serve();
    let names = world.inventory();
    let names = names["media"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    server.stop();
}

/// A reload saves its plan before the first step, so that a kill in the middle loses nothing.
#[test]
fn a_reload_whose_plan_cannot_be_saved_changes_nothing() {
    let world = World::new();
    let small = Small::new(&world, 1);
    let tenant = |iops: u32| {
        let text = format!("state_dir = \"small\"\n[[tenant]]\nname = \"web\"\niops = {iops}\n");
        world.write("config.toml", &text)
    };
    let config = tenant(1000);
    let mut server = world.serve(&["--config", config.to_str().unwrap()]);
    let iops = || world.json(&world.steer(&["show", "tenant", "web", "--json"]))["iops"].clone();
    tenant(2000);
    let ballast = world.path("small/ballast");
    match &small.mounted {
        Some(_) => {
            let _ = fs::write(&ballast, vec![1; 2 << 20]);
        }
        None => limit(&mut server, Some(0)),
    }
    let error = world.fails(&world.steer(&["reload"]));
    assert!(
        error.contains("nothing is changed: the plan cannot be saved"),
        "{error}"
    );
    assert_eq!(iops(), 1000);
    match &small.mounted {
        Some(_) => fs::remove_file(&ballast).unwrap(),
        None => limit(&mut server, None),
    }
    world.ok(&world.steer(&["reload"]));
    assert_eq!(iops(), 2000);
    server.stop();
}

const SURVIVING: &str = r#"
state_dir = "small/state"
[survival]
enabled = true
[[media]]
name = "disk"
kind = "file"
path = "small/disk.img"
size = "64MiB"
[[namespace]]
name = "disk"
media = "disk"
lba_size = 4096
[[controller]]
name = "disk"
namespaces = ["disk"]
listen = "vfio-user:disk.sock"
"#;

/// The processes of a server that survives: that at work, and the one that waits.
fn workers(server: &mut Server) -> Vec<Pid> {
    let holder = server.child().id();
    let children = format!("/proc/{holder}/task/{holder}/children");
    let children = fs::read_to_string(children).unwrap();
    let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
    pids.filter_map(Pid::from_raw).collect()
}

#[test]
fn a_process_is_replaced_while_the_disk_of_its_medium_and_state_is_full() {
    let world = World::new();
    let small = Small::new(&world, 8);
    let mut server = serve(&world, SURVIVING);
    let mut drive = Drive::attach(&world, "disk");
    drive.write(0, &pattern(1)).unwrap();
    let begin = |server: &mut Server| {
        small.begin(server);
        if small.mounted.is_none() {
            let current = Some(small.mib * MIB);
            let maximum = None;
            for pid in workers(server) {
                prlimit(Some(pid), Resource::Fsize, Rlimit { current, maximum }).unwrap();
            }
        }
    };
    begin(&mut server);
    let mut at = 2;
    while !is_full(drive.write(at, &pattern(at as usize))) {
        at += 2;
        assert!(at < 16_000, "nothing is ever full");
    }
    for _ in 0..2 {
        crate::survive::replace(&mut server);
        begin(&mut server);
        assert!(drive.read(0, 2) == pattern(1));
        assert!(drive.read(at - 2, 2) == pattern(at as usize - 2));
        assert!(is_full(drive.write(at + 2, &pattern(9))));
    }
    match &small.mounted {
        Some(_) => small.make_room(&mut server),
        None => {
            for pid in workers(&mut server) {
                let none = Rlimit {
                    current: None,
                    maximum: None,
                };
                prlimit(Some(pid), Resource::Fsize, none).unwrap();
            }
        }
    }
    drive.write(at, &pattern(at as usize)).unwrap();
    assert!(drive.read(at, 2) == pattern(at as usize));
    flush(&mut drive).unwrap();
    drop(drive);
    server.stop();
}

/// The state folder and a file of a drive, while the server's process dies.
#[test]
fn a_server_survives_on_a_full_disk() {
    for small in [Small::new, Small::limited] {
        let world = World::new();
        let small = small(&world, 1);
        let config = world.write("config.toml", SURVIVES);
        let mut server = world.serve(&["--config", config.to_str().unwrap()]);
        small.begin(&mut server);
        let mut drive = Drive::attach(&world, "both");
        drive.write(0, &pattern(1)).unwrap();
        drive.flush();
        let fill = world.path("small/fill");
        if small.mounted.is_some() {
            let everything = vec![0; MIB as usize];
            fs::write(&fill, everything).unwrap_err();
        }
        replace(&mut server);
        assert!(drive.read(0, 2) == pattern(1));
        // More than there is room for.
        assert!(is_full(drive.write(4096, &pattern(2))));
        replace(&mut server);
        assert!(drive.read(0, 2) == pattern(1));
        if small.mounted.is_some() {
            fs::remove_file(&fill).unwrap();
        }
        small.make_room(&mut server);
        replace(&mut server);
        drive.write(4096, &pattern(2)).unwrap();
        drive.flush();
        assert!(drive.read(4096, 2) == pattern(2) && drive.read(0, 2) == pattern(1));
        drop(drive);
        server.stop();
    }
}

const SURVIVES: &str = r#"
state_dir = "small/state"
[survival]
enabled = true
[[media]]
name = "both"
kind = "file"
path = "small/both.img"
size = "64MiB"
[[namespace]]
name = "both"
media = "both"
[[controller]]
name = "both"
namespaces = ["both"]
listen = "vfio-user:both.sock"
"#;

mod slow {
    use super::*;

    #[test]
    fn keys_on_a_full_disk_are_deleted_and_stored_again_when_there_is_room() {
        for small in [Small::new, Small::limited] {
            let world = World::new();
            let small = small(&world, 8);
            let mut server = serve(&world, KEYS);
            small.begin(&mut server);
            let target = world.vfio_user("kv.sock");
            let value = world.path("value");
            fs::write(&value, vec![0x5a; 256 << 10]).unwrap();
            let kv = |args: &[&str]| {
                let all = [&["kv", "--target", &target], args].concat();
                world.run(&all)
            };
            let put = |key: &str| kv(&["put", key, "--file", value.to_str().unwrap()]);
            let mut stored = 0;
            let refused = loop {
                let ran = put(&format!("key{stored}"));
                if !ran.status.success() {
                    break ran.err;
                }
                stored += 1;
                assert!(stored < 100, "nothing is ever full");
            };
            // The value had no space, or its record had none when the host shut the drive down.
            let is_said = |error: &str| error.contains("full") || error.contains(UNKEPT);
            assert!(is_said(&refused), "{refused}");
            assert!(stored > 10, "{stored}");
            // A delete takes no space: it is refused by nothing, and its record waits for space.
            let deleted = kv(&["del", "key0"]);
            assert!(
                deleted.status.success() || deleted.err.contains(UNKEPT),
                "{}",
                deleted.err
            );
            assert!(!put("again").status.success());
            small.make_room(&mut server);
            let deleted = kv(&["del", "key1"]);
            assert!(deleted.status.success(), "{}", deleted.err);
            let again = put("again");
            assert!(again.status.success(), "{}", again.err);
            flush(&mut Drive::attach(&world, "kv")).unwrap();
            server.signal(rustix::process::Signal::KILL);
            server.end();
            crate::kept::wait_for_unlock(&world.path("small/pairs.kv"));

            let server = serve(&world, KEYS);
            let listed = kv(&["ls"]).out;
            let listed: std::collections::BTreeSet<_> = listed.lines().collect();
            let mut kept = (2..stored).map(|key| format!("key{key}"));
            assert!(kept.all(|key| listed.contains(&*key)), "{listed:?}");
            assert!(listed.contains("again"));
            assert!(!listed.contains("key0") && !listed.contains("key1"));
            server.stop();
        }
    }

    #[test]
    fn zones_on_a_full_disk_are_written_reset_and_flushed_again_when_there_is_room() {
        for (small, mib) in [
            (Small::new as fn(&World, u64) -> Small, 6),
            (Small::limited, 5),
        ] {
            let world = World::new();
            let small = small(&world, mib);
            let mut server = serve(&world, ZONES);
            small.begin(&mut server);
            let mut drive = Drive::attach(&world, "zns");
            let (number, at) = fill(&mut drive, (0, 0));
            assert!(number >= 1, "zone 0 is full");
            // Data that is there stays, and the write pointer is where writes have succeeded.
            assert_eq!(zone(&mut drive, number).1, at);
            assert!(is_full(drive.write(number * ZONE + at, &pattern(3))));
            assert!(is_full(drive.write((number + 1) * ZONE, &pattern(3))));
            assert_eq!(zone(&mut drive, number + 1).1, 0);
            none_is_read_only(&mut drive);
            let mut next = (number, at);
            if small.mounted.is_some() {
                // A reset makes room on a disk that is full, as the log has some set aside.
                flush(&mut drive).unwrap();
                drive.send(0, ZoneSendAction::RESET);
                assert_eq!(zone(&mut drive, 0), (ZoneState::EMPTY, 0));
                drive.write(number * ZONE + at, &pattern(3)).unwrap();
                next = fill(&mut drive, (number, at + 2));
                none_is_read_only(&mut drive);
            } else {
                // The log lies behind the limit.
                assert!(is_full(flush(&mut drive)));
                assert!(is_full(drive.try_send(0, ZoneSendAction::RESET)));
                let (state, _) = zone(&mut drive, 0);
                assert_eq!(state, ZoneState::FULL, "it is as it was");
                none_is_read_only(&mut drive);
            }
            small.make_room(&mut server);
            let (number, at) = next;
            drive.write(number * ZONE + at, &pattern(7)).unwrap();
            flush(&mut drive).unwrap();
            drive.send(0, ZoneSendAction::RESET);
            drive.send((number + 1) * ZONE, ZoneSendAction::RESET);
            drive.write(0, &pattern(9)).unwrap();
            flush(&mut drive).unwrap();
            none_is_read_only(&mut drive);
            drop(drive);
            server.signal(rustix::process::Signal::KILL);
            server.end();
            crate::kept::wait_for_unlock(&world.path("small/zns.img"));

            let server = serve(&world, ZONES);
            let mut drive = Drive::attach(&world, "zns");
            assert!(drive.read(0, 2) == pattern(9));
            assert!(drive.read(number * ZONE + at, 2) == pattern(7));
            if at >= 2 {
                assert!(drive.read(number * ZONE + at - 2, 2) == pattern(3));
            }
            assert_eq!(zone(&mut drive, 0), (ZoneState::CLOSED, 2));
            none_is_read_only(&mut drive);
            drop(drive);
            server.stop();
        }
    }
}
