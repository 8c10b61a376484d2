//! The counters of the last ten minutes, for views that are opened later.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::Stats;
use axum::body::Bytes;

/// Time between two samples: a few kilobytes for a controller, and a message to each reactor.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Samples of ten minutes.
const KEPT: usize = 120;
/// Bytes of all samples; with many controllers there are fewer samples.
const MAX_LEN: usize = 8 << 20;

/// Samples of all counters as JSON, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    kept: VecDeque<Bytes>,
    len: usize,
}

impl Past {
    /// Adds a sample. The oldest ones make room for it.
    pub(super) fn add(&self, stats: &Stats) {
        if let Ok(sample) = serde_json::to_vec(stats) {
            self.lock().add(sample.into());
        }
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
            parts.push(sample);
        }
        parts.push(Bytes::from_static(b"]"));
        parts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples {
    fn add(&mut self, sample: Bytes) {
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
    use super::*;

    #[test]
    fn the_newest_samples_are_kept_within_their_bounds() {
        let mut samples = Samples::default();
        for number in 0..KEPT + 3 {
            samples.add(number.to_string().into());
        }
        assert_eq!(samples.kept.len(), KEPT);
        assert_eq!(samples.kept.front().unwrap(), "3");
        let large = vec![b'0'; MAX_LEN / 4];
        for _ in 0..6 {
            samples.add(large.clone().into());
        }
        assert_eq!((samples.kept.len(), samples.len), (4, MAX_LEN));
        samples.add(vec![b'0'; MAX_LEN + 1].into());
        assert_eq!((samples.kept.len(), samples.len), (0, 0));
    }

    #[test]
    fn samples_are_one_array() {
        let past = Past::default();
        assert_eq!(past.json().concat(), b"[]");
        past.lock().add("1".into());
        past.lock().add("{}".into());
        assert_eq!(past.json().concat(), b"[1,{}]");
    }
}
