//! Merges of configurations and sidecars, with handwritten expectations.

use api::config::MediumKind;
use port::{ChannelId, MediumTraits};

use super::*;

/// The merge after a plan that ended.
fn merge(wanted: &Wanted, media: &[OpenMedium], kept: Option<&Sidecar>) -> anyhow::Result<Merged> {
    super::merge(wanted, media, kept, &Unfinished::default())
}

const MIB: u64 = 1 << 20;

fn medium(name: &str, bytes: u64) -> OpenMedium {
    OpenMedium {
        pool: Pool {
            medium: name.to_owned(),
            channel: ChannelId(0),
            bytes,
            traits: MediumTraits::default(),
            set: None,
            min_lba_bytes: 512,
            max_lba_bytes: 4096,
        },
        basis: MediumBasis {
            name: name.to_owned(),
            kind: MediumKind::File,
            path: Some(format!("/media/{name}.img").into()),
        },
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A namespace of the configuration on `disk`, in MiB.
fn namespace(name: &str, start: u64, end: u64, controllers: &[&str]) -> WantedNamespace {
    WantedNamespace {
        namespace: NamespaceRecord {
            name: Some(name.to_owned()),
            medium: "disk".to_owned(),
            start: start * MIB,
            len: (end - start) * MIB,
            blocks: (end - start) * MIB / 4096,
            lba_size: 4096,
            nguid: [7; 16],
            eui64: [9; 8],
            shared: true,
            ..NamespaceRecord::default()
        },
        is_partition: false,
        range: Some(Range {
            start: Size(start * MIB),
            end: Size(end * MIB),
        }),
        controllers: names(controllers),
        ana_group: 3,
    }
}

/// Two controllers and two namespaces, all attached.
fn wanted() -> Wanted {
    Wanted {
        controllers: names(&["a", "b"]),
        namespaces: vec![
            namespace("root", 0, 4, &["a", "b"]),
            namespace("home", 4, 8, &["a", "b"]),
        ],
        spare: Vec::new(),
        namespace_limit: 32,
    }
}

fn media() -> Vec<OpenMedium> {
    vec![medium("disk", 16 * MIB)]
}

/// The sidecar of a subsystem that was served as `wanted` and then changed.
fn kept(wanted: &Wanted, change: impl FnOnce(&mut Record)) -> Sidecar {
    let basis = Basis {
        media: media().into_iter().map(|m| m.basis).collect(),
        namespaces: wanted
            .namespaces
            .iter()
            .map(|n| NamespaceBasis {
                name: n.name().to_owned(),
                range: n.range,
                controllers: n.controllers.clone(),
            })
            .collect(),
    };
    let mut record = Record {
        namespaces: (1..)
            .zip(&wanted.namespaces)
            .map(|(nsid, n)| NamespaceRecord {
                nsid,
                attached: vec![ControllerId(1), ControllerId(2)],
                ..n.namespace.clone()
            })
            .collect(),
        controllers: vec![
            ControllerRecord::new("a", ControllerId(1)),
            ControllerRecord::new("b", ControllerId(2)),
        ],
        ..Record::default()
    };
    change(&mut record);
    Sidecar::new("pair".to_owned(), basis, record, None)
}

fn made_by_host(nsid: u32, start: u64, end: u64) -> NamespaceRecord {
    NamespaceRecord {
        nsid,
        name: None,
        attached: vec![ControllerId(2)],
        lba_size: 512,
        blocks: (end - start) * MIB / 512,
        ..namespace("", start, end, &[]).namespace
    }
}

/// Checked values: identifier, name, first MiB, length in MiB, block size, attached controllers.
type Row<'a> = (u32, Option<&'a str>, u64, u64, u32, Vec<u16>);

fn rows(merged: &Merged) -> Vec<Row<'_>> {
    let row = |n: &'_ Allocated| {
        let attached = n.attached.iter().map(|id| id.0).collect();
        let lba_size = 1 << n.namespace.lba_shift;
        (n.namespace.start / MIB, n.len / MIB, lba_size, attached)
    };
    let rows = merged.namespaces.iter().map(|n| {
        let (start, len, lba_size, attached) = row(n);
        (n.nsid(), n.name.as_deref(), start, len, lba_size, attached)
    });
    rows.collect()
}

fn error(wanted: &Wanted, media: &[OpenMedium], kept: &Sidecar) -> String {
    let error = merge(wanted, media, Some(kept)).unwrap_err();
    format!("{error:#}")
}

