//! Hosts that are allowed, and hosts that prove who they are.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::raw::Raw;
use super::{DISK, NQN, Port, busy_as, hosts, serve, until};
use crate::world::World;

pub(super) const A: &str = "nqn.2026-11.test:a";
const B: &str = "nqn.2026-11.test:b";
/// The bytes 0 to 31, and 100 to 147.
pub(super) const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(super) const CTRL: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
/// Parts of a text that shows one of them.
const PARTS: [&str; 2] = ["AAECAwQF", "ZGVmZ2hp"];

/// Host `a` with secrets and host `b` without; namespace `data` is `a`'s, `open` is for both.
fn config(port: &Port, more: &str) -> String {
    format!(
        "[[host]]\nnqn = \"{A}\"\nname = \"a\"\ndhchap_key = \"a.key\"\ndhchap_ctrl_key = \"c.key\"\n\
         [[host]]\nnqn = \"{B}\"\nname = \"b\"\n\
         [[media]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
         [[namespace]]\nname = \"data\"\nmedia = \"disk\"\nrange = \"0MiB..32MiB\"\nhosts = [\"a\"]\n\
         [[namespace]]\nname = \"open\"\nmedia = \"disk\"\nrange = \"32MiB..64MiB\"\n\
         [[controller]]\nname = \"store\"\nnamespaces = [\"data\", \"open\"]\nsubnqn = \"{NQN}\"\n\
         listen = \"{}\"\n{more}",
        port.listen()
    )
}

pub(super) fn secret(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.write(name, text);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// `nvmirage identify` as a host with these options.
pub(super) fn identify(world: &World, port: &Port, options: &[&str]) -> Output {
    let mut command = world.program();
    command.args(["identify", "--json", "--target", &port.target()]);
    command.args(options).output().unwrap()
}

pub(super) fn says(output: &Output, words: &str) -> bool {
    !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(words)
}

/// Namespaces that a host sees.
fn seen(output: &Output) -> usize {
    assert!(output.status.success(), "{output:?}");
    let identity: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    identity["namespaces"].as_array().unwrap().len()
}

#[test]
fn hosts_prove_who_they_are_and_see_what_is_theirs() {
    let world = World::new();
    let port = Port::new();
    let (key, ctrl) = (secret(&world, "a.key", KEY), secret(&world, "c.key", CTRL));
    let (key, ctrl) = (key.to_str().unwrap(), ctrl.to_str().unwrap());
    let server = serve(&world, &config(&port, ""), &[]);
    let as_a = ["--hostnqn", A, "--dhchap-key", key];
    let both = [&as_a[..], &["--dhchap-ctrl-key", ctrl]].concat();
    assert_eq!(seen(&identify(&world, &port, &as_a)), 2);
    assert_eq!(seen(&identify(&world, &port, &both)), 2);
    assert_eq!(seen(&identify(&world, &port, &["--hostnqn", B])), 1);
    let target = port.target();
    let conformance = ["conformance", "--destroy-data", "--target", &target];
    let only = ["--only", "fabrics/connect_twice,fabrics/all_queues"];
    let report = world.ok(&[&conformance[..], &only[..], &both[..]].concat());
    assert!(report.contains("2 passed, 0 failed"), "{report}");
    for (options, words) in [
        (&[][..], "does not admit this host"),
        (
            &["--hostnqn", "nqn.2026-11.test:c"][..],
            "does not admit this host",
        ),
        (&["--hostnqn", A][..], "--dhchap-key"),
        (
            &["--hostnqn", A, "--dhchap-key", ctrl][..],
            "Authentication failed",
        ),
        (
            &[
                "--hostnqn",
                A,
                "--dhchap-key",
                key,
                "--dhchap-ctrl-key",
                key,
            ][..],
            "Authentication failed",
        ),
        (
            &[
                "--hostnqn",
                B,
                "--dhchap-key",
                key,
                "--dhchap-ctrl-key",
                key,
            ][..],
            "does not ask",
        ),
    ] {
        let output = identify(&world, &port, options);
        assert!(says(&output, words), "{words}: {output:?}");
    }
    // The operator sees how each host was authenticated, and no secret.
    let mut load = busy_as(&world, &port.target(), &both);
    until("the host is authenticated", || {
        hosts(&world)
            .first()
            .is_some_and(|host| host["authentication"] == "both")
    });
    let listed = world
        .program()
        .args(["hosts", "--control", &world.unix("control")])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("both"),
        "{listed:?}"
    );
    for path in ["/v1/configuration", "/v1/hosts", "/v1", "/metrics"] {
        let reply = world.ask(&format!("GET {path}"), &[], "");
        let text = format!("{reply:?}");
        assert!(PARTS.iter().all(|part| !text.contains(part)), "{path}");
    }
    let metrics = format!("{:?}", world.ask("GET /metrics", &[], ""));
    assert!(
        metrics.contains("authentication-failed"),
        "ends are counted"
    );
    load.kill().unwrap();
    load.wait().unwrap();
    let log = server.log();
    server.stop();
    let refused = "a host has not authenticated itself: authentication-failed";
    assert!(log.contains(refused), "{log}");
}

