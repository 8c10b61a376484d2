//! Keys of TLS that hosts and controllers have made by DH-HMAC-CHAP (secure channel concatenation).
//!
//! A key is kept from the end of its exchange on, for the connections that its host opens next. It
//! is good for [`LIFETIME_NS`], and for as long as its host has the secret that it has proved in
//! that exchange: one that was replaced or removed takes the keys that were made by it with it.
//!
//! Keys are kept on reactors, so this takes logarithmic time, however many there are: the oldest is
//! the first one of an index.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use authentication::{Generated, Parties, Secret, TlsIdentity, TlsPsk};
use port::time::Time;

use super::proof::Proof;

/// How long a key is good for, from the end of its exchange on; Linux has the same.
const LIFETIME_NS: u64 = 3_600_000_000_000;
/// Keys at most, of which the oldest gives way.
const KEYS: usize = 16_384;
/// Keys of a pair at most, of which the oldest gives way: one for each path of a host, and for each
/// of its programs.
const OF_PAIR: usize = 64;
/// Keys whose time is over that are forgotten at once: the next call forgets others.
const FORGOTTEN: usize = OF_PAIR;

/// Host NQN and subsystem NQN.
type Pair = (String, String);

/// The end of a key's time, and a number of its own.
type Place = (Time, u64);

/// A key that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    name: String,
    pub(super) psk: Arc<TlsPsk>,
    /// Proof by the exchange that made it.
    pub(super) proof: Proof,
    /// Secret that the host has proved to know.
    secret: Arc<Secret>,
    until: Time,
}

#[derive(Debug, Default)]
struct All {
    /// The oldest key of a pair comes first. Each pair has one.
    pairs: BTreeMap<Arc<Pair>, VecDeque<(Place, Arc<Kept>)>>,
    /// The pair of each key. The key whose time is over first comes first.
    places: BTreeMap<Place, Arc<Pair>>,
    /// Keys so far, which are their numbers.
    kept: u64,
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

