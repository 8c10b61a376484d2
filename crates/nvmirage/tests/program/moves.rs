//! Queues of one controller on several reactors, and moves while their host goes on.

use std::process::Stdio;

use serde_json::Value;

use crate::world::{Ran, Server, World, ran};

const SPREAD: &str = r#"
[[reactor]]
mode = "poll"
[[reactor]]
mode = "adaptive"
[[reactor]]
mode = "interrupt"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64MiB"
[[namespace]]
name = "fast"
media = "memory"
[[namespace]]
name = "kept"
media = "disk"
[[controller]]
name = "vm"
namespaces = ["fast", "kept"]
listen = "vfio-user:vm.sock"
reactor = 0
reactors = [0, 1, 2]
"#;

fn serve(world: &World) -> Server {
    let file = world.write("spread.toml", SPREAD);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// The reactor of every queue, by queue.
fn placement(world: &World) -> Vec<u64> {
    let inventory = world.inventory();
    let all = inventory["controllers"][0]["placement"].as_array().unwrap();
    let in_order = all.iter().enumerate();
    let of = |(at, one): (usize, &Value)| {
        assert_eq!(one["queue"], at as u64 + 1);
        one["reactor"].as_u64().unwrap()
    };
    in_order.map(of).collect()
}

fn moves(world: &World, args: &[&str]) -> Ran {
    let mut all = vec!["move", "vm"];
    all.extend(args);
    world.run(&world.steer(&all))
}

/// Loads and verifies a namespace on four queues while they move; all of its report.
fn moved_under_load(world: &World, nsid: &str, doorbells: &str) -> Value {
    let target = world.vfio_user("vm.sock");
    let bench = world
        .program()
        .args([
            "bench",
            "--target",
            &target,
            "--rw",
            "randrw",
            "--destroy-data",
            "--verify",
            "--json",
        ])
        .args(["--queues", "4", "--qd", "8", "--time", "3s", "--nsid", nsid])
        .args(["--doorbells", doorbells])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while placement(world).len() < 4 {}
    assert_eq!(placement(world), [0, 1, 2, 0]);
    for (to, then) in [
        (&["1"][..], [1, 1, 1, 1]),
        (&["2", "0"], [2, 0, 2, 0]),
        (&["2", "--queue", "4"], [2, 0, 2, 2]),
        (&["0", "1", "2"], [0, 1, 2, 0]),
    ] {
        let moved = moves(world, to);
        assert!(moved.status.success(), "{}", moved.err);
        assert_eq!(placement(world), then);
        let looked = world.json(&world.steer(&["queues", "vm", "--json"]));
        let queues = looked["queues"].as_array().unwrap();
        let places: Vec<_> = queues
            .iter()
            .map(|queue| queue["reactor"].as_u64())
            .collect();
        assert_eq!(places, then.map(Some));
        for queue in queues {
            assert!(queue["in_flight"].as_u64().unwrap() <= 8, "{queue:#}");
            assert_eq!(
                (queue.get("moving"), &queue["reserved"]),
                (None, &queue["in_flight"])
            );
        }
    }
    let bench = ran(bench.wait_with_output().unwrap());
    assert!(bench.status.success(), "{}", bench.err);
    serde_json::from_str(&bench.out).unwrap()
}

#[test]
fn a_move_that_cannot_be_is_refused_with_what_there_is() {
    let world = World::new();
    let server = serve(&world);
    for (args, said) in [
        (&["3"][..], "there is no reactor 3: the reactors are 0 to 2"),
        (&["1", "--queue", "7"], "its host has no completion queue 7"),
        (&["1", "1"], "a reactor is listed twice"),
        (
            &["0", "1", "--queue", "1"],
            "a single queue moves to a single reactor",
        ),
    ] {
        let refused = moves(&world, args);
        assert!(!refused.status.success());
        assert!(refused.err.contains(said), "{}", refused.err);
    }
    let nobody = world.run(&world.steer(&["move", "nobody", "1"]));
    assert!(nobody.err.contains("there is no controller `nobody`"));
    server.stop();
}

mod slow {
    use super::*;

    #[test]
    fn every_byte_is_as_it_was_written_by_queues_that_moved_meanwhile() {
        let world = World::new();
        let server = serve(&world);
        for (nsid, doorbells) in [("1", "shadow"), ("2", "shadow"), ("1", "trapped")] {
            let report = moved_under_load(&world, nsid, doorbells);
            let job = &report["jobs"][0];
            assert_eq!(job["errors"], 0, "{job:#}");
            assert!(job["blocks_verified"].as_u64().unwrap() > 0, "{job:#}");
        }
        let inventory = world.json(&world.steer(&["ls", "--json"]));
        for reactor in inventory["reactors"].as_array().unwrap() {
            assert!(reactor["commands"].as_u64().unwrap() > 0, "{reactor:#}");
        }
        server.stop();
    }
}
