//! The chunks themselves: how they split, join and are shared. That the map as a whole is right is
//! tested from outside, with few regions; here there are many, without memory behind them.

use std::collections::BTreeMap;
use std::ptr;

use proptest::prelude::*;

use super::super::Access;
use super::*;
use crate::own::PAGE;

fn region(page: u64, pages: u64) -> Region {
    Region {
        iova: Iova(page * PAGE),
        len: pages * PAGE,
        access: Access::READ,
        base: ptr::null_mut(),
        open: 0,
        lent: None,
        id: 0,
        log: None,
    }
}

fn tree(pages: impl Iterator<Item = u64>) -> Tree {
    let mut tree = Tree::default();
    pages.for_each(|page| tree.insert(region(page, 1)));
    tree
}

fn sizes(tree: &Tree) -> Vec<usize> {
    let sizes = tree.chunks.iter().map(|chunk| chunk.regions.len());
    sizes.collect()
}

fn remove(tree: &mut Tree, first: u64, last: u64) -> u64 {
    tree.remove(Iova(first * PAGE), Iova(last * PAGE + PAGE - 1), |_| ())
}

fn starts(tree: &Tree) -> Vec<u64> {
    tree.iter().map(|region| region.iova.0 / PAGE).collect()
}

/// Properties of every tree.
fn check(tree: &Tree, model: &BTreeMap<u64, u64>) {
    let listed = tree
        .iter()
        .map(|region| (region.iova.0 / PAGE, region.len / PAGE));
    assert!(listed.eq(model.iter().map(|(page, pages)| (*page, *pages))));
    assert_eq!(tree.len(), model.len());
    for chunk in &tree.chunks {
        assert!((1..=CHUNK).contains(&chunk.regions.len()));
        assert_eq!(chunk.start, chunk.regions[0].iova);
    }
}

#[test]
fn ascending_regions_fill_their_chunks() {
    assert_eq!(sizes(&tree(0..300)), [CHUNK, CHUNK, 300 - 2 * CHUNK]);
}

#[test]
fn descending_regions_split_chunks_in_halves() {
    let tree = tree((0..300).rev());
    assert_eq!(starts(&tree), (0..300).collect::<Vec<_>>());
    assert!(sizes(&tree)[1..].iter().all(|size| *size == CHUNK / 2));
}

#[test]
fn a_full_chunk_splits_around_the_newcomer() {
    for new in [1, 127, 129, 253] {
        let mut tree = tree((0..128).map(|index| index * 2));
        assert_eq!(sizes(&tree), [CHUNK]);
        tree.insert(region(new, 1));
        let halves = if new < 128 { [65, 64] } else { [64, 65] };
        assert_eq!(sizes(&tree), halves, "page {new}");
        assert!(starts(&tree).is_sorted());
        assert!(starts(&tree).contains(&new));
    }
}

#[test]
fn small_neighbours_join_and_large_ones_do_not() {
    let mut tree = tree(0..3 * CHUNK as u64);
    assert_eq!(remove(&mut tree, 128, 128 + 99), 100 * PAGE);
    assert_eq!(sizes(&tree), [128, 28, 128]);
    // 28 + 37 are one too many for half a chunk, 28 + 36 are not.
    remove(&mut tree, 256, 256 + 90);
    assert_eq!(sizes(&tree), [128, 28, 37]);
    remove(&mut tree, 347, 347);
    assert_eq!(sizes(&tree), [128, 64]);
    // The change is in the right one of two that join.
    remove(&mut tree, 10, 127);
    assert_eq!(sizes(&tree), [10, 64]);
    remove(&mut tree, 228, 228 + 9);
    assert_eq!(sizes(&tree), [64]);
    assert_eq!(remove(&mut tree, 0, 1 << 40), 64 * PAGE);
    assert_eq!((sizes(&tree), tree.len()), (vec![], 0));
    assert_eq!(remove(&mut tree, 0, 1 << 40), 0);
}

#[test]
fn a_range_over_many_chunks_leaves_both_ends() {
    let mut tree = tree(0..10 * CHUNK as u64);
    remove(&mut tree, 100, 1200);
    let expected = (0..100).chain(1201..1280).collect::<Vec<_>>();
    assert_eq!(starts(&tree), expected);
    assert_eq!(sizes(&tree), [100, 79], "together more than a chunk");
}

#[test]
fn a_change_copies_one_chunk_and_shares_the_others() {
    let before = tree((0..1280).map(|index| index * 2));
    let mut after = before.clone();
    after.insert(region(301, 1));
    remove(&mut after, 2000, 2000);
    let shared = |chunk: &&Chunk| {
        let same = |other: &Chunk| Arc::ptr_eq(&chunk.regions, &other.regions);
        before.chunks.iter().any(same)
    };
    assert_eq!(before.chunks.len(), 10);
    assert_eq!(after.chunks.iter().filter(shared).count(), 8);
    assert_eq!(before.len(), 1280);
    assert!(before.iter().all(|region| region.iova.0 != 301 * PAGE));
}

#[derive(Clone, Debug)]
enum Step {
    Insert { page: u64, pages: u64 },
    Remove { page: u64, pages: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let page = 0u64..6000;
    prop_oneof![
        40 => (page.clone(), 1u64..3).prop_map(|(page, pages)| Step::Insert { page, pages }),
        8 => (page.clone(), 1u64..20).prop_map(|(page, pages)| Step::Remove { page, pages }),
        1 => (page, 1u64..2000).prop_map(|(page, pages)| Step::Remove { page, pages }),
    ]
}

/// The last region that starts at or before `page`, which `model` lists with its pages.
fn before(model: &BTreeMap<u64, u64>, page: u64) -> Option<(u64, u64)> {
    let (page, pages) = model.range(..=page).next_back()?;
    Some((*page, *pages))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn chunks_hold_what_an_ordered_map_holds(steps in prop::collection::vec(step(), 1..3000)) {
        let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Insert { page, pages } => {
                    let free = before(&model, page + pages - 1)
                        .is_none_or(|(other, others)| other + others <= page);
                    if free {
                        tree.insert(region(page, pages));
                        model.insert(page, pages);
                    }
                }
                Step::Remove { page, pages } => {
                    // The map's own rule: no region is split.
                    let last = page + pages - 1;
                    let cut = |(other, others): (u64, u64)| {
                        other < page && other + others > page || other + others > last + 1
                    };
                    if before(&model, page).is_some_and(|it| it.0 != page && cut(it))
                        || before(&model, last).is_some_and(cut)
                    {
                        continue;
                    }
                    let bytes: u64 = model.range(page..=last).map(|(_, pages)| pages * PAGE).sum();
                    model.retain(|other, _| !(page..=last).contains(other));
                    prop_assert_eq!(remove(&mut tree, page, last), bytes);
                }
            }
        }
        check(&tree, &model);
        for page in 0..6002 {
            let found = tree.at_or_before(Iova(page * PAGE + 7));
            let place = found.map(|(place, _)| place);
            let found = found.map(|(_, region)| (region.iova.0 / PAGE, region.len / PAGE));
            prop_assert_eq!(found, before(&model, page));
            let got = place.and_then(|place| tree.get(place));
            prop_assert_eq!(got.map(|region| region.iova.0 / PAGE), found.map(|it| it.0));
        }
    }
}
