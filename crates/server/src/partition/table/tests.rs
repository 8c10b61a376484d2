use api::Partition;

use super::*;

const GIB: u64 = 1 << 30;

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

/// A drive of slightly more than 10 GiB, with these partitions.
fn table(partitions: &[(&str, &str)]) -> Table {
    let partitions = partitions.iter().map(|(name, at)| Partition {
        name: (*name).to_owned(),
        range: range(at),
        deleting: false,
    });
    Table::new(10 * GIB + 512, partitions.collect()).unwrap()
}

fn other(at: &str) -> Taken {
    Taken {
        by: "namespace `n`".to_owned(),
        range: range(at),
    }
}

#[test]
fn a_partition_comes_into_the_first_gap_that_is_large_enough_and_begins_aligned() {
    let mut table = table(&[("a", "1GiB..2GiB")]);
    let mut make = |name: &str, bytes: &str, taken: &[Taken]| {
        let made = table.create(name, size(bytes), None, taken);
        made.map(|range| range.to_string())
    };
    assert_eq!(make("b", "1GiB", &[]).unwrap(), "0B..1GiB");
    assert_eq!(make("c", "4KiB", &[]).unwrap(), "2GiB..2097156KiB");
    // not directly after it, but at the next MiB
    assert_eq!(make("d", "1GiB", &[]).unwrap(), "2049MiB..3073MiB");
    // a namespace is in the way
    let taken = [other("4GiB..5GiB")];
    assert_eq!(make("e", "1GiB", &taken).unwrap(), "5GiB..6GiB");
    let error = make("f", "5GiB", &taken).unwrap_err();
    assert!(
        error.contains("no gap of 5GiB: the largest one has 4GiB"),
        "{error}"
    );
    // the rest after the last whole 4 KiB is unused
    assert_eq!(make("f", "4GiB", &taken).unwrap(), "6GiB..10GiB");
    let names: Vec<&str> = table.partitions().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c", "d", "e", "f"]);
}

#[test]
fn what_cannot_be_made_changes_nothing_and_says_why() {
    let mut table = table(&[("a", "1GiB..2GiB")]);
    let before = table.clone();
    let taken = [other("4GiB..5GiB")];
    for (name, bytes, at, says) in [
        ("a", "1GiB", None, "partition `a` already exists"),
        ("a b", "1GiB", None, "not a partition name"),
        ("", "1GiB", None, "not a partition name"),
        ("b", "6KiB", None, "a multiple of 4KiB"),
        ("b", "0KiB", None, "a multiple of 4KiB"),
        ("b", "1GiB", Some("1536MiB"), "overlaps partition `a`"),
        ("b", "2GiB", Some("0B"), "overlaps partition `a`"),
        ("b", "1GiB", Some("4607MiB"), "overlaps namespace `n`"),
        ("b", "1GiB", Some("3145729KiB"), "multiples of 1MiB"),
        ("b", "4KiB", Some("10GiB"), "end beyond the drive's size"),
        ("b", "2GiB", Some("9GiB"), "end beyond the drive's size"),
        (
            "b",
            "8388608TiB",
            Some("8388608TiB"),
            "end beyond the drive's size",
        ),
        ("b", "11GiB", None, "no gap of 11GiB"),
    ] {
        let error = table
            .create(name, size(bytes), at.map(size), &taken)
            .unwrap_err();
        assert!(error.contains(says), "{name} {bytes} {at:?}: {error}");
    }
    assert_eq!(table, before);
    let whole = Table::new(GIB, vec![]).unwrap();
    let mut full = whole.clone();
    full.create("all", Size(GIB), None, &[]).unwrap();
    let error = full.create("b", size("4KiB"), None, &[]).unwrap_err();
    assert!(error.contains("all of the drive is used"), "{error}");
}

