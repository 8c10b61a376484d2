//! Both sides against each other, against an independent computation, and against messages that
//! Linux has sent; and hostile messages.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::*;

mod concatenation;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
const SUBSYSTEM: &str = "nqn.2026-11.t:s0";
const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const PLAIN: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CTRL: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
const LONG: &str = "DHHC-1:03:yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8AAAAAAAAAAJiyIPY=:";

fn random(seed: u8) -> Randomness {
    let mut bytes = [0; Randomness::LEN];
    for (at, byte) in (0u8..).zip(&mut bytes) {
        *byte = seed.wrapping_add(at.wrapping_mul(7));
    }
    Randomness::new(&bytes)
}

fn secret(text: &str) -> Arc<Secret> {
    Arc::new(Secret::read(text).unwrap())
}

fn parties(host: &str, controller: Option<&str>) -> Parties {
    Parties {
        hostnqn: HOST.to_owned(),
        subnqn: SUBSYSTEM.to_owned(),
        host: secret(host),
        controller: controller.map(secret),
    }
}

fn controller(controller: Option<&str>) -> ControllerSide {
    ControllerSide::new(parties(KEY, controller), random(1))
}

fn host(key: &str, controller: Option<&str>) -> HostSide {
    let parties = parties(key, controller);
    HostSide::new(parties, random(2), 0x1234, &Hash::ALL, &Group::ALL)
}

/// Hands a message to the controller, and does its work.
fn give(side: &mut ControllerSide, message: &[u8]) {
    if let Some(work) = side.take(message) {
        assert_eq!(side.next_message(), Next::Later);
        side.worked(work.run());
    }
}

fn fetch(side: &mut ControllerSide) -> Vec<u8> {
    match side.next_message() {
        Next::Message(message) => message,
        Next::Later => panic!("there is no work"),
    }
}

/// A whole exchange: the controller's outcome, and the host's.
fn exchange(side: &mut ControllerSide, host: &mut HostSide) -> Result<(), Failed> {
    give(side, &host.negotiate());
    let reply = host.reply(&fetch(side))?;
    give(side, &reply);
    let last = host.finish(&fetch(side));
    match &last {
        Ok(Some(message)) => give(side, message),
        Ok(None) => {}
        Err(failed) => give(side, &host.failure(*failed)),
    }
    last.map(drop)
}

/// AUTH_Failure1 with this explanation, and nothing else.
fn fails(side: &mut ControllerSide, failed: Failed) {
    let [.., reason, explanation] = fetch(side)[..] else {
        panic!("no message")
    };
    assert_eq!((reason, explanation), (1, failed.explanation().0));
    assert_eq!(side.outcome(), Outcome::Failed(failed));
}

