//! Care of the memory that reactors copy to and from, by a separate thread. It collapses ordinary
//! pages into huge ones as they come into use, and logs once if a host's memory is on another NUMA
//! node than its reactor.
//!
//! Random accesses spend much of their time on address translation, in guests even more. A huge
//! page needs one translation where 512 pages need as many. No memory is allocated for that: only
//! fully populated pieces are collapsed, except of memory that would have been on huge pages from
//! its first write ([`Pieces::always`]). Accesses to a piece stall once while it is collapsed, for
//! some hundred microseconds, so the thread collapses one piece at a time and rests nine times as
//! long.
//!
//! The thread never delays a reactor or the reply to a DMA_MAP, and does not keep memory alive that
//! has no other owner.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};

use memory::{HUGE_PAGE_LEN, Pieces};
use rustix::io::Errno;

use crate::nodes::{self, Far, Nodes};

/// Capacity of the queue of new memory; what does not fit is not cared for.
const WAITING: usize = 1024;
/// Times between passes over memory: the first since it was registered, the others since the
/// previous pass. A guest that boots touches its memory gradually.
const LOOKS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
    Duration::from_secs(60),
];
/// Pieces per turn, before other memory has its turn: half a gigabyte.
const PIECES: usize = 256;
/// Rest after work, as a multiple of it.
const REST: u32 = 9;

/// Owner of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The host of the controller with this name, and the node of its reactor, where that matters
    /// and is known.
    Host {
        /// Name of the controller.
        name: String,
        /// NUMA node of the reactor.
        near: Option<u32>,
    },
    /// The medium with this name.
    Medium(String),
}

struct Memory {
    owner: Owner,
    pieces: Weak<dyn Pieces>,
}

static CARE: OnceLock<SyncSender<Memory>> = OnceLock::new();

/// Starts the thread, unless it runs already or would have nothing to do. `collapse`: collapse
/// the pages of all memory. `always`: there may be memory whose pages are collapsed in any case
/// ([`Pieces::always`]). The caller should not be pinned to a CPU, because the new thread inherits
/// that.
pub fn start(collapse: bool, always: bool) -> io::Result<()> {
    if CARE.get().is_some() || !(Nodes::of_machine().are_several() || collapse || always) {
        return Ok(());
    }
    let (sender, receiver) = sync_channel(WAITING);
    let care = Care {
        collapse,
        kept: Vec::new(),
    };
    std::thread::Builder::new()
        .name("memory".to_owned())
        .spawn(move || care.run(&receiver))?;
    // if another call was faster, this thread ends with its sender
    let _ = CARE.set(sender);
    Ok(())
}

/// Registers memory for as long as it has another owner. Never waits.
pub fn look_after(owner: &Owner, pieces: &Arc<dyn Pieces>) {
    if let Some(care) = CARE.get() {
        // memory that does not fit into the queue stays as it is
        let _ = care.try_send(Memory {
            owner: owner.clone(),
            pieces: Arc::downgrade(pieces),
        });
    }
}

struct Care {
    collapse: bool,
    kept: Vec<Kept>,
}

/// Registered memory.
struct Kept {
    owner: Owner,
    pieces: Weak<dyn Pieces>,
    /// Whether each piece is a huge page.
    together: Vec<bool>,
    /// Whether the kernel cannot collapse these pages.
    hopeless: bool,
    /// The next piece of this pass, and how many pieces were collapsed.
    cursor: usize,
    found: usize,
    /// Number of passes, and time of the next one.
    looks: usize,
    due: Instant,
    /// Whether the log has reported it as remote.
    told: bool,
}

