//! Keys of TLS that hosts and controllers have made by DH-HMAC-CHAP (secure channel concatenation).
//!
//! A key is kept from the end of its exchange on, for the connections that its host opens next. It
//! is good for [`LIFETIME_NS`], and for as long as its host has the secret that it has proved in
//! that exchange: one that was replaced or removed takes the keys that were made by it with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use authentication::{Generated, Parties, Secret, TlsIdentity, TlsPsk};
use port::time::Time;

/// How long a key is good for, from the end of its exchange on; Linux has the same.
const LIFETIME_NS: u64 = 3_600_000_000_000;
/// Keys at most, of which the oldest gives way.
const KEYS: usize = 16_384;
/// Keys of a pair at most, of which the oldest gives way: one for each path of a host, and for each
/// of its programs.
const OF_PAIR: usize = 64;

/// Host NQN and subsystem NQN.
type Pair = (String, String);

#[derive(Debug)]
struct Kept {
    name: String,
    psk: Arc<TlsPsk>,
    /// What the host has proved that it knows.
    secret: Arc<Secret>,
    until: Time,
}

#[derive(Debug, Default)]
struct All {
    /// The oldest key of a pair comes first. Each pair has one.
    pairs: BTreeMap<Pair, VecDeque<Arc<Kept>>>,
    /// Keys of all pairs.
    count: usize,
    /// No key ends before.
    next: Option<Time>,
}

#[derive(Debug, Default)]
#[expect(
    clippy::disallowed_types,
    reason = "no command takes it: exchanges and handshakes do"
)]
struct Store {
    all: std::sync::Mutex<All>,
    /// When the last handshake began, in ns.
    now: AtomicU64,
}

/// See the module. All that serve a subsystem share one.
#[derive(Clone, Debug, Default)]
pub struct GeneratedKeys(Arc<Store>);

impl GeneratedKeys {
    /// A panic elsewhere leaves whole keys.
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the key that these parties have made.
    pub(super) fn keep(&self, parties: &Parties, generated: Generated, now: Time) {
        let kept = Kept {
            name: generated.name,
            psk: Arc::new(generated.psk),
            secret: parties.host.clone(),
            until: now + LIFETIME_NS,
        };
        let pair = (parties.hostnqn.clone(), parties.subnqn.clone());
        let mut all = self.all();
        all.forget(now);
        all.add(pair, kept);
    }

    /// A handshake begins: keys whose time is over are none for it.
    pub(super) fn begin(&self, now: Time) {
        // The thread of handshakes gets its job after this.
        self.0.now.fetch_max(now.0, Ordering::Relaxed);
    }

    /// The key of this name, if its time is not over, and the host has this secret still.
    pub(super) fn find(&self, identity: &TlsIdentity<'_>, secret: &Secret) -> Option<Arc<TlsPsk>> {
        let pair = (identity.hostnqn().to_owned(), identity.subnqn().to_owned());
        let now = Time(self.0.now.load(Ordering::Relaxed));
        let mut all = self.all();
        let mut keys = all.pairs.get(&pair).into_iter().flatten();
        let kept = keys.find(|kept| kept.name == identity.name()).cloned();
        all.forget(now);
        drop(all);
        let kept = kept.filter(|kept| now < kept.until)?;
        kept.secret.is_same(secret).then(|| kept.psk.clone())
    }

    /// Forgets the keys of all hosts except these, which have these secrets.
    pub fn retain(&self, hosts: &BTreeMap<String, Arc<Secret>>) {
        self.all().retain(|(hostnqn, _), kept| {
            let secret = hosts.get(hostnqn);
            secret.is_some_and(|secret| kept.secret.is_same(secret))
        });
    }
}

impl All {
    fn add(&mut self, pair: Pair, kept: Kept) {
        let len = self.pairs.get(&pair).map_or(0, VecDeque::len);
        if len >= OF_PAIR {
            self.remove_oldest(&pair);
        } else if self.count >= KEYS {
            let first = |(_, keys): &(&Pair, &VecDeque<Arc<Kept>>)| keys.front().map(|it| it.until);
            let oldest = self.pairs.iter().min_by_key(first);
            if let Some(oldest) = oldest.map(|(pair, _)| pair.clone()) {
                self.remove_oldest(&oldest);
            }
        }
        self.next = Some(self.next.map_or(kept.until, |next| next.min(kept.until)));
        self.count += 1;
        self.pairs
            .entry(pair)
            .or_default()
            .push_back(Arc::new(kept));
    }

    fn remove_oldest(&mut self, pair: &Pair) {
        let Some(keys) = self.pairs.get_mut(pair) else {
            return;
        };
        self.count -= usize::from(keys.pop_front().is_some());
        if keys.is_empty() {
            self.pairs.remove(pair);
        }
    }

    fn retain(&mut self, stays: impl Fn(&Pair, &Kept) -> bool) {
        self.pairs.retain(|pair, keys| {
            keys.retain(|kept| stays(pair, kept));
            !keys.is_empty()
        });
        self.count = self.pairs.values().map(VecDeque::len).sum();
        let keys = self.pairs.values().flatten();
        self.next = keys.map(|kept| kept.until).min();
    }

    /// Forgets the keys whose time is over.
    fn forget(&mut self, now: Time) {
        if self.next.is_some_and(|next| now >= next) {
            self.retain(|_, kept| now < kept.until);
        }
    }
}