    /// Keeps the key that these parties have made in an exchange that has proved so much.
    pub(super) fn keep(
        &self,
        parties: &Parties,
        (generated, proof): (Generated, Proof),
        now: Time,
    ) {
        let kept = Kept {
            name: generated.name,
            psk: Arc::new(generated.psk),
            proof,
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
    pub(super) fn find(&self, identity: &TlsIdentity<'_>, secret: &Secret) -> Option<Arc<Kept>> {
        let pair = (identity.hostnqn().to_owned(), identity.subnqn().to_owned());
        let now = Time(self.0.now.load(Ordering::Relaxed));
        let mut all = self.all();
        let is_meant = |kept: &&Arc<Kept>| kept.name == identity.name();
        let kept = all.of(&pair).find(is_meant).cloned();
        all.forget(now);
        drop(all);
        let kept = kept.filter(|kept| now < kept.until)?;
        kept.secret.is_same(secret).then_some(kept)
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
    /// The keys of a pair.
    fn of(&self, pair: &Pair) -> impl Iterator<Item = &Arc<Kept>> {
        let its = self.pairs.get(pair).into_iter().flatten();
        its.map(|(_, kept)| kept)
    }

    fn add(&mut self, pair: Pair, kept: Kept) {
        let its = self.pairs.get(&pair).filter(|its| its.len() >= OF_PAIR);
        let oldest = match its.and_then(VecDeque::front) {
            Some((oldest, _)) => Some(*oldest),
            None if self.places.len() >= KEYS => self.places.keys().next().copied(),
            None => None,
        };
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        let pair = Arc::new(pair);
        let place = (kept.until, self.kept);
        self.kept += 1;
        self.places.insert(place, pair.clone());
        let its = self.pairs.entry(pair).or_default();
        its.push_back((place, Arc::new(kept)));
    }

    /// Removes the key of a place.
    fn remove(&mut self, place: Place) {
        let Some(pair) = self.places.remove(&place) else {
            return;
        };
        if let Some(its) = self.pairs.get_mut(&pair) {
            its.retain(|(other, _)| *other != place);
            if its.is_empty() {
                self.pairs.remove(&pair);
            }
        }
    }

    /// Removes the others. This looks at all keys: a reload does it, and no reactor.
    fn retain(&mut self, stays: impl Fn(&Pair, &Kept) -> bool) {
        let Self { pairs, places, .. } = self;
        pairs.retain(|pair, its| {
            its.retain(|(place, kept)| {
                let is_kept = stays(pair, kept);
                if !is_kept {
                    places.remove(place);
                }
                is_kept
            });
            !its.is_empty()
        });
    }

    /// Forgets keys whose time is over.
    fn forget(&mut self, now: Time) {
        for _ in 0..FORGOTTEN {
            match self.places.first_key_value() {
                Some((place, _)) if now >= place.0 => self.remove(*place),
                _ => return,
            }
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
        let host = |generated| (generated, Proof::Host);
        keys.keep(&parties, host(generated), Time(5));
        assert!(has(&keys, &name, 0));
        assert!(!has(&keys, &name, 1), "it has another secret now");
        assert!(!has(&keys, &name.replace("nqn.a", "nqn.b"), 0));
        let (_, other) = made("nqn.a", 2);
        assert!(!has(&keys, &other.name, 0), "another exchange's");
        let hour = 3_600_000_000_000;
        keys.begin(Time(5 + hour - 1));
        assert!(has(&keys, &name, 0));
        let later = other.name.clone();
        keys.keep(&parties, host(other), Time(5 + hour - 1));
        keys.begin(Time(5 + hour));
        assert!(!has(&keys, &name, 0));
        let places = keys.all().places.clone();
        assert_eq!(places.len(), 1, "the other one is forgotten");
        assert_eq!(places.keys().next(), Some(&(Time(5 + hour - 1 + hour), 1)));
        let hosts = |secret| BTreeMap::from([("nqn.a".to_owned(), secret)]);
        keys.retain(&hosts(secret(0)));
        assert!(has(&keys, &later, 0));
        for hosts in [hosts(secret(1)), BTreeMap::new()] {
            let (parties, generated) = made("nqn.a", 3);
            keys.keep(&parties, host(generated), Time(5 + hour));
            keys.retain(&hosts);
            let all = keys.all();
            assert!(all.pairs.is_empty() && all.places.is_empty());
        }
    }

    fn pair(host: usize) -> Pair {
        (host.to_string(), SUBSYSTEM.to_owned())
    }

    /// Keeps a key of a host until then.
    fn add(all: &mut All, psk: &Arc<TlsPsk>, host: usize, until: u64) {
        let kept = Kept {
            name: until.to_string(),
            psk: psk.clone(),
            proof: Proof::Host,
            secret: secret(0),
            until: Time(until),
        };
        all.add(pair(host), kept);
    }

    /// When the keys of a host end.
    fn ends(all: &All, host: usize) -> Vec<u64> {
        all.of(&pair(host)).map(|kept| kept.until.0).collect()
    }

    #[test]
    fn keys_are_few_for_one_pair_and_in_all() {
        let psk = Arc::new(made("nqn.a", 1).1.psk);
        let mut all = All::default();
        let mut time = 0;
        let mut add = |all: &mut All, host: usize| {
            time += 1;
            add(all, &psk, host, time);
        };
        // One key of host 0, and too many of host 1.
        add(&mut all, 0);
        for _ in 0..=OF_PAIR {
            add(&mut all, 1);
        }
        let limit = u64::try_from(OF_PAIR).unwrap();
        assert_eq!(ends(&all, 1), (3..limit + 3).collect::<Vec<_>>());
        assert_eq!((ends(&all, 0), all.places.len()), (vec![1], OF_PAIR + 1));
        for host in 2.. {
            if all.places.len() == KEYS {
                break;
            }
            add(&mut all, host);
        }
        // The oldest of all gives way, with its pair where that has no other.
        add(&mut all, KEYS);
        assert_eq!((ends(&all, 0), all.places.len()), (vec![], KEYS));
        assert_eq!(ends(&all, 1).len(), OF_PAIR);
        add(&mut all, KEYS);
        assert_eq!((ends(&all, 1)[0], all.places.len()), (4, KEYS));
        assert_eq!((ends(&all, 2).len(), ends(&all, KEYS).len()), (1, 2));
        assert!(all.pairs.values().all(|keys| !keys.is_empty()));
    }

    /// Reactors keep keys at times that differ a little.
    #[test]
    fn keys_are_forgotten_in_the_order_of_their_ends() {
        let psk = Arc::new(made("nqn.a", 1).1.psk);
        let mut all = All::default();
        for (host, until) in [(0, 9), (1, 7), (0, 8), (1, 8)] {
            add(&mut all, &psk, host, until);
        }
        for (now, of_0, of_1) in [
            (6, vec![9, 8], vec![7, 8]),
            (7, vec![9, 8], vec![8]),
            (8, vec![9], vec![]),
            (9, vec![], vec![]),
        ] {
            all.forget(Time(now));
            assert_eq!((ends(&all, 0), ends(&all, 1)), (of_0, of_1), "{now}");
        }
        assert!(all.pairs.is_empty() && all.places.is_empty());
        // Many at once take several calls.
        for host in 0..=FORGOTTEN {
            add(&mut all, &psk, host, 10);
        }
        all.forget(Time(10));
        assert_eq!(all.places.len(), 1);
        all.forget(Time(10));
        assert!(all.pairs.is_empty());
    }
}