impl Care {
    fn run(mut self, memory: &Receiver<Memory>) {
        loop {
            let due = self.kept.iter().map(|kept| kept.due).min();
            let came = match due {
                None => memory.recv().map_err(RecvTimeoutError::from),
                Some(due) => memory.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match came {
                Ok(new) => self.keep(new, Instant::now()),
                Err(RecvTimeoutError::Timeout) => self.look(Instant::now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn keep(&mut self, new: Memory, now: Instant) {
        self.kept.retain(|kept| kept.pieces.strong_count() > 0);
        let known = |kept: &Kept| kept.owner == new.owner && kept.pieces.ptr_eq(&new.pieces);
        if !self.kept.iter().any(known) {
            let collapse = self.collapse || new.pieces.upgrade().is_some_and(|new| new.always());
            self.kept.push(Kept {
                owner: new.owner,
                pieces: new.pieces,
                together: Vec::new(),
                hopeless: !collapse,
                cursor: 0,
                found: 0,
                looks: 0,
                due: now + LOOKS[0],
                told: false,
            });
        }
    }

    /// Visits the memory that is due first.
    fn look(&mut self, now: Instant) {
        self.kept.retain(|kept| kept.pieces.strong_count() > 0);
        let due = self.kept.iter_mut().enumerate();
        let Some((at, kept)) = due.min_by_key(|(_, kept)| kept.due) else {
            return;
        };
        let begins = kept.cursor == 0;
        if kept.put_together() {
            kept.due = now;
        } else {
            kept.looks += 1;
            kept.due = now + LOOKS[kept.looks.min(LOOKS.len() - 1)];
        }
        if begins && let Some(far) = self.is_far(at) {
            self.kept[at].told = true;
            tracing::warn!("{}: {far}", self.kept[at].owner);
        }
    }

    /// Whether most of it is on a node other than its user's, and this was not yet logged for its
    /// owner.
    fn is_far(&self, at: usize) -> Option<Far> {
        let kept = &self.kept[at];
        let Owner::Host {
            near: Some(near), ..
        } = kept.owner
        else {
            return None;
        };
        let mut same = self.kept.iter().filter(|other| other.owner == kept.owner);
        if same.any(|other| other.told) {
            return None;
        }
        nodes::far(near, &kept.pieces.upgrade()?.nodes().ok()?)
    }
}

impl Kept {
    /// Collapses some pieces. True if this pass has more pieces to try.
    fn put_together(&mut self) -> bool {
        let mut tried = 0;
        while !self.hopeless
            && let Some(pieces) = self.pieces.upgrade()
            && self.cursor < pieces.count()
        {
            if tried == PIECES {
                return true;
            }
            self.together.resize(pieces.count(), false);
            let index = self.cursor;
            self.cursor += 1;
            if self.together[index] {
                continue;
            }
            tried += 1;
            let begun = Instant::now();
            let result = pieces.collapse(index);
            // Drop it during the rest, so that its owners can release it.
            drop(pieces);
            std::thread::sleep(begun.elapsed() * REST);
            if !self.went(index, result) {
                break;
            }
        }
        if self.found > 0 {
            let mib = (self.found * HUGE_PAGE_LEN) >> 20;
            tracing::info!(
                "{}: {mib} MiB of its memory were collapsed into huge pages",
                self.owner
            );
        }
        (self.cursor, self.found) = (0, 0);
        false
    }

    /// Records the result of a piece. False if further pieces would fail now as well.
    fn went(&mut self, index: usize, result: io::Result<bool>) -> bool {
        match result {
            Ok(is_together) => {
                self.together[index] = is_together;
                self.found += usize::from(is_together);
                true
            }
            Err(error) => match Errno::from_io_error(&error) {
                // Some page was in use at that moment.
                Some(Errno::AGAIN | Errno::BUSY) => true,
                // The system has no free huge page.
                Some(Errno::NOMEM) => false,
                _ => {
                    tracing::debug!("{}: its memory stays on small pages: {error}", self.owner);
                    self.hopeless = true;
                    false
                }
            },
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Host { name, .. } => write!(f, "controller {name}"),
            Owner::Medium(name) => write!(f, "media {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Memory whose pieces behave as told.
    struct FakePieces {
        results: Mutex<Vec<Result<bool, Errno>>>,
        tried: Mutex<Vec<usize>>,
        nodes: Vec<(u32, usize)>,
        always: bool,
    }

    impl Pieces for FakePieces {
        fn count(&self) -> usize {
            self.results.lock().unwrap().len()
        }

        fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
            Ok(self.nodes.clone())
        }

        fn always(&self) -> bool {
            self.always
        }

        fn collapse(&self, index: usize) -> io::Result<bool> {
            self.tried.lock().unwrap().push(index);
            Ok(self.results.lock().unwrap()[index]?)
        }
    }

    fn told(results: &[Result<bool, Errno>], nodes: &[(u32, usize)]) -> Arc<FakePieces> {
        Arc::new(FakePieces {
            results: Mutex::new(results.to_vec()),
            tried: Mutex::default(),
            nodes: nodes.to_vec(),
            always: false,
        })
    }

    fn care(collapse: bool) -> Care {
        Care {
            collapse,
            kept: Vec::new(),
        }
    }

    fn host(near: Option<u32>) -> Owner {
        let name = "c".to_owned();
        Owner::Host { name, near }
    }

    impl Care {
        fn take(&mut self, owner: Owner, memory: &Arc<FakePieces>, now: Instant) {
            let pieces: Arc<dyn Pieces> = memory.clone();
            let pieces = Arc::downgrade(&pieces);
            self.keep(Memory { owner, pieces }, now);
        }
    }

    fn tried(memory: &FakePieces) -> Vec<usize> {
        std::mem::take(&mut memory.tried.lock().unwrap())
    }

    #[test]
    fn what_is_together_is_left_alone_and_the_rest_is_tried_again() {
        let now = Instant::now();
        let mut care = care(true);
        let memory = told(&[Ok(true), Ok(false), Err(Errno::AGAIN), Ok(true)], &[]);
        care.take(host(None), &memory, now);
        care.take(host(None), &memory, now);
        assert_eq!(care.kept.len(), 1, "it is known");
        care.look(now);
        assert_eq!(tried(&memory), [0, 1, 2, 3]);
        assert_eq!(care.kept[0].due, now + LOOKS[1]);
        for results in memory.results.lock().unwrap().iter_mut() {
            *results = Ok(true);
        }
        care.look(now);
        assert_eq!(tried(&memory), [1, 2]);
        care.look(now);
        assert_eq!(tried(&memory), [0; 0]);
        drop(memory);
        care.look(now);
        assert!(care.kept.is_empty(), "nobody holds it any more");
    }

    #[test]
    fn memory_that_is_to_be_on_huge_pages_is_put_together_where_that_is_off() {
        let now = Instant::now();
        let mut care = care(false);
        let host = told(&[Ok(true)], &[]);
        let medium = Arc::new(FakePieces {
            always: true,
            ..Arc::into_inner(told(&[Ok(true)], &[])).unwrap()
        });
        care.take(self::host(None), &host, now);
        care.take(Owner::Medium("m".into()), &medium, now);
        (0..2).for_each(|_| care.look(now));
        assert_eq!((tried(&host), tried(&medium)), (vec![], vec![0]));
    }

    #[test]
    fn a_system_without_huge_pages_is_asked_later_and_one_that_knows_none_never() {
        let now = Instant::now();
        let mut care = care(true);
        let short = told(&[Err(Errno::NOMEM), Ok(true)], &[]);
        let old = told(&[Err(Errno::INVAL), Ok(true)], &[]);
        care.take(Owner::Medium("short".into()), &short, now);
        care.take(Owner::Medium("old".into()), &old, now);
        for _ in 0..4 {
            care.look(now);
        }
        assert_eq!((tried(&short), tried(&old)), (vec![0, 0], vec![0]));
    }

    #[test]
    fn much_memory_takes_turns() {
        let now = Instant::now();
        let mut care = care(true);
        let large = told(&[Ok(true); PIECES + 1], &[]);
        let small = told(&[Ok(true)], &[]);
        care.take(host(None), &large, now);
        care.take(Owner::Medium("m".into()), &small, now);
        care.look(now);
        assert_eq!((tried(&large).len(), tried(&small).len()), (PIECES, 0));
        care.look(now);
        assert_eq!(tried(&large), [PIECES]);
        care.look(now);
        assert_eq!(tried(&small), [0]);
    }

    #[test]
    fn memory_that_is_far_is_said_once_for_a_host() {
        let now = Instant::now();
        let mut care = care(false);
        let far = told(&[Ok(true)], &[(1, 100)]);
        let near = told(&[], &[(0, 100)]);
        care.take(host(Some(0)), &near, now);
        assert_eq!(care.is_far(0), None);
        care.take(host(Some(0)), &far, now);
        care.take(host(Some(0)), &told(&[], &[(1, 100)]), now);
        assert_eq!(care.is_far(1), Some(Far { cpus: 0, memory: 1 }));
        (0..2).for_each(|_| care.look(now));
        assert!(care.kept[1].told);
        assert_eq!(care.is_far(1), None);
        assert_eq!(
            tried(&far),
            [0; 0],
            "nothing is put together where that is off"
        );
        // Where the node does not matter, or there is no host.
        care.take(host(None), &far, now);
        care.take(Owner::Medium("m".into()), &far, now);
        assert!((2..care.kept.len()).all(|at| care.is_far(at).is_none()));
    }
}
