//! The controller's side of an exchange: a state machine that is given the messages of its host,
//! and asked for its own.
//!
//! ```text
//! Negotiate -> (2^x) -> Challenge -> Reply -> (y^x) -> Success1 [-> Success2] -> Authenticated
//!      any of them --------------------------------> Failure1 -> Failed
//! ```
//!
//! Powers take long: they are [`Work`] that another thread does. There is one at a time.

use nvme_spec::authentication::{
    AuthHeader, AuthId, Challenge, Concatenation, DhGroupId, HashId, Negotiate,
    PROTOCOL_DH_HMAC_CHAP, ProtocolDescriptor, Reply, Success1, Success2,
};
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use crate::group::Group;
use crate::hash::{Hash, same};
use crate::message::{Failed, expect, header, reported, take};
use crate::proof::Terms;
use crate::tls::Generated;
use crate::{EXPONENT_MAX, Parties, Randomness};

/// A power that is to be computed.
pub struct Work {
    group: Group,
    exponent: Zeroizing<[u8; EXPONENT_MAX]>,
    /// The host's value; `None`: the generator is the base.
    peer: Option<Vec<u8>>,
}

/// A power that was computed.
pub struct Worked(Option<Zeroizing<Vec<u8>>>);

impl Worked {
    /// Work that came to nothing: the exchange fails.
    #[must_use]
    pub fn failed() -> Self {
        Self(None)
    }
}

impl Work {
    /// Computes it: milliseconds.
    #[must_use]
    pub fn run(self) -> Worked {
        Worked(match &self.peer {
            None => Some(Zeroizing::new(self.group.public(&self.exponent[..]))),
            Some(peer) => self.group.shared(peer, &self.exponent[..]),
        })
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work({:?})", self.group)
    }
}

impl std::fmt::Debug for Worked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Worked")
    }
}

/// Message of the controller for its host.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This message.
    Message(Vec<u8>),
    /// A message when the work is done.
    Later,
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The host has proved nothing yet.
    Pending,
    /// The host has proved that it knows its secret; with `both`, it has taken the controller's
    /// proof, too.
    Authenticated {
        /// Whether the controller has authenticated itself.
        both: bool,
    },
    /// It has failed, and the host knows.
    Failed(Failed),
}

/// Whether a controller makes a key of TLS with its host (secure channel concatenation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concatenates {
    /// It does not.
    #[default]
    Never,
    /// Where its host asks for that.
    WhenAsked,
    /// Its host has to.
    Always,
}

/// Parameters that both sides have agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    hash: Hash,
    group: Group,
    sc_c: Concatenation,
}

/// The part of a reply that is needed when its work is done.
#[derive(Debug)]
struct Replied {
    response: Vec<u8>,
    /// The host's challenge and sequence number; that is 0 where the challenge is only for a key.
    challenge: Option<(Vec<u8>, u32)>,
}

#[derive(Debug)]
enum State {
    /// AUTH_Negotiate is to come.
    Start,
    /// The public value is being computed.
    Raising(Agreed),
    /// The challenge is to be fetched.
    Challenge(Agreed, Vec<u8>),
    /// The reply is to come.
    Challenged(Agreed),
    /// The shared value is being computed.
    Sharing(Agreed, Replied),
    /// The host has proved its secret; Success1 is to be fetched.
    Success(Vec<u8>, bool),
    /// The host's word on the controller's proof is to come.
    Proved,
    /// AUTH_Failure1 is to be fetched.
    Failing(Failed),
    Over(Outcome),
}

/// See the module.
#[derive(Debug)]
pub struct ControllerSide {
    parties: Parties,
    random: Randomness,
    t_id: u16,
    concatenates: Concatenates,
    state: State,
    generated: Option<Generated>,
}

impl ControllerSide {
    /// A side that waits for AUTH_Negotiate.
    #[must_use]
    pub fn new(parties: Parties, random: Randomness) -> Self {
        Self {
            parties,
            random,
            t_id: 0,
            concatenates: Concatenates::Never,
            state: State::Start,
            generated: None,
        }
    }

    /// This side, which makes a key of TLS with its host or not.
    #[must_use]
    pub fn concatenating(self, concatenates: Concatenates) -> Self {
        Self {
            concatenates,
            ..self
        }
    }

    /// Whether it makes a key of TLS.
    #[must_use]
    pub fn concatenates(&self) -> Concatenates {
        self.concatenates
    }

    /// Both parties.
    #[must_use]
    pub fn parties(&self) -> &Parties {
        &self.parties
    }

