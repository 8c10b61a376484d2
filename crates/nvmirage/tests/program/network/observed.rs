//! Latencies and queues of hosts over NVMe/TCP.

use serde_json::Value;

use super::{DISK, Port, busy, hosts, metric, serve, until, until_hosts};
use crate::host::Host;
use crate::world::{World, wait};

fn ask(world: &World, what: &str) -> Value {
    let path = format!("GET /v1/controllers/store/{what}");
    world.ask(&path, &[], "").is(200).json()
}

/// Controller identifiers of the hosts, in order of arrival.
fn cntlids(world: &World) -> Vec<u64> {
    let hosts = hosts(world);
    hosts
        .iter()
        .filter_map(|it| it["cntlid"].as_u64())
        .collect()
}

/// Timed reads and writes.
fn timed(report: &Value) -> [u64; 2] {
    [0, 1].map(|at| report["latency"][at]["count"].as_u64().unwrap())
}

#[test]
fn latencies_are_those_of_all_hosts_or_of_one() {
    let world = World::new();
    let port = Port::new();
    let config = format!("{DISK}{}", port.controller("sample = 1\n"));
    let server = serve(&world, &config, &[]);
    assert_eq!(timed(&ask(&world, "latency")), [0, 0]);
    let mut one = Host::at(&port.target()).unwrap();
    let mut two = Host::at(&port.target()).unwrap();
    one.fill(1, 3, 1);
    one.block(1, 3);
    one.block(1, 3);
    two.fill(1, 4, 2);
    two.fill(1, 5, 2);
    let ids = cntlids(&world);
    assert_eq!(timed(&ask(&world, "latency")), [2, 3]);
    let of = |id: u64| timed(&ask(&world, &format!("latency?cntlid={id}")));
    assert_eq!((of(ids[0]), of(ids[1])), ([2, 1], [0, 2]));
    let shown = |more: &[&str]| {
        let latency = ["latency", "store", "--json"];
        let text = world.ok(&world.steer(&[&latency[..], more].concat()));
        timed(&serde_json::from_str(&text).unwrap())
    };
    assert_eq!(shown(&[]), [2, 3]);
    assert_eq!(shown(&["--cntlid", &format!("{:#x}", ids[1])]), [0, 2]);
    let commands = ask(&world, "latency")["commands"].clone();
    assert_eq!(commands.as_array().unwrap().len(), 5);
    let of_queue = |what: &str| {
        let sample = format!("nvmirage_queue_{what}{{controller=\"store\",queue=\"1\"}}");
        metric(&world, &sample)
    };
    let before = of_queue("completions_total");
    assert!(before >= 5.0, "{before}");
    // what a host has done is counted when it has left
    drop(one);
    until_hosts(&world, 1);
    assert_eq!(timed(&ask(&world, "latency")), [2, 3]);
    assert_eq!(of_queue("completions_total"), before);
    two.fill(1, 6, 2);
    assert_eq!(timed(&ask(&world, "latency")), [2, 4]);
    assert_eq!(of_queue("completions_total"), before + 1.0);
    assert_eq!(
        (of_queue("in_flight"), of_queue("errors_total")),
        (0.0, 0.0)
    );
    // and what one does whose queue is there still
    let device = two.device();
    let namespace = device.namespace(1).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    queue.read(&namespace, 3, 1, &buffer).unwrap();
    assert_eq!(timed(&ask(&world, "latency")), [3, 4]);
    assert_eq!(of_queue("completions_total"), before + 2.0);
    let moved = |op: &str| {
        let labels = format!("{{namespace=\"data\",controller=\"store\",op=\"{op}\"}}");
        metric(
            &world,
            &format!("nvmirage_namespace_commands_total{labels}"),
        )
    };
    assert_eq!((moved("read"), moved("write")), (3.0, 4.0));
    drop((queue, two));
    until_hosts(&world, 0);
    for what in ["latency", "queues"] {
        let path = format!("GET /v1/controllers/store/{what}?cntlid={}", ids[0]);
        let why = format!("no host with the identifier {:#x}", ids[0]);
        world.ask(&path, &[], "").refuses(409, &why);
    }
    server.stop();
}

