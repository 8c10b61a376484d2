//! Drives over NBD through TLS, as clients that are not ours use them: libnbd's tools and QEMU's,
//! which have GnuTLS.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use guest_rig::{certificates, libnbd};
use serde_json::Value;

use crate::nbd::{Guest, bytes, qemu, qemu_ok, run};
use crate::network::{Port, metric, until};
use crate::world::{Server, World};

const LEN: usize = 32 << 20;

/// A folder as QEMU's clients have it, with a key for alice.
fn keys(world: &World, folder: &str, digit: char) -> String {
    fs::create_dir(world.path(folder)).unwrap();
    let key: String = std::iter::repeat_n(digit, 64).collect();
    let file = format!("{folder}/keys.psk");
    private(&world.write(&file, &format!("alice:{key}\n")));
    world.path(folder).display().to_string()
}

fn private(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// A folder with certificates for both sides.
fn certified(world: &World, folder: &str) -> String {
    fs::create_dir(world.path(folder)).unwrap();
    certificates::write(&world.path(folder)).unwrap();
    world.path(folder).display().to_string()
}

/// A namespace that NBD clients reach at `listen`, with these options of `nbd`.
fn config(listen: &str, nbd: &str) -> String {
    format!(
        r#"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "32MiB"
        [[namespace]]
        name = "data"
        media = "disk"
        [[controller]]
        name = "door"
        namespaces = ["data"]
        listen = "{listen}"
        nbd = {{ {nbd} }}
        "#
    )
}

fn serve(world: &World, text: &str) -> Server {
    let file = world.write("config.toml", text);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// Options of a server in a folder with certificates.
fn of_folder(folder: &str, more: &str) -> String {
    format!(
        "tls_cert = \"{folder}/server-cert.pem\", tls_cert_key = \"{folder}/server-key.pem\"{more}"
    )
}

/// Runs a program of libnbd: whether it succeeded, and what it says.
fn libnbd(world: &World, name: &str, args: &[&str]) -> (bool, String) {
    let mut command = libnbd::program(name).unwrap().command();
    command.args(args).current_dir(world.path(""));
    let output = run(command);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

fn libnbd_ok(world: &World, name: &str, args: &[&str]) -> String {
    let (succeeded, said) = libnbd(world, name, args);
    assert!(succeeded, "{name} {args:?}: {said}");
    said
}

fn refused(world: &World, why: &str) -> f64 {
    let name = "nvmirage_nbd_connections_refused_total";
    metric(
        world,
        &format!("{name}{{controller=\"door\",reason=\"{why}\"}}"),
    )
}

#[test]
fn libnbd_and_qemu_come_with_a_key() {
    let world = World::new();
    let folder = keys(&world, "keys", 'a');
    let other = keys(&world, "other", 'b');
    let socket = world.path("nbd.sock").display().to_string();
    let nbd = format!("tls_psk = \"{folder}/keys.psk\"");
    let server = serve(&world, &config(&format!("nbd:{socket}"), &nbd));
    let uri = |user: &str, folder: &str| {
        format!("nbds+unix://{user}@/data?socket={socket}&tls-psk-file={folder}/keys.psk")
    };
    let alice = uri("alice", &folder);
    let info = libnbd_ok(&world, "nbdinfo", &["--json", &alice]);
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["TLS"], true, "{info}");
    assert_eq!(info["exports"][0]["export-size"], LEN);
    // Through several connections, with long and short requests.
    let image = bytes(LEN, 5);
    fs::write(world.path("image"), &image).unwrap();
    let copy = ["--connections=4", "--flush", "image", &alice];
    libnbd_ok(&world, "nbdcopy", &copy);
    libnbd_ok(
        &world,
        "nbdcopy",
        &["--request-size=33554432", &alice, "back"],
    );
    assert!(fs::read(world.path("back")).unwrap() == image);
    // QEMU, whose connection stays.
    let object = format!("tls-creds-psk,id=tls0,endpoint=client,username=alice,dir={folder}");
    let at = format!("server.type=unix,server.path={socket}");
    let mut guest = Guest::with(&format!("{at},tls-creds=tls0"), &["--object", &object]);
    guest.ask("write -P 7 1000 100000");
    let said = guest.ask("read -P 7 1000 100000");
    assert!(said.contains("read 100000/100000"), "{said}");
    let hosts = || world.json(&world.steer(&["hosts", "--json"]));
    until("the client is seen", || {
        let hosts = hosts();
        hosts[0]["hosts"][0]["tls"] == true && hosts[0]["hosts"][0]["export"] == "data"
    });
    guest.end();
    // Another key, another name, and no TLS.
    let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &uri("alice", &other)]);
    assert!(!succeeded, "{said}");
    assert_eq!(refused(&world, "tls-key"), 1.0);
    fs::write(world.path("bob.psk"), format!("bob:{}\n", "a".repeat(64))).unwrap();
    let bob = format!(
        "nbds+unix://bob@/data?socket={socket}&tls-psk-file={}",
        world.path("bob.psk").display()
    );
    let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &bob]);
    assert!(!succeeded, "{said}");
    assert_eq!(refused(&world, "tls-identity"), 1.0);
    let clear = format!("nbd+unix:///data?socket={socket}");
    let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &clear]);
    assert!(!succeeded, "{said}");
    let (succeeded, said) = qemu("qemu-img", &["info", &clear]);
    assert!(!succeeded && said.contains("TLS"), "{said}");
    let log = server.log();
    assert!(log.contains("an NBD client is refused"), "{log}");
    assert!(!log.contains(&"a".repeat(32)), "{log}");
    server.stop();
}

