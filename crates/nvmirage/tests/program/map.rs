//! Maps of media: their models, zones and pairs, against the commands that were sent.

use nvme_spec::zoned::{ZoneSendAction, ZoneState};
use serde_json::Value;

use crate::every_kind::{Drive, pattern};
use crate::metrics::samples;
use crate::world::World;

const FLASH: &str = r#"
[[media]]
name = "flash"
kind = "null"
size = "256MiB"
[media.timing]
preset = "samsung-970-pro"
block = "128KiB"
[[namespace]]
name = "flash"
media = "flash"
[[controller]]
name = "flash"
namespaces = ["flash"]
listen = "vfio-user:flash.sock"
"#;

fn map(world: &World, path: &str) -> Value {
    let request = format!("GET /v1/media/{path}");
    world.ask(&request, &[], "").is(200).json()
}

fn stats(world: &World) -> Value {
    let stats = world.ask("GET /v1/stats", &[], "").is(200).json();
    stats["media"][0].clone()
}

fn metrics(world: &World) -> std::collections::BTreeMap<String, f64> {
    samples(&world.ask("GET /metrics", &[], "").is(200).body)
}

#[test]
fn zones_are_as_a_host_is_told() {
    const ZONE: u64 = 512;
    let config = r#"
[[media]]
name = "zns"
kind = "ram"
size = "16MiB"
[media.zoned]
zone_size = "2MiB"
zone_capacity = "1152KiB"
max_open = 3
max_active = 5
[media.timing]
preset = "zns-prototype"
zone_size = "2MiB"
zone_capacity = "1152KiB"
[[namespace]]
name = "z"
media = "zns"
[[controller]]
name = "zns"
namespaces = ["z"]
listen = "vfio-user:zns.sock"
"#;
    let world = World::new();
    let file = world.write("zns.toml", config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let mut drive = Drive::attach(&world, "zns");
    drive.append(0, &pattern(1)).unwrap();
    drive.append(0, &pattern(2)).unwrap();
    drive.send(ZONE, ZoneSendAction::OPEN);
    drive.append(2 * ZONE, &pattern(3)).unwrap();
    drive.send(2 * ZONE, ZoneSendAction::CLOSE);
    drive.append(3 * ZONE, &pattern(4)).unwrap();
    drive.send(3 * ZONE, ZoneSendAction::FINISH);
    drive.append(5 * ZONE, &pattern(5)).unwrap();
    drive.send(5 * ZONE, ZoneSendAction::RESET);
    let body = r#"{"zones": {"6": "read-only", "7": "offline"}}"#;
    world.ask("PATCH /v1/media/zns", &[], body).is(204);

    let map = map(&world, "zns/map");
    let zones = &map["zones"];
    let list = zones["list"].as_array().unwrap();
    assert_eq!(list.len(), 8);
    let mut counted = std::collections::BTreeMap::new();
    for (number, zone) in (0..).zip(list) {
        let (told, _) = drive.zone(number * ZONE);
        let word = match told.state.zs() {
            ZoneState::EMPTY => "empty",
            ZoneState::IMPLICITLY_OPENED => "implicitly-opened",
            ZoneState::EXPLICITLY_OPENED => "explicitly-opened",
            ZoneState::CLOSED => "closed",
            ZoneState::FULL => "full",
            ZoneState::READ_ONLY => "read-only",
            ZoneState::OFFLINE => "offline",
            other => panic!("{other:?}"),
        };
        assert_eq!(zone["state"], word, "zone {number}");
        assert_eq!(zone["start_lba"], told.zslba);
        let pointer = zone["write_pointer"].as_u64();
        let has_pointer = !["full", "read-only", "offline"].contains(&word);
        assert_eq!(pointer, has_pointer.then_some(told.wp), "zone {number}");
        *counted.entry(word).or_insert(0u64) += 1;
    }
    for (word, count) in &counted {
        assert_eq!(zones["states"][*word], *count, "{word}");
    }
    assert_eq!(zones["open"], 2);
    assert_eq!(zones["active"], 3);
    let some = map_of(&world, "zns/map?cells=2&from=3&count=2");
    assert_eq!(some["list"].as_array().unwrap().len(), 2);
    assert_eq!(some["list"][0]["zone"], 3);
    assert_eq!(some["zones_per_cell"], 4);
    assert_eq!(some["cells"]["lost"], serde_json::json!([0, 2]));
    let scraped = metrics(&world);
    let of =
        |name: &str, labels: &str| scraped[&format!("nvmirage_{name}{{media=\"zns\",{labels}}}")];
    assert_eq!(of("medium_zones", "state=\"read-only\""), 1.0);
    assert_eq!(of("medium_zone_resources", "resource=\"active\""), 3.0);
    assert_eq!(
        of("medium_zone_resources_limit", "resource=\"active\""),
        5.0
    );
    // five appends; open, close, finish and reset
    let asked = &stats(&world)["model"]["commands"];
    assert_eq!((&asked["write"], &asked["zone"]), (&5.into(), &4.into()));
    server.stop();
}

fn map_of(world: &World, path: &str) -> Value {
    map(world, path)["zones"].clone()
}

#[test]
fn pairs_are_as_a_host_is_told() {
    let config = r#"
[[media]]
name = "pairs"
kind = "keyvalue"
size = "4MiB"
max_keys = 100
[media.timing]
preset = "samsung-kvssd"
[[namespace]]
name = "pairs"
media = "pairs"
[[controller]]
name = "kv"
namespaces = ["pairs"]
listen = "vfio-user:kv.sock"
"#;
    let world = World::new();
    let file = world.write("kv.toml", config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let target = world.vfio_user("kv.sock");
    let run = |args: &[&str]| world.ok(&[&["kv", "--target", &target], args].concat());
    run(&["put", "colour", "blue"]);
    run(&["put", "shape", &"round".repeat(200)]);
    run(&["put", "colour", "red"]);
    run(&["put", "gone", "soon"]);
    run(&["del", "gone"]);
    let listed = run(&["ls"]);
    let keys: Vec<_> = listed.lines().collect();
    let map = map(&world, "pairs/map");
    let pairs = &map["pairs"];
    assert_eq!(pairs["pairs"], keys.len());
    assert_eq!(pairs["most_pairs"], 100);
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    assert_eq!(pairs["key_bytes"], bytes);
    assert_eq!(pairs["value_bytes"], "red".len() + 1000);
    // units of 512 bytes: one, and two
    assert_eq!(pairs["used_bytes"], 3 * 512);
    assert_eq!(pairs["free_bytes"], (4 << 20) - 3 * 512);
    assert_eq!(map["namespaces"][0]["bytes"], 4 << 20);
    let scraped = metrics(&world);
    assert_eq!(scraped["nvmirage_medium_pairs{media=\"pairs\"}"], 2.0);
    // four stores and a delete write; the list reads
    let busy = &stats(&world)["model"]["busy"];
    assert_eq!(
        (&busy[0]["work"], &busy[1]["work"]),
        (&"read".into(), &"write".into())
    );
    assert_eq!(busy[1]["operations"], 5);
    server.stop();
}

#[test]
fn a_map_of_other_media_has_no_more_than_they_are_and_bad_questions_are_refused() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let name = stats(&world)["name"].as_str().unwrap().to_owned();
    let map = map(&world, &format!("{name}/map"));
    assert_eq!(map["bytes"], 16 << 20);
    for part in ["model", "flash", "zones", "pairs"] {
        assert!(map.get(part).is_none(), "{map}");
    }
    for (query, status) in [
        ("cells=0", 422),
        ("cells=5000", 422),
        ("cells=many", 422),
        ("count=5000", 422),
        ("from=-1", 422),
    ] {
        let request = format!("GET /v1/media/{name}/map?{query}");
        let reply = world.ask(&request, &[], "").is(status);
        assert!(reply.json()["detail"].is_string(), "{query}");
    }
    world.ask("GET /v1/media/none/map", &[], "").is(404);
    server.stop();
}

mod slow {
    use super::*;

    /// The same commands in the same order, served in real time and simulated in virtual time: what
    /// becomes of pages does not depend on when.
    #[test]
    fn collection_is_what_a_simulation_of_the_same_writes_predicts() {
        let world = World::new();
        let file = world.write("flash.toml", FLASH);
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        let target = world.vfio_user("flash.sock");
        let first = &stats(&world)["model"];
        assert_eq!(first["commands"]["write"], 0);
        let trace = world.path("writes.trace");
        let bench = [
            "bench",
            "--target",
            &target,
            "--destroy-data",
            "--rw",
            "randwrite",
            "--bs",
            "128k",
            "--qd",
            "1",
            "--time",
            "8s",
            "--record-trace",
            trace.to_str().unwrap(),
            "--json",
        ];
        world.json(&bench);
        let predicted = world.json(&[
            "simulate",
            "--preset",
            "samsung-970-pro",
            "--size",
            "256MiB",
            "--set",
            "block=128KiB",
            "--workload",
            trace.to_str().unwrap(),
            "--virtual-time",
            "1h",
            "--json",
        ]);
        let predicted = &predicted["runs"][0]["drive"];
        let now = stats(&world);
        let model = &now["model"];
        let flash = &model["flash"];
        let number = |value: &Value| value.as_u64().unwrap();
        assert!(number(&flash["collected_pages"]) > 1000, "{flash}");
        assert_eq!(flash["host_pages"], predicted["pages_written"]);
        assert_eq!(flash["collected_pages"], predicted["pages_collected"]);
        assert_eq!(flash["erased_lines"], predicted["lines_collected"]);
        assert_eq!(flash["collections"]["foreground"], flash["erased_lines"]);
        assert_eq!(flash["lines"]["free"], predicted["lines_free"]);
        // a write of 128 KiB has 32 pages of 4096 bytes
        assert_eq!(
            number(&model["commands"]["write"]) * 32,
            number(&flash["host_pages"])
        );
        // 8 channels of 2 dies; a block on each die of a partition is erased with a line: 16 dies
        // in 4 partitions
        assert_eq!(
            model["servers"][0],
            serde_json::json!({ "server": "die", "count": 16 })
        );
        let busy = |work: &str| {
            let mut all = model["busy"].as_array().unwrap().iter();
            all.find(|busy| busy["work"] == work).unwrap().clone()
        };
        let erases = busy("erase");
        assert_eq!(
            number(&erases["operations"]),
            4 * number(&flash["erased_lines"])
        );
        // 3 ms each, as the preset says
        assert_eq!(
            number(&erases["busy_ns"]),
            3_000_000 * number(&erases["operations"])
        );
        let programs = number(&busy("program")["operations"]);
        let pages = number(&flash["host_pages"]) + number(&flash["collected_pages"]);
        // 8 pages a wordline, and no more than those that are open are left in memory
        assert!(
            programs * 8 <= pages && pages - programs * 8 < 4 * 2 * 8,
            "{programs} {pages}"
        );

        // the map, and the metrics, have the same
        let map = map(&world, "flash/map?cells=4096");
        assert_eq!(&map["model"]["flash"], flash);
        let partitions = map["flash"]["partitions"].as_array().unwrap();
        let sum = |of: &str| -> u64 {
            let cells = partitions
                .iter()
                .flat_map(|p| p["cells"][of].as_array().unwrap());
            cells.map(number).sum()
        };
        assert_eq!(sum("erases"), number(&flash["erased_lines"]));
        assert_eq!(sum("valid_pages"), number(&flash["valid_pages"]));
        assert_eq!(sum("full"), number(&flash["lines"]["full"]));
        let scraped = metrics(&world);
        let of = |name: &str, labels: &str| {
            scraped[&format!("nvmirage_model_{name}{{media=\"flash\"{labels}}}")] as u64
        };
        assert_eq!(of("host_pages_total", ""), number(&flash["host_pages"]));
        assert_eq!(of("media_pages_total", ""), pages);
        assert_eq!(
            of("operations_total", ",server=\"die\",work=\"erase\""),
            number(&erases["operations"])
        );
        assert_eq!(of("lines", ",state=\"full\""), sum("full"));
        assert_eq!(
            of("line_erases", ",line=\"most\""),
            number(&flash["wear"]["most"])
        );
        server.stop();
    }
}
