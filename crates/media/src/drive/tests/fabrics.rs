//! Commands to a drive over a network, which describe their data by one data block.

use std::sync::Arc;

use nvme_spec::sqe::Psdt;

use super::rig::{Mood, SIZE, Shape, device};
use crate::drive::command::{Made, make};
use crate::drive::data::Pieces;
use crate::drive::facts::Facts;
use crate::drive::op::{Kind, Op};
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
