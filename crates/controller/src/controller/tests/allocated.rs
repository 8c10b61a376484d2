//! Identify of what a subsystem has: allocated namespaces, who has them attached, controllers
//! (Base 2.1, 5.1.13.2).

use port::testing::namespace;
use port::{ChannelId, MediumTraits};
use subsystem::{Allocated, Busy, ControllerId, Pool, Subsystem, SubsystemConfig};

use super::rig::*;

/// Namespace 1 is attached to both controllers, 2 to controller 2, 4 to none, and 7 is being
/// created.
fn subsystem() -> SubsystemConfig {
    let allocated = |nsid: u32, attached: &[u16]| {
        let mut new = Allocated::everywhere(namespace(nsid, ChannelId(0), 100 * u64::from(nsid)));
        new.attached = attached.iter().copied().map(ControllerId).collect();
        new
    };
    let mut subsystem = SubsystemConfig::with_namespaces(32, []);
    subsystem.namespaces = vec![
        allocated(1, &[1, 2]),
        allocated(2, &[2]),
        allocated(4, &[]),
        Allocated {
            busy: Some(Busy::Creating),
            ..allocated(7, &[])
        },
    ];
    subsystem
}

fn rig() -> Rig {
    let mut rig = Rig::of(config(), subsystem());
    join(&mut rig.subsystem, "second");
    rig.enable();
    rig
}

/// Hosts may create namespaces of the second medium.
fn with_pool() -> SubsystemConfig {
    let mut subsystem = subsystem();
    subsystem.pools = vec![Pool {
        medium: "pool".to_owned(),
        channel: ChannelId(1),
        bytes: 1 << 20,
        traits: MediumTraits {
            deallocate: true,
            deallocated_reads_zero: true,
            ..MediumTraits::default()
        },
        set: None,
        min_lba_bytes: 512,
        max_lba_bytes: 4096,
    }];
    subsystem
}

fn join(subsystem: &mut Subsystem, name: &str) -> ControllerId {
    subsystem.join(name).unwrap()
}

fn ids(list: &[u8]) -> Vec<u32> {
    let ids = (0..1024).map(|n| u32_at(list, n * 4));
    ids.take_while(|id| *id != 0).collect()
}

/// The number of identifiers, and the identifiers that are not zero.
fn controllers(list: &[u8]) -> (u16, Vec<u16>) {
    let ids = (1..2048).map(|n| u16_at(list, n * 2));
    (u16_at(list, 0), ids.filter(|id| *id != 0).collect())
}

#[test]
fn allocated_namespaces_are_listed_attached_or_not() {
    let mut rig = rig();
    assert_eq!(ids(&rig.identify(0x02, 0, 0).unwrap()), [1], "active");
    for cns in [0x10, 0x1a] {
        for (above, expected) in [
            (0, vec![1, 2, 4]),
            (1, vec![2, 4]),
            (3, vec![4]),
            (4, vec![]),
        ] {
            let list = rig.identify(cns, above, 0).unwrap();
            assert_eq!(ids(&list), expected, "CNS {cns:#x} above {above}");
        }
        for above in [0xffff_fffe, 0xffff_ffff] {
            assert_eq!(rig.identify(cns, above, 0), Err(INVALID_NAMESPACE));
        }
    }
    assert_eq!(rig.identify(0x1a, 0, 2), Err(INVALID_FIELD), "zoned");
}

#[test]
fn an_allocated_namespace_is_described_attached_or_not() {
    let mut rig = rig();
    for nsid in [1, 2, 4] {
        let ns = rig.identify(0x11, nsid, 0).unwrap();
        assert_eq!(u64_at(&ns, 0), 100 * u64::from(nsid), "NSZE of {nsid}");
        assert_eq!(rig.identify(0x1f, nsid, 0).unwrap()[14], 1, "NSTAT: ready");
        assert!(rig.identify(0x1b, nsid, 0).is_ok());
    }
    assert_eq!(rig.identify(0x11, 1, 0), rig.identify(0x00, 1, 0));
    // One that is not attached is inactive: zeros.
    assert_eq!(rig.identify(0x00, 2, 0), Ok(vec![0; 4096]));
    for cns in [0x11, 0x1b, 0x1f] {
        // Unallocated, and still being created.
        for nsid in [3, 7, 32] {
            assert_eq!(rig.identify(cns, nsid, 0), Ok(vec![0; 4096]), "{cns:#x}");
        }
        for nsid in [0, 33, 0xffff_ffff] {
            assert_eq!(rig.identify(cns, nsid, 0), Err(INVALID_NAMESPACE));
        }
    }
    assert_eq!(rig.identify(0x1b, 1, 2), Err(INVALID_FIELD), "zoned");
}

