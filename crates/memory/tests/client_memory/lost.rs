//! Memory that is taken away while we use it.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memory::{
    Access, ClientMappings, DmaMap, DmaView, DoorbellPages, Hint, Iova, Need, Segment, SqRing,
};

use crate::client::{Client, PAGE, mappings_of};

/// A session that has mapped all of a client's file at address 0.
fn session(client: &Client, len: u64) -> (ClientMappings, Arc<DmaView>) {
    let mut mappings = ClientMappings::new();
    let mapping = mappings.map(client.fd()).unwrap();
    let mut map = DmaMap::new(1);
    map.map(Iova(0), len, Access::READ_WRITE, Some((mapping, 0)))
        .unwrap();
    (mappings, map.view())
}

fn segment(view: &DmaView, at: u64, len: u32) -> Segment<'_> {
    let mut hint = Hint::default();
    view.translate(&mut hint, Iova(at), len, Need::DeviceWrites)
        .unwrap()
}

#[test]
fn memory_that_shrinks_reads_as_zeros_and_fails_its_own_session_alone() {
    const NAME: &str = "memory-that-shrinks";
    let (client, other) = (Client::new(NAME, 64 * PAGE), Client::new("other", PAGE));
    client.fill_with_offsets(64 * PAGE, 1);
    other.write(0, b"untouched");
    let (mappings, view) = session(&client, 64 * PAGE);
    let (other_mappings, other_view) = session(&other, PAGE);
    client.file.set_len(8 * PAGE).unwrap();
    assert!(!mappings.lost().is_lost(), "nothing has been touched yet");

    let mut bytes = [0xee; 3 * PAGE as usize];
    segment(&view, 7 * PAGE, 3 * PAGE as u32).read_into(0, &mut bytes);
    let kept: [u8; PAGE as usize] = client.read(7 * PAGE);
    assert_eq!(bytes[..PAGE as usize], kept);
    assert!(bytes[PAGE as usize..].iter().all(|byte| *byte == 0));
    assert!(mappings.lost().is_lost());
    assert!(!other_mappings.lost().is_lost());
    let mut bytes = [0; 9];
    segment(&other_view, 0, 9).read_into(0, &mut bytes);
    assert_eq!(&bytes, b"untouched");

    // The rest of the file is still the file, writing behind it is harmless, and every touch
    // from the end to the front has cost no more than one mapping beside the file's.
    let left = mappings_of(NAME);
    for page in (8..64).rev() {
        segment(&view, page * PAGE, 5).write_from(0, b"lost!");
    }
    segment(&view, 0, 5).write_from(0, b"kept!");
    assert_eq!(&client.read(0), b"kept!");
    assert_eq!((left, mappings_of(NAME)), (1, 1));
}

#[test]
fn touching_lost_pages_from_the_end_to_the_front_stays_one_mapping() {
    const NAME: &str = "lost-backwards";
    let client = Client::new(NAME, 4096 * PAGE);
    let (mappings, view) = session(&client, 4096 * PAGE);
    client.file.set_len(0).unwrap();
    let before = count_mappings();
    for page in (1..4096).rev() {
        segment(&view, page * PAGE, 1).zero();
    }
    assert!(mappings.lost().is_lost());
    // Other tests make some hundred mappings meanwhile; one per page would be 4095.
    assert!(count_mappings() < before + 2000);
    assert_eq!(mappings_of(NAME), 1, "page 0 was never touched");
}

fn count_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().count()
}

#[test]
fn lost_read_only_memory_is_read_as_zeros() {
    let client = Client::new("read-only", 2 * PAGE);
    client.fill_with_offsets(2 * PAGE, 3);
    let mut mappings = ClientMappings::new();
    let read_only = client.reopened(std::fs::OpenOptions::new().read(true));
    let mapping = mappings.map(read_only).unwrap();
    let mut map = DmaMap::new(1);
    map.map(Iova(0), 2 * PAGE, Access::READ, Some((mapping, 0)))
        .unwrap();
    let ring = SqRing::new(&map.view(), Iova(0), 128).unwrap();
    assert_ne!(ring.load(127), Some([0; 8]));
    client.file.set_len(PAGE).unwrap();
    assert_eq!(ring.load(127), Some([0; 8]));
    assert_ne!(ring.load(63), Some([0; 8]));
    assert!(mappings.lost().is_lost());
}

