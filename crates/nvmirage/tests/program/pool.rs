//! Namespaces that hosts make of a pool, and what operators may do beside them.

use std::fs;

use serde_json::Value;

use crate::host::Host;
use crate::world::{Server, World};

/// `root` is the operator's; 48 MiB of the medium are free.
const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64MiB"
[[namespace]]
name = "root"
media = "disk"
range = "0MiB..16MiB"
[[controller]]
name = "a"
subsystem = "pair"
namespaces = ["root"]
pool = ["disk"]
listen = "vfio-user:a.sock"
[[controller]]
name = "b"
subsystem = "pair"
listen = "vfio-user:b.sock"
"#;

const MIB: u64 = 1 << 20;

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn listed(world: &World, name: &str) -> Option<Value> {
    let inventory = world.json(&world.steer(&["ls", "--json"]));
    let all = inventory["namespaces"].as_array().unwrap().clone();
    all.into_iter().find(|n| n["name"] == name)
}

/// The command for a namespace `x` there.
fn new_on_disk(range: &str) -> [&str; 7] {
    [
        "create",
        "namespace",
        "x",
        "--media",
        "disk",
        "--range",
        range,
    ]
}

#[test]
fn what_a_host_made_is_there_after_a_restart() {
    let world = World::new();
    let server = serve(&world, CONFIG);
    let mut a = Host::attach(&world, "a.sock");
    let nsid = a.create(2048, true);
    assert_eq!(nsid, 2);
    a.attach_namespace(nsid, 1);
    a.attach_namespace(nsid, 2);
    a.fill(nsid, 2047, 0xa5);
    a.format(1, 512);
    a.fill(1, 32_767, 0x5a);
    assert_eq!((a.size(1), a.size(2)), ((16 * MIB, 512), (8 * MIB, 4096)));
    let names = |host: &mut Host| {
        let made = host.device().identify_namespace(2).unwrap();
        (made.nguid, made.eui64, made.nmic)
    };
    let before = names(&mut a);
    assert_ne!(before.0, [0; 16]);
    drop(a);
    let made = listed(&world, "pair:2").unwrap();
    assert_eq!(made["made_by_host"], true);
    assert_eq!(made["controllers"], serde_json::json!(["a", "b"]));
    assert_eq!(made["range"], "16MiB..24MiB");
    assert!(world.ok(&world.steer(&["ls"])).contains("pair:2"));
    server.stop();

    let server = serve(&world, CONFIG);
    assert_eq!(listed(&world, "pair:2").unwrap(), made);
    let (mut a, mut b) = (
        Host::attach(&world, "a.sock"),
        Host::attach(&world, "b.sock"),
    );
    assert_eq!((a.active(), b.active()), (vec![1, 2], vec![2]));
    assert_eq!((a.size(1), b.size(2)), ((16 * MIB, 512), (8 * MIB, 4096)));
    assert_eq!(names(&mut b), before);
    assert_eq!(b.block(2, 2047), [0xa5; 4096]);
    assert_eq!(a.block(1, 32_767), [0x5a; 512]);
    // the next one has names of its own
    let next = a.create(256, false);
    a.attach_namespace(next, 1);
    assert_ne!(a.device().identify_namespace(next).unwrap().nguid, before.0);
    // the operator's is deleted by a host, and stays so
    a.delete(1);
    drop((a, b));
    server.stop();

    let server = serve(&world, CONFIG);
    let mut a = Host::attach(&world, "a.sock");
    assert_eq!(a.active(), [2, 3]);
    assert_eq!(listed(&world, "root").unwrap()["nsid"], Value::Null);
    drop(a);
    server.stop();
}

#[test]
fn operators_work_beside_hosts() {
    let world = World::new();
    let server = serve(&world, CONFIG);
    let mut a = Host::attach(&world, "a.sock");
    let nsid = a.create(2048, false);
    a.attach_namespace(nsid, 1);
    let refused: [(&[&str], &str); 7] = [
        (
            &new_on_disk("20MiB..28MiB"),
            "would overlap namespace `pair:2`, which has 16MiB..24MiB of medium disk",
        ),
        (
            &["resize", "root", "17MiB"],
            "would overlap namespace `pair:2`",
        ),
        (
            &["attach", "pair:2", "b"],
            "is private, and controller `a` has it",
        ),
        (&["delete", "namespace", "pair:2"], "is in controller `a`"),
        (&["delete", "media", "disk"], "holds namespace `root`"),
        (&["resize", "pair:2", "4MiB"], "--shrink"),
        (&["resize", "pair:2", "1GiB"], "there is no room"),
    ];
    for (args, words) in refused {
        let error = world.fails(&world.steer(args));
        assert!(
            error.contains(words),
            "{args:?}: {words} is missing in\n{error}"
        );
    }
    // a namespace that an operator makes on the pool is the subsystem's at once, and its space is
    // no longer free
    let new = new_on_disk("24MiB..40MiB");
    world.ok(&world.steer(&new));
    assert_eq!(listed(&world, "x").unwrap()["nsid"], 3);
    let error = world.fails(&world.steer(&["resize", "pair:2", "9MiB"]));
    assert!(error.contains("overlap"), "{error}");
    let next = a.create(2048, false);
    assert_eq!(
        listed(&world, &format!("pair:{next}")).unwrap()["range"],
        "40MiB..48MiB"
    );
    a.listen();
    world.ok(&world.steer(&["resize", &format!("pair:{next}"), "16MiB"]));
    world.ok(&world.steer(&["attach", &format!("pair:{next}"), "a"]));
    assert_eq!(a.changed(), [next]);
    assert_eq!(a.size(next), (16 * MIB, 4096));
    // and gone again
    for args in [
        &["detach", "pair:2", "a", "--detach-hosts"][..],
        &["delete", "namespace", "pair:2"],
    ] {
        world.ok(&world.steer(args));
    }
    assert_eq!(a.active(), [1, next]);
    assert!(listed(&world, "pair:2").is_none());
    server.stop();
}

