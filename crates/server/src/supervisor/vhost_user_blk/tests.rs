//! Controllers over vhost-user-blk, without a front end: their sockets, and their one namespace.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use api::config::{self, Controller};
use api::refusal::Kind;
use api::{Disconnection, Refusal, ReloadRequest};

use crate::observe::{self, Format};
use crate::supervisor::{Source, Supervisor};

fn text(folder: &Path, socket: &Path, namespace: &str, more: &str) -> String {
    let (folder, socket) = (folder.display(), socket.display());
    format!(
        r#"
        state_dir = "{folder}/state"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "32MiB"
        [[media]]
        name = "zones"
        kind = "ram"
        size = "16MiB"
        zoned = {{ zone_size = "4MiB" }}
        [[media]]
        name = "keys"
        kind = "keyvalue"
        size = "16MiB"
        [[namespace]]
        name = "root"
        media = "disk"
        range = "0MiB..16MiB"
        [[namespace]]
        name = "data"
        media = "disk"
        range = "16MiB..32MiB"
        [[namespace]]
        name = "zoned"
        media = "zones"
        [[namespace]]
        name = "keyed"
        media = "keys"
        [[controller]]
        name = "vm"
        namespaces = ["{namespace}"]
        listen = "vhost-user-blk:{socket}"
        {more}
        "#
    )
}

fn serve(folder: &Path, socket: &Path, more: &str) -> Supervisor {
    let config = config::from_toml(&text(folder, socket, "root", more)).unwrap();
    Supervisor::start(config, None, None, None).unwrap()
}

fn new(name: &str, socket: &Path, namespaces: &[&str]) -> Controller {
    let listen = format!("vhost-user-blk:{}", socket.display());
    let mut new = Controller::new(name.to_owned(), listen.parse().unwrap());
    new.namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
    new
}

fn attached(supervisor: &Supervisor, namespace: &str) -> Vec<String> {
    let all = supervisor.namespaces().unwrap().into_iter();
    let mut its = all.filter(|n| n.config.name == namespace);
    its.next().unwrap().controllers
}

#[test]
fn a_socket_replaces_a_stale_one_has_its_mode_and_goes_with_its_controller() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    drop(UnixListener::bind(&path).unwrap());
    let supervisor = serve(folder.path(), &path, "socket_mode = \"0660\"\nqueues = 4");
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
    // another controller does not get a path in use, also of no controller of this server
    let taken = folder.path().join("taken.sock");
    let _other = UnixListener::bind(&taken).unwrap();
    let refused = supervisor.create_controller(new("second", &taken, &["data"]));
    let refused = refused.unwrap_err();
    assert!(refused.detail.contains("in use by another process"));
    assert!(std::fs::symlink_metadata(&taken).is_ok());
    supervisor.delete_controller("vm", false).unwrap();
    assert!(!path.exists(), "the socket's file stays");
    // and comes back with it
    supervisor
        .create_controller(new("again", &path, &["root"]))
        .unwrap();
    assert!(path.exists());
    supervisor.stop().unwrap();
    assert!(!path.exists() && !folder.path().join("b.sock.lock").exists());
}

#[test]
fn a_controller_is_created_with_one_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    let supervisor = serve(folder.path(), &path, "");
    let other = folder.path().join("c.sock");
    for (namespaces, why) in [
        (&[] as &[&str], "and there is none"),
        (&["data", "zoned"], "exactly one namespace, and there are 2"),
        (&["keyed"], "has keys"),
    ] {
        let refused = supervisor.create_controller(new("second", &other, namespaces));
        let refused = refused.unwrap_err();
        let found = format!("{} {:?}", refused.detail, refused.errors);
        assert!(found.contains(why), "{found}");
        assert!(!other.exists());
    }
    supervisor
        .create_controller(new("second", &other, &["data"]))
        .unwrap();
    assert_eq!(attached(&supervisor, "data"), ["second"]);
    let zones = folder.path().join("d.sock");
    supervisor
        .create_controller(new("third", &zones, &["zoned"]))
        .unwrap();
    assert_eq!(attached(&supervisor, "zoned"), ["third"]);
    supervisor.stop().unwrap();
}

