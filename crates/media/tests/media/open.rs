//! Opening: what is created, what is refused and how it says so, and who is kept out.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use media::{Direct, FileIo, Medium, MediumError, MediumKind, MediumSpec};
use nix::fcntl::{FcntlArg, fcntl};

use crate::common::{file_spec, in_memory, is_open_direct, on_disk, open_file};

const MIB: u64 = 1 << 20;
/// Set in the process that plays the second opener.
const CHILD_OPENS: &str = "MEDIA_TEST_CHILD_OPENS";

fn refusal(path: &Path, size: Option<u64>, direct: Direct) -> MediumError {
    Medium::open(&file_spec(path, size, direct)).expect_err("refused")
}

fn assert_says(error: &MediumError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "'{text}' lacks '{word}'");
    }
}

#[test]
fn a_missing_file_is_created_sparse() {
    let directory = on_disk();
    let path = directory.path().join("new.img");
    let medium = open_file(&path, Some(64 << 30), Direct::Auto);
    assert_eq!((medium.size(), medium.kind()), (64 << 30, "file"));
    let status = std::fs::metadata(&path).expect("created");
    assert_eq!(status.len(), 64 << 30);
    assert!(
        status.blocks() * 512 < MIB,
        "{} blocks are allocated",
        status.blocks()
    );
    assert_eq!(status.mode() & 0o077, 0, "nobody else reads it");
    drop(medium);
    assert_eq!(
        open_file(&path, None, Direct::Auto).size(),
        64 << 30,
        "found again without a size"
    );
}

#[test]
fn without_a_size_nothing_is_created() {
    let directory = on_disk();
    let path = directory.path().join("none.img");
    let error = refusal(&path, None, Direct::Auto);
    assert!(matches!(error, MediumError::Missing { .. }));
    assert_says(&error, &["none.img", "size"]);
    assert!(!path.exists());
}

#[test]
fn another_size_is_an_error_that_names_both() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    File::create(&path)
        .and_then(|file| file.set_len(2 * MIB))
        .expect("made");
    for configured in [MIB, 4 * MIB] {
        let error = refusal(&path, Some(configured), Direct::Auto);
        assert!(matches!(error, MediumError::SizeMismatch { .. }));
        assert_says(
            &error,
            &[
                "2 MiB",
                if configured == MIB { "1 MiB" } else { "4 MiB" },
                "disk.img",
            ],
        );
    }
    assert_eq!(
        std::fs::metadata(&path).expect("still there").len(),
        2 * MIB
    );
    open_file(&path, Some(2 * MIB), Direct::Auto);
}

#[test]
fn sizes_that_are_no_sectors_say_what_to_do() {
    let directory = on_disk();
    let path = directory.path().join("odd.img");
    for size in [0, 1, 511, 513, MIB + 1] {
        let kinds = [
            MediumKind::Null { size },
            MediumKind::Ram { size },
            MediumKind::File {
                path: path.clone(),
                size: Some(size),
                direct: Direct::Auto,
                io: FileIo::default(),
            },
        ];
        for kind in kinds {
            let error = Medium::open(&MediumSpec { kind }).expect_err("refused");
            assert!(matches!(error, MediumError::Size { .. }));
            assert_says(&error, &["512"]);
        }
    }
    assert!(!path.exists(), "nothing is made of a wrong size");
    for len in [0, 1000] {
        File::create(&path)
            .and_then(|file| file.set_len(len))
            .expect("made");
        let error = refusal(&path, None, Direct::Auto);
        assert!(matches!(error, MediumError::FileSize { .. }));
        assert_says(&error, &["odd.img", "give a size"]);
    }
}

#[test]
fn an_impossible_size_is_an_error_and_leaves_nothing() {
    let directory = on_disk();
    let path = directory.path().join("huge.img");
    let error = refusal(&path, Some(1 << 62), Direct::Auto);
    assert_says(&error, &["huge.img"]);
    assert!(!path.exists());
    let ram = MediumSpec {
        kind: MediumKind::Ram { size: 1 << 62 },
    };
    let error = Medium::open(&ram).expect_err("refused");
    assert_says(&error, &["memory", "smaller"]);
}

