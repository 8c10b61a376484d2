//! Control under abuse: what is no request, what is too much, who may not ask. The server answers
//! clearly, within its memory, and serves as before.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::http::Reply;
use crate::world::{BOUND, Server, World};

/// Requests at once.
const AT_ONCE: usize = 1000;
/// Memory that control may add to the server's, whatever it is sent: bodies of 16 MiB, connections
/// and threads.
const MOST_KIB: u64 = 64 << 10;

/// Memory that the server has, in KiB (proc_pid_status(5)).
fn resident_kib(server: &mut Server) -> u64 {
    let path = format!("/proc/{}/status", server.child().id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.unwrap().parse().unwrap()
}

/// Sends these bytes as they are, and reads what comes back.
fn send(world: &World, bytes: &[u8]) -> Reply {
    let mut stream = world.connect();
    // a server that has heard enough closes while more is sent
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    Reply::of(&reply)
}

#[test]
fn whatever_is_sent_it_says_what_is_wrong_and_serves_on() {
    let world = World::new();
    let mut server = world.serve_media("ram:size=16MiB");
    let before = world.inventory();
    world.ask("GET /openapi.json", &[], "").is(200);
    let at_rest = resident_kib(&mut server);

    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!(
        r#"{{"name": "{}", "kind": "ram", "size": "1GiB"}}"#,
        "x".repeat(900_000)
    );
    let bodies: [(&str, u16, &str); 9] = [
        ("", 422, "EOF"),
        ("{", 422, "EOF"),
        ("nvme", 422, "line 1"),
        ("[1, 2]", 422, "expected a table of keys"),
        (
            r#"{"name": 7, "kind": "ram"}"#,
            422,
            "expected text in quotes",
        ),
        (
            r#"{"name": "a", "kind": {"ram": {}}, "size": "1GiB"}"#,
            422,
            "invalid type",
        ),
        (
            r#"{"name": "a", "kind": "ram", "size": "1GiB", "color": "red"}"#,
            422,
            "unknown key `color`",
        ),
        (
            r#"{"name": "a", "kind": "ram", "size": "1GiB"} {}"#,
            422,
            "trailing",
        ),
        (&long, 422, "letters"),
    ];
    for (body, status, words) in bodies {
        let refused = world.ask("POST /v1/media", &[], body);
        refused.refuses(status, words);
        assert!(refused.body.len() < 64 << 10, "it says it all once more");
    }
    let nested = world.ask("PUT /v1/media/a", &[], &deep);
    nested.refuses(422, "recursion limit");
    world
        .ask("PATCH /v1/tenants/nobody", &[], r#"{"changes": {}}"#)
        .refuses(404, "`nobody`");
    world
        .ask("DELETE /v1/media/disk", &[], "")
        .refuses(409, "holds namespace `ns1`");
    world
        .ask("DELETE /v1/namespaces/ns1", &[], "")
        .refuses(409, "is in controller `nvme0`");

    // what no route reads
    for (request, body, words) in [
        ("GET /v1/media?foo=1", "", "no parameters"),
        ("POST /v1/media?dry_run=true", "{}", "no parameters"),
        (
            "DELETE /v1/media/disk",
            r#"{"detach_hosts": true}"#,
            "no body",
        ),
        ("GET /v1", "{}", "no body"),
        ("GET /v1/events?sicne=4", "", "sicne"),
    ] {
        world.ask(request, &[], body).refuses(422, words);
    }

    // bodies that are too large, said beforehand or not
    let huge = "POST /v1/media HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\n";
    send(&world, huge.as_bytes()).refuses(413, "1024 KiB");
    let mut chunked = b"POST /v1/media HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..40 {
        chunked.extend(b"10000\r\n");
        chunked.extend([b' '; 0x10000]);
        chunked.extend(b"\r\n");
    }
    send(&world, &chunked).refuses(413, "1024 KiB");
    // what is no HTTP, and a head without an end
    assert!(matches!(
        send(&world, b"\x16\x03\x01\x02\x00\x01\x00").status,
        0 | 400
    ));
    let head = format!(
        "GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: {}",
        "x".repeat(1 << 20)
    );
    assert!(matches!(
        send(&world, head.as_bytes()).status,
        0 | 400 | 431
    ));
    let many = format!(
        "GET /v1 HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X: y\r\n".repeat(500)
    );
    assert!(matches!(send(&world, many.as_bytes()).status, 400 | 431));

    crowd(&world);
    let used = resident_kib(&mut server);
    assert!(used < at_rest + MOST_KIB, "{at_rest} KiB became {used} KiB");
    assert_eq!(world.inventory(), before);
    world.ok(&["identify", "--target", &world.vfio_user("nvme.sock")]);
    server.stop();
}

/// A thousand requests at once, beside clients that send half of one, or do not read what they ask
/// for.
fn crowd(world: &World) {
    // they may take all places there are, and then others wait until the server closes them: fewer
    // are
    let mut silent: Vec<UnixStream> = (0..60).map(|_| world.connect()).collect();
    for stream in &mut silent[..20] {
        stream
            .write_all(
                b"POST /v1/media HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{",
            )
            .unwrap();
    }
    for stream in &mut silent[20..40] {
        stream.set_nonblocking(true).unwrap();
        let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
        // as many as it takes
        while matches!(stream.write(request), Ok(len) if len > 0) {}
    }
    let path = world.path("control");
    let asking: Vec<_> = (0..AT_ONCE)
        .map(|index| {
            let path = path.clone();
            thread::Builder::new().stack_size(64 << 10).spawn(move || {
                let mut stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(BOUND)).unwrap();
                let request = match index % 3 {
                    0 => "GET /v1".to_owned(),
                    1 => format!("DELETE /v1/media/m{index}"),
                    _ => "GET /v1/controllers/nvme0".to_owned(),
                };
                write!(
                    stream,
                    "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                .unwrap();
                let mut reply = Vec::new();
                stream.read_to_end(&mut reply).unwrap();
                Reply::of(&reply).status
            })
        })
        .map(Result::unwrap)
        .collect();
    for (index, asking) in asking.into_iter().enumerate() {
        let wanted = if index % 3 == 1 { 404 } else { 200 };
        assert_eq!(asking.join().unwrap(), wanted);
    }
    drop(silent);
}

/// Where a server listens for control over TCP.
fn address(server: &Server) -> SocketAddr {
    let begun = Instant::now();
    loop {
        let log = server.log();
        let said = log.split("control at http://").nth(1);
        if let Some(said) = said.and_then(|said| said.split(',').next()) {
            return said.parse().unwrap();
        }
        assert!(begun.elapsed() < BOUND, "{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn over_tcp_it_takes_the_token_and_the_address() {
    let world = World::new();
    let config = "control = {tcp = \"127.0.0.1:0\", token_file = \"token\"}\n";
    let config = world.write("nvmirage.toml", config);
    let server = world.serve(&["--config", config.to_str().unwrap()]);
    let address = address(&server);
    assert!(address.ip().is_loopback());
    let token = std::fs::read_to_string(world.path("token")).unwrap();
    let token = token.trim();
    let mode = std::fs::metadata(world.path("token"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let ask = |path: &str, host: &str, authorization: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{authorization}\r\n"
        )
        .unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        Reply::of(&reply)
    };
    let right = format!("Authorization: Bearer {token}\r\n");
    let host = address.to_string();
    assert!(ask("/v1", &host, &right).is(200).json()["media"].is_array());
    ask("/v1", &format!("localhost:{}", address.port()), &right).is(200);
    let other = format!(
        "Authorization: Bearer {}{}\r\n",
        &token[..63],
        if token.ends_with('0') { '1' } else { '0' }
    );
    for wrong in ["", &other, &format!("Authorization: Basic {token}\r\n")] {
        for path in ["/v1", "/openapi.json", "/v1/media", "/dashboard/"] {
            let refused = ask(path, &host, wrong);
            refused.refuses(401, "Authorization: Bearer");
            assert_eq!(refused.header("www-authenticate"), Some("bearer"));
        }
    }
    // the dashboard's page names nothing that is served, and asks for the token itself
    ask("/", &host, "").is(200);
    ask("/assets/none.js", &host, "")
        .refuses(404, "from another version of this server: reload it");
    // a page whose name was made to resolve here sends that name
    for path in ["/v1", "/"] {
        ask(path, "evil.example", &right).refuses(421, "another site");
    }
    // who can read the file is who may steer: one that others can read is refused
    server.stop();
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(world.path("token"), open).unwrap();
    let error = world.fails(&world_serve(&world, config.to_str().unwrap()));
    assert!(error.contains("chmod 600"), "{error}");
}

fn world_serve(world: &World, config: &str) -> Vec<String> {
    world.steer(&["serve", "--config", config])
}

#[test]
fn only_its_user_and_root_may_steer_whatever_the_sockets_mode() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    for (path, mode) in [("", 0o755), ("control", 0o666)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(world.path(path), mode).unwrap();
    }
    world.ask("GET /v1", &[], "").is(200);
    if rustix::process::geteuid().is_root() {
        let mut other = world.program();
        other.args(world.steer(&["ls"])).uid(65534).gid(65534);
        let other = crate::world::ran(other.output().unwrap());
        assert!(
            other.err.contains("only the user that the server runs as"),
            "{}",
            other.err
        );
        assert_eq!(other.status.code(), Some(1));
        assert_eq!(other.out, "");
    }
    // an unprivileged test cannot run as another user: there the rule's own test stands for it
    server.stop();
}