#[test]
fn without_a_record_the_configuration_counts_in_the_order_of_mention() {
    let merged = merge(&wanted(), &media(), None).unwrap();
    let expected = [
        (1, Some("root"), 0, 4, 4096, vec![1, 2]),
        (2, Some("home"), 4, 4, 4096, vec![1, 2]),
    ];
    assert_eq!(rows(&merged), expected);
    let ids: Vec<_> = merged
        .controllers
        .iter()
        .map(|c| (c.name.as_str(), c.id.0))
        .collect();
    assert_eq!(ids, [("a", 1), ("b", 2)]);
    assert!(merged.notes.is_empty() && merged.losses.is_empty());
    assert!(merged.created == 0 && merged.deleted.is_empty());
}

#[test]
fn what_a_host_changed_wins() {
    let kept = kept(&wanted(), |record| {
        let root = &mut record.namespaces[0];
        (root.lba_size, root.blocks) = (512, 4 * MIB / 512);
        root.attached = vec![ControllerId(2)];
        root.uncorrectable = vec![(5, 2)];
        let home = &mut record.namespaces[1];
        // an operator has enlarged it
        (home.len, home.blocks) = (6 * MIB, 6 * MIB / 4096);
        record.namespaces.push(made_by_host(7, 12, 14));
        record.created = 3;
    });
    let merged = merge(&wanted(), &media(), Some(&kept)).unwrap();
    // No record has ANA groups: the configuration says them, and hosts cannot.
    let groups = merged.namespaces.iter().map(|n| n.ana_group);
    assert!(groups.eq([3, 3, 1]));
    let expected = [
        (1, Some("root"), 0, 4, 512, vec![2]),
        (2, Some("home"), 4, 6, 4096, vec![1, 2]),
        (7, None, 12, 2, 512, vec![2]),
    ];
    assert_eq!(rows(&merged), expected);
    assert_eq!(merged.created, 3);
    assert!(merged.namespaces[0].uncorrectable.overlaps(6, 1));
    assert_eq!(merged.notes.len(), 1, "{:?}", merged.notes);
    assert!(merged.notes[0].contains("has blocks of 512 bytes"));
}

#[test]
fn where_no_namespace_was_changed_the_configuration_may_be_edited() {
    let mut kept = kept(&wanted(), |record| record.namespaces.clear());
    kept.configuration = None;
    let mut edited = wanted();
    edited.namespaces = vec![namespace("root", 2, 3, &["b"])];
    edited.controllers = names(&["b", "c"]);
    let merged = merge(&edited, &[medium("disk", 3 * MIB)], Some(&kept)).unwrap();
    assert_eq!(rows(&merged), [(1, Some("root"), 2, 1, 4096, vec![2])]);
    let ids: Vec<_> = merged
        .controllers
        .iter()
        .map(|c| (c.name.as_str(), c.id.0))
        .collect();
    assert_eq!(ids, [("a", 1), ("b", 2), ("c", 3)]);
}

#[test]
fn what_was_deleted_stays_deleted_and_its_identifier_is_free() {
    let kept = kept(&wanted(), |record| {
        record.namespaces.remove(0);
        record.deleted = names(&["root", "gone"]);
    });
    let merged = merge(&wanted(), &media(), Some(&kept)).unwrap();
    assert_eq!(rows(&merged), [(2, Some("home"), 4, 4, 4096, vec![1, 2])]);
    // a namespace that left the configuration is forgotten
    assert_eq!(merged.deleted, ["root"]);
    let mut more = wanted();
    more.namespaces.insert(0, namespace("new", 8, 10, &["a"]));
    let merged = merge(&more, &media(), Some(&kept)).unwrap();
    assert_eq!(rows(&merged)[0], (1, Some("new"), 8, 2, 4096, vec![1]));
}

#[test]
fn identifiers_stay_when_the_configuration_changes_its_order() {
    let kept = kept(&wanted(), |_| {});
    let mut turned = wanted();
    turned.namespaces.reverse();
    turned.controllers.reverse();
    turned.controllers.insert(0, "new".to_owned());
    let merged = merge(&turned, &media(), Some(&kept)).unwrap();
    let nsids: Vec<_> = rows(&merged)
        .into_iter()
        .map(|row| (row.0, row.1))
        .collect();
    assert_eq!(nsids, [(1, Some("root")), (2, Some("home"))]);
    let ids: Vec<_> = merged
        .controllers
        .iter()
        .map(|c| (c.name.as_str(), c.id.0))
        .collect();
    assert_eq!(ids, [("a", 1), ("b", 2), ("new", 3)]);
}

