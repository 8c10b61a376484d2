//! Queues of hosts over NVMe/TCP on several reactors.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver::QueuePair;
use driver::bus::place::AnyBus;
use driver::io::Namespace;
use memory::Buffer;
use nvme_spec::features::FeatureId;
use rustix::process::Signal;
use serde_json::Value;

use super::raw::Raw;
use super::{DISK, NQN, Port, busy, hosts, metric, serve, until, until_hosts};
use crate::drives::Drive;
use crate::host::Host;
use crate::survive::replace;
use crate::world::{Server, World, ran, wait};

const REACTORS: &str =
    "[[reactor]]\nmode = \"adaptive\"\n[[reactor]]\nmode = \"interrupt\"\n[[reactor]]\n";

/// A server whose hosts' queues are on three reactors, in turn.
fn spread(world: &World, more: &str, options: &[&str]) -> (Server, Port) {
    let port = Port::new();
    let keys = format!("reactor = 0\nreactors = [1, 0, 2]\n{more}");
    let config = format!("{REACTORS}{DISK}{}", port.controller(&keys));
    (serve(world, &config, options), port)
}

/// The reactors of the queues of each host.
fn placement(world: &World) -> Vec<Vec<u64>> {
    let looked = world.json(&world.steer(&["queues", "store", "--json"]));
    let hosts = looked["hosts"].as_array().cloned().unwrap_or_default();
    let reactors = |host: &Value| {
        let queues = host["queues"].as_array().unwrap().iter();
        queues.filter_map(|it| it["reactor"].as_u64()).collect()
    };
    hosts.iter().map(reactors).collect()
}

/// Loads and verifies the drive on four queues.
fn verified(world: &World, port: &Port, time: &str) -> std::process::Child {
    let mut bench = world.program();
    bench.args(["bench", "--target", &port.target(), "--rw", "randrw"]);
    bench.args(["--destroy-data", "--verify", "--json", "--queues", "4"]);
    bench.args(["--qd", "8", "--bs", "4k,64k", "--time", time]);
    bench.stdout(Stdio::piped()).stderr(Stdio::piped());
    bench.spawn().unwrap()
}

#[test]
fn queues_of_a_host_are_on_several_reactors_and_move_under_load() {
    let world = World::new();
    let (server, port) = spread(&world, "", &[]);
    let bench = verified(&world, &port, "2s");
    until("its queues are in their places", || {
        placement(&world) == [[1, 0, 2, 1]]
    });
    let moved = |args: &[&str]| world.run(&world.steer(&[&["move", "store"], args].concat()));
    for (to, then) in [
        (&["1"][..], [1, 1, 1, 1]),
        (&["2", "0"], [2, 0, 2, 0]),
        (&["0"], [0, 0, 0, 0]),
        (&["0", "1", "2"], [0, 1, 2, 0]),
    ] {
        let ran = moved(to);
        assert!(ran.status.success(), "{}", ran.err);
        assert_eq!(placement(&world), [then]);
    }
    let ran_one = moved(&["1", "--queue", "2"]);
    assert!(!ran_one.status.success());
    assert!(ran_one.err.contains("move together"), "{}", ran_one.err);
    let bench = ran(bench.wait_with_output().unwrap());
    assert!(bench.status.success(), "{}", bench.err);
    until_hosts(&world, 0);
    // The next host's are where they were moved to.
    let mut host = Host::at(&port.target()).unwrap();
    let queue = host.device().create_queue_pair(4, false).unwrap();
    until("the place of its queue", || placement(&world) == [[0]]);
    let exported = world.ok(&world.steer(&["export"]));
    let exported = world.write("exported.toml", &exported);
    world.ok(&["check", exported.to_str().unwrap()]);
    let commands = metric(&world, "nvmirage_tcp_commands_total{controller=\"store\"}");
    assert!(commands > 100.0, "{commands}");
    drop((queue, host));
    server.stop();
}

#[test]
fn hosts_come_and_go_while_others_are_served_elsewhere() {
    let world = World::new();
    let (server, port) = spread(&world, "", &[]);
    let bench = verified(&world, &port, "3s");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 0..3u8 {
            let (port, is_over) = (&port, &is_over);
            scope.spawn(move || {
                let mut rounds = 0u32;
                while !is_over.load(Ordering::Relaxed) {
                    if rounds.is_multiple_of(3) {
                        // Gone as soon as its queue is there.
                        drop(Raw::with_queue(port, 100 + id));
                    } else {
                        let mut host = Host::at(&port.target()).unwrap();
                        host.block(1, 3);
                    }
                    rounds += 1;
                }
                assert!(rounds >= 3, "{rounds}");
            });
        }
        let bench = ran(bench.wait_with_output().unwrap());
        is_over.store(true, Ordering::Relaxed);
        assert!(bench.status.success(), "{}", bench.err);
    });
    until_hosts(&world, 0);
    // Memory and queues of all are free again.
    for _ in 0..3 {
        let mut killed = busy(&world, &port.target());
        until("a command", || {
            metric(&world, "nvmirage_tcp_commands_total{controller=\"store\"}") > 100.0
                && !hosts(&world).is_empty()
        });
        killed.kill().unwrap();
        assert!(!wait(&mut killed).success());
        until_hosts(&world, 0);
    }
    let mut left: Vec<_> = (0..2).map(|_| busy(&world, &port.target())).collect();
    until_hosts(&world, 2);
    world.ok(&world.steer(&["disconnect", "store", "--all"]));
    for child in &mut left {
        assert!(!wait(child).success());
    }
    until_hosts(&world, 0);
    // And it stops with commands in flight.
    let mut last = busy(&world, &port.target());
    until_hosts(&world, 1);
    server.stop();
    assert!(!wait(&mut last).success());
}

