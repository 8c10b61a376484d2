//! Submission queue entries of any bytes: each is completed once, and no medium is asked for
//! anything outside it (the test medium panics).

use nvme_spec::Sqe;
use port::testing::{Host, Manner, PAGE, namespace};
use proptest::prelude::*;

use super::rig::{DATA, MEDIUM, MEDIUM_ID, PAGES, Rig};

/// Mostly an address of the host's, often a page, sometimes anything.
fn address() -> impl Strategy<Value = u64> {
    let page = || (0..PAGES + 2).prop_map(|page| Host::BASE + page * PAGE);
    prop_oneof![
        6 => page(),
        3 => (page(), 0..PAGE).prop_map(|(page, offset)| page + offset),
        1 => any::<u64>(),
        1 => (0u64..8192).prop_map(|below| u64::MAX - below),
    ]
}

fn sqe() -> impl Strategy<Value = Sqe> {
    let opcode = prop_oneof![8 => prop::sample::select(vec![0u8, 1, 2, 5, 8, 9, 0x0C, 0x19]), 1 => any::<u8>()];
    let flags = prop_oneof![8 => Just(0u8), 1 => any::<u8>()];
    let nsid = prop_oneof![8 => 1u32..3, 1 => Just(u32::MAX), 1 => any::<u32>()];
    let low = prop_oneof![4 => 0u32..(MEDIUM / 512) as u32 + 8, 1 => any::<u32>()];
    let high = prop_oneof![6 => Just(0u32), 1 => Just(4u32), 1 => any::<u32>()];
    let cdw12 = prop_oneof![4 => 0u32..2048, 1 => any::<u32>()];
    let commands = (opcode, flags, any::<u16>(), nsid);
    let rest = (any::<u64>(), any::<u64>(), any::<u64>());
    (commands, address(), address(), low, high, cdw12, rest).prop_map(
        |((opcode, flags, cid, nsid), prp1, prp2, cdw10, cdw11, cdw12, (a, b, c))| Sqe {
            opcode,
            flags: flags.into(),
            cid,
            nsid,
            cdw2: a as u32,
            cdw3: (a >> 32) as u32,
            mptr: b,
            prp1,
            prp2,
            cdw10,
            cdw11,
            cdw12,
            cdw13: b as u32,
            cdw14: c as u32,
            cdw15: (c >> 32) as u32,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_entry_completes_once(
        commands in prop::collection::vec(sqe(), 1..24),
        manner in prop_oneof![Just(Manner::Synchronous), Just(Manner::Asynchronous)],
        entries in prop::collection::vec(address(), 1..16),
    ) {
        let mut rig = Rig::new(32, &[32], manner);
        let mut large = namespace(2, MEDIUM_ID, 100);
        (large.lba_shift, large.start) = (12, MEDIUM as u64 - 100 * 4096);
        large.traits.volatile_cache = true;
        rig.set_namespaces(vec![namespace(1, MEDIUM_ID, MEDIUM as u64 / 512), large]);
        // Data pages are lists, too.
        for slot in 0..4 * PAGE / 8 {
            let at = rig.host.page(DATA).0 + 8 * slot;
            let entry = entries[slot as usize % entries.len()];
            rig.host.write_u64(memory::Iova(at), entry);
        }
        for sqe in &commands {
            rig.store(1, *sqe);
        }
        rig.ring(1);
        // A read may land in the completion ring: the host's own doing, which the lane survives.
        let all = commands.len() as u64;
        let mut turns = 0;
        while rig.lane.counters().completions.get() < all && turns < 50_000 {
            rig.turn();
            turns += 1;
        }
        prop_assert_eq!(rig.lane.counters().completions.get(), commands.len() as u64);
        prop_assert_eq!(rig.lane.in_flight(), 0);
        prop_assert_eq!(rig.lane.queues.cq.posted(), commands.len() as u32);
    }
}