#[test]
fn lists_of_namespaces_that_were_edited_take_effect_and_others_do_not() {
    let kept = kept(&wanted(), |record| {
        // a host has detached root from both
        record.namespaces[0].attached.clear();
    });
    let mut edited = wanted();
    edited.controllers.push("c".to_owned());
    edited.namespaces[0].controllers = names(&["a", "b", "c"]);
    edited.namespaces[1].controllers = names(&["b"]);
    let merged = merge(&edited, &media(), Some(&kept)).unwrap();
    let attached: Vec<_> = rows(&merged).into_iter().map(|row| row.5).collect();
    assert_eq!(attached, [vec![3], vec![2]]);
}

#[test]
fn a_namespace_that_was_attached_while_it_was_served_comes_back() {
    let mut later = wanted();
    later.spare.push(namespace("extra", 8, 10, &[]));
    let kept = kept(&wanted(), |record| {
        record.namespaces.push(NamespaceRecord {
            nsid: 3,
            attached: vec![ControllerId(1)],
            ..namespace("extra", 8, 10, &[]).namespace
        });
    });
    let merged = merge(&later, &media(), Some(&kept)).unwrap();
    assert_eq!(rows(&merged)[2], (3, Some("extra"), 8, 2, 4096, vec![1]));
    // without it in the configuration, it does not come back
    let merged = merge(&wanted(), &media(), Some(&kept)).unwrap();
    assert_eq!(merged.namespaces.len(), 2);
    assert!(
        merged.losses[0].contains("namespace extra"),
        "{:?}",
        merged.losses
    );
    // a namespace that was never attached is in no subsystem
    let merged = merge(&later, &media(), None).unwrap();
    assert_eq!(merged.namespaces.len(), 2);
}

#[test]
fn another_range_is_an_error_that_names_both() {
    let as_it_was = kept(&wanted(), |_| {});
    let mut moved = wanted();
    moved.namespaces[0] = namespace("root", 0, 3, &["a", "b"]);
    let message = error(&moved, &media(), &as_it_was);
    assert!(message.contains("namespace root"), "{message}");
    assert!(
        message.contains("\"0B..3MiB\"") && message.contains("\"0B..4MiB\""),
        "{message}"
    );
    let mut whole = wanted();
    whole.namespaces = vec![namespace("root", 0, 16, &["a", "b"])];
    whole.namespaces[0].range = None;
    let message = error(&whole, &media(), &as_it_was);
    assert!(
        message.contains("no range") && message.contains("0B..4MiB"),
        "{message}"
    );
    // an operator may write the result of a `resize` into the configuration
    let resized = kept(&wanted(), |record| {
        let root = &mut record.namespaces[0];
        (root.len, root.blocks) = (3 * MIB, 3 * MIB / 4096);
    });
    merge(&moved, &media(), Some(&resized)).unwrap();
    merge(&wanted(), &media(), Some(&resized)).unwrap();
}

#[test]
fn another_medium_is_an_error_that_names_both() {
    let as_it_was = kept(&wanted(), |_| {});
    let mut moved = wanted();
    moved.namespaces[0].namespace.medium = "tape".to_owned();
    let both = [media(), vec![medium("tape", 16 * MIB)]].concat();
    let message = error(&moved, &both, &as_it_was);
    assert!(
        message.contains("medium tape") && message.contains("medium disk"),
        "{message}"
    );
    // the same name, another file
    let mut other = media();
    other[0].basis.path = Some("/elsewhere.img".into());
    let message = error(&wanted(), &other, &as_it_was);
    assert!(
        message.contains("file /elsewhere.img, but was file /media/disk.img"),
        "{message}"
    );
    let mut other = media();
    (other[0].basis.path, other[0].basis.kind) = (None, MediumKind::Ram);
    let message = error(&wanted(), &other, &as_it_was);
    assert!(
        message.contains("medium disk is ram, but was file"),
        "{message}"
    );
}

#[test]
fn a_medium_that_shrank_or_is_gone_is_an_error() {
    let as_it_was = kept(&wanted(), |record| {
        record.namespaces.push(made_by_host(3, 12, 14));
    });
    let small = vec![medium("disk", 13 * MIB)];
    let message = error(&wanted(), &small, &as_it_was);
    assert!(
        message.contains("namespace 3, created by a host"),
        "{message}"
    );
    assert!(message.contains("has only 13631488"), "{message}");
    let elsewhere = kept(&wanted(), |record| {
        let mut lost = made_by_host(3, 0, 1);
        lost.medium = "lost".to_owned();
        record.namespaces.push(lost);
    });
    let message = error(&wanted(), &media(), &elsewhere);
    assert!(
        message.contains("medium lost is not in the configuration"),
        "{message}"
    );
}

