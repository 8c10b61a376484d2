//! The dashboard's page, what it asks beside the rest of the API, and the way to it of a server
//! without TCP. Its pictures are tested in a browser (`web/test`).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::http::Reply;
use crate::world::{BOUND, World, wait};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Files that a page names.
fn files(page: &str) -> Vec<&str> {
    let names = page.split('"').filter(|word| word.starts_with("/assets/"));
    names.collect()
}

#[test]
fn the_page_is_answered_with_a_policy_and_its_files_are_kept() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let page = world.ask("GET /", &[], "").is(200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "deny"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(page.header(name), Some(value), "{}", page.head);
    }
    assert!(page.body.contains("nvmirage"), "{}", page.body);
    // a program that was built without it has no files, and says so
    let files = files(&page.body);
    assert_eq!(files.is_empty(), page.body.contains("NVMIRAGE_WEB=1"));
    for file in files {
        let file = world.ask(&format!("GET {file}"), &[], "").is(200);
        let kept = Some("public, max-age=31536000, immutable");
        assert_eq!(file.header("cache-control"), kept, "{}", file.head);
        assert_eq!(file.header("content-security-policy"), Some(POLICY));
    }
    let refused = world.ask("GET /assets/none-1.js", &[], "");
    refused.refuses(404, "from another version of this server: reload it");
    for outside in ["/assets/..%2findex.html", "/assets/", "/index.html"] {
        world.ask(&format!("GET {outside}"), &[], "").is(404);
    }
    let refused = world.ask("POST /", &[], "");
    refused.refuses(405, "Allow");
    server.stop();
}

#[test]
fn a_mediums_timing_is_shown_as_it_would_be_written() {
    let world = World::new();
    let linux = "ram:size=64MiB,preset=optane-p4800x,timing.as_measured_by=linux";
    let server = world.serve_media(linux);
    let read_latency = || {
        let timing = world.ask("GET /v1/media/disk/timing", &[], "").is(200);
        let timing = timing.json();
        assert_eq!(timing["preset"], "optane-p4800x");
        assert_eq!(timing["kind"], "nvm");
        let parameters = timing["parameters"].as_array().unwrap().clone();
        let mut all = parameters.into_iter();
        let found = all.find(|one| one["name"] == "read_latency").unwrap();
        for (key, value) in [
            ("unit", "time"),
            ("applies", "live"),
            ("range", "1ns to 10s"),
        ] {
            assert_eq!(found[key], value, "{found}");
        }
        (
            found["value"].as_str().unwrap().to_owned(),
            found["raw"].as_u64().unwrap(),
        )
    };
    // what is read can be written and is the same, also for a drive that Linux has measured
    let (value, raw) = read_latency();
    let change = format!("{{\"timing\": {{\"read_latency\": \"{value}\"}}}}");
    world.ask("PATCH /v1/media/disk", &[], &change).is(204);
    assert_eq!(read_latency(), (value, raw));
    let change = "{\"timing\": {\"read_latency\": \"75us\"}}";
    world.ask("PATCH /v1/media/disk", &[], change).is(204);
    assert_eq!(read_latency(), ("75us".to_owned(), 75_000));

    let plain = "{\"name\": \"plain\", \"kind\": \"ram\", \"size\": \"16MiB\"}";
    world.ask("POST /v1/media", &[], plain).is(201);
    let refused = world.ask("GET /v1/media/plain/timing", &[], "");
    refused.refuses(404, "has no timing");
    let refused = world.ask("GET /v1/media/none/timing", &[], "");
    refused.refuses(404, "no medium `none`");
    server.stop();
}

/// `nvmirage dashboard`, which ends with the test.
pub(crate) struct Dashboard {
    child: Child,
    address: SocketAddr,
    token: String,
}

impl Dashboard {
    pub(crate) fn start(world: &World) -> Self {
        let mut command = world.program();
        command.args(world.steer(&["dashboard"]));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("http://").unwrap();
        let (address, token) = url.split_once("/#token=").unwrap();
        Dashboard {
            child,
            address: address.parse().unwrap(),
            token: token.to_owned(),
        }
    }

    /// Answer to a request of its page.
    pub(crate) fn get(&self, path: &str) -> Reply {
        let right = format!("Authorization: Bearer {}\r\n", self.token);
        let host = self.address.to_string();
        self.ask(&format!("GET {path}"), &host, &right, "").is(200)
    }

    fn ask(&self, request: &str, host: &str, headers: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        Reply::of(&reply)
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_way_to_it_passes_on_what_has_its_token_and_address_alone() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut dashboard = Dashboard::start(&world);
    assert!(dashboard.address.ip().is_loopback());
    let host = dashboard.address.to_string();
    let right = format!("Authorization: Bearer {}\r\n", dashboard.token);
    let ask = |request: &str, host: &str, headers: &str| dashboard.ask(request, host, headers, "");

    let there = ask("GET /v1", &host, &right).is(200).json();
    assert_eq!(there["media"][0]["name"], "disk");
    let page = ask("GET /", &host, "").is(200);
    assert_eq!(page.header("content-security-policy"), Some(POLICY));
    for wrong in [
        "",
        "Authorization: Bearer 00000000000000000000000000000000\r\n",
    ] {
        ask("GET /v1", &host, wrong).refuses(401, "Authorization: Bearer");
        ask("DELETE /v1/media/disk", &host, wrong).refuses(401, "Authorization: Bearer");
        ask("POST /", &host, wrong).refuses(401, "Authorization: Bearer");
    }
    // a page whose name was made to resolve here sends that name: it gets neither
    ask("GET /v1", "evil.example", &right).refuses(421, "another site");
    ask("GET /", "evil.example", "").refuses(421, "another site");
    // what the server refuses comes through as it is, and so do bodies
    let refused = dashboard.ask("POST /v1/media", &host, &right, "{\"kind\": 1}");
    assert_eq!(refused.status, 422, "{refused:?}");
    ask("DELETE /v1/media/disk", &host, &right).refuses(409, "holds namespace");
    let made = "{\"name\": \"m2\", \"kind\": \"ram\", \"size\": \"16MiB\"}";
    dashboard.ask("POST /v1/media", &host, &right, made).is(201);

    // a second run has a token of its own
    let other = Dashboard::start(&world);
    assert_ne!(other.token, dashboard.token);
    let right_there = format!("Authorization: Bearer {}\r\n", other.token);
    ask("GET /v1", &host, &right_there).refuses(401, "Authorization: Bearer");

    server.stop();
    ask("GET /v1", &host, &right).refuses(502, "no answer from the server");
    let pid = Pid::from_child(&dashboard.child);
    kill_process(pid, Signal::INT).unwrap();
    assert!(wait(&mut dashboard.child).success());
}

#[test]
fn the_way_to_it_is_for_this_machine_and_a_server_that_runs() {
    let world = World::new();
    let error = world.fails(&world.steer(&["dashboard"]));
    assert!(error.contains("start `nvmirage serve`"), "{error}");
    let server = world.serve_media("ram:size=16MiB");
    let error = world.fails(&world.steer(&["dashboard", "--address", "0.0.0.0:0"]));
    assert!(error.contains("write 127.0.0.1:0"), "{error}");
    server.stop();
}
