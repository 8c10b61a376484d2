//! Against a `BTreeMap`: random programs, with the space that they take added up.

use std::collections::BTreeMap;
use std::ops::Bound;

use memory::Store;
use proptest::prelude::*;

use super::super::data::{Source, Target};
use super::{KEY_MAX, Pairs, Refusal, Rule, VALUE_MAX};

/// Bytes of a test.
struct From<'b>(&'b [u8]);

impl Source for From<'_> {
    fn take_into(&mut self, store: &Store, at: u64, len: u32) {
        let (head, rest) = self.0.split_at(len as usize);
        store.write_bytes(at, head);
        self.0 = rest;
    }
}

#[derive(Clone, Default)]
struct Into(Vec<u8>);

impl Target for Into {
    fn put_from(&mut self, store: &Store, at: u64, len: u32) {
        let start = self.0.len();
        self.0.resize(start + len as usize, 0);
        store.read_bytes(at, &mut self.0[start..]);
    }
}

fn store(pairs: &mut Pairs, key: &[u8], rule: Rule, value: &[u8]) -> Result<(), Refusal> {
    let len = value.len() as u32;
    let mut from = From(value);
    let done = pairs.store(key, rule, len, &mut from);
    assert_eq!(from.0.len(), if done.is_ok() { 0 } else { value.len() });
    done.map(drop)
}

fn retrieve(pairs: &Pairs, key: &[u8], offset: u32, room: u32) -> Result<(u32, Vec<u8>), Refusal> {
    let mut out = Into::default();
    let len = pairs.retrieve(key, offset, room, &mut out)?;
    Ok((len, out.0))
}

/// Every pair, in the order in which the index has them.
fn listed(pairs: &Pairs, from: &[u8]) -> Vec<Vec<u8>> {
    let first = pairs.at_or_after(from);
    std::iter::successors(first, |slot| pairs.after(*slot))
        .map(|slot| pairs.key(slot, &mut [0; KEY_MAX]).to_vec())
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Store(Vec<u8>, Rule, usize, u8),
    Append(Vec<u8>, Rule, usize, u8),
    Delete(Vec<u8>),
    Retrieve(Vec<u8>, u32, u32),
    List(Vec<u8>),
    After(Vec<u8>),
    Clear,
}

