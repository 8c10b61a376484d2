//! Tenants, as a configuration has them and as they are changed.

use std::time::{Duration, Instant};

use crate::{
    host::Host,
    world::{Server, World},
};

/// One tenant with a cap on all queues of a controller, which live on two reactors; one with a namespace.
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
    // The namespace is another tenant's: 8 MiB in a second are 2,048 commands, and two may come at once.
    let mut host = Host::attach(&world, "b.sock");
    let capped = reads(&mut host, 205);
    assert!(capped >= ms(95), "{capped:?}");
    server.stop();
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let world = World::new();
    let server = serve(&world);
    for (tenant, change, why) in [
        ("commands", "weight=0", "weight = 0: write 1 to 10000"),
        ("commands", "name=other", "a tenant keeps its name"),
        ("commands", "speed=9", "unknown field `speed`"),
        (
            "commands",
            "goal=1ms",
            "only class = \"latency\" has a goal",
        ),
        ("nobody", "weight=1", "nobody"),
    ] {
        let error = world.fails(&world.steer(&["set", "tenant", tenant, change]));
        assert!(error.contains(why), "{change}: {error}");
    }
    server.stop();
}
