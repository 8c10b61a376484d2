//! Work of others in progress: how much of it there is, in all and of each that it is for.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

/// How much is in progress, by what it is for.
#[derive(Debug)]
#[expect(
    clippy::disallowed_types,
    reason = "no command takes it: exchanges and handshakes begin and end"
)]
pub(crate) struct Places<K: Ord>(std::sync::Mutex<BTreeMap<K, usize>>);

impl<K: Ord> Default for Places<K> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Ord + Clone> Places<K> {
    /// A panic elsewhere leaves the numbers whole: each change is one step.
    fn all(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, where fewer than `most` are taken, and of this key fewer than `of_one`.
    pub(crate) fn take(self: &Arc<Self>, key: &K, most: usize, of_one: usize) -> Option<Place<K>> {
        let mut all = self.all();
        let taken = all.get(key).copied().unwrap_or_default();
        if taken >= of_one || all.values().sum::<usize>() >= most {
            return None;
        }
        all.insert(key.clone(), taken + 1);
        Some(Place {
            places: self.clone(),
            key: key.clone(),
        })
    }
}

/// A place among those in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Ord + Clone> {
    places: Arc<Places<K>>,
    key: K,
}

impl<K: Ord + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let mut all = self.places.all();
        if let Some(taken) = all.get_mut(&self.key) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_in_all_and_fewer_for_one() {
        let places = Arc::new(Places::default());
        let take = |key| places.take(&key, 3, 2);
        let first = take('a').unwrap();
        let _second = take('a').unwrap();
        assert!(take('a').is_none(), "one has its own");
        let _third = take('b').unwrap();
        assert!(take('c').is_none(), "all are taken");
        drop(first);
        assert!(take('c').is_some_and(|place| place.key == 'c'));
        assert!(take('a').is_some());
    }
}
