//! Objects made at run time are there again after a restart, however the server ended, and can be
//! exported.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Server, World, names};

/// A server of the configuration `config.toml`, which may be empty, with a place for its state.
fn serve(world: &World, more: &[&str]) -> Server {
    let file = world.path("config.toml");
    world.serve(&[&["--config", file.to_str().unwrap()], more].concat())
}

/// The objects, without values that change by themselves.
fn served(world: &World) -> Value {
    let mut inventory = world.inventory();
    for controller in inventory["controllers"].as_array_mut().unwrap() {
        controller["doorbell_messages"].take();
        controller["attached"].take();
        controller["placement"].take();
    }
    inventory
}

/// Makes a modelled 970 Pro of 8 GiB in a file with a controller, a tenant, and changes some of it.
fn make(world: &World) {
    let listen = world.vfio_user("vm.sock");
    let file = world.path("fast.img");
    for command in [
        &[
            "create",
            "media",
            "fast",
            "--kind",
            "file",
            "--path",
            file.to_str().unwrap(),
            "--size",
            "8GiB",
            "--timing",
            "samsung-970-pro",
        ][..],
        &["create", "tenant", "web", "--iops", "100000"],
        &[
            "create",
            "namespace",
            "fast",
            "--media",
            "fast",
            "--range",
            "0GiB..4GiB",
            "--tenant",
            "web",
        ],
        &[
            "create",
            "controller",
            "vm",
            "--namespaces",
            "fast",
            "--listen",
            &listen,
            "--queues",
            "3",
        ],
        &["set", "media", "fast", "timing.read_cell0=300us"],
        &["set", "tenant", "web", "iops=50000"],
        &["resize", "fast", "6GiB"],
        &["create", "media", "gone", "--kind", "ram", "--size", "1MiB"],
        &["delete", "media", "gone"],
    ] {
        world.ok(&world.steer(command));
    }
}

#[test]
fn it_is_there_again_after_a_stop_and_after_a_kill() {
    let world = World::new();
    world.write("config.toml", "");
    let server = serve(&world, &[]);
    make(&world);
    let before = served(&world);
    assert_eq!(before["tenants"][0]["iops"], 50_000);
    assert_eq!(before["media"].as_array().unwrap().len(), 1);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());

    let server = serve(&world, &[]);
    assert_eq!(served(&world), before);
    let bench = [
        "bench",
        "--target",
        &world.vfio_user("vm.sock"),
        "--destroy-data",
        "--rw",
        "randrw",
        "--time",
        "200ms",
        "--verify",
        "--json",
    ];
    assert_eq!(world.json(&bench)["jobs"][0]["errors"], 0);
    // changed again, and then there is no time to write anything
    world.ok(&world.steer(&["set", "tenant", "web", "iops=40000"]));
    server.signal(Signal::KILL);
    assert!(!server.end().success());
    let server = serve(&world, &[]);
    assert_eq!(served(&world)["tenants"][0]["iops"], 40_000);
    server.stop();

    // on purpose without it; it is renamed and not thrown away
    let server = serve(&world, &["--forget"]);
    assert_eq!(served(&world)["media"], json!([]));
    server.stop();
    let kept = names(&world.path("state/nvmirage/runtime"));
    assert!(
        kept.iter().any(|name| name.ends_with(".old.json")),
        "{kept:?}"
    );
}

