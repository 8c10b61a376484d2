//! `nvmirage ls`, `create` and `delete` while a server runs.

use crate::world::World;

#[test]
fn objects_come_and_go_while_it_runs() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let control = world.unix("control");
    let with = |args: &[&str]| {
        let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(["--control".to_owned(), control.clone()]);
        args
    };
    let listen = world.vfio_user("vm2.sock");

    world.ok(&with(&[
        "create", "media", "scratch", "--kind", "ram", "--size", "32MiB",
    ]));
    let half = [
        "create",
        "namespace",
        "half",
        "--media",
        "scratch",
        "--range",
        "0MiB..16MiB",
        "--lba-size",
        "512",
    ];
    world.ok(&with(&half));
    let vm2 = [
        "create",
        "controller",
        "vm2",
        "--namespaces",
        "half",
        "--listen",
        &listen,
        "--serial",
        "VM2",
        "--queues",
        "2",
    ];
    world.ok(&with(&vm2));

    let identity = world.json(&["identify", "--target", &listen, "--json"]);
    assert_eq!(identity["controller"]["serial_number"], "VM2");
    assert_eq!(identity["namespaces"][0]["bytes"], 16 << 20);
    let bench = [
        "bench",
        "--target",
        &listen,
        "--destroy-data",
        "--rw",
        "randrw",
        "--time",
        "100ms",
        "--verify",
        "--json",
    ];
    assert_eq!(world.json(&bench)["jobs"][0]["errors"], 0);

    let inventory = world.json(&with(&["ls", "--json"]));
    let names = |kind: &str| {
        let all = inventory[kind].as_array().unwrap();
        all.iter()
            .map(|o| o["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("media"), ["disk", "scratch"]);
    assert_eq!(names("namespaces"), ["ns1", "half"]);
    assert_eq!(names("controllers"), ["nvme0", "vm2"]);
    // the one reactor has worked, and has slept since
    let reactor = &inventory["reactors"][0];
    assert_eq!(reactor["mode"], "adaptive");
    for key in ["commands", "turns", "turns_with_work", "busy_ns", "sleeps"] {
        assert!(reactor[key].as_u64().unwrap() > 0, "{key}: {reactor}");
    }
    let words = world.ok(&with(&["ls"]));
    for word in ["scratch", "half", "vm2", "nvme.sock", "32.0 MiB"] {
        assert!(words.contains(word), "{word} is missing in\n{words}");
    }

    // what is used is kept
    let error = world.fails(&with(&["delete", "media", "scratch"]));
    assert!(error.contains("holds namespace `half`"), "{error}");
    let error = world.fails(&with(&["delete", "namespace", "half"]));
    assert!(error.contains("is in controller `vm2`"), "{error}");
    for (kind, name) in [
        ("controller", "vm2"),
        ("namespace", "half"),
        ("media", "scratch"),
    ] {
        world.ok(&with(&["delete", kind, name]));
        let error = world.fails(&with(&["delete", kind, name]));
        assert!(error.contains(&format!("`{name}`")), "{error}");
    }
    assert!(!world.path("vm2.sock").exists());
    // the first controller noticed nothing
    world.ok(&["identify", "--target", &world.vfio_user("nvme.sock")]);
    server.stop();
}

#[test]
fn what_cannot_be_created_says_why_and_changes_nothing() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let control = world.unix("control");
    let before = world.inventory();
    let listen = world.vfio_user("nvme.sock");
    let other = world.vfio_user("other.sock");
    let cases: [(&[&str], &str); 8] = [
        (
            &["media", "disk", "--kind", "ram", "--size", "1GiB"],
            "already",
        ),
        (&["media", "b", "--kind", "ram"], "needs a size"),
        (
            &["media", "b/c", "--kind", "ram", "--size", "1GiB"],
            "letters, digits",
        ),
        (
            &["media", "b", "--kind", "file", "--path", "nowhere.img"],
            "nowhere.img",
        ),
        (
            &["namespace", "b", "--media", "c"],
            "no such medium; there are disk",
        ),
        (
            &["namespace", "b", "--media", "disk"],
            "overlaps namespace ns1",
        ),
        (
            &["controller", "b", "--listen", &listen],
            "used by controller nvme0",
        ),
        (
            &["controller", "b", "--namespaces", "ns1", "--listen", &other],
            "to share it, write the same subsystem",
        ),
    ];
    for (args, words) in cases {
        let args = [&["create"], args, &["--control", &control]].concat();
        let error = world.fails(&args);
        assert!(error.contains(words), "{words} is missing in\n{error}");
    }
    assert_eq!(world.inventory(), before);
    server.stop();
}

#[test]
fn without_a_server_it_says_so() {
    let world = World::new();
    let error = world.fails(&["ls"]);
    assert!(
        error.contains("no server at") && error.contains("nvmirage serve"),
        "{error}"
    );
    let error = world.fails(&["delete", "media", "a", "--control", &world.unix("nobody")]);
    assert!(error.contains("no server at"), "{error}");
}