#[test]
fn no_guest_reaches_a_medium_that_is_early() {
    let world = World::new();
    let port = Port::new();
    let timed = DISK.replace(
        "size = \"64MiB\"\n",
        "size = \"64MiB\"\ntiming = { preset = \"optane-p4800x\", transport_allowance = \"10us\" }\n",
    );
    let store = port.controller("subsystem = \"s\"\n");
    let server = serve(&world, &format!("{timed}{store}"), &[]);
    let listen = world.vfio_user("near.sock");
    let refused = |arguments: &[&str]| {
        let error = world.fails(&world.steer(arguments));
        let why = "transport_allowance is for hosts over NVMe/TCP";
        assert!(error.contains(why), "{error}");
    };
    let near = ["create", "controller", "near", "--subsystem", "s"];
    let near = [&near[..], &["--listen", &listen]].concat();
    refused(&[&near[..], &["--namespaces", "data"]].concat());
    world.ok(&world.steer(&near));
    refused(&["attach", "data", "near"]);
    server.stop();
}

#[test]
fn the_queues_of_each_host_are_shown() {
    let world = World::new();
    let port = Port::new();
    let slow = DISK.replace(
        "size = \"64MiB\"\n",
        "size = \"64MiB\"\ntiming = { preset = \"optane-p4800x\", read_latency = \"5s\", write_latency = \"5s\" }\n",
    );
    let server = serve(&world, &format!("{slow}{}", port.controller("")), &[]);
    let none = world.ok(&world.steer(&["queues", "store"]));
    assert_eq!(none, "no host is connected\n");
    let mut children: Vec<_> = (0..2).map(|_| busy(&world, &port.target())).collect();
    let in_flight = |host: &Value| {
        let queues = host["queues"].as_array().unwrap().iter();
        queues
            .filter_map(|it| it["in_flight"].as_u64())
            .sum::<u64>()
    };
    until("no commands are in flight", || {
        let report = ask(&world, "queues");
        let hosts = report["hosts"].as_array().cloned().unwrap_or_default();
        hosts.len() == 2 && hosts.iter().all(|host| in_flight(host) == 16)
    });
    let ids = cntlids(&world);
    let report = ask(&world, "queues?commands=3");
    assert_eq!(report["doorbells"], "none");
    for (host, id) in report["hosts"].as_array().unwrap().iter().zip(&ids) {
        assert_eq!(host["cntlid"], *id);
        let sq = &host["queues"][0]["submission_queues"][0];
        assert_eq!(sq["commands"].as_array().unwrap().len(), 3, "{sq:#}");
        assert_eq!(sq["commands"][0]["at"], "model");
    }
    let one = ask(&world, &format!("queues?cntlid={}", ids[1]));
    assert_eq!(one["hosts"].as_array().unwrap().len(), 1);
    assert_eq!(one["hosts"][0]["cntlid"], ids[1]);
    let shown = |more: &[&str]| {
        let queues = ["queues", "store", "--commands", "4"];
        world.ok(&world.steer(&[&queues[..], more].concat()))
    };
    let both = shown(&[]);
    let id = |at: usize| format!("{:#x}", ids[at]);
    for at in [0, 1] {
        let line = format!("host {} nqn.", id(at));
        assert!(both.contains(&line), "{both}");
    }
    assert_eq!(both.matches("12 more of SQ 1").count(), 2, "{both}");
    let first = shown(&["--cntlid", &id(0)]);
    assert!(first.contains(&format!("host {} nqn.", id(0))), "{first}");
    assert!(!first.contains(&format!("host {} nqn.", id(1))), "{first}");
    world.ok(&world.steer(&["disconnect", "store", "--all"]));
    assert!(children.iter_mut().all(|child| !wait(child).success()));
    server.stop();
}
