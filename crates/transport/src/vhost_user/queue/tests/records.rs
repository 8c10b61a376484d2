//! The file with the records: its layout, and what is refused.
//!
//! Offsets are those of the structures in the document of vhost-user.

use std::os::fd::OwnedFd;

use memory::HostMemory;

use super::super::inflight::AdoptError;
use super::super::{Inflight, Queue, RingFault};
use super::Dice;
use super::driver::Driver;
use super::guest::{DEVICE, Guest};

/// A file with one record, as the front end has it.
struct File {
    fd: OwnedFd,
    len: u64,
}

impl File {
    fn new(size: u16, is_packed: bool) -> Self {
        let (_, fd, len) = Inflight::create(1, size, is_packed).unwrap();
        Self { fd, len }
    }

    fn adopt(&self, size: u16, is_packed: bool) -> Result<Inflight, AdoptError> {
        let fd = self.fd.try_clone().unwrap();
        Inflight::adopt(fd, self.len, 0, 1, size, is_packed)
    }

    fn queue(&self, guest: &Guest) -> Result<Queue, RingFault> {
        let setup = &guest.setup;
        let inflight = self.adopt(setup.size, setup.is_packed).unwrap();
        guest.tracked(&inflight)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        let read = rustix::io::pread(&self.fd, &mut bytes, 0).unwrap();
        assert_eq!(read, bytes.len());
        bytes
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        assert_eq!(
            rustix::io::pwrite(&self.fd, bytes, at).unwrap(),
            bytes.len()
        );
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Offers `count` requests of one descriptor, and takes them.
fn take(
    guest: &mut Guest,
    driver: &mut Driver,
    queue: &mut Queue,
    count: usize,
) -> Vec<super::super::Head> {
    for _ in 0..count {
        assert!(driver.offer(guest, driver.pieces(0, 1), 0));
    }
    (0..count)
        .map(|_| guest.take(queue).unwrap().unwrap().0)
        .collect()
}

#[test]
fn regions_are_as_large_as_the_document_says() {
    // 16 bytes, and 16 for each entry; 32, and 32. Rounded up to 64.
    for (queues, size, is_packed, expected) in [
        (1, 1, false, 64),
        (1, 128, false, 2112),
        (4, 256, false, 4 * 4160),
        (1, 1, true, 64),
        (3, 4, true, 3 * 192),
        (2, 32768, true, 2 * (32 * 32768 + 64)),
    ] {
        let (inflight, _, len) = Inflight::create(queues, size, is_packed).unwrap();
        assert_eq!(len, expected);
        assert!(inflight.record(queues - 1).is_some());
        assert!(inflight.record(queues).is_none());
    }
    for (queues, size) in [(0, 4), (1, 0), (1, 32769)] {
        assert!(Inflight::create(queues, size, false).is_err());
    }
}

#[test]
fn a_split_record_has_the_documented_layout() {
    let file = File::new(4, false);
    let mut guest = Guest::new(4, false);
    let mut driver = Driver::new(&guest);
    driver.start_at(&guest, 9);
    guest.setup.base = 9;
    let mut queue = file.queue(&guest).unwrap();
    let bytes = file.bytes();
    // features, version, desc_num, last_batch_head, used_idx
    assert_eq!(u64_at(&bytes, 0), 0);
    let header = [8, 10, 12, 14].map(|at| u16_at(&bytes, at));
    assert_eq!(header, [1, 4, 0, 9]);
    let heads = take(&mut guest, &mut driver, &mut queue, 3);
    let bytes = file.bytes();
    // inflight and counter
    let entries = [16, 32, 48, 64].map(|at| (bytes[at], u64_at(&bytes, at + 8)));
    assert_eq!(entries, [(1, 0), (1, 1), (1, 2), (0, 0)]);
    queue.give_back(heads[2], 1);
    queue.give_back(heads[1], 1);
    let bytes = file.bytes();
    assert_eq!((bytes[16 + 16], bytes[16 + 32]), (1, 1));
    // last_batch_head is the newest, and next leads to the one before it
    assert_eq!((u16_at(&bytes, 12), u16_at(&bytes, 16 + 16 + 6)), (1, 2));
    queue.publish();
    let bytes = file.bytes();
    assert_eq!([16, 32, 48].map(|at| bytes[at]), [1, 0, 0]);
    assert_eq!(u16_at(&bytes, 14), 11);
}

#[test]
fn a_packed_record_has_the_documented_layout() {
    let file = File::new(4, true);
    let mut guest = Guest::new(4, true);
    let mut driver = Driver::new(&guest);
    // Three laps and three entries were done before.
    (driver.available, driver.used) = (3, 3);
    guest.setup.base = 0x8003_8003;
    let mut queue = file.queue(&guest).unwrap();
    let bytes = file.bytes();
    assert_eq!(u64_at(&bytes, 0), 0);
    // version, desc_num, free_head, old_free_head, used_idx, old_used_idx
    let header = |bytes: &[u8]| [8, 10, 12, 14, 16, 18].map(|at| u16_at(bytes, at));
    assert_eq!(header(&bytes), [1, 4, 0, 0, 3, 3]);
    assert_eq!(bytes[20..22], [1, 1]);
    assert_eq!([34, 66, 98, 130].map(|at| u16_at(&bytes, at)), [1, 2, 3, 4]);
    let pieces = driver.pieces(1, 1);
    assert!(driver.offer(&guest, pieces, 0));
    assert!(driver.offer(&guest, driver.pieces(0, 2), 2));
    let first = guest.take(&mut queue).unwrap().unwrap().0;
    guest.take(&mut queue).unwrap().unwrap();
    let bytes = file.bytes();
    assert_eq!(header(&bytes), [1, 4, 3, 3, 3, 3]);
    // The first one: inflight, last, num, counter; id, flags, len and addr of both descriptors.
    let entry = |index: usize| &bytes[32 + 32 * index..64 + 32 * index];
    let (one, two, three) = (entry(0), entry(1), entry(2));
    assert_eq!(one[0], 1);
    assert_eq!((u16_at(one, 4), u16_at(one, 6), u64_at(one, 8)), (1, 2, 0));
    // NEXT, and available in the lap with counter 1; WRITE, in the next lap.
    assert_eq!((u16_at(one, 16), u16_at(one, 18)), (0, 0x81));
    assert_eq!((u64_at(one, 16) >> 32, u64_at(one, 24)), (0, 0));
    assert_eq!((u16_at(two, 16), u16_at(two, 18)), (0, 0x8002));
    assert_eq!((u64_at(two, 16) >> 32, u64_at(two, 24)), (512, 1));
    assert_eq!((two[0], three[0]), (0, 1));
    assert_eq!(
        (u16_at(three, 4), u16_at(three, 6), u64_at(three, 8)),
        (2, 1, 1)
    );
    assert_eq!((u16_at(three, 16), u16_at(three, 18)), (1, 0x8004));
    queue.give_back(first, 1);
    queue.publish();
    let bytes = file.bytes();
    assert_eq!(header(&bytes), [1, 4, 0, 0, 1, 1]);
    assert_eq!(bytes[20..22], [0, 0]);
    assert_eq!(u16_at(&bytes, 32 + 32 + 2), 3);
    assert_eq!((bytes[32], bytes[96]), (0, 1));
}

/// Files that a front end gives back, and that cannot be continued with.
#[test]
fn files_that_are_refused() {
    let file = File::new(4, false);
    let adopt = |len, offset, queues, size, is_packed| {
        let fd = file.fd.try_clone().unwrap();
        Inflight::adopt(fd, len, offset, queues, size, is_packed).map(drop)
    };
    adopt(4096, 0, 1, 4, false).unwrap();
    adopt(128, 4096 - 128, 1, 4, false).unwrap();
    for (len, offset, queues) in [(127, 0, 1), (128, 4096 - 64, 1), (128, 0, 2), (4097, 0, 1)] {
        let refused = adopt(len, offset, queues, 4, false);
        assert!(
            matches!(refused, Err(AdoptError::Bounds { .. })),
            "{len} {offset}"
        );
    }
    assert!(matches!(
        adopt(u64::MAX - 63, 128, 1, 4, false),
        Err(AdoptError::Bounds { .. })
    ));
    assert!(matches!(
        adopt(128, 32, 1, 4, false),
        Err(AdoptError::Misaligned(32))
    ));
    for (queues, size) in [(0, 4), (1, 0), (1, 32769)] {
        let refused = adopt(4096, 0, queues, size, false);
        assert!(matches!(refused, Err(AdoptError::Rings { .. })));
    }
    file.put(8, &[2]);
    assert!(matches!(
        adopt(4096, 0, 1, 4, false),
        Err(AdoptError::Layout {
            ring: 0,
            version: 2,
            features: 0
        })
    ));
    file.put(0, &[1]);
    file.put(8, &[1]);
    assert!(matches!(
        adopt(4096, 0, 1, 4, false),
        Err(AdoptError::Layout {
            ring: 0,
            version: 1,
            features: 1
        })
    ));
    // A region that is not initialized.
    file.put(8, &[0]);
    adopt(4096, 0, 1, 4, false).unwrap();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let refused = Inflight::adopt(pipe, 64, 0, 1, 1, false);
    assert!(matches!(refused, Err(AdoptError::Map(_))));
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file.fd)
    );
    let read_only = OwnedFd::from(std::fs::File::open(path).unwrap());
    let refused = Inflight::adopt(read_only, 128, 0, 1, 4, false);
    assert!(matches!(refused, Err(AdoptError::ReadOnly)));
}

