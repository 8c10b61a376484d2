//! Firmware Commit and Firmware Image Download (Base 2.1, 5.1.8 and 5.1.9): the one slot is
//! read-only.

use nvme_spec::Sqe;

use super::rig::*;

/// Firmware Commit with a Commit Action and a slot.
fn commit(rig: &mut Rig, action: u32, slot: u32) -> u16 {
    rig.status(Sqe {
        opcode: FIRMWARE_COMMIT,
        cdw10: action << 3 | slot,
        ..Sqe::default()
    })
}

#[test]
fn no_image_is_taken() {
    let mut rig = Rig::enabled();
    let sqe = rig.with_data(FIRMWARE_DOWNLOAD);
    for (dwords_z, offset) in [(1023, 0), (1023, 1024), (0, 0)] {
        let download = Sqe {
            cdw10: dwords_z,
            cdw11: offset,
            ..sqe
        };
        assert_eq!(rig.status(download), OPERATION_DENIED);
    }
}

#[test]
fn the_slot_cannot_be_replaced() {
    let mut rig = Rig::enabled();
    // 000b and 001b replace the image. Slot 1 is read-only, there are no others, and 0 leaves the
    // choice to us.
    for action in [0b000, 0b001] {
        for slot in 0..8 {
            assert_eq!(commit(&mut rig, action, slot), INVALID_FIRMWARE_SLOT);
        }
    }
    let log = rig.log(0x03, 0, 512).unwrap();
    assert_eq!((log[0], &log[8..16]), (1, b"0.1     ".as_slice()));
}

#[test]
fn what_is_active_may_be_activated_at_the_next_reset() {
    let mut rig = Rig::enabled();
    for (slot, expected) in [
        (0, OK),
        (1, OK),
        (2, INVALID_FIRMWARE_SLOT),
        (7, INVALID_FIRMWARE_SLOT),
    ] {
        assert_eq!(commit(&mut rig, 0b010, slot), expected, "slot {slot}");
    }
    // Activation without a reset (FRMW bit 4 is 0), reserved actions, boot partitions.
    for action in [0b011, 0b100, 0b101, 0b110, 0b111] {
        assert_eq!(commit(&mut rig, action, 1), INVALID_FIELD, "{action:#b}");
    }
}
