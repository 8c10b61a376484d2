//! The first bytes of a connection to an entrance with TLS, whose sender has no key.
//!
//! Found would be: a panic, also on the thread of handshakes; a search for a key that fails; names
//! and binders of a ClientHello that another reader does not find; and a connection that is let
//! through.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use authentication::{TlsIdentity, TlsKey};
use port::time::Time;
use tls::Offer;
use transport::nvme_tcp::{
    Access, Allowed, Digests, End, GeneratedKeys, Greeted, Greeting, Success, TargetConfig, Tls,
    powers,
};
use transport::secure::handshakes;

/// Content type of a record with a message of a handshake.
const HANDSHAKE: u8 = 22;
/// Extension type of pre_shared_key.
const PRE_SHARED_KEY: usize = 41;
/// Names that the server looks at.
const OFFERS_MAX: usize = 8;
/// Bytes that are sent at most.
const SENT_MAX: usize = 32 << 10;
/// In which a thread answers.
const BOUND: Duration = Duration::from_secs(10);
const HOSTNQN: &str = "nqn.2014-08.org.example:host";
const SUBNQN: &str = "nqn.2014-08.org.example:fuzz";
const DISCOVERY: &str = "nqn.2014-08.org.example:discovery";
/// The bytes 0 to 31.
const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    first: First,
    /// Bytes that are changed then.
    changes: Vec<(u16, u8)>,
    /// More bytes, such as a recorded hello.
    rest: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum First {
    Nothing,
    /// A record whose lengths are right.
    Record(Vec<u8>),
    /// A ClientHello that is right, except for its binders.
    Hello {
        session_id: u8,
        extensions: Vec<(u8, Vec<u8>)>,
        names: Vec<(Name, Vec<u8>)>,
    },
}

#[derive(Arbitrary, Debug)]
enum Name {
    /// That of the host's key, of version 0.
    Zero,
    /// The same, of version 1.
    One,
    /// That of a key that both sides have made, which the server does not have.
    Generated,
    /// That of a key for the discovery subsystem.
    Discovery,
    Other(Vec<u8>),
}

impl Name {
    fn bytes(&self) -> Vec<u8> {
        let key = TlsKey::read(KEY).expect("it is a key");
        let of = |subnqn| key.of(HOSTNQN, subnqn).expect("it has a name").0;
        let name = match self {
            Self::Zero => format!("NVMe0R01 {HOSTNQN} {SUBNQN}"),
            Self::One => of(SUBNQN),
            Self::Generated => of(SUBNQN).replace("NVMe1R", "NVMe1G"),
            Self::Discovery => of(DISCOVERY),
            Self::Other(bytes) => return bytes.clone(),
        };
        name.into_bytes()
    }
}

/// A vector behind its length of `len` bytes.
fn vector(len: usize, bytes: &[u8]) -> Vec<u8> {
    let count = bytes.len().to_be_bytes();
    [&count[count.len() - len..], bytes].concat()
}

fn extension(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[0, kind][..], &vector(2, bytes)].concat()
}

fn hello(session_id: u8, more: &[(u8, Vec<u8>)], names: &[(Name, Vec<u8>)]) -> Vec<u8> {
    let share = [&[0, 29][..], &vector(2, &[9; 32])].concat();
    // supported_versions, supported_groups, psk_key_exchange_modes, key_share.
    let mut extensions = [
        extension(43, &vector(1, &[3, 4])),
        extension(10, &vector(2, &[0, 29])),
        extension(45, &vector(1, &[1])),
        extension(51, &vector(2, &share)),
    ]
    .concat();
    for (kind, bytes) in more {
        extensions.extend(extension(*kind, bytes));
    }
    if !names.is_empty() {
        let (mut identities, mut binders) = (Vec::new(), Vec::new());
        for (name, binder) in names {
            identities.extend([vector(2, &name.bytes()), vec![0; 4]].concat());
            let mut binder = binder.clone();
            binder.resize(binder.len().clamp(32, 255), 0);
            binders.extend(vector(1, &binder));
        }
        let keys = [vector(2, &identities), vector(2, &binders)].concat();
        extensions.extend(extension(41, &keys));
    }
    let body = [
        &[3, 3][..],
        &[7; 32],
        &vector(1, &vec![5; usize::from(session_id % 33)]),
        &vector(2, &[0x13, 1, 0x13, 2]),
        &vector(1, &[0]),
        &vector(2, &extensions),
    ]
    .concat();
    [&[1][..], &vector(3, &body)].concat()
}

impl Input {
    fn bytes(&self) -> Vec<u8> {
        let record = |message: &[u8]| [&[HANDSHAKE, 3, 1][..], &vector(2, message)].concat();
        let mut bytes = match &self.first {
            First::Nothing => Vec::new(),
            First::Record(message) => record(message),
            First::Hello {
                session_id,
                extensions,
                names,
            } => record(&hello(*session_id, extensions, names)),
        };
        for &(at, by) in &self.changes {
            if let Some(byte) = bytes.get_mut(usize::from(at)) {
                *byte ^= by;
            }
        }
        bytes.extend(&self.rest);
        bytes.truncate(SENT_MAX);
        bytes
    }
}

/// An entrance for a host with a key, and a thread for handshakes.
static ENTRANCE: LazyLock<Arc<TargetConfig>> = LazyLock::new(|| {
    let host = Allowed {
        tls: Some(Arc::new(TlsKey::read(KEY).expect("it is a key"))),
        ..Allowed::default()
    };
    let hosts = BTreeMap::from([(HOSTNQN.to_owned(), host)]);
    let access = Access::of(hosts, powers().0, GeneratedKeys::default());
    let (handshakes, handshaker) = handshakes().unwrap();
    thread::spawn(move || handshaker.run());
    let tls = Tls::new(&access, SUBNQN, DISCOVERY, handshakes).unwrap();
    Arc::new(TargetConfig {
        name: "t".into(),
        subnqn: SUBNQN.into(),
        discovery_nqn: DISCOVERY.into(),
        access,
        tls: Some(tls),
        queues: 1,
        queue_depth: 32,
        max_transfer: 4096,
        in_capsule: 4096,
        digests: Digests::new(),
        success: Success::AsSpecified,
        slots: 4096,
    })
});

