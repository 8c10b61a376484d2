//! Command sets by their identifiers (Base 2.1, 3.1.4.5, 5.1.12.1.6, 5.1.13 and 5.1.25.1.17).

use std::sync::Arc;

use nvme_spec::Sqe;
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::Csi;
use nvme_spec::registers::CC;
use port::namespace::Namespace;
use port::set::{Asked, CommandSet, Zoned};
use port::testing::{Seen, namespace};
use port::{ByteRange, Cause, ChannelId};
use subsystem::SubsystemConfig;

use super::rig::*;

/// Command Set Identifiers.
const KEY_VALUE: u32 = 1;
const ZNS: u32 = 2;
const INVALID_IO_COMMAND_SET: u16 = 0x12c;

/// Namespace 1 has blocks, namespace 2 zones of 64 KiB.
fn mixed() -> Vec<Namespace> {
    let mut zoned = namespace(2, ChannelId(1), 2048);
    zoned.set = Some(Arc::new(Zoned {
        zone_bytes: 64 << 10,
        max_active: 8,
        max_open: 8,
        extension_units: 0,
        zasl: 1,
        random: None,
    }));
    vec![namespace(1, ChannelId(0), 2048), zoned]
}

fn enable_all_sets(rig: &mut Rig) {
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE | 0b110 << 4);
    rig.turns(2);
    assert_eq!(rig.csts() & (RDY | CFS), RDY);
}

fn rig() -> Rig {
    let mut rig = Rig::with_namespaces(config(), mixed());
    enable_all_sets(&mut rig);
    rig
}

fn ids(page: &[u8]) -> Vec<u32> {
    let ids = (0..1024).map(|n| u32_at(page, n * 4));
    ids.take_while(|id| *id != 0).collect()
}

#[test]
fn lists_tell_namespaces_by_command_set() {
    let mut rig = rig();
    assert_eq!(ids(&rig.identify(0x02, 0, 0).unwrap()), [1, 2]);
    for (cns, csi, expected) in [(0x07, 0, 1), (0x07, ZNS, 2), (0x1a, 0, 1), (0x1a, ZNS, 2)] {
        let page = rig.identify(cns, 0, csi).unwrap();
        assert_eq!(ids(&page), [expected], "{cns:#x} {csi:#x}");
        let behind = rig.identify(cns, expected, csi).unwrap();
        assert_eq!(ids(&behind), [], "{cns:#x} {csi:#x}");
    }
    for cns in [0x05, 0x06, 0x07, 0x1a, 0x1b] {
        let key_value = rig.identify(cns, 1, KEY_VALUE);
        assert_eq!(key_value, Err(INVALID_FIELD), "{cns:#x}");
    }
}

#[test]
fn structures_are_those_of_the_command_set() {
    let mut rig = rig();
    for cns in [0x05, 0x1b] {
        let zones = rig.identify(cns, 2, ZNS).unwrap();
        // ZSZE of blocks of 512 bytes.
        assert_eq!((u32_at(&zones, 4), u64_at(&zones, 2816)), (7, 128));
        let nothing = rig.identify(cns, 2, 0).unwrap();
        assert!(nothing.iter().all(|byte| *byte == 0), "no protection");
        assert_eq!(rig.identify(cns, 1, ZNS), Err(INVALID_IO_COMMAND_SET));
        let inactive = rig.identify(cns, 5, ZNS).unwrap();
        assert!(inactive.iter().all(|byte| *byte == 0));
    }
    let zones = rig.identify(0x06, 0, ZNS).unwrap();
    assert_eq!(zones[0], 1, "ZASL");
    assert_eq!(u64_at(&rig.identify(0x00, 2, 0).unwrap(), 0), 2048, "NSZE");
    // The last descriptor: type 4, one byte.
    for (nsid, csi) in [(1, 0), (2, 2)] {
        let list = rig.identify(0x03, nsid, 0).unwrap();
        assert_eq!(list[..5], [4, 1, 0, 0, csi], "{nsid}");
    }
    let combinations = rig.identify(0xffff_001c, 0, 0).unwrap();
    assert_eq!(
        [u64_at(&combinations, 0), u64_at(&combinations, 8)],
        [0b101, 0]
    );
}

/// A command set without logical blocks.
#[derive(Debug)]
struct Keys;

impl CommandSet for Keys {
    fn csi(&self) -> Csi {
        Csi::KEY_VALUE
    }

