//! Instructions of the command path under callgrind: all of it, and its steps, each by itself.
//!
//! Every function here does what it does for [`COMMANDS`] commands.

#![expect(
    missing_docs,
    reason = "the macros make public items without documentation"
)]

use std::hint::black_box;
use std::sync::Arc;

use controller::command;
use controller::queue::{Bells, Cq, Sq};
use gungraun::prelude::*;
use media::{Channel, MediumKind};
use memory::{Buffer, DoorbellPages, Hint, HostSq, Iova, Need};
use nvme_spec::{Cqe, Sqe};
use port::namespace::NamespaceTable;
use port::prp::{self, Segments};
use port::ticket::Ticket;
use port::{Added, Channel as _, ChannelId, Request};
use tests_counts::{COMMANDS, Doorbells, Load, Memory, Rig, channel, file, namespace, null, ram};

const BATCH: u32 = 32;
const READ_32K: Load = Load {
    opcode: 2,
    bytes: 32 << 10,
};

// From the doorbell to the completion, by the whole engine: its look at cold lanes and, every 16
// turns, at the controller, the interrupt and the turn itself are in it.
#[library_benchmark]
#[bench::null_read(Rig::new(null(), Doorbells::Mapped, Load::READ))]
#[bench::null_write(Rig::new(null(), Doorbells::Mapped, Load::WRITE))]
#[bench::null_read_32k(Rig::new(null(), Doorbells::Mapped, READ_32K))]
#[bench::null_read_shadow(Rig::new(null(), Doorbells::Shadow, Load::READ))]
#[bench::ram_read(Rig::new(ram(), Doorbells::Mapped, Load::READ))]
#[bench::ram_write(Rig::new(ram(), Doorbells::Mapped, Load::WRITE))]
#[bench::null_read_watched(Rig::new(null(), Doorbells::Mapped, Load::READ).watched(256))]
#[bench::null_read_traced(Rig::new(null(), Doorbells::Mapped, Load::READ).traced())]
#[bench::memory_file_read(Rig::new(file("/dev/shm"), Doorbells::Mapped, Load::READ))]
fn batch_of_32(mut rig: Rig) -> Rig {
    rig.batches(COMMANDS / BATCH, BATCH);
    rig
}

// The same, one command at a time.
#[library_benchmark]
#[bench::null_read(Rig::new(null(), Doorbells::Mapped, Load::READ))]
#[bench::null_read_shadow(Rig::new(null(), Doorbells::Shadow, Load::READ))]
fn one_by_one(mut rig: Rig) -> Rig {
    rig.batches(COMMANDS, 1);
    rig
}

// A turn that finds nothing, of a reactor with a lane that is hot.
#[library_benchmark]
#[bench::mapped(Rig::new(null(), Doorbells::Mapped, Load::READ))]
fn turn_without_work(mut rig: Rig) -> Rig {
    (0..COMMANDS).for_each(|_| rig.turn());
    rig
}

/// A submission queue on its own, with every command announced.
struct Fetch {
    sq: Sq,
    pages: DoorbellPages,
    _memory: (Memory, HostSq),
}

fn fetch_setup() -> Fetch {
    let memory = Memory::new();
    let ring = HostSq::new(memory.alloc(1024 * 64));
    let pages = DoorbellPages::new(4).expect("doorbells");
    let bells = Bells {
        pages: &pages,
        shadow: None,
    };
    let base = Iova(Memory::address(ring.buffer()));
    let sq = Sq::new(&memory.view, 1, base, 1024, bells).expect("a queue");
    pages.store(2, COMMANDS);
    Fetch {
        sq,
        pages,
        _memory: (memory, ring),
    }
}

// One look at the doorbell, and every entry copied.
#[library_benchmark]
#[bench::look_and_copy(fetch_setup())]
fn fetch(mut with: Fetch) -> Fetch {
    let bells = Bells {
        pages: &with.pages,
        shadow: None,
    };
    with.sq.look(bells).expect("a tail that can be");
    for _ in 0..COMMANDS {
        black_box(with.sq.fetch()).expect("a ring that is there");
    }
    with
}

fn reads() -> Vec<Sqe> {
    let read = |index: u32| Sqe {
        opcode: 2,
        cid: index as u16,
        nsid: 1,
        prp1: u64::from(index) << 12,
        cdw10: index,
        cdw12: 0,
        ..Sqe::default()
    };
    (0..COMMANDS).map(read).collect()
}

#[library_benchmark]
#[bench::read(reads())]
fn parse(commands: Vec<Sqe>) -> Vec<Sqe> {
    for sqe in &commands {
        let _ = black_box(command::parse(black_box(sqe)));
    }
    commands
}

fn namespaces() -> NamespaceTable {
    NamespaceTable::from(vec![namespace(ChannelId(0))])
}

// The namespace found, and blocks made bytes of its medium.
#[library_benchmark]
#[bench::one_block(namespaces())]
fn bounds(table: NamespaceTable) -> NamespaceTable {
    for slba in 0..u64::from(COMMANDS) {
        let namespace = table.get(black_box(1)).expect("attached");
        let _ = black_box(namespace.bytes(black_box(slba), 1));
    }
    table
}

/// Data in the host's memory, and what describes it.
struct Data {
    memory: Memory,
    buffer: Buffer,
    prp2: u64,
    len: u32,
}

/// Pages that follow each other.
fn data(len: u32) -> Data {
    data_apart(len, 4096)
}

