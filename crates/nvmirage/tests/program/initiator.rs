//! Our own host over NVMe/TCP, on our own target.

use std::net::TcpListener;

use crate::world::{Server, World};

const NQN: &str = "nqn.2026-11.test:store";

/// A server with a TCP address, and the address of its drive.
fn served(world: &World, medium: &str) -> (Server, String) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = format!(
        "[[media]]\nname = \"disk\"\n{medium}\n\
         [[namespace]]\nname = \"data\"\nmedia = \"disk\"\n\
         [[controller]]\nname = \"store\"\nnamespaces = [\"data\"]\nsubnqn = \"{NQN}\"\n\
         listen = \"nvme-tcp:127.0.0.1:{port}\"\n"
    );
    let config = world.write("target.toml", &config);
    let server = world.serve(&["--config", config.to_str().unwrap()]);
    (server, format!("nvme-tcp:127.0.0.1:{port}/{NQN}"))
}

#[test]
fn every_byte_over_tcp_comes_back() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"ram\"\nsize = \"64MiB\"");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    assert_eq!(identity["controller"]["subnqn"], NQN);
    for size in ["4KiB", "128KiB"] {
        let args = [
            "bench",
            "--target",
            &target,
            "--rw",
            "randrw",
            "--bs",
            size,
            "--qd",
            "1,16",
            "--time",
            "300ms",
            "--destroy-data",
            "--verify",
            "--json",
        ];
        let report = world.json(&args);
        let jobs = report["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 2);
        for job in jobs {
            assert!(job["iops"].as_f64().unwrap() > 0.0, "{job}");
            assert_eq!(job["errors"], 0, "{job}");
        }
    }
    let other = target.replace(NQN, "nqn.2026-11.test:other");
    let error = world.fails(&["identify", "--target", &other]);
    assert!(
        error.contains("no subsystem nqn.2026-11.test:other"),
        "{error}"
    );
    let refused = ["conformance", "--target", &target, "--destroy-data"];
    let error = world.fails(&refused);
    assert!(
        error.contains("write vfio-user:PATH or pci:ADDRESS"),
        "{error}"
    );
}

#[test]
fn keys_and_values_travel_over_tcp() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"keyvalue\"\nsize = \"64MiB\"");
    let kv = |args: &[&str]| world.ok(&[&["kv", "--target", &target], args].concat());
    let bytes: Vec<u8> = (0..100_003u32).map(|n| ((n * 7) >> 3) as u8).collect();
    std::fs::write(world.path("in"), &bytes).unwrap();
    kv(&["put", "large", "--file", "in"]);
    kv(&["put", "small", "blue"]);
    assert_eq!(kv(&["get", "small"]), "blue");
    kv(&["get", "large", "--output", "out"]);
    assert!(std::fs::read(world.path("out")).unwrap() == bytes);
    assert_eq!(kv(&["ls"]), "large\nsmall\n");
    kv(&["del", "large"]);
    assert_eq!(kv(&["ls"]), "small\n");
}
