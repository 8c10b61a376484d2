//! Native histograms, as Prometheus itself reads and computes them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use guest_rig::prometheus::prometheus;
use serde_json::Value;

use crate::http::Reply;
use crate::world::{BOUND, World};

/// A program that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // both fail only where it has ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of this machine that no process listens on.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(BOUND)).unwrap();
    // HTTP/1.0: the answer comes in one piece
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    Some(Reply::of(&reply))
}

/// Asks Prometheus until it has a number.
fn query(address: SocketAddr, query: &str) -> f64 {
    let escaped: String = query
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    let deadline = Instant::now() + BOUND;
    let mut last = None;
    while Instant::now() < deadline {
        let reply = get(address, &format!("/api/v1/query?query={escaped}"));
        if let Some(reply) = reply.filter(|reply| reply.status == 200) {
            let value = reply.json();
            let number = &value["data"]["result"][0]["value"][1];
            if let Some(number) = number.as_str() {
                return number.parse().unwrap();
            }
            last = Some(value);
        }
        thread::sleep(Duration::from_millis(200));
    }
    panic!("{query}: {last:?}");
}

/// The largest value of the bucket in which the value of this rank lies, and the count of all.
fn percentile(latency: &Value, rank: f64) -> (f64, u64) {
    let buckets = latency["buckets"].as_array().unwrap();
    let pair = |bucket: &Value| (bucket[0].as_u64().unwrap(), bucket[1].as_u64().unwrap());
    let count: u64 = buckets.iter().map(|bucket| pair(bucket).1).sum();
    let mut before = 0;
    for (last, has) in buckets.iter().map(pair) {
        before += has;
        if before as f64 >= rank * count as f64 {
            return (last as f64 / 1e9, count);
        }
    }
    panic!("{latency} has no value");
}

#[test]
fn prometheus_computes_the_percentiles_that_the_server_has() {
    let world = World::new();
    let address = free_address();
    let config = format!(
        r#"
control = {{tcp = "{address}", token_file = "token"}}
[[media]]
name = "low"
kind = "ram"
size = "64MiB"
[media.timing]
preset = "optane-p4800x"
[[namespace]]
name = "low"
media = "low"
[[controller]]
name = "low"
namespaces = ["low"]
listen = "vfio-user:low.sock"
"#
    );
    let file = world.write("low.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let target = world.vfio_user("low.sock");
    world.json(&[
        "bench", "--target", &target, "--qd", "32", "--time", "3s", "--json",
    ]);

    let token = world.path("token");
    let scrape = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: nvmirage\n    authorization: {{credentials_file: {}}}\n    static_configs: [{{targets: [\"{address}\"]}}]\n",
        token.display()
    );
    let file = world.write("prometheus.yml", &scrape);
    let web = free_address();
    let log = std::fs::File::create(world.path("prometheus.log")).unwrap();
    let mut command = prometheus().unwrap().command();
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            world.path("tsdb").display()
        ))
        .arg(format!("--web.listen-address={web}"))
        .arg("--enable-feature=native-histograms")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let _prometheus = Running(command.spawn().unwrap());

    let labels = "{controller=\"low\",op=\"read\"}";
    let family = format!("nvmirage_controller_latency_seconds{labels}");
    let report = world
        .ask("GET /v1/controllers/low/latency", &[], "")
        .is(200)
        .json();
    let reads = report["latency"].as_array().unwrap().iter();
    let mut reads = reads.filter(|one| one["operation"] == "read");
    let reads = reads.next().unwrap();
    for rank in [0.5, 0.9] {
        let asked = query(web, &format!("histogram_quantile({rank}, {family})"));
        let (known, count) = percentile(reads, rank);
        assert!(count >= 20, "{count}");
        // half a bucket of ours to where it is taken to be, and a bucket of theirs from there:
        // decision 43
        let error = (1.0 + 1.0 / 32.0) * (1.0f64 / 16.0).exp2();
        assert!(
            asked <= known * error && known <= asked * error,
            "{rank}: Prometheus has {asked} s, the server {known} s; {}",
            std::fs::read_to_string(world.path("prometheus.log")).unwrap()
        );
    }
    let (_, count) = percentile(reads, 0.5);
    assert_eq!(
        query(web, &format!("histogram_count({family})")),
        count as f64
    );
    let sum = reads["sum_ns"].as_u64().unwrap() as f64 / 1e9;
    let told = query(web, &format!("histogram_sum({family})"));
    assert!((told - sum).abs() < 1e-9, "{told} {sum}");
    // what is no histogram comes in the same form, under the names that text has
    assert_eq!(
        query(web, "nvmirage_medium_size_bytes{media=\"low\"}"),
        f64::from(64 << 20)
    );
    let commands = query(
        web,
        "nvmirage_model_commands_total{media=\"low\",op=\"read\"}",
    );
    assert!(commands >= count as f64 * 50.0, "{commands}");
    server.stop();
}
