//! Random programs of several hosts that create, attach, detach, format and delete namespaces and
//! write to them, with restarts in between, against a model: sets, and a map of bytes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use subsystem::{NamespaceRecord, SubsystemConfig};

use super::rig::{INVALID_FIELD, INVALID_NAMESPACE, OK, u64_at};
use super::world::{
    ALREADY_ATTACHED, Fields, IDENTIFIER_UNAVAILABLE, INSUFFICIENT_CAPACITY, INVALID_FORMAT,
    IS_PRIVATE, LIST_INVALID, NOT_ATTACHED, World, pool,
};

const HOSTS: usize = 3;
/// Highest namespace identifier.
const LIMIT: u32 = 5;
const GRANULE: u64 = 4096;
const GRANULES: usize = 24;
const BYTES: u64 = GRANULES as u64 * GRANULE;

#[derive(Clone, Debug)]
enum Action {
    Create {
        blocks: u64,
        format: u8,
        shared: bool,
    },
    Delete {
        nsid: u32,
    },
    Attach {
        nsid: u32,
        ids: Vec<u16>,
    },
    Detach {
        nsid: u32,
        ids: Vec<u16>,
    },
    Format {
        nsid: u32,
        format: u8,
    },
    /// The program ends, and starts again with what was kept.
    Restart,
    /// Somebody writes all of a namespace.
    Fill {
        nsid: u32,
        byte: u8,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let nsid = prop_oneof![6 => 1..=LIMIT, 1 => Just(0), 1 => Just(LIMIT + 1)];
    let ids = proptest::collection::vec(prop_oneof![8 => 1..=3_u16, 1 => Just(9)], 0..3);
    let blocks = prop_oneof![4 => 1..80_u64, 1 => Just(0), 1 => 100..250_u64];
    let one = (nsid.clone(), ids);
    prop_oneof![
        4 => (blocks, 0..3_u8, any::<bool>())
            .prop_map(|(blocks, format, shared)| Action::Create { blocks, format, shared }),
        2 => nsid.clone().prop_map(|nsid| Action::Delete { nsid }),
        4 => one.clone().prop_map(|(nsid, ids)| Action::Attach { nsid, ids }),
        2 => one.prop_map(|(nsid, ids)| Action::Detach { nsid, ids }),
        2 => (prop_oneof![4 => nsid.clone(), 1 => Just(u32::MAX)], 0..3_u8)
            .prop_map(|(nsid, format)| Action::Format { nsid, format }),
        1 => Just(Action::Restart),
        3 => (nsid, 1..=255_u8).prop_map(|(nsid, byte)| Action::Fill { nsid, byte }),
    ]
}

#[derive(Clone, Debug)]
struct Modelled {
    shared: bool,
    attached: BTreeSet<u16>,
    /// First granule.
    at: usize,
    bytes: u64,
    lba: u64,
    /// Value of each of its bytes.
    content: u8,
}

#[derive(Default)]
struct Model {
    namespaces: BTreeMap<u32, Modelled>,
}

fn lba_bytes(format: u8) -> Result<u64, u16> {
    match format {
        0 => Ok(512),
        1 => Ok(4096),
        _ => Err(INVALID_FORMAT),
    }
}

impl Model {
    fn owners(&self) -> [u32; GRANULES] {
        let mut map = [0; GRANULES];
        for (nsid, n) in &self.namespaces {
            let end = n.at + n.bytes.div_ceil(GRANULE) as usize;
            for owner in &mut map[n.at..end] {
                assert_eq!(std::mem::replace(owner, *nsid), 0, "two share a granule");
            }
        }
        map
    }

    fn named(&mut self, nsid: u32) -> Result<&mut Modelled, u16> {
        if nsid == 0 || nsid > LIMIT {
            return Err(INVALID_NAMESPACE);
        }
        self.namespaces.get_mut(&nsid).ok_or(INVALID_FIELD)
    }