/// Pages that begin so many bytes apart.
fn data_apart(len: u32, apart: u64) -> Data {
    let memory = Memory::new();
    let buffer = memory.alloc(8 << 20);
    let start = Memory::address(&buffer);
    let mut prp2 = start + apart;
    if len > 8192 {
        // The list is in the last page.
        for entry in 1..u64::from(len / 4096) {
            let at = (8 << 20) - 4096 + 8 * (entry as usize - 1);
            buffer.write_from(at, &(start + apart * entry).to_le_bytes());
        }
        prp2 = start + (8 << 20) - 4096;
    }
    Data {
        memory,
        buffer,
        prp2,
        len,
    }
}

// From PRP entries to segments.
#[library_benchmark]
#[bench::one_page(data(4096))]
#[bench::two_pages(data(8192))]
#[bench::eight_pages(data(32_768))]
#[bench::eight_apart(data_apart(32_768, 8192))]
#[bench::one_mib(data(1 << 20))]
fn walk(with: Data) -> Data {
    let mut hint = Hint::default();
    let mut segments = Segments::new();
    let prp1 = Memory::address(&with.buffer);
    for _ in 0..COMMANDS {
        let (view, need) = (&with.memory.view, Need::DeviceWrites);
        let (prp1, prp2, len) = black_box((prp1, with.prp2, with.len));
        prp::walk(view, &mut hint, prp1, prp2, len, need, &mut segments).expect("mapped");
        black_box(&segments[..]);
    }
    drop(segments);
    with
}

/// A channel, and a page for its data.
struct Issue {
    channel: Channel,
    data: Data,
}

fn issue_setup(kind: MediumKind) -> Issue {
    Issue {
        channel: channel(kind),
        data: data(4096),
    }
}

// Reads of 4 KiB handed to a medium that does them at once.
#[library_benchmark]
#[bench::null(issue_setup(null()))]
#[bench::ram(issue_setup(ram()))]
fn issue(mut with: Issue) -> Issue {
    let Issue { channel, data } = &mut with;
    let view = &data.memory.view;
    let at = Iova(Memory::address(&data.buffer));
    let segment = view.translate(&mut Hint::default(), at, 4096, Need::DeviceWrites);
    let segments = [segment.expect("mapped")];
    for index in 0..u64::from(COMMANDS) {
        let request = black_box(Request::Read {
            offset: index * 4096,
            len: 4096,
        });
        let ticket = Ticket::numbered(index as u32);
        match channel.add(ticket, &request, &segments, view) {
            Added::Done(ticket, outcome) => {
                black_box(outcome);
                ticket.retire();
            }
            other => panic!("a medium that does it at once says {other:?}"),
        }
    }
    with
}

// The same handed to a ring, and the ring to the kernel: what the kernel does is not counted.
#[library_benchmark]
#[bench::file(issue_setup(file(env!("CARGO_TARGET_TMPDIR"))))]
fn add_and_submit(mut with: Issue) -> Issue {
    let Issue { channel, data } = &mut with;
    let view = &data.memory.view;
    let at = Iova(Memory::address(&data.buffer));
    let segment = view.translate(&mut Hint::default(), at, 4096, Need::DeviceWrites);
    let segments = [segment.expect("mapped")];
    for index in 0..COMMANDS {
        let request = black_box(Request::Read {
            offset: u64::from(index) * 4096,
            len: 4096,
        });
        let ticket = Ticket::numbered(index);
        match channel.add(ticket, &request, &segments, view) {
            Added::Pending => {}
            other => panic!("a file that is not there at once says {other:?}"),
        }
        if (index + 1).is_multiple_of(BATCH) {
            channel.submit();
        }
    }
    with
}

/// A completion queue on its own.
struct Post {
    cq: Cq,
    _memory: (Memory, Buffer, Arc<DoorbellPages>),
}

fn post_setup() -> Post {
    let memory = Memory::new();
    let ring = memory.alloc(1024 * 16);
    let pages = Arc::new(DoorbellPages::new(4).expect("doorbells"));
    let bells = Bells {
        pages: &pages,
        shadow: None,
    };
    let base = Iova(Memory::address(&ring));
    let cq = Cq::new(&memory.view, 1, base, 1024, bells).expect("a queue");
    Post {
        cq,
        _memory: (memory, ring, pages),
    }
}

// A place reserved and an entry stored.
#[library_benchmark]
#[bench::reserve_and_store(post_setup())]
fn post(mut with: Post) -> Post {
    for cid in 0..COMMANDS {
        let reserved = with.cq.reserve().expect("a queue with room");
        let entry = Cqe {
            cid: cid as u16,
            sq_id: 1,
            sq_head: black_box(7),
            ..Cqe::default()
        };
        let posted = with.cq.post(reserved, entry);
        posted.expect("a ring that is there");
    }
    with
}

library_benchmark_group!(
    name = whole,
    benchmarks = [batch_of_32, one_by_one, turn_without_work]
);
library_benchmark_group!(
    name = steps,
    benchmarks = [fetch, parse, bounds, walk, issue, add_and_submit, post]
);
/// The C library copies with what the processor at hand does best; what every one can do is the
/// same everywhere.
fn settings() -> LibraryBenchmarkConfig {
    let mut settings = LibraryBenchmarkConfig::default();
    let features = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-ERMS,-FSRM";
    settings.env("GLIBC_TUNABLES", features);
    settings
}

main!(
    config = settings(),
    library_benchmark_groups = [whole, steps]
);
