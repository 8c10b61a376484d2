//! The host's memory map changes under the admin queue.

use memory::Iova;
use nvme_spec::Sqe;
use port::testing::PAGE;

use super::rig::*;

/// The same addresses lead to other memory: a host that has moved its queues there finds them used.
#[test]
fn the_admin_queue_is_where_the_map_says_now() {
    /// Pages of both queues, and of the memory that they move to.
    const QUEUES: u64 = 2;
    const ELSEWHERE: u64 = PAGES - QUEUES;
    let mut rig = Rig::new();
    rig.host.unmap_pages(0, PAGES);
    rig.host.map_pages(0, QUEUES);
    rig.host.map_pages(QUEUES, PAGES - QUEUES);
    rig.tell_view();
    rig.enable();
    assert!(rig.identify(1, 0, 0).is_ok());
    rig.host.unmap_pages(0, QUEUES);
    rig.host.map_elsewhere(rig.host.page(0), QUEUES, ELSEWHERE);
    rig.tell_view();
    // The second entry of each queue, at the old place and at the new.
    let asq = rig.read64(ASQ);
    let acq = rig.read64(ACQ);
    let moved = |at: u64| Iova(at + ELSEWHERE * PAGE);
    for (at, cid) in [(Iova(asq + 64), 98), (moved(asq + 64), 2)] {
        let mut sqe = rig.with_data(IDENTIFY);
        (sqe.cid, sqe.cdw10) = (cid, 1);
        write_sqe(&rig, at, &sqe);
    }
    let before = rig.host.read(Iova(acq + 16), 16);
    rig.write32(0x1000, 2);
    rig.turns(4);
    let entry = rig.host.read(moved(acq + 16), 16);
    assert_eq!((u16_at(&entry, 12), u16_at(&entry, 14)), (2, 1));
    assert_eq!(rig.host.read(Iova(acq + 16), 16), before);
}

fn write_sqe(rig: &Rig, at: Iova, sqe: &Sqe) {
    for (word, value) in (0..).zip(sqe.to_words()) {
        rig.host.write_u64(Iova(at.0 + 8 * word), value);
    }
}
