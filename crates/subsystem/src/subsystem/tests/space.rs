//! The space of pools: who has it, and who may read what was there.

use super::*;

#[test]
fn an_operator_cannot_take_what_a_host_has_taken_meanwhile() {
    let pool = Pool {
        medium: String::new(),
        channel: CHANNEL,
        bytes: 4 * MIB,
        traits: MediumTraits::default(),
        set: None,
        min_lba_bytes: 512,
        max_lba_bytes: 4096,
    };
    let at = |nsid, start| {
        let mut new = Allocated::everywhere(namespace(nsid, CHANNEL, 8));
        new.namespace.start = start;
        new
    };
    let mut subsystem = Subsystem::new(SubsystemConfig {
        namespaces: vec![at(1, 0), at(2, 8192)],
        pools: vec![pool],
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    let capacity = Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY);
    let requests = [
        (OperatorRequest::Create(Box::new(at(3, 4096))), Ok(0)),
        (
            OperatorRequest::Create(Box::new(at(4, 8192 + 512))),
            capacity,
        ),
        (OperatorRequest::Resize { nsid: 3, len: 4097 }, capacity),
        (OperatorRequest::Resize { nsid: 3, len: 4096 }, Ok(0)),
        (OperatorRequest::Resize { nsid: 2, len: 8192 }, Ok(0)),
    ];
    for (token, (request, ends)) in (1..).zip(requests) {
        subsystem.request(token, request);
        for now in 0..8 {
            subsystem.turn(Time(10 * token + now), &mut channels);
        }
        assert_eq!(subsystem.take_operator_answer(), Some((token, ends)));
    }
}

#[test]
fn a_namespace_that_is_being_created_exists_for_nobody_and_is_not_kept() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [])
    })
    .unwrap();
    let mut channels = channels(Manner::Hanging);
    let create = || Plan::Create {
        blocks: 8,
        lba_shift: 9,
        shared: false,
    };
    begin(&mut subsystem, NSID_NONE, 1, plan(create()));
    begin(&mut subsystem, NSID_NONE, 2, plan(create()));
    subsystem.turn(Time(1), &mut channels);
    assert_eq!(subsystem.directory().iter().count(), 0);
    assert!(subsystem.directory().get(1).is_none());
    assert!(
        subsystem.record().namespaces.is_empty(),
        "its bytes may be another's"
    );
    // But its identifier and its bytes are taken.
    let unallocated = subsystem.directory().capacity().1;
    assert_eq!(unallocated, u128::from(4 * MIB - 8192));
    assert_eq!(answered(&mut subsystem), []);
    let mut done = Vec::new();
    for now in 2..8 {
        let medium = channels.get_mut(CHANNEL).unwrap();
        medium.release(9);
        medium.reap(&mut done);
        for done in done.drain(..) {
            subsystem.complete(done.ticket, done.outcome);
        }
        subsystem.turn(Time(now), &mut channels);
    }
    let mut ends: Vec<_> = std::iter::from_fn(|| subsystem.take_operator_answer()).collect();
    ends.sort_by_key(|(token, _)| *token);
    assert_eq!(ends, [(1, Ok(1)), (2, Ok(2))]);
    assert_eq!(subsystem.record().namespaces.len(), 2);
}

#[test]
fn what_an_operator_creates_or_grows_in_a_pool_is_erased_and_nobody_elses() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [namespace(1, CHANNEL, 8)])
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    channels.get_mut(CHANNEL).unwrap().bytes.fill(0xaa);
    let mut new = Allocated::everywhere(namespace(5, CHANNEL, 8));
    new.namespace.start = 8192;
    let mut ask = |subsystem: &mut Subsystem, request| {
        subsystem.request(1, request);
        for now in 1..8 {
            subsystem.turn(Time(now), &mut channels);
        }
        let answer = subsystem.take_operator_answer().expect("at once").1;
        let bytes = &channels.get_mut(CHANNEL).unwrap().bytes;
        let clear = bytes.iter().position(|byte| *byte == 0);
        (
            answer,
            clear,
            bytes.iter().filter(|byte| **byte == 0).count(),
        )
    };
    let insufficient = Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY);
    let mut overlapping = new.clone();
    overlapping.namespace.start = 4095;
    let create = OperatorRequest::Create(Box::new(overlapping));
    assert_eq!(ask(&mut subsystem, create), (insufficient, None, 0));
    let create = OperatorRequest::Create(Box::new(new));
    assert_eq!(ask(&mut subsystem, create), (Ok(0), Some(8192), 4096));
    let attached = subsystem.directory().get(5).unwrap().attached;
    assert_eq!(attached, ControllerSet::ALL, "as it says");
    let resize = |nsid, len| OperatorRequest::Resize { nsid, len };
    assert_eq!(ask(&mut subsystem, resize(1, 8193)).0, insufficient);
    assert_eq!(
        ask(&mut subsystem, resize(5, 8192)),
        (Ok(0), Some(8192), 8192)
    );
    assert_eq!(subsystem.directory().get(5).unwrap().namespace.blocks, 16);
}

proptest! {
    /// Against a byte map of the pool: allocations never overlap, are found whenever a gap is large
    /// enough, and the unallocated capacity is what the map says.
    #[test]
    fn allocations_fill_gaps_and_never_overlap(
        steps in proptest::collection::vec((any::<bool>(), 1_u64..20, 0_usize..8), 1..40),
    ) {
        const GRANULES: usize = 32;
        let mut directory = Directory::new(Vec::new(), vec![pool(32 * GRANULE + 7)], 64).unwrap();
        let mut map = [0_u32; GRANULES];
        for (create, granules, pick) in steps {
            let live: Vec<u32> = directory.iter().map(Allocated::nsid).collect();
            if !create {
                if let Some(&nsid) = live.get(pick) {
                    directory.apply(Change::Delete { nsid }).unwrap();
                    map.iter_mut().filter(|owner| **owner == nsid).for_each(|owner| *owner = 0);
                }
                continue;
            }
            let wanted = granules as usize;
            let fits = |at: usize| map[at..at + wanted].iter().all(|owner| *owner == 0);
            let first = (0..=GRANULES - wanted).find(|at| fits(*at));
            let found = directory.allocate(granules * GRANULE - 5, 512);
            prop_assert_eq!(found.map(|(_, range)| range.offset), first.map(|at| at as u64 * GRANULE));
            let Some((_, range)) = found else { continue };
            let nsid = directory.free_nsid().unwrap();
            let mut new = Allocated::everywhere(namespace(nsid, CHANNEL, 1));
            new.namespace.start = range.offset;
            new.len = range.len;
            directory.apply(Change::Create(Box::new(new))).unwrap();
            let at = first.unwrap();
            map[at..at + wanted].fill(nsid);
            let free = map.iter().filter(|owner| **owner == 0).count() as u128;
            let total = 32 * u128::from(GRANULE) + 7;
            prop_assert_eq!(directory.capacity(), (total, free * u128::from(GRANULE)));
        }
    }
}