    fn command(&self, _: &Sqe, _: &Namespace) -> Result<Option<Asked>, nvme_spec::Status> {
        Ok(None)
    }

    fn effects(&self, _: u8) -> Option<CommandEffects> {
        None
    }

    fn has_blocks(&self) -> bool {
        false
    }
}

#[test]
fn identify_namespace_of_keys_is_answered_and_tells_of_no_blocks() {
    let mut keys = namespace(2, ChannelId(1), 2048);
    keys.set = Some(Arc::new(Keys));
    keys.nguid = *b"ABCDEFGHIJKLMNOP";
    let mut subsystem =
        SubsystemConfig::with_namespaces(32, vec![namespace(1, ChannelId(0), 2048), keys]);
    subsystem.namespaces[1].namespace.blocks = 0;
    let mut rig = Rig::of(config(), subsystem);
    enable_all_sets(&mut rig);
    // SPDK's driver gives up on an error, and takes NCAP 0 for a namespace that is not there.
    for cns in [0x00, 0x11] {
        let page = rig.identify(cns, 2, 0).expect("it is answered");
        assert_eq!(
            [0, 8, 16].map(|at| u64_at(&page, at)),
            [1 << 20; 3],
            "bytes"
        );
        assert_eq!(page[104..120], *b"ABCDEFGHIJKLMNOP");
        assert!(
            page[128..384].iter().all(|byte| *byte == 0),
            "LBADS 0: no block has a format"
        );
        assert_eq!(page[25], 0, "NLBAF");
    }
    // The structure of the command set itself is that of a namespace of it.
    assert_eq!(rig.identify(0x05, 2, 0), Err(INVALID_IO_COMMAND_SET));
    // A host that has not enabled all command sets does not see it.
    rig.disable();
    rig.enable();
    assert_eq!(rig.identify(0x00, 2, 0), Ok(vec![0; 4096]));
}

#[test]
fn a_host_without_all_command_sets_sees_no_zones() {
    let mut rig = Rig::with_namespaces(config(), mixed());
    rig.enable();
    assert_eq!(ids(&rig.identify(0x02, 0, 0).unwrap()), [1]);
    let hidden = rig.identify(0x00, 2, 0).unwrap();
    assert!(hidden.iter().all(|byte| *byte == 0));
    assert!(rig.identify(0x03, 2, 0).is_err());
    // The next host has chosen otherwise, and the one after that not.
    rig.disable();
    enable_all_sets(&mut rig);
    assert_eq!(ids(&rig.identify(0x02, 0, 0).unwrap()), [1, 2]);
    rig.disable();
    rig.enable();
    assert_eq!(ids(&rig.identify(0x02, 0, 0).unwrap()), [1]);
}

#[test]
fn the_log_of_effects_is_by_command_set() {
    let mut rig = rig();
    let mut effects = |csi| {
        let sqe = Sqe {
            cdw10: 1023 << 16 | 0x05,
            cdw14: csi << 24,
            ..rig.with_data(GET_LOG)
        };
        match rig.status(sqe) {
            OK => Ok(rig.host.read(rig.data_page(), 4096)),
            status => Err(status),
        }
    };
    let entry = |page: &[u8], opcode: usize| u32_at(page, 1024 + opcode * 4) & 3;
    let zones = effects(ZNS).unwrap();
    // Append and Management Send change blocks, Management Receive does not; Write Uncorrectable is
    // not there.
    let opcodes = [0x7d, 0x79, 0x7a, 0x01, 0x02, 0x04, 0x7b];
    let expected = [3, 3, 1, 3, 1, 0, 0];
    assert_eq!(opcodes.map(|opcode| entry(&zones, opcode)), expected);
    let blocks = effects(0).unwrap();
    let expected = [0, 0, 0, 3, 1, 3, 0];
    assert_eq!(opcodes.map(|opcode| entry(&blocks, opcode)), expected);
    assert_eq!(blocks[..1024], zones[..1024], "admin commands");
    assert_eq!(effects(KEY_VALUE), Err(INVALID_FIELD));
}

