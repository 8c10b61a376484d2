//! Controllers over NBD, with a client that writes the bytes of the protocol's specification.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use api::config::{self, Controller, Nbd};
use api::refusal::Kind;
use api::{Disconnection, Protocol};

use crate::observe::{self, Format};
use crate::supervisor::Supervisor;

const LONG: Duration = Duration::from_secs(20);
/// Size of each export.
const SIZE: u64 = 16 << 20;

fn serve(folder: &Path, listen: &str, more: &str) -> Supervisor {
    let folder = folder.display();
    let text = format!(
        r#"
        state_dir = "{folder}/state"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "32MiB"
        [[namespace]]
        name = "root"
        media = "disk"
        range = "0MiB..16MiB"
        [[namespace]]
        name = "data"
        media = "disk"
        range = "16MiB..32MiB"
        [[controller]]
        name = "images"
        namespaces = ["root", "data"]
        listen = "nbd:{listen}"
        {more}
        "#
    );
    Supervisor::start(config::from_toml(&text).unwrap(), None, None, None).unwrap()
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Attaches to an export by `NBD_OPT_GO`; returns its size, or the type of the error reply.
fn attach(stream: &mut (impl Read + Write), export: &str) -> Result<u64, u32> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    // fixed newstyle, no zeroes
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend(0_u16.to_be_bytes());
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(7_u32.to_be_bytes());
    option.extend((data.len() as u32).to_be_bytes());
    option.extend(data);
    stream.write_all(&option).unwrap();
    let mut size = None;
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(word(8), 7);
        let (kind, mut data) = (word(12), vec![0; word(16) as usize]);
        stream.read_exact(&mut data).unwrap();
        match kind {
            1 => return Ok(size.expect("the export's size came")),
            // NBD_INFO_EXPORT
            3 if data[..2] == [0, 0] => {
                size = Some(u64::from_be_bytes(data[2..10].try_into().unwrap()));
            }
            3 => {}
            error => return Err(error),
        }
    }
}

/// Sends a request; returns the error of its simple reply, and its data.
fn request(
    stream: &mut (impl Read + Write),
    kind: u16,
    (offset, len): (u64, u32),
    data: &[u8],
) -> (u32, Vec<u8>) {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend(0_u16.to_be_bytes());
    request.extend(kind.to_be_bytes());
    request.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    request.extend(data);
    stream.write_all(&request).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
    assert_eq!(head[8..], 0x1122_3344_5566_7788_u64.to_be_bytes());
    let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
    let mut read = vec![
        0;
        if kind == 0 && error == 0 {
            len as usize
        } else {
            0
        }
    ];
    stream.read_exact(&mut read).unwrap();
    (error, read)
}

fn timed<T>(stream: T, set: impl Fn(&T, Option<Duration>) -> std::io::Result<()>) -> T {
    set(&stream, Some(LONG)).unwrap();
    stream
}

fn unix(path: &Path) -> UnixStream {
    timed(
        UnixStream::connect(path).unwrap(),
        UnixStream::set_read_timeout,
    )
}

fn metrics(supervisor: &Supervisor) -> String {
    let snapshot = supervisor.snapshot().unwrap();
    String::from_utf8(observe::metrics(&snapshot, Format::Text)).unwrap()
}

#[test]
fn the_memory_of_a_client_is_that_of_its_slots() {
    let small = transport::nbd::SMALL * (8 << 10);
    let large = transport::nbd::LARGE * (128 << 10);
    assert_eq!((small + large) as u64, Nbd::CLIENT_MEMORY);
}

#[test]
fn a_socket_replaces_a_stale_one_has_its_mode_and_goes_with_its_controller() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    drop(UnixListener::bind(&path).unwrap());
    let listen = path.to_str().unwrap();
    let supervisor = serve(folder.path(), listen, "socket_mode = \"0660\"");
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
    // another controller does not get a path in use, also of no controller of this server
    let taken = folder.path().join("taken.sock");
    let _other = UnixListener::bind(&taken).unwrap();
    let at = format!("nbd:{}", taken.display()).parse().unwrap();
    let refused = supervisor.create_controller(Controller::new("second".to_owned(), at));
    assert!(
        refused
            .unwrap_err()
            .detail
            .contains("in use by another process")
    );
    assert!(std::fs::symlink_metadata(&taken).is_ok());
    supervisor.delete_controller("images", false).unwrap();
    assert!(!path.exists(), "the socket's file stays");
    // and comes back with it
    let at = format!("nbd:{listen}").parse().unwrap();
    supervisor
        .create_controller(Controller::new("again".to_owned(), at))
        .unwrap();
    assert!(path.exists());
    supervisor.stop().unwrap();
    assert!(!path.exists() && !folder.path().join("x.sock.lock").exists());
}