/// Few keys, so that they meet; zeros at the end, and keys that differ behind their first 16 bytes
/// only.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let lens = prop_oneof![3 => 1..6usize, 2 => 14..20usize, 1 => Just(KEY_MAX)];
    (lens, 0..3u8, 0..3u8).prop_map(|(len, fill, last)| {
        let mut key = vec![fill; len];
        key[len - 1] = last;
        key
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        4 => Just(Rule::Any),
        1 => Just(Rule::MustExist),
        1 => Just(Rule::MustNotExist)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![1 => Just(0), 4 => 1..1200usize, 1 => 1200..6000usize];
    prop_oneof![
        8 => (key(), rule(), len(), any::<u8>()).prop_map(|(k, r, l, b)| Step::Store(k, r, l, b)),
        3 => (key(), rule(), len(), any::<u8>()).prop_map(|(k, r, l, b)| Step::Append(k, r, l, b)),
        4 => key().prop_map(Step::Delete),
        4 => (key(), 0..1500u32, 0..3000u32).prop_map(|(k, o, r)| Step::Retrieve(k, o, r)),
        1 => key().prop_map(Step::List),
        1 => key().prop_map(Step::After),
        1 => Just(Step::Clear),
    ]
}

/// Expected contents of the medium.
#[derive(Default)]
struct Model {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

const UNITS: u64 = 40;
const KEYS: u32 = 12;

impl Model {
    fn units_of(key: &[u8], len: usize) -> u64 {
        ((key.len().saturating_sub(16) + len) as u64).div_ceil(512)
    }

    fn used(&self) -> u64 {
        self.pairs
            .iter()
            .map(|(key, value)| Self::units_of(key, value.len()))
            .sum()
    }

    fn put(&mut self, key: &[u8], rule: Rule, value: Vec<u8>) -> Result<(), Refusal> {
        let old = self.pairs.get(key);
        match (rule, old) {
            (Rule::MustExist, None) => return Err(Refusal::NotFound),
            (Rule::MustNotExist, Some(_)) => return Err(Refusal::Exists),
            _ => {}
        }
        let had = old.map_or(0, |old| Self::units_of(key, old.len()));
        let is_new = old.is_none();
        if is_new && self.pairs.len() == KEYS as usize
            || self.used() - had + Self::units_of(key, value.len()) > UNITS
        {
            return Err(Refusal::Full);
        }
        self.pairs.insert(key.to_vec(), value);
        Ok(())
    }

    fn append(&mut self, key: &[u8], rule: Rule, more: &[u8]) -> Result<u32, Refusal> {
        let mut value = self.pairs.get(key).cloned().unwrap_or_default();
        value.extend_from_slice(more);
        let len = value.len() as u32;
        self.put(key, rule, value).map(|()| len)
    }

    fn retrieve(&self, key: &[u8], offset: u32, room: u32) -> Result<(u32, Vec<u8>), Refusal> {
        let value = self.pairs.get(key).ok_or(Refusal::NotFound)?;
        let rest = value.get(offset as usize..).ok_or(Refusal::BeyondEnd)?;
        let returned = &rest[..rest.len().min(room as usize)];
        Ok((value.len() as u32, returned.to_vec()))
    }

    fn listed(&self, from: Bound<Vec<u8>>) -> Vec<Vec<u8>> {
        let range = self.pairs.range((from, Bound::Unbounded));
        range.map(|(key, _)| key.clone()).collect()
    }
}

fn run(steps: Vec<Step>) {
    let mut pairs = Pairs::new(UNITS * 512, KEYS).unwrap();
    let mut model = Model::default();
    let bytes = |len: usize, byte: u8| (0..len).map(|at| byte ^ at as u8).collect::<Vec<_>>();
    for step in steps {
        match &step {
            Step::Store(key, rule, len, byte) => {
                let value = bytes(*len, *byte);
                let done = store(&mut pairs, key, *rule, &value);
                assert_eq!(done, model.put(key, *rule, value), "{step:?}");
            }
            Step::Append(key, rule, len, byte) => {
                let value = bytes(*len, *byte);
                let done = pairs.append(key, *rule, *len as u32, &mut From(&value));
                let done = done.map(|(_, size)| size);
                assert_eq!(done, model.append(key, *rule, &value), "{step:?}");
            }
            Step::Delete(key) => {
                let gone = model.pairs.remove(key).map(|_| ());
                assert_eq!(pairs.delete(key).ok(), gone, "{step:?}");
            }
            Step::Retrieve(key, offset, room) => {
                let returned = retrieve(&pairs, key, *offset, *room);
                assert_eq!(returned, model.retrieve(key, *offset, *room), "{step:?}");
            }
            Step::List(key) => {
                assert_eq!(
                    listed(&pairs, key),
                    model.listed(Bound::Included(key.clone()))
                );
            }
            Step::After(key) => {
                let after = pairs.after_key(key);
                let after = after.map(|slot| pairs.key(slot, &mut [0; KEY_MAX]).to_vec());
                let expected = model.listed(Bound::Excluded(key.clone()));
                assert_eq!(after.as_ref(), expected.first());
            }
            Step::Clear => {
                pairs.clear();
                model.pairs.clear();
            }
        }
        assert_eq!(pairs.keys() as usize, model.pairs.len());
        assert_eq!(pairs.used(), model.used() * 512, "{step:?}");
        pairs.check();
    }
    assert_eq!(listed(&pairs, &[]), model.listed(Bound::Unbounded));
    for (key, value) in &model.pairs {
        assert_eq!(pairs.size_of(key), Some(value.len() as u32));
        assert_eq!(retrieve(&pairs, key, 0, u32::MAX).unwrap().1, *value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn behaves_as_a_map_and_space_adds_up(steps in prop::collection::vec(step(), 1..120)) {
        run(steps);
    }
}

#[test]
fn many_keys_keep_their_order_and_their_paths_short() {
    const COUNT: u32 = 20_000;
    let mut pairs = Pairs::new(64 << 20, COUNT).unwrap();
    // Upwards, then downwards in between: the worst for a tree that is not balanced.
    let numbers = (0..COUNT).step_by(2).chain((0..COUNT).rev().step_by(2));
    for n in numbers {
        let key = format!("key-with-a-long-start-{n:08}");
        store(&mut pairs, key.as_bytes(), Rule::Any, key.as_bytes()).unwrap();
    }
    pairs.check();
    let keys = listed(&pairs, b"key-with-a-long-start-00019990");
    assert_eq!(keys.len(), 10);
    assert_eq!(keys[9], b"key-with-a-long-start-00019999");
    assert_eq!(
        store(&mut pairs, b"one more", Rule::Any, b""),
        Err(Refusal::Full)
    );
    for n in (0..COUNT).filter(|n| n % 7 != 0) {
        let key = format!("key-with-a-long-start-{n:08}");
        pairs.delete(key.as_bytes()).unwrap();
    }
    pairs.check();
    let left = listed(&pairs, b"");
    assert!(left.is_sorted() && left.len() == COUNT.div_ceil(7) as usize);
}

#[test]
fn a_full_medium_loses_nothing_and_takes_what_fits_in_place() {
    let mut pairs = Pairs::new(8 * 512, 100).unwrap();
    for key in 0..4u8 {
        store(&mut pairs, &[key], Rule::Any, &[key; 1024]).unwrap();
    }
    assert_eq!(pairs.used(), pairs.size());
    assert_eq!(store(&mut pairs, &[9], Rule::Any, &[9]), Err(Refusal::Full));
    assert_eq!(
        store(&mut pairs, &[1], Rule::Any, &[9; 1025]),
        Err(Refusal::Full)
    );
    assert_eq!(retrieve(&pairs, &[1], 0, 4096), Ok((1024, vec![1; 1024])));
    // A value of the same size, one of no bytes, and one that fits in the room left by a smaller
    // one.
    store(&mut pairs, &[1], Rule::Any, &[7; 1024]).unwrap();
    store(&mut pairs, &[9], Rule::Any, &[]).unwrap();
    store(&mut pairs, &[2], Rule::MustExist, &[5; 100]).unwrap();
    store(&mut pairs, &[8], Rule::MustNotExist, &[8; 512]).unwrap();
    assert_eq!(pairs.used(), pairs.size());
    assert_eq!(retrieve(&pairs, &[1], 1000, 4096), Ok((1024, vec![7; 24])));
    assert_eq!(retrieve(&pairs, &[8], 0, 10), Ok((512, vec![8; 10])));
    assert_eq!(retrieve(&pairs, &[9], 0, 10), Ok((0, vec![])));
    pairs.check();
}

#[test]
fn values_have_their_limit() {
    let mut pairs = Pairs::new(8 << 20, 4).unwrap();
    let largest = vec![3; VALUE_MAX as usize];
    store(&mut pairs, b"k", Rule::Any, &largest).unwrap();
    assert_eq!(
        pairs.append(b"k", Rule::Any, 1, &mut From(&[0])),
        Err(Refusal::TooLarge)
    );
    let more = vec![3; VALUE_MAX as usize + 1];
    assert_eq!(
        store(&mut pairs, b"l", Rule::Any, &more),
        Err(Refusal::TooLarge)
    );
    assert_eq!(pairs.size_of(b"k"), Some(VALUE_MAX));
    assert_eq!(
        pairs.append(b"k", Rule::Any, u32::MAX, &mut From(&[0])),
        Err(Refusal::TooLarge)
    );
    assert_eq!(
        pairs.append(b"m", Rule::MustExist, 1, &mut From(&[0])),
        Err(Refusal::NotFound)
    );
    assert_eq!(
        pairs.append(b"k", Rule::MustNotExist, 1, &mut From(&[0])),
        Err(Refusal::Exists)
    );
}

#[test]
fn nothing_is_allocated_per_command() {
    let mut pairs = Pairs::new(1 << 20, 100).unwrap();
    let value = [1; 3000];
    let counted = allocation_counter::measure(|| {
        for round in 0..50u8 {
            for n in 0..100u8 {
                let key = [round, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
                pairs
                    .store(&key, Rule::Any, 3000, &mut From(&value))
                    .unwrap();
                assert_eq!(pairs.size_of(&key), Some(3000));
                assert!(pairs.at_or_after(&[round]).is_some());
            }
            for n in 0..100u8 {
                let key = [round, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
                pairs.delete(&key).unwrap();
            }
        }
    });
    assert_eq!(counted.count_total, 0);
}
