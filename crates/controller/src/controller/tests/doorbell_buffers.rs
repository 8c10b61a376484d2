//! Doorbell Buffer Config (Base 2.1, 5.2.5): when it is taken, and how long it lasts.

use nvme_spec::Sqe;

use super::rig::*;
use crate::config::DoorbellMode;

#[test]
fn doorbell_buffers_are_two_pages_of_the_hosts() {
    let mut rig = Rig::enabled();
    let (a, b) = (rig.host.page(200).0, rig.host.page(201).0);
    let outside = rig.host.page(PAGES).0;
    for (prp1, prp2, expected) in [
        (a + 4, b, INVALID_FIELD),
        (a, b + 8, INVALID_FIELD),
        (outside, b, DATA_TRANSFER),
        (a, outside, DATA_TRANSFER),
        (a, b, OK),
    ] {
        let config = Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1,
            prp2,
            ..Sqe::default()
        };
        assert_eq!(rig.status(config), expected, "{prp1:#x} {prp2:#x}");
    }
}

#[test]
fn doorbell_buffers_are_not_offered_where_the_page_is_mapped() {
    let mut config = config();
    config.doorbells = DoorbellMode::Mapped;
    let mut rig = Rig::with(config);
    rig.enable();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 256) >> 8 & 1, 0, "OACS");
    let (prp1, prp2) = (rig.host.page(200).0, rig.host.page(201).0);
    let config = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1,
        prp2,
        ..Sqe::default()
    };
    assert_eq!(rig.status(config), INVALID_OPCODE);
    let effects = rig.log(0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 0x7c * 4), 0);
}

#[test]
fn the_registration_of_doorbell_buffers_ends_at_every_reset() {
    let resets: [&dyn Fn(&mut Rig); 3] = [
        &|rig| rig.disable(),
        &|rig| rig.controller.function_reset(),
        &|rig| rig.write32(NSSR, 0x4e56_4d65),
    ];
    for reset in resets {
        let mut rig = Rig::enabled();
        let buffers = (rig.host.page(200), rig.host.page(201));
        let config = Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1: buffers.0.0,
            prp2: buffers.1.0,
            ..Sqe::default()
        };
        assert_eq!(rig.status(config), OK);
        reset(&mut rig);
        rig.turns(4);
        rig.enable();
        rig.create_pair(1, 8);
        // The next system uses these pages for something else.
        rig.host.write(buffers.0, &[0xaa; 4096]);
        rig.host.write(buffers.1, &[0xbb; 4096]);
        let read = rig.read_sqe(4, 1);
        rig.submit_io(1, 0, read);
        rig.turns(6);
        assert_eq!(
            rig.io_cqe(1, 0).map(|cqe| cqe.cid),
            Some(4),
            "the register counts"
        );
        assert!(
            rig.host
                .read(buffers.0, 4096)
                .iter()
                .all(|byte| *byte == 0xaa)
        );
        assert!(
            rig.host
                .read(buffers.1, 4096)
                .iter()
                .all(|byte| *byte == 0xbb)
        );
    }
}