#[test]
fn a_new_namespace_where_a_host_has_made_one_is_an_error() {
    let kept = kept(&wanted(), |record| {
        record.namespaces.push(made_by_host(3, 12, 14));
    });
    let mut more = wanted();
    more.namespaces.push(namespace("new", 13, 16, &["a"]));
    let message = error(&more, &media(), &kept);
    assert!(
        message.contains("namespace 3, created by a host, and namespace new"),
        "{message}"
    );
    more.namespaces[2] = namespace("new", 14, 16, &["a"]);
    let merged = merge(&more, &media(), Some(&kept)).unwrap();
    assert_eq!(rows(&merged)[3], (4, Some("new"), 14, 2, 4096, vec![1]));
}

#[test]
fn records_that_cannot_be_are_errors() {
    type Change = fn(&mut Record);
    let cases: [(Change, &str); 8] = [
        (|r| r.namespaces[1].nsid = 1, "is invalid or already used"),
        (|r| r.namespaces[1].nsid = 0, "is invalid or already used"),
        (|r| r.namespaces[1].nsid = 33, "is invalid or already used"),
        (|r| r.namespaces[0].lba_size = 0, "only 512 and 4096"),
        (|r| r.namespaces[0].blocks = u64::MAX, "do not fit"),
        (
            |r| r.controllers[1].id = ControllerId(1),
            "is invalid or already used",
        ),
        (
            |r| r.controllers[1].id = ControllerId(0),
            "is invalid or already used",
        ),
        (
            |r| r.controllers[1].name = "a".to_owned(),
            "is invalid or already used",
        ),
    ];
    for (change, says) in cases {
        let message = error(&wanted(), &media(), &kept(&wanted(), change));
        assert!(message.contains(says), "{says}: {message}");
    }
}

#[test]
fn there_is_a_last_identifier() {
    let mut many = wanted();
    many.namespace_limit = 1;
    let message = format!("{:#}", merge(&many, &media(), None).unwrap_err());
    assert!(
        message.contains("no identifier left for namespace home"),
        "{message}"
    );
    let mut crowd = wanted();
    crowd.controllers = (0..64).map(|n| format!("c{n}")).collect();
    let message = format!("{:#}", merge(&crowd, &media(), None).unwrap_err());
    assert!(
        message.contains("no identifier left for controller c63"),
        "{message}"
    );
}

/// A partition has grown while its namespace, which a host had formatted, was not served.
#[test]
fn a_partition_that_has_grown_has_its_size_whatever_is_kept() {
    let mut wanted = wanted();
    wanted.namespaces[1].is_partition = true;
    let kept = kept(&wanted, |record| {
        record.namespaces[1].lba_size = 512;
        record.namespaces[1].blocks = 4 * MIB / 512;
    });
    let grown = WantedNamespace {
        is_partition: true,
        ..namespace("home", 4, 12, &["a", "b"])
    };
    wanted.namespaces[1] = grown.clone();
    let merged = merge(&wanted, &media(), Some(&kept)).unwrap();
    let home = (2, Some("home"), 4, 8, 512, vec![1, 2]);
    assert_eq!(rows(&merged)[1], home);
    assert_eq!(merged.namespaces[1].namespace.blocks, 8 * MIB / 512);
    // A partition elsewhere is not the one that was saved.
    wanted.namespaces[1] = WantedNamespace {
        is_partition: true,
        ..namespace("home", 8, 12, &["a", "b"])
    };
    assert!(error(&wanted, &media(), &kept).contains("home"));
    // A changed range remains an error.
    wanted.namespaces[1] = WantedNamespace {
        is_partition: false,
        ..grown
    };
    assert!(error(&wanted, &media(), &kept).contains("nvmirage resize"));
}

#[test]
fn answers_of_commands_in_flight_are_there_again() {
    let answer = KeptAnswer {
        controller: ControllerId(1),
        name: u64::MAX - 7,
        dw0: 3,
    };
    let wanted = wanted();
    let kept = kept(&wanted, |record| record.answers = vec![answer]);
    let text = serde_json::to_string(&kept).unwrap();
    let read: Sidecar = serde_json::from_str(&text).unwrap();
    let merged = merge(&wanted, &media(), Some(&read)).unwrap();
    assert_eq!(merged.answers, [answer]);
}