/// Each connection comes from another network, so that none waits for a place.
static CALLED: AtomicU32 = AtomicU32::new(0);

/// What becomes of a connection that has sent these bytes, and sends no more. `None`: it waits for
/// more, or is no connection of TLS.
fn end_of(bytes: &[u8]) -> Option<End> {
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let address = Ipv4Addr::from_bits(CALLED.fetch_add(1, Ordering::Relaxed));
    let from = SocketAddr::from((address, 1));
    let mut greeting = Greeting::new(ours.into(), from, ENTRANCE.clone(), Time(0)).unwrap();
    let until = Instant::now() + BOUND;
    loop {
        let next = match greeting.poll(Time(1)) {
            Ok(Some(next)) => next,
            Ok(None) if greeting.is_shaking() => {
                assert!(Instant::now() < until, "the handshake does not end");
                thread::sleep(Duration::from_micros(20));
                continue;
            }
            Ok(None) => return None,
            Err(end) => return Some(end),
        };
        greeting = match greeting.go_on(next, Time(1)) {
            Ok(Greeted::Greeting(greeting)) => greeting,
            Ok(Greeted::Newcomer(_)) => {
                assert_ne!(bytes.first(), Some(&HANDSHAKE), "it has no key");
                return None;
            }
            Err(end) => return Some(end),
        };
    }
}

/// Names and binders of a message, by offsets in it.
fn offers(message: &[u8]) -> Option<Vec<Offer<'_>>> {
    let number = |at: usize, len: usize, end: usize| {
        let bytes = message[..end.min(message.len())].get(at..at + len)?;
        Some(
            bytes
                .iter()
                .fold(0, |all, byte| all * 256 + usize::from(*byte)),
        )
    };
    let all = message.len();
    if number(0, 1, all)? != 1 || number(1, 3, all)? + 4 != all {
        return None;
    }
    let suites = 39 + number(38, 1, all)?;
    let methods = suites + 2 + number(suites, 2, all)?;
    let extensions = methods + 1 + number(methods, 1, all)?;
    if extensions + 2 + number(extensions, 2, all)? != all {
        return None;
    }
    let mut at = extensions + 2;
    while number(at, 2, all)? != PRE_SHARED_KEY {
        at += 4 + number(at + 2, 2, all)?;
    }
    let mut name = at + 6;
    let binders = name + number(at + 4, 2, all)?;
    let mut binder = binders + 2;
    if at + 4 + number(at + 2, 2, all)? != all || binder + number(binders, 2, all)? != all {
        return None;
    }
    let mut found = Vec::new();
    while name < binders && found.len() < OFFERS_MAX {
        let name_end = name + 2 + number(name, 2, binders)?;
        let binder_end = binder + 1 + number(binder, 1, all)?;
        if name_end + 4 > binders || binder_end > all {
            return None;
        }
        found.push(Offer {
            identity: &message[name + 2..name_end],
            hello: &message[..binders],
            binder: &message[binder + 1..binder_end],
        });
        (name, binder) = (name_end + 4, binder_end);
    }
    Some(found)
}

/// What a name says, if it is one of a key.
fn check_name(name: &[u8]) {
    let Some(identity) = TlsIdentity::parse(name) else {
        return;
    };
    assert_eq!(identity.name().as_bytes(), name);
    let start = format!("{} {} ", identity.hostnqn(), identity.subnqn());
    let text = [&name[9..], b" "].concat();
    assert!(text.starts_with(start.as_bytes()), "{identity:?}");
    assert_eq!(name[5] == b'G', identity.is_generated());
}

pub(crate) fn run(input: Input) {
    let bytes = input.bytes();
    if let Some(end) = end_of(&bytes) {
        let end = end.to_string();
        assert!(!end.contains("the search for the key failed"), "{input:?}");
    }
    let message = bytes.get(5..).unwrap_or_default();
    let found = tls::offers(message);
    assert_eq!(found, offers(message), "{input:?}");
    for offer in found.into_iter().flatten() {
        check_name(offer.identity);
        if let Some(identity) = TlsIdentity::parse(offer.identity) {
            let psks = TlsKey::read(KEY).expect("it is a key").psks(&identity);
            let mut bound = psks.iter().map(|psk| psk.binds(offer.hello, offer.binder));
            assert!(!bound.any(|is_bound| is_bound), "{input:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hellos that this target makes are those that a key is looked for by.
    #[test]
    fn a_hello_without_the_key_gets_as_far_as_the_search() {
        let end = |names: Vec<(Name, Vec<u8>)>| {
            let first = First::Hello {
                session_id: 32,
                extensions: vec![(99, vec![1])],
                names,
            };
            let input = Input {
                first,
                changes: Vec::new(),
                rest: Vec::new(),
            };
            end_of(&input.bytes()).map(|end| end.name())
        };
        for (name, expected) in [
            (Name::Zero, "tls-key"),
            (Name::One, "tls-key"),
            (Name::Discovery, "tls-key"),
            (Name::Generated, "tls-identity"),
            (Name::Other(b"none".to_vec()), "tls-identity"),
        ] {
            assert_eq!(end(vec![(name, vec![1; 32])]), Some(expected));
        }
        assert_eq!(end(Vec::new()), Some("tls-protocol"));
    }
}
