//! The counters of the last ten minutes, for views that are opened later.
//!
//! A sample asks every reactor, and takes as long as an answer to `/v1/stats`. While nothing
//! happens, its place takes the sample before it with a later time, so that an idle server sleeps.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::Stats;
use axum::body::Bytes;

use crate::observe::Stir;

/// Time between two samples: a few kilobytes for a controller, and a message to each reactor.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Samples of ten minutes.
const KEPT: usize = 120;
/// Bytes of all samples, as they are sent; with many controllers there are fewer samples.
const MAX_LEN: usize = 8 << 20;

/// Samples of all counters as JSON, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    kept: VecDeque<Sample>,
    len: usize,
    /// State of the counters before the newest sample.
    stir: Option<Stir>,
}

/// An object in JSON: its times, and everything else, which equal samples share.
#[derive(Clone, Debug)]
struct Sample {
    times: Bytes,
    rest: Bytes,
}

impl Past {
    /// Repeats the newest sample with another time, on the server's clock in nanoseconds and on the
    /// system's in milliseconds, if nothing has happened since it was taken. Returns whether.
    pub(super) fn repeat(&self, stir: Stir, time_ns: u64, unix_time_ms: u64) -> bool {
        let mut samples = self.lock();
        let newest = samples.kept.back().filter(|_| samples.stir == Some(stir));
        let Some(rest) = newest.map(|newest| newest.rest.clone()) else {
            return false;
        };
        let times = format!(r#"{{"time_ns":{time_ns},"unix_time_ms":{unix_time_ms},"#).into();
        samples.add(Sample { times, rest });
        true
    }

    /// Adds a sample that was taken after `stir`. The oldest ones make room for it.
    pub(super) fn add(&self, stir: Stir, stats: &Stats) {
        let Ok(whole) = serde_json::to_vec(stats) else {
            return;
        };
        let mut samples = self.lock();
        samples.stir = Some(stir);
        samples.add(Sample::of(whole.into()));
    }

    /// All samples: the parts of an array in JSON. Readers share them, so that many slow ones take
    /// no more memory than one.
    pub(super) fn json(&self) -> Vec<Bytes> {
        let samples = self.lock().kept.clone();
        let mut parts = vec![Bytes::from_static(b"[")];
        for (at, sample) in samples.into_iter().enumerate() {
            if at > 0 {
                parts.push(Bytes::from_static(b","));
            }
            parts.extend([sample.times, sample.rest]);
        }
        parts.push(Bytes::from_static(b"]"));
        parts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sample {
    /// Splits an object whose first two fields are its times.
    fn of(mut whole: Bytes) -> Self {
        let mut commas = (0..whole.len()).filter(|at| whole[*at] == b',');
        let second = commas.nth(1).map_or(0, |at| at + 1);
        Sample {
            times: whole.split_to(second),
            rest: whole,
        }
    }

    fn len(&self) -> usize {
        self.times.len() + self.rest.len()
    }
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        self.len += sample.len();
        self.kept.push_back(sample);
        while self.kept.len() > KEPT || self.len > MAX_LEN {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.len -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use api::ProcessStatus;

    use super::*;

    fn sample(text: impl Into<Bytes>) -> Sample {
        Sample::of(text.into())
    }

    fn stir(completions: u64) -> Stir {
        Stir {
            completions,
            events: 0,
        }
    }

    #[test]
    fn the_newest_samples_are_kept_within_their_bounds() {
        let mut samples = Samples::default();
        for number in 0..KEPT + 3 {
            samples.add(sample(number.to_string()));
        }
        assert_eq!(samples.kept.len(), KEPT);
        assert_eq!(samples.kept.front().unwrap().rest, "3");
        let large = vec![b'0'; MAX_LEN / 4];
        for _ in 0..6 {
            samples.add(sample(large.clone()));
        }
        assert_eq!((samples.kept.len(), samples.len), (4, MAX_LEN));
        samples.add(sample(vec![b'0'; MAX_LEN + 1]));
        assert_eq!((samples.kept.len(), samples.len), (0, 0));
    }

    #[test]
    fn samples_are_one_array() {
        let past = Past::default();
        assert_eq!(past.json().concat(), b"[]");
        past.lock().add(sample("1"));
        past.lock().add(sample("{}"));
        assert_eq!(past.json().concat(), b"[1,{}]");
    }

    #[test]
    fn a_sample_is_repeated_with_another_time_while_nothing_happens() {
        let past = Past::default();
        assert!(!past.repeat(stir(0), 1, 2), "there is none yet");
        let stats = Stats {
            time_ns: 10,
            unix_time_ms: 20,
            process: ProcessStatus::default(),
            reactors: Vec::new(),
            media: Vec::new(),
            namespaces: Vec::new(),
            tenants: Vec::new(),
            controllers: Vec::new(),
        };
        past.add(stir(1), &stats);
        assert!(past.repeat(stir(1), 5_000_000_010, 5_020));
        assert!(!past.repeat(stir(2), 10_000_000_010, 10_020));
        let all: Vec<Stats> = serde_json::from_slice(&past.json().concat()).unwrap();
        let times: Vec<_> = all
            .iter()
            .map(|one| (one.time_ns, one.unix_time_ms))
            .collect();
        assert_eq!(times, [(10, 20), (5_000_000_010, 5_020)]);
        let rest = |at: usize| past.lock().kept[at].rest.as_ptr();
        assert_eq!(rest(0), rest(1), "they share their bytes");
    }
}
