//! Commands to a drive over a network, which describe their data by one data block.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme_spec::sqe::Psdt;
use port::{Outcome, Request};

use super::rig::{Host, Mood, Rig, SIZE, Shape, device};
use crate::drive::command::{Made, make};
use crate::drive::data::Pieces;
use crate::drive::facts::Facts;
use crate::drive::op::{HANG_TICKS, INTERRUPTED, Kind, Op};
use crate::drive::queue::{Queue, Wakes};
use crate::{Medium, MediumKind, MediumSpec};

#[test]
fn zeros_for_a_drive_over_a_network_are_one_data_block() {
    let kind = MediumKind::Ram { size: SIZE };
    let medium = Medium::open(&MediumSpec { kind }).unwrap();
    let mood = Arc::<Mood>::default();
    let mut device = device(&medium, &mood, Shape::default(), &Arc::default()).unwrap();
    let facts = Facts::learn(&mut device, None).unwrap();
    let queue = Queue {
        pair: device.create_queue_pair(2, false).unwrap(),
        bounce: Vec::new(),
        zeros: device.alloc(4096).unwrap(),
        wakes: Wakes::Cannot,
        bell: None,
    };
    let op = Op {
        kind: Kind::ZeroWrites,
        offset: 8192,
        left: 1 << 20,
        ..Op::idle()
    };
    let made = || -> Made {
        let drive = (&facts, &queue, &Pieces::new(2), &[][..]);
        make(drive, (0, &op, None), (0, None)).unwrap()
    };
    let near = made();
    assert_eq!(near.sqe.flags.psdt(), Psdt::PRP);
    assert_eq!(near.bytes, 16 << 10, "as much as the drive takes");
    device.bus().set_over_fabrics(true);
    let far = made();
    assert_eq!(far.sqe.flags.psdt(), Psdt::SGL_METADATA_BUFFER);
    let block = far.sqe.sgl1();
    assert_eq!(block.address, queue.pair.iova(&queue.zeros).0);
    assert_eq!((far.bytes, block.length), (4096, 4096));
}

/// The connection of a queue is closed, and its target may execute what it has received: only the
/// reset of the controller ends that, before hosts learn that their commands have ended.
#[test]
fn commands_at_a_target_end_with_a_reset() {
    for hangs in [true, false] {
        let mut rig = Rig::new(Shape::default());
        let host = Host::new();
        let write = Request::Write {
            offset: 0,
            len: 4096,
            fua: false,
        };
        assert_eq!(rig.run(&host, &write, &[(0, 4096)]), Outcome::OK);
        rig.keeper.bus().set_deletes_near(true);
        if hangs {
            rig.mood.hangs.store(true, Ordering::Relaxed);
            let id = rig.add(&host, &write, &[(0, 4096)]);
            rig.tick(HANG_TICKS - 1);
            rig.mood.hangs.store(false, Ordering::Relaxed);
            rig.tick(3);
            assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
        } else {
            // A queue without commands is deleted.
            let claimant = rig.claims.claimant().unwrap();
            drop(rig.drive.channel(8, claimant).unwrap());
            rig.tick(1);
        }
        let counts = rig.drive.counts();
        assert_eq!((counts.resets, counts.losses), (hangs.into(), 0));
        assert_eq!(rig.run(&host, &write, &[(0, 4096)]), Outcome::OK);
    }
}

/// An erase that a target does not finish would zero what the next owner has written.
#[test]
fn an_erase_at_a_target_ends_with_a_reset() {
    let mut rig = Rig::new(Shape::default());
    rig.keeper.bus().set_deletes_near(true);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let error = rig.keeper.erase(0, 1 << 20).unwrap_err();
    assert!(error.contains("did not complete"), "{error}");
    let counts = rig.drive.counts();
    assert_eq!((counts.resets, counts.losses), (1, 0));
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.keeper.erase(0, 1 << 20).unwrap();
    assert_eq!(rig.drive.counts().resets, 1);
}
