//! Traces of a running server: what hosts did is in the file, whatever happens to it, and other
//! programs read it.

use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use driver::io::Namespace;
use guest_rig::Rig;
use nvme_spec::opcode::NvmOpcode;
use rustix::process::Signal;
use serde_json::Value;

use crate::full_disk::Mounted;
use crate::host::Host;
use crate::world::{BOUND, World, ran};

/// Request of a host here: an opcode, its first block, how many, and whether it has FUA.
type Asked = (u8, u64, u32, bool);

const FLUSH: u8 = NvmOpcode::FLUSH.0;
const WRITE: u8 = NvmOpcode::WRITE.0;
const READ: u8 = NvmOpcode::READ.0;
const ZEROES: u8 = NvmOpcode::WRITE_ZEROES.0;
const DEALLOCATE: u8 = NvmOpcode::DATASET_MANAGEMENT.0;

/// A server of a drive in memory, and its host.
fn serve(world: &World) -> (crate::world::Server, Host) {
    let server = world.serve_media("ram:size=64MiB");
    let host = Host::attach(world, "nvme.sock");
    (server, host)
}

/// A few hundred commands of every kind, in two queues that are made one after the other.
fn work(host: &mut Host) -> Vec<Asked> {
    let namespace = host.device().namespace(1).unwrap();
    let buffer = host.device().alloc(1 << 16).unwrap();
    let mut asked = Vec::new();
    for round in 0..2u64 {
        let mut queue = host.device().create_queue_pair(8, false).unwrap();
        for step in 0..100 {
            let (lba, blocks) = (round * 4096 + step * 16, 1 + step as u32 % 8);
            let fua = step % 10 == 3;
            queue.write(&namespace, lba, blocks, &buffer, fua).unwrap();
            queue.read(&namespace, lba, blocks, &buffer).unwrap();
            asked.extend([(WRITE, lba, blocks, fua), (READ, lba, blocks, false)]);
        }
        queue.flush(1).unwrap();
        queue.write_zeroes(&namespace, 77, 300, false).unwrap();
        let ranges = [(40, 8), (100, 16)];
        queue.deallocate(1, &ranges, &buffer).unwrap();
        asked.extend([
            (FLUSH, 0, 0, false),
            (ZEROES, 77, 300, false),
            (DEALLOCATE, 40, 8, false),
        ]);
        host.device().delete_queue_pair(queue).unwrap();
    }
    asked
}