    /// The key that both sides have made, once, when its host has proved what it has to.
    pub fn take_generated(&mut self) -> Option<Generated> {
        match self.state {
            State::Over(Outcome::Authenticated { .. }) => self.generated.take(),
            _ => None,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.state {
            State::Over(outcome) => outcome,
            _ => Outcome::Pending,
        }
    }

    /// Takes a message of the host. Where that needs work, [`Self::worked`] is to be called with
    /// its result.
    pub fn take(&mut self, message: &[u8]) -> Option<Work> {
        match self.advance(message) {
            Ok(work) => work,
            Err(failed) => {
                // The host's own word needs no answer.
                let is_told = reported(message, AuthId::FAILURE2).is_some();
                self.state = if is_told || matches!(self.state, State::Over(_)) {
                    State::Over(Outcome::Failed(failed))
                } else {
                    State::Failing(failed)
                };
                None
            }
        }
    }

    fn advance(&mut self, message: &[u8]) -> Result<Option<Work>, Failed> {
        if let Some(failed) = reported(message, AuthId::FAILURE2) {
            return Err(failed);
        }
        match &self.state {
            State::Start => {
                let agreed = self.negotiate(message)?;
                self.state = State::Raising(agreed);
                Ok(self.work(agreed, None))
            }
            State::Challenged(agreed) => {
                let agreed = *agreed;
                let (replied, peer) = self.reply(message, agreed)?;
                self.state = State::Sharing(agreed, replied);
                Ok(self.work(agreed, Some(peer)))
            }
            State::Proved => {
                expect::<Success2>(message, AuthId::SUCCESS2, self.t_id)?;
                self.state = State::Over(Outcome::Authenticated { both: true });
                Ok(None)
            }
            // Linux sends it also where it has not asked for a proof: for a key, with a secret of
            // the controller.
            State::Over(Outcome::Authenticated { both: false })
                if self.concatenates != Concatenates::Never =>
            {
                expect::<Success2>(message, AuthId::SUCCESS2, self.t_id)?;
                Ok(None)
            }
            State::Failing(failed) => Err(*failed),
            _ => Err(Failed::Message),
        }
    }

    /// The work of a step; without a group there is none, and the step is done.
    fn work(&mut self, agreed: Agreed, peer: Option<Vec<u8>>) -> Option<Work> {
        if agreed.group == Group::Null {
            self.worked(Worked(Some(Zeroizing::default())));
            return None;
        }
        Some(Work {
            group: agreed.group,
            exponent: Zeroizing::new(self.random.exponent),
            peer,
        })
    }

    /// Takes the result of the work.
    pub fn worked(&mut self, worked: Worked) {
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Raising(agreed) => match worked.0 {
                Some(value) => State::Challenge(agreed, self.challenge(agreed, &value)),
                None => State::Failing(Failed::Authentication),
            },
            State::Sharing(agreed, replied) => match worked.0 {
                Some(shared) => self.prove(agreed, &replied, &shared),
                None => State::Failing(Failed::Payload),
            },
            // The host has broken off meanwhile.
            other => other,
        };
    }

    /// The next message for the host.
    pub fn next_message(&mut self) -> Next {
        let failed = match std::mem::replace(&mut self.state, State::Start) {
            State::Challenge(agreed, message) => {
                self.state = State::Challenged(agreed);
                return Next::Message(message);
            }
            State::Success(message, both) => {
                self.state = if both {
                    State::Proved
                } else {
                    State::Over(Outcome::Authenticated { both })
                };
                return Next::Message(message);
            }
            state @ (State::Raising(_) | State::Sharing(..)) => {
                self.state = state;
                return Next::Later;
            }
            State::Failing(failed) | State::Over(Outcome::Failed(failed)) => failed,
            _ => Failed::Message,
        };
        self.state = State::Over(Outcome::Failed(failed));
        Next::Message(failed.message(AuthId::FAILURE1, self.t_id))
    }

    fn negotiate(&mut self, message: &[u8]) -> Result<Agreed, Failed> {
        let (head, _) = AuthHeader::read_from_prefix(message).map_err(|_| Failed::Payload)?;
        self.t_id = head.t_id;
        let (negotiate, mut rest) = expect::<Negotiate>(message, AuthId::NEGOTIATE, self.t_id)?;
        match (negotiate.sc_c, self.concatenates) {
            (Concatenation::NONE, Concatenates::Never | Concatenates::WhenAsked)
            | (Concatenation::NEW_TLS_PSK, Concatenates::WhenAsked | Concatenates::Always) => {}
            _ => return Err(Failed::Concatenation),
        }
        for _ in 0..negotiate.napd {
            let bytes = take(&mut rest, size_of::<ProtocolDescriptor>())?;
            let offer = ProtocolDescriptor::read_from_bytes(bytes).map_err(|_| Failed::Payload)?;
            if offer.auth_id == PROTOCOL_DH_HMAC_CHAP {
                return choose(&offer, negotiate.sc_c);
            }
        }
        Err(Failed::Protocol)
    }

