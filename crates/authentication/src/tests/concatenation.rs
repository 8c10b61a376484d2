//! Exchanges that make a key of TLS.

use super::*;

/// Of exchanges that make a key: SHA-256 of the reply and Success1 without and with a secret of the
/// controller, the digest in the name of the key, and the key of TLS.
const GENERATED: [(Hash, Group, [&str; 2], &str, &str); 4] = [
    (
        Hash::Sha256,
        Group::Ffdhe2048,
        [
            "c7bb8940bff2b9e1a828cf39e0c53e2f4d67e49817fc54a9c9d7bb88c9327e11",
            "be97e3adfa01b52b966527d08fd85e5f5cb2446507d8b16dcef33ab1000c3567",
        ],
        "01 776AjbQJzgjb49RudsLGrhnhkZ4ggIE/wrM7/vMS5D0=",
        "34bbae0820b408e1711f74cdf9b8b3497fe96d635b263429213ad1d4464ec0ae",
    ),
    (
        Hash::Sha256,
        Group::Ffdhe3072,
        [
            "0453e813be9cdf9792c1b0d9e589934499c6bdc7b65bbf98d7f11751c458edbe",
            "a8bbccafe42922597c06c19022cbd1a91c39c004405b850da525ef34562dc4d4",
        ],
        "01 J8064HaRu53cbATtvMu6dkFIh1YlL8jqucwWYylri5s=",
        "7d18c4059c6fa5d5c3304bca027f5202a725ed7b1ecec22b198a9fb6c5c75a7f",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe2048,
        [
            "ce47c4ba1475e9ae62d8a0df933b14ebac72b816b1ec150e8899fde53a56bd23",
            "4d6009347ea424a8dce014fd51ad14a68267062e7248f4e1af73a41960e31857",
        ],
        "02 AkMDlr3NGDcWU2qpCFaEkghh9JmzCXhJmMUaM53szomcfnXZ2TAShUpLgy9FUhzI",
        "6b62fb6ff34530991527b4a5493cd0a7d6ccf979ca6d8f7fa69bd2c26e2aefd2d9ddc1edc13b8c9fd09168634d7a00ce",
    ),
    (
        Hash::Sha384,
        Group::Ffdhe3072,
        [
            "b9de0d85d6023c44896a5ef55fa9846f4606dd211557ba75361548046ed45927",
            "01f199afd50d5951ed44b8ce49fbcc2829849011c93e906f14b99c53c859dba7",
        ],
        "02 RizxC4682E++XTWySkOQkB6LuczQcx6RPwEWi7nuPukL49/W+bRrMtOCu1pZgOBm",
        "6cba6aac12c4ccc31ab6f25df5cd9e739ecd267c9a10d3ea4b535f96bf9ec4667c5e176f1646e481fd488f0910d3d5a0",
    ),
];

/// A program in Python has computed the constants, from its own hashlib, hmac and pow, and the
/// primes from the formula of RFC 7919.
#[test]
fn both_sides_make_the_key_of_another_program() {
    for (hash, group, messages, name, key) in GENERATED {
        for (expected, ctrl) in messages.into_iter().zip([None, Some(CTRL)]) {
            let parties = parties(KEY, ctrl);
            let host = HostSide::new(parties, random(2), 0x1234, &[hash], &[group]);
            let mut host = host.concatenating();
            // A secret that the host does not ask for makes no difference.
            let mut side = controller(Some(CTRL)).concatenating(Concatenates::WhenAsked);
            give(&mut side, &host.negotiate());
            let reply = host.reply(&fetch(&mut side)).unwrap();
            give(&mut side, &reply);
            assert!(side.take_generated().is_none(), "Success1 was not fetched");
            let success = fetch(&mut side);
            let digest = Sha256::digest([&reply[..], &success].concat());
            assert_eq!(digest[..], bytes(expected), "{hash:?} {group:?}");
            assert!(host.take_generated().is_none());
            let last = host.finish(&success).unwrap();
            assert_eq!(last.is_some(), ctrl.is_some());
            if let Some(last) = last {
                assert!(side.take_generated().is_none(), "Success2 is missing");
                give(&mut side, &last);
            }
            let (number, digest) = name.split_once(' ').unwrap();
            let name = format!("NVMe1G{number} {HOST} {SUBSYSTEM} {digest}");
            for generated in [side.take_generated(), host.take_generated()] {
                let generated = generated.unwrap();
                assert_eq!(generated.name, name);
                assert_eq!(generated.psk.bytes(), bytes(key));
                assert_eq!(generated.psk.is_sha384(), hash == Hash::Sha384);
            }
            assert!(side.take_generated().is_none() && host.take_generated().is_none());
        }
    }
    let name = format!("NVMe1G01 {HOST} {SUBSYSTEM} x");
    assert!(TlsIdentity::parse(name.as_bytes()).is_some_and(|it| it.is_generated()));
}

