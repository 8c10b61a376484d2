use nvme_spec::{Sqe, Status};

use super::{Access, Asked, CommandSet, Data, RandomAreas, Zoned};
use crate::{ChannelId, testing};

fn namespace(nsid: u32, blocks: u64) -> crate::namespace::Namespace {
    testing::namespace(nsid, ChannelId(0), blocks)
}

/// Zones of 1 MiB, four of which may be active and two open, with an extension of 128 bytes, and
/// appends of at most 16 KiB.
const SET: Zoned = Zoned {
    zone_bytes: 1 << 20,
    max_active: 4,
    max_open: 2,
    extension_units: 2,
    zasl: 2,
    random: None,
};

fn asked(opcode: u8, cdw12: u32, cdw13: u32) -> Result<Option<Asked>, Status> {
    let sqe = Sqe {
        opcode,
        nsid: 1,
        cdw12,
        cdw13,
        ..Sqe::default()
    };
    SET.command(&sqe, &namespace(1, 4096))
}

#[test]
fn sends_have_data_only_to_set_an_extension() {
    let changes = |data| {
        Ok(Some(Asked {
            access: Access::Changes,
            data,
        }))
    };
    for action in [1, 2, 3, 4, 5, 0x104, 0x103] {
        assert_eq!(
            asked(0x79, 0, action),
            changes(Data::Nothing),
            "{action:#x}"
        );
    }
    assert_eq!(asked(0x79, 0, 0x10), changes(Data::FromHost(128)));
    // Reserved actions, an extension for all zones, a random write area, and to flush one.
    for action in [0, 6, 0x110, 0x203, 0x210, 0x11, 0xff] {
        let refused = Err(Status::INVALID_FIELD_IN_COMMAND);
        assert_eq!(asked(0x79, 0, action), refused, "{action:#x}");
    }
}

const RANDOM: Zoned = Zoned {
    random: Some(RandomAreas {
        bytes: 64 << 10,
        granularity: 16 << 10,
        zones: 3,
    }),
    ..SET
};

#[test]
fn random_write_areas_are_for_single_zones() {
    let asked = |action| {
        let sqe = Sqe {
            opcode: 0x79,
            cdw13: action,
            ..Sqe::default()
        };
        let asked = RANDOM.command(&sqe, &namespace(1, 4096));
        asked.map(|asked| asked.map(|asked| asked.data))
    };
    for action in [0x203, 0x11, 0x211, 3, 0x103] {
        assert_eq!(asked(action), Ok(Some(Data::Nothing)), "{action:#x}");
    }
    assert_eq!(asked(0x210), Ok(Some(Data::FromHost(128))));
    for action in [0x303, 0x111, 0x310] {
        let refused = Err(Status::INVALID_FIELD_IN_COMMAND);
        assert_eq!(asked(action), refused, "{action:#x}");
    }
}

#[test]
fn reports_are_as_long_as_the_host_asks() {
    let report = Asked {
        access: Access::Reads,
        data: Data::ToHost(4096),
    };
    assert_eq!(asked(0x7a, 1023, 0), Ok(Some(report)));
    assert_eq!(asked(0x7a, 1023, 1), Ok(Some(report)));
    let refused = Err(Status::INVALID_FIELD_IN_COMMAND);
    assert_eq!(asked(0x7a, 1023, 2), refused);
    let plain = Zoned {
        extension_units: 0,
        ..SET
    };
    let extended = Sqe {
        opcode: 0x7a,
        cdw13: 1,
        ..Sqe::default()
    };
    assert_eq!(plain.command(&extended, &namespace(1, 8)), refused);
}

#[test]
fn appends_are_bounded_by_zasl() {
    let append = |bytes| Asked {
        access: Access::Changes,
        data: Data::FromHost(bytes),
    };
    // Blocks of 512 bytes.
    assert_eq!(asked(0x7d, 31, 0), Ok(Some(append(16384))));
    assert_eq!(asked(0x7d, 32, 0), Err(Status::INVALID_FIELD_IN_COMMAND));
}

#[test]
fn what_is_not_of_zones_is_of_blocks() {
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x19] {
        assert_eq!(asked(opcode, 0, 0), Ok(None), "{opcode:#x}");
    }
    for opcode in [0x04, 0x78, 0x7b, 0x80, 0xff] {
        let refused = Err(Status::INVALID_COMMAND_OPCODE);
        assert_eq!(asked(opcode, 0, 0), refused, "{opcode:#x}");
    }
}

#[test]
fn identify_tells_limits_less_one_and_zones_in_blocks() {
    let page = SET.identify_namespace(&namespace(1, 4096));
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    // OZCS: reads may cross zones.
    assert_eq!(word(0), 0x0001_0000);
    assert_eq!((word(4), word(8)), (3, 1));
    // 1 MiB in blocks of 512 and of 4096 bytes, each with an extension of 2 x 64 bytes.
    assert_eq!((word(2816), word(2820), page[2824]), (2048, 0, 2));
    assert_eq!((word(2832), word(2836), page[2840]), (256, 0, 2));
    assert!(page[2848..].iter().all(|byte| *byte == 0));
    assert_eq!(SET.identify_controller()[0], 2);
    // Random write areas: OZCS bit 1, NUMZRWA less one, granularity and size in blocks of 512,
    // explicit flush.
    let page = RANDOM.identify_namespace(&namespace(1, 4096));
    assert_eq!(page[2..4], [3, 0]);
    assert_eq!(page[44..53], [2, 0, 0, 0, 32, 0, 128, 0, 1]);
    let boundless = Zoned {
        max_active: 0,
        max_open: 0,
        ..SET
    };
    let page = boundless.identify_namespace(&namespace(1, 4096));
    assert_eq!(page[4..12], [0xff; 8]);
}