/// The commands of a trace, in the order of time.
pub(crate) fn dump(world: &World, file: &str) -> Vec<Value> {
    let text = world.ok(&["trace", "dump", file, "--json"]);
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn asked(commands: &[Value]) -> Vec<Asked> {
    let number = |value: &Value| value.as_u64().unwrap();
    let one = |c: &Value| {
        let fua = c["fua"].as_bool().unwrap();
        (
            number(&c["opcode"]) as u8,
            number(&c["lba"]),
            number(&c["blocks"]) as u32,
            fua,
        )
    };
    commands.iter().map(one).collect()
}

pub(crate) fn start(world: &World, file: &str, more: &[&str]) -> String {
    let args = [&["trace", "start", "nvme0", "--file", file], more].concat();
    world.ok(&world.steer(&args))
}

pub(crate) fn stop(world: &World, name: &str) {
    world.ok(&world.steer(&["trace", "stop", name]));
}

#[test]
fn every_command_of_a_host_is_in_the_file() {
    let world = World::new();
    let (server, mut host) = serve(&world);
    let said = start(&world, "t.trace", &[]);
    assert!(
        said.contains(&*world.path("t.trace").to_string_lossy()),
        "{said}"
    );
    let did = work(&mut host);

    let listed = world.ask("GET /v1/traces", &[], "").is(200).json();
    assert_eq!(listed[0]["state"], "recording");
    let shown = world.ok(&world.steer(&["ls"]));
    assert!(shown.contains("recording"), "{shown}");
    let again =
        world.fails(&world.steer(&["trace", "start", "nvme0", "--file", "u", "--name", "b"]));
    assert!(again.contains("already has a trace"), "{again}");
    stop(&world, "nvme0");
    assert_eq!(
        world.ask("GET /v1/traces", &[], "").is(200).json(),
        Value::Array(Vec::new())
    );

    let commands = dump(&world, "t.trace");
    assert_eq!(asked(&commands), did);
    for command in &commands {
        assert_eq!(
            (&command["nsid"], &command["lba_size"]),
            (&1.into(), &4096.into())
        );
        let stages = command["stages"].as_object().unwrap();
        let all: u64 = stages.values().map(|ns| ns.as_u64().unwrap()).sum();
        let interrupt = stages["interrupt"].as_u64().unwrap();
        assert_eq!(command["latency_ns"], all - interrupt);
        assert_eq!(command["status"], "Successful Completion (sct 0h, sc 00h)");
    }
    let stat = world.json(&["trace", "stat", "t.trace", "--json"]);
    assert_eq!(
        (&stat["controller"], &stat["lost"]),
        (&"nvme0".into(), &0.into())
    );
    assert_eq!(stat["commands"], did.len());
    assert_eq!(stat["ended"], "it was stopped");
    assert_eq!(stat["namespaces"][0]["blocks"], 16384);
    let moved: u32 = did
        .iter()
        .filter(|a| a.0 == WRITE)
        .map(|a| a.2 * 4096)
        .sum();
    let writes = stat["operations"].as_array().unwrap().iter();
    let writes: Vec<_> = writes.filter(|one| one["name"] == "Write").collect();
    assert_eq!(
        (&writes[0]["count"], &writes[0]["bytes"]),
        (&200.into(), &moved.into())
    );

    // what is not traced is not in it, and a file is never written over
    host.fill(1, 0, 1);
    assert_eq!(dump(&world, "t.trace").len(), did.len());
    let before = std::fs::read(world.path("t.trace")).unwrap();
    let there = world.fails(&world.steer(&["trace", "start", "nvme0", "--file", "t.trace"]));
    assert!(there.contains("the file must not exist"), "{there}");
    assert_eq!(std::fs::read(world.path("t.trace")).unwrap(), before);
    let mode = std::fs::metadata(world.path("t.trace"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let events = world.ok(&world.steer(&["events", "--since", "0", "--count", "3", "--json"]));
    let told: Vec<Value> = events
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let of_trace = told
        .iter()
        .filter(|e| e["kind"] == "trace")
        .map(|e| &e["event"]);
    assert_eq!(
        of_trace.collect::<Vec<_>>(),
        ["created", "deleted"],
        "{events}"
    );
    server.stop();
}

#[test]
fn traces_have_names_tags_and_bounds() {
    let world = World::new();
    let (_server, mut host) = serve(&world);
    let put = |body: &str| world.ask("PUT /v1/traces/a", &[], body);
    let body = r#"{"controller": "nvme0", "file": "a.trace", "sample": 128, "max_time": "1h"}"#;
    put(body).is(201);
    put(body).is(200);
    let one = world.ask("GET /v1/traces/a", &[], "").is(200).json();
    assert_eq!(
        (&one["max_size"], &one["sample"]),
        (&"1GiB".into(), &128.into())
    );
    put(&body.replace("128", "64")).refuses(409, "`sample` is 128, not 64");
    for (wrong, why) in [
        (
            r#"{"controller": "nvme0", "file": "b", "sample": 129}"#,
            "sample = 129",
        ),
        (
            r#"{"controller": "nvme0", "file": "b", "max_size": "1KiB"}"#,
            "at least 64KiB",
        ),
        (
            r#"{"controller": "nvme0", "file": "/"}"#,
            "the name of a file",
        ),
        (
            r#"{"controller": "nvme0", "fil": "b"}"#,
            "did you mean `file`?",
        ),
    ] {
        world.ask("PUT /v1/traces/b", &[], wrong).refuses(422, why);
    }
    let other = r#"{"name": "b", "controller": "other", "file": "b.trace"}"#;
    world
        .ask("POST /v1/traces", &[], other)
        .refuses(404, "`other`");
    let folder = r#"{"name": "b", "controller": "nvme0", "file": "no/such"}"#;
    world
        .ask("POST /v1/traces", &[], folder)
        .refuses(409, "already has a trace");
    stop(&world, "a");
    world
        .ask("POST /v1/traces", &[], folder)
        .refuses(409, "No such file");
    world
        .ask("DELETE /v1/traces/a", &[], "")
        .refuses(404, "`a`");

    // one that ends by itself is there, with its reason, until it is forgotten; another one may
    // begin meanwhile
    start(&world, "b.trace", &["--name", "short", "--for", "1ms"]);
    let ended = await_end(&world, "short");
    assert!(
        ended["reason"].as_str().unwrap().contains("max_time"),
        "{ended}"
    );
    start(&world, "c.trace", &["--name", "sampled", "--sample", "8"]);
    let namespace = host.device().namespace(1).unwrap();
    read_often(&mut host, &namespace, 4000);
    stop(&world, "sampled");
    let count = dump(&world, "c.trace").len();
    // one of eight, within ten standard deviations of a binomial
    assert!(count.abs_diff(500) < 210, "{count}");
}

fn read_often(host: &mut Host, namespace: &Namespace, count: usize) {
    let mut queue = host.device().create_queue_pair(4, false).unwrap();
    let buffer = host.device().alloc(4096).unwrap();
    for lba in 0..count as u64 {
        queue.read(namespace, lba, 1, &buffer).unwrap();
    }
    host.device().delete_queue_pair(queue).unwrap();
}

/// Waits until a trace has ended by itself.
fn await_end(world: &World, name: &str) -> Value {
    let deadline = Instant::now() + BOUND;
    loop {
        let trace = world
            .ask(&format!("GET /v1/traces/{name}"), &[], "")
            .is(200)
            .json();
        if trace["state"] == "ended" {
            return trace;
        }
        assert!(Instant::now() < deadline, "{trace}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A server that is killed leaves what it has recorded, except for the last moment.
#[test]
fn a_server_that_is_killed_leaves_a_trace() {
    let world = World::new();
    let (server, mut host) = serve(&world);
    start(&world, "t.trace", &[]);
    let did = work(&mut host);
    let deadline = Instant::now() + BOUND;
    let size = || std::fs::metadata(world.path("t.trace")).unwrap().len();
    let before = size();
    while size() == before {
        assert!(Instant::now() < deadline, "nothing is written");
        thread::sleep(Duration::from_millis(10));
    }
    server.signal(Signal::KILL);
    server.end();
    let ran = world.run(&["trace", "dump", "t.trace", "--json"]);
    assert!(ran.status.success());
    assert!(ran.err.contains("is truncated"), "{}", ran.err);
    let found = dump(&world, "t.trace");
    assert!(
        !found.is_empty() && did.starts_with(&asked(&found)),
        "{}",
        found.len()
    );
    let stat = world.json(&["trace", "stat", "t.trace", "--json"]);
    assert_eq!(
        (&stat["ended"], &stat["cut_off_bytes"]),
        (&Value::Null, &0.into())
    );
}

/// A byte that is another one costs what stands from there on, and nothing before it.
#[test]
fn a_trace_that_is_damaged_is_read_up_to_there_and_not_replayed() {
    let world = World::new();
    let did = recorded(&world);
    let path = world.path("t.trace");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let ran = world.run(&["trace", "dump", "t.trace", "--json"]);
    assert!(ran.status.success(), "{}", ran.err);
    assert!(ran.err.contains("damaged at byte"), "{}", ran.err);
    assert_eq!(asked(&dump(&world, "t.trace")), did);
    let stat = world.json(&["trace", "stat", "t.trace", "--json"]);
    assert_eq!(stat["commands"], did.len());
    assert_eq!(
        (&stat["ended"], &stat["cut_off_bytes"]),
        (&Value::Null, &Value::Null)
    );
    let damaged = stat["damaged"].as_str().unwrap();
    assert!(damaged.contains("checksum"), "{damaged}");
    let text = world.ok(&["trace", "stat", "t.trace"]);
    assert!(
        text.contains("it is damaged") && !text.contains("truncated"),
        "{text}"
    );
    let target = world.vfio_user("none.sock");
    let replay = [
        "trace",
        "replay",
        "t.trace",
        "--target",
        &target,
        "--destroy-data",
    ];
    let refused = world.fails(&replay);
    assert!(
        refused.contains("cannot replay a damaged trace"),
        "{refused}"
    );
}

/// Records for which the largest size leaves no room are lost, and reported as lost.
#[test]
fn a_trace_of_the_largest_size_counts_what_it_has_no_room_for() {
    let world = World::new();
    let (server, mut host) = serve(&world);
    start(&world, "t.trace", &["--max-size", "64KiB"]);
    let namespace = host.device().namespace(1).unwrap();
    let deadline = Instant::now() + BOUND;
    let mut reads = 0;
    let trace = loop {
        read_often(&mut host, &namespace, 3000);
        reads += 3000;
        let trace = world.ask("GET /v1/traces/nvme0", &[], "").is(200).json();
        if trace["state"] == "ended" {
            break trace;
        }
        assert!(Instant::now() < deadline, "{trace}");
    };
    let reason = trace["reason"].as_str().unwrap();
    assert!(reason.contains("max_size"), "{trace}");
    let stat = world.json(&["trace", "stat", "t.trace", "--json"]);
    assert_eq!(
        (&stat["commands"], &stat["lost"]),
        (&trace["commands"], &trace["lost"])
    );
    let (kept, lost) = (
        stat["commands"].as_u64().unwrap(),
        stat["lost"].as_u64().unwrap(),
    );
    assert!(lost > 0 && kept + lost <= reads, "{kept}, {lost}, {reads}");
    server.stop();
}

#[test]
fn a_trace_ends_with_its_controller_and_with_the_server() {
    let world = World::new();
    let (server, mut host) = serve(&world);
    start(&world, "one.trace", &[]);
    host.fill(1, 5, 1);
    drop(host);
    world.ok(&world.steer(&["delete", "controller", "nvme0"]));
    let ended = world.ask("GET /v1/traces/nvme0", &[], "").is(200).json();
    assert_eq!(ended["reason"], "its controller was deleted");
    assert_eq!(asked(&dump(&world, "one.trace")), [(WRITE, 5, 1, true)]);
    server.stop();

    let world = World::new();
    let (server, mut host) = serve(&world);
    start(&world, "two.trace", &[]);
    host.fill(1, 6, 1);
    server.stop();
    assert_eq!(asked(&dump(&world, "two.trace")), [(WRITE, 6, 1, true)]);
    let stat = world.json(&["trace", "stat", "two.trace", "--json"]);
    assert_eq!(stat["ended"], "the server has stopped");
}

/// Where the disk is full the trace ends and says so; hosts notice nothing.
#[test]
fn a_full_disk_ends_a_trace_and_hurts_nobody() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let world = World::new();
    let folder = world.path("small");
    std::fs::create_dir(&folder).unwrap();
    let mounted = Mounted::tmpfs(&folder, "size=64k");
    let (server, mut host) = serve(&world);
    start(&world, "small/t.trace", &[]);
    let namespace = host.device().namespace(1).unwrap();
    let deadline = Instant::now() + BOUND;
    let trace = loop {
        read_often(&mut host, &namespace, 3000);
        let trace = world.ask("GET /v1/traces/nvme0", &[], "").is(200).json();
        if trace["state"] == "ended" {
            break trace;
        }
        assert!(Instant::now() < deadline, "{trace}");
    };
    assert!(
        trace["reason"].as_str().unwrap().contains("No space left"),
        "{trace}"
    );
    host.fill(1, 9, 7);
    assert_eq!(host.block(1, 9), [7; 4096]);
    let ran = world.run(&["trace", "stat", "small/t.trace", "--json"]);
    assert!(ran.status.success(), "{}", ran.err);
    server.stop();
    drop(mounted);
}

/// A trace with the commands of `work`, and what they were.
fn recorded(world: &World) -> Vec<Asked> {
    let (server, mut host) = serve(world);
    start(world, "t.trace", &[]);
    let did = work(&mut host);
    stop(world, "nvme0");
    server.stop();
    did
}

#[test]
fn other_programs_read_what_is_exported() {
    let world = World::new();
    let did = recorded(&world);
    let export = |format: &str, file: &str| {
        world.ok(&[
            "trace", "export", "t.trace", "--format", format, "--output", file,
        ]);
        std::fs::read_to_string(world.path(file)).unwrap()
    };
    // fio repeats it on a file: every read and write is there, and in its order
    export("fio", "t.iolog");
    let disk = world.path("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let fio = Rig::locate().unwrap().guest_program("usr/bin/fio");
    let output = fio
        .command()
        .current_dir(world.path("."))
        .args([
            "--name=replay",
            "--ioengine=psync",
            "--read_iolog=t.iolog",
            "--output-format=json",
            // a file has no discard that fio knows how to ask for
            "--replay_skip=trim",
        ])
        .arg(format!("--replay_redirect={}", disk.display()))
        .output()
        .unwrap();
    let fio = ran(output);
    assert!(fio.status.success(), "{}{}", fio.out, fio.err);
    let json = &fio.out[fio.out.find('{').unwrap()..];
    let report: Value = serde_json::from_str(json).unwrap();
    let job = &report["jobs"][0];
    let bytes = |opcode: u8| -> u64 {
        let its = did.iter().filter(|asked| asked.0 == opcode);
        its.map(|asked| u64::from(asked.2) * 4096).sum()
    };
    for (kind, opcode) in [("read", READ), ("write", WRITE)] {
        assert_eq!(job[kind]["total_ios"], 200, "{job}");
        assert_eq!(job[kind]["io_bytes"], bytes(opcode), "{job}");
    }

    // Chrome's: JSON, a slice for each command
    let chrome: Value = serde_json::from_str(&export("chrome", "t.json")).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap().iter();
    let commands = events.filter(|event| event["cat"] == "command").count();
    assert_eq!(commands, did.len());

    // blkparse's, which the simulator reads as it reads that of others; and its own
    export("blktrace", "t.blk");
    let own = export("simulate", "t.text");
    assert_eq!(
        own.lines().count(),
        1 + did.len() - 2,
        "without Write Zeroes"
    );
    let simulate = |file: &str| {
        let drive = [
            "simulate",
            "--preset",
            "optane-p4800x",
            "--size",
            "64MiB",
            "--virtual-time",
            "1h",
        ];
        world.json(&[&drive[..], &["--workload", file, "--json"]].concat())
    };
    let direct = simulate("t.trace");
    assert_eq!(direct["runs"], simulate("t.text")["runs"]);
    let count = |report: &Value, kind: &str| {
        let kinds = report["runs"][0]["jobs"][0]["kinds"].as_array().unwrap();
        let found = kinds.iter().find(|one| one["kind"] == kind);
        found.unwrap_or_else(|| panic!("{report}"))["commands"].clone()
    };
    let foreign = simulate("t.blk");
    let iolog = simulate("t.iolog");
    for kind in ["read", "write"] {
        assert_eq!(count(&iolog, kind), 200);
    }
    for (kind, commands) in [("read", 200), ("write", 200), ("flush", 2), ("trim", 2)] {
        assert_eq!(count(&direct, kind), commands);
        assert_eq!(count(&foreign, kind), commands);
    }

    let table = export("csv", "t.csv");
    assert_eq!(table.lines().count(), 1 + did.len());
    // a part of it has the times that `dump` prints
    let part = ["t.trace", "--from", "1ms"];
    let dump = world.ok(&[&["trace", "dump"][..], &part, &["--json"]].concat());
    let dumped = dump.lines().map(|line| serde_json::from_str(line).unwrap());
    let dumped: Vec<u64> = dumped
        .filter_map(|line: Value| line["time_ns"].as_u64())
        .collect();
    let table = world.ok(&[&["trace", "export"][..], &part, &["--format", "csv"]].concat());
    let lines = table.lines().skip(1);
    let times = lines.filter_map(|line| line.split(',').next()?.parse::<u64>().ok());
    assert_eq!(times.collect::<Vec<_>>(), dumped);
    assert!(dumped[0] >= 1_000_000, "{}", dumped[0]);
    world.ok(&["trace", "plot", "t.trace", "--output", "t.svg"]);
    let svg = std::fs::read_to_string(world.path("t.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("commands in flight"));
    let text = world.ok(&["trace", "stat", "t.trace"]);
    for words in ["Dataset Management", "sequential", "medium"] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
    let wrong = world.fails(&["trace", "stat", "t.csv"]);
    assert!(wrong.contains("this is no trace"), "{wrong}");
}

/// A second drive gets the same commands, at the same times, as were recorded.
#[test]
fn a_trace_is_replayed_on_another_drive() {
    let world = World::new();
    let did = recorded(&world);
    let server = world.serve_media("ram:size=64MiB");
    let target = world.vfio_user("nvme.sock");
    let replay = |more: &'static [&str]| {
        [&["trace", "replay", "t.trace", "--target", &target], more].concat()
    };

    let careful = world.fails(&replay(&[]));
    assert!(careful.contains("204 commands"), "{careful}");
    assert!(careful.contains("--destroy-data"), "{careful}");
    start(&world, "again.trace", &[]);
    let begun = Instant::now();
    let report = world.json(&replay(&["--destroy-data", "--json"]));
    let at_most = begun.elapsed().as_nanos() as u64;
    stop(&world, "nvme0");
    assert_eq!(report["commands"], did.len());
    // of two ranges each, a trace has the first
    assert_eq!(report["left_out"]["are further ranges of one"], 2);
    // never early: the last one is due as long after the first as it was
    let (took, was) = (
        report["elapsed_ns"].as_u64(),
        report["recorded_ns"].as_u64(),
    );
    assert!(took >= was && was > Some(0), "{report}");
    for rank in ["p50_ns", "p99_ns", "max_ns"] {
        let late = report["late"][rank].as_u64().unwrap();
        assert!(late < at_most, "{rank} of {at_most}: {report}");
    }

    // what was asked for is the same; the order may differ where commands were in flight at once
    let mut expected = did.clone();
    let mut found = asked(&dump(&world, "again.trace"));
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);

    // and the bytes: each block that was written last by a write begins with its own number
    let mut host = Host::attach(&world, "nvme.sock");
    for lba in [4096 + 99 * 16, 16 * 40, 4096] {
        let block = host.block(1, lba);
        assert_eq!(block[..8], lba.to_le_bytes(), "block {lba}");
    }
    for zero in [77, 376] {
        assert_eq!(host.block(1, zero), [0; 4096], "block {zero}");
    }
    drop(host);

    // reads alone change nothing, as fast as it goes
    let reads = world.json(&replay(&["--reads-only", "--speed", "max", "--json"]));
    let kinds: Vec<_> = reads["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| k["command"].clone())
        .collect();
    assert_eq!(kinds, ["Read", "Flush"]);
    assert_eq!(
        (&reads["commands"], &reads["late"]),
        (&202.into(), &Value::Null)
    );
    server.stop();

    let server = world.serve_media("ram:size=4MiB");
    let small = world.fails(&replay(&["--destroy-data"]));
    assert!(small.contains("--wrap"), "{small}");
    let around = world.ok(&replay(&["--destroy-data", "--wrap", "--speed", "10"]));
    assert!(around.contains("406 commands"), "{around}");
    server.stop();
}
