//! How many commands a server watches.

use serde_json::Value;

use crate::host::Host;
use crate::traces::{dump, start, stop};
use crate::world::World;

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
