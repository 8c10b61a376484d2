use super::*;

fn owner(serial: &str) -> Owner {
    Owner::Drive {
        serial: serial.to_owned(),
        model: "a model".to_owned(),
        nsid: 1,
        volume: None,
    }
}

const BYTES: u64 = 1 << 30;

fn open(dir: &Path, serial: &str) -> anyhow::Result<Store> {
    Store::open(dir, owner(serial), BYTES)
}

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

fn make(store: &mut Store, name: &str) -> Result<(), Refusal> {
    let made = store.change(|table| table.create(name, size("1MiB"), None, &[]));
    made.map(drop)
}

fn names(store: &Store) -> Vec<&str> {
    let partitions = store.table().partitions().iter();
    partitions.map(|p| p.name.as_str()).collect()
}

#[test]
fn what_was_changed_is_there_at_the_next_start_and_of_that_drive_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), "S/1").unwrap();
    make(&mut store, "a").unwrap();
    make(&mut store, "b").unwrap();
    store.change(|table| table.delete("a")).unwrap();
    drop(store);
    assert_eq!(names(&open(dir.path(), "S/1").unwrap()), ["b"]);
    assert_eq!(names(&open(dir.path(), "S_1").unwrap()), [""; 0]);
    let stored = stored(dir.path()).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].0, owner("S/1"));
    assert_eq!(stored[0].1.bytes(), BYTES);
}

#[test]
fn who_only_looks_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), "S1").unwrap();
    let refused = store.change(|table| table.delete("a")).unwrap_err();
    assert!(refused.detail.contains("no partition `a`"));
    drop(open(dir.path(), "S2").unwrap());
    assert_eq!(stored(dir.path()).unwrap(), []);
}

#[test]
fn two_do_not_have_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (
        open(dir.path(), "S1").unwrap(),
        open(dir.path(), "S1").unwrap(),
    );
    make(&mut one, "a").unwrap();
    let refused = make(&mut two, "b").unwrap_err();
    assert!(refused.detail.contains("another process"), "{refused}");
    let error = open(dir.path(), "S1").unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(one);
    // It started without a table, and reads the other one's partition before it creates its own.
    make(&mut two, "b").unwrap();
    assert_eq!(names(&two), ["a", "b"]);
    let starts: Vec<u64> = two
        .table()
        .partitions()
        .iter()
        .map(|p| p.range.start.0)
        .collect();
    assert_eq!(starts, [0, 1 << 20]);
}

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), "S1").unwrap();
    make(&mut store, "a").unwrap();
    let path = store.path();
    drop(store);
    let good = std::fs::read_to_string(&path).unwrap();
    for (from, to, says) in [
        ("\"format\": 1", "\"format\": 2", "this version reads 1"),
        ("\"S1\"", "\"S2\"", "it is that of"),
        ("\"partitions\"", "\"partition\"", "unknown field"),
        ("0B..1MiB", "0B..2GiB", "beyond the size of 1GiB"),
        ("}", "", "expected"),
    ] {
        assert!(good.contains(from), "{good}");
        std::fs::write(&path, good.replace(from, to)).unwrap();
        let error = open(dir.path(), "S1").unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(says), "{from}: {error}");
        assert!(error.contains("restore it, or remove it"), "{error}");
    }
    std::fs::write(&path, &good).unwrap();
    // The drive has become smaller.
    let error = Store::open(dir.path(), owner("S1"), 4096).unwrap_err();
    assert!(
        format!("{error:#}").contains("beyond the size of 4KiB"),
        "{error:#}"
    );
}
