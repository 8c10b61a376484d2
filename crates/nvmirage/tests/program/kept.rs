//! Changes while a drive is served, over a restart.

use std::time::{Duration, Instant};
use std::{fs, thread};

use nvme_spec::Status;
use nvme_spec::features::FeatureId;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::Signal;
use serde_json::Value;

use crate::host::Host;
use crate::world::{BOUND, Server, World, names};

const CONFIG: &str = r#"
state_dir = "kept"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64MiB"
[[namespace]]
name = "root"
media = "disk"
range = "0MiB..16MiB"
[[namespace]]
name = "home"
media = "disk"
range = "32MiB..48MiB"
[[namespace]]
name = "spare"
media = "disk"
range = "48MiB..56MiB"
[[controller]]
name = "a"
subsystem = "pair"
namespaces = ["root", "home"]
listen = "vfio-user:a.sock"
[[controller]]
name = "b"
subsystem = "pair"
namespaces = ["root"]
listen = "vfio-user:b.sock"
"#;

const FILE: &str = "kept/subsystems/pair.json";

fn serve(world: &World) -> Server {
    serve_config(world, CONFIG)
}

fn serve_config(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// Error of a server that does not start with this configuration.
fn refuses(world: &World, config: &str) -> String {
    let file = world.write("config.toml", config);
    let error = world.fails(&[
        "serve",
        "--config",
        file.to_str().unwrap(),
        "--control",
        &world.unix("control"),
    ]);
    assert!(!world.path("a.sock").exists() && !world.path("b.sock").exists());
    error
}

/// Kills the server, and waits until the kernel has released its file: a ring may keep that open a
/// little longer.
fn kill(world: &World, server: Server) {
    server.signal(Signal::KILL);
    server.end();
    wait_for_unlock(&world.path("disk.img"));
}

/// Waits until no process has the file of a medium locked any more.
pub(crate) fn wait_for_unlock(path: &std::path::Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let deadline = Instant::now() + BOUND;
    while fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(Instant::now() < deadline, "the file stays locked");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The operator's view, without the values that differ in each run.
fn listed(world: &World) -> Value {
    world.json(&world.steer(&["ls", "--json"]))["namespaces"].take()
}

#[test]
fn a_file_that_was_there_and_is_gone_is_not_recreated() {
    let world = World::new();
    let media = "file:path=disk.img,size=8MiB";
    world.serve_media(media).stop();
    let (file, away) = (world.path("disk.img"), world.path("away.img"));
    std::fs::rename(&file, &away).unwrap();
    let listen = world.vfio_user("nvme.sock");
    let serve = ["serve", "--media", media, "--listen", &listen];
    let error = world.fails(&serve);
    assert!(
        error.contains("its file is gone") && !file.exists(),
        "{error}"
    );

    // put back, it is served; a medium that was deleted may be made again
    std::fs::rename(&away, &file).unwrap();
    let server = world.serve_media(media);
    assert!(!server.log().contains("file is new"), "{}", server.log());
    let path = world.path("other.img");
    let path = path.to_str().unwrap();
    let create = [
        "create", "media", "other", "--kind", "file", "--path", path, "--size", "1MiB",
    ];
    for _ in 0..2 {
        world.ok(&world.steer(&create));
        world.ok(&world.steer(&["delete", "media", "other"]));
        std::fs::remove_file(path).unwrap();
    }
    server.stop();

    // the error names what to remove for an empty one
    std::fs::remove_file(&file).unwrap();
    let error = world.fails(&serve);
    let mark = error
        .split("rm '")
        .nth(1)
        .unwrap()
        .split('\'')
        .next()
        .unwrap();
    std::fs::remove_file(mark).unwrap();
    let server = world.serve_media(media);
    assert!(server.log().contains("file is new"), "{}", server.log());
    server.stop();
}

#[test]
fn nothing_is_written_while_nothing_differs() {
    let world = World::new();
    let server = serve(&world);
    world.ok(&world.steer(&["ls"]));
    server.stop();
    assert_eq!(names(&world.path("kept/subsystems")), ["pair.lock"]);
}

#[test]
fn a_drive_in_memory_made_on_the_command_line_leaves_nothing() {
    let world = World::new();
    for value in [1, 1] {
        let server = world.serve_media("ram:size=16MiB");
        let mut host = Host::attach(&world, "nvme.sock");
        assert_ne!(host.feature(FeatureId::ARBITRATION), value);
        host.save_feature(FeatureId::ARBITRATION, value);
        drop(host);
        server.stop();
    }
    assert_eq!(names(&world.path("state/nvmirage")), ["identity"]);
}

#[test]
fn what_an_operator_changed_is_there_after_a_restart() {
    let world = World::new();
    let server = serve(&world);
    for args in [
        &["attach", "home", "b"][..],
        &["detach", "root", "b"],
        &["resize", "root", "24MiB"],
        &["attach", "spare", "a"],
        &["detach", "home", "a"],
    ] {
        world.ok(&world.steer(args));
    }
    let before = listed(&world);
    server.stop();
    let kept: Value = serde_json::from_str(&fs::read_to_string(world.path(FILE)).unwrap()).unwrap();
    assert_eq!(
        (kept["format"].as_u64(), kept["subsystem"].as_str()),
        (Some(1), Some("pair"))
    );

    let server = serve(&world);
    assert_eq!(listed(&world), before);
    let (mut a, mut b) = (
        Host::attach(&world, "a.sock"),
        Host::attach(&world, "b.sock"),
    );
    assert_eq!((a.active(), b.active()), (vec![1, 3], vec![2]));
    assert_eq!(a.size(1), (24 << 20, 4096));
    drop((a, b));
    world.ok(&world.steer(&["detach", "spare", "a"]));
    world.ok(&world.steer(&["delete", "namespace", "spare"]));
    server.stop();

    // what was deleted stays so, though the configuration has it; it may be made again
    let server = serve(&world);
    let mut a = Host::attach(&world, "a.sock");
    assert_eq!(a.active(), [1]);
    let gone = world.fails(&world.steer(&["attach", "spare", "a"]));
    assert!(gone.contains("no namespace `spare`"), "{gone}");
    let again = [
        "create",
        "namespace",
        "spare",
        "--media",
        "disk",
        "--range",
        "48MiB..56MiB",
    ];
    world.ok(&world.steer(&again));
    world.ok(&world.steer(&["attach", "spare", "a"]));
    assert_eq!(a.active(), [1, 3]);
    server.stop();
    let server = serve(&world);
    let mut a = Host::attach(&world, "a.sock");
    assert_eq!(a.active(), [1, 3]);
    server.stop();
}

#[test]
fn what_a_host_saved_is_there_even_after_a_kill() {
    let world = World::new();
    for value in [3, 5, 2] {
        let server = serve(&world);
        let mut host = Host::attach(&world, "a.sock");
        assert_ne!(host.feature(FeatureId::ARBITRATION), value);
        host.save_feature(FeatureId::ARBITRATION, value);
        // the command has completed, so it is kept
        kill(&world, server);
        let server = serve(&world);
        let mut host = Host::attach(&world, "a.sock");
        assert_eq!(host.feature(FeatureId::ARBITRATION), value);
        drop(host);
        server.stop();
    }
    // the namespaces were not changed: the configuration alone says what they are
    let kept: Value = serde_json::from_str(&fs::read_to_string(world.path(FILE)).unwrap()).unwrap();
    assert_eq!(kept["record"]["namespaces"], Value::Array(Vec::new()));
    let edited = CONFIG.replace("0MiB..16MiB", "0MiB..8MiB");
    let server = serve_config(&world, &edited);
    assert_eq!(listed(&world)[0]["blocks"], 2048);
    server.stop();
}

#[test]
fn what_was_counted_last_is_kept_at_the_end() {
    let world = World::new();
    let server = serve(&world);
    let mut host = Host::attach(&world, "a.sock");
    host.fill(1, 0, 1);
    host.fill(1, 1, 2);
    // it does not shut down: the server takes the drive away
    server.stop();
    let kept: Value = serde_json::from_str(&fs::read_to_string(world.path(FILE)).unwrap()).unwrap();
    let health = &kept["record"]["controllers"][0]["health"];
    assert_eq!(health["bytes_written"], 8192, "{health}");
    assert_eq!(health["write_commands"], 2, "{health}");
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_file() {
    let world = World::new();
    for round in 0..8 {
        let server = serve(&world);
        let (attach, detach) = (["attach", "home", "b"], ["detach", "home", "b"]);
        let first = listed(&world)[1]["controllers"].as_array().unwrap().len() == 2;
        let mut acknowledged = first;
        for _ in 0..round {
            let attach_now = !acknowledged;
            world.ok(&world.steer(if attach_now { &attach } else { &detach }));
            acknowledged = attach_now;
        }
        kill(&world, server);
        let server = serve(&world);
        let is = listed(&world)[1]["controllers"].as_array().unwrap().len() == 2;
        assert_eq!(is, acknowledged, "round {round}");
        server.stop();
    }
}

#[test]
fn a_configuration_that_contradicts_what_is_kept_is_refused() {
    let world = World::new();
    let server = serve(&world);
    world.ok(&world.steer(&["resize", "root", "24MiB"]));
    server.stop();
    let path = world.path(FILE).display().to_string();
    for (from, to, words) in [
        (
            "0MiB..16MiB",
            "0MiB..20MiB",
            &[
                "namespace root",
                "0B..20MiB",
                "0B..24MiB",
                "nvmirage resize",
            ][..],
        ),
        (
            "0MiB..16MiB",
            "1MiB..16MiB",
            &["namespace root", "1MiB..16MiB", "0B..24MiB"],
        ),
        (
            "path = \"disk.img\"",
            "path = \"other.img\"",
            &["other.img, but was file", "disk.img"],
        ),
    ] {
        let error = refuses(&world, &CONFIG.replace(from, to));
        for word in words.iter().chain([&path.as_str(), &"remove that file"]) {
            assert!(error.contains(word), "{to}: {word} is missing in\n{error}");
        }
    }
    // what an operator did may be written down, and what is kept may be removed
    let server = serve_config(&world, &CONFIG.replace("0MiB..16MiB", "0MiB..24MiB"));
    assert_eq!(listed(&world)[0]["blocks"], 24 << 8);
    server.stop();
    fs::remove_file(world.path(FILE)).unwrap();
    let server = serve_config(&world, &CONFIG.replace("0MiB..16MiB", "0MiB..20MiB"));
    assert_eq!(listed(&world)[0]["blocks"], 20 << 8);
    server.stop();
}

#[test]
fn a_file_that_cannot_be_used_is_an_error_and_is_left_alone() {
    let world = World::new();
    let server = serve(&world);
    world.ok(&world.steer(&["resize", "root", "24MiB"]));
    server.stop();
    let path = world.path(FILE);
    let whole = fs::read_to_string(&path).unwrap();
    let half = whole[..whole.len() / 2].to_owned();
    let later = whole.replacen("\"format\": 1", "\"format\": 2", 1);
    let twice = whole.replacen("\"nsid\": 2", "\"nsid\": 1", 1);
    for (text, words) in [
        (String::new(), "damaged"),
        (half, "damaged"),
        (later, "unsupported format 2; this version reads 1"),
        (twice, "is invalid or already used"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = refuses(&world, CONFIG);
        assert!(error.contains(words), "{words} is missing in\n{error}");
        assert!(error.contains(FILE), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, whole).unwrap();
    serve(&world).stop();
}

#[test]
fn a_medium_that_shrank_is_an_error() {
    let world = World::new();
    let server = serve(&world);
    world.ok(&world.steer(&["attach", "spare", "a"]));
    server.stop();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(world.path("disk.img"))
        .unwrap();
    file.set_len(52 << 20).unwrap();
    drop(file);
    // without a range that ends behind it, so that only what is kept does
    let config = CONFIG
        .replace("size = \"64MiB\"\n", "")
        .replace("48MiB..56MiB", "48MiB..52MiB");
    let error = refuses(&world, &config);
    assert!(error.contains("namespace spare"), "{error}");
}

#[test]
fn one_subsystem_is_served_by_one_process() {
    let world = World::new();
    let server = serve(&world);
    let other = CONFIG
        .replace("disk.img", "other.img")
        .replace("a.sock", "c.sock")
        .replace("b.sock", "d.sock");
    let file = world.write("other.toml", &other);
    let error = world.fails(&[
        "serve",
        "--config",
        file.to_str().unwrap(),
        "--control",
        &world.unix("other"),
    ]);
    assert!(
        error.contains("subsystem pair is served by another process"),
        "{error}"
    );
    server.stop();
}

#[test]
fn a_change_that_cannot_be_written_fails_and_is_written_later() {
    let world = World::new();
    let server = serve(&world);
    let folder = world.path("kept/subsystems");
    fs::rename(&folder, world.path("kept/away")).unwrap();
    let error = world.fails(&world.steer(&["attach", "home", "b"]));
    assert!(error.contains("could not be saved"), "{error}");
    let log = server.log();
    assert_eq!(log.matches("cannot write").count(), 1, "{log}");
    // the command of a host fails, too
    let mut a = Host::attach(&world, "a.sock");
    let before = a.feature(FeatureId::ARBITRATION);
    let status = a.try_save_feature(FeatureId::ARBITRATION, 3).unwrap_err();
    assert_eq!(status, Status::INTERNAL_ERROR);
    assert_eq!(a.feature(FeatureId::ARBITRATION), before);
    drop(a);
    fs::rename(world.path("kept/away"), &folder).unwrap();
    world.ok(&world.steer(&["attach", "spare", "b"]));
    server.stop();
    let server = serve(&world);
    let mut b = Host::attach(&world, "b.sock");
    assert_eq!(b.active(), [1, 2, 3]);
    server.stop();
}
