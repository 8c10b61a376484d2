//! Identity of this process for targets: a host identifier, and the host NQN with the same UUID or
//! the one that its user has given, with secrets.

use std::io;
use std::sync::{Arc, OnceLock};

use authentication::{Randomness, Secret, TlsKey};
use nvme_spec::fabrics::NQN_SIZE;
use nvme_spec::tcp::Digests;

use super::stream::Channel;

/// A host.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Host Identifier: a UUID.
    pub(super) id: [u8; 16],
    /// Host NQN, null terminated.
    pub(super) nqn: [u8; NQN_SIZE],
    /// Secret that it proves to know, where a target asks for that.
    pub(super) secret: Option<Arc<Secret>>,
    /// Secret that the controller is to prove to know.
    pub(super) controller: Option<Arc<Secret>>,
    /// Its key of TLS: it connects through TLS.
    pub(super) tls: Option<Arc<TlsKey>>,
    /// It makes a key of TLS with the controller, and connects through TLS with that.
    pub(super) concatenates: bool,
    /// Digests that it asks targets for: CRC32C of headers and of data.
    pub(super) digests: Digests,
}

/// Hosts are the same where their names are: secrets only prove them.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.nqn) == (other.id, other.nqn)
    }
}

impl Eq for Identity {}

static OURS: OnceLock<Identity> = OnceLock::new();

impl Identity {
    /// The identity of this process: one random UUID, so that all its controllers have one host.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn of_process() -> io::Result<&'static Self> {
        if let Some(ours) = OURS.get() {
            return Ok(ours);
        }
        let random = random()?;
        Ok(OURS.get_or_init(|| Self::of_random(random)))
    }

    /// This process as a second host, with a Host Identifier of its own.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn another() -> io::Result<Self> {
        let mut another = Self::of_process()?.clone();
        another.id = Self::of_random(random()?).id;
        Ok(another)
    }

    /// A host with a random identifier and, where they are given, another NQN and secrets.
    ///
    /// # Errors
    /// The NQN is none, there is a secret of the controller's alone, or the system has no random
    /// numbers.
    pub fn new(
        nqn: Option<&str>,
        secret: Option<Secret>,
        controller: Option<Secret>,
    ) -> Result<Self, String> {
        let random = random().map_err(|error| format!("no random numbers: {error}"))?;
        let mut new = Self::of_random(random);
        if let Some(nqn) = nqn {
            if !nqn.starts_with("nqn.") || nqn.len() >= NQN_LEN || nqn.contains('\0') {
                return Err(format!(
                    "`{}` is not a host NQN: write nqn.… with at most {} bytes",
                    nqn.escape_debug(),
                    NQN_LEN - 1
                ));
            }
            new.nqn = terminated(nqn);
        }
        if secret.is_none() && controller.is_some() {
            return Err(
                "a controller authenticates itself only to hosts that do: give the host's secret, too"
                    .to_owned(),
            );
        }
        (new.secret, new.controller) = (secret.map(Arc::new), controller.map(Arc::new));
        Ok(new)
    }

    /// As this host, through TLS with this key.
    #[must_use]
    pub fn with_tls(self, key: TlsKey) -> Self {
        let tls = Some(Arc::new(key));
        Self { tls, ..self }
    }

    /// As this host, which makes a key of TLS with each controller by DH-HMAC-CHAP (secure channel
    /// concatenation), and connects through TLS with that.
    ///
    /// # Errors
    /// It has no secret, or a key of TLS.
    pub fn with_concatenation(self) -> Result<Self, String> {
        if self.secret.is_none() || self.tls.is_some() {
            return Err(
                "a key of TLS is made by DH-HMAC-CHAP: give the host's secret, and no key of TLS"
                    .to_owned(),
            );
        }
        Ok(Self {
            concatenates: true,
            ..self
        })
    }

    /// How its connections are protected, where no key is made.
    pub(super) fn channel(&self) -> Channel {
        let key = self.tls.clone();
        key.map_or(Channel::Plain, Channel::Key)
    }

    /// This host with digests of headers and of data, which its targets have to agree to.
    #[must_use]
    pub fn with_digests(mut self, header: bool, data: bool) -> Self {
        self.digests = Digests::new().with_header(header).with_data(data);
        self
    }

    /// Makes this the identity of the process, before it connects for the first time. False: it has
    /// one.
    pub fn assume(self) -> bool {
        OURS.set(self).is_ok()
    }

    /// The host NQN.
    pub(super) fn name(&self) -> &str {
        nvme_spec::fabrics::text_of(&self.nqn).unwrap_or_default()
    }

    /// The identity of these random bytes: version 4, variant 1 (RFC 9562, 5.4).
    fn of_random(random: [u8; 16]) -> Self {
        let mut id = random;
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        let mut text = String::from("nqn.2014-08.org.nvmexpress:uuid:");
        for (index, byte) in id.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        Self {
            id,
            nqn: terminated(&text),
            secret: None,
            controller: None,
            tls: None,
            concatenates: false,
            digests: Digests::new(),
        }
    }
}

/// Bytes of an NQN with its zero, of which a host NQN has fewer (Base 2.1, 4.7).
const NQN_LEN: usize = 224;

/// Random bytes of the system.
fn random<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut random = [0; LEN];
    let mut filled = 0;
    while filled < LEN {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut random[filled..], flags)?;
    }
    Ok(random)
}

/// Random numbers of one exchange.
pub(super) fn randomness() -> io::Result<Randomness> {
    Ok(Randomness::new(&random()?))
}

/// An NQN in a field of Connect's data.
///
/// # Panics
/// It is too long for it.
pub(super) fn terminated(nqn: &str) -> [u8; NQN_SIZE] {
    assert!(nqn.len() < NQN_SIZE, "an NQN has at most 223 bytes");
    let mut field = [0; NQN_SIZE];
    field[..nqn.len()].copy_from_slice(nqn.as_bytes());
    field
}

#[cfg(test)]
mod tests {
    use nvme_spec::fabrics::text_of;

    use super::*;

    #[test]
    fn a_host_is_named_by_a_random_uuid() {
        let identity = Identity::of_random([0xff; 16]);
        assert_eq!(
            text_of(&identity.nqn),
            Some("nqn.2014-08.org.nvmexpress:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff")
        );
        assert_eq!((identity.id[6], identity.id[8]), (0x4f, 0xbf));
        let ours = Identity::of_process().unwrap();
        assert_ne!(ours.id, [0; 16]);
        assert_eq!(ours.id, Identity::of_process().unwrap().id, "one identity");
        let another = Identity::another().unwrap();
        assert_eq!(another.nqn, ours.nqn);
        assert_ne!(another.id, ours.id);
    }
}