#[test]
fn what_holds_no_blocks_is_named() {
    let directory = on_disk();
    for (path, what) in [
        (directory.path().to_path_buf(), "a directory"),
        ("/dev/null".into(), "a character device"),
        (directory.path().join("pipe"), "a pipe"),
    ] {
        if what == "a pipe" {
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        }
        let error = refusal(&path, None, Direct::Auto);
        assert!(matches!(error, MediumError::NotAFile { .. }));
        assert_says(&error, &[what, "block device"]);
    }
    let dangling = directory.path().join("link");
    std::os::unix::fs::symlink("nowhere", &dangling).expect("a link");
    assert_says(
        &refusal(&dangling, Some(MIB), Direct::Auto),
        &["cannot create", "link"],
    );
    let error = refusal(
        &directory.path().join("no/such/place"),
        Some(MIB),
        Direct::Auto,
    );
    assert_says(&error, &["cannot create", "no/such/place"]);
}

#[test]
fn a_second_opener_in_this_process_is_locked_out() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(MIB), Direct::Auto);
    let error = refusal(&path, Some(MIB), Direct::Auto);
    assert!(matches!(error, MediumError::Locked { .. }));
    assert_says(&error, &["disk.img", "in use"]);
    // A channel keeps the file, and with it the lock.
    let channel = medium.channel(4).expect("a channel");
    drop(medium);
    assert!(matches!(
        refusal(&path, None, Direct::Auto),
        MediumError::Locked { .. }
    ));
    drop(channel);
    open_file(&path, None, Direct::Auto);
}

#[test]
fn a_second_opener_in_another_process_is_locked_out() {
    if let Some(path) = std::env::var_os(CHILD_OPENS) {
        let answer = match Medium::open(&file_spec(Path::new(&path), None, Direct::Auto)) {
            Ok(_) => "opened".to_owned(),
            Err(error) => error.to_string(),
        };
        std::fs::write(Path::new(&path).with_extension("answer"), answer).expect("answered");
        return;
    }
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let ask_child = || {
        let run = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "open::a_second_opener_in_another_process_is_locked_out",
            ])
            .env(CHILD_OPENS, &path)
            .output()
            .expect("the child runs");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        std::fs::read_to_string(path.with_extension("answer")).expect("an answer")
    };
    let medium = open_file(&path, Some(MIB), Direct::Auto);
    let answer = ask_child();
    assert!(
        answer.contains("in use") && answer.contains("disk.img"),
        "{answer}"
    );
    drop(medium);
    assert_eq!(ask_child(), "opened");
}

fn lock(kind: i32, start: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    }
}

/// QEMU (block/file-posix.c) takes read locks on single bytes from 100 and 200 on, of the kind
/// that belongs to an open file, and asks whether anybody has locks there that conflict.
#[test]
fn images_in_use_by_qemu_are_refused_and_ours_by_qemu() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    File::create(&path)
        .and_then(|file| file.set_len(MIB))
        .expect("made");
    let qemu = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("opened");
    for byte in [100, 201] {
        fcntl(&qemu, FcntlArg::F_OFD_SETLK(&lock(libc::F_RDLCK, byte))).expect("locked");
        assert!(matches!(
            refusal(&path, None, Direct::Auto),
            MediumError::Locked { .. }
        ));
        fcntl(&qemu, FcntlArg::F_OFD_SETLK(&lock(libc::F_UNLCK, byte))).expect("unlocked");
    }
    let medium = open_file(&path, None, Direct::Auto);
    for byte in [100, 201] {
        let refused = fcntl(&qemu, FcntlArg::F_OFD_SETLK(&lock(libc::F_RDLCK, byte)));
        assert_eq!(refused, Err(nix::Error::EAGAIN));
    }
    drop(medium);
    fcntl(&qemu, FcntlArg::F_OFD_SETLK(&lock(libc::F_RDLCK, 100))).expect("free again");
}

