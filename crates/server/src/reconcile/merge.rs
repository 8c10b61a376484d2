//! Merge of run-time changes with a configuration that may have been edited since.
//!
//! Each object, identified by kind and name, has three versions: in the configuration when the
//! change was made, at the end of the run, and in the configuration now. A change on one side only
//! is taken over. Where both sides have changed, the configuration wins, and a line reports the
//! change that is lost.

use super::inventory::{Named, Objects, find};

/// Result of a merge.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) objects: Objects,
    /// Run-time changes that the configuration overrides.
    pub(crate) lost: Vec<String>,
}

/// Merges three versions: `mine` and `theirs` come from `then`. A change on one side only is
/// taken over. Where both have changed, `theirs` counts.
pub(crate) fn merge3<T: PartialEq>(then: T, mine: T, theirs: T) -> T {
    if theirs == then { mine } else { theirs }
}

/// Merges the configuration's objects `then`, those at the `end`, and the configuration's objects
/// `now`.
pub(crate) fn merge(then: &Objects, end: &Objects, now: &Objects) -> Merged {
    let mut lost = Vec::new();
    let objects = Objects {
        media: kind(&then.media, &end.media, &now.media, &mut lost),
        namespace: kind(&then.namespace, &end.namespace, &now.namespace, &mut lost),
        tenant: kind(&then.tenant, &end.tenant, &now.tenant, &mut lost),
        controller: kind(
            &then.controller,
            &end.controller,
            &now.controller,
            &mut lost,
        ),
    };
    Merged { objects, lost }
}

/// Objects of one kind: first those of the configuration, then those created at run time, each in
/// their order.
fn kind<T: Named>(then: &[T], end: &[T], now: &[T], lost: &mut Vec<String>) -> Vec<T> {
    let mut merged = Vec::new();
    for object in now {
        let name = object.name();
        let (then, end) = (find(then, name), find(end, name));
        let edited = then != Some(object);
        let changed = then != end;
        if edited && changed && end != Some(object) {
            let what = match (then, end) {
                (None, _) => "was made",
                (Some(_), None) => "was deleted",
                (Some(_), Some(_)) => "was changed",
            };
            lost.push(format!(
                "{} {name} {what} at run time, and the configuration now defines another one: the configuration applies",
                T::KIND
            ));
        }
        merged.extend(merge3(then, end, Some(object)).cloned());
    }
    for object in end.iter().filter(|one| find(now, one.name()).is_none()) {
        let then = find(then, object.name());
        merged.extend(merge3(then, Some(object), None).cloned());
        if then.is_some_and(|then| then != object) {
            lost.push(format!(
                "{} {} was changed at run time, and is no longer in the configuration: it is removed",
                T::KIND,
                object.name()
            ));
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use api::config::tenant::{self, Tenant};
    use proptest::prelude::*;

    use super::*;

    /// A tenant whose weight tells it from others of the same name.
    fn one(name: &str, weight: u32) -> Tenant {
        let text = format!("name = \"{name}\"\nweight = {weight}\n");
        let tenant: tenant::Tenant = toml::from_str(&text).unwrap();
        tenant
    }

    fn all(tenants: &[(&str, u32)]) -> Objects {
        Objects {
            tenant: tenants
                .iter()
                .map(|(name, weight)| one(name, *weight))
                .collect(),
            ..Objects::default()
        }
    }

    fn shown(objects: &Objects) -> Vec<(String, u32)> {
        let tenants = objects.tenant.iter();
        tenants.map(|t| (t.name.clone(), t.weight)).collect()
    }

    #[test]
    fn what_one_side_has_changed_is_so() {
        let then = all(&[
            ("kept", 1),
            ("edited", 1),
            ("set", 1),
            ("taken", 1),
            ("deleted", 1),
        ]);
        let end = all(&[
            ("kept", 1),
            ("edited", 1),
            ("set", 2),
            ("taken", 1),
            ("made", 3),
        ]);
        let now = all(&[
            ("new", 4),
            ("kept", 1),
            ("edited", 5),
            ("set", 1),
            ("deleted", 1),
        ]);
        let merged = merge(&then, &end, &now);
        let expected = [
            ("new", 4),
            ("kept", 1),
            ("edited", 5),
            ("set", 2),
            ("made", 3),
        ];
        assert_eq!(
            shown(&merged.objects),
            expected.map(|(n, w)| (n.to_owned(), w))
        );
        assert_eq!(merged.lost, [""; 0]);
    }

    #[test]
    fn where_both_have_the_configuration_counts_and_it_is_said() {
        let then = all(&[("set", 1), ("deleted", 1), ("gone", 1)]);
        let end = all(&[("set", 2), ("made", 3), ("gone", 2)]);
        let now = all(&[("set", 5), ("deleted", 6), ("made", 7)]);
        let merged = merge(&then, &end, &now);
        let expected = [("set", 5), ("deleted", 6), ("made", 7)];
        assert_eq!(
            shown(&merged.objects),
            expected.map(|(n, w)| (n.to_owned(), w))
        );
        let words = [
            "set was changed",
            "deleted was deleted",
            "made was made",
            "gone was changed",
        ];
        assert_eq!(merged.lost.len(), words.len());
        for (line, words) in merged.lost.iter().zip(words) {
            assert!(line.contains(words), "{line}");
        }
    }

    fn any_objects() -> impl Strategy<Value = Objects> {
        let names = prop::collection::btree_map(0..6_u32, 1..4_u32, 0..6);
        names.prop_map(|map| {
            let tenants: Vec<_> = map.iter().map(|(n, w)| (format!("t{n}"), *w)).collect();
            let tenants: Vec<_> = tenants.iter().map(|(n, w)| (n.as_str(), *w)).collect();
            all(&tenants)
        })
    }

    fn sorted(objects: &Objects) -> Vec<(String, u32)> {
        let mut all = shown(objects);
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn an_unedited_configuration_gives_the_end_and_an_unchanged_end_the_configuration(
            then in any_objects(),
            other in any_objects(),
        ) {
            let kept = merge(&then, &other, &then);
            prop_assert_eq!(sorted(&kept.objects), sorted(&other));
            prop_assert_eq!(kept.lost.len(), 0);
            let edited = merge(&then, &then, &other);
            prop_assert_eq!(&edited.objects, &other);
            prop_assert_eq!(edited.lost.len(), 0);
        }

        #[test]
        fn each_object_is_of_one_side(then in any_objects(), end in any_objects(), now in any_objects()) {
            for (name, weight) in shown(&merge(&then, &end, &now).objects) {
                let find = |all: &Objects| shown(all).into_iter().find(|one| one.0 == name);
                let (then, end, now) = (find(&then), find(&end), find(&now));
                let mine = Some((name, weight));
                prop_assert!(mine == end || mine == now);
                // an object that was edited is as the configuration has it
                prop_assert!(now == then || now.is_none() || mine == now);
            }
        }
    }
}