#[test]
fn a_namespace_that_was_attached_stays_hidden_after_a_restart() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    secret(&world, "c.key", CTRL);
    let as_a = ["--hostnqn", A, "--dhchap-key", key.to_str().unwrap()];
    let config = config(&port, "").replace("[\"data\", \"open\"]", "[\"open\"]");
    let config = format!("state_dir = \"state\"\n{config}");
    let see = |world: &World| {
        let seen = |options: &[&str]| seen(&identify(world, &port, options));
        (seen(&as_a), seen(&["--hostnqn", B]))
    };
    let server = serve(&world, &config, &[]);
    assert_eq!(see(&world), (1, 1));
    world.ok(&world.steer(&["attach", "data", "store"]));
    assert_eq!(see(&world), (2, 1));
    server.stop();
    let server = serve(&world, &config, &[]);
    assert_eq!(see(&world), (2, 1));
    server.stop();
}

/// A host with a secret, and one without.
fn two_hosts(key: &Path) -> (String, String) {
    let a = format!(
        "[[host]]\nnqn = \"{A}\"\ndhchap_key = \"{}\"\n",
        key.display()
    );
    (a, format!("[[host]]\nnqn = \"{B}\"\n"))
}

#[test]
fn a_reload_allows_the_hosts_of_the_file_with_their_secrets() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    let (a, b) = two_hosts(&key);
    let objects = format!("{DISK}{}", port.controller(""));
    let server = serve(&world, &format!("{b}{objects}"), &[]);
    let write = |text: &str| world.write("config.toml", text);
    let reload = || world.run(&world.steer(&["reload"]));
    let as_a = ["--hostnqn", A, "--dhchap-key", key.to_str().unwrap()];
    let output = identify(&world, &port, &as_a);
    assert!(says(&output, "does not admit this host"), "{output:?}");

    // With its secret, from now on.
    let mut load = busy_as(&world, &port.target(), &["--hostnqn", B]);
    until("B is a host", || hosts(&world).len() == 1);
    write(&format!("{a}{b}{objects}"));
    let ran = reload();
    assert!(
        ran.out.contains("~ host: ") && ran.out.contains(&format!("{A} is added")),
        "{ran:?}"
    );
    assert!(says(&identify(&world, &port, &as_a[..2]), "--dhchap-key"));
    assert_eq!(seen(&identify(&world, &port, &as_a)), 1);
    assert_eq!(hosts(&world).len(), 1, "B goes on");

    // A file that cannot be used changes nothing; one with another secret does.
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let ran = reload();
    assert!(
        !ran.status.success() && ran.err.contains("chmod 600"),
        "{ran:?}"
    );
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(seen(&identify(&world, &port, &as_a)), 1);
    secret(&world, "a.key", CTRL);
    let old = secret(&world, "old.key", KEY);
    assert!(says(
        &identify(&world, &port, &as_a),
        "Authentication failed"
    ));
    let ran = reload();
    assert!(ran.out.contains("secrets are read again"), "{ran:?}");
    assert_eq!(seen(&identify(&world, &port, &as_a)), 1);
    let with_old = ["--hostnqn", A, "--dhchap-key", old.to_str().unwrap()];
    assert!(says(
        &identify(&world, &port, &with_old),
        "Authentication failed"
    ));

    // A host that the file has no longer loses its drive.
    write(&format!("{a}{objects}"));
    let ran = reload();
    assert!(ran.out.contains(&format!("{B} is removed")), "{ran:?}");
    until("B is gone", || hosts(&world).is_empty());
    let output = identify(&world, &port, &["--hostnqn", B]);
    assert!(says(&output, "does not admit this host"), "{output:?}");
    load.kill().unwrap();
    load.wait().unwrap();
    server.stop();
}