#[test]
fn many_threads_touch_lost_memory_at_one_time() {
    let client = Client::new("threads", 256 * PAGE);
    let (mappings, view) = session(&client, 256 * PAGE);
    client.fill_with_offsets(256 * PAGE, 7);
    let start = std::sync::Barrier::new(5);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (view, start) = (&view, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..256 {
                    let page = (round * 37 + thread * 64) % 256;
                    let mut bytes = [0; 64];
                    segment(view, page * PAGE, 64).read_into(0, &mut bytes);
                    segment(view, page * PAGE + 64, 64).write_from(0, &bytes);
                }
            });
        }
        start.wait();
        client.file.set_len(0).unwrap();
    });
    let mut bytes = [1; 8];
    segment(&view, 0, 8).read_into(0, &mut bytes);
    assert_eq!(bytes, [0; 8]);
    assert!(mappings.lost().is_lost());
}

#[test]
fn doorbells_that_a_server_takes_away_read_as_zero() {
    let server = Client::new("server-doorbells", 2 * PAGE);
    let doorbells = DoorbellPages::map_client(server.fd(), PAGE, PAGE as usize).unwrap();
    doorbells.store(3, 17);
    assert_eq!((doorbells.load(3), doorbells.is_lost()), (17, false));
    server.file.set_len(PAGE).unwrap();
    assert_eq!((doorbells.load(3), doorbells.is_lost()), (0, true));
}

/// Variable with the task of a child process of this test program, instead of the test that it is
/// started with.
const CHILD: &str = "MEMORY_TEST_CHILD";

/// Runs `test` of this file, with `what` to do, in a process of its own.
fn run_child(test: &str, what: &str) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("lost::{test}"), "--nocapture"])
        .env(CHILD, what)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec only setrlimit is called, which is async-signal-safe. No core
    // files.
    unsafe {
        command.pre_exec(|| {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            Ok(())
        });
    }
    command.status().unwrap()
}

#[test]
fn a_sigbus_of_somebody_else_still_ends_the_process() {
    if let Ok(what) = std::env::var(CHILD) {
        return child(&what);
    }
    for what in [
        "fault-elsewhere",
        "fault-without-handler",
        "fault-after-unmap",
        "sent",
        "forged",
    ] {
        let status = run_child("a_sigbus_of_somebody_else_still_ends_the_process", what);
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{what}");
    }
}

#[test]
fn a_sigbus_of_somebody_else_reaches_the_handler_before_ours() {
    if let Ok(what) = std::env::var(CHILD) {
        return child(&what);
    }
    for what in ["earlier-handler", "earlier-plain-handler", "ignored"] {
        let status = run_child(
            "a_sigbus_of_somebody_else_reaches_the_handler_before_ours",
            what,
        );
        assert_eq!(status.code(), Some(CHILD_IS_DONE), "{what}");
    }
}

/// How a child ends that got to its end: no code of the test harness.
const CHILD_IS_DONE: i32 = 42;

