//! Limits of mappings: their kind and their number.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use memory::guest::mapping::MAX_SESSION_MAPPINGS;
use memory::{Access, ClientMappings, DmaError, DmaMap, Iova, MAX_DMA_REGIONS, MapError};
use rustix::fs::SealFlags;

use crate::client::{Client, PAGE, mappings_of};

fn refusal(fd: impl Into<OwnedFd>) -> MapError {
    let mut mappings = ClientMappings::new();
    mappings.map(fd.into()).expect_err("this is no memory")
}

#[test]
fn descriptors_that_are_no_memory_are_refused_and_named() {
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let zero = OpenOptions::new().read(true).write(true).open("/dev/zero");
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let cases: [(OwnedFd, &str); 5] = [
        (pipe, "a pipe"),
        (zero.unwrap().into(), "a character device"),
        (File::open("/").unwrap().into(), "a directory"),
        (event, "not a file at all"),
        (socket.into(), "a socket"),
    ];
    for (fd, kind) in cases {
        let error = refusal(fd);
        assert!(
            matches!(error, MapError::NotFile(named) if named == kind),
            "{kind}: {error}"
        );
        let message = error.to_string();
        assert!(
            message.contains(kind) && message.contains("memfd"),
            "{message}"
        );
    }
}

#[test]
fn a_file_on_a_disk_is_refused() {
    // The test program itself lies on a file system with a disk or an overlay behind it.
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(refusal(program), MapError::NotMemory(_)));
    let process = File::open("/proc/self/maps").unwrap();
    assert!(matches!(refusal(process), MapError::NotMemory(_)));
}

#[test]
fn an_empty_file_and_rights_that_do_not_read_are_refused() {
    const NAME: &str = "an-empty-file-and-rights-that";
    assert!(matches!(
        refusal(Client::new(NAME, 0).fd()),
        MapError::Empty
    ));
    let client = Client::new(NAME, PAGE);
    let write_only = client.reopened(OpenOptions::new().write(true));
    assert!(matches!(refusal(write_only), MapError::NotReadable));
    let path = client.reopened(OpenOptions::new().read(true).custom_flags(libc::O_PATH));
    assert!(matches!(refusal(path), MapError::NotReadable));
}

#[test]
fn one_file_is_mapped_once_under_65535_regions() {
    const NAME: &str = "one-file-is-mapped-once-under";
    let client = Client::new(NAME, MAX_DMA_REGIONS as u64 * PAGE);
    let mut mappings = ClientMappings::new();
    let mut map = DmaMap::new(MAX_DMA_REGIONS);
    for page in 0..MAX_DMA_REGIONS as u64 {
        // A vIOMMU's order: addresses and file pages have nothing to do with each other.
        let scattered = page * 40_504 % MAX_DMA_REGIONS as u64;
        let mapping = mappings.map(client.fd()).unwrap();
        let backing = Some((mapping, page * PAGE));
        map.map(Iova(scattered * PAGE), PAGE, Access::READ_WRITE, backing)
            .unwrap();
    }
    assert_eq!(map.regions().count(), MAX_DMA_REGIONS);
    assert_eq!(mappings_of(NAME), 1);
    let full = map.map(Iova(1 << 40), PAGE, Access::READ_WRITE, None);
    let limit = MAX_DMA_REGIONS;
    assert_eq!(full, Err(DmaError::TooMany { limit }));
    drop((map, mappings));
    assert_eq!(mappings_of(NAME), 0);
}

#[test]
fn a_file_that_has_grown_is_mapped_anew_and_the_old_one_let_go() {
    const NAME: &str = "a-file-that-has-grown-is";
    let client = Client::new(NAME, PAGE);
    let mut mappings = ClientMappings::new();
    let small = mappings.map(client.fd()).unwrap();
    assert!(Arc::ptr_eq(&small, &mappings.map(client.fd()).unwrap()));
    client.file.set_len(3 * PAGE).unwrap();
    let large = mappings.map(client.fd()).unwrap();
    assert_eq!((small.len(), large.len()), (PAGE, 3 * PAGE));
    assert_eq!(mappings_of(NAME), 2);
    drop(small);
    assert_eq!(mappings_of(NAME), 1);
    // And one that has shrunk while unused, so that nothing is promised that is not there.
    client.file.set_len(PAGE).unwrap();
    drop(large);
    assert_eq!(mappings.map(client.fd()).unwrap().len(), PAGE);
    assert_eq!(mappings_of(NAME), 1);
}