#[test]
fn the_namespace_may_be_detached_and_another_one_take_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    let supervisor = serve(folder.path(), &path, "");
    let refused = supervisor.attach("data", "vm").unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict);
    for part in [
        "has namespace `root`",
        "exactly one",
        "nvmirage detach root vm",
    ] {
        assert!(refused.detail.contains(part), "{}", refused.detail);
    }
    let again: Refusal = supervisor.attach("root", "vm").unwrap_err();
    assert!(again.detail.contains("already"), "{}", again.detail);

    supervisor.detach("root", "vm", false).unwrap();
    assert_eq!(attached(&supervisor, "root"), [""; 0]);
    // other changes are possible meanwhile
    let spare = folder.path().join("c.sock");
    supervisor
        .create_controller(new("second", &spare, &["data"]))
        .unwrap();
    supervisor.delete_controller("second", false).unwrap();
    let refused = supervisor.attach("keyed", "vm").unwrap_err();
    assert!(
        refused.detail.contains("keys") && refused.detail.contains("vhost-user-blk"),
        "{}",
        refused.detail
    );
    supervisor.attach("zoned", "vm").unwrap();
    supervisor.detach("zoned", "vm", false).unwrap();
    supervisor.attach("root", "vm").unwrap();
    supervisor.detach("root", "vm", false).unwrap();
    supervisor.delete_namespace("root").unwrap();
    // nothing is listed now, and the server still takes changes
    let medium = supervisor.configuration().unwrap().media[0].clone();
    let mut spare = medium.clone();
    spare.name = "spare".to_owned();
    supervisor.create_medium(spare).unwrap();
    supervisor.stop().unwrap();
}

#[test]
fn its_counters_are_those_of_its_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    let supervisor = serve(folder.path(), &path, "");
    let snapshot = supervisor.snapshot().unwrap();
    let text = String::from_utf8(observe::metrics(&snapshot, Format::Text)).unwrap();
    for line in [
        "nvmirage_hosts{controller=\"vm\"} 0",
        "nvmirage_vhost_front_ends_connected_total{controller=\"vm\"} 0",
        "nvmirage_vhost_requests_total{controller=\"vm\"} 0",
        "nvmirage_vhost_requests_failed_total{controller=\"vm\"} 0",
        "nvmirage_vhost_requests_resubmitted_total{controller=\"vm\"} 0",
        "nvmirage_vhost_kicks_total{controller=\"vm\"} 0",
        "nvmirage_vhost_calls_total{controller=\"vm\"} 0",
        "nvmirage_vhost_rings_broken_total{controller=\"vm\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for other in [
        "nvmirage_nbd_requests_total{",
        "nvmirage_tcp_commands_total{",
        "nvmirage_ana_groups{",
    ] {
        assert!(!text.contains(other), "{other}");
    }
    assert_eq!(supervisor.hosts().unwrap().len(), 0);
    let wanted = Disconnection {
        export: Some("root".to_owned()),
        ..Disconnection::default()
    };
    let absent = supervisor.disconnect("vm", &wanted).unwrap_err();
    assert!(
        absent.detail.contains("no host with the namespace root"),
        "{}",
        absent.detail
    );
    let moved = supervisor.move_queues("vm", &[0], None).unwrap_err();
    assert!(
        moved.detail.contains("front end") && moved.detail.contains("do not move"),
        "{}",
        moved.detail
    );
    supervisor.stop().unwrap();
}

#[test]
fn what_was_attached_is_served_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    let supervisor = serve(folder.path(), &path, "");
    supervisor.detach("root", "vm", false).unwrap();
    supervisor.attach("data", "vm").unwrap();
    supervisor.stop().unwrap();
    let supervisor = serve(folder.path(), &path, "");
    assert_eq!(attached(&supervisor, "root"), [""; 0]);
    assert_eq!(attached(&supervisor, "data"), ["vm"]);
    let refused = supervisor.attach("root", "vm").unwrap_err();
    assert!(refused.detail.contains("has namespace `data`"));
    supervisor.stop().unwrap();
}

#[test]
fn a_reload_replaces_the_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sock");
    let file = folder.path().join("c.toml");
    let written = text(folder.path(), &path, "root", "");
    std::fs::write(&file, &written).unwrap();
    let config = config::from_toml(&written).unwrap();
    let source = Source::new(&file, &config).unwrap();
    let supervisor = Supervisor::start(config, None, Some(source), None).unwrap();
    std::fs::write(&file, text(folder.path(), &path, "data", "")).unwrap();
    supervisor.reload(ReloadRequest::default()).unwrap();
    assert_eq!(attached(&supervisor, "root"), [""; 0]);
    assert_eq!(attached(&supervisor, "data"), ["vm"]);
    // a file that names none is no configuration
    let none = text(folder.path(), &path, "data", "").replace("[\"data\"]", "[]");
    std::fs::write(&file, none).unwrap();
    let refused = supervisor.reload(ReloadRequest::default()).unwrap_err();
    let said = format!("{} {:?}", refused.detail, refused.errors);
    assert!(said.contains("exactly one namespace"), "{said}");
    supervisor.stop().unwrap();
}