#[test]
fn a_namespace_that_cannot_be_exported_is_not_attached_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let more = r#"
        [[media]]
        name = "zones"
        kind = "ram"
        size = "16MiB"
        zoned = { zone_size = "4MiB" }
        [[namespace]]
        name = "zoned"
        media = "zones"
    "#;
    let supervisor = serve(folder.path(), path.to_str().unwrap(), more);
    let refused = supervisor.attach("zoned", "images").unwrap_err();
    assert!(refused.detail.contains("has zones"), "{}", refused.detail);
    assert!(attach(&mut unix(&path), "zoned").is_err());
    supervisor.stop().unwrap();
}

#[test]
fn a_client_is_listed_counted_spared_and_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let supervisor = serve(
        folder.path(),
        path.to_str().unwrap(),
        "nbd = { clients = 2 }",
    );
    let mut client = unix(&path);
    assert_eq!(attach(&mut client, "data"), Ok(SIZE));
    assert_eq!(request(&mut client, 1, (4096, 4096), &[7; 4096]).0, 0);
    assert_eq!(request(&mut client, 0, (4095, 3), &[]), (0, vec![0, 7, 7]));
    // beyond the end: EINVAL or ENOSPC are nonzero
    assert_ne!(request(&mut client, 0, (SIZE, 1), &[]).0, 0);

    let hosts = supervisor.hosts().unwrap();
    assert_eq!((hosts.len(), hosts[0].controller.as_str()), (1, "images"));
    let [host] = &hosts[0].hosts[..] else {
        panic!("{hosts:?}")
    };
    assert_eq!(host.protocol, Protocol::Nbd);
    assert_eq!(host.export.as_deref(), Some("data"));
    assert_eq!((host.nqn.as_str(), host.address), ("", None));

    let text = metrics(&supervisor);
    for line in [
        "nvmirage_hosts{controller=\"images\"} 1",
        "nvmirage_nbd_clients_connected_total{controller=\"images\"} 1",
        "nvmirage_nbd_requests_total{controller=\"images\"} 3",
        "nvmirage_nbd_requests_failed_total{controller=\"images\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("nvmirage_tcp_hosts_connected_total{"));
    assert!(!text.contains("nvmirage_ana_groups{"));

    // an export that is not there is refused
    assert!(attach(&mut unix(&path), "swap").is_err());
    let mut second = unix(&path);
    assert_eq!(attach(&mut second, "root"), Ok(SIZE));
    // The option is answered before the client has its controller, and requests after it.
    assert_eq!(request(&mut second, 0, (0, 1), &[]).0, 0);

    let refused = supervisor.delete_controller("images", false).unwrap_err();
    assert_eq!(refused.kind, Kind::HostsAttached);
    assert!(
        refused.detail.contains("a host is attached"),
        "{}",
        refused.detail
    );
    assert!(
        refused.errors[0].detail.contains("2 NBD clients"),
        "{:?}",
        refused.errors
    );
    let moved = supervisor.move_queues("images", &[0], None).unwrap_err();
    assert!(moved.detail.contains("do not move"), "{}", moved.detail);

    let wanted = |export: &str| Disconnection {
        export: Some(export.to_owned()),
        ..Disconnection::default()
    };
    let absent = supervisor
        .disconnect("images", &wanted("swap"))
        .unwrap_err();
    assert!(
        absent.detail.contains("the export swap"),
        "{}",
        absent.detail
    );
    let ended = supervisor.disconnect("images", &wanted("data")).unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        client.read(&mut [0; 1]).unwrap(),
        0,
        "its connection is open"
    );
    await_that("it is still listed", || {
        supervisor.hosts().unwrap()[0].hosts.len() == 1
    });
    // the other one goes on
    assert_eq!(request(&mut second, 0, (0, 1), &[]).0, 0);
    supervisor.delete_controller("images", true).unwrap();
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    supervisor.stop().unwrap();
}

#[test]
fn a_client_over_tcp_has_an_address_and_no_discovery_log_lists_its_entrance() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let supervisor = serve(folder.path(), &address.to_string(), "");
    let stream = TcpStream::connect(address).unwrap();
    let mut client = timed(stream, TcpStream::set_read_timeout);
    assert_eq!(attach(&mut client, "root"), Ok(SIZE));
    assert_eq!(request(&mut client, 3, (0, 0), &[]).0, 0);
    let hosts = supervisor.hosts().unwrap();
    let host = &hosts[0].hosts[0];
    assert_eq!(host.address, Some(client.local_addr().unwrap()));
    assert!(supervisor.lock().discovery.subsystems.is_empty());
    supervisor.stop().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it still listens");
}