#[test]
fn a_pool_stays_when_the_controller_that_names_it_goes() {
    let world = World::new();
    let with_serial = CONFIG.replacen(
        "subsystem = \"pair\"\n",
        "subsystem = \"pair\"\nserial = \"S1\"\n",
        1,
    );
    let server = serve(&world, &with_serial);
    for args in [["controller", "a"], ["namespace", "root"]] {
        world.ok(&world.steer(&[&["delete"], &args[..]].concat()));
    }
    let told = world.ok(&world.steer(&["events", "--since", "0", "--count", "1", "--json"]));
    let told: Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!([&told["event"], &told["name"]], ["changed", "b"]);
    let mut b = Host::attach(&world, "b.sock");
    let nsid = b.create(2048, false);
    b.attach_namespace(nsid, 2);
    b.delete(nsid);
    // its hosts may make more there at any time
    let error = world.fails(&world.steer(&["delete", "media", "disk"]));
    assert!(error.contains("in the pool of subsystem `pair`"), "{error}");
    let new = new_on_disk("0MiB..60MiB");
    world.ok(&world.steer(&new));
    let x = listed(&world, "x").unwrap();
    assert_ne!(x["nsid"], Value::Null, "it is the subsystem's at once");
    let made = b.create(1024, false);
    assert_eq!(
        listed(&world, &format!("pair:{made}")).unwrap()["range"],
        "60MiB..64MiB"
    );
    drop(b);
    server.stop();

    let server = serve(&world, &with_serial);
    let mut b = Host::attach(&world, "b.sock");
    let identity = b.device().identify_controller().unwrap();
    assert_eq!(nvme_spec::identify::ascii_text(&identity.sn), "S1");
    b.delete(made);
    b.create(1024, false);
    drop(b);
    server.stop();
}

#[test]
fn space_that_a_host_has_is_not_given_away_while_its_subsystem_is_not_served() {
    let world = World::new();
    let server = serve(&world, CONFIG);
    let mut a = Host::attach(&world, "a.sock");
    a.create(2048, false);
    drop(a);
    for controller in ["a", "b"] {
        world.ok(&world.steer(&["delete", "controller", controller]));
    }
    let over = new_on_disk("20MiB..28MiB");
    let error = world.fails(&world.steer(&over));
    assert!(
        error.contains("would overlap namespace `pair:2`"),
        "{error}"
    );
    let error = world.fails(&world.steer(&["delete", "media", "disk"]));
    assert!(error.contains("holds namespace"), "{error}");
    let other = world.vfio_user("other.sock");
    let other = [
        "create",
        "controller",
        "o",
        "--pool",
        "disk",
        "--listen",
        &other,
    ];
    let error = world.fails(&world.steer(&other));
    assert!(
        error.contains("created by a host of subsystem pair"),
        "{error}"
    );
    // served again, it is there again
    let listen = world.vfio_user("a.sock");
    let again = [
        "create",
        "controller",
        "a",
        "--subsystem",
        "pair",
        "--listen",
        &listen,
    ];
    let again = [&again[..], &["--namespaces", "root", "--pool", "disk"]].concat();
    world.ok(&world.steer(&again));
    assert_eq!(listed(&world, "pair:2").unwrap()["range"], "16MiB..24MiB");
    world.ok(&world.steer(&["delete", "namespace", "pair:2"]));
    world.ok(&world.steer(&over));
    server.stop();
}

#[test]
fn a_configuration_that_needs_what_a_host_has_is_refused() {
    let world = World::new();
    let server = serve(&world, CONFIG);
    let mut a = Host::attach(&world, "a.sock");
    a.create(2048, false);
    drop(a);
    server.stop();
    let more = "[[namespace]]\nname = \"new\"\nmedia = \"disk\"\nrange = \"20MiB..28MiB\"\n";
    let file = world.write("config.toml", &format!("{CONFIG}{more}"));
    let control = world.unix("control");
    let serve_it = [
        "serve",
        "--config",
        file.to_str().unwrap(),
        "--control",
        &control,
    ];
    let error = world.fails(&serve_it);
    assert!(
        error.contains("namespace 2, created by a host, and namespace new"),
        "{error}"
    );
    assert!(error.contains("pair.json"), "{error}");
    // without the medium there is nothing to serve it from
    let moved = CONFIG.replace("\"disk\"", "\"other\"");
    world.write("config.toml", &moved);
    let error = world.fails(&serve_it);
    assert!(error.contains("disk"), "{error}");
    // and without what is kept, the configuration counts
    fs::remove_file(world.path("state/nvmirage/subsystems/pair.json")).unwrap();
    world.write("config.toml", &format!("{CONFIG}{more}"));
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    assert!(listed(&world, "pair:2").is_none());
    server.stop();
}