#[test]
fn a_key_is_made_where_both_sides_want_it_and_have_a_group() {
    let offer = |hashes: &[Hash], groups: &[Group], sc_c| {
        let side = HostSide::new(parties(KEY, None), random(2), 1, hashes, groups);
        let mut message = side.negotiate();
        message[6] = sc_c;
        message
    };
    let all = |sc_c| offer(&Hash::ALL, &Group::ALL, sc_c);
    let chosen = |concatenates, message: &[u8]| {
        let mut side = controller(None).concatenating(concatenates);
        give(&mut side, message);
        let said = fetch(&mut side);
        match side.outcome() {
            Outcome::Failed(failed) => Err(failed),
            // HashID and DHgID of the challenge.
            _ => Ok((said[8], said[9])),
        }
    };
    let refused = Err(Failed::Concatenation);
    assert_eq!(chosen(Concatenates::Never, &all(2)), refused);
    assert_eq!(chosen(Concatenates::Always, &all(0)), refused);
    for (concatenates, sc_c, expected) in [
        (Concatenates::WhenAsked, 0, Ok((3, 2))),
        (Concatenates::WhenAsked, 1, refused),
        (Concatenates::WhenAsked, 2, Ok((1, 2))),
        (Concatenates::WhenAsked, 3, refused),
        (Concatenates::Always, 2, Ok((1, 2))),
    ] {
        assert_eq!(chosen(concatenates, &all(sc_c)), expected, "{sc_c}");
    }
    let always = |message: &[u8]| chosen(Concatenates::Always, message);
    assert_eq!(always(&offer(&Hash::ALL, &[Group::Null], 2)), refused);
    let other = offer(&[Hash::Sha512], &Group::ALL, 2);
    assert_eq!(always(&other), Err(Failed::Hash));
    // Without a challenge of the host there is no key.
    let mut side = controller(None).concatenating(Concatenates::Always);
    let host = HostSide::new(parties(KEY, None), random(2), 1, &Hash::ALL, &Group::ALL);
    let mut host = host.concatenating();
    give(&mut side, &host.negotiate());
    let mut reply = host.reply(&fetch(&mut side)).unwrap();
    reply[8] = 0;
    give(&mut side, &reply);
    fails(&mut side, Failed::Payload);
    // The host's proof says which of both it is.
    let mut side = controller(None).concatenating(Concatenates::WhenAsked);
    let mut host = HostSide::new(parties(KEY, None), random(2), 1, &Hash::ALL, &Group::ALL);
    let mut message = host.negotiate();
    message[6] = 2;
    give(&mut side, &message);
    let challenge = fetch(&mut side);
    let mut reply = host.reply(&challenge).unwrap_or_default();
    reply.resize(reply.len().max(16), 0);
    reply[8] = 1;
    give(&mut side, &reply);
    fails(&mut side, Failed::Authentication);
}

/// Linux does so where it has a secret of the controller.
#[test]
fn success2_without_a_proof_changes_nothing() {
    let host = HostSide::new(parties(KEY, None), random(2), 1, &Hash::ALL, &Group::ALL);
    let mut host = host.concatenating();
    let mut side = controller(Some(CTRL)).concatenating(Concatenates::Always);
    assert_eq!(exchange(&mut side, &mut host), Ok(()));
    give(&mut side, &bytes("01040000010000000000000000000000"));
    let proved = Outcome::Authenticated { both: false };
    assert_eq!(side.outcome(), proved);
    assert!(side.take_generated().is_some());
    give(&mut side, &host.negotiate());
    assert_eq!(side.outcome(), Outcome::Failed(Failed::Message));
}
