//! Hosts that connect through TLS.

use super::raw::discovery;
use super::secure::{identify, says, secret};
use super::{DISK, NQN, Port, busy_as, hosts, serve, until};
use crate::world::World;

const A: &str = "nqn.2026-11.test:a";
const B: &str = "nqn.2026-11.test:b";
const C: &str = "nqn.2026-11.test:c";
/// The bytes 0 to 31, and 100 to 147.
pub(super) const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const LONG: &str =
    "NVMeTLSkey-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
/// A secret of DH-HMAC-CHAP of the same bytes as the first.
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// Parts of a text that shows one of them.
const PARTS: [&str; 2] = ["AAECAwQF", "ZGVmZ2hp"];

/// Hosts `a` and `c` with keys, of which `c` has a secret, too; and host `b` without.
fn config(port: &Port) -> String {
    format!(
        "[[host]]\nnqn = \"{A}\"\nname = \"a\"\ntls_key = \"a.key\"\n\
         [[host]]\nnqn = \"{B}\"\nname = \"b\"\n\
         [[host]]\nnqn = \"{C}\"\nname = \"c\"\ntls_key = \"c.key\"\ndhchap_key = \"c.secret\"\n\
         [[media]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
         [[namespace]]\nname = \"data\"\nmedia = \"disk\"\n\
         [[controller]]\nname = \"store\"\nnamespaces = [\"data\"]\nsubnqn = \"{NQN}\"\n\
         listen = \"{}\"\n",
        port.listen()
    )
}

#[test]
fn a_host_with_a_key_connects_through_tls_and_not_otherwise() {
    let world = World::new();
    let port = Port::new();
    let [a, c] = [("a.key", KEY), ("c.key", LONG)].map(|(name, text)| secret(&world, name, text));
    let own = secret(&world, "c.secret", SECRET);
    let [a, c, own] = [&a, &c, &own].map(|path| path.to_str().unwrap());
    let server = serve(&world, &config(&port), &[]);
    let as_a = ["--hostnqn", A, "--tls-key", a];
    let as_c = ["--hostnqn", C, "--tls-key", c];
    let with_both = [&as_c[..], &["--dhchap-key", own]].concat();
    for options in [&as_a[..], &with_both, &["--hostnqn", B]] {
        let output = identify(&world, &port, options);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
    for (options, words) in [
        (&["--hostnqn", A][..], "needs --tls-key"),
        (
            &["--hostnqn", A, "--tls-key", c][..],
            "handshake of TLS fails",
        ),
        (
            &["--hostnqn", B, "--tls-key", a][..],
            "handshake of TLS fails",
        ),
        (
            &["--hostnqn", "nqn.2026-11.test:d", "--tls-key", a][..],
            "handshake of TLS fails",
        ),
        (&as_c[..], "--dhchap-key"),
    ] {
        let output = identify(&world, &port, options);
        assert!(says(&output, words), "{options:?}: {output:?}");
    }
    // Each byte that was written is read again, in records of any number of commands.
    let mut bench = world.program();
    bench.args([
        "bench",
        "--target",
        &port.target(),
        "--destroy-data",
        "--verify",
    ]);
    bench.args([
        "--rw", "randrw", "--bs", "4k,128k", "--qd", "1,32", "--queues", "2",
    ]);
    let output = bench.args(["--time", "300ms"]).args(as_a).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut load = busy_as(&world, &port.target(), &as_a);
    until("the host is there", || hosts(&world).len() == 1);
    assert_eq!(hosts(&world)[0]["tls"], true);
    for path in ["/v1/configuration", "/v1/hosts", "/v1", "/metrics"] {
        let text = format!("{:?}", world.ask(&format!("GET {path}"), &[], ""));
        assert!(PARTS.iter().all(|part| !text.contains(part)), "{path}");
    }
    let metrics = format!("{:?}", world.ask("GET /metrics", &[], ""));
    for reason in ["tls-required", "tls-key", "tls-identity"] {
        assert!(metrics.contains(reason), "{reason} is counted");
    }
    let log = server.log();
    let refused = |why: &str, host: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.contains(&format!("refused: {why}")) && line.contains(host))
    };
    assert!(refused("tls-required", A) && refused("tls-key", A), "{log}");
    assert!(refused("tls-identity", "nqn.2026-11.test:d"), "{log}");
    load.kill().unwrap();
    load.wait().unwrap();
    server.stop();
}