fn child(what: &str) {
    match what {
        "fault-elsewhere" => {
            let client = Client::new("guarded", PAGE);
            let _guarded = session(&client, PAGE);
            fault_in_a_mapping_of_our_own();
        }
        "fault-after-unmap" => {
            // The table must forget a mapping: what comes to lie at its addresses is not the
            // client's.
            let client = Client::new("forgotten", PAGE);
            let (mappings, view) = session(&client, PAGE);
            let at = segment(&view, 0, 1).as_raw().0;
            drop((mappings, view));
            let replaced = map_at(&client, at);
            assert_eq!(replaced, at);
            client.file.set_len(0).unwrap();
            // SAFETY: an address that is mapped; the access raises SIGBUS, which is what is tested.
            unsafe { ptr::read_volatile(at) };
        }
        "fault-without-handler" => {
            // Rust's runtime has a handler of its own, which ends a process in the same way; here
            // there is none.
            default_action();
            let client = Client::new("guarded", PAGE);
            let _guarded = session(&client, PAGE);
            fault_in_a_mapping_of_our_own();
        }
        "sent" => {
            default_action();
            memory::install_sigbus_handler().unwrap();
            // SAFETY: raise has no conditions.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        "forged" => {
            default_action();
            let client = Client::new("forged", PAGE);
            let (_mappings, view) = session(&client, PAGE);
            send_fault_at(segment(&view, 0, 1).as_raw().0);
        }
        "earlier-handler" => with_earlier_handler(true),
        "earlier-plain-handler" => with_earlier_handler(false),
        "ignored" => {
            // SAFETY: SIG_IGN is a valid action.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
            memory::install_sigbus_handler().unwrap();
            // SAFETY: raise has no conditions.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        other => panic!("no child {other}"),
    }
    std::process::exit(CHILD_IS_DONE);
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static INFO_WAS_RIGHT: AtomicBool = AtomicBool::new(false);

extern "C" fn plain(signal: libc::c_int) {
    CALLS.fetch_add((signal == libc::SIGBUS) as usize, Ordering::Relaxed);
}

extern "C" fn informed(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the handler before gives us the kernel's siginfo.
    let code = unsafe { (*info).si_code };
    INFO_WAS_RIGHT.store(
        code == libc::SI_TKILL && !context.is_null(),
        Ordering::Relaxed,
    );
    plain(signal);
}

fn with_earlier_handler(informs: bool) {
    // SAFETY: an all-zero sigaction is valid; the handler's form fits its flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if informs {
            action.sa_sigaction = informed as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
        } else {
            action.sa_sigaction = plain as *const () as usize;
        }
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
    // Twice: the second must not put our own handler behind itself.
    memory::install_sigbus_handler().unwrap();
    memory::install_sigbus_handler().unwrap();
    let client = Client::new("chained", 2 * PAGE);
    let (mappings, view) = session(&client, 2 * PAGE);
    client.file.set_len(PAGE).unwrap();
    segment(&view, PAGE, 1).zero();
    assert!(mappings.lost().is_lost());
    assert_eq!(CALLS.load(Ordering::Relaxed), 0, "that one was ours");
    // SAFETY: raise has no conditions.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert_eq!(INFO_WAS_RIGHT.load(Ordering::Relaxed), informs);
}

/// Sends this thread a SIGBUS that names an address, as another process may.
fn send_fault_at(address: *mut u8) {
    // struct siginfo on 64-bit Linux: signal, error, code, four bytes of padding, address.
    let mut info = [0u64; 16];
    info[0] = libc::SIGBUS as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = address as u64;
    // SAFETY: the kernel copies a siginfo, which `info` is in size and form.
    let sent = unsafe {
        let call = libc::SYS_rt_tgsigqueueinfo;
        libc::syscall(call, libc::getpid(), libc::gettid(), libc::SIGBUS, &info)
    };
    assert_eq!(sent, 0);
}

fn default_action() {
    // SAFETY: SIG_DFL is a valid action.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

fn fault_in_a_mapping_of_our_own() {
    let file = Client::new("unguarded", PAGE);
    let at = map_at(&file, ptr::null_mut());
    file.file.set_len(0).unwrap();
    // SAFETY: an address that is mapped; the access raises SIGBUS, which is what is tested.
    unsafe { ptr::read_volatile(at) };
}

/// Maps a file's first page without this crate, at `hint` if that is free.
fn map_at(file: &Client, hint: *mut u8) -> *mut u8 {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping at a free address overlaps nothing.
    let at = unsafe {
        libc::mmap(
            hint.cast(),
            PAGE as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}
