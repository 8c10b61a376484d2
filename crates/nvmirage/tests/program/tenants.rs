//! Tenants, as a configuration has them and as they are changed.

use std::thread;
use std::time::{Duration, Instant};

use driver::{Device, Options};
use serde_json::Value;

use crate::host::Host;
use crate::world::{Server, World};

/// One tenant with a cap on all queues of a controller, which live on two reactors; one with a
/// namespace.
const SHARED: &str = r#"
[[reactor]]
[[reactor]]
[[media]]
name = "disk"
kind = "null"
size = "1GiB"
[[namespace]]
name = "one"
media = "disk"
range = "0MiB..512MiB"
[[namespace]]
name = "two"
media = "disk"
range = "512MiB..1GiB"
tenant = "bytes"
weight = 300
[[tenant]]
name = "commands"
weight = 300
iops = 2000
[[tenant]]
name = "bytes"
class = "latency"
goal = "1ms"
bandwidth = "8MiB"
burst = "1ms"
in_flight = 4
[[controller]]
name = "a"
namespaces = ["one"]
listen = "vfio-user:a.sock"
tenant = "commands"
reactors = [0, 1]
[[controller]]
name = "b"
namespaces = ["two"]
listen = "vfio-user:b.sock"
tenant = "commands"
"#;

