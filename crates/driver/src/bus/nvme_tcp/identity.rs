//! Who this process is to targets: a host identifier, and the host NQN with the same UUID.

use std::io;
use std::sync::OnceLock;

use nvme_spec::fabrics::NQN_SIZE;

/// A host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    /// Host Identifier: a UUID.
    pub(super) id: [u8; 16],
    /// Host NQN, null terminated.
    pub(super) nqn: [u8; NQN_SIZE],
}

impl Identity {
    /// The identity of this process: one random UUID, so that all its controllers have one host.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn of_process() -> io::Result<&'static Self> {
        static OURS: OnceLock<Identity> = OnceLock::new();
        if let Some(ours) = OURS.get() {
            return Ok(ours);
        }
        let mut random = [0; 16];
        let mut filled = 0;
        while filled < random.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut random[filled..], flags)?;
        }
        Ok(OURS.get_or_init(|| Self::of_random(random)))
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
        }
    }
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
    }
}
