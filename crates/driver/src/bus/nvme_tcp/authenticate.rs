//! DH-HMAC-CHAP after Connect of a queue (Base 2.1, 8.3.5): this host proves that it knows
//! its secret, and the controller that it knows its own.

use std::sync::Arc;

use authentication::{Failed, Generated, Group, Hash, HostSide, Parties, Secret};
use nvme_spec::Sqe;
use nvme_spec::fabrics::{AuthenticationCdw10, FabricsType, SECP_NVME};
use nvme_spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::Psdt;
use nvme_tcp::Encoder;

use super::identity::{Identity, randomness};
use super::talk::{Said, Talk, capsule_with};
use crate::DriverError;

/// Bytes of the data of Authentication Receive: as Linux has them.
const RECEIVED: u32 = 4096;
/// Sub type of the descriptor of data that travel beside the capsule (TCP 1.1, 3.3.2.1).
const TRANSPORT: SglDescriptorSubType = SglDescriptorSubType(0xa);

/// Does what a target `asks`, and what this host wants of the controller.
///
/// # Errors
/// One of both has no secret, or another one.
pub(super) fn authenticate(
    talk: &mut Talk<'_>,
    encoder: &Encoder,
    identity: &Identity,
    asks: bool,
) -> Result<(), DriverError> {
    let secret = match &identity.secret {
        None if asks => {
            return Err(talk.refused(
                "the target requires authentication (DH-HMAC-CHAP): write --hostnqn, and --dhchap-key FILE with that host's secret".to_owned(),
            ));
        }
        // A target that asks for nothing proves nothing.
        Some(_) if !asks && identity.controller.is_some() => {
            return Err(talk.refused(
                "the target does not ask for authentication, and so does not authenticate itself; give it the secrets of this host, or leave out --dhchap-ctrl-key".to_owned(),
            ));
        }
        Some(secret) if asks => secret.clone(),
        _ => return Ok(()),
    };
    exchange(talk, encoder, identity, (secret, false)).map(drop)
}

/// Makes a key of TLS with the controller, which asks for authentication.
///
/// # Errors
/// One of both has no secret, or another one; or the target makes no key.
pub(super) fn make_key(
    talk: &mut Talk<'_>,
    encoder: &Encoder,
    identity: &Identity,
) -> Result<Generated, DriverError> {
    let secret = identity.secret.clone();
    let secret = secret.expect("a host that makes keys has a secret");
    let generated = exchange(talk, encoder, identity, (secret, true))?;
    Ok(generated.expect("an exchange for a key has one when it has succeeded"))
}

/// A whole exchange, and the key where one is made.
fn exchange(
    talk: &mut Talk<'_>,
    encoder: &Encoder,
    identity: &Identity,
    (secret, concatenates): (Arc<Secret>, bool),
) -> Result<Option<Generated>, DriverError> {
    let parties = Parties {
        hostnqn: identity.name().to_owned(),
        subnqn: talk.target.nqn().to_owned(),
        host: secret,
        controller: identity.controller.clone(),
    };
    let random = randomness().map_err(|source| DriverError::System {
        what: "get random numbers",
        source,
    })?;
    let mut messages = Messages {
        talk,
        encoder,
        cid: 0,
        concatenates,
    };
    let mut side = HostSide::new(parties, random, 1, &Hash::ALL, &Group::ALL);
    if concatenates {
        side = side.concatenating();
    }
    messages.put(&side.negotiate())?;
    let reply = side.reply(&messages.fetch()?);
    let reply = messages.or_end(&side, reply)?;
    messages.put(&reply)?;
    let last = side.finish(&messages.fetch()?);
    if let Some(last) = messages.or_end(&side, last)? {
        messages.put(&last)?;
    }
    Ok(side.take_generated())
}

/// The commands that carry messages.
struct Messages<'a, 'b> {
    talk: &'a mut Talk<'b>,
    encoder: &'a Encoder,
    cid: u16,
    /// The exchange is for a key.
    concatenates: bool,
}

impl Messages<'_, '_> {
    fn command(&mut self, kind: FabricsType, len: u32, sgl: SglIdentifier) -> Sqe {
        self.cid += 1;
        let mut sqe = Sqe::fabrics(kind);
        sqe.cid = self.cid;
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        sqe.set_sgl1(SglDescriptor {
            length: len,
            identifier: sgl,
            ..SglDescriptor::default()
        });
        let cdw10 = AuthenticationCdw10::new().with_spsp0(1).with_spsp1(1);
        sqe.cdw10 = cdw10.with_secp(SECP_NVME).into();
        sqe.cdw11 = len;
        sqe
    }

    fn put(&mut self, message: &[u8]) -> Result<(), DriverError> {
        let len = u32::try_from(message.len()).expect("messages are short");
        let sgl = SglIdentifier::new()
            .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
            .with_sub_type(SglDescriptorSubType::OFFSET);
        let sqe = self.command(FabricsType::AUTHENTICATION_SEND, len, sgl);
        let capsule = capsule_with(self.encoder, &sqe, message);
        let what = "the answer to Authentication Send";
        self.run(&capsule, what, 0).map(drop)
    }

    fn fetch(&mut self) -> Result<Vec<u8>, DriverError> {
        let sgl = SglIdentifier::new()
            .with_descriptor_type(SglDescriptorType::TRANSPORT_DATA_BLOCK)
            .with_sub_type(TRANSPORT);
        let sqe = self.command(FabricsType::AUTHENTICATION_RECEIVE, RECEIVED, sgl);
        let capsule = self.encoder.capsule(&sqe, 0).to_vec();
        let what = "the answer to Authentication Receive";
        self.run(&capsule, what, RECEIVED as usize)
    }

    fn run(
        &mut self,
        capsule: &[u8],
        what: &'static str,
        most: usize,
    ) -> Result<Vec<u8>, DriverError> {
        self.talk.send(capsule)?;
        let mut data = Vec::new();
        match self.talk.receive_data(what, &mut data, most)? {
            Said::Completed(cqe) if cqe.cid == self.cid => {
                DriverError::check("authentication", cqe.status.status())?;
                Ok(data)
            }
            _ => Err(self
                .talk
                .refused("it answers a command that was not sent".to_owned())),
        }
    }

    /// Reports a failure to the target, and to the user.
    fn or_end<T>(&mut self, side: &HostSide, result: Result<T, Failed>) -> Result<T, DriverError> {
        result.map_err(|failed| {
            // The target may have closed the connection: the failure is known.
            let _ = self.put(&side.failure(failed));
            if failed == Failed::Concatenation {
                let reason = if self.concatenates {
                    "the target does not make a key of TLS with this host (secure channel concatenation), which --concat or concat = true asks for; its system may have no OpenSSL 3"
                } else {
                    "the target requires a key of TLS that both sides make (secure channel concatenation); write --concat, or concat = true"
                };
                return self.talk.refused(reason.to_owned());
            }
            self.talk.refused(format!(
                "authentication failed ({failed}); check the secrets of the host {} here (--dhchap-key, --dhchap-ctrl-key) and there",
                side.host_nqn()
            ))
        })
    }
}