#[test]
fn clients_verify_the_server_and_it_verifies_them() {
    let world = World::new();
    let (folder, other) = (certified(&world, "tls"), certified(&world, "other"));
    let port = Port::new();
    // An authority may be of clients alone.
    let nbd = of_folder(
        &folder,
        &format!(", tls_client_ca = \"{folder}/ca-cert.pem\""),
    );
    let server = serve(&world, &config(&format!("nbd:{}", port.address()), &nbd));
    let uri = |folder: &str| {
        format!(
            "nbds://localhost:{}/data?tls-certificates={folder}",
            port.number
        )
    };
    let image = bytes(LEN, 9);
    fs::write(world.path("image"), &image).unwrap();
    libnbd_ok(&world, "nbdcopy", &["--flush", "image", &uri(&folder)]);
    let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={folder}");
    let options = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={},export=data,tls-creds=tls0",
        port.number
    );
    let raw = [
        "convert",
        "-O",
        "raw",
        "--object",
        &object,
        "--image-opts",
        &options,
    ];
    let back = world.path("back").display().to_string();
    qemu_ok("qemu-img", &[&raw[..], &[&back]].concat());
    assert!(fs::read(&back).unwrap() == image);
    // A client that trusts another authority, whose certificate is of that.
    let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &uri(&other)]);
    assert!(!succeeded, "{said}");
    // One that trusts the server and has no certificate, or another authority's.
    for has in [None, Some(&other)] {
        let mixed = World::new();
        let copy = |from: &str, name: &str| {
            fs::copy(format!("{from}/{name}"), mixed.path(name)).unwrap();
        };
        copy(&folder, "ca-cert.pem");
        for name in ["client-cert.pem", "client-key.pem"] {
            if let Some(other) = has {
                copy(other, name);
            }
        }
        let before = refused(&world, "tls-certificate");
        let mixed = uri(&mixed.path("").display().to_string());
        let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &mixed]);
        assert!(!succeeded, "{said}");
        assert_eq!(refused(&world, "tls-certificate"), before + 1.0, "{said}");
    }
    server.stop();
}

#[test]
fn a_reload_reads_the_files_again() {
    let world = World::new();
    let folder = keys(&world, "keys", 'a');
    let socket = world.path("nbd.sock").display().to_string();
    let psk = format!("tls_psk = \"{folder}/keys.psk\"");
    let server = serve(&world, &config(&format!("nbd:{socket}"), &psk));
    let uri = format!("nbds+unix://alice@/data?socket={socket}&tls-psk-file={folder}/keys.psk");
    libnbd_ok(&world, "nbdinfo", &["--size", &uri]);
    let write = |digit: &str| fs::write(format!("{folder}/keys.psk"), format!("alice:{digit}\n"));
    write(&"c".repeat(64)).unwrap();
    let (succeeded, said) = libnbd(&world, "nbdinfo", &["--size", &uri]);
    assert!(!succeeded, "the server has the former key: {said}");
    let told = world.ok(&world.steer(&["reload"]));
    assert!(told.contains("files of TLS are read again"), "{told}");
    libnbd_ok(&world, "nbdinfo", &["--size", &uri]);
    // A file that is none changes nothing.
    write("x").unwrap();
    let said = world.fails(&world.steer(&["reload"]));
    assert!(said.contains("hexadecimal digits"), "{said}");
    write(&"c".repeat(64)).unwrap();
    libnbd_ok(&world, "nbdinfo", &["--size", &uri]);
    server.stop();
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let world = World::new();
    let (folder, other) = (certified(&world, "tls"), certified(&world, "other"));
    let keys = keys(&world, "keys", 'a');
    let socket = world.path("nbd.sock").display().to_string();
    let fails = |nbd: &str| {
        let text = config(&format!("nbd:{socket}"), nbd);
        let file = world.write("config.toml", &text);
        world.fails(&[
            "serve",
            "--config",
            file.to_str().unwrap(),
            "--control",
            &world.unix("c"),
        ])
    };
    let psk = format!("tls_psk = \"{keys}/keys.psk\"");
    let open = |path: &str| fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    open(&format!("{keys}/keys.psk"));
    let said = fails(&psk);
    assert!(
        said.contains("other users may use") && said.contains("chmod 600"),
        "{said}"
    );
    private(&world.write("keys/keys.psk", "alice\n"));
    assert!(fails(&psk).contains("line 1: write NAME:KEY"));
    let of_other = format!(
        "tls_cert = \"{folder}/server-cert.pem\", tls_cert_key = \"{other}/server-key.pem\""
    );
    let said = fails(&of_other);
    assert!(
        said.contains("the private key: ") && said.contains("server-key.pem"),
        "{said}"
    );
    let none = of_folder(&folder, &format!(", tls_client_ca = \"{folder}/none\""));
    assert!(fails(&none).contains("cannot read the certificate"));
    open(&format!("{folder}/server-key.pem"));
    assert!(fails(&of_folder(&folder, "")).contains("chmod 600"));
}