/// A lock that belongs to a process has a process to name.
#[test]
fn the_holder_is_named_where_the_kernel_knows_it() {
    if let Some(path) = std::env::var_os(CHILD_OPENS) {
        // The child: lock, say so, and hold on until the parent has looked.
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        fcntl(&file, FcntlArg::F_SETLK(&lock(libc::F_WRLCK, 0))).expect("locked");
        let path = Path::new(&path);
        std::fs::write(path.with_extension("ready"), "").expect("said so");
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the parent's end");
        return;
    }
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    File::create(&path)
        .and_then(|file| file.set_len(MIB))
        .expect("made");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "open::the_holder_is_named_where_the_kernel_knows_it",
        ])
        .env(CHILD_OPENS, &path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the child runs");
    for tries in 0.. {
        assert!(tries < 20_000, "the child does not lock");
        if path.with_extension("ready").exists() {
            break;
        }
        let _ = rustix::thread::nanosleep(&rustix::thread::Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        });
    }
    let error = refusal(&path, None, Direct::Auto);
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
    assert!(
        matches!(error, MediumError::Locked { pid: Some(pid), .. } if pid == child.id()),
        "{error}"
    );
    assert_says(&error, &[&child.id().to_string()]);
}

#[test]
fn direct_io_is_used_where_it_works_and_said() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let insisted = Medium::open(&file_spec(&path, Some(MIB), Direct::On));
    let works = match &insisted {
        Ok(medium) => {
            assert!(medium.describe().contains("O_DIRECT") && is_open_direct(&path));
            medium.min_lba_bytes() == 512
        }
        Err(error) => {
            assert!(matches!(error, MediumError::DirectRefused { .. }));
            assert_says(error, &["auto", "off", "disk.img"]);
            false
        }
    };
    drop(insisted);
    let medium = open_file(&path, Some(MIB), Direct::Auto);
    assert_eq!(is_open_direct(&path), works, "{}", medium.describe());
    assert_eq!(
        medium.describe().contains("buffered I/O: "),
        !works,
        "{}",
        medium.describe()
    );
    assert_eq!(medium.min_lba_bytes(), 512, "auto serves every LBA size");
    drop(medium);
    let medium = open_file(&path, Some(MIB), Direct::Off);
    assert!(
        !is_open_direct(&path) && medium.describe().contains("buffered"),
        "{}",
        medium.describe()
    );
}

#[test]
fn a_file_in_memory_opens_either_way() {
    let directory = in_memory();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(MIB), Direct::Auto);
    assert_eq!(
        is_open_direct(&path),
        medium.describe().contains("O_DIRECT")
    );
}

#[test]
fn kinds_say_what_they_are() {
    let null = Medium::open(&MediumSpec {
        kind: MediumKind::Null { size: 1 << 30 },
    })
    .expect("opened");
    let ram = Medium::open(&MediumSpec {
        kind: MediumKind::Ram { size: MIB },
    })
    .expect("opened");
    assert_eq!(
        (null.kind(), null.size(), ram.kind(), ram.size()),
        ("null", 1 << 30, "ram", MIB)
    );
    assert!(null.describe().contains("1 GiB") && ram.describe().contains("1 MiB"));
    assert!(!null.traits().deallocated_reads_zero && ram.traits().deallocated_reads_zero);
    assert!(!null.traits().volatile_cache && !ram.traits().volatile_cache);
    assert!(null.sync().is_ok() && ram.sync().is_ok());
    let directory = on_disk();
    let file = open_file(&directory.path().join("disk.img"), Some(MIB), Direct::Auto);
    assert!(file.traits().volatile_cache && file.traits().deallocated_reads_zero);
    assert!(file.traits().optimal_bytes.is_power_of_two());
}

#[test]
fn polled_completions_are_refused_where_nothing_can_be_polled() {
    let refusal = |directory: &tempfile::TempDir, direct| {
        let mut spec = file_spec(&directory.path().join("disk.img"), Some(MIB), direct);
        let MediumKind::File { io, .. } = &mut spec.kind else {
            unreachable!()
        };
        io.poll_completions = true;
        let error = Medium::open(&spec).expect_err("refused");
        assert!(
            matches!(error, MediumError::PollRefused { .. }),
            "{error:?}"
        );
        error
    };
    let error = refusal(&in_memory(), Direct::Auto);
    assert_says(&error, &["disk.img", "in memory", "poll_completions"]);
    let error = refusal(&on_disk(), Direct::Off);
    assert_says(&error, &["direct I/O"]);
}