#[test]
fn a_file_that_is_no_key_is_refused_at_the_start() {
    let world = World::new();
    let port = Port::new();
    secret(&world, "a.key", SECRET);
    secret(&world, "c.key", LONG);
    secret(&world, "c.secret", SECRET);
    let file = world.write("config.toml", &config(&port));
    let mut command = world.program();
    command.args(["serve", "--config", file.to_str().unwrap()]);
    command.current_dir(file.parent().unwrap());
    let output = command.output().unwrap();
    assert!(says(&output, "NVMeTLSkey-1"), "{output:?}");
    let shown = format!("{output:?}");
    assert!(PARTS.iter().all(|part| !shown.contains(part)), "{shown}");
}

#[test]
fn a_reload_gives_a_host_its_first_key_and_another_one() {
    let world = World::new();
    let port = Port::new();
    let key = secret(&world, "a.key", KEY);
    let [old, long] = [("old", KEY), ("long", LONG)].map(|(name, text)| secret(&world, name, text));
    let [old, long] = [&old, &long].map(|path| path.to_str().unwrap());
    let of = |more: &str| {
        format!(
            "[[host]]\nnqn = \"{A}\"\n{more}[[host]]\nnqn = \"{B}\"\n{DISK}{}",
            port.controller("")
        )
    };
    let keyed = of(&format!("tls_key = \"{}\"\n", key.display()));
    let reload = || world.ok(&world.steer(&["reload"]));
    let with = |path| identify(&world, &port, &["--hostnqn", A, "--tls-key", path]);
    let server = serve(&world, &of(""), &[]);
    let mut loads = [A, B].map(|nqn| busy_as(&world, &port.target(), &["--hostnqn", nqn]));
    until("there are two hosts", || hosts(&world).len() == 2);
    let (first, treq, sectype) = discovery(&port, A);
    assert_eq!((treq & 3, sectype), (2, 0));

    // The entrance has had no TLS. The host that came in clear is disconnected.
    world.write("config.toml", &keyed);
    let told = reload();
    assert!(told.contains(&format!("{A} is changed")), "{told}");
    until("one is disconnected", || hosts(&world).len() == 1);
    assert_eq!(hosts(&world)[0]["nqn"], B);
    assert_eq!(hosts(&world)[0]["tls"], false);
    let output = identify(&world, &port, &["--hostnqn", A]);
    assert!(says(&output, "needs --tls-key"), "{output:?}");
    let output = with(old);
    assert!(output.status.success(), "{output:?}");
    let (second, treq, sectype) = discovery(&port, A);
    assert!(second > first);
    assert_eq!(
        (treq & 3, sectype),
        (1, 2),
        "it is required, and is TLS 1.3"
    );
    let (_, treq, sectype) = discovery(&port, B);
    assert_eq!((treq & 3, sectype), (2, 0), "another one has no key");

    // The file of the key has another one, which counts from the reload.
    secret(&world, "a.key", LONG);
    assert!(says(&with(long), "handshake of TLS fails"));
    assert!(with(old).status.success());
    let told = reload();
    assert!(told.contains("secrets are read again"), "{told}");
    assert!(says(&with(old), "handshake of TLS fails"));
    let output = with(long);
    assert!(output.status.success(), "{output:?}");

    // Without its key it connects in clear again, and not through TLS.
    world.write("config.toml", &of(""));
    reload();
    assert!(says(&with(long), "TLS"), "no TLS");
    let output = identify(&world, &port, &["--hostnqn", A]);
    assert!(output.status.success(), "{output:?}");
    for load in &mut loads {
        load.kill().unwrap();
        load.wait().unwrap();
    }
    server.stop();
}