#[cfg(test)]
mod tests {
    use authentication::{Concatenates, ControllerSide, Group, Hash, HostSide, Next, Randomness};

    use super::*;

    const SUBSYSTEM: &str = "nqn.2026-11.t:s";
    const SECRETS: [&str; 2] = [
        "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    ];

    fn secret(number: usize) -> Arc<Secret> {
        Arc::new(Secret::read(SECRETS[number]).unwrap())
    }

    /// A key of an exchange of this host, and its name.
    fn made(host: &str, seed: u8) -> (Parties, Generated) {
        let parties = Parties {
            hostnqn: host.to_owned(),
            subnqn: SUBSYSTEM.to_owned(),
            host: secret(0),
            controller: None,
        };
        let random = |seed| Randomness::new(&[seed; Randomness::LEN]);
        let side = ControllerSide::new(parties.clone(), random(seed));
        let mut side = side.concatenating(Concatenates::Always);
        let groups = [Group::Ffdhe2048];
        let ours = HostSide::new(parties.clone(), random(255), 1, &Hash::ALL, &groups);
        let mut ours = ours.concatenating();
        let give = |side: &mut ControllerSide, message: &[u8]| {
            let work = side.take(message).unwrap();
            side.worked(work.run());
            match side.next_message() {
                Next::Message(message) => message,
                Next::Later => panic!("the work is done"),
            }
        };
        let challenge = give(&mut side, &ours.negotiate());
        let reply = ours.reply(&challenge).unwrap();
        give(&mut side, &reply);
        (parties, side.take_generated().unwrap())
    }

    fn has(keys: &GeneratedKeys, name: &str, of: usize) -> bool {
        let identity = TlsIdentity::parse(name.as_bytes()).unwrap();
        keys.find(&identity, &secret(of)).is_some()
    }

    #[test]
    fn a_key_lasts_for_an_hour_and_for_the_secret_that_it_was_made_by() {
        let keys = GeneratedKeys::default();
        let (parties, generated) = made("nqn.a", 1);
        let name = generated.name.clone();
        assert!(!has(&keys, &name, 0));
        keys.keep(&parties, generated, Time(5));
        assert!(has(&keys, &name, 0));
        assert!(!has(&keys, &name, 1), "it has another secret now");
        assert!(!has(&keys, &name.replace("nqn.a", "nqn.b"), 0));
        let (_, other) = made("nqn.a", 2);
        assert!(!has(&keys, &other.name, 0), "another exchange's");
        let hour = 3_600_000_000_000;
        keys.begin(Time(5 + hour - 1));
        assert!(has(&keys, &name, 0));
        let later = other.name.clone();
        keys.keep(&parties, other, Time(5 + hour - 1));
        keys.begin(Time(5 + hour));
        assert!(!has(&keys, &name, 0));
        assert_eq!(keys.all().count, 1, "it is forgotten");
        assert_eq!(keys.all().next, Some(Time(5 + hour - 1 + hour)));
        let hosts = |secret| BTreeMap::from([("nqn.a".to_owned(), secret)]);
        keys.retain(&hosts(secret(0)));
        assert!(has(&keys, &later, 0));
        for hosts in [hosts(secret(1)), BTreeMap::new()] {
            let (parties, generated) = made("nqn.a", 3);
            keys.keep(&parties, generated, Time(5 + hour));
            keys.retain(&hosts);
            let all = keys.all();
            assert!(all.pairs.is_empty() && all.count == 0 && all.next.is_none());
        }
    }

    #[test]
    fn keys_are_few_for_one_pair_and_in_all() {
        let (_, generated) = made("nqn.a", 1);
        let psk = Arc::new(generated.psk);
        let mut all = All::default();
        let mut time = 0;
        let mut add = |all: &mut All, host: usize| {
            time += 1;
            let kept = Kept {
                name: time.to_string(),
                psk: psk.clone(),
                secret: secret(0),
                until: Time(time),
            };
            all.add((host.to_string(), SUBSYSTEM.to_owned()), kept);
        };
        let ends = |all: &All, host: usize| {
            let keys = all.pairs.get(&(host.to_string(), SUBSYSTEM.to_owned()));
            let keys = keys.into_iter().flatten();
            keys.map(|kept| kept.until.0).collect::<Vec<_>>()
        };
        // One key of host 0, and too many of host 1.
        add(&mut all, 0);
        for _ in 0..=OF_PAIR {
            add(&mut all, 1);
        }
        let limit = u64::try_from(OF_PAIR).unwrap();
        assert_eq!(ends(&all, 1), (3..limit + 3).collect::<Vec<_>>());
        assert_eq!((ends(&all, 0), all.count), (vec![1], OF_PAIR + 1));
        for host in 2.. {
            if all.count == KEYS {
                break;
            }
            add(&mut all, host);
        }
        // The oldest of all gives way, with its pair where that has no other.
        add(&mut all, KEYS);
        assert_eq!((ends(&all, 0), all.count), (vec![], KEYS));
        assert_eq!(ends(&all, 1).len(), OF_PAIR);
        add(&mut all, KEYS);
        assert_eq!((ends(&all, 1)[0], all.count), (4, KEYS));
        assert_eq!((ends(&all, 2).len(), ends(&all, KEYS).len()), (1, 2));
        assert!(all.pairs.values().all(|keys| !keys.is_empty()));
    }
}