/// A region that is not initialized may have any bytes.
#[test]
fn a_new_region_is_initialized() {
    for is_packed in [false, true] {
        let file = File::new(4, is_packed);
        file.put(0, &vec![0xff; file.len as usize]);
        file.put(8, &[0, 0]);
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = file.queue(&guest).unwrap();
        take(&mut guest, &mut driver, &mut queue, 4);
        let mut queue = file.queue(&guest).unwrap();
        assert!(guest.take(&mut queue).unwrap().is_some());
        assert_eq!(queue.resubmitted(), 1);
    }
}

/// The faults of a record and of its ring.
fn refused(is_packed: bool, change: &[(u64, &[u8])]) -> &'static str {
    let file = File::new(4, is_packed);
    let mut guest = Guest::new(4, is_packed);
    let mut driver = Driver::new(&guest);
    let mut queue = file.queue(&guest).unwrap();
    let heads = take(&mut guest, &mut driver, &mut queue, 3);
    queue.give_back(heads[0], 1);
    queue.publish();
    drop(queue);
    file.queue(&guest).unwrap();
    for (at, bytes) in change {
        file.put(*at, bytes);
    }
    match file.queue(&guest) {
        Err(RingFault::Record(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn split_records_that_are_wrong() {
    let entry = |index: u64| 16 + 16 * index;
    for (change, expected) in [
        (&[(10, &[5][..])][..], "it has another number of entries"),
        (
            &[(entry(3), &[2])],
            "an entry is neither in flight nor free",
        ),
        (
            &[(entry(1) + 8, &[2])],
            "two requests have the same counter",
        ),
        (&[(entry(1) + 15, &[0x80])], "a counter is too large"),
        (&[(14, &[2])], "its used index is not the ring's"),
        (&[(14, &[0]), (12, &[4])], "its last batch leaves it"),
        (
            &[(14, &[0xff, 0xff]), (12, &[0]), (entry(0) + 6, &[0])],
            "its last batch is a circle",
        ),
    ] {
        assert_eq!(refused(false, change), expected);
    }
}

#[test]
fn packed_records_that_are_wrong() {
    // Entry 0 is free, and 3 behind it; 1 and 2 are in flight.
    let entry = |index: u64| 32 + 32 * index;
    for (change, expected) in [
        (&[(10, &[5][..])][..], "it has another number of entries"),
        (
            &[(entry(1), &[2])],
            "an entry is neither in flight nor free",
        ),
        (
            &[(entry(1) + 8, &[2])],
            "two requests have the same counter",
        ),
        (&[(entry(1) + 15, &[0x80])], "a counter is too large"),
        (&[(18, &[4])], "its used index is not in the ring"),
        (&[(16, &[4])], "its used index is not in the ring"),
        (&[(21, &[2])], "its used index is not in the ring"),
        (&[(14, &[5])], "a list leaves it"),
        (&[(entry(3) + 2, &[0])], "an entry is in two lists"),
        (&[(entry(3) + 2, &[9])], "a list leaves it"),
        (&[(14, &[3])], "its lists do not have each entry once"),
        (&[(entry(1), &[0])], "its lists do not have each entry once"),
        (
            &[(entry(1) + 6, &[0])],
            "a request has no descriptors, or too many",
        ),
        (
            &[(entry(1) + 6, &[5])],
            "a request has no descriptors, or too many",
        ),
        (
            &[(entry(1) + 6, &[2]), (entry(1) + 4, &[2])],
            "an entry is in two lists",
        ),
        (
            &[(entry(1) + 4, &[2])],
            "a request ends elsewhere than it says",
        ),
    ] {
        assert_eq!(refused(true, change), expected, "{change:?}");
    }
}

/// A request of the record is checked like one of the driver.
#[test]
fn requests_of_a_record_are_checked() {
    let file = File::new(4, true);
    let mut guest = Guest::new(4, true);
    let mut driver = Driver::new(&guest);
    let mut queue = file.queue(&guest).unwrap();
    take(&mut guest, &mut driver, &mut queue, 2);
    let flags = |flags: u16| {
        file.put(32 + 18, &flags.to_le_bytes());
        let mut guest = Guest::new(4, true);
        let mut queue = file.queue(&guest).unwrap();
        guest.take(&mut queue)
    };
    assert!(flags(0).unwrap().is_some());
    let ends = "a request ends elsewhere than it says";
    assert_eq!(flags(1).unwrap_err(), RingFault::Record(ends));
    assert_eq!(flags(4).unwrap_err(), RingFault::TableLength(0));
    file.put(32 + 18, &[0, 0]);
    file.put(64 + 16, &[0, 0]);
    let mut queue = file.queue(&guest).unwrap();
    guest.take(&mut queue).unwrap();
    assert_eq!(guest.fault(&mut queue), RingFault::Twice(0));
}

#[test]
fn records_of_other_rings() {
    let file = File::new(4, false);
    let record = |size, is_packed| {
        let inflight = file.adopt(4, false).unwrap();
        let guest = Guest::new(size, is_packed);
        guest.tracked(&inflight).err()
    };
    let other = RingFault::Record("it is of the other layout");
    assert_eq!(record(4, true), Some(other));
    let fewer = RingFault::Record("it has fewer entries than the ring");
    assert_eq!(record(8, false), Some(fewer));
    // A ring with fewer entries than its record.
    assert_eq!(record(2, false), None);
    for is_packed in [false, true] {
        let file = File::new(8, is_packed);
        let mut guest = Guest::new(2, is_packed);
        let mut driver = Driver::new(&guest);
        for _ in 0..20 {
            let inflight = file.adopt(8, is_packed).unwrap();
            let mut queue = guest.tracked(&inflight).unwrap();
            let heads = take(&mut guest, &mut driver, &mut queue, 2);
            queue.give_back(heads[1], 1);
            queue.publish();
            let mut queue = guest.tracked(&inflight).unwrap();
            let (head, _) = guest.take(&mut queue).unwrap().unwrap();
            queue.give_back(head, 1);
            queue.publish();
            while driver.collect(&guest).is_some() {}
            assert!(driver.outstanding.is_empty());
        }
    }
    // A request in flight there is not in a smaller ring.
    let mut guest = Guest::new(4, false);
    let mut driver = Driver::new(&guest);
    let mut queue = file.queue(&guest).unwrap();
    take(&mut guest, &mut driver, &mut queue, 3);
    let outside = RingFault::Record("a request in flight is not in the ring");
    assert_eq!(record(2, false), Some(outside));
}

/// A ring that begins again with nothing in flight: its used index is another one.
#[test]
fn a_split_ring_that_was_reset() {
    let file = File::new(4, false);
    let mut guest = Guest::new(4, false);
    let mut driver = Driver::new(&guest);
    driver.start_at(&guest, 1000);
    guest.setup.base = 1000;
    file.queue(&guest).unwrap();
    let mut driver = Driver::new(&guest);
    driver.start_at(&guest, 0);
    guest.setup.base = 0;
    let mut queue = file.queue(&guest).unwrap();
    let heads = take(&mut guest, &mut driver, &mut queue, 2);
    queue.give_back(heads[0], 1);
    queue.publish();
    assert_eq!(guest.get16(DEVICE + 2), 1);
    let mut queue = file.queue(&guest).unwrap();
    guest.take(&mut queue).unwrap().unwrap();
    assert_eq!(queue.resubmitted(), 1);
}

/// A front end that shortens the file loses the record, and nothing else.
#[test]
fn a_file_that_is_shortened() {
    for is_packed in [false, true] {
        let fd = rustix::fs::memfd_create("record", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4000).unwrap();
        let file = File { fd, len: 4000 };
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = file.queue(&guest).unwrap();
        let heads = take(&mut guest, &mut driver, &mut queue, 2);
        rustix::fs::ftruncate(&file.fd, 0).unwrap();
        queue.give_back(heads[1], 1);
        queue.publish();
        assert!(driver.collect(&guest).is_some());
        let heads = take(&mut guest, &mut driver, &mut queue, 2);
        queue.give_back(heads[0], 1);
        queue.publish();
        assert!(driver.collect(&guest).is_some());
    }
}

/// A record whose memory is the guest's, so that the guest writes it: nothing that was checked is
/// read again.
#[test]
fn a_record_that_changes_later() {
    for is_packed in [false, true] {
        let memory = HostMemory::new(4096).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let inflight = Inflight::adopt(fd, 4096, 0, 1, 4, is_packed).unwrap();
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = guest.tracked(&inflight).unwrap();
        for _ in 0..20 {
            memory.write(0, &[0xff; 4096]);
            let heads = take(&mut guest, &mut driver, &mut queue, 3);
            memory.write(0, &[0xff; 4096]);
            heads.into_iter().for_each(|head| queue.give_back(head, 1));
            memory.write(0, &[0xff; 4096]);
            queue.publish();
            while driver.collect(&guest).is_some() {}
            assert!(driver.outstanding.is_empty());
        }
    }
}

/// Records with any bytes are refused, or have each request once.
#[test]
fn any_record_at_all() {
    let mut accepted = [0; 2];
    for seed in 0..4000 {
        let is_packed = seed % 2 == 1;
        let mut dice = Dice::new(seed);
        let memory = HostMemory::new(4096).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let inflight = Inflight::adopt(fd, 4096, 0, 1, 4, is_packed).unwrap();
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = guest.tracked(&inflight).unwrap();
        let heads = take(&mut guest, &mut driver, &mut queue, 4);
        queue.give_back(heads[dice.below(4) as usize], 1);
        queue.publish();
        for _ in 0..1 + dice.below(4) {
            let at = 10 + dice.below(150) as usize;
            memory.write(at, &[dice.below(6) as u8]);
        }
        let Ok(mut queue) = guest.tracked(&inflight) else {
            continue;
        };
        accepted[usize::from(is_packed)] += 1;
        let mut taken = Vec::new();
        while let Ok(Some((head, _))) = guest.take(&mut queue) {
            taken.push(head);
        }
        assert!(taken.len() <= 4);
        taken.into_iter().for_each(|head| queue.give_back(head, 1));
        queue.publish();
    }
    assert!(accepted[0] > 100 && accepted[1] > 100, "{accepted:?}");
}