#[test]
fn a_host_that_gets_a_secret_by_a_reload_has_to_prove_it() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    let (a, b) = two_hosts(&key);
    let objects = format!("{DISK}{}", port.controller(""));
    let without = format!("[[host]]\nnqn = \"{A}\"\n");
    let server = serve(&world, &format!("{without}{b}{objects}"), &[]);
    let mut loads = [A, B].map(|nqn| busy_as(&world, &port.target(), &["--hostnqn", nqn]));
    until("there are two hosts", || hosts(&world).len() == 2);
    world.write("config.toml", &format!("{a}{b}{objects}"));
    world.ok(&world.steer(&["reload"]));
    until("one of them is disconnected", || hosts(&world).len() == 1);
    assert_eq!(hosts(&world)[0]["nqn"], B);
    for load in &mut loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    server.stop();
}

#[test]
fn a_namespace_stays_visible_to_the_host_that_it_is_for() {
    let world = World::new();
    let port = Port::new();
    secret(&world, "a.key", KEY);
    secret(&world, "c.key", CTRL);
    let server = serve(&world, &config(&port, ""), &[]);
    let text = std::fs::read_to_string(world.path("config.toml")).unwrap();
    world.write("config.toml", &text.replace(A, "nqn.2026-11.test:other"));
    let ran = world.run(&world.steer(&["reload"]));
    assert!(
        !ran.status.success() && ran.err.contains("namespace data is visible to host a"),
        "{ran:?}"
    );
    server.stop();
}

#[test]
fn one_that_has_proved_nothing_is_no_host() {
    let world = World::new();
    let port = Port::new();
    secret(&world, "a.key", KEY);
    secret(&world, "c.key", CTRL);
    let config = config(&port, "tcp = { hosts = 1 }\n");
    let raw = "nqn.2026-11.test:host-1";
    let server = serve(&world, &config.replace(A, raw), &[]);
    // Those that know a host's name, as many as may try to prove it at the same time.
    let connect = || Raw::connect(&port, 0, 1);
    let strangers: Vec<_> = (0..4).map(|_| connect().ok().unwrap()).collect();
    assert_eq!(connect().err(), Some(0x181), "Controller Busy");
    assert!(hosts(&world).is_empty());
    assert_eq!(seen(&identify(&world, &port, &["--hostnqn", B])), 1);
    // No host keeps it from being deleted.
    world.ok(&world.steer(&["delete", "controller", "store"]));
    drop(strangers);
    server.stop();
}

#[test]
fn secrets_that_others_may_read_are_refused() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    secret(&world, "c.key", CTRL);
    let file = world.write("config.toml", &config(&port, ""));
    let serve = || {
        let mut command = world.program();
        command.args(["serve", "--config", file.to_str().unwrap()]);
        command
            .current_dir(file.parent().unwrap())
            .output()
            .unwrap()
    };
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let output = serve();
    assert!(says(&output, "chmod 600"), "{output:?}");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, KEY.replace("fiaR", "fiaS")).unwrap();
    let output = serve();
    assert!(says(&output, "CRC"), "{output:?}");
    let shown = format!("{output:?}");
    assert!(PARTS.iter().all(|part| !shown.contains(part)), "{shown}");
}