#[test]
fn a_host_whose_only_traffic_is_elsewhere_is_kept_and_one_that_is_silent_is_not() {
    let world = World::new();
    let (server, port) = spread(&world, "", &[]);
    let mut host = Host::at(&port.target()).unwrap();
    let device = host.device();
    let namespace = device.namespace(1).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    until("its queue is there", || placement(&world) == [[1]]);
    // A timeout of 400 ms, which only what comes on the other reactors keeps from expiring. Each
    // move brings the queue home on its way.
    let feature = FeatureId::KEEP_ALIVE_TIMER;
    device.set_feature(feature, 0, 400).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for to in ["2", "1", "2", "1"] {
                thread::sleep(Duration::from_millis(750));
                world.ok(&world.steer(&["move", "store", to]));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            queue.read(&namespace, 0, 1, &buffer).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(hosts(&world).len(), 1);
    until_hosts(&world, 0);
    assert!(queue.read(&namespace, 0, 1, &buffer).is_err());
    drop((queue, host));
    server.stop();
}

#[test]
fn a_drive_on_several_reactors_conforms() {
    let world = World::new();
    let (server, port) = spread(&world, "", &[]);
    let args = ["conformance", "--target", &port.target(), "--destroy-data"];
    let ran = world.run(&args);
    assert!(ran.status.success(), "{}{}", ran.out, ran.err);
    until_hosts(&world, 0);
    server.stop();
}

#[test]
fn a_host_of_several_reactors_connects_again_after_a_death() {
    let world = World::new();
    let (mut server, port) = spread(&world, "", &["--survive"]);
    for byte in 1..3 {
        let mut host = Host::at(&port.target()).unwrap();
        host.fill(1, 3, byte);
        replace(&mut server);
        drop(host);
        let mut again = None;
        until("a host connects again", || {
            again = Host::at(&port.target()).ok();
            again.is_some()
        });
        assert!(
            again
                .unwrap()
                .block(1, 3)
                .iter()
                .all(|other| *other == byte)
        );
    }
    thread::sleep(Duration::from_millis(1));
    assert_eq!(world.inventory()["controllers"][0]["subnqn"], NQN);
    server.stop();
}

/// Writes rising numbers to a block of its own until its connection ends: the last one that was
/// acknowledged.
fn count_up(
    mut queue: QueuePair<AnyBus>,
    namespace: &Namespace,
    (buffer, lba): (&Buffer, u64),
    acknowledged: &AtomicU64,
) {
    for number in acknowledged.load(Ordering::Relaxed) + 1.. {
        buffer.write_from(0, &number.to_le_bytes());
        if queue.write(namespace, lba, 1, buffer, false).is_err() {
            return;
        }
        acknowledged.store(number, Ordering::Relaxed);
    }
}

#[test]
fn an_upgrade_loses_no_write_of_queues_on_several_reactors() {
    let world = World::new();
    let (server, port) = spread(&world, "", &["--survive"]);
    let acknowledged = [1u64, 2, 3].map(|_| AtomicU64::new(0));
    for round in 0..3u8 {
        let mut again = None;
        until("a host connects again", || {
            again = Host::at(&port.target()).ok();
            again.is_some()
        });
        let mut host = again.unwrap();
        let device = host.device();
        let namespace = device.namespace(1).unwrap();
        let queues = [(); 3].map(|()| device.create_queue_pair(4, false).unwrap());
        let buffers = [(); 3].map(|()| device.alloc(4096).unwrap());
        let mut other = Raw::with_queue(&port, 100 + round);
        until("their queues are in their places", || {
            let mut all = placement(&world);
            all.sort();
            all == [vec![1], vec![1, 0, 2]]
        });
        let before = acknowledged.each_ref().map(|it| it.load(Ordering::Relaxed));
        thread::scope(|scope| {
            for (at, mut queue) in queues.into_iter().enumerate() {
                let (namespace, buffer) = (&namespace, &buffers[at]);
                let (lba, acknowledged) = (at as u64, &acknowledged[at]);
                queue.read(namespace, lba, 1, buffer).unwrap();
                let mut number = [0; 8];
                buffer.read_into(0, &mut number);
                let number = u64::from_le_bytes(number);
                // One more may have been executed, whose answer the end of the connection took.
                let last = acknowledged.load(Ordering::Relaxed);
                assert!((last..=last + 1).contains(&number), "{number} after {last}");
                scope.spawn(move || count_up(queue, namespace, (buffer, lba), acknowledged));
            }
            until("each queue has written", || {
                let mut all = acknowledged.iter().zip(&before);
                all.all(|(now, before)| now.load(Ordering::Relaxed) > *before + 50)
            });
            // Connections end in order, wherever their queues are.
            let parting = scope.spawn(|| other.ends_in_order(Duration::from_millis(200)));
            if round < 2 {
                let said = world.ok(&world.steer(&["upgrade"]));
                assert!(said.starts_with("upgraded server: "), "{said}");
            } else {
                world.ok(&world.steer(&["disconnect", "store", "--all"]));
            }
            parting.join().unwrap().unwrap();
        });
        drop(buffers);
    }
    server.stop();
}

/// A move that a command holds up for a second is refused, and the queue goes on where it was.
#[test]
fn a_queue_whose_drive_stands_still_stays_where_it_is() {
    let (drive, its) = Drive::new();
    let (world, port) = (&drive.world, Port::new());
    let media = format!(
        "[[media]]\nname = \"disk\"\nkind = \"drive\"\ntarget = \"{}\"\n\
         [[namespace]]\nname = \"data\"\nmedia = \"disk\"\nlba_size = 512\n",
        drive.target()
    );
    let keys = port.controller("reactor = 0\nreactors = [1, 0]\n");
    let server = serve(world, &format!("{REACTORS}{media}{keys}"), &[]);
    let mut host = Host::at(&port.target()).unwrap();
    let device = host.device();
    let namespace = device.namespace(1).unwrap();
    let [first, second] = [(); 2].map(|()| device.alloc(4096).unwrap());
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let mut idle = device.create_queue_pair(4, false).unwrap();
    until("the places of its queues", || placement(world) == [[1, 0]]);
    its.stand_still();
    thread::scope(|scope| {
        let waits = scope.spawn(|| queue.read(&namespace, 0, 1, &first));
        until("the command is at its drive", || {
            let looked = world.json(&world.steer(&["queues", "store", "--json"]));
            looked["hosts"][0]["queues"][0]["in_flight"] == 1
        });
        let said = world.fails(&world.steer(&["move", "store", "0", "1"]));
        assert!(said.contains("1 of 2 queues were not moved"), "{said}");
        // The other one has moved all the same.
        assert_eq!(placement(world), [[1, 1]]);
        its.signal(Signal::CONT);
        waits.join().unwrap().unwrap();
    });
    world.ok(&world.steer(&["move", "store", "0", "1"]));
    assert_eq!(placement(world), [[0, 1]]);
    queue.read(&namespace, 1, 1, &first).unwrap();
    idle.read(&namespace, 1, 1, &second).unwrap();
    drop((queue, idle, host));
    server.stop();
}

/// How long so many reads take, one after another, on one queue that the last reactor serves.
fn reads(world: &World, port: &Port, change: impl FnOnce()) -> [Duration; 2] {
    let mut host = Host::at(&port.target()).unwrap();
    let device = host.device();
    let namespace = device.namespace(1).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    until("its queue is there", || placement(world) == [[1]]);
    let mut time = || {
        let begun = Instant::now();
        for _ in 0..220 {
            queue.read(&namespace, 0, 1, &buffer).unwrap();
        }
        begun.elapsed()
    };
    let before = time();
    change();
    let times = [before, time()];
    drop((queue, host));
    until_hosts(world, 0);
    times
}

#[test]
fn a_tenants_cap_holds_where_a_queue_is_served() {
    let world = World::new();
    let port = Port::new();
    let tenant = "[[tenant]]\nname = \"capped\"\niops = 2000\n";
    let keys = "tenant = \"capped\"\nreactor = 0\nreactors = [1]\n";
    let config = format!("{REACTORS}{DISK}{tenant}{}", port.controller(keys));
    let server = serve(&world, &config, &[]);
    let set = |tenant: &str| {
        world.ok(&world.steer(&["set", "controller", "store", &format!("tenant={tenant}")]));
    };
    // Twenty come at once, after a rest; the others at 2,000 in a second.
    let least = Duration::from_millis(95);
    let capped = reads(&world, &port, || {
        set("none");
        set("capped");
    });
    assert!(capped.iter().all(|time| *time >= least), "{capped:?}");
    // Without a tenant no cap is left where the last host's queue was: 220 would take two seconds.
    world.ok(&world.steer(&["set", "tenant", "capped", "iops=100"]));
    set("none");
    let free = reads(&world, &port, || set("capped"));
    assert!(free[0] < Duration::from_millis(1500), "{free:?}");
    assert!(free[1] > Duration::from_millis(1500), "{free:?}");
    server.stop();
}
