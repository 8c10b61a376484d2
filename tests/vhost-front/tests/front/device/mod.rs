//! A back end of packed rings that records its messages: one thread, a disk of 1 MiB in memory.
//!
//! It sleeps until it is notified, so that a notification too few is a request that never ends, and
//! it completes what it finds at a time in reverse order.

mod ring;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memory::HostMemory;
use tempfile::TempDir;
use tests_vhost_front::{FLAG_NEED_REPLY, FLAG_REPLY, Message, Raw, VERSION, config};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryMmap};

use self::ring::{DeviceRing, Wish};

const LEN: usize = 1 << 20;
/// SEG_MAX, BLK_SIZE, FLUSH, CONFIG_WCE, MQ, INDIRECT, EVENT_IDX, protocol features, VERSION_1,
/// PACKED.
const FEATURES: u64 =
    1 << 2 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 28 | 1 << 29 | 1 << 30 | 1 << 32 | 1 << 34;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS, STATUS.
const PROTOCOL: u64 = 0x1b229;
const QUEUES: usize = 2;
const TURN: Duration = Duration::from_micros(200);

/// A message as the device received it: number, flags beside the version, bytes, descriptors.
pub(crate) type Seen = (u32, u32, usize, usize);

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    /// Values of SET_VRING_BASE.
    bases: Mutex<Vec<u32>>,
    /// Inode of the memory of each SET_INFLIGHT_FD, with its length.
    inflight: Mutex<Vec<(u64, u64)>>,
    /// Codes that the front end replied on the back end's channel.
    replies: Mutex<Vec<u64>>,
    turns: AtomicU64,
    kicks: AtomicU64,
    calls: AtomicU64,
    is_ending: AtomicBool,
    is_dying: AtomicBool,
    is_holding: AtomicBool,
    is_mute: AtomicBool,
    is_lying: AtomicBool,
    sectors: AtomicU64,
}

/// A running device, which ends when it is dropped.
pub(crate) struct Device {
    dir: TempDir,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared::default());
        shared.sectors.store(LEN as u64 / 512, Ordering::Relaxed);
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut disk = vec![0; LEN];
            while !theirs.is_ending.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        theirs.is_dying.store(false, Ordering::Release);
                        Connection::new(stream, &theirs, &mut disk).serve();
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TURN),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self {
            dir,
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// The messages since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    pub(crate) fn bases(&self) -> Vec<u32> {
        std::mem::take(&mut self.shared.bases.lock().unwrap())
    }

    pub(crate) fn inflight(&self) -> Vec<(u64, u64)> {
        self.shared.inflight.lock().unwrap().clone()
    }

    pub(crate) fn replies(&self) -> Vec<u64> {
        self.shared.replies.lock().unwrap().clone()
    }

    /// Notifications that arrived, and interrupts that were raised.
    pub(crate) fn events(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Acquire);
        (load(&self.shared.kicks), load(&self.shared.calls))
    }

    /// Leaves requests in the rings from the return on, or goes on.
    pub(crate) fn hold(&self, is_holding: bool) {
        self.shared.is_holding.store(is_holding, Ordering::Release);
        self.settle();
    }

    /// Waits until the device has ended the turn that it has begun, and a whole one.
    pub(crate) fn settle(&self) {
        let turns = || self.shared.turns.load(Ordering::Acquire);
        let deadline = Instant::now() + tests_vhost_front::BOUND;
        let begin = turns();
        while turns() < begin + 2 {
            assert!(Instant::now() < deadline, "the device has ended");
            thread::sleep(TURN);
        }
    }

    /// Closes the connection with everything that it knows, and accepts the next one.
    pub(crate) fn die(&self) {
        self.shared.is_dying.store(true, Ordering::Release);
    }

    /// Answers no messages from now on.
    pub(crate) fn be_mute(&self) {
        self.shared.is_mute.store(true, Ordering::Release);
    }

    /// Reports one byte more than a request has room for from now on.
    pub(crate) fn lie(&self) {
        self.shared.is_lying.store(true, Ordering::Release);
    }

    /// Changes the capacity, of which the front end is notified.
    pub(crate) fn resize(&self, sectors: u64) {
        self.shared.sectors.store(sectors, Ordering::Release);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is a request that does not end: the test has failed.
            let _ = thread.join();
        }
    }
}

#[derive(Default)]
struct Queue {
    ring: Option<DeviceRing>,
    size: u16,
    base: u32,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    is_enabled: bool,
}

struct Connection<'a> {
    raw: Raw,
    shared: &'a Shared,
    disk: &'a mut Vec<u8>,
    features: u64,
    /// Guest address, length, user address and file of each region.
    regions: Vec<(u64, u64, u64, FileOffset)>,
    memory: Option<GuestMemoryMmap>,
    queues: [Queue; QUEUES],
    status: u64,
    writeback: u8,
    inflight: HostMemory,
    requests: Option<Raw>,
    announced: u64,
}

