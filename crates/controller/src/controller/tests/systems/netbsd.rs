//! NetBSD, sys/dev/ic/nvme.c and ld_nvme.c.
//!
//! From the driver's public source: it goes the way of OpenBSD's, but has a queue pair for each
//! processor, asks by Number of Queues how many there are, and gives each a vector where MSI-X has
//! enough. Namespaces are disks, identified up to NN; their cache is read and switched by feature
//! 06h, and discards are Dataset Management of one range.

use super::super::rig::*;
use super::*;

fn attach(rig: &mut Rig) -> Vec<Pair> {
    rig.write32(CC, 0);
    rig.wait_ready(false);
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    assert!(rig.identify(0x01, 0, 0).is_ok());
    // Two processors.
    let cqe = rig.set_feature(0x07, 0x0001_0001);
    assert_eq!(
        (code(&cqe), cqe.dw0),
        (OK, 0x0001_0001),
        "no more than asked for"
    );
    [1, 2]
        .map(|qid| Pair::with_vector(rig, qid, 64))
        .into_iter()
        .collect()
}

#[test]
fn a_pair_for_each_processor() {
    let mut rig = Rig::new();
    let mut pairs = attach(&mut rig);
    for round in 0..70 {
        for pair in &mut pairs {
            write_and_read(&mut rig, pair, 1, round);
        }
    }
    // A third was not allocated.
    let third = rig.create_cq_sqe(3, 64);
    assert_eq!(rig.status(third), INVALID_QID);
}

/// DIOCGCACHE and DIOCSCACHE.
#[test]
fn the_cache_is_read_and_switched() {
    let mut rig = Rig::new();
    let mut pairs = attach(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(id[525] & 1, 1, "VWC: there is one to ask about");
    assert_eq!(rig.get_feature(0x06, 0, 0).dw0, 1);
    assert_eq!(code(&rig.set_feature(0x06, 0)), OK);
    assert_eq!(rig.get_feature(0x06, 0, 0).dw0, 0);
    // It must be off in truth: a write is on the medium when it completes.
    rig.medium(0).seen.clear();
    let write = io(&rig, WRITE, 1, 1, 1);
    assert_eq!(pairs[0].status(&mut rig, write), OK);
    assert_eq!(
        rig.medium(0).seen,
        [port::testing::Seen::Write(512, 512, true)]
    );
    assert_eq!(code(&rig.set_feature(0x06, 1)), OK);
    // Can it be kept? Its saved value is asked for by the capabilities of the feature.
    let supported = rig.get_feature(0x06, 3, 0);
    assert_eq!(code(&supported), OK);
    assert_eq!(supported.dw0 & 0b101, 0b101, "saveable and changeable");
}

#[test]
fn detaches_and_attaches_again() {
    let mut rig = Rig::new();
    for slba in 0..3 {
        let mut pairs = attach(&mut rig);
        write_and_read(&mut rig, &mut pairs[1], 3, slba);
        for qid in 1..=2 {
            assert_eq!(rig.delete_sq(qid), OK);
            assert_eq!(rig.delete_cq(qid), OK);
        }
        rig.shut_down();
        rig.clear_enable();
    }
}
