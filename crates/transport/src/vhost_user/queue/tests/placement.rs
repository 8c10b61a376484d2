//! Where rings may lie.

use memory::{DmaMap, DmaView, HostMemory, Iova};

use super::super::{Queue, RingFault, Setup};
use super::driver::Driver;
use super::guest::{BASE, DESCRIPTORS, DEVICE, DRIVER, Guest, LEN, add};

fn fault(guest: &Guest) -> RingFault {
    guest.queue().unwrap_err()
}

#[test]
fn sizes_and_bases() {
    for (size, is_packed) in [
        (0, false),
        (0, true),
        (3, false),
        (32769, true),
        (65535, true),
    ] {
        assert_eq!(fault(&Guest::new(size, is_packed)), RingFault::Size(size));
    }
    let mut guest = Guest::new(4, false);
    guest.setup.base = 0x1_0000;
    assert_eq!(fault(&guest), RingFault::Base(0x1_0000));
    let mut guest = Guest::new(3, true);
    for base in [3, 3 << 16, 0x8000_8003] {
        guest.setup.base = base;
        assert_eq!(fault(&guest), RingFault::Base(base));
    }
}

#[test]
fn parts_at_odd_addresses() {
    for (is_packed, aligns) in [(false, [16, 2, 4]), (true, [16, 4, 4])] {
        for (part, align) in aligns.into_iter().enumerate() {
            let mut guest = Guest::new(4, is_packed);
            let setup = &mut guest.setup;
            let at = [&mut setup.descriptors, &mut setup.driver, &mut setup.device];
            at.into_iter().nth(part).unwrap().0 += u64::from(align) / 2;
            assert_eq!(fault(&guest), RingFault::Misaligned(align));
        }
        // Each at its least alignment.
        let mut guest = Guest::new(4, is_packed);
        guest.setup.descriptors.0 += 16;
        guest.setup.driver.0 += u64::from(aligns[1]);
        guest.setup.device.0 += u64::from(aligns[2]);
        guest.queue().unwrap();
    }
}

/// Each part may end with the last byte of the address space, and not behind it.
#[test]
fn the_end_of_the_address_space() {
    let memory = HostMemory::new(LEN as usize).unwrap();
    let mut map = DmaMap::new(4);
    add(&mut map, &memory, 0u64.wrapping_sub(LEN), LEN);
    for (is_packed, has_event_idx, lens) in [
        (false, false, [64, 12, 36]),
        (false, true, [64, 14, 40]),
        (true, true, [64, 4, 4]),
    ] {
        let base = 0u64.wrapping_sub(LEN);
        let setup = Setup {
            size: 4,
            descriptors: Iova(base),
            driver: Iova(base + 0x1000),
            device: Iova(base + 0x2000),
            base: if is_packed { 0x8000_8000 } else { 0 },
            is_packed,
            has_event_idx,
            has_indirect: false,
        };
        for (part, len) in lens.into_iter().enumerate() {
            let place = |at: u64| {
                let mut setup = setup;
                let parts = [&mut setup.descriptors, &mut setup.driver, &mut setup.device];
                parts.into_iter().nth(part).unwrap().0 = at;
                Queue::new(&map.view(), &setup, None)
            };
            let last = 0u64.wrapping_sub(len);
            let queue = place(last);
            queue.unwrap().arm();
            let step = if part == 0 { 16 } else { 4 };
            if let Some(behind) = last.checked_add(step) {
                assert_eq!(place(behind).unwrap_err(), RingFault::Unreachable);
            }
        }
    }
}

/// A part in two regions is usable where they are adjacent here, too.
#[test]
fn parts_in_several_regions() {
    let memory = HostMemory::new(LEN as usize).unwrap();
    for (is_split, expected) in [(false, None), (true, Some(RingFault::Scattered))] {
        let mut guest = Guest::new(4, false);
        guest.map.unmap_all();
        let fd = || memory.fd().try_clone_to_owned().unwrap();
        let mut mappings = memory::ClientMappings::new();
        let mapping = mappings.map(fd()).unwrap();
        // With `is_split`, the second half comes from elsewhere.
        let second = if is_split { LEN - 0x1000 } else { 0x1000 };
        for (at, len, offset) in [
            (BASE, 0x1000, 0),
            (BASE + 0x1000, 0x1000, second),
            (BASE + 0x2000, LEN - 0x3000, 0x2000),
        ] {
            let access = memory::Access::READ_WRITE;
            let backing = Some((mapping.clone(), offset));
            guest.map.map(Iova(at), len, access, backing).unwrap();
        }
        guest.setup.descriptors = Iova(BASE + 0xfe0);
        assert_eq!(guest.queue().err(), expected);
    }
}

/// Memory that is mapped elsewhere, or is taken away.
#[test]
fn memory_that_changes() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = guest.queue().unwrap();
        assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
        let (head, _) = guest.take(&mut queue).unwrap().unwrap();
        let other = Guest::new(4, is_packed);
        other.memory().write(0, &guest.get::<64>(0));
        other
            .memory()
            .write(DRIVER as usize, &guest.get::<16>(DRIVER));
        queue.resolve(&other.view()).unwrap();
        queue.give_back(head, 0);
        queue.publish();
        assert!(driver.collect(&guest).is_none());
        assert!(driver.collect(&other).is_some());
        for gone in [DESCRIPTORS, DRIVER, DEVICE] {
            let mut map = DmaMap::new(4);
            for part in [DESCRIPTORS, DRIVER, DEVICE] {
                if part != gone {
                    add(&mut map, guest.memory(), BASE + part, 0x1000);
                }
            }
            assert_eq!(queue.resolve(&map.view()), Err(RingFault::Unreachable));
        }
        assert_eq!(
            queue.resolve(&DmaView::empty()),
            Err(RingFault::Unreachable)
        );
        // It still holds the memory where it was.
        queue.arm();
    }
}

/// Stores of the device are in the log of its view.
#[test]
fn writes_are_logged() {
    for (is_packed, parts) in [(false, [DEVICE, DEVICE]), (true, [DESCRIPTORS, DEVICE])] {
        let mut guest = Guest::new(4, is_packed);
        guest.map.start_log(&[]).unwrap();
        let mut driver = Driver::new(&guest);
        let mut queue = guest.queue().unwrap();
        let marked = |guest: &Guest| {
            let mut pages = vec![0; (LEN / 4096 / 64) as usize];
            let log = guest.map.log().unwrap();
            log.take(Iova(BASE), LEN, 4096, &mut pages).unwrap();
            let is_marked = |page: &u64| pages[*page as usize / 64] >> (page % 64) & 1 == 1;
            (0..LEN / 4096).filter(is_marked).collect::<Vec<_>>()
        };
        assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
        let (head, _) = guest.take(&mut queue).unwrap().unwrap();
        assert!(marked(&guest).is_empty());
        queue.give_back(head, 0);
        queue.publish();
        assert_eq!(marked(&guest), [parts[0] / 4096]);
        queue.arm();
        assert_eq!(marked(&guest), [parts[1] / 4096]);
    }
}
