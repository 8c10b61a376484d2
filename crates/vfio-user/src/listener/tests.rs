use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::{fs, thread};

use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm1.sock");
    (folder, path)
}

fn names(folder: &TempDir) -> Vec<OsString> {
    let entries = fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_host_is_accepted_and_nobody_is_waited_for() {
    let (_folder, path) = folder();
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(listener.path(), path);
    assert!(listener.accept().unwrap().is_none());
    let mut host = UnixStream::connect(&path).unwrap();
    let accepted = listener.accept().unwrap().unwrap();
    host.write_all(b"x").unwrap();
    let flags = rustix::fs::fcntl_getfl(&accepted).unwrap();
    assert!(flags.contains(OFlags::NONBLOCK));
    assert!(listener.accept().unwrap().is_none());
}

#[test]
fn the_file_is_for_its_owner_only() {
    let (_folder, path) = folder();
    let listener = Listener::bind(&path).unwrap();
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    listener.open_to(0o660).unwrap();
    let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn a_socket_in_use_is_refused_by_name_and_goes_on() {
    let (_folder, path) = folder();
    let first = Listener::bind(&path).unwrap();
    let error = Listener::bind(&path).unwrap_err();
    assert!(matches!(&error, BindError::InUse { path: named } if *named == path));
    assert!(error.to_string().contains("vm1.sock"), "{error}");
    UnixStream::connect(&path).unwrap();
    assert!(first.accept().unwrap().is_some());
}

#[test]
fn a_server_that_knows_no_lock_is_not_replaced() {
    let (_folder, path) = folder();
    let other = UnixListener::bind(&path).unwrap();
    let inode = fs::symlink_metadata(&path).unwrap().ino();
    assert!(matches!(
        Listener::bind(&path),
        Err(BindError::InUse { .. })
    ));
    assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), inode);
    drop(other);
}

#[test]
fn a_stale_socket_is_replaced() {
    let (_folder, path) = folder();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the standard library leaves the file");
    let listener = Listener::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    assert!(listener.accept().unwrap().is_some());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let (folder, path) = folder();
    fs::write(&path, "precious").unwrap();
    let error = Listener::bind(&path).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    // A link to a socket that is stale is no socket either.
    let stale = folder.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let link = folder.path().join("link");
    symlink(&stale, &link).unwrap();
    let error = Listener::bind(&link).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert!(stale.exists());
}

#[test]
fn a_missing_folder_is_named() {
    let (folder, _) = folder();
    let path = folder.path().join("missing/vm1.sock");
    let error = Listener::bind(&path).unwrap_err();
    let parent = folder.path().join("missing");
    assert!(
        error.to_string().contains(parent.to_str().unwrap()),
        "{error}"
    );
    assert!(matches!(error, BindError::NoParent { .. }));
}

#[test]
fn a_path_that_is_no_path_of_a_socket_is_refused() {
    let (folder, _) = folder();
    let long = folder.path().join("s".repeat(MAX_PATH_LEN));
    assert!(matches!(
        Listener::bind(&long),
        Err(BindError::TooLong { .. })
    ));
    for path in ["", "..", "/", "a\0b"] {
        let error = Listener::bind(Path::new(path)).unwrap_err();
        assert!(
            matches!(error, BindError::NoName { .. }),
            "{path:?}: {error}"
        );
    }
    assert!(names(&folder).is_empty());
}

#[test]
fn a_path_of_the_greatest_length_works() {
    let (folder, _) = folder();
    let room = MAX_PATH_LEN - folder.path().as_os_str().len() - 1;
    let path = folder.path().join("s".repeat(room));
    let _listener = Listener::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn nothing_is_left_behind() {
    let (folder, path) = folder();
    drop(Listener::bind(&path).unwrap());
    assert!(names(&folder).is_empty(), "{:?}", names(&folder));
    drop(Listener::bind(&path).unwrap());
}

#[test]
fn only_its_own_file_is_removed() {
    let (_folder, path) = folder();
    let listener = Listener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(listener);
    UnixStream::connect(&path).unwrap();
    drop(other);
}

#[test]
fn of_many_that_bind_at_once_one_gets_the_path() {
    const BINDERS: usize = 8;
    let (_folder, path) = folder();
    for _ in 0..50 {
        // Stale, so that each of them wants to replace it.
        let _ = fs::remove_file(&path);
        drop(UnixListener::bind(&path).unwrap());
        let start = Arc::new(Barrier::new(BINDERS));
        let binders: Vec<_> = (0..BINDERS)
            .map(|_| {
                let (path, start) = (path.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    let bound = Listener::bind(&path);
                    // No thread releases the path before all have tried.
                    start.wait();
                    bound
                })
            })
            .collect();
        let bound: Vec<_> = binders
            .into_iter()
            .map(|binder| binder.join().unwrap())
            .collect();
        let mut winners = bound.iter().flatten();
        let winner = winners.next().expect("one of them gets it");
        assert!(winners.next().is_none(), "two listen at one path");
        for lost in bound.iter().filter_map(|bound| bound.as_ref().err()) {
            assert!(matches!(lost, BindError::InUse { .. }), "{lost}");
        }
        UnixStream::connect(&path).unwrap();
        assert!(winner.accept().unwrap().is_some());
    }
}

#[test]
fn binding_while_others_let_go_never_gives_the_path_to_two() {
    const BINDERS: usize = 4;
    let (_folder, path) = folder();
    let owners = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(BINDERS));
    let binders: Vec<_> = (0..BINDERS)
        .map(|_| {
            let (path, owners, start) = (path.clone(), owners.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                for _ in 0..2000 {
                    match Listener::bind(&path) {
                        Ok(listener) => {
                            assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                            assert_eq!(identity_at(&path), Ok(listener.identity));
                            owners.fetch_sub(1, Ordering::SeqCst);
                        }
                        Err(error) => assert!(matches!(error, BindError::InUse { .. }), "{error}"),
                    }
                }
            })
        })
        .collect();
    for binder in binders {
        binder.join().unwrap();
    }
    Listener::bind(&path).unwrap();
}