    fn challenge(&self, agreed: Agreed, value: &[u8]) -> Vec<u8> {
        let hl = agreed.hash.len();
        let head = Challenge {
            header: header(AuthId::CHALLENGE, self.t_id),
            hl,
            reserved_7: 0,
            hash_id: agreed.hash.id(),
            dhg_id: agreed.group.id(),
            dhvlen: agreed.group.len(),
            seqnum: self.random.sequence,
        };
        [head.as_bytes(), &self.random.challenge[..hl.into()], value].concat()
    }

    fn reply(&self, message: &[u8], agreed: Agreed) -> Result<(Replied, Vec<u8>), Failed> {
        let (reply, mut rest) = expect::<Reply>(message, AuthId::REPLY, self.t_id)?;
        if reply.hl != agreed.hash.len() || reply.dhvlen != agreed.group.len() {
            return Err(Failed::Payload);
        }
        let response = take(&mut rest, reply.hl.into())?.to_vec();
        let challenge = take(&mut rest, reply.hl.into())?.to_vec();
        let peer = take(&mut rest, reply.dhvlen.into())?.to_vec();
        let has_key = agreed.sc_c != Concatenation::NONE;
        let challenge = match reply.cvalid {
            0 if !has_key => None,
            // A host that sends back what it was asked asks for an answer that it could use.
            1 if challenge == self.random.challenge[..challenge.len()] => {
                return Err(Failed::Payload);
            }
            1 if reply.seqnum == 0 && !has_key => return Err(Failed::Payload),
            1 => Some((challenge, reply.seqnum)),
            _ => return Err(Failed::Payload),
        };
        let replied = Replied {
            response,
            challenge,
        };
        Ok((replied, peer))
    }

    /// Judges the host's response, and makes the controller's.
    fn prove(&mut self, agreed: Agreed, replied: &Replied, shared: &[u8]) -> State {
        let terms = Terms {
            hash: agreed.hash,
            shared: (agreed.group != Group::Null).then_some(shared),
            t_id: self.t_id,
            sc_c: agreed.sc_c,
            hostnqn: &self.parties.hostnqn,
            subnqn: &self.parties.subnqn,
        };
        let hl = agreed.hash.len();
        let challenge = &self.random.challenge[..hl.into()];
        let expected = terms.of_host(&self.parties.host, challenge, self.random.sequence);
        if !same(&expected, &replied.response) {
            return State::Failing(Failed::Authentication);
        }
        let proof = match (&replied.challenge, &self.parties.controller) {
            (None | Some((_, 0)), _) => None,
            (Some((challenge, sequence)), Some(secret)) => {
                Some(terms.of_controller(secret, challenge, *sequence))
            }
            (Some(_), None) => return State::Failing(Failed::Authentication),
        };
        let answered = replied
            .challenge
            .as_ref()
            .map(|(answered, _)| &answered[..]);
        let generated = answered.and_then(|answered| terms.generated(challenge, answered));
        if generated.is_none() && agreed.sc_c != Concatenation::NONE {
            return State::Failing(Failed::Concatenation);
        }
        self.generated = generated;
        let both = proof.is_some();
        let head = Success1 {
            header: header(AuthId::SUCCESS1, self.t_id),
            hl,
            rvalid: both.into(),
            ..Success1::default()
        };
        let proof = proof.unwrap_or_else(|| Zeroizing::new(vec![0; hl.into()]));
        State::Success([head.as_bytes(), &proof].concat(), both)
    }
}

/// The preferred ones of what a host offers. A key of TLS needs a group, and a hash function that
/// a cipher suite has.
fn choose(offer: &ProtocolDescriptor, sc_c: Concatenation) -> Result<Agreed, Failed> {
    let hashes: &[HashId] = offer
        .hashes
        .get(..offer.halen.into())
        .ok_or(Failed::Payload)?;
    let groups: &[DhGroupId] = offer
        .groups
        .get(..offer.dhlen.into())
        .ok_or(Failed::Payload)?;
    let has_key = sc_c != Concatenation::NONE;
    let known: &[Hash] = if has_key { &Hash::OF_TLS } else { &Hash::ALL };
    let hash = known.iter().find(|hash| hashes.contains(&hash.id()));
    let mut known = Group::ALL.into_iter();
    let group = known.find(|group| groups.contains(&group.id()));
    if has_key && group == Some(Group::Null) {
        return Err(Failed::Concatenation);
    }
    Ok(Agreed {
        hash: *hash.ok_or(Failed::Hash)?,
        group: group.ok_or(Failed::Group)?,
        sc_c,
    })
}