fn serve(world: &World) -> Server {
    let file = world.write("shared.toml", SHARED);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// How long so many reads take, one after another.
fn reads(host: &mut Host, count: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        host.time_of_read(1);
    }
    start.elapsed()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn caps_hold_and_change_while_hosts_go_on() {
    let world = World::new();
    let server = serve(&world);
    let mut host = Host::attach(&world, "a.sock");
    // Twenty come at once, after a rest; the others at 2,000 in a second.
    let capped = reads(&mut host, 220);
    assert!(capped >= ms(95), "{capped:?}");
    let set = |change: &str| world.ok(&world.steer(&["set", "tenant", "commands", change]));
    set("iops=100");
    let slow = reads(&mut host, 62);
    assert!(slow >= ms(550), "{slow:?}");
    set("iops=none");
    let free = reads(&mut host, 62);
    assert!(free < slow, "{free:?} and {slow:?}");
    // The namespace is another tenant's: 8 MiB in a second are 2,048 commands, and two may come at
    // once.
    let mut host = Host::attach(&world, "b.sock");
    let capped = reads(&mut host, 205);
    assert!(capped >= ms(95), "{capped:?}");
    server.stop();
}

/// Entry of a tenant in `ls`.
fn figures(world: &World, name: &str) -> Value {
    let inventory = world.json(&world.steer(&["ls", "--json"]));
    let mut tenants = inventory["tenants"].as_array().unwrap().iter();
    let found = tenants.find(|tenant| tenant["name"] == name);
    found.unwrap().clone()
}

#[test]
fn what_each_had_is_shown() {
    let world = World::new();
    let server = serve(&world);
    world.ok(&world.steer(&["set", "tenant", "commands", "iops=50"]));
    let mut host = Host::attach(&world, "a.sock");
    reads(&mut host, 20);
    let commands = figures(&world, "commands");
    assert_eq!(commands["iops"], 50);
    assert_eq!(commands["commands"], 20);
    assert_eq!(commands["bytes"], 20 * 4096);
    // One in 20 ms, of which one is saved up: some of them came sooner.
    assert!(commands["capped"].as_u64().unwrap() > 0, "{commands}");
    assert_eq!(commands["held"], 0);
    assert_eq!(commands["at_media"], 0);
    assert_eq!(figures(&world, "bytes")["commands"], 0);
    let text = world.ok(&world.steer(&["ls"]));
    let row = text.lines().find(|line| line.starts_with("commands "));
    assert!(row.is_some_and(|row| row.contains("100.0 %")), "{text}");
    server.stop();
}

/// A controller is live like its tenant: commands that come from then on count for another one.
#[test]
fn a_controller_changes_its_tenant_while_a_host_goes_on() {
    let world = World::new();
    let server = serve(&world);
    let mut host = Host::attach(&world, "a.sock");
    let set = |change: &str| world.steer(&["set", "controller", "a", change]);
    let counts = || ["commands", "bytes"].map(|name| figures(&world, name)["commands"].clone());
    reads(&mut host, 3);
    assert_eq!(counts(), [3, 0]);
    world.ok(&set("tenant=bytes"));
    reads(&mut host, 5);
    assert_eq!(counts(), [3, 5]);
    // an unknown one changes nothing
    let error = world.fails(&set("tenant=nobody"));
    assert!(error.contains("there is no such tenant"), "{error}");
    reads(&mut host, 2);
    assert_eq!(counts(), [3, 7]);
    // null is none
    let path = "PATCH /v1/controllers/a";
    world.ask(path, &[], r#"{"tenant": null}"#).is(204);
    reads(&mut host, 4);
    assert_eq!(counts(), [3, 7]);
    let refused = world.ask(path, &[], r#"{"queues": 3}"#);
    refused.refuses(422, "cannot change while it is served");
    assert_eq!(refused.json()["errors"][0]["pointer"], "/queues");
    let refused = world.ask(path, &[], r#"{"sample": "often"}"#);
    refused.refuses(422, "write 1 to 65536");
    server.stop();
}

/// Four queues of a controller on two reactors, each with a thread that reads one block after the
/// other.
#[test]
fn a_cap_holds_for_two_reactors_together() {
    let world = World::new();
    let server = serve(&world);
    let mut device = Device::connect(world.path("a.sock"), &Options::default()).unwrap();
    device.enable().unwrap();
    let namespace = device.namespace(1).unwrap();
    let queues: Vec<_> = (0..4)
        .map(|_| {
            let queue = device.create_queue_pair(4, false).unwrap();
            (queue, device.alloc(4096).unwrap())
        })
        .collect();
    let start = Instant::now();
    let counts = thread::scope(|scope| {
        let readers = queues.into_iter().map(|(mut queue, buffer)| {
            scope.spawn(move || {
                let mut count = 0;
                while start.elapsed() < ms(1000) {
                    queue.read(&namespace, 0, 1, &buffer).unwrap();
                    count += 1;
                }
                (count, start.elapsed())
            })
        });
        let readers: Vec<_> = readers.collect();
        let joined = readers.into_iter().map(|reader| reader.join().unwrap());
        joined.collect::<Vec<(u64, Duration)>>()
    });
    let total: u64 = counts.iter().map(|(count, _)| count).sum();
    let took = counts.iter().map(|(_, took)| *took).max().unwrap();
    // Earned until the last one ended, 20 saved up, and what each reactor lets go in the turn that
    // empties the bucket.
    let most = 2000.0 * took.as_secs_f64() + 20.0 + 8.0;
    assert!(total as f64 <= most, "{total} in {took:?}");
    assert!(
        total >= 500,
        "{total} in {took:?}: nobody else holds it back"
    );
    let inventory = world.json(&world.steer(&["ls", "--json"]));
    for reactor in inventory["reactors"].as_array().unwrap() {
        assert!(reactor["commands"].as_u64().unwrap() > 100, "{reactor}");
    }
    assert_eq!(figures(&world, "commands")["commands"], total);
    server.stop();
}

#[test]
fn tenants_come_and_go_while_others_are_served() {
    let world = World::new();
    let server = world.serve_media("null:size=1GiB");
    let run = |args: &[&str]| world.ok(&world.steer(args));
    let mut without = Host::attach(&world, "nvme.sock");
    reads(&mut without, 10);
    run(&[
        "create", "tenant", "slow", "--iops", "100", "--burst", "10ms",
    ]);
    let refused = |args: &[&str], why: &str| {
        let error = world.fails(&world.steer(args));
        assert!(error.contains(why), "{error}");
    };
    refused(&["create", "tenant", "slow"], "`slow` already");
    refused(&["create", "tenant", "w", "--weight", "0"], "1 to 10000");
    run(&["create", "media", "m", "--kind", "null", "--size", "64MiB"]);
    run(&["create", "namespace", "n", "--media", "m"]);
    let listen = world.vfio_user("c.sock");
    let controller = [
        "create",
        "controller",
        "c",
        "--namespaces",
        "n",
        "--listen",
        &listen,
    ];
    refused(
        &[&controller[..], &["--tenant", "slw"]].concat(),
        "no such tenant",
    );
    run(&[&controller[..], &["--tenant", "slow"]].concat());
    let mut host = Host::attach(&world, "c.sock");
    let slow = reads(&mut host, 21);
    assert!(slow >= ms(190), "{slow:?}");
    assert_eq!(figures(&world, "slow")["commands"], 21);
    // A controller without a tenant is not capped.
    let free = reads(&mut without, 21);
    assert!(free < slow, "{free:?} and {slow:?}");
    refused(&["delete", "tenant", "slow"], "is used by controller `c`");
    drop(host);
    run(&["delete", "controller", "c"]);
    run(&["delete", "tenant", "slow"]);
    refused(&["delete", "tenant", "slow"], "there is no tenant");
    // Another one in its place has none of its limits.
    run(&["create", "tenant", "next"]);
    run(&[&controller[..], &["--tenant", "next"]].concat());
    let mut host = Host::attach(&world, "c.sock");
    let quick = reads(&mut host, 21);
    assert!(quick < slow, "{quick:?} and {slow:?}");
    assert_eq!(figures(&world, "next")["commands"], 21);
    assert_eq!(figures(&world, "next")["capped"], 0);
    server.stop();
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let world = World::new();
    let server = serve(&world);
    for (tenant, change, status, why) in [
        ("commands", "weight=0", 1, "weight = 0: write 1 to 10000"),
        (
            "commands",
            "name=other",
            2,
            "the name of a tenant cannot change",
        ),
        ("commands", "speed=9", 2, "unknown key `speed`"),
        ("commands", "weight=heavy", 2, "weight: "),
        (
            "commands",
            "goal=1ms",
            1,
            "goal is only for class = \"latency\"",
        ),
        ("nobody", "weight=1", 1, "nobody"),
    ] {
        let ran = world.run(&world.steer(&["set", "tenant", tenant, change]));
        assert_eq!(ran.status.code(), Some(status), "{change}: {}", ran.err);
        assert!(ran.err.contains(why), "{change}: {}", ran.err);
    }
    server.stop();
}
