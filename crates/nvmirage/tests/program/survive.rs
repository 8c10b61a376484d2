//! `serve --survive`: hosts keep their drives when the server's process dies.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nvme_spec::Status;
use nvme_spec::features::FeatureId;
use nvme_spec::opcode::NvmOpcode;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, test_kill_process};
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::Value;

use crate::host::Host;
use crate::world::{Server, World, names};

/// For another worker to serve, which takes some tens of milliseconds.
const BOUND: Duration = Duration::from_secs(30);

fn serve(world: &World, media: &[&str]) -> Server {
    let listen = world.vfio_user("nvme.sock");
    let mut args = vec!["--survive", "--listen", &listen];
    for media in media {
        args.extend(["--media", media]);
    }
    world.serve(&args)
}

/// The child of a holder, once there is one other than `last`.
pub(crate) fn worker(server: &mut Server, last: Option<Pid>) -> Pid {
    let holder = server.child().id();
    let deadline = Instant::now() + BOUND;
    loop {
        let children = format!("/proc/{holder}/task/{holder}/children");
        let children = fs::read_to_string(children).unwrap();
        let pid = children.split_whitespace().next();
        let pid = pid.and_then(|pid| Pid::from_raw(pid.parse().unwrap()));
        if let Some(pid) = pid.filter(|pid| Some(*pid) != last) {
            return pid;
        }
        assert!(
            Instant::now() < deadline,
            "no worker came: {}",
            server.log()
        );
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn wait_for_log(server: &Server, text: &str, times: usize) {
    let deadline = Instant::now() + BOUND;
    while server.log().matches(text).count() < times {
        assert!(Instant::now() < deadline, "no {text:?}: {}", server.log());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the worker, and waits until another one serves.
pub(crate) fn replace(server: &mut Server) {
    // Three that serve for less than a second would be the last.
    thread::sleep(Duration::from_millis(1100));
    let before = server.log().matches("hosts continue after").count();
    let old = worker(server, None);
    kill_process(old, Signal::KILL).unwrap();
    wait_for_log(server, "hosts continue after", before + 1);
}

fn ends(pid: Pid) {
    let deadline = Instant::now() + BOUND;
    while test_kill_process(pid).is_ok() && !is_zombie(pid) {
        assert!(Instant::now() < deadline, "process {pid:?} does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether it has ended, and its parent has not looked.
fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn a_host_keeps_bytes_features_and_requests_over_a_death() {
    let world = World::new();
    let file = world.path("disk.img");
    let file = format!("file:path={},size=16MiB", file.display());
    let mut server = serve(&world, &["ram:size=16MiB", &file]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    host.fill(2, 4, 0xa5);
    host.listen();
    for round in 0..2 {
        replace(&mut server);
        assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
        assert!(host.block(2, 4).iter().all(|byte| *byte == 0xa5));
        host.fill(1, 5 + round, 7);
        // Settings of the host in this session.
        let events = host.feature(FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION);
        assert_eq!(events, 1 << 8);
    }
    // An event that the host asked the first process for comes from the third.
    world.ok(&world.steer(&["detach", "ns2", "nvme0", "--detach-hosts"]));
    assert_eq!(host.changed(), [2]);
    assert_eq!(host.active(), [1]);
    // A host that goes and one that comes.
    drop(host);
    let mut host = Host::attach(&world, "nvme.sock");
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    replace(&mut server);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop(host);
    server.stop();
    assert!(!names(world.path("").as_path()).contains(&"nvme.sock".into()));
}

#[test]
fn a_process_that_was_replaced_shows_in_the_list_the_events_and_the_metrics() {
    let world = World::new();
    let mut server = serve(&world, &["null:size=16MiB"]);
    let mut host = Host::attach(&world, "nvme.sock");
    assert!(!world.ok(&world.steer(&["ls"])).contains("process"));
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    assert!(metrics.contains("nvmirage_restarts_total 0\n"), "{metrics}");
    assert!(!metrics.contains("nvmirage_restart_pause_seconds "));
    replace(&mut server);
    host.block(1, 3);
    let listed = world.ok(&world.steer(&["ls"]));
    let line = "process 2 of this server: the last one ended (SIGKILL); pause ";
    assert!(listed.starts_with(line), "{listed}");
    let events = world.ok(&world.steer(&["events", "--since", "0", "--count", "2", "--json"]));
    let events = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    // The other one is that the host is there.
    let mut replaced = events.filter(|event: &Value| event["event"] == "process-replaced");
    let event = replaced.next().expect("an event");
    let has = |key: &str| event[key].as_str().unwrap().to_owned();
    assert_eq!(
        ["event", "kind", "name", "cause"].map(has),
        ["process-replaced", "process", "2", "SIGKILL"]
    );
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    assert!(metrics.contains("nvmirage_restarts_total 1\n"), "{metrics}");
    for name in ["pause_seconds", "replayed", "interrupted"] {
        let line = format!("nvmirage_restart_{name} ");
        assert!(metrics.lines().any(|l| l.starts_with(&line)), "{line}");
    }
    drop(host);
    server.stop();
}

/// A replaced process is no power failure: a reservation that does not persist through one stays,
/// and so does who holds it.
#[test]
fn a_reservation_is_the_same_hosts_after_a_death_and_released_once_for_all() {
    const REGISTER: NvmOpcode = NvmOpcode::RESERVATION_REGISTER;
    const ACQUIRE: NvmOpcode = NvmOpcode::RESERVATION_ACQUIRE;
    const RELEASE: NvmOpcode = NvmOpcode::RESERVATION_RELEASE;
    const OK: Status = Status::SUCCESSFUL_COMPLETION;
    let world = World::new();
    let controller = |name: &str| {
        format!(
            "[[controller]]\nname = \"{name}\"\nsubsystem = \"pair\"\nnamespaces = [\"n\"]\n\
             listen = \"{}\"\n",
            world.vfio_user(name)
        )
    };
    let config = format!(
        "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n{}{}",
        controller("one"),
        controller("two")
    );
    let file = world.write("config.toml", &config);
    let mut server = world.serve(&["--survive", "--config", file.to_str().unwrap()]);
    let [mut one, mut two] = ["one", "two"].map(|socket| Host::attach(&world, socket));
    one.identify_as(0x1111);
    two.identify_as(0x2222);
    assert_eq!(one.reserve(REGISTER, 0, [0, 7]), OK);
    // Write Exclusive
    assert_eq!(one.reserve(ACQUIRE, 1 << 8, [7, 0]), OK);
    for _ in 0..2 {
        assert_eq!(two.write_status(), Status::RESERVATION_CONFLICT);
        assert_eq!(one.write_status(), OK);
        replace(&mut server);
    }
    assert_eq!(two.write_status(), Status::RESERVATION_CONFLICT);
    assert_eq!(one.write_status(), OK);
    assert_eq!(one.reserve(RELEASE, 1 << 8, [7, 0]), OK);
    assert_eq!(two.write_status(), OK);
    replace(&mut server);
    assert_eq!(two.write_status(), OK);
    // It is still registered.
    assert_eq!(one.reserve(ACQUIRE, 1 << 8, [7, 0]), OK);
    assert_eq!(two.write_status(), Status::RESERVATION_CONFLICT);
    drop((one, two));
    server.stop();
}

/// Each registration names the key of the one before: a command that is lost or executed twice
/// fails, or the next one does.
#[test]
fn reservation_commands_in_flight_at_a_death_are_executed_once() {
    const REGISTER: NvmOpcode = NvmOpcode::RESERVATION_REGISTER;
    const REPLACE: u32 = 2;
    const OK: Status = Status::SUCCESSFUL_COMPLETION;
    let world = World::new();
    let mut server = serve(&world, &["ram:size=16MiB"]);
    let mut host = Host::attach(&world, "nvme.sock");
    assert_eq!(host.reserve(REGISTER, 0, [0, 1]), OK);
    let is_over = AtomicBool::new(false);
    let mut key = 1;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                replace(&mut server);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            let status = host.reserve(REGISTER, REPLACE, [key, key + 1]);
            assert_eq!(status, OK, "key {key}");
            key += 1;
        }
    });
    assert!(key > 40, "{key}");
    drop(host);
    server.stop();
}

/// A host's changes to its drive are not of the process, either.
#[test]
fn a_namespace_stays_formatted_over_a_death_and_not_over_a_start() {
    let world = World::new();
    for _ in 0..2 {
        let mut server = serve(&world, &["ram:size=16MiB"]);
        let mut host = Host::attach(&world, "nvme.sock");
        assert_eq!(host.size(1).1, 4096);
        host.format(1, 512);
        host.fill(1, 3, 0x5a);
        replace(&mut server);
        assert_eq!(host.size(1).1, 512);
        assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
        drop(host);
        server.stop();
    }
}

#[test]
fn a_server_that_survives_conforms() {
    let world = World::new();
    let server = serve(&world, &["ram:size=64MiB"]);
    let target = world.vfio_user("nvme.sock");
    world.ok(&["conformance", "--target", &target, "--destroy-data"]);
    server.stop();
}

#[test]
fn a_configuration_has_its_server_survive() {
    let world = World::new();
    let listen = world.vfio_user("nvme.sock");
    let config = format!(
        "[survival]\nenabled = true\n[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = {listen:?}\n"
    );
    let file = world.write("config.toml", &config);
    let mut server = world.serve(&["--config", file.to_str().unwrap()]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    replace(&mut server);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    let args = ["qemu-args", "c", "--control", &world.unix("control")];
    assert!(world.ok(&args).contains("\"x-msg-timeout\":30000"));
    // The file says otherwise now: that counts at the next start.
    world.write("config.toml", &config.replace("true", "false"));
    let said = world.run(&world.steer(&["reload"]));
    assert!(
        format!("{}{}", said.out, said.err).contains("survival"),
        "{}{}",
        said.out,
        said.err
    );
    replace(&mut server);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop(host);
    server.stop();
}

#[test]
fn what_would_be_lost_is_refused() {
    let world = World::new();
    let listen = world.vfio_user("nvme.sock");
    let media = "kind = \"ram\"\nsize = \"8GiB\"\n[media.timing]\npreset = \"samsung-970-pro\"\n\
                 initial = \"fresh\"\nrecord = \"recorded\"";
    let config = format!(
        "[[media]]\nname = \"m\"\n{media}\n[[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = {listen:?}\n"
    );
    let config = world.write("config.toml", &config);
    let config = config.to_str().unwrap();
    let said = world.fails(&["serve", "--survive", "--config", config]);
    assert!(said.contains("does not survive"), "{said}");
    assert!(said.contains("recording of its timing model"), "{said}");
    // Neither process is left, nor what they made.
    assert!(!Path::new(&world.path("nvme.sock")).exists());
}

/// Here a file is not there for a moment; it could be memory or descriptors.
#[test]
fn a_process_that_cannot_start_takes_nothing_from_hosts() {
    let world = World::new();
    let file = world.path("disk.img");
    let media = format!("file:path={},size=16MiB", file.display());
    let mut server = serve(&world, &["ram:size=16MiB", &media]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    host.fill(2, 4, 0xa5);
    thread::sleep(Duration::from_millis(1100));
    let aside = world.path("aside.img");
    fs::rename(&file, &aside).unwrap();
    kill_process(worker(&mut server, None), Signal::KILL).unwrap();
    wait_for_log(&server, "its file is gone", 1);
    fs::rename(&aside, &file).unwrap();
    wait_for_log(&server, "hosts continue after", 1);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    assert!(host.block(2, 4).iter().all(|byte| *byte == 0xa5));
    drop(host);
    server.stop();
}

#[test]
fn three_deaths_in_a_row_leave_a_fatal_status_and_a_living_host() {
    let world = World::new();
    let mut server = serve(&world, &["ram:size=16MiB"]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 0, 1);
    let mut last = None;
    for _ in 0..3 {
        let next = worker(&mut server, last);
        kill_process(next, Signal::KILL).unwrap();
        last = Some(next);
    }
    wait_for_log(&server, "hosts find a fatal status", 1);
    assert_eq!(host.status(), 2, "CSTS.CFS, and nothing else");
    // The holder still ends when it is asked to.
    server.signal(Signal::TERM);
    assert!(!server.end().success());
}

#[test]
fn a_holder_stays_in_memory_where_that_is_allowed_and_its_worker_need_not() {
    let world = World::new();
    let mut server = serve(&world, &["ram:size=1MiB"]);
    let is_allowed = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None)
            .unwrap()
            .effective
            .contains(CapabilitySet::IPC_LOCK);
    let locked = |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
        let kilobytes = line.unwrap().trim().strip_suffix(" kB");
        kilobytes.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(locked(server.child().id()) > 0, is_allowed);
    let worker = worker(&mut server, None);
    assert_eq!(locked(worker.as_raw_nonzero().get() as u32), 0);
    server.stop();
}

#[test]
fn a_worker_ends_with_its_holder() {
    let world = World::new();
    let mut server = serve(&world, &["ram:size=16MiB"]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 0, 1);
    let worker = worker(&mut server, None);
    server.signal(Signal::KILL);
    server.end();
    ends(worker);
}

#[test]
fn another_program_takes_over_with_nothing_in_flight() {
    let world = World::new();
    let file = world.path("disk.img");
    let file = format!("file:path={},size=16MiB", file.display());
    let server = serve(&world, &["ram:size=16MiB", &file]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    host.fill(2, 3, 0xa5);
    for generation in 2..4 {
        let said = world.ok(&world.steer(&["upgrade"]));
        assert!(said.starts_with("upgraded server: "), "{said}");
        assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
        assert!(host.block(2, 3).iter().all(|byte| *byte == 0xa5));
        let log = server.log();
        assert!(
            log.contains(&format!("this is process {generation} of")),
            "{log}"
        );
    }
    assert!(server.log().contains("the last one ended (upgrade)"));
    drop(host);
    server.stop();
}

#[test]
fn a_program_that_cannot_go_on_is_refused_and_nothing_changes() {
    let world = World::new();
    let server = serve(&world, &["ram:size=16MiB"]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    let text = world.write("text", "no program");
    for (program, why) in [
        ("/bin/true", "it ended (exit status 0)"),
        ("/bin/cat", "it ended (exit status 1)"),
        ("/nowhere/nvmirage", "No such file"),
        (text.to_str().unwrap(), "cannot start"),
        ("/", "cannot start"),
    ] {
        let said = world.fails(&world.steer(&["upgrade", program]));
        assert!(said.contains(why), "{program}: {said}");
        assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    }
    assert!(!server.log().contains("process 2"), "{}", server.log());
    // And then one that can.
    world.ok(&world.steer(&["upgrade"]));
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop(host);
    server.stop();
    let server = world.serve_media("ram:size=16MiB");
    let said = world.fails(&world.steer(&["upgrade"]));
    assert!(said.contains("serve --survive"), "{said}");
    server.stop();
}

#[test]
fn an_edit_of_the_configuration_counts_when_it_is_reloaded() {
    let world = World::new();
    let listen = world.vfio_user("nvme.sock");
    let text = |sample: u32| {
        format!(
            "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
             [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
             [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = {listen:?}\nsample = {sample}\n"
        )
    };
    let config = world.write("config.toml", &text(7));
    let folder = world.path("state");
    let args = [
        "--survive",
        "--config",
        config.to_str().unwrap(),
        "--state-dir",
    ];
    let mut server = world.serve(&[&args[..], &[folder.to_str().unwrap()]].concat());
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    let sample = |world: &World| {
        let exported = world.ok(&world.steer(&["export"]));
        let line = exported.lines().find(|line| line.starts_with("sample"));
        line.map(ToOwned::to_owned)
    };
    world.write("config.toml", "this is no configuration");
    replace(&mut server);
    assert_eq!(sample(&world).as_deref(), Some("sample = 7"));
    world.write("config.toml", &text(9));
    replace(&mut server);
    assert_eq!(sample(&world).as_deref(), Some("sample = 7"));
    world.ok(&world.steer(&["reload"]));
    assert_eq!(sample(&world).as_deref(), Some("sample = 9"));
    world.write("config.toml", "this is no configuration");
    replace(&mut server);
    assert_eq!(sample(&world).as_deref(), Some("sample = 9"));
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop(host);
    server.stop();
}

/// Its connection is the first that the next worker finds, and no former host's.
#[test]
fn a_host_that_connects_while_there_is_no_worker_is_served() {
    let world = World::new();
    let mut server = serve(&world, &["ram:size=16MiB"]);
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(1100));
        let old = worker(&mut server, None);
        // Connected, and silent until the worker is gone.
        let early = UnixStream::connect(world.path("nvme.sock")).unwrap();
        kill_process(old, Signal::KILL).unwrap();
        let mut early = early;
        early.set_read_timeout(Some(BOUND)).unwrap();
        // VERSION 0.0, without capabilities.
        let version = [7, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        early.write_all(&version).unwrap();
        let mut reply = [0; 20];
        early.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], [7, 0, 1, 0]);
        drop(early);
        let mut host = Host::attach(&world, "nvme.sock");
        host.fill(1, 0, 1);
    }
    server.stop();
}