fn bytes(digits: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// SHA-256 of the reply and of Success1 of `exchange(random(1), random(2))`, computed by a program
/// in Python from its own hashlib, hmac and pow.
const EXPECTED: [(Hash, Group, &str); 18] = [
    (
        Hash::Sha256,
        Group::Null,
        "d1e4e88a99a2736fa3de9d4b8c94d0351a7e83791c5e1eb1046c12afe0b29d7d",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe2048,
        "aefd821096af8636bee1dda31ed479e53225bf2adcd5a7d01cc4e88075d05bf2",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe3072,
        "2dcc4aa4ca8ccc3cb689113d92f3930c886f90bf4efd06c765a8c259fcd198eb",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe4096,
        "8e78e3848d415e7419244cef0dd6554dd92601e80bfc3d7a8fdbcd6ee86c6a72",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe6144,
        "4c2fea044e6d1b217e2bc2e3a1c4f922e614f8e3e7d5855f1fc9e5c36bdb2249",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe8192,
        "0f83b8e01e1ef5407320892fb750a8872dfb57f7b5931fbc304cbc0ea0750126",
    ),
    (
        Hash::Sha384,
        Group::Null,
        "d621145345fcd7e7848f7a10a9ee4d9383af05c59dbeb9837614fad43fbf40dd",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe2048,
        "528beba3559447e0669d49f572561923be63f785710b590780ad7d8cca08ddce",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe3072,
        "754033d81e50043bb845329bd2266a21b1d5398735291ab093ee4dc929e72e1b",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe4096,
        "d839cd80077d4f87198468b89eec9dfdde0fb8a796201c918579c7d264a152a6",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe6144,
        "a65dfda569c077cc9f64eb0fba8cd2a05532cd1a10184e0ae30a28bf840bfd30",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe8192,
        "3dd88d96b9f6f0cb31a7103cc4cabf0c0e5988c26585f79a5f586b18acef7ee6",
    ),
    (
        Hash::Sha512,
        Group::Null,
        "aa100f792a0c569992ead020870e9b5823675d6cd7afdfe596151280327495a6",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe2048,
        "b37ab63be4ec4bf22c6ae4ccce9b75fe8f3b6a651739daec34d0baa47e71a4b5",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe3072,
        "1e949ac68ee4d7791dd3d490f53adf5d8e4ca6b34afe1d9824ca1387d0848de7",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe4096,
        "764a0dcc2ade40e0d34aa12a9ea27828ca0c316f3fab11545ee22b06945184c0",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe6144,
        "9f320db9389d05bec1f1c35c862112c577899c32d1175379ede140f2bd92d2ba",
    ),
    (
        Hash::Sha512,
        Group::Ffdhe8192,
        "cb44412ce1bbce095fb0a3c93fdb85566040cf653aa025e42cad9de0b64ffb6b",
    ),
];

#[test]
fn every_hash_and_group_proves_what_an_independent_program_computes() {
    for (hash, group, expected) in EXPECTED {
        let parties = parties(KEY, Some(CTRL));
        let mut host = HostSide::new(parties, random(2), 0x1234, &[hash], &[group]);
        let mut side = controller(Some(CTRL));
        give(&mut side, &host.negotiate());
        let reply = host.reply(&fetch(&mut side)).unwrap();
        give(&mut side, &reply);
        let success = fetch(&mut side);
        assert!(reply.len() <= MESSAGE_MAX);
        let digest = Sha256::digest([&reply[..], &success].concat());
        assert_eq!(digest[..], bytes(expected), "{hash:?} {group:?}");
        assert_eq!(
            side.outcome(),
            Outcome::Pending,
            "the host's word is missing"
        );
        let last = host.finish(&success).unwrap().unwrap();
        give(&mut side, &last);
        assert_eq!(side.outcome(), Outcome::Authenticated { both: true });
        // A second exchange is another one.
        give(&mut side, &host.negotiate());
        assert_eq!(side.outcome(), Outcome::Failed(Failed::Message));
    }
}

#[test]
fn secrets_are_bound_to_the_name_of_their_owner() {
    // Computed by a program in Python.
    let of = |text: &str, nqn| secret(text).of_owner(nqn).to_vec();
    assert_eq!(of(PLAIN, HOST), (0..32).collect::<Vec<u8>>());
    assert_eq!(
        of(KEY, HOST),
        bytes("6c7b81cb2a746f74454b1d7140f3153b51ca99459fcef7a86a17f27695b87cd8")
    );
    assert_eq!(
        of(CTRL, SUBSYSTEM),
        bytes(
            "79ae3c08c4ca07cec2d518df225d4b9d9e5344c056fbeb884ace72287f961d40f0c3917ed5cffc3d036a203abfdad2da"
        )
    );
    assert_eq!(
        of(LONG, HOST),
        bytes(
            "bd151a710035f75aec74502f61e309c746b606ccaf62d09fa6396c97d852c63247939b73defe2320a422a00de5f803a9d5dbba73f1762cfcf5a31f28a9467faa"
        )
    );
}

#[test]
fn texts_that_are_no_secret_say_why_and_are_not_shown() {
    use SecretError::{Crc, Form, Hash, Length};
    for (text, why) in [
        ("", Form),
        ("DHHC-1", Form),
        ("DHHC-1:01", Form),
        ("dhhc-1:01:AAEC:", Form),
        ("DHHC-1:01:AA?C:", Form),
        (&KEY[..KEY.len() - 1], Form),
        (
            "DHHC-1:04:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            Hash,
        ),
        (
            "DHHC-1:1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            Hash,
        ),
        ("DHHC-1:01::", Length),
        ("DHHC-1:01:AAEC:", Length),
        (
            "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaRAAAA:",
            Length,
        ),
        (
            "DHHC-1:01:AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
            Crc,
        ),
        (
            "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaS:",
            Crc,
        ),
    ] {
        assert_eq!(Secret::read(text).err(), Some(why), "{text}");
        assert!(!why.to_string().contains("AAEC"));
    }
    let spaced = format!(" {KEY}\n");
    assert_eq!(format!("{:?}", Secret::read(&spaced).unwrap()), "Secret");
    assert_eq!(format!("{:?}", random(1)), "Randomness");
}

#[test]
fn a_host_may_authenticate_alone() {
    let mut side = controller(Some(CTRL));
    assert_eq!(exchange(&mut side, &mut host(KEY, None)), Ok(()));
    assert_eq!(side.outcome(), Outcome::Authenticated { both: false });
}

#[test]
fn wrong_secrets_are_refused_on_both_sides() {
    let mut side = controller(None);
    // The same bytes with another transformation are another key.
    assert_eq!(
        exchange(&mut side, &mut host(PLAIN, None)),
        Err(Failed::Authentication)
    );
    assert_eq!(side.outcome(), Outcome::Failed(Failed::Authentication));
    let mut side = controller(Some(PLAIN));
    assert_eq!(
        exchange(&mut side, &mut host(KEY, Some(CTRL))),
        Err(Failed::Authentication)
    );
    assert_eq!(side.outcome(), Outcome::Failed(Failed::Authentication));
    // The controller has no secret, and its host asks for a proof.
    let mut side = controller(None);
    assert_eq!(
        exchange(&mut side, &mut host(KEY, Some(CTRL))),
        Err(Failed::Authentication)
    );
}

#[test]
fn an_answer_to_one_challenge_is_none_to_another() {
    let (mut first, mut known) = (controller(None), host(KEY, None));
    give(&mut first, &known.negotiate());
    let reply = known.reply(&fetch(&mut first)).unwrap();
    let mut second = ControllerSide::new(parties(KEY, None), random(3));
    give(&mut second, &known.negotiate());
    fetch(&mut second);
    give(&mut second, &reply);
    fails(&mut second, Failed::Authentication);
    // And to the one that it is for, it is one.
    give(&mut first, &reply);
    assert!(known.finish(&fetch(&mut first)).is_ok());
    assert_eq!(first.outcome(), Outcome::Authenticated { both: false });
}

#[test]
fn a_constant_answer_or_another_name_is_refused() {
    let mut side = controller(None);
    let mut known = host(KEY, None);
    give(&mut side, &known.negotiate());
    let mut reply = known.reply(&fetch(&mut side)).unwrap();
    reply[16..80].fill(0);
    give(&mut side, &reply);
    fails(&mut side, Failed::Authentication);
    // The host's secret under another subsystem's name.
    let mut other = parties(KEY, None);
    other.subnqn.push('1');
    let mut other = HostSide::new(other, random(2), 0, &Hash::ALL, &Group::ALL);
    assert_eq!(
        exchange(&mut controller(None), &mut other),
        Err(Failed::Authentication)
    );
}

#[test]
fn offers_without_a_known_hash_or_group_fail_with_their_reason() {
    let offer = host(KEY, None).negotiate();
    // Offsets: 6 SC_C, 7 NAPD, 8 AUTHID, 10 HALEN, 11 DHLEN, 12 hashes, 42 groups.
    for (at, value, failed) in [
        (6, 2, Failed::Concatenation),
        (7, 0, Failed::Protocol),
        (7, 2, Failed::Hash),
        (8, 2, Failed::Protocol),
        (10, 0, Failed::Hash),
        (10, 31, Failed::Payload),
        (11, 0, Failed::Group),
        (11, 31, Failed::Payload),
        (0, 1, Failed::Message),
        (1, 1, Failed::Message),
    ] {
        let mut side = controller(None);
        let mut message = offer.clone();
        message[at] = value;
        if failed == Failed::Hash && at == 7 {
            // The first descriptor of DH-HMAC-CHAP counts.
            message.extend_from_slice(&offer[8..]);
            message[10] = 0;
        }
        give(&mut side, &message);
        fails(&mut side, failed);
    }
    for (from, failed) in [(12, Failed::Hash), (42, Failed::Group)] {
        let mut side = controller(None);
        let mut message = offer.clone();
        message[from..from + 30].fill(0x80);
        give(&mut side, &message);
        fails(&mut side, failed);
    }
    // A host takes nothing that it has not offered.
    for (hashes, groups, failed) in [
        (&Hash::ALL[..1], &Group::ALL[..], Failed::Hash),
        (&Hash::ALL[..], &Group::ALL[3..], Failed::Group),
    ] {
        let mut side = controller(None);
        let mut message = offer.clone();
        message[10] = 1;
        message[12] = 1;
        give(&mut side, &message);
        let parties = parties(KEY, None);
        let mut host = HostSide::new(parties, random(2), 0x1234, hashes, groups);
        assert_eq!(host.reply(&fetch(&mut side)), Err(failed));
    }
}

#[test]
fn truncated_and_overlong_messages_have_no_effect_but_a_failure() {
    let mut known = host(KEY, Some(CTRL));
    let offer = known.negotiate();
    for len in 0..offer.len() {
        let mut side = controller(Some(CTRL));
        give(&mut side, &offer[..len]);
        let Next::Message(_) = side.next_message() else {
            panic!("it waits for more")
        };
        assert!(matches!(side.outcome(), Outcome::Failed(_)), "{len}");
    }
    let challenged = |known: &mut HostSide| {
        let mut side = controller(Some(CTRL));
        give(&mut side, &known.negotiate());
        let challenge = fetch(&mut side);
        (side, challenge)
    };
    let (_, challenge) = challenged(&mut known);
    for len in 0..challenge.len() {
        assert!(known.reply(&challenge[..len]).is_err(), "{len}");
    }
    let reply = known.reply(&challenge).unwrap();
    for len in (0..reply.len()).step_by(5) {
        let (mut side, _) = challenged(&mut known);
        give(&mut side, &reply[..len]);
        assert!(matches!(side.next_message(), Next::Message(_)));
        assert!(matches!(side.outcome(), Outcome::Failed(_)), "{len}");
    }
    let (mut side, _) = challenged(&mut known);
    give(&mut side, &reply);
    let success = fetch(&mut side);
    for len in 0..success.len() {
        assert!(known.finish(&success[..len]).is_err(), "{len}");
    }
    let last = known.finish(&success).unwrap().unwrap();
    for len in 0..last.len() {
        let (mut side, _) = challenged(&mut known);
        give(&mut side, &reply);
        fetch(&mut side);
        give(&mut side, &last[..len]);
        assert_ne!(
            side.outcome(),
            Outcome::Authenticated { both: true },
            "{len}"
        );
    }
    // Linux sends messages in longer buffers: what stands behind a message is ignored.
    let mut side = controller(Some(CTRL));
    let long = |message: &[u8]| [message, &[0xff; 4096]].concat();
    give(&mut side, &long(&offer));
    let reply = known.reply(&long(&fetch(&mut side))).unwrap();
    give(&mut side, &long(&reply));
    let last = known.finish(&long(&fetch(&mut side))).unwrap().unwrap();
    give(&mut side, &long(&last));
    assert_eq!(side.outcome(), Outcome::Authenticated { both: true });
}

#[test]
fn fields_of_a_reply_are_checked() {
    let mut known = host(KEY, Some(CTRL));
    // Offsets: 4 T_ID, 6 HL, 8 CVALID, 10 DHVLEN, 12 to 15 SEQNUM, 144 the DH value.
    for (at, value) in [(4, 9), (6, 0), (6, 32), (6, 255), (8, 2), (10, 0), (11, 4)] {
        let mut side = controller(Some(CTRL));
        give(&mut side, &known.negotiate());
        let mut reply = known.reply(&fetch(&mut side)).unwrap();
        reply[at] = value;
        give(&mut side, &reply);
        fails(&mut side, Failed::Payload);
    }
    let prime = primes::FFDHE3072;
    let mut least = bytes(prime);
    *least.last_mut().unwrap() -= 1;
    let mut one = vec![0; 384];
    one[383] = 1;
    // 0, 1, p - 1, p and more.
    for value in [vec![0; 384], one, least, bytes(prime), vec![0xff; 384]] {
        let mut side = controller(Some(CTRL));
        give(&mut side, &known.negotiate());
        let challenge = fetch(&mut side);
        let mut reply = known.reply(&challenge).unwrap();
        reply[144..].copy_from_slice(&value);
        give(&mut side, &reply);
        fails(&mut side, Failed::Payload);
        let mut challenge = challenge;
        challenge[80..].copy_from_slice(&value);
        assert_eq!(known.reply(&challenge), Err(Failed::Payload));
    }
    // Sequence number 0, and the controller's own challenge.
    let mut side = controller(Some(CTRL));
    give(&mut side, &known.negotiate());
    let challenge = fetch(&mut side);
    let reply = known.reply(&challenge).unwrap();
    let mut echo = reply.clone();
    echo[80..144].copy_from_slice(&challenge[16..80]);
    give(&mut side, &echo);
    fails(&mut side, Failed::Payload);
    let mut side = controller(Some(CTRL));
    give(&mut side, &known.negotiate());
    fetch(&mut side);
    let mut none = reply;
    none[12..16].fill(0);
    give(&mut side, &none);
    fails(&mut side, Failed::Payload);
}

#[test]
fn messages_out_of_order_fail() {
    let mut known = host(KEY, None);
    // A fetch before anything was sent.
    fails(&mut controller(None), Failed::Message);
    // A second offer, before the challenge was fetched and after it.
    for fetches in [false, true] {
        let mut side = controller(None);
        give(&mut side, &known.negotiate());
        if fetches {
            fetch(&mut side);
        }
        give(&mut side, &known.negotiate());
        fails(&mut side, Failed::Message);
    }
    // A message while the work goes on; its result comes to nothing.
    let mut side = controller(None);
    let work = side.take(&known.negotiate()).unwrap();
    assert!(side.take(&known.negotiate()).is_none());
    side.worked(work.run());
    fails(&mut side, Failed::Message);
    // A challenge is fetched once.
    let mut side = controller(None);
    give(&mut side, &known.negotiate());
    let challenge = fetch(&mut side);
    fails(&mut side, Failed::Message);
    // Nothing helps after a failure.
    let reply = known.reply(&challenge).unwrap();
    give(&mut side, &reply);
    assert_eq!(side.outcome(), Outcome::Failed(Failed::Message));
    // Success2 without a proof.
    let mut both = host(KEY, Some(CTRL));
    let mut other = controller(Some(CTRL));
    assert_eq!(exchange(&mut other, &mut both), Ok(()));
    let mut side = controller(Some(CTRL));
    give(&mut side, &both.negotiate());
    let reply = both.reply(&fetch(&mut side)).unwrap();
    give(&mut side, &reply);
    let last = both.finish(&fetch(&mut side)).unwrap().unwrap();
    let mut side = controller(Some(CTRL));
    give(&mut side, &both.negotiate());
    fetch(&mut side);
    give(&mut side, &last);
    fails(&mut side, Failed::Message);
    // A failure that the host reports ends it without an answer.
    let mut side = controller(None);
    give(&mut side, &known.failure(Failed::Hash));
    assert_eq!(side.outcome(), Outcome::Failed(Failed::Hash));
}

/// Messages of Linux 7.3, host and target, recorded: SHA-256 and ffdhe2048, both ways. Their
/// secrets were not, so what they prove is not checked here.
#[test]
fn messages_of_linux_are_read() {
    let mut offer = vec![0; 72];
    offer[6..15].copy_from_slice(&[0, 1, 1, 0, 3, 6, 1, 2, 3]);
    offer[42..48].copy_from_slice(&[0, 1, 2, 3, 4, 5]);
    let challenge = bytes(
        "010100000000200001010001e4a1877da7444d0e8f49ef62eb993b9799572e44bf6862cb9c4414c2cf8bf84eb01e9a974d872e09afa2a9b0ce3e5585967cb792bfc84a936484a7a38ad6cbd1ae18a6f2adcc8abc179479eca3004052a3b28ef4289b9522e28a2f9ebfa936cfe66069084b9651e117da1075c97c44cb268b4f73dc8424bb489abea4713b1bbf29993afded88a5c613dc4e3215f32fc386b392df6d037e1724ed11af4249d459fbc53d434b3a16069cf30fb4c818c4a8a7661586b8df08efe7b41304d3a9816068bfa7b41bb1ea814d92b55b7a9a60e29eaa9fe83fd3ad6f146de7c31c69fd18f92bfb333acce80caa4219274d013979fb62a0ec17b9041baa44b76f53a6c5cfca25ca4c354a206bc1683910391ddb0ed0410bd055ef4f463b513749c1b8ec24256ae445",
    );
    let reply = bytes(
        "010200000000200001000001e5a1877da2f84f8d68124a7db8f8a63b1c844d672a4d5a709ebafe650039cfc565513d09e2bc423b3175a7b88885fee54e4d945080cfa31cc729f20ed5e8f3a12ecad26451bd38833f7a81f2d9bb0577fbed58ef9fe0bba1b12209d2208c49203a2453e8cdff49b5b1d84face20dccefe079fbd8dfccb8aa6f16673fdea25913847343b355ec3d7c6599f8c59cd17ddcf91563770f0a2634c55fbfb3c914d34b326644282cc67b2a32c061f1b6860eb204358f9102b71e3ecbc1143a039f0c2ec710842cf2b9b500565e1471e51811b7bed47772d41cdeea8bc0cf6e8bfdef0eeb792037f721534bcc8a21f96f446336a48fe7ea02fac1a2e82d453eefc710dbdb0f003d3398223ccf3a07f56aad5d65849c9afb568b2cf68709ea5fd820f792e4965090ea38e421fbd26ee1477e625ce4e598419b1989e13eaf4b6da7f9906703f368c8",
    );
    let success = bytes(
        "01030000000020000100000000000000c0fcbfd8d3145ecfe2bccb00878592fe9053b00b8a02a421744177917a28a4d7",
    );
    let last = bytes("01040000000000000000000000000000");
    // Of the target to our host: as it has no secret of that exchange, it refuses the proof only.
    let all = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    let groups = [
        Group::Null,
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
    ];
    let mut ours = HostSide::new(parties(KEY, Some(CTRL)), random(2), 0, &all, &groups);
    assert_eq!(ours.negotiate(), offer);
    assert_eq!(ours.reply(&challenge).unwrap().len(), reply.len());
    assert_eq!(ours.finish(&success), Err(Failed::Authentication));
    // Of the host to our controller: the same, where the host offers that hash and group alone.
    let mut only = offer.clone();
    (only[10], only[11], only[42]) = (1, 1, 1);
    let mut side = controller(Some(CTRL));
    give(&mut side, &only);
    assert_eq!(fetch(&mut side).len(), challenge.len());
    give(&mut side, &reply);
    fails(&mut side, Failed::Authentication);
    // The last message is the one that ours sends in that place.
    let mut ours = HostSide::new(parties(KEY, Some(CTRL)), random(2), 0, &all, &groups);
    let mut side = controller(Some(CTRL));
    give(&mut side, &ours.negotiate());
    let reply = ours.reply(&fetch(&mut side)).unwrap();
    give(&mut side, &reply);
    assert_eq!(ours.finish(&fetch(&mut side)).unwrap(), Some(last));
}
