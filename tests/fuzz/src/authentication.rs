//! Messages of authentication from a peer that does not know the secret.
//!
//! Found would be: a panic, and a side that takes the peer's proof or makes a key with it. The peer
//! may send anything, and the messages that an honest side would send, changed or as they are.

use std::sync::Arc;

use arbitrary::Arbitrary;
use authentication::{
    Concatenates, ControllerSide, Group, Hash, HostSide, MESSAGE_MAX, Next, Outcome, Parties,
    Randomness, Secret,
};

/// Most steps of a program.
const STEPS_MAX: usize = 16;
/// Two secrets, of the bytes 0 to 31 in both.
const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    /// The peer is a controller.
    to_host: bool,
    /// The peer takes part in Diffie-Hellman.
    with_group: bool,
    hash: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Raw(Vec<u8>),
    /// What an honest peer would send, with changed bytes, and shorter.
    Next {
        changes: Vec<(u16, u8)>,
        cut: Option<u16>,
    },
    /// The peer fetches a message of the controller.
    Fetch,
}

fn parties(host: &str, controller: &str) -> Parties {
    let secret = |text| Arc::new(Secret::read(text).expect("it is a secret"));
    Parties {
        hostnqn: "nqn.2014-08.org.example:host".to_owned(),
        subnqn: "nqn.2014-08.org.example:fuzz".to_owned(),
        host: secret(host),
        controller: Some(secret(controller)),
    }
}

fn host(program: &Program, parties: Parties) -> HostSide {
    let random = Randomness::new(&[3; Randomness::LEN]);
    let hash = Hash::ALL[usize::from(program.hash) % Hash::ALL.len()];
    let group = if program.with_group {
        Group::Ffdhe2048
    } else {
        Group::Null
    };
    let side = HostSide::new(parties, random, 5, &[hash], &[group]);
    if makes_key(program) {
        side.concatenating()
    } else {
        side
    }
}

/// The honest peer makes a key of TLS, too.
fn makes_key(program: &Program) -> bool {
    program.hash >= 0x80
}

fn controller(program: &Program, parties: Parties) -> ControllerSide {
    let side = ControllerSide::new(parties, Randomness::new(&[7; Randomness::LEN]));
    if makes_key(program) {
        side.concatenating(Concatenates::WhenAsked)
    } else {
        side
    }
}

fn give(side: &mut ControllerSide, message: &[u8]) {
    if let Some(work) = side.take(message) {
        assert_eq!(side.next_message(), Next::Later);
        side.worked(work.run());
    }
}

fn fetch(side: &mut ControllerSide) -> Vec<u8> {
    let Next::Message(message) = side.next_message() else {
        panic!("all work is done");
    };
    assert!(message.len() <= MESSAGE_MAX);
    message
}

fn changed(mut message: Vec<u8>, changes: &[(u16, u8)], cut: Option<u16>) -> Vec<u8> {
    for &(at, by) in changes {
        if let Some(byte) = message.get_mut(usize::from(at)) {
            *byte ^= by;
        }
    }
    message.truncate(cut.map_or(usize::MAX, usize::from));
    message
}

pub(crate) fn run(program: Program) {
    if program.to_host {
        against_a_host(&program);
    } else {
        against_a_controller(&program);
    }
}

fn against_a_controller(program: &Program) {
    let mut side = controller(program, parties(KEY, KEY));
    let mut peer = host(program, parties(OTHER, KEY));
    let (mut fetched, mut sent) = (Vec::new(), 0);
    for step in program.steps.iter().take(STEPS_MAX) {
        match step {
            Step::Raw(bytes) => give(&mut side, bytes),
            Step::Fetch => fetched = fetch(&mut side),
            Step::Next { changes, cut } => {
                let next = match sent {
                    0 => peer.negotiate(),
                    1 => peer.reply(&fetched).unwrap_or_default(),
                    // Success2, whatever the controller has sent.
                    _ => vec![1, 4, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                };
                sent += 1;
                give(&mut side, &changed(next, changes, *cut));
            }
        }
        let outcome = side.outcome();
        assert!(
            !matches!(outcome, Outcome::Authenticated { .. }),
            "{program:?}"
        );
        assert!(side.take_generated().is_none(), "{program:?}");
    }
}

fn against_a_host(program: &Program) {
    let mut peer = controller(program, parties(KEY, OTHER));
    let mut side = host(program, parties(KEY, KEY));
    give(&mut peer, &side.negotiate());
    let mut has_replied = false;
    for step in program.steps.iter().take(STEPS_MAX) {
        let message = match step {
            Step::Raw(bytes) => bytes.clone(),
            Step::Fetch => continue,
            Step::Next { changes, cut } => changed(fetch(&mut peer), changes, *cut),
        };
        if has_replied {
            assert!(side.finish(&message).is_err(), "{program:?}");
        } else if let Ok(reply) = side.reply(&message) {
            assert!(reply.len() <= MESSAGE_MAX);
            has_replied = true;
            give(&mut peer, &reply);
        }
        assert!(side.take_generated().is_none(), "{program:?}");
    }
}