    fn create(&mut self, blocks: u64, format: u8, shared: bool) -> Result<u32, u16> {
        let lba = lba_bytes(format)?;
        if blocks == 0 {
            return Err(INVALID_FIELD);
        }
        let free = |nsid: &u32| !self.namespaces.contains_key(nsid);
        let nsid = (1..=LIMIT).find(free).ok_or(IDENTIFIER_UNAVAILABLE)?;
        let bytes = blocks * lba;
        let wanted = bytes.div_ceil(GRANULE) as usize;
        let map = self.owners();
        let fits = |at: &usize| map[*at..at + wanted].iter().all(|owner| *owner == 0);
        let last = GRANULES.checked_sub(wanted).ok_or(INSUFFICIENT_CAPACITY)?;
        let at = (0..=last).find(fits).ok_or(INSUFFICIENT_CAPACITY)?;
        let new = Modelled {
            shared,
            attached: BTreeSet::new(),
            at,
            bytes,
            lba,
            content: 0,
        };
        self.namespaces.insert(nsid, new);
        Ok(nsid)
    }

    fn list(ids: &[u16]) -> Result<BTreeSet<u16>, u16> {
        let set: BTreeSet<u16> = ids.iter().copied().collect();
        let good = !ids.is_empty() && set.len() == ids.len();
        good.then_some(set).ok_or(LIST_INVALID)
    }

    fn attach(&mut self, nsid: u32, ids: &[u16]) -> Result<(), u16> {
        let ids = Self::list(ids)?;
        let n = self.named(nsid)?;
        if ids.iter().any(|id| *id > 3) {
            return Err(LIST_INVALID);
        }
        if !ids.is_disjoint(&n.attached) {
            return Err(ALREADY_ATTACHED);
        }
        if !n.shared && ids.len() + n.attached.len() > 1 {
            return Err(IS_PRIVATE);
        }
        n.attached.extend(ids);
        Ok(())
    }

    fn detach(&mut self, nsid: u32, ids: &[u16]) -> Result<(), u16> {
        let ids = Self::list(ids)?;
        let n = self.named(nsid)?;
        if ids.iter().any(|id| *id > 3) {
            return Err(LIST_INVALID);
        }
        if !ids.is_subset(&n.attached) {
            return Err(NOT_ATTACHED);
        }
        n.attached.retain(|id| !ids.contains(id));
        Ok(())
    }

