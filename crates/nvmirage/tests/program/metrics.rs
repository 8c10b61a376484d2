//! `/metrics` of a server that was used: its numbers against what hosts did, its text against
//! promtool.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use driver::io::Blocks;
use guest_rig::prometheus::promtool;
use nvme_spec::opcode::NvmOpcode;

use crate::host::Host;
use crate::world::{World, ran};

/// The samples of a text, by their names with labels. Comments are not looked at here.
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn a_scraper_reads_what_hosts_did() {
    let world = World::new();
    let (one, two) = (world.vfio_user("one.sock"), world.vfio_user("two.sock"));
    let config = format!(
        "[[reactor]]\n[[reactor]]\n[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
         [[tenant]]\nname = \"web\"\niops = 100000000\n\
         [[namespace]]\nname = \"a\"\nmedia = \"m\"\nrange = \"0MiB..8MiB\"\n\
         [[namespace]]\nname = \"b\"\nmedia = \"m\"\nrange = \"8MiB..16MiB\"\n\
         [[controller]]\nname = \"one\"\nnamespaces = [\"a\"]\nlisten = \"{one}\"\nreactor = 0\n\
         [[controller]]\nname = \"two\"\nnamespaces = [\"b\"]\nlisten = \"{two}\"\nreactor = 1\ntenant = \"web\"\n"
    );
    let file = world.write("config.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let scrape = |accept: &str| world.ask("GET /metrics", &[("Accept", accept)], "").is(200);
    let before = samples(&scrape("*/*").body);
    assert_eq!(
        before["nvmirage_tenant_commands_total{tenant=\"web\"}"],
        0.0
    );

    // five writes and three reads of a block of 4096 bytes
    let mut host = Host::attach(&world, "two.sock");
    (0..5).for_each(|lba| host.fill(1, lba, 1));
    for lba in 0..3 {
        assert_eq!(host.block(1, lba), [1; 4096]);
    }
    let reply = scrape("*/*");
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let after = samples(&reply.body);
    let of = |name: &str, labels: &str| after[&format!("nvmirage_{name}{{{labels}}}")];
    for (op, commands) in [("read", 3.0), ("write", 5.0)] {
        let used = format!("controller=\"two\",op=\"{op}\"");
        assert_eq!(of("controller_commands_total", &used), commands);
        assert_eq!(of("controller_data_bytes_total", &used), commands * 4096.0);
        let its = format!("namespace=\"b\",{used}");
        assert_eq!(of("namespace_commands_total", &its), commands);
        assert_eq!(of("namespace_data_bytes_total", &its), commands * 4096.0);
        let idle = format!("controller=\"one\",op=\"{op}\"");
        assert_eq!(of("controller_commands_total", &idle), 0.0);
        let its = format!("namespace=\"a\",{idle}");
        assert_eq!(of("namespace_commands_total", &its), 0.0);
    }
    assert_eq!(of("tenant_commands_total", "tenant=\"web\""), 8.0);
    assert_eq!(
        of("tenant_data_bytes_total", "tenant=\"web\""),
        8.0 * 4096.0
    );
    assert_eq!(of("reactor_commands_total", "reactor=\"1\""), 8.0);
    assert_eq!(of("reactor_commands_total", "reactor=\"0\""), 0.0);
    assert_eq!(
        of("namespace_size_bytes", "namespace=\"a\""),
        f64::from(8 << 20)
    );
    assert_eq!(of("controller_host_attached", "controller=\"two\""), 1.0);
    assert_eq!(of("controller_host_attached", "controller=\"one\""), 0.0);
    for (name, value) in &before {
        let is_counter = name.contains("_total");
        assert!(!is_counter || after[name] >= *value, "{name} fell");
    }

    let mut tool = promtool().unwrap().command();
    tool.args(["check", "metrics"]);
    tool.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut tool = tool.spawn().unwrap();
    tool.stdin
        .take()
        .unwrap()
        .write_all(reply.body.as_bytes())
        .unwrap();
    let checked = ran(tool.wait_with_output().unwrap());
    assert!(checked.status.success(), "{}{}", checked.out, checked.err);
    assert_eq!(format!("{}{}", checked.out, checked.err).trim(), "");

    let open = scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(content_type));
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
    assert_eq!(
        samples(&open.body).keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    assert_stats(&world, &mut host, &after);
    drop(host);
    server.stop();
}

/// The same numbers as JSON.
fn assert_stats(world: &World, host: &mut Host, metrics: &BTreeMap<String, f64>) {
    let stats = || world.ask("GET /v1/stats", &[], "").is(200).json();
    let (first, second) = (stats(), stats());
    let clock = |stats: &serde_json::Value| stats["time_ns"].as_u64().unwrap();
    assert!(clock(&first) < clock(&second));
    let day = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let told = second["unix_time_ms"].as_u64().unwrap();
    assert!(told <= day && day - told < 600_000, "{told} of {day}");
    let two = &second["controllers"][1];
    assert_eq!(two["name"], "two");
    assert_eq!(
        two["commands"],
        serde_json::json!({ "read": 3, "write": 5 })
    );
    assert_eq!(
        two["bytes"],
        serde_json::json!({ "read": 3 * 4096, "write": 5 * 4096 })
    );
    assert_eq!(
        metrics["nvmirage_controller_commands_total{controller=\"two\",op=\"read\"}"],
        3.0
    );

    // a queue is there while its host has it: one good read, and one past the end
    let namespace = host.device().namespace(1).unwrap();
    let mut queue = host.device().create_queue_pair(4, false).unwrap();
    let buffer = host.device().alloc(4096).unwrap();
    queue.read(&namespace, 0, 1, &buffer).unwrap();
    let block = Blocks::new(1).unwrap();
    let past = namespace.transfer(NvmOpcode::READ, namespace.blocks, block, false);
    assert!(queue.run("read past the end", past).is_err());
    let shown = &stats()["controllers"][1]["completion_queues"];
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
    for (key, value) in [("queue", 1), ("reactor", 1), ("commands", 2), ("errors", 1)] {
        assert_eq!(shown[0][key], value, "{key} of {shown}");
    }
    let errors = |stats: serde_json::Value| stats["controllers"][1]["errors_by_status"].clone();
    let out_of_range =
        serde_json::json!([{ "status": "LBA Out of Range (sct 0h, sc 80h)", "count": 1 }]);
    assert_eq!(errors(stats()), out_of_range);

    // One command of 256 is watched, and 511 of them lie between two at most.
    const READS: u64 = 4000;
    for lba in 0..READS {
        queue.read(&namespace, lba % 8, 1, &buffer).unwrap();
    }
    let control = world.unix("control");
    let show = |args: &[&str]| {
        let mut all = vec!["latency", "two", "--control", &control];
        all.extend(args);
        world.ok(&all)
    };
    let report: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    let commands = report["commands"].as_array().unwrap();
    let status = "Successful Completion (sct 0h, sc 00h)";
    let is_read = |one: &&serde_json::Value| one["opcode"] == 2 && one["status"] == status;
    let reads: Vec<_> = commands.iter().filter(is_read).collect();
    assert!(reads.len() as u64 >= READS / 511, "{}", reads.len());
    // Earlier commands may be watched as well: five writes, and the read past the end.
    assert!(commands.len() - reads.len() <= 6, "{commands:?}");
    for one in reads {
        let of = |key: &str| one[key].as_u64().unwrap();
        assert!(of("lba") < 8 && of("latency_ns") > 0, "{one}");
        assert_eq!(
            [of("queue"), of("opcode"), of("nsid"), of("bytes")],
            [1, 2, 1, 4096]
        );
        assert_eq!((of("depth"), one["status"].as_str()), (1, Some(status)));
    }
    let text = show(&["--last", "3"]);
    for word in ["read ", "p99.9", "medium", "LBA Out of Range", "Read"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let error = world.fails(&["latency", "three", "--control", &control]);
    assert!(error.contains("`three`"), "{error}");
    host.device().delete_queue_pair(queue).unwrap();
    // also of queues that are gone
    let metrics = samples(&world.ask("GET /metrics", &[], "").is(200).body);
    let of = |name: &str, more: &str| {
        metrics[&format!(
            "nvmirage_namespace_{name}_total{{namespace=\"b\",controller=\"two\"{more}}}"
        )]
    };
    assert_eq!(of("commands", ",op=\"read\""), 3.0 + 1.0 + READS as f64);
    assert_eq!(of("commands", ",op=\"write\""), 5.0);
    assert_eq!(of("errors", ""), 1.0);
    let watched = stats();
    assert_eq!(errors(watched.clone()), out_of_range);
    let watched = &watched["controllers"][1];
    let [read, write, other] = [0, 1, 2].map(|at| &watched["latency"][at]);
    assert_eq!(
        [read, write, other].map(|one| one["operation"].as_str().unwrap()),
        ["read", "write", "other"]
    );
    let again: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    assert_eq!(again["commands"], report["commands"]);
    let count = |of: &serde_json::Value| of["count"].as_u64().unwrap();
    assert!((READS / 511..READS / 8).contains(&count(read)), "{read}");
    let buckets = read["buckets"].as_array().unwrap();
    let counts: u64 = buckets.iter().map(|one| one[1].as_u64().unwrap()).sum();
    assert_eq!(counts, count(read));
    let most: u64 = buckets
        .iter()
        .map(|one| one[0].as_u64().unwrap() * one[1].as_u64().unwrap())
        .sum();
    let sum = |of: &serde_json::Value| of["sum_ns"].as_u64().unwrap();
    assert!(sum(read) > 0 && sum(read) <= most, "{read}");
    let stages = watched["stages"].as_array().unwrap();
    let words: Vec<_> = stages
        .iter()
        .map(|one| one["stage"].as_str().unwrap())
        .collect();
    let known = [
        "ring",
        "fairness",
        "translation",
        "medium",
        "model",
        "interrupt",
    ];
    assert_eq!(words, known);
    // The times of its stages add up to those of the commands, except for the interrupt, which
    // comes after.
    let latencies = sum(read) + sum(write) + sum(other);
    assert_eq!(stages[..5].iter().map(sum).sum::<u64>(), latencies);
}
