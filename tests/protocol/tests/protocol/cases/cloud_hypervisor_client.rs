//! A client that is not ours: the `vfio_user` crate's, which is cloud-hypervisor's.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ch_vfio_user::Client;
use memory::EventFd;
use tests_protocol::{Options, Server};

struct Connected {
    client: Client,
    server: Server,
}

fn connect(options: &Options) -> Connected {
    let server = crate::serve(options);
    // It waits for the reply to VERSION.
    let client = Client::new(&server.path(0)).unwrap();
    Connected { client, server }
}

#[test]
fn it_finds_the_regions() {
    let connected = connect(&Options::default());
    let bar0 = connected.client.region(0).unwrap();
    assert_eq!(bar0.size, 0x4000);
    // READ, WRITE, MMAP, CAPS.
    assert_eq!(bar0.flags & 0b111, 0b111);
    assert_eq!(bar0.sparse_areas.len(), 1);
    assert_eq!(
        (bar0.sparse_areas[0].offset, bar0.sparse_areas[0].size),
        (0x1000, 0x1000)
    );
    assert!(
        bar0.file_offset.is_some(),
        "the doorbells' descriptor came with it"
    );
    assert_eq!(connected.client.region(7).unwrap().size, 4096);
}

#[test]
fn it_reads_and_writes_registers() {
    let mut connected = connect(&Options::default());
    let mut version = [0; 4];
    connected.client.region_read(0, 0x08, &mut version).unwrap();
    assert_eq!(version, [0, 1, 2, 0]);
    connected
        .client
        .region_write(0, 0x28, &[0, 0x10, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let mut asq = [0; 8];
    connected.client.region_read(0, 0x28, &mut asq).unwrap();
    assert_eq!(u64::from_le_bytes(asq), 0x1000);
}

#[test]
fn it_assigns_sixteen_eventfds_at_a_time() {
    let mut connected = connect(&Options {
        queues: 15,
        ..Options::default()
    });
    let info = connected.client.get_irq_info(2).unwrap();
    assert_eq!((info.index, info.count), (2, 16));
    let eventfds: Vec<_> = (0..16).map(|_| EventFd::new().unwrap()).collect();
    let fds: Vec<_> = eventfds
        .iter()
        .map(|eventfd| eventfd.as_fd().as_raw_fd())
        .collect();
    // DATA_EVENTFD, ACTION_TRIGGER.
    connected
        .client
        .set_irqs(2, 1 << 2 | 1 << 5, 0, 16, &fds)
        .unwrap();
    connected.server.raise(0, 15);
    let mut version = [0; 4];
    connected.client.region_read(0, 0x08, &mut version).unwrap();
    let signalled: Vec<_> = eventfds.iter().map(EventFd::drain).collect();
    let expected: Vec<_> = (0..16).map(|vector| vector == 15).collect();
    assert_eq!(signalled, expected);
    // DATA_NONE, ACTION_TRIGGER: disable.
    connected.client.set_irqs(2, 1 | 1 << 5, 0, 0, &[]).unwrap();
}

#[test]
fn it_maps_and_unmaps_memory_and_resets() {
    let mut connected = connect(&Options::default());
    let memory = memory::HostMemory::new(1 << 20).unwrap();
    let fd: BorrowedFd<'_> = memory.fd();
    for _ in 0..3 {
        connected
            .client
            .dma_map(0, 0x10_0000, 1 << 20, fd.as_raw_fd())
            .unwrap();
        connected.client.dma_unmap(0x10_0000, 1 << 20).unwrap();
    }
    connected.client.reset().unwrap();
    drop(connected.client);
    assert_eq!(connected.server.wait_for_end(0), "it closed its socket");
}