#[test]
fn what_no_region_uses_is_let_go_when_another_file_comes() {
    const NAME: &str = "what-no-region-uses-is-let";
    let mut mappings = ClientMappings::new();
    let kept = mappings.map(Client::new(NAME, PAGE).fd()).unwrap();
    drop(mappings.map(Client::new(NAME, PAGE).fd()).unwrap());
    assert_eq!(mappings_of(NAME), 2);
    drop(mappings.map(Client::new(NAME, PAGE).fd()).unwrap());
    assert_eq!(mappings_of(NAME), 2);
    drop(mappings);
    assert_eq!(mappings_of(NAME), 1, "regions keep theirs");
    drop(kept);
    assert_eq!(mappings_of(NAME), 0);
}

#[test]
fn a_descriptor_that_does_not_write_never_gets_a_writable_mapping() {
    let client = Client::new("a-descriptor-that-does-not-write", 2 * PAGE);
    let mut mappings = ClientMappings::new();
    let writable = mappings.map(client.fd()).unwrap();
    assert!(writable.is_writable());
    let read_only = client.reopened(OpenOptions::new().read(true));
    let read_only = mappings.map(read_only).unwrap();
    assert!(!read_only.is_writable());
    let mut map = DmaMap::new(4);
    let refused = map.map(
        Iova(0),
        PAGE,
        Access::READ_WRITE,
        Some((read_only.clone(), 0)),
    );
    assert_eq!(refused, Err(DmaError::NotWritable));
    let backing = Some((read_only, 0));
    assert_eq!(map.map(Iova(0), PAGE, Access::READ, backing), Ok(()));
    let backing = Some((writable, 0));
    let at = Iova(PAGE);
    assert_eq!(map.map(at, PAGE, Access::READ_WRITE, backing), Ok(()));
}

#[test]
fn a_file_sealed_against_writing_is_mapped_read_only() {
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let client = Client::new("a-file-sealed-against-writing-is", PAGE);
        client.write(0, b"firmware");
        rustix::fs::fcntl_add_seals(&client.file, seal).unwrap();
        let mapping = ClientMappings::new().map(client.fd());
        // A kernel before 6.7 maps no file sealed with WRITE as shared at all, and says so.
        match mapping {
            Ok(mapping) => assert!(!mapping.is_writable()),
            Err(error) => assert!(matches!(error, MapError::System(_)), "{error}"),
        }
    }
}

#[test]
fn one_session_cannot_take_the_address_space_or_the_table() {
    const NAME: &str = "one-session-cannot-take-the-address";
    let mut mappings = ClientMappings::new();
    // Sparse: no page is ever touched.
    let huge = Client::new(NAME, 1 << 44);
    let held = mappings.map(huge.fd()).unwrap();
    let more = mappings.map(Client::new(NAME, PAGE).fd());
    assert!(matches!(more, Err(MapError::SessionLimit)));
    drop(held);
    assert!(mappings.map(Client::new(NAME, PAGE).fd()).is_ok());
    let too_large = mappings.map(Client::new(NAME, (1 << 44) + PAGE).fd());
    assert!(matches!(too_large, Err(MapError::SessionLimit)));

    // A client that makes its file grow by a page for every region it maps.
    let mut mappings = ClientMappings::new();
    let client = Client::new(NAME, PAGE);
    let mut grow = |pages: usize| {
        client.file.set_len(pages as u64 * PAGE).unwrap();
        mappings.map(client.fd())
    };
    let held: Vec<_> = (1..=MAX_SESSION_MAPPINGS)
        .map(|pages| grow(pages).unwrap())
        .collect();
    let error = grow(MAX_SESSION_MAPPINGS + 1).unwrap_err();
    assert!(matches!(error, MapError::SessionLimit), "{error}");
    assert!(
        ClientMappings::new()
            .map(Client::new(NAME, PAGE).fd())
            .is_ok()
    );
    drop(held);
    assert!(mappings.map(client.fd()).is_ok());
}
