//! Doorbell pages that are shared, and the shadow in a host's memory.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memory::{
    Access, ClientMappings, DmaMap, DmaView, DoorbellPages, Iova, MapError, RingError,
    ShadowDoorbells,
};

use crate::client::{Client, PAGE};

fn file_of(doorbells: &DoorbellPages) -> File {
    doorbells.fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn doorbells_start_at_zero_in_whole_pages() {
    let doorbells = DoorbellPages::new(130).unwrap();
    assert_eq!(doorbells.len() as u64, PAGE);
    assert_eq!(doorbells.slots(), 1024);
    // BAR0's registers take the page before.
    let file_len = file_of(&doorbells).metadata().unwrap().len();
    assert_eq!(file_len, 0x1000 + PAGE);
    assert!((0..1024).all(|slot| doorbells.load(slot) == 0));
    assert_eq!(DoorbellPages::new(1025).unwrap().len() as u64, 2 * PAGE);
    assert_eq!(DoorbellPages::new(0).unwrap().len() as u64, PAGE);
}

#[test]
fn a_clients_store_is_our_load_and_the_reverse() {
    let ours = DoorbellPages::new(1024 + 8).unwrap();
    let theirs = ours.fd().try_clone_to_owned().unwrap();
    let theirs = DoorbellPages::map_client(theirs, 0x1000 + PAGE, PAGE as usize).unwrap();
    assert_eq!(theirs.slots(), 1024);
    theirs.store(5, 0xdead_beef);
    assert_eq!(ours.load(1024 + 5), 0xdead_beef);
    ours.store(1024 + 6, 77);
    assert_eq!(theirs.load(6), 77);
    let mut bytes = [0; 4];
    file_of(&ours)
        .read_exact_at(&mut bytes, 0x1000 + PAGE + 20)
        .unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0xdead_beef);
    ours.zero_all();
    assert_eq!((theirs.load(5), theirs.load(6)), (0, 0));
}

#[test]
fn a_client_can_neither_shrink_nor_grow_nor_seal_the_file() {
    let doorbells = DoorbellPages::new(16).unwrap();
    let file = file_of(&doorbells);
    let refused = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
    };
    refused(file.set_len(0));
    refused(file.set_len(4 * PAGE));
    let seal = rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::FUTURE_WRITE);
    refused(seal.map_err(Into::into));
    doorbells.store(15, 1);
    assert_eq!(doorbells.load(15), 1);
}

#[test]
#[should_panic(expected = "doorbell 1024 of 1024")]
fn a_slot_behind_the_last_page_is_a_mistake_of_ours() {
    DoorbellPages::new(1).unwrap().load(1024);
}

#[test]
fn a_servers_pages_must_be_whole_and_in_its_file() {
    let server = Client::new("server", 2 * PAGE);
    let map = |offset, len| DoorbellPages::map_client(server.fd(), offset, len).map(|_| ());
    assert!(map(0, 2 * PAGE as usize).is_ok());
    let outside = [
        (0, 0),
        (0, 100),
        (8, PAGE as usize),
        (PAGE, 2 * PAGE as usize),
        (2 * PAGE, PAGE as usize),
        (u64::MAX - PAGE + 1, PAGE as usize),
    ];
    for (offset, len) in outside {
        let error = map(offset, len).unwrap_err();
        let named = matches!(error, MapError::OutOfFile { file_len, .. } if file_len == 2 * PAGE);
        assert!(named, "{offset} {len}: {error}");
    }
    let pipe: OwnedFd = rustix::pipe::pipe().unwrap().0;
    let error = DoorbellPages::map_client(pipe, 0, PAGE as usize).unwrap_err();
    assert!(matches!(error, MapError::NotFile("a pipe")), "{error}");
    let read_only = server.reopened(std::fs::OpenOptions::new().read(true));
    let error = DoorbellPages::map_client(read_only, 0, PAGE as usize).unwrap_err();
    assert!(matches!(error, MapError::System(_)), "{error}");
}

/// Page 0 of the file is the shadow at 0, page 1 the EventIdx at 0x10000.
fn shadowed(client: &Client, shadow: Access, event_idx: Access) -> DmaMap {
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    let mut map = DmaMap::new(8);
    map.map(Iova(0), PAGE, shadow, Some((mapping.clone(), 0)))
        .unwrap();
    map.map(Iova(0x10000), PAGE, event_idx, Some((mapping, PAGE)))
        .unwrap();
    map
}

fn new(view: &Arc<DmaView>) -> Result<ShadowDoorbells, RingError> {
    ShadowDoorbells::new(view, Iova(0), Iova(0x10000))
}

#[test]
fn the_shadow_is_read_and_the_event_index_written() {
    let client = Client::new("shadow", 2 * PAGE);
    let write_only = Access {
        read: false,
        write: true,
    };
    let map = shadowed(&client, Access::READ, write_only);
    let doorbells = new(&map.view()).unwrap();
    client.write_u32(2 * 4, 55);
    client.write_u32(PAGE - 4, 66);
    assert_eq!(doorbells.load(2), Some(55));
    assert_eq!(doorbells.load(1023), Some(66));
    assert_eq!(doorbells.load(1024), None);
    doorbells.store_event_idx(2, 54);
    doorbells.store_event_idx(1023, 65);
    doorbells.store_event_idx(1024, 99);
    memory::full_fence();
    assert_eq!(client.read_u32(PAGE + 2 * 4), 54);
    assert_eq!(client.read_u32(2 * PAGE - 4), 65);
    assert_eq!(client.read_u32(2 * 4), 55, "we never write the shadow");
}

#[test]
fn both_pages_must_be_there_and_allow_their_direction() {
    let client = Client::new("shadow-errors", 2 * PAGE);
    let read_write = Access::READ_WRITE;
    let error = |map: &DmaMap| new(&map.view()).map(|_| ()).unwrap_err();
    let read_only = shadowed(&client, read_write, Access::READ);
    assert_eq!(error(&read_only), RingError::Denied);
    let mut map = shadowed(&client, read_write, read_write);
    let misaligned = ShadowDoorbells::new(&map.view(), Iova(4), Iova(0x10000));
    assert_eq!(misaligned.map(|_| ()), Err(RingError::Misaligned));
    map.unmap(Iova(0x10000), PAGE).unwrap();
    assert_eq!(error(&map), RingError::Unmapped);
    map.map(Iova(0x10000), PAGE, read_write, None).unwrap();
    assert_eq!(error(&map), RingError::NoDescriptor);
}

#[test]
fn the_shadow_follows_the_map() {
    let client = Client::new("shadow-moves", 2 * PAGE);
    let mut map = shadowed(&client, Access::READ_WRITE, Access::READ_WRITE);
    let mut doorbells = new(&map.view()).unwrap();
    client.write_u32(0, 5);
    client.write_u32(PAGE, 6);
    map.unmap(Iova(0x10000), PAGE).unwrap();
    doorbells.resolve(&map.view());
    doorbells.store_event_idx(0, 7);
    assert_eq!((doorbells.load(0), client.read_u32(PAGE)), (Some(5), 6));
    map.unmap_all();
    doorbells.resolve(&map.view());
    assert_eq!(doorbells.load(0), None);
}
