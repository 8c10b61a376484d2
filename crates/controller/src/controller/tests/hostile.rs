//! Hosts that do anything: no panic, no loop, and both edges of RDY still come.

use nvme_spec::Sqe;
use port::testing::Manner;
use proptest::prelude::*;

use super::rig::*;

/// Actions of a hostile host.
#[derive(Clone, Debug)]
enum Act {
    /// Writes these bytes to a BAR.
    Write(u8, u64, Vec<u8>),
    /// Reads that many.
    Read(u8, u64, usize),
    ConfigWrite(u64, Vec<u8>),
    ConfigRead(u64, usize),
    /// Writes CC.
    Cc(u32),
    /// Puts a command into the admin queue and rings.
    Admin([u32; 16]),
    /// Rings a doorbell slot.
    Doorbell(u16, u32),
    /// Scribbles over its own memory.
    Scribble(u64, u8),
    Unmap,
    Map,
    Turns(u32),
    Seconds(u64),
    FunctionReset,
    Detach,
    Hang,
    Release,
    LoseMemory,
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..0x80,
        2 => 0x1000u64..0x1060,
        1 => 0u64..0x5000,
        1 => any::<u64>(),
        1 => (0u64..16).prop_map(|n| u64::MAX - n),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<u32>().prop_map(|v| v.to_le_bytes().to_vec()),
        2 => any::<u64>().prop_map(|v| v.to_le_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

/// Words of a command that gets somewhere: small opcodes, identifiers and addresses in the host's
/// memory.
fn command() -> impl Strategy<Value = [u32; 16]> {
    let opcode = prop_oneof![
        Just(0x00),
        Just(0x01),
        Just(0x02),
        Just(0x04),
        Just(0x05),
        Just(0x06),
        Just(0x08),
        Just(0x09),
        Just(0x0a),
        Just(0x0c),
        Just(0x7c),
        any::<u32>()
    ];
    let dword = prop_oneof![
        0u32..8,
        Just(!0),
        any::<u32>(),
        (0u32..6).prop_map(|n| 7 << 16 | n)
    ];
    let page = prop_oneof![
        3 => (0u32..PAGES as u32).prop_map(|page| 0x4000_0000 + page * 4096),
        1 => any::<u32>()
    ];
    (
        opcode,
        proptest::array::uniform16(dword),
        page.clone(),
        page,
    )
        .prop_map(|(opcode, mut words, prp1, prp2)| {
            words[0] = opcode & 0xff | words[0] & 0xffff_0000;
            (words[6], words[7], words[8], words[9]) = (prp1, 0, prp2, 0);
            words
        })
}

fn act() -> impl Strategy<Value = Act> {
    let cc = prop_oneof![
        4 => Just(CC_ENABLE),
        3 => Just(CC_ENABLE & !1),
        1 => Just(CC_ENABLE | 1 << 14),
        1 => Just(CC_ENABLE | 2 << 14),
        1 => any::<u32>()
    ];
    prop_oneof![
        2 => (0u8..6, offset(), bytes()).prop_map(|(bar, at, data)| Act::Write(bar, at, data)),
        1 => (0u8..6, offset(), 0usize..70).prop_map(|(bar, at, len)| Act::Read(bar, at, len)),
        1 => (offset(), bytes()).prop_map(|(at, data)| Act::ConfigWrite(at, data)),
        1 => (offset(), 0usize..70).prop_map(|(at, len)| Act::ConfigRead(at, len)),
        4 => cc.prop_map(Act::Cc),
        8 => command().prop_map(Act::Admin),
        2 => (0u16..12, prop_oneof![0u32..70, any::<u32>()]).prop_map(|(s, v)| Act::Doorbell(s, v)),
        1 => (0..PAGES, any::<u8>()).prop_map(|(page, byte)| Act::Scribble(page, byte)),
        1 => Just(Act::Unmap),
        2 => Just(Act::Map),
        6 => (1u32..6).prop_map(Act::Turns),
        1 => (0u64..6).prop_map(Act::Seconds),
        1 => Just(Act::FunctionReset),
        1 => Just(Act::Detach),
        1 => Just(Act::Hang),
        1 => Just(Act::Release),
        1 => Just(Act::LoseMemory),
    ]
}

fn perform(rig: &mut Rig, act: Act, mapped: &mut bool) {
    match act {
        Act::Write(bar, at, data) => rig.controller.bar_write(bar, at, &data),
        Act::Read(bar, at, len) => rig.controller.bar_read(bar, at, &mut vec![0; len]),
        Act::ConfigWrite(at, data) => rig.controller.config_write(at, &data),
        Act::ConfigRead(at, len) => rig.controller.config_read(at, &mut vec![0; len]),
        Act::Cc(cc) => {
            if cc & 1 == 1 && rig.read32(CC) & 1 == 0 {
                rig.set_admin_queues(16);
            }
            rig.write32(CC, cc);
        }
        Act::Admin(words) => {
            let pair = |n: usize| u64::from(words[2 * n + 1]) << 32 | u64::from(words[2 * n]);
            rig.submit(Sqe::from_words(std::array::from_fn(pair)));
            rig.turns(2);
            while rig.reap().is_some() {}
        }
        Act::Doorbell(slot, value) => rig.write32(0x1000 + 4 * u64::from(slot), value),
        Act::Scribble(page, byte) => rig.host.write(rig.host.page(page), &[byte; 4096]),
        Act::Unmap if *mapped => {
            rig.host.unmap_pages(0, PAGES);
            rig.tell_view();
            *mapped = false;
        }
        Act::Map if !*mapped => {
            rig.host.map_pages(0, PAGES);
            rig.tell_view();
            *mapped = true;
        }
        Act::Unmap | Act::Map => (),
        Act::Turns(count) => rig.turns(count),
        Act::Seconds(seconds) => rig.wait(seconds * SECOND),
        Act::FunctionReset => rig.controller.function_reset(),
        Act::Detach => {
            let all = namespaces();
            let keep = all.into_iter().skip(1).collect();
            rig.set_namespaces(keep);
        }
        Act::Hang => rig.medium(0).manner = Manner::Hanging,
        Act::Release => rig.medium(0).release(100),
        Act::LoseMemory => {
            rig.lost.raise();
            rig.turns(4);
            rig.lost = memory::LostFlag::default();
            rig.tell_view();
        }
    }
}

/// Turns until nothing happens any more; how many.
fn settle(rig: &mut Rig) -> u32 {
    (0..200)
        .find(|_| !rig.turn() && !rig.controller.has_work())
        .expect("it settles")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_host_is_survived_and_a_reset_always_ends(acts in proptest::collection::vec(act(), 1..60)) {
        let mut rig = Rig::new();
        let mut mapped = true;
        for act in acts {
            perform(&mut rig, act, &mut mapped);
        }
        // Whatever it did: a disable ends in bounded time, with nothing left.
        perform(&mut rig, Act::Map, &mut mapped);
        rig.write32(CC, 0);
        settle(&mut rig);
        rig.wait(4 * SECOND);
        settle(&mut rig);
        prop_assert_eq!(rig.csts() & RDY, 0);
        prop_assert_eq!(rig.lanes.live(), 0);
        prop_assert!(rig.controller.is_quiet());
        // A flush of a shutdown while it was disabled delays no command.
        rig.wait(30 * SECOND);
        prop_assert_eq!(rig.controller.next_deadline(), None);
        // And the next host finds a controller, which it lets have the bus, in D0.
        rig.controller.config_write(0x04, &0b110u16.to_le_bytes());
        rig.controller.config_write(0x44, &0u16.to_le_bytes());
        rig.enable();
        prop_assert!(rig.identify(1, 0, 0).is_ok());
    }

    #[test]
    fn any_register_access_is_survived(
        accesses in proptest::collection::vec((offset(), bytes()), 1..200)
    ) {
        let mut rig = Rig::new();
        for (at, data) in accesses {
            rig.controller.bar_write(0, at, &data);
            let mut out = vec![0xee; data.len()];
            rig.controller.bar_read(0, at, &mut out);
            rig.turn();
        }
        settle(&mut rig);
    }

    #[test]
    fn every_admin_command_is_answered_once(words in command()) {
        let mut rig = Rig::enabled();
        rig.create_pair(1, 8);
        let pair = |n: usize| u64::from(words[2 * n + 1]) << 32 | u64::from(words[2 * n]);
        let sqe = Sqe::from_words(std::array::from_fn(pair));
        let cid = rig.submit(sqe);
        // Data that lands on the queues themselves would be the host's own doing.
        let own = |prp: u64| (0x4000_0000..0x4000_0000 + 16 * 4096).contains(&(prp & !0xfff));
        prop_assume!(!own(sqe.prp1) && !own(sqe.prp2));
        // A format of both namespaces takes that many.
        rig.turns(24);
        let answer = rig.reap();
        if sqe.opcode == ASYNC_EVENT && u8::from(sqe.flags) & 0xc3 == 0 {
            prop_assert!(answer.is_none());
        } else {
            prop_assert_eq!(answer.map(|cqe| cqe.cid), Some(cid));
        }
        prop_assert!(rig.reap().is_none());
    }
}