#[test]
fn what_the_file_changes_counts_for_what_it_changes() {
    let world = World::new();
    let tenants = |web: u32, more: &str| {
        let text = format!(
            "[[tenant]]\nname = \"web\"\nweight = {web}\n[[tenant]]\nname = \"db\"\nweight = 7\n{more}"
        );
        world.write("config.toml", &text);
    };
    let weights = || {
        let inventory = world.inventory();
        let tenants = inventory["tenants"].as_array().unwrap();
        tenants
            .iter()
            .map(|t| {
                (
                    t["name"].as_str().unwrap().to_owned(),
                    t["weight"].as_u64().unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    let expect = |all: &[(&str, u64)]| {
        all.iter()
            .map(|(n, w)| ((*n).to_owned(), *w))
            .collect::<Vec<_>>()
    };
    tenants(1, "");
    let server = serve(&world, &[]);
    world.ok(&world.steer(&["set", "tenant", "web", "weight=2"]));
    world.ok(&world.steer(&["set", "tenant", "db", "weight=8"]));
    world.ok(&world.steer(&["create", "tenant", "more", "--weight", "9"]));
    server.stop();

    // the file has another weight for one of them, and one more
    tenants(3, "[[tenant]]\nname = \"new\"\nweight = 4\n");
    let server = serve(&world, &[]);
    assert_eq!(
        weights(),
        expect(&[("web", 3), ("db", 8), ("new", 4), ("more", 9)])
    );
    let log = server.log();
    assert!(
        log.contains(
            "tenant web was changed at run time, and the configuration now defines another one"
        ),
        "{log}"
    );
    server.stop();
    let folder = world.path("state/nvmirage/runtime");
    let is_aside = |name: &String| name.ends_with(".old.json");
    assert!(
        names(&folder).iter().any(is_aside),
        "what was lost is there"
    );

    // said once, and everything else is there at each start from then on
    let all = expect(&[("web", 3), ("db", 8), ("new", 4), ("more", 9)]);
    for _ in 0..2 {
        let server = serve(&world, &[]);
        assert_eq!(weights(), all);
        assert!(!server.log().contains("was changed at run time"));
        server.stop();
    }

    // what the file has had meanwhile, and has no more, is gone
    tenants(3, "[[tenant]]\nname = \"more\"\nweight = 9\n");
    serve(&world, &[]).stop();
    tenants(3, "");
    let server = serve(&world, &[]);
    assert_eq!(weights(), expect(&[("web", 3), ("db", 8)]));
    server.stop();
}

#[test]
fn what_does_not_fit_any_more_or_cannot_be_read_ends_the_start_and_loses_nothing() {
    let world = World::new();
    let media = "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1MiB\"\n";
    world.write("config.toml", media);
    let server = serve(&world, &[]);
    world.ok(&world.steer(&["create", "namespace", "n", "--media", "m"]));
    let file = world.path("config.toml");
    let again = [
        "serve",
        "--config",
        file.to_str().unwrap(),
        "--control",
        "unix:other",
    ];
    let taken = world.fails(&again);
    assert!(
        taken.contains("another server saves its run-time changes"),
        "{taken}"
    );
    server.stop();
    let folder = world.path("state/nvmirage/runtime");
    let name = names(&folder)
        .into_iter()
        .find(|name| name.ends_with(".json"))
        .unwrap();
    let kept = std::fs::read(folder.join(&name)).unwrap();

    world.write("config.toml", "");
    let error = world.fails(&again);
    assert!(
        error.contains("--forget") && error.contains("no such medium"),
        "{error}"
    );
    assert_eq!(std::fs::read(folder.join(&name)).unwrap(), kept);
    // nor where something is lost besides
    world.write("config.toml", "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1MiB\"\n[[namespace]]\nname = \"n\"\nmedia = \"m\"\nweight = 2\n[[namespace]]\nname = \"n2\"\nmedia = \"missing\"\n");
    world.fails(&again);
    assert_eq!(std::fs::read(folder.join(&name)).unwrap(), kept);

    world.write("config.toml", media);
    for (broken, words) in [
        ("{\"version\": 1", "cannot read the saved run-time changes"),
        ("{\"version\": 3}", "version 3"),
    ] {
        std::fs::write(folder.join(&name), broken).unwrap();
        let error = world.fails(&again);
        assert!(
            error.contains(words) && error.contains("--forget"),
            "{error}"
        );
        assert_eq!(
            std::fs::read(folder.join(&name)).unwrap(),
            broken.as_bytes()
        );
    }
}

#[test]
fn what_is_exported_serves_the_same() {
    let world = World::new();
    world.write("config.toml", "");
    let server = serve(&world, &[]);
    make(&world);
    let before = served(&world);
    let exported = world.ok(&world.steer(&["export"]));
    let shown: Value = world.json(&world.steer(&["show", "controller", "vm", "--json"]));
    assert_eq!(shown["queues"], 3);
    let shown = world.ok(&world.steer(&["show", "media", "fast"]));
    let line = shown
        .lines()
        .find(|line| line.starts_with("timing.read_cell0"));
    assert!(line.is_some_and(|line| line.ends_with("300us")), "{shown}");
    let unknown = world.fails(&world.steer(&["show", "media", "slow"]));
    assert!(unknown.contains("there is no medium `slow`"), "{unknown}");
    server.stop();

    let file = world.write("exported.toml", &exported);
    let other = world.serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(served(&world), before);
    other.stop();
}

/// The default firmware revision of a controller is the program's version, so another version is
/// no edit of the configuration.
#[test]
fn a_change_outlives_a_new_version_of_the_program() {
    let world = World::new();
    let listen = world.vfio_user("vm.sock");
    let text = format!("[[controller]]\nname = \"vm\"\nlisten = \"{listen}\"\n");
    world.write("config.toml", &text);
    let server = serve(&world, &[]);
    world.ok(&world.steer(&["set", "controller", "vm", "sample=16"]));
    server.stop();
    let folder = world.path("state/nvmirage/runtime");
    let name = names(&folder)
        .into_iter()
        .find(|name| name.ends_with(".json"));
    let file = folder.join(name.unwrap());
    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    let saved = || std::fs::read_to_string(&file).unwrap();
    // as the version before it wrote it
    let older = saved().replace(&version, "\"0.0.9\"");
    assert!(
        older.contains("\"firmware_revision\": \"0.0.9\""),
        "{older}"
    );
    std::fs::write(&file, older).unwrap();
    for _ in 0..2 {
        let server = serve(&world, &[]);
        assert!(!server.log().contains("was changed at run time"));
        let shown = world.json(&world.steer(&["show", "controller", "vm", "--json"]));
        assert_eq!(shown["sample"], 16);
        assert_eq!(shown["firmware_revision"], env!("CARGO_PKG_VERSION"));
        server.stop();
        assert!(!saved().contains("0.0.9"));
    }
}
