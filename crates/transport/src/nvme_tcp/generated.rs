//! Keys of TLS that hosts and controllers have made by DH-HMAC-CHAP (secure channel concatenation).
//!
//! A key is kept from the end of its exchange on, for the connections that its host opens next. It
//! is good for [`LIFETIME_NS`], and for as long as its host has the secret that it has proved in
//! that exchange: one that was replaced or removed takes the keys that were made by it with it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};

use authentication::{Generated, Parties, Secret, TlsIdentity, TlsPsk};
use port::time::Time;

/// How long a key is good for, from the end of its exchange on; Linux has the same.
const LIFETIME_NS: u64 = 3_600_000_000_000;
/// Pairs of a host and a subsystem that have keys at most. Beyond them the pair whose newest key is
/// the oldest loses its keys.
const PAIRS: usize = 4096;
/// Keys of a pair at most, of which the oldest gives way: one for each path on which a host
/// connects at the same time.
const OF_PAIR: usize = 8;

/// Host NQN and subsystem NQN.
type Pair = (String, String);

#[derive(Debug)]
struct Kept {
    name: String,
    psk: TlsPsk,
    /// What the host has proved that it knows.
    secret: Arc<Secret>,
    until: Time,
}

#[derive(Debug, Default)]
struct All {
    /// The oldest key comes first.
    pairs: BTreeMap<Pair, Vec<Kept>>,
    /// No key ends before.
    next: Option<Time>,
}

/// See the module. All that serve a subsystem share one.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::disallowed_types,
    reason = "no command takes it: exchanges and handshakes do"
)]
pub struct GeneratedKeys(Arc<std::sync::Mutex<All>>);

impl GeneratedKeys {
    /// A panic elsewhere leaves whole keys.
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the key that these parties have made.
    pub(super) fn keep(&self, parties: &Parties, generated: Generated, now: Time) {
        let Generated { name, psk } = generated;
        let until = now + LIFETIME_NS;
        let kept = Kept {
            name,
            psk,
            secret: parties.host.clone(),
            until,
        };
        let mut all = self.all();
        all.forget(now);
        all.next = Some(all.next.map_or(until, |next| next.min(until)));
        let is_full = all.pairs.len() >= PAIRS;
        let oldest = || {
            let newest = |(_, keys): &(&Pair, &Vec<Kept>)| keys.last().map(|kept| kept.until);
            all.pairs.iter().min_by_key(newest).map(|(pair, _)| pair)
        };
        let oldest = is_full.then(oldest).flatten().cloned();
        let pair = (parties.hostnqn.clone(), parties.subnqn.clone());
        match all.pairs.entry(pair) {
            Entry::Occupied(mut keys) => {
                let keys = keys.get_mut();
                if keys.len() >= OF_PAIR {
                    keys.remove(0);
                }
                keys.push(kept);
            }
            Entry::Vacant(keys) => {
                keys.insert(vec![kept]);
                if let Some(oldest) = oldest {
                    all.pairs.remove(&oldest);
                }
            }
        }
    }

    /// Forgets the keys whose time is over.
    pub(super) fn forget(&self, now: Time) {
        self.all().forget(now);
    }

    /// What `found` makes of the key of this name, if the host has this secret still.
    pub(super) fn find<T>(
        &self,
        identity: &TlsIdentity<'_>,
        secret: &Secret,
        found: impl FnOnce(&TlsPsk) -> T,
    ) -> Option<T> {
        let pair = (identity.hostnqn().to_owned(), identity.subnqn().to_owned());
        let all = self.all();
        let mut keys = all.pairs.get(&pair)?.iter();
        let kept = keys.find(|kept| kept.name == identity.name())?;
        kept.secret.is_same(secret).then(|| found(&kept.psk))
    }
}

impl All {
    fn forget(&mut self, now: Time) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.pairs.retain(|_, keys| {
            keys.retain(|kept| now < kept.until);
            !keys.is_empty()
        });
        let keys = self.pairs.values().flatten();
        self.next = keys.map(|kept| kept.until).min();
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
        keys.find(&identity, &secret(of), |psk| psk.bytes().len()) == Some(32)
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
        keys.forget(Time(5 + hour - 1));
        assert!(has(&keys, &name, 0));
        keys.keep(&parties, other, Time(5 + hour - 1));
        keys.forget(Time(5 + hour));
        assert!(!has(&keys, &name, 0));
        assert_eq!(keys.all().next, Some(Time(5 + hour - 1 + hour)));
        keys.forget(Time(u64::MAX));
        assert!(keys.all().pairs.is_empty());
    }

    #[test]
    fn keys_are_few_for_one_pair_and_in_all() {
        let keys = GeneratedKeys::default();
        let (parties, first) = made("nqn.a", 1);
        let mut names = vec![first.name.clone()];
        keys.keep(&parties, first, Time(0));
        let limit = u8::try_from(OF_PAIR).unwrap();
        for seed in 2..=limit + 1 {
            let (parties, generated) = made("nqn.a", seed);
            names.push(generated.name.clone());
            keys.keep(&parties, generated, Time(seed.into()));
        }
        assert!(!has(&keys, &names[0], 0), "the oldest gave way");
        assert!(names[1..].iter().all(|name| has(&keys, name, 0)));
        // Pairs whose newest key is older than all others.
        for number in 1..PAIRS {
            let pair = (format!("nqn.x{number}"), SUBSYSTEM.to_owned());
            keys.all().pairs.insert(pair, Vec::new());
        }
        let (parties, generated) = made("nqn.b", 9);
        let name = generated.name.clone();
        keys.keep(&parties, generated, Time(200));
        assert!(has(&keys, &name, 0) && has(&keys, &names[1], 0));
        assert_eq!(keys.all().pairs.len(), PAIRS);
    }
}