#[test]
fn controllers_are_listed_of_a_namespace_and_of_the_subsystem() {
    let mut rig = rig();
    // CNTID of CDW10 is the least identifier listed.
    let from = |cns: u32, id: u32| id << 16 | cns;
    for (nsid, least, expected) in [
        (1, 0, vec![1, 2]),
        (1, 2, vec![2]),
        (1, 3, vec![]),
        (2, 0, vec![2]),
        (4, 0, vec![]),
    ] {
        let list = rig.identify(from(0x12, least), nsid, 0).unwrap();
        let count = expected.len() as u16;
        assert_eq!(controllers(&list), (count, expected), "{nsid} from {least}");
    }
    for nsid in [3, 7, 0xffff_ffff] {
        assert_eq!(rig.identify(0x12, nsid, 0), Err(INVALID_FIELD), "{nsid:#x}");
    }
    for nsid in [0, 33] {
        assert_eq!(rig.identify(0x12, nsid, 0), Err(INVALID_NAMESPACE));
    }
    for (least, expected) in [(0, vec![1, 2]), (2, vec![2]), (3, vec![])] {
        // NSID is not used.
        let list = rig.identify(from(0x13, least), 99, 0).unwrap();
        assert_eq!(controllers(&list), (expected.len() as u16, expected));
    }
    // One that is gone is in neither.
    rig.subsystem.leave(ControllerId(2));
    for cns in [0x12, 0x13] {
        let list = rig.identify(cns, 1, 0).unwrap();
        assert_eq!(controllers(&list), (1, vec![1]), "CNS {cns:#x}");
    }
}

#[test]
fn a_controller_tells_that_it_has_siblings() {
    let mut rig = rig();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!((id[76], u16_at(&id, 78)), (0b10, 1), "CMIC, CNTLID");
    rig.subsystem.leave(ControllerId(2));
    assert_eq!(rig.identify(0x01, 0, 0).unwrap()[76], 0);
}

#[test]
fn formats_are_those_that_the_medium_takes() {
    let mut of_4096 = subsystem();
    of_4096.namespaces[0].min_lba_bytes = 4096;
    of_4096.namespaces[0].namespace.lba_shift = 12;
    of_4096.namespaces[0].shared = true;
    let mut rig = Rig::of(config(), of_4096);
    rig.enable();
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!((ns[25], ns[26]), (1, 1), "NLBAF, FLBAS");
    // LBA Data Size 0: not available.
    assert_eq!((u32_at(&ns, 128), u32_at(&ns, 132)), (0, 12 << 16));
    assert_eq!(
        u64_at(&ns, 48),
        100 * 512,
        "NVMCAP: what is reserved for it"
    );
    assert_eq!(
        (ns[30], rig.identify(0x08, 1, 0).unwrap()[1]),
        (1, 1),
        "NMIC"
    );
}

#[test]
fn what_namespaces_share_is_told_where_they_can_be_created() {
    let mut rig = rig();
    for cns in [0x00, 0x05, 0x08, 0x11] {
        let told = rig.identify(cns, 0xffff_ffff, 0);
        assert_eq!(told, Err(INVALID_NAMESPACE), "CNS {cns:#x}");
    }
    let mut rig = Rig::of(config(), with_pool());
    rig.enable();
    let ns = rig.identify(0x00, 0xffff_ffff, 0).unwrap();
    assert_eq!([u64_at(&ns, 0), u64_at(&ns, 8), u64_at(&ns, 48)], [0; 3]);
    assert_eq!(ns[25], 1, "two formats");
    assert_eq!((u32_at(&ns, 128), u32_at(&ns, 132)), (9 << 16, 12 << 16));
    assert_eq!((ns[30], ns[33]), (1, 0b1001), "NMIC, DLFEAT");
    assert!(rig.identify(0x05, 0xffff_ffff, 0).is_ok());
    for cns in [0x08, 0x11, 0x1b, 0x1f] {
        let told = rig.identify(cns, 0xffff_ffff, 0);
        assert_eq!(told, Err(INVALID_NAMESPACE), "CNS {cns:#x}");
    }
}

#[test]
fn granularity_is_told_where_namespaces_can_be_created() {
    let mut rig = rig();
    assert_eq!(rig.identify(0x16, 0, 0), Err(INVALID_FIELD));
    let mut rig = Rig::of(config(), with_pool());
    rig.enable();
    let list = rig.identify(0x16, 0, 0).unwrap();
    // One descriptor, 0's based, for every format: 4 KiB of size and of capacity.
    assert_eq!((u32_at(&list, 0), list[4]), (0, 0));
    assert_eq!((u64_at(&list, 32), u64_at(&list, 40)), (4096, 4096));
    assert!(list[48..].iter().all(|byte| *byte == 0));
    // CTRATT: Namespace Granularity, and host identifiers of 128 bits.
    assert_eq!(u32_at(&rig.identify(0x01, 0, 0).unwrap(), 96), 1 << 7 | 1);
}