#[test]
fn a_zone_that_cannot_be_written_is_told_by_event_and_log() {
    let mut rig = rig();
    assert_eq!(
        u32_at(&rig.identify(0x01, 0, 0).unwrap(), 92) >> 27 & 1,
        1,
        "OAES"
    );
    assert_eq!(u32_at(&rig.log(0x00, 0, 1024).unwrap(), 0xbf * 4) & 1, 1);
    assert_eq!(code(&rig.set_feature(0x0b, 1 << 27)), OK);
    rig.create_pair(1, 16);
    let event = rig.async_event();
    rig.medium(1).fault = Some(Cause::WriteFailed);
    // Blocks 300 on: the zone from block 256 on.
    let write = Sqe {
        opcode: 0x01,
        nsid: 2,
        cdw10: 300,
        ..rig.read_sqe(1, 1)
    };
    rig.submit_io(1, 0, write);
    rig.turns(6);
    let told = rig.reap().expect("an event");
    // Notice, Zone Descriptor Changed, log page BFh; the namespace in Dword 1.
    assert_eq!((told.cid, told.dw0, told.dw1), (event, 0x00bf_ef02, 2));
    let mut changed = |nsid| {
        let sqe = Sqe {
            nsid,
            cdw10: 1023 << 16 | 0xbf,
            ..rig.with_data(GET_LOG)
        };
        match rig.status(sqe) {
            OK => Ok(rig.host.read(rig.data_page(), 4096)),
            status => Err(status),
        }
    };
    let list = changed(2).unwrap();
    assert_eq!(
        (u16_at(&list, 0), u64_at(&list, 8), u64_at(&list, 16)),
        (1, 256, 0)
    );
    assert_eq!(u16_at(&changed(2).unwrap(), 0), 0, "it was read");
    assert_eq!(changed(1), Err(INVALID_FIELD), "it has no zones");
}

#[test]
fn a_zone_that_changed_before_a_death_is_not_forgotten() {
    // Its event was reported, or nothing asked for it yet.
    for has_asked in [true, false] {
        let mut rig = rig();
        assert_eq!(code(&rig.set_feature(0x0b, 1 << 27)), OK);
        rig.create_pair(1, 16);
        if has_asked {
            rig.async_event();
        }
        rig.medium(1).fault = Some(Cause::WriteFailed);
        let write = Sqe {
            opcode: 0x01,
            nsid: 2,
            cdw10: 300,
            ..rig.read_sqe(1, 1)
        };
        rig.submit_io(1, 0, write);
        rig.turns(6);
        assert_eq!(rig.reap().is_some(), has_asked);
        rig.revive_with(config(), mixed());
        rig.turns(2);
        if !has_asked {
            rig.async_event();
            rig.turns(2);
            let told = rig.reap().expect("an event");
            assert_eq!((told.dw0, told.dw1), (0x00bf_ef02, 2));
        }
        let mut changed = || {
            let sqe = Sqe {
                nsid: 2,
                cdw10: 1023 << 16 | 0xbf,
                ..rig.with_data(GET_LOG)
            };
            assert_eq!(rig.status(sqe), OK);
            u16_at(&rig.host.read(rig.data_page(), 4096), 0)
        };
        // FFFFh: more than the page has room for (ZNS 1.1, 4.1.2.1).
        assert_eq!(changed(), 0xffff);
        assert_eq!(changed(), 0, "it was read");
    }
}

#[test]
fn without_zones_there_is_nothing_of_them() {
    let mut rig = Rig::enabled();
    assert_eq!(
        u32_at(&rig.identify(0x01, 0, 0).unwrap(), 92) >> 27 & 1,
        0,
        "OAES"
    );
    assert_eq!(u32_at(&rig.log(0x00, 0, 1024).unwrap(), 0xbf * 4), 0);
    assert_eq!(rig.log(0xbf, 0, 4096), Err(0x109));
}

#[test]
fn a_format_renews_what_is_more_than_bytes() {
    let mut rig = rig();
    let format = Sqe {
        opcode: 0x80,
        nsid: 2,
        cdw10: 1,
        ..Sqe::default()
    };
    let cid = rig.submit(format);
    rig.turns(12);
    let done = rig.reap().expect("it ends");
    assert_eq!((done.cid, code(&done)), (cid, OK));
    let extent = ByteRange {
        offset: 0,
        len: 2048 * 512,
    };
    let medium = rig.medium(1);
    assert_eq!(medium.seen, [Seen::Renew(extent)]);
    assert_eq!(
        u64_at(&rig.identify(0x00, 2, 0).unwrap(), 0),
        256,
        "blocks of 4 KiB"
    );
}

#[test]
fn there_is_one_combination_of_command_sets() {
    let mut rig = rig();
    let cqe = rig.get_feature(0x19, 0, 0);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0));
    assert_eq!(code(&rig.set_feature(0x19, 0)), OK);
    assert_eq!(code(&rig.set_feature(0x19, 1)), 0x12b);
}
