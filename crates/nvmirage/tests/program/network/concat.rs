//! Hosts that make a key of TLS with their controller (secure channel concatenation).

use serde_json::json;

use super::raw::discovery;
use super::secure::{CTRL, KEY, identify, says, secret};
use super::{DISK, Port, busy_as, hosts, serve, until};
use crate::world::{Server, World};

/// It may make one.
const A: &str = "nqn.2026-11.test:a";
/// It has to.
const B: &str = "nqn.2026-11.test:b";

fn config(port: &Port, more: &str) -> String {
    format!(
        "[[host]]\nnqn = \"{A}\"\ndhchap_key = \"a.key\"\ndhchap_ctrl_key = \"c.key\"\n{more}\
         [[host]]\nnqn = \"{B}\"\ndhchap_key = \"a.key\"\nconcatenation = \"required\"\n\
         {DISK}{}",
        port.controller("")
    )
}

#[test]
fn hosts_connect_through_tls_with_a_key_that_they_make() {
    let world = World::new();
    let port = Port::new();
    let [key, ctrl] =
        [("a.key", KEY), ("c.key", CTRL)].map(|(name, text)| secret(&world, name, text));
    let [key, ctrl] = [&key, &ctrl].map(|path| path.to_str().unwrap());
    let server = serve(&world, &config(&port, ""), &[]);
    let [as_a, as_b] = [A, B].map(|nqn| vec!["--hostnqn", nqn, "--dhchap-key", key]);
    for options in [
        as_a.clone(),
        [&as_a[..], &["--concat"]].concat(),
        [&as_a[..], &["--concat", "--dhchap-ctrl-key", ctrl]].concat(),
        [&as_b[..], &["--concat"]].concat(),
    ] {
        let output = identify(&world, &port, &options);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
    for (options, words) in [
        (as_b.clone(), "write --concat"),
        (vec!["--hostnqn", B], "write --concat"),
        (
            vec!["--hostnqn", B, "--dhchap-key", ctrl, "--concat"],
            "Authentication failed",
        ),
        (
            [&as_a[..], &["--concat", "--dhchap-ctrl-key", key]].concat(),
            "Authentication failed",
        ),
        (vec!["--hostnqn", A, "--concat"], "--dhchap-key"),
    ] {
        let output = identify(&world, &port, &options);
        assert!(says(&output, words), "{options:?}: {output:?}");
    }
    let mut local = world.program();
    local.args(["identify", "--target", "vfio-user:none", "--concat"]);
    let output = local.args(&as_a).output().unwrap();
    assert!(says(&output, "only a target over NVMe/TCP"), "{output:?}");
    // Each queue has TLS, and each byte that was written is read again.
    let mut bench = world.program();
    bench.args(["bench", "--target", &port.target(), "--destroy-data"]);
    bench.args([
        "--verify", "--rw", "randrw", "--bs", "4k,128k", "--qd", "1,32",
    ]);
    bench.args(["--queues", "2", "--time", "300ms", "--concat"]);
    let output = bench.args(&as_b).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut loads = Vec::new();
    for (options, proof) in [
        (&as_b[..], "host"),
        (&[&as_a[..], &["--dhchap-ctrl-key", ctrl]].concat(), "both"),
    ] {
        let options = [options, &["--concat"]].concat();
        loads.push(busy_as(&world, &port.target(), &options));
        until("the host is there", || hosts(&world).len() == loads.len());
        let host = hosts(&world).pop().unwrap();
        assert_eq!(
            (&host["tls"], &host["authentication"]),
            (&json!(true), &json!(proof))
        );
    }
    // A program that reads the log asks for a key where that is required, and in clear otherwise.
    let (_, treq, sectype) = discovery(&port, B);
    assert_eq!((treq & 3, sectype), (2, 2));
    let (_, treq, sectype) = discovery(&port, A);
    assert_eq!((treq & 3, sectype), (2, 0));
    let log = server.log();
    assert!(!log.contains("AAECAwQF"), "{log}");
    // The connections on which keys were made were no hosts that failed.
    assert_eq!(
        log.matches("has not authenticated itself").count(),
        4,
        "{log}"
    );
    for load in &mut loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    server.stop();
}

#[test]
fn a_reload_makes_keys_required() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    secret(&world, "c.key", CTRL);
    let key = key.to_str().unwrap();
    let server = serve(&world, &config(&port, ""), &[]);
    let as_a = ["--hostnqn", A, "--dhchap-key", key];
    let with_key = [&as_a[..], &["--concat"]].concat();
    let mut loads = [&as_a[..], &with_key].map(|options| busy_as(&world, &port.target(), options));
    until("there are two hosts", || hosts(&world).len() == 2);
    world.write(
        "config.toml",
        &config(&port, "concatenation = \"required\"\n"),
    );
    let told = world.ok(&world.steer(&["reload"]));
    assert!(told.contains(&format!("{A} is changed")), "{told}");
    until("the one in clear is disconnected", || {
        let hosts = hosts(&world);
        hosts.len() == 1 && hosts[0]["tls"] == true
    });
    let output = identify(&world, &port, &as_a);
    assert!(says(&output, "write --concat"), "{output:?}");
    assert!(identify(&world, &port, &with_key).status.success());
    for load in &mut loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    server.stop();
}