impl<'a> Connection<'a> {
    fn new(stream: UnixStream, shared: &'a Shared, disk: &'a mut Vec<u8>) -> Self {
        stream.set_nonblocking(false).unwrap();
        Self {
            raw: Raw::new(stream),
            shared,
            disk,
            features: 0,
            regions: Vec::new(),
            memory: None,
            queues: Default::default(),
            status: 0,
            writeback: 1,
            inflight: HostMemory::new(4096).unwrap(),
            requests: None,
            announced: shared.sectors.load(Ordering::Acquire),
        }
    }

    fn serve(mut self) {
        let is_over = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        while !is_over(&self.shared.is_ending) && !is_over(&self.shared.is_dying) {
            match self.raw.receive(TURN) {
                Ok(Some(message)) => self.handle(message),
                Ok(None) => {}
                Err(_) => return,
            }
            if !is_over(&self.shared.is_holding) {
                for index in 0..QUEUES {
                    self.work(index);
                }
            }
            self.announce();
            self.shared.turns.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Sends a message about a changed capacity, and takes replies.
    fn announce(&mut self) {
        let sectors = self.shared.sectors.load(Ordering::Acquire);
        let Some(channel) = &self.requests else {
            return;
        };
        if sectors != self.announced {
            self.announced = sectors;
            channel.send(2, FLAG_NEED_REPLY, &[], &[]).unwrap();
        }
        if let Ok(Some(reply)) = channel.receive(Duration::ZERO) {
            assert_eq!((reply.request, reply.flags), (2, VERSION | FLAG_REPLY));
            let code = reply.u64().unwrap();
            self.shared.replies.lock().unwrap().push(code);
        }
    }

    fn handle(&mut self, message: Message) {
        let Message {
            request,
            flags,
            body,
            fds,
        } = message;
        assert_eq!(flags & 3, VERSION);
        let seen = (request, flags & !3, body.len(), fds.len());
        self.shared.seen.lock().unwrap().push(seen);
        if self.shared.is_mute.load(Ordering::Acquire) {
            return;
        }
        let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
        let mut fds = fds.into_iter();
        let mut reply = None;
        let mut reply_fds = Vec::new();
        match request {
            1 => reply = Some(FEATURES.to_ne_bytes().to_vec()),
            2 => self.features = long(0),
            3 => {}
            8 => self.queues[word(0) as usize].size = word(4) as u16,
            9 => self.set_address(word(0) as usize, [long(8), long(16), long(24)]),
            10 => {
                self.queues[word(0) as usize].base = word(4);
                self.shared.bases.lock().unwrap().push(word(4));
            }
            11 => reply = Some(self.stop(word(0))),
            12 => self.queues[long(0) as usize].kick = fds.next(),
            13 => self.queues[long(0) as usize].call = fds.next(),
            14 => drop(fds.next().unwrap()),
            15 => reply = Some(PROTOCOL.to_ne_bytes().to_vec()),
            16 => assert_eq!(long(0) & !PROTOCOL, 0),
            17 => reply = Some((QUEUES as u64).to_ne_bytes().to_vec()),
            18 => self.queues[word(0) as usize].is_enabled = word(4) == 1,
            21 => {
                let stream = UnixStream::from(fds.next().unwrap());
                self.requests = Some(Raw::new(stream));
            }
            24 => reply = Some(self.config(&body)),
            25 => {
                assert_eq!((word(0) as usize, word(4)), (config::WRITEBACK, 1));
                self.writeback = body[12];
            }
            31 => {
                let mut area = 4096u64.to_ne_bytes().to_vec();
                area.extend_from_slice(&body[8..]);
                reply = Some(area);
                reply_fds.push(self.inflight.fd());
            }
            32 => {
                let file = File::from(fds.next().unwrap());
                let seen = (file.metadata().unwrap().ino(), long(0));
                self.shared.inflight.lock().unwrap().push(seen);
            }
            34 => {
                self.status = 0;
                self.queues.iter_mut().for_each(|it| it.ring = None);
            }
            36 => reply = Some(4u64.to_ne_bytes().to_vec()),
            37 => {
                let file = FileOffset::new(File::from(fds.next().unwrap()), long(32));
                self.regions.push((long(8), long(16), long(24), file));
                self.map();
            }
            39 => self.status = long(0),
            40 => reply = Some(self.status.to_ne_bytes().to_vec()),
            other => panic!("message {other}"),
        }
        if reply.is_none() && flags & FLAG_NEED_REPLY != 0 {
            reply = Some(0u64.to_ne_bytes().to_vec());
        }
        if let Some(reply) = reply {
            // A front end that is gone shows with the next message.
            let _ = self.raw.send(request, FLAG_REPLY, &reply, &reply_fds);
        }
    }

    fn config(&self, body: &[u8]) -> Vec<u8> {
        let mut reply = body.to_vec();
        let sectors = self.shared.sectors.load(Ordering::Acquire);
        reply[12..20].copy_from_slice(&sectors.to_le_bytes());
        reply[12 + config::WRITEBACK] = self.writeback;
        reply
    }

    fn map(&mut self) {
        let ranges = self
            .regions
            .iter()
            .map(|(guest, len, _, file)| (GuestAddress(*guest), *len as usize, Some(file.clone())));
        let ranges: Vec<_> = ranges.collect();
        self.memory = Some(GuestMemoryMmap::from_ranges_with_files(ranges).unwrap());
    }

    /// The guest address of a front end's address.
    fn translate(&self, user: u64) -> u64 {
        let region = self
            .regions
            .iter()
            .find(|(_, len, from, _)| (*from..from + len).contains(&user))
            .expect("an address of a region");
        user - region.2 + region.0
    }

    fn set_address(&mut self, index: usize, [descriptors, device, driver]: [u64; 3]) {
        let ring = DeviceRing {
            size: self.queues[index].size,
            descriptors: self.translate(descriptors),
            driver_event: self.translate(driver),
            device_event: self.translate(device),
            available: position(self.queues[index].base as u16),
            used: position((self.queues[index].base >> 16) as u16),
        };
        self.queues[index].ring = Some(ring);
    }

    fn stop(&mut self, index: u32) -> Vec<u8> {
        let queue = &mut self.queues[index as usize];
        let ring = queue.ring.take().unwrap();
        let word = |(slot, wrap): (u16, bool)| u32::from(slot) | u32::from(wrap) << 15;
        let base = word(ring.used) << 16 | word(ring.available);
        let mut reply = index.to_ne_bytes().to_vec();
        reply.extend_from_slice(&base.to_ne_bytes());
        reply
    }

    /// Serves a ring that was notified.
    fn work(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let (Some(ring), Some(memory)) = (&mut queue.ring, &self.memory) else {
            return;
        };
        let (Some(kick), Some(call)) = (&queue.kick, &queue.call) else {
            return;
        };
        let mut count = [0; 8];
        if !queue.is_enabled || rustix::io::read(kick, &mut count).is_err() {
            return;
        }
        let kicks = u64::from_ne_bytes(count);
        self.shared.kicks.fetch_add(kicks, Ordering::AcqRel);
        let wish = match self.features & 1 << 29 {
            0 => Wish::Any,
            _ => Wish::Position,
        };
        let mut is_asked = false;
        ring.ask(memory, Wish::Nothing);
        loop {
            let mut chains = Vec::new();
            while let Some(chain) = ring.take(memory) {
                chains.push(chain);
            }
            if chains.is_empty() {
                if is_asked {
                    return;
                }
                // And look again: the driver may not have seen the wish.
                ring.ask(memory, wish);
                is_asked = true;
                continue;
            }
            if is_asked {
                ring.ask(memory, Wish::Nothing);
                is_asked = false;
            }
            let before = ring.used;
            for chain in chains.iter().rev() {
                let mut bytes = Vec::new();
                for (address, len) in &chain.readable {
                    let from = bytes.len();
                    bytes.resize(from + len, 0);
                    memory
                        .read_slice(&mut bytes[from..], GuestAddress(*address))
                        .unwrap();
                }
                let room = chain.writable.iter().map(|(_, len)| len).sum();
                let answer = answer(self.disk, &bytes, room);
                let mut rest = answer.as_slice();
                for (address, len) in &chain.writable {
                    let (part, behind) = rest.split_at(*len);
                    memory.write_slice(part, GuestAddress(*address)).unwrap();
                    rest = behind;
                }
                let lie = u32::from(self.shared.is_lying.load(Ordering::Acquire));
                ring.give(memory, chain, answer.len() as u32 + lie);
            }
            if ring.wants_interrupt(memory, before) {
                self.shared.calls.fetch_add(1, Ordering::AcqRel);
                rustix::io::write(call.as_fd(), &1u64.to_ne_bytes()).unwrap();
            }
        }
    }
}

fn position(word: u16) -> (u16, bool) {
    (word & 0x7fff, word & 0x8000 != 0)
}

/// Does a read, write or flush: the bytes that the device writes.
fn answer(disk: &mut [u8], bytes: &[u8], room: usize) -> Vec<u8> {
    let kind = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let sector = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let at = sector as usize * 512;
    let mut answer = vec![0; room];
    match kind {
        0 => answer[..room - 1].copy_from_slice(&disk[at..at + room - 1]),
        1 => disk[at..at + bytes.len() - 16].copy_from_slice(&bytes[16..]),
        4 => {}
        _ => answer[room - 1] = 2,
    }
    answer
}