#[test]
fn a_partition_grows_as_far_as_nobody_is_behind_it() {
    let mut table = table(&[("a", "1GiB..2GiB"), ("b", "3GiB..4GiB")]);
    let taken = [other("6GiB..7GiB")];
    let mut grow = |name: &str, bytes: &str| table.grow(name, size(bytes), &taken);
    assert_eq!(grow("a", "1536MiB").unwrap(), range("1GiB..2560MiB"));
    assert_eq!(grow("a", "2GiB").unwrap(), range("1GiB..3GiB"));
    // a repetition is not an error, so an interrupted caller can retry
    assert_eq!(grow("a", "2GiB").unwrap(), range("1GiB..3GiB"));
    for (name, bytes, says) in [
        (
            "a",
            "2097156KiB",
            "at most 2GiB: partition `b` begins at 3GiB",
        ),
        ("b", "4GiB", "at most 3GiB: namespace `n` begins at 6GiB"),
        ("a", "1GiB", "can only grow"),
        ("a", "6145KiB", "a multiple of 4KiB"),
        ("c", "1GiB", "there are a, b"),
    ] {
        let error = grow(name, bytes).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let error = table.grow("b", size("8GiB"), &[]).unwrap_err();
    assert!(error.contains("at most 7GiB: the drive ends at"), "{error}");
    assert_eq!(
        table.grow("b", size("7GiB"), &[]).unwrap(),
        range("3GiB..10GiB")
    );
}

#[test]
fn one_that_is_being_deleted_has_its_place_and_is_of_no_use() {
    let mut table = table(&[("a", "0B..10GiB")]);
    assert_eq!(table.begin_delete("a").unwrap(), range("0B..10GiB"));
    assert!(table.usable("a").unwrap_err().contains("being deleted"));
    assert!(table.grow("a", size("10GiB"), &[]).is_err());
    assert!(table.create("b", size("4KiB"), None, &[]).is_err());
    assert_eq!(table.begin_delete("a").unwrap(), range("0B..10GiB"));
    table.delete("a").unwrap();
    assert!(table.delete("a").unwrap_err().contains("nor any other"));
    assert_eq!(table.gaps(&[]), [range("0B..10GiB")]);
}

#[test]
fn a_table_that_cannot_be_is_refused() {
    let with = |all: &[(&str, &str)]| {
        let partitions = all.iter().map(|(name, at)| Partition {
            name: (*name).to_owned(),
            range: range(at),
            deleting: false,
        });
        Table::new(GIB, partitions.collect()).unwrap_err()
    };
    assert!(with(&[("a", "0B..2GiB")]).contains("beyond the size of 1GiB"));
    assert!(with(&[("a", "4KiB..1MiB")]).contains("not aligned"));
    assert!(with(&[("a", "0B..1025B")]).contains("not aligned"));
    assert!(with(&[("a/b", "0B..1MiB")]).contains("not a partition name"));
    assert!(with(&[("a", "0B..2MiB"), ("b", "1MiB..3MiB")]).contains("overlaps another one"));
    assert!(with(&[("a", "0B..1MiB"), ("a", "1MiB..2MiB")]).contains("listed twice"));
}

/// After any sequence of changes, partitions neither overlap each other nor other users, nor exceed
/// the drive.
#[test]
fn partitions_stay_apart_whatever_is_done() {
    let mut seed = 0x5eed_u64;
    let mut below = move |end: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % end
    };
    let bytes = 64 << 20;
    let taken = [other("5MiB..7MiB"), other("30MiB..31457792B")];
    let mut table = Table::new(bytes, vec![]).unwrap();
    for _ in 0..20_000 {
        let name = format!("p{}", below(8));
        let size = Size(below(3000) * 4096);
        let before = table.find(&name).ok().cloned();
        match below(4) {
            0 => drop(table.create(&name, size, None, &taken)),
            1 => {
                let at = Size(below(64) << 20);
                if let Ok(range) = table.create(&name, size, Some(at), &taken) {
                    assert_eq!(range.start, at);
                }
            }
            2 => {
                if let Ok(range) = table.grow(&name, size, &taken) {
                    assert_eq!(range.start, before.unwrap().range.start);
                    assert_eq!(range.len(), size.0);
                }
            }
            _ => drop(table.delete(&name)),
        }
        let all = table.partitions();
        Table::new(bytes, all.to_vec()).expect("it could be read again");
        let is_free = |p: &Partition| taken.iter().all(|t| !t.range.overlaps(p.range));
        assert!(all.iter().all(is_free));
    }
}
