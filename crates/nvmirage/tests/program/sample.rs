//! How many commands a server watches.

use std::fs;

use serde_json::Value;

use crate::host::Host;
use crate::traces::{dump, start, stop};
use crate::world::{World, names};

/// The number of commands that are kept is set while a host is attached; and it is kept.
#[test]
fn as_many_commands_are_kept_as_one_wants() {
    let world = World::new();
    let listen = world.vfio_user("nvme0.sock");
    let config = format!(
        "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"nvme0\"\nnamespaces = [\"n\"]\nlisten = \"{listen}\"\n\
         sample = 1\n"
    );
    let file = world.write("config.toml", &config);
    let serve = || world.serve(&["--config", file.to_str().unwrap()]);
    let set = |change: &str| world.steer(&["set", "controller", "nvme0", change]);
    let exported = || {
        let config = world.ok(&world.steer(&["export"]));
        let lines = config.lines().filter(|line| line.starts_with("records"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let server = serve();
    let mut host = Host::attach(&world, "nvme0.sock");
    let namespace = host.device().namespace(1).unwrap();
    let mut queue = host.device().create_queue_pair(4, false).unwrap();
    let buffer = host.device().alloc(4096).unwrap();
    let mut read = 0;
    // the blocks of the commands that are kept after so many more reads
    let mut kept_of = |reads: u64| {
        for _ in 0..reads {
            queue.read(&namespace, read % 4096, 1, &buffer).unwrap();
            read += 1;
        }
        let report = world.ok(&world.steer(&["latency", "nvme0", "--json"]));
        let report: Value = serde_json::from_str(&report).unwrap();
        let commands = report["commands"].as_array().unwrap().iter();
        commands
            .map(|one| one["lba"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(kept_of(300).into_iter().eq(44..300));
    world.ok(&set("records=16"));
    assert!(kept_of(0).is_empty());
    assert!(kept_of(10).into_iter().eq(300..310));
    assert!(kept_of(10).into_iter().eq(304..320));
    world.ok(&set("records=400"));
    assert!(kept_of(5).into_iter().eq(320..325));
    assert!(kept_of(500).into_iter().eq(425..825));
    for wrong in ["records=15", "records=4097", "records=0"] {
        let error = world.fails(&set(wrong));
        assert!(error.contains("write 16 to 4096"), "{error}");
    }
    assert!(kept_of(1).into_iter().eq(426..826));
    host.device().delete_queue_pair(queue).unwrap();
    drop(host);

    assert_eq!(exported(), ["records = 400"]);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());
    let server = serve();
    assert_eq!(exported(), ["records = 400"]);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());
    // the state of a program that does not have the key yet
    let folder = world.path("state/nvmirage/runtime");
    let changes = names(&folder).into_iter();
    let mut changes = changes.filter(|name| name.ends_with(".json"));
    let state = folder.join(changes.next().unwrap());
    let mut changes: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    for objects in ["then", "now"] {
        let controller = changes[objects]["controller"][0].as_object_mut();
        assert!(controller.unwrap().remove("records").is_some());
    }
    fs::write(&state, serde_json::to_vec(&changes).unwrap()).unwrap();
    let server = serve();
    assert_eq!(exported(), ["records = 256"]);
    server.stop();
}

/// It is set while a host is attached, as the host's commands show; and it is kept.
#[test]
fn the_times_are_taken_of_as_many_commands_as_one_wants() {
    let world = World::new();
    let listen = world.vfio_user("nvme0.sock");
    let config = format!(
        "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"nvme0\"\nnamespaces = [\"n\"]\nlisten = \"{listen}\"\n"
    );
    let file = world.write("config.toml", &config);
    let serve = || world.serve(&["--config", file.to_str().unwrap()]);
    let latency = || world.ok(&world.steer(&["latency", "nvme0"]));
    let set = |change: &str| world.ok(&world.steer(&["set", "controller", "nvme0", change]));
    let server = serve();
    assert!(latency().contains("one in 256 is"));
    let mut host = Host::attach(&world, "nvme0.sock");
    let namespace = host.device().namespace(1).unwrap();
    let mut queue = host.device().create_queue_pair(4, false).unwrap();
    let buffer = host.device().alloc(4096).unwrap();
    let watched = || {
        let report = world.ok(&world.steer(&["latency", "nvme0", "--json"]));
        let report: Value = serde_json::from_str(&report).unwrap();
        let counts = report["latency"].as_array().unwrap().iter();
        counts
            .map(|one| one["count"].as_u64().unwrap())
            .sum::<u64>()
    };
    let mut watched_of = |reads: u64| {
        let before = watched();
        for lba in 0..reads {
            queue.read(&namespace, lba % 8, 1, &buffer).unwrap();
        }
        watched() - before
    };

    set("sample=0");
    assert!(latency().contains("latency sampling is disabled"));
    assert_eq!(watched_of(2000), 0);
    // what is recorded is not watched
    start(&world, "all.trace", &[]);
    assert_eq!(watched_of(50), 0);
    // it was set for later
    set("sample=1");
    assert_eq!(watched_of(50), 50);
    set("sample=0");
    stop(&world, "nvme0");
    assert_eq!(dump(&world, "all.trace").len(), 100);
    assert_eq!(watched_of(2000), 0);
    set("sample=16");
    // 100 of 1600 on average: within five standard deviations
    let some = watched_of(1600);
    assert!(some.abs_diff(100) < 50, "{some}");

    for (change, status, why) in [
        ("sample=65537", 1, "write 1 to 65536; 0 disables sampling"),
        ("sample=often", 2, "not a whole number: write 1 to 65536"),
        ("queues=3", 2, "cannot change while it is served"),
        ("simple=3", 2, "did you mean `sample`?"),
    ] {
        let ran = world.run(&world.steer(&["set", "controller", "nvme0", change]));
        assert_eq!(ran.status.code(), Some(status), "{}", ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    let error = world.fails(&world.steer(&["set", "controller", "other", "sample=1"]));
    assert!(error.contains("`other`"), "{error}");

    host.device().delete_queue_pair(queue).unwrap();
    drop(host);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());
    let server = serve();
    assert!(latency().contains("one in 16 is"));
    // a request without one changes nothing
    world.ask("PATCH /v1/controllers/nvme0", &[], "{}").is(204);
    assert!(latency().contains("one in 16 is"));
    server.stop();
}