    fn format(&mut self, host: usize, nsid: u32, format: u8) -> Result<(), u16> {
        let lba = lba_bytes(format)?;
        let id = host as u16 + 1;
        let nsids: Vec<u32> = match nsid {
            u32::MAX => self
                .namespaces
                .iter()
                .filter(|(_, n)| n.attached.contains(&id))
                .map(|(nsid, _)| *nsid)
                .collect(),
            _ if self.namespaces.contains_key(&nsid) => vec![nsid],
            _ => return Err(INVALID_FIELD),
        };
        if nsids.iter().any(|nsid| self.namespaces[nsid].bytes < lba) {
            return Err(INVALID_FORMAT);
        }
        for nsid in nsids {
            let n = self.namespaces.get_mut(&nsid).unwrap();
            (n.lba, n.content) = (lba, 0);
        }
        Ok(())
    }
}

fn status(result: Result<(), u16>) -> u16 {
    result.err().unwrap_or(OK)
}

fn config() -> SubsystemConfig {
    SubsystemConfig {
        pools: vec![pool(0, BYTES)],
        ..SubsystemConfig::with_namespaces(LIMIT, [])
    }
}

fn restart(world: &mut World) {
    let record = world.subsystem().record();
    let bytes = std::mem::take(&mut world.medium(0).bytes);
    let restored = |n: NamespaceRecord| n.restore(&pool(0, BYTES)).unwrap();
    let config = SubsystemConfig {
        namespaces: record.namespaces.into_iter().map(restored).collect(),
        controllers: record.controllers,
        created: record.created,
        ..config()
    };
    *world = World::new(HOSTS, config, BYTES);
    world.medium(0).bytes = bytes;
}

/// Does an action in both.
fn act(
    world: &mut World,
    model: &mut Model,
    host: usize,
    action: &Action,
) -> Result<(), TestCaseError> {
    match action {
        Action::Create {
            blocks,
            format,
            shared,
        } => {
            let fields = Fields {
                flbas: *format,
                nmic: u8::from(*shared),
                ..Fields::new(*blocks)
            };
            let expected = model.create(*blocks, *format, *shared);
            prop_assert_eq!(world.create(host, fields), expected);
        }
        Action::Delete { nsid } => {
            let expected = model.named(*nsid).map(|_| ());
            model.namespaces.remove(nsid);
            prop_assert_eq!(world.delete(host, *nsid), status(expected));
        }
        Action::Attach { nsid, ids } => {
            let expected = model.attach(*nsid, ids);
            prop_assert_eq!(world.attach(host, *nsid, ids), status(expected));
        }
        Action::Detach { nsid, ids } => {
            let expected = model.detach(*nsid, ids);
            prop_assert_eq!(world.detach(host, *nsid, ids), status(expected));
        }
        Action::Format { nsid, format } => {
            let expected = model.format(host, *nsid, *format);
            let answer = world.format(host, *nsid, u32::from(*format));
            prop_assert_eq!(answer, status(expected));
        }
        Action::Restart => restart(world),
        Action::Fill { nsid, byte } => {
            if let Some(n) = model.namespaces.get_mut(nsid) {
                n.content = *byte;
                let from = n.at * GRANULE as usize;
                let bytes = from..from + n.bytes as usize;
                world.medium(0).bytes[bytes].fill(*byte);
            }
        }
    }
    Ok(())
}

/// Identify data and the bytes of the medium are those of the model.
fn compare(world: &mut World, model: &Model) -> Result<(), TestCaseError> {
    let all: Vec<u32> = model.namespaces.keys().copied().collect();
    let free = model.owners().iter().filter(|owner| **owner == 0).count() as u64;
    for host in 0..HOSTS {
        let id = host as u16 + 1;
        let mine = |nsid: &u32| model.namespaces[nsid].attached.contains(&id);
        let active: Vec<u32> = all.iter().copied().filter(mine).collect();
        prop_assert_eq!(&world.listed(host, 0x10), &all);
        prop_assert_eq!(&world.listed(host, 0x02), &active);
        let controller = world.at(host).identify(0x01, 0, 0).unwrap();
        prop_assert_eq!(u64_at(&controller, 280), BYTES);
        prop_assert_eq!(u64_at(&controller, 296), free * GRANULE);
    }
    for (nsid, n) in &model.namespaces {
        let page = world.at(0).identify(0x11, *nsid, 0).unwrap();
        prop_assert_eq!(u64_at(&page, 0), n.bytes / n.lba, "NSZE of {}", nsid);
        prop_assert_eq!(page[26], u8::from(n.lba == 4096), "FLBAS of {}", nsid);
        prop_assert_eq!(page[30], u8::from(n.shared), "NMIC of {}", nsid);
        let from = n.at * GRANULE as usize;
        let bytes = &world.medium(0).bytes[from..from + n.bytes as usize];
        prop_assert!(
            bytes.iter().all(|byte| *byte == n.content),
            "bytes of {}",
            nsid
        );
    }
    let record = world.subsystem().record();
    let recorded: Vec<u32> = record.namespaces.iter().map(|n| n.nsid).collect();
    prop_assert_eq!(recorded, all);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn as_sets_and_a_map_of_bytes(
        steps in proptest::collection::vec((0..HOSTS, action()), 1..40),
    ) {
        let mut world = World::new(HOSTS, config(), BYTES);
        let mut model = Model::default();
        for (host, action) in &steps {
            act(&mut world, &mut model, *host, action)?;
            compare(&mut world, &model)?;
        }
    }
}
