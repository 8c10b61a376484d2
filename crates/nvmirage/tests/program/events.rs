//! Events of a running server: told in order, from where one was, and lost where one is too late.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::Value;

use crate::world::World;

#[test]
fn what_happens_is_told_in_order_and_from_where_one_was() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    // one that waits hears of what comes; what was before it does not
    let mut waiting = world.connect();
    write!(
        waiting,
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    .unwrap();
    let mut waiting = BufReader::new(waiting);
    let mut line = String::new();
    while waiting.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }

    world.ok(&world.steer(&["create", "media", "m", "--kind", "ram", "--size", "16MiB"]));
    world.ok(&world.steer(&[
        "create",
        "namespace",
        "n",
        "--media",
        "m",
        "--range",
        "0MiB..8MiB",
    ]));
    world.ok(&world.steer(&["attach", "n", "nvme0"]));
    world.ok(&world.steer(&["resize", "n", "16MiB"]));
    world.ok(&["identify", "--target", &world.vfio_user("nvme.sock")]);
    world.fails(&world.steer(&["delete", "media", "m"]));
    world.ok(&world.steer(&["detach", "n", "nvme0"]));
    world.ok(&world.steer(&["delete", "namespace", "n"]));
    world.ok(&world.steer(&["delete", "media", "m"]));

    let told = world.ok(&world.steer(&["events", "--since", "0", "--count", "9", "--json"]));
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let words = |event: &Value| {
        let word = |key: &str| event[key].as_str().unwrap().to_owned();
        [word("event"), word("kind"), word("name")].join(" ")
    };
    let happened = [
        "created media m",
        "created namespace n",
        "changed controller nvme0",
        "changed namespace n",
        "host-attached controller nvme0",
        "host-detached controller nvme0",
        "changed controller nvme0",
        "deleted namespace n",
        "deleted media m",
    ];
    assert_eq!(told.iter().map(words).collect::<Vec<_>>(), happened);
    for (index, event) in told.iter().enumerate() {
        assert_eq!(event["id"], index + 1);
    }
    let times: Vec<u64> = told
        .iter()
        .map(|event| event["time_ns"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");

    // the one that has waited has had the same
    let mut heard = Vec::new();
    while heard.len() < happened.len() {
        line.clear();
        assert!(waiting.read_line(&mut line).unwrap() > 0, "it ends");
        if let Some(data) = line.trim().strip_prefix("data:") {
            heard.push(serde_json::from_str::<Value>(data.trim()).unwrap());
        }
    }
    assert_eq!(heard, told);
    // who comes back goes on where it was, in words, too
    let words = world.ok(&world.steer(&["events", "--since", "8", "--count", "1"]));
    assert!(
        words.contains("deleted") && words.contains("media m"),
        "{words}"
    );
    let mut back = world.connect();
    write!(
        back,
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 7\r\n\r\n"
    )
    .unwrap();
    let mut bytes = [0; 4096];
    let mut text = String::new();
    while !text.contains("\"id\":8") {
        let len = back.read(&mut bytes).unwrap();
        assert!(len > 0, "it ends: {text}");
        text += &String::from_utf8_lossy(&bytes[..len]);
    }
    assert!(!text.contains("\"id\":7"), "{text}");
    world
        .ask("GET /v1/events?since=x", &[], "")
        .refuses(422, "since=ID");

    // more than it remembers: a client that was at the start reads that some are gone, and is cut
    let one = r#"{"name": "t"}"#;
    for _ in 0..520 {
        world.ask("PUT /v1/tenants/t", &[], one).is(201);
        world.ask("DELETE /v1/tenants/t", &[], "").is(204);
    }
    let lost = world.fails(&world.steer(&["events", "--since", "0"]));
    assert!(lost.contains("25 events are lost"), "{lost}");
    server.stop();
}