#[test]
fn a_connection_on_which_a_key_is_made_is_no_host() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    let other = secret(&world, "c.key", CTRL);
    let key = key.to_str().unwrap();
    let config = |file: &str| {
        format!(
            "[[host]]\nnqn = \"{A}\"\ndhchap_key = \"{file}\"\n{DISK}{}",
            port.controller("tcp = { hosts = 1 }\n")
        )
    };
    let server = serve(&world, &config("a.key"), &[]);
    let as_a = ["--hostnqn", A, "--dhchap-key", key, "--concat"];
    for _ in 0..2 {
        let output = identify(&world, &port, &as_a);
        assert!(output.status.success(), "{output:?}");
        until("the host is gone", || hosts(&world).is_empty());
    }
    let log = server.log();
    assert_eq!(log.matches("host attached").count(), 2, "{log}");
    // Another secret.
    world.write("config.toml", &config("c.key"));
    world.ok(&world.steer(&["reload"]));
    let output = identify(&world, &port, &as_a);
    assert!(says(&output, "Authentication failed"), "{output:?}");
    let with_other = [
        "--hostnqn",
        A,
        "--dhchap-key",
        other.to_str().unwrap(),
        "--concat",
    ];
    assert!(identify(&world, &port, &with_other).status.success());
    server.stop();
}

#[test]
fn without_openssl_hosts_that_need_no_key_are_served() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    let key = key.to_str().unwrap();
    // A library that is none comes first.
    world.write("libssl.so.3", "none");
    let serving = |more: &str| {
        let text = format!(
            "[[host]]\nnqn = \"{A}\"\ndhchap_key = \"a.key\"\n{more}{DISK}{}",
            port.controller("")
        );
        let file = world.write("config.toml", &text);
        let mut command = world.program();
        command.env("LD_LIBRARY_PATH", world.path("."));
        command.args(["serve", "--config", file.to_str().unwrap()]);
        command
    };
    let output = serving("concatenation = \"required\"\n").output().unwrap();
    assert!(says(&output, "libssl.so.3"), "{output:?}");
    let mut command = serving("");
    command.args(["--control", &world.unix("control")]);
    let server = Server::start(command, world.path("server.log"));
    let as_a = ["--hostnqn", A, "--dhchap-key", key];
    let output = identify(&world, &port, &as_a);
    assert!(output.status.success(), "{output:?}");
    let output = identify(&world, &port, &[&as_a[..], &["--concat"]].concat());
    assert!(says(&output, "does not make a key of TLS"), "{output:?}");
    server.stop();
}
