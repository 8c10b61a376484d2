//! The authentication of one host: its exchange, and the powers of it, which another thread
//! computes.
//!
//! Powers take milliseconds, in which a reactor would serve no other host. They go through a queue
//! that has room for one of each exchange, and at most [`EXCHANGES`] exchanges are in progress, of
//! each host at most [`OF_HOST`]: one beyond them gets Controller Busy, and tries again. So those
//! that name one host keep no other one out, and delay it by their few powers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};

use authentication::{
    Concatenates, ControllerSide, Next, Outcome, Parties, Randomness, Work, Worked,
};
use port::time::Time;

use super::connect::Refusal;
use super::generated::GeneratedKeys;
use super::proof::Proof;
use crate::secure::{Place, Places};

/// Exchanges in progress at most, of all that have the same [`Powers`].
const EXCHANGES: usize = 64;
/// Of them those of one host NQN. A host connects its queues one after another (Linux), so more
/// than one are of several associations, or of queues that it has abandoned.
const OF_HOST: usize = 4;
/// How long a whole exchange may take, from Connect on. A guest without hardware virtualization
/// takes a second for its powers.
const EXCHANGE_NS: u64 = 20_000_000_000;
/// How long a host that has made a key of TLS may take to close the connection.
const CLOSE_NS: u64 = 3_000_000_000;
/// How often the result of work is looked for.
const LOOK_NS: u64 = 1_000_000;

/// A way to the thread that computes powers.
#[derive(Clone, Debug)]
pub struct Powers {
    jobs: SyncSender<Job>,
    /// By host NQN.
    places: Arc<Places<String>>,
}

/// A power to compute: [`Job::run`].
#[derive(Debug)]
pub struct Job {
    work: Work,
    answer: Sender<Worked>,
    /// An exchange that has ended has room in the queue until its work is taken out.
    _place: Option<Arc<Place<String>>>,
}

impl Job {
    /// Computes it, which takes milliseconds, and hands it to its exchange.
    pub fn run(self) {
        // The exchange may be over.
        let _ = self.answer.send(self.work.run());
    }
}

/// A way to a thread, and what the thread is to do, in order.
#[must_use]
pub fn powers() -> (Powers, Receiver<Job>) {
    let (jobs, received) = sync_channel(EXCHANGES);
    let powers = Powers {
        jobs,
        places: Arc::default(),
    };
    (powers, received)
}

/// The exchange of one host.
#[derive(Debug)]
pub(super) struct Exchange {
    side: ControllerSide,
    generated: GeneratedKeys,
    is_concatenated: bool,
    /// Of those in progress. None when a key is made, which the host has proved its secret for.
    place: Option<Arc<Place<String>>>,
    jobs: SyncSender<Job>,
    /// Where the result of the work in progress comes.
    working: Option<Receiver<Worked>>,
    until: Time,
    look_at: Time,
}

/// Random bytes of the system.
fn random() -> Option<Randomness> {
    let mut bytes = [0; Randomness::LEN];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::NONBLOCK;
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags).ok()?;
    }
    Some(Randomness::new(&bytes))
}

impl Exchange {
    /// The exchange of a host that has connected.
    ///
    /// # Errors
    /// There are too many, or no random numbers.
    pub(super) fn new(
        parties: Parties,
        powers: &Powers,
        (concatenates, generated): (Concatenates, GeneratedKeys),
        now: Time,
    ) -> Result<Self, Refusal> {
        let places = &powers.places;
        let place = places.take(&parties.hostnqn, EXCHANGES, OF_HOST);
        let place = Some(Arc::new(place.ok_or(Refusal::Busy)?));
        let random = random().ok_or(Refusal::Busy)?;
        Ok(Self {
            side: ControllerSide::new(parties, random).concatenating(concatenates),
            generated,
            is_concatenated: false,
            place,
            jobs: powers.jobs.clone(),
            working: None,
            until: now + EXCHANGE_NS,
            look_at: now,
        })
    }

    /// Takes a message of the host.
    pub(super) fn take(&mut self, message: &[u8], now: Time) {
        let work = self.side.take(message);
        self.keep_generated(now);
        let Some(work) = work else {
            return;
        };
        let (answer, working) = channel();
        let job = Job {
            work,
            answer,
            _place: self.place.clone(),
        };
        // There is room; without a thread nothing comes, which is seen as a failure.
        let _ = self.jobs.try_send(job);
        (self.working, self.look_at) = (Some(working), now + LOOK_NS);
    }

    /// Takes the result of work.
    pub(super) fn look(&mut self, now: Time) {
        let Some(working) = &self.working else {
            return;
        };
        let worked = match working.try_recv() {
            Ok(worked) => worked,
            Err(TryRecvError::Empty) => {
                self.look_at = now + LOOK_NS;
                return;
            }
            Err(TryRecvError::Disconnected) => Worked::failed(),
        };
        self.working = None;
        self.side.worked(worked);
    }

    /// The next message for the host.
    pub(super) fn next(&mut self, now: Time) -> Next {
        let next = self.side.next_message();
        self.keep_generated(now);
        next
    }

    /// Keeps the key that both sides have made, before the host can come with it.
    fn keep_generated(&mut self, now: Time) {
        if let Some(generated) = self.side.take_generated() {
            let both = self.side.outcome() == Outcome::Authenticated { both: true };
            let made = (generated, Proof::authenticated(both));
            self.generated.keep(self.side.parties(), made, now);
            (self.is_concatenated, self.place) = (true, None);
            self.until = self.until.min(now + CLOSE_NS);
        }
    }

    /// Whether its host is to make a key.
    pub(super) fn must_concatenate(&self) -> bool {
        self.side.concatenates() == Concatenates::Always
    }

    /// Whether both sides have made a key, with which the host comes again.
    pub(super) fn is_concatenated(&self) -> bool {
        self.is_concatenated
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.side.outcome()
    }

    /// When it fails.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// When it is to be looked at.
    pub(super) fn deadline(&self) -> Time {
        match self.working {
            Some(_) => self.look_at.min(self.until),
            None => self.until,
        }
    }
}
