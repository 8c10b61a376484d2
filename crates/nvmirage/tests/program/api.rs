//! Objects of the control socket by name: read, made twice, changed under a condition, refused.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{BOUND, World};

/// A server with a medium, half of which a namespace has, that a controller has.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "ram"
size = "64MiB"

[media.timing]
preset = "optane-p4800x"

[[namespace]]
name = "half"
media = "disk"
range = "0MiB..32MiB"

[[tenant]]
name = "gold"
weight = 300

[[controller]]
name = "vm"
namespaces = ["half"]
listen = "vfio-user:vm.sock"
"#;

#[test]
fn objects_have_names_tags_and_conditions() {
    let world = World::new();
    let config = world.write("nvmirage.toml", CONFIG);
    let server = world.serve(&["--config", config.to_str().unwrap()]);

    // every kind, as a list and by name; each has the tag of its list's object
    for (path, key, name) in [
        ("media", "name", json!("disk")),
        ("namespaces", "name", json!("half")),
        ("tenants", "name", json!("gold")),
        ("controllers", "name", json!("vm")),
        ("reactors", "reactor", json!(0)),
    ] {
        let list = world
            .ask(&format!("GET /v1/{path}"), &[], "")
            .is(200)
            .json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list[0][key], name, "{list}");
        let place = name.to_string().replace('"', "");
        let one = world
            .ask(&format!("GET /v1/{path}/{place}"), &[], "")
            .is(200);
        assert_eq!(one.json()[key], name);
        assert!(one.header("etag").unwrap().starts_with('"'), "{one:?}");
        let other = world.ask(&format!("GET /v1/{path}/7"), &[], "");
        other.refuses(404, "`7`");
    }
    let nobody: Value = world.ask("GET /v1/hosts", &[], "").is(200).json();
    assert_eq!(nobody, json!([]));
    world.ask("GET /v1/hosts/vm", &[], "").refuses(404, "`vm`");
    assert_eq!(
        world.ask("GET /v1/partitions", &[], "").is(200).json(),
        json!([])
    );

    make_twice(&world);
    change_on_condition(&world);

    // what is no request says what it should be, and where
    let wrong = world.ask(
        "POST /v1/media",
        &[],
        r#"{"name": "b", "kind": "ram", "sise": "1GiB"}"#,
    );
    wrong.refuses(422, "did you mean `size`?");
    assert_eq!(wrong.json()["errors"][0]["pointer"], "/sise");
    let wrong = world.ask("PUT /v1/media/b", &[], r#"{"kind": "ram", "size": 5}"#);
    wrong.refuses(422, "in quotes with a unit");
    assert_eq!(wrong.json()["errors"][0]["pointer"], "/size");
    let wrong = world.ask("PUT /v1/media/b", &[], r#"{"kind": "ram"}"#);
    wrong.refuses(422, "needs a size");
    assert_eq!(wrong.json()["errors"][0]["object"], "media b");
    let wrong = world.ask("PUT /v1/media/b", &[], r#"{"name": "c", "kind": "ram"}"#);
    wrong.refuses(422, "the path says `b`");
    let wrong = world.ask("PATCH /v1", &[], "");
    wrong.refuses(405, "`Allow`");
    assert!(wrong.header("allow").unwrap().contains("get"), "{wrong:?}");
    world.ask("GET /v2", &[], "").refuses(404, "/openapi.json");
    server.stop();
}

/// An object that exists with the same keys is confirmed; a difference is rejected, and named.
fn make_twice(world: &World) {
    let put = |path: &str, body: &str| world.ask(&format!("PUT /v1/{path}"), &[], body);
    let medium = r#"{"kind": "ram", "size": "16MiB"}"#;
    let made = put("media/more", medium).is(201);
    assert_eq!(made.json()["bytes"], 16 << 20);
    let again = put("media/more", medium).is(200);
    assert_eq!(again.header("etag"), made.header("etag"));
    put("media/more", r#"{"kind": "ram", "size": "17MiB"}"#)
        .refuses(409, r#"`size` is "16MiB", not "17MiB""#);

    let namespace = r#"{"media": "more"}"#;
    put("namespaces/all", namespace).is(201);
    put("namespaces/all", namespace).is(200);
    let controller = r#"{"listen": "vfio-user:more.sock"}"#;
    put("controllers/more", controller).is(201);
    put("controllers/more", controller).is(200);
    let place = "controllers/more/namespaces/all";
    put(place, "").is(204);
    put(place, "").is(204);
    // it is the same still, although it has a namespace more than was said
    put("controllers/more", controller).is(200);
    let tenant = r#"{"weight": 7}"#;
    put("tenants/tin", tenant).is(201);
    put("tenants/tin", tenant).is(200);

    // one that is to be new is not confirmed
    let new = [("If-None-Match", "*")];
    world
        .ask("PUT /v1/tenants/tin", &new, tenant)
        .refuses(412, "already");
    world.ask("PUT /v1/tenants/lead", &new, tenant).is(201);
    world
        .ask("POST /v1/tenants", &[], r#"{"name": "lead"}"#)
        .refuses(409, "already");
}

/// A change is made to what was looked at, or not at all.
fn change_on_condition(world: &World) {
    for (path, change) in [
        ("media/disk", json!({"timing": {"read_latency": "77us"}})),
        ("namespaces/half", json!({"size": "24MiB", "shrink": true})),
        ("tenants/gold", json!({"changes": {"weight": "400"}})),
    ] {
        let show = || world.ask(&format!("GET /v1/{path}"), &[], "").is(200);
        let patch = |tag: &str| {
            let headers = [("If-Match", tag)];
            world.ask(&format!("PATCH /v1/{path}"), &headers, &change.to_string())
        };
        let before = show();
        let tag = before.header("etag").unwrap().to_owned();
        patch("\"00\"").refuses(412, "Read it again");
        assert_eq!(
            show().header("etag"),
            Some(&*tag),
            "{path}: it has changed all the same"
        );
        let changed = patch(&format!("\"00\", {tag}")).is(204);
        let after = show();
        assert_ne!(
            after.header("etag"),
            Some(&*tag),
            "{path}: it has not changed"
        );
        assert_eq!(after.header("etag"), changed.header("etag"));
        // a client that has looked before the change cannot change what it has not seen
        patch(&tag).refuses(412, "has changed since it was read");
        let delete = world.ask(&format!("DELETE /v1/{path}"), &[("If-Match", &tag)], "");
        delete.refuses(412, "has changed since it was read");
    }
    // what a drive counts changes no tag
    let tag = |reply: crate::http::Reply| reply.header("etag").map(str::to_owned);
    let before = tag(world.ask("GET /v1/reactors/0", &[], ""));
    world.ok(&["identify", "--target", &world.vfio_user("vm.sock")]);
    assert_eq!(tag(world.ask("GET /v1/reactors/0", &[], "")), before);

    // what is in use stays, with or without the right tag
    world
        .ask("DELETE /v1/media/disk", &[], "")
        .refuses(409, "holds namespace `half`");
    let any = [("If-Match", "*")];
    world
        .ask("DELETE /v1/namespaces/half", &any, "")
        .refuses(409, "is in controller `vm`");
    world.ask("DELETE /v1/tenants/gold", &any, "").is(204);
    world
        .ask("DELETE /v1/tenants/gold", &any, "")
        .refuses(404, "`gold`");
}

#[test]
fn the_description_is_served() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let reply = world.ask("GET /openapi.json", &[], "").is(200);
    let book = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../book/src/reference/openapi.json"
    );
    assert_eq!(reply.body, std::fs::read_to_string(book).unwrap());
    assert_eq!(reply.json()["openapi"], "3.1.0");
    server.stop();
}

#[test]
fn what_was_counted_before_one_asks_is_there() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let ask = || world.ask("GET /v1/stats/history", &[], "").is(200).json();
    let end = Instant::now() + BOUND;
    let samples = loop {
        let samples = ask().as_array().unwrap().clone();
        if samples.len() >= 2 {
            break samples;
        }
        assert!(Instant::now() < end, "{samples:?}");
        thread::sleep(Duration::from_millis(200));
    };
    let now = world.ask("GET /v1/stats", &[], "").is(200).json();
    let keys = |stats: &Value| {
        stats
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    for sample in &samples {
        assert_eq!(keys(sample), keys(&now));
        assert_eq!(sample["controllers"].as_array().unwrap().len(), 1);
    }
    let time = |stats: &Value| stats["time_ns"].as_u64().unwrap();
    let apart = time(&samples[1]) - time(&samples[0]);
    assert!(apart >= 4_000_000_000, "{apart} ns");
    assert!(time(&now) >= time(&samples[1]));
    server.stop();
}
