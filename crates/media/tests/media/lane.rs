//! Commands of several steps and fused ones, from a host's queue to real files and back.

use std::sync::Arc;

use controller::counters::LaneCounters;
use controller::lane::{BATCH, Copying, Lane, LaneCommand, LaneConfig, Quota, SqSpec};
use controller::state::{FORMAT_VERSION, area_bytes, slots_for};
use media::{Channel, Direct, Medium, MediumKind, MediumSpec};
use memory::{DoorbellPages, Iova, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::{Channel as _, Channels, Done, Outcome, Request};

use crate::common::{BASE, Host, Runner, on_disk, open_file, pattern};

const SIZE: u64 = 8 << 20;
const ENTRIES: u32 = 64;
/// Where the host has its rings, the ranges of its copies, and its data.
const CQ: usize = 0;
const SQ: usize = 4096;
const LIST: usize = 16_384;
const DATA: usize = 65_536;

/// A host with a queue pair, and namespaces 1, 2 and 3 on media.
struct Rig {
    host: Host,
    doorbells: Arc<DoorbellPages>,
    lane: Lane,
    channels: Channels<Channel>,
    submitted: u32,
    completed: u32,
}

impl Rig {
    fn new(media: &[Arc<Medium>]) -> Rig {
        let host = Host::new(1 << 20);
        let mut channels = Channels::new();
        let mut namespaces = Vec::new();
        for (nsid, medium) in (1..).zip(media) {
            let channel = medium.channel(16).expect("a channel");
            let Ok(channel) = channels.insert(channel) else {
                panic!("an id for each")
            };
            namespaces.push(Namespace {
                nsid,
                channel,
                start: 4096,
                blocks: (SIZE - 4096) / 512,
                lba_shift: 9,
                nguid: [0; 16],
                eui64: [0; 8],
                traits: medium.traits(),
                restrictions: None,
                set: None,
            });
        }
        let doorbells = Arc::new(DoorbellPages::new(8).expect("doorbells"));
        let areas = [area_bytes(ENTRIES)];
        let state = StateFile::create("test", FORMAT_VERSION, &areas).expect("a state file");
        let mut lane = Lane::new(LaneConfig {
            cqid: 1,
            entries: ENTRIES,
            base: Iova(BASE + CQ as u64),
            vector: None,
            doorbells: doorbells.clone(),
            shadow: None,
            view: host.view.clone(),
            namespaces: Arc::new(NamespaceTable::from(namespaces)),
            generation: 0,
            state: state.take(0, slots_for(ENTRIES)).expect("an area"),
            mdts_bytes: 1 << 20,
            write_through: false,
            quota: Quota::Each(BATCH),
            is_inside: false,
            copying: Copying {
                across: true,
                namespace_limit: 8,
            },
            counters: Arc::<LaneCounters>::default(),
            mail_count: Arc::default(),
            first_name: 1,
        })
        .expect("a lane");
        let queue = SqSpec::new(&host.view, 1, Iova(BASE + SQ as u64), ENTRIES);
        lane.command(LaneCommand::AddQueue(queue.expect("a queue")));
        Rig {
            host,
            doorbells,
            lane,
            channels,
            submitted: 0,
            completed: 0,
        }
    }

    /// Submits commands with one doorbell, and waits until all have completed, in the order of
    /// their identifiers.
    fn run(&mut self, commands: &[Sqe]) -> Vec<Cqe> {
        for (cid, sqe) in (0..).zip(commands) {
            let words = Sqe { cid, ..*sqe }.to_words();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let index = (self.submitted % ENTRIES) as usize;
            self.host.put(SQ + index * 64, &bytes);
            self.submitted += 1;
        }
        self.doorbells
            .store(sq_tail_slot(1), self.submitted % ENTRIES);
        let mut done: Vec<Done> = Vec::with_capacity(64);
        let mut cqes = Vec::new();
        for _ in 0..10_000_000_u32 {
            self.lane.turn(&mut self.channels);
            for (_, channel) in self.channels.iter_mut() {
                channel.submit();
                channel.reap(&mut done);
            }
            for Done { ticket, outcome } in done.drain(..) {
                self.lane.complete(ticket, outcome);
            }
            while let Some(cqe) = self.next() {
                cqes.push(cqe);
            }
            if cqes.len() == commands.len() {
                // As before a sleep: what comes next may use channels of its own.
                for (_, channel) in self.channels.iter_mut() {
                    assert!(!channel.is_due());
                }
                cqes.sort_by_key(|cqe: &Cqe| cqe.cid);
                return cqes;
            }
            std::thread::yield_now();
        }
        panic!("a command hangs");
    }

    fn next(&mut self) -> Option<Cqe> {
        let at = CQ + (self.completed % ENTRIES) as usize * 16;
        let bytes = self.host.get(at, 16);
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        let cqe = Cqe::from_words([word(0).expect("8 bytes"), word(8).expect("8 bytes")]);
        if cqe.status.phase() != (self.completed / ENTRIES).is_multiple_of(2) {
            return None;
        }
        self.completed += 1;
        self.doorbells
            .store(cq_head_slot(1), self.completed % ENTRIES);
        Some(cqe)
    }

    /// Copy of ranges (namespace, first block, blocks), listed at a place of their own, to a block
    /// of a namespace.
    fn copy(&self, list: usize, nsid: u32, to: u32, ranges: &[(u32, u64, u16)]) -> Sqe {
        let at = LIST + list * 4096;
        for (number, (from, slba, blocks)) in ranges.iter().enumerate() {
            let mut entry = [0; 32];
            entry[..4].copy_from_slice(&from.to_le_bytes());
            entry[8..16].copy_from_slice(&slba.to_le_bytes());
            entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
            self.host.put(at + 32 * number, &entry);
        }
        Sqe {
            opcode: 0x19,
            nsid,
            prp1: BASE + at as u64,
            cdw10: to,
            cdw12: 2 << 8 | (ranges.len() as u32 - 1),
            ..Sqe::default()
        }
    }
}

fn statuses(cqes: &[Cqe]) -> Vec<Status> {
    cqes.iter().map(|cqe| cqe.status.status()).collect()
}

const OK: Status = Status::SUCCESSFUL_COMPLETION;

/// Two files, one past the page cache where that is possible, and memory; the first holds a
/// pattern.
fn media(directory: &tempfile::TempDir) -> (Vec<Arc<Medium>>, Vec<u8>) {
    let path = |name: &str| directory.path().join(name);
    let ram = MediumSpec {
        kind: MediumKind::Ram { size: SIZE },
    };
    let media = vec![
        open_file(&path("direct"), Some(SIZE), Direct::Auto),
        open_file(&path("cached"), Some(SIZE), Direct::Off),
        Medium::open(&ram).expect("opened"),
    ];
    let bytes = pattern(5, 4 << 20);
    let host = Host::new(bytes.len());
    host.put(0, &bytes);
    let request = Request::Write {
        offset: 4096,
        len: bytes.len() as u32,
        fua: false,
    };
    let outcome = Runner::new(&media[0], 1).run(&host, &request, &[(0, bytes.len())]);
    assert_eq!(outcome, Outcome::OK);
    (media, bytes)
}

/// Bytes of a medium's namespace.
fn read(medium: &Arc<Medium>, slba: u64, len: usize) -> Vec<u8> {
    let host = Host::new(len.next_multiple_of(4096));
    let request = Request::Read {
        offset: 4096 + slba * 512,
        len: len as u32,
    };
    let outcome = Runner::new(medium, 1).run(&host, &request, &[(0, len)]);
    assert_eq!(outcome, Outcome::OK);
    host.get(0, len)
}

#[test]
fn copies_go_from_file_to_file_and_memory() {
    let directory = on_disk();
    let (media, bytes) = media(&directory);
    let mut rig = Rig::new(&media);
    // Six at a time, of which four go on: of whole and odd numbers of blocks, each larger than a
    // step.
    let commands: Vec<Sqe> = (0..6)
        .map(|n| {
            let to = 3000 * (n / 2);
            let ranges = [(1, 1 + u64::from(n), 1025), (1, 7, 3), (1, 300, 1700)];
            rig.copy(n as usize, 2 + n % 2, to, &ranges)
        })
        .collect();
    assert_eq!(statuses(&rig.run(&commands)), [OK; 6]);
    for n in 0..6_usize {
        let part = |from: usize, blocks: usize| bytes[from * 512..][..blocks * 512].to_vec();
        let expected = [part(1 + n, 1025), part(7, 3), part(300, 1700)].concat();
        let found = read(&media[1 + n % 2], 3000 * (n as u64 / 2), expected.len());
        assert!(found == expected, "copy {n}");
    }
    // And back, over what is there: to the end of the namespace, durably.
    let end = (SIZE - 4096) / 512;
    let mut back = rig.copy(0, 1, (end - 2048) as u32, &[(3, 0, 2048)]);
    back.cdw12 |= 1 << 30;
    assert_eq!(statuses(&rig.run(&[back])), [OK]);
    assert!(read(&media[0], end - 2048, 1 << 20) == read(&media[2], 0, 1 << 20));
    let mut behind = rig.copy(0, 1, (end - 2047) as u32, &[(3, 0, 2048)]);
    behind.cdw12 |= 1 << 30;
    assert_eq!(statuses(&rig.run(&[behind])), [Status::LBA_OUT_OF_RANGE]);
}

#[test]
fn verify_reads_files_and_finds_what_cannot_be_read() {
    let directory = on_disk();
    let (media, _) = media(&directory);
    let mut rig = Rig::new(&media);
    let verify = |nsid, slba: u32, blocks: u32| Sqe {
        opcode: 0x0C,
        nsid,
        cdw10: slba,
        // Force Unit Access: the file is synchronised first.
        cdw12: 1 << 30 | (blocks - 1),
        ..Sqe::default()
    };
    let all = (SIZE - 4096) / 512;
    let commands = [1, 2, 3].map(|nsid| verify(nsid, 0, all as u32));
    assert_eq!(statuses(&rig.run(&commands)), [OK; 3]);
    // The second half of a file is cut away.
    let file = std::fs::File::options()
        .write(true)
        .open(directory.path().join("cached"))
        .expect("the file");
    file.set_len(SIZE / 2).expect("cut");
    let commands = [verify(2, 0, 1000), verify(2, 7000, 9000)];
    let statuses = statuses(&rig.run(&commands));
    assert_eq!(statuses[1], Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn fused_pairs_count_one_by_one_on_files() {
    let directory = on_disk();
    let (media, _) = media(&directory);
    for nsid in [2_u32, 3] {
        let mut rig = Rig::new(&media);
        // Each pair expects round n and writes n + 1; of the four of a round one succeeds.
        for round in 0..20_u8 {
            let mut commands = Vec::new();
            for pair in 0..4_usize {
                let at = DATA + pair * 8192;
                rig.host.put(at, &[round; 512]);
                rig.host.put(at + 4096, &[round + 1; 512]);
                for (opcode, fuse, at) in [(0x05, 0b01_u8, at), (0x01, 0b10, at + 4096)] {
                    commands.push(Sqe {
                        opcode,
                        flags: fuse.into(),
                        nsid,
                        prp1: BASE + at as u64,
                        cdw10: 77,
                        ..Sqe::default()
                    });
                }
            }
            let statuses = statuses(&rig.run(&commands));
            let pairs: Vec<_> = statuses.chunks(2).collect();
            let succeeded = pairs.iter().filter(|pair| **pair == [OK, OK]).count();
            let failed = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];
            let others = pairs.iter().filter(|pair| **pair == failed).count();
            assert_eq!((succeeded, others), (1, 3), "round {round}: {statuses:?}");
        }
        assert_eq!(read(&media[nsid as usize - 1], 77, 512), [20; 512]);
    }
}
