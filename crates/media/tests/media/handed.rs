//! A file that two servers use in turn.

use std::fs::OpenOptions;

use media::{Direct, FileIo, Medium, MediumError, MediumKind, MediumSpec};

const LEN: u64 = 1 << 20;

fn spec(path: &std::path::Path, migrates: bool) -> MediumSpec {
    MediumSpec {
        kind: MediumKind::File {
            path: path.into(),
            size: Some(LEN),
            direct: Direct::Auto,
            io: FileIo {
                migrates,
                ..FileIo::default()
            },
        },
    }
}

#[test]
fn a_file_has_one_user_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let here = Medium::open(&spec(&path, true)).unwrap();
    assert!(here.is_held() && here.may_migrate());
    let there = Medium::open(&spec(&path, true)).unwrap();
    assert!(!there.is_held());
    assert!(matches!(there.claim(), Err(MediumError::Locked { .. })));
    here.sync().unwrap();
    here.release();
    assert!(!here.is_held());
    there.claim().unwrap();
    assert!(there.is_held());
    assert!(matches!(here.claim(), Err(MediumError::Locked { .. })));
    let other = Medium::open(&spec(&path, false));
    assert!(
        matches!(other, Err(MediumError::Locked { .. })),
        "{other:?}"
    );
    drop(there);
    here.claim().unwrap();
}

#[test]
fn a_file_of_another_length_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let here = Medium::open(&spec(&path, true)).unwrap();
    here.release();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(LEN - 512).unwrap();
    let refused = here.claim().unwrap_err();
    assert!(
        matches!(refused, MediumError::SizeMismatch { .. }),
        "{refused}"
    );
    assert!(!here.is_held());
    file.set_len(LEN).unwrap();
    let other = Medium::open(&spec(&path, false)).expect("the lock was released");
    drop(other);
    here.claim().unwrap();
}
