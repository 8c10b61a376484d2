//! Keys and values in a file: over the death of their server, over a clean stop, and what a server
//! says that cannot take them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::Signal;

use crate::every_kind::Drive;
use crate::kept::wait_for_unlock;
use crate::world::{Server, World};

fn config(dialect: &str) -> String {
    format!(
        r#"
[[media]]
name = "pairs"
kind = "keyvalue"
path = "pairs.kv"
size = "4MiB"
dialect = "{dialect}"
[[namespace]]
name = "pairs"
media = "pairs"
[[controller]]
name = "kv"
namespaces = ["pairs"]
listen = "vfio-user:kv.sock"
"#
    )
}

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn kv(world: &World, dialect: &str, args: &[&str]) -> Vec<String> {
    let target = world.vfio_user("kv.sock");
    let all = [&["kv", "--target", &target, "--dialect", dialect], args].concat();
    all.into_iter().map(str::to_owned).collect()
}

#[test]
fn what_was_flushed_survives_the_death_of_the_server() {
    for dialect in ["nvme", "samsung"] {
        let world = World::new();
        let mut listed = String::new();
        for life in 0..3 {
            let server = serve(&world, &config(dialect));
            let run = |args: &[&str]| world.ok(&kv(&world, dialect, args));
            assert_eq!(run(&["ls"]), listed, "{dialect}");
            for before in 0..life {
                let value = run(&["get", &format!("key{before}")]);
                assert_eq!(value, format!("value of {before}").repeat(999));
            }
            let value = format!("value of {life}").repeat(999);
            run(&["put", &format!("key{life}"), &value]);
            run(&["put", "gone", "soon"]);
            run(&["del", "gone"]);
            listed.push_str(&format!("key{life}\n"));
            Drive::attach(&world, "kv").flush();
            server.signal(Signal::KILL);
            server.end();
            wait_for_unlock(&world.path("pairs.kv"));
        }
    }
}

#[test]
fn a_clean_stop_keeps_all_and_what_does_not_fit_is_refused() {
    let world = World::new();
    let server = serve(&world, &config("nvme"));
    world.ok(&kv(&world, "nvme", &["put", "colour", "blue"]));
    server.stop();
    let server = serve(&world, &config("nvme"));
    assert_eq!(world.ok(&kv(&world, "nvme", &["get", "colour"])), "blue");
    server.stop();
    // It is no larger than what is in it, whatever it may become.
    let file = fs::metadata(world.path("pairs.kv")).unwrap();
    assert!(file.blocks() * 512 < 1 << 20, "{} blocks", file.blocks());

    let size = config("nvme").replace("4MiB", "8MiB");
    let keys = config("nvme").replace("[[namespace]]", "max_keys = 7\n[[namespace]]");
    for (config, expected) in [
        (size, "its size is 4 MiB, but 8 MiB is configured"),
        (keys, "its number of keys is 8192, but 7 is configured"),
        (
            config("samsung"),
            "its dialect is nvme, but samsung is configured",
        ),
    ] {
        let file = world.write("config.toml", &config);
        let error = world.fails(&["serve", "--config", file.to_str().unwrap()]);
        assert!(error.contains(expected), "{error}");
    }
    fs::write(world.path("pairs.kv"), vec![7; 1 << 20]).unwrap();
    let file = world.write("config.toml", &config("nvme"));
    let error = world.fails(&["serve", "--config", file.to_str().unwrap()]);
    assert!(
        error.contains("was not created for such a medium"),
        "{error}"
    );
    assert!(fs::read(world.path("pairs.kv")).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn keys_in_memory_are_kept_over_a_clean_stop_only() {
    for dialect in ["nvme", "samsung"] {
        let world = World::new();
        let config = config(dialect).replace("path = \"pairs.kv\"", "state = \"pairs.state\"");
        let value = "blue ".repeat(1000);
        let server = serve(&world, &config);
        world.ok(&kv(&world, dialect, &["put", "colour", &value]));
        server.stop();
        let server = serve(&world, &config);
        assert_eq!(world.ok(&kv(&world, dialect, &["get", "colour"])), value);
        server.signal(Signal::KILL);
        server.end();
        let server = serve(&world, &config);
        assert_eq!(world.ok(&kv(&world, dialect, &["ls"])), "");
        server.stop();
    }
}
