//! Queues as the server shows them, against those of a host.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use driver::bus::Bus;
use driver::io::Blocks;
use nvme_spec::opcode::NvmOpcode;
use serde_json::Value;

use crate::host::Host;
use crate::metrics::samples;
use crate::world::{BOUND, World, ran};

/// A drive whose reads take five seconds.
const SLOW: &str = r#"
[[media]]
name = "slow"
kind = "ram"
size = "64MiB"
[media.timing]
preset = "optane-p4800x"
read_latency = "5s"
[[namespace]]
name = "one"
media = "slow"
[[controller]]
name = "vm"
namespaces = ["one"]
listen = "vfio-user:vm.sock"
"#;

fn look(world: &World, query: &str) -> Value {
    let path = format!("GET /v1/controllers/vm/queues{query}");
    world.ask(&path, &[], "").is(200).json()
}

/// Looks until it is so.
fn until(world: &World, query: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + BOUND;
    loop {
        let report = look(world, query);
        if is_so(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:#}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn commands(report: &Value, cq: usize) -> &Vec<Value> {
    let sq = &report["queues"][cq]["submission_queues"][0];
    sq["commands"].as_array().unwrap()
}

#[test]
fn commands_that_take_long_are_shown_with_their_age_and_marked() {
    let world = World::new();
    let file = world.write("slow.toml", SLOW);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let nobody = look(&world, "");
    assert_eq!(
        (&nobody["admin"], &nobody["queues"]),
        (&Value::Null, &Value::Array(vec![]))
    );

    let mut host = Host::attach(&world, "vm.sock");
    host.listen();
    let namespace = host.device().namespace(1).unwrap();
    // of 17 and 9 entries: one stays empty
    let mut queue = host.device().create_queue_pair(16, false).unwrap();
    let wild = host.device().create_queue_pair(8, false).unwrap();
    let buffer = host.device().alloc(8192).unwrap();
    let blocks = 8192 / namespace.block_len;
    for lba in [8, 16, 24] {
        let count = Blocks::new(blocks).unwrap();
        let mut read = namespace.transfer(NvmOpcode::READ, lba, count, lba == 24);
        let cid = queue.next_cid().unwrap();
        queue.pointer(cid, &buffer, 0, 8192).unwrap().put(&mut read);
        queue.submit(read).unwrap();
    }
    queue.ring().unwrap();
    let first = until(&world, "", |report| {
        let all = commands(report, 0);
        all.len() == 3 && all.iter().all(|one| one["at"] == "model")
    });
    let shown: Vec<_> = commands(&first, 0)
        .iter()
        .map(|one| {
            let number = |key: &str| one[key].as_u64().unwrap();
            assert_eq!(
                (number("queue"), number("opcode"), number("nsid")),
                (1, 2, 1)
            );
            assert_eq!(
                (&one["command"], number("bytes")),
                (&Value::from("Read"), 8192)
            );
            (number("lba"), one["fua"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(shown, [(8, false), (16, false), (24, true)]);
    let (cq, sq) = (
        &first["queues"][0],
        &first["queues"][0]["submission_queues"][0],
    );
    for (key, value) in [
        ("in_flight", 3),
        ("reserved", 3),
        ("posted", 0),
        ("size", 17),
        ("head", 0),
        ("tail", 0),
    ] {
        assert_eq!(cq[key], value, "{key} of {cq:#}");
    }
    for (key, value) in [
        ("in_flight", 3),
        ("waiting", 0),
        ("head", 3),
        ("tail", 3),
        ("size", 17),
        ("shadow", 3),
        ("left_out", 0),
    ] {
        assert_eq!(sq[key], value, "{key} of {sq:#}");
    }
    // the host is asked to ring for what comes behind what was looked at, or was before it
    // submitted these
    assert!(sq["event_idx"].as_u64().unwrap() <= 3, "{sq:#}");
    assert_eq!(
        (&first["doorbells"], &cq["phase"]),
        (&Value::from("shadow"), &Value::from(true))
    );
    let admin = &first["admin"]["submission_queues"][0]["commands"];
    assert_eq!(admin[0]["command"], "Asynchronous Event Request");
    assert_eq!(
        (&admin[0]["at"], &admin[0]["stuck"]),
        (&Value::from("event"), &Value::from(false))
    );

    // the same where everything is counted
    let stats = world.ask("GET /v1/stats", &[], "").is(200).json();
    assert_eq!(
        stats["controllers"][0]["completion_queues"][0]["in_flight"],
        3
    );
    let metrics = samples(&world.ask("GET /metrics", &[], "").is(200).body);
    assert_eq!(
        metrics["nvmirage_queue_in_flight{controller=\"vm\",queue=\"1\"}"],
        3.0
    );

    // none is stuck at first, and each is when it is older
    let ages = |report: &Value| -> Vec<u64> {
        let all = commands(report, 0).iter();
        all.map(|one| one["age_ns"].as_u64().unwrap()).collect()
    };
    let stuck = |report: &Value, is: bool| {
        let all = commands(report, 0);
        all.len() == 3 && all.iter().all(|one| one["stuck"] == is)
    };
    assert!(stuck(&look(&world, "?stuck_after=1h"), false));
    let then = until(&world, "?stuck_after=300ms", |report| stuck(report, true));
    assert!(
        ages(&then).iter().all(|age| *age >= 300_000_000),
        "{then:#}"
    );
    assert!(
        ages(&then)
            .iter()
            .zip(ages(&first))
            .all(|(now, before)| *now > before)
    );

    // a doorbell that cannot be freezes its queue, and the other goes on
    let [tail, _] = wild.doorbell_offsets();
    wild.bus().write32(tail, 999).unwrap();
    let frozen = |report: &Value| report["queues"][1]["submission_queues"][0]["frozen"].clone();
    let report = until(&world, "", |report| frozen(report) != Value::Null);
    assert_eq!(
        frozen(&report),
        "doorbell value 999 is outside the ring of 9 entries"
    );
    assert_eq!(
        report["queues"][0]["submission_queues"][0].get("frozen"),
        None
    );

    let args = ["queues", "vm", "--stuck-after", "300ms", "--commands", "2"];
    let text = world.ok(&world.steer(&args));
    for said in [
        "doorbells are shadow; 2 I/O completion queues",
        "SQ 2 is frozen: doorbell value 999",
        "stuck",
        "1 more of SQ 1",
    ] {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );

    let mut completed = 0;
    while completed < 3 {
        completed += queue.poll().unwrap();
        while queue.next_completion().is_some() {}
        thread::sleep(Duration::from_millis(5));
    }
    let after = look(&world, "");
    assert_eq!(commands(&after, 0), &[] as &[Value]);
    assert_eq!(after["queues"][0]["in_flight"], 0);
    drop((queue, wild, host));
    server.stop();
}

#[test]
fn a_look_at_128_commands_under_load_is_of_one_moment() {
    let world = World::new();
    // a drive that is slow enough for them to be there
    let server = world.serve_media("ram:size=64MiB,preset=optane-p4800x,timing.read_latency=2ms");
    let target = world.vfio_user("nvme.sock");
    let args = [
        "bench", "--target", &target, "--rw", "randread", "--qd", "128", "--queues", "2", "--time",
        "3s", "--json",
    ];
    let bench = world
        .program()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let looked = || {
        world
            .ask("GET /v1/controllers/nvme0/queues?commands=1024", &[], "")
            .is(200)
            .json()
    };
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
    let (mut deepest, mut looks) = (0, 0);
    let deadline = Instant::now() + BOUND;
    while (deepest < 64 || looks < 50) && Instant::now() < deadline {
        let report = looked();
        for cq in report["queues"].as_array().unwrap() {
            looks += 1;
            let mut in_flight = 0;
            for sq in cq["submission_queues"].as_array().unwrap() {
                let under_way = number(sq, "waiting") + number(sq, "in_flight");
                let commands = sq["commands"].as_array().unwrap();
                assert_eq!(
                    commands.len() as u64 + number(sq, "left_out"),
                    under_way,
                    "{sq:#}"
                );
                assert!(under_way <= 128, "{sq:#}");
                let size = number(sq, "size");
                let ring = (number(sq, "tail") + size - number(sq, "head")) % size;
                assert_eq!(ring, number(sq, "waiting"), "{sq:#}");
                let cids: BTreeSet<u64> = commands.iter().map(|one| number(one, "cid")).collect();
                assert_eq!(cids.len(), commands.len(), "{sq:#}");
                in_flight += number(sq, "in_flight");
                deepest = deepest.max(under_way);
            }
            assert_eq!(number(cq, "reserved"), in_flight, "{cq:#}");
            let size = number(cq, "size");
            let posted = (number(cq, "tail") + size - number(cq, "head")) % size;
            assert_eq!(posted, number(cq, "posted"), "{cq:#}");
        }
        let ended = report["queues"].as_array().unwrap().is_empty() && looks > 0;
        if ended {
            break;
        }
    }
    let bench = ran(bench.wait_with_output().unwrap());
    assert!(bench.status.success(), "{}", bench.err);
    assert!(deepest >= 64 && looks >= 50, "{deepest} {looks}");
    server.stop();
}

#[test]
fn a_look_that_cannot_be_is_refused_with_what_there_is() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let refused = |path: &str, status| {
        let reply = world
            .ask(&format!("GET /v1/controllers/{path}"), &[], "")
            .is(status);
        reply.json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(refused("nobody/queues", 404).contains("there is no controller `nobody`"));
    for (query, said) in [
        ("commands=1025", "exceeds the maximum of 1024"),
        ("commands=-1", "?commands=64"),
        ("stuck_after=7", "has no unit"),
        ("depth=1", "depth"),
    ] {
        let detail = refused(&format!("nvme0/queues?{query}"), 422);
        assert!(detail.contains(said), "{detail}");
    }
    let error = world.fails(&world.steer(&["queues", "nobody"]));
    assert!(error.contains("there is no controller `nobody`"), "{error}");
    let text = world.ok(&world.steer(&["queues", "nvme0"]));
    assert_eq!(
        text,
        "doorbells are trapped; its host has created no I/O queues\n"
    );
    server.stop();
}
