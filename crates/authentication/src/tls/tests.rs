use super::*;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
const SUBSYSTEM: &str = "nqn.2026-11.t:s0";
/// The bytes 0 to 31.
const SHORT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR";
/// The bytes 100 to 147.
const LONG: &str = "ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==";

/// Values that another program has computed of a key: its form, the number of its hash, the digests
/// in
/// names of version 1, and the keys of versions 0 and 1; of all the first by RFC 8446 and the
/// second as libnvme before 1.16.
struct Known {
    form: u8,
    bytes: &'static str,
    hash: u8,
    digests: [&'static str; 2],
    zero: [&'static str; 2],
    one: [&'static str; 2],
}

const KNOWN: [Known; 4] = [
    Known {
        form: 0,
        bytes: SHORT,
        hash: 1,
        digests: ["6rao6kFUfuWjQM9CpVt5jDzEX1eFwdOpsBFmeOoUp7g="; 2],
        zero: [
            "49e90d65682cd07d9048c5c3f818726e99e21ec8a724e8b7d2829e1682c4337c",
            "bef2d8526a423168fd6d8ac79ed977289b486d8c53d67044a7e77e1e0bf980f5",
        ],
        one: [
            "4d40fc5324ab2046f4531d2ac7714cba26c4850adc19d273ae260ef59b9b2533",
            "e0a14a82265958409fb0b9c4540d5fa7f0317b7f00740a2bf66cb709bdff8277",
        ],
    },
    Known {
        form: 1,
        bytes: SHORT,
        hash: 1,
        digests: [
            "G3AEu9DtdnCTc1bxb2spTFUqZZfZuTAT/a1xAFinnVk=",
            "NYtajj41V63rM906wB5aN+b4gRnSh18DXc8Q26hpOb0=",
        ],
        zero: [
            "22826e59d81eac7b84c594bfff68acfa5750664a4aeb7c084d7e39ec8526767c",
            "8791671c77847397b71124c75487b474df1e851a2b2a0741de6ab005d93d093d",
        ],
        one: [
            "90f0e9d4f73e622d24f0de4997927fa832b05b4d6584b88148de74f3cf81b0bc",
            "cdb1cd34cc0197bf0478044378c78e236c7b7d7a9efaa683633ad69d873af15c",
        ],
    },
    Known {
        form: 2,
        bytes: LONG,
        hash: 2,
        digests: [
            "c4UzCdedpuDHIAp7KEI7EMAg2Aqw3mrj4ZGo0e1DDZKht3UQ/ZomDokxAwBqzCaC",
            "as653HTAt11NKmMj42L1oR+4JSrgBHpaEW1w0sMfUG9eJRrGnkLjz47fxMMrgTFz",
        ],
        zero: [
            "ec3a469189f045dbc5d524ea14e60e99eb75b59dc6aa07aad500fff87e95e64db59b955ae9e1754e5334fdfc38605163",
            "2e57b332d1ac4832731a2bbef05197873ce8312e4015e17adad9cdf8690cc9bce408dafab918a14aafacfb0498c8ae9f",
        ],
        one: [
            "f451746b55f945dc5d76fbe3f520d411c7e7502e9e738c13322825aa45940b71e9d842a9bc8446ae88161c21576df7e9",
            "dc941d29c5bd6fbff37eb78e14634d359831cd6f27b64d504924214cc07932fca3fe16ec0b10217747b5736400fd0c0c",
        ],
    },
    Known {
        form: 0,
        bytes: LONG,
        hash: 2,
        digests: ["6p9gvWvuOeiUy0sTBbZ77Ho8GHh3kUFmPyo7wOahPc4PUTEt+KdNqIixQFXOmGNX"; 2],
        zero: [
            "36fdd30be89b5088a5b79f1d9821748e6e5174958077cdaaa2f733b4b2c6767233a6d36263eb6e299b7aba3beb16cfaf",
            "741e89619a6eff3aa0aed7e2fdb2bd461247ef580934b1fdd91aaffc9e0acf69b78bc833ef0f040ab9e9b3cfcb34c5ea",
        ],
        one: [
            "daa96522d3d2d05ee05a9233f44e383d6512641b5b0f9aa3258d98851fef51c445b894e6ef3978493e44871a290f8666",
            "34b7858e82ac3093f7edacf44ff6ef39b12da745aef5959337c64e8fc633850c64eeba9e569bdcda2e19966ac8d95dd5",
        ],
    },
];

fn key(form: u8, bytes: &str) -> TlsKey {
    TlsKey::read(&format!(" NVMeTLSkey-1:0{form}:{bytes}:\n")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn psks(key: &TlsKey, name: &str) -> Vec<String> {
    let identity = TlsIdentity::parse(name.as_bytes()).unwrap();
    assert_eq!((identity.hostnqn(), identity.subnqn()), (HOST, SUBSYSTEM));
    let psks = key.psks(&identity);
    psks.iter().map(|psk| hex(psk.bytes())).collect()
}

/// A program in Python (hmac, hashlib and base64) has computed the constants, after it had computed
/// the names that the tests of libnvme 1.16 expect of libnvme's keys, in both ways.
#[test]
fn keys_and_names_are_those_of_another_program() {
    for known in KNOWN {
        let (hash, digests) = (known.hash, known.digests);
        let key = key(known.form, known.bytes);
        let zero = format!("NVMe0R0{hash} {HOST} {SUBSYSTEM}");
        assert_eq!(psks(&key, &zero), known.zero);
        let name = |digest| format!("NVMe1R0{hash} {HOST} {SUBSYSTEM} {digest}");
        if digests[0] == digests[1] {
            assert_eq!(psks(&key, &name(digests[0])), known.one);
        } else {
            assert_eq!(psks(&key, &name(digests[0])), [known.one[0]]);
            assert_eq!(psks(&key, &name(digests[1])), [known.one[1]]);
        }
        let (own, psk) = key.of(HOST, SUBSYSTEM).unwrap();
        let expected = (name(digests[0]), known.one[0].to_owned());
        assert_eq!((own, hex(psk.bytes())), expected);
        assert_eq!(psk.is_sha384(), hash == 2);
        for other in [
            format!("NVMe0R0{} {HOST} {SUBSYSTEM}", 3 - hash),
            format!("NVMe0R0{hash} {HOST} {SUBSYSTEM} {}", digests[0]),
            format!("NVMe1R0{hash} {HOST} {SUBSYSTEM}"),
            format!("{}x", name(digests[0])),
        ] {
            assert_eq!(psks(&key, &other), [""; 0], "{other}");
        }
    }
}

/// The same program has computed the binders by RFC 8446, 4.2.11.2.
#[test]
fn a_binder_is_that_of_another_program() {
    let hello: Vec<u8> = [1, 0, 0, 16].into_iter().chain(0..50).collect();
    for (hash, key, binder) in [
        (
            Hash::Sha256,
            (0..32).collect::<Vec<u8>>(),
            "094a1ea9fac408dda8888eaf8035f077b8cbc21bd97323313a6eda36365fd215",
        ),
        (
            Hash::Sha384,
            (100..148).collect(),
            "5375c2ae35a18bb7671fb16664c2f818a42ff2d654af9f8391728d71aab06744b0cdcbca269f6ae521a6f6c5c0df5d89",
        ),
    ] {
        let byte = |at| u8::from_str_radix(&binder[at..at + 2], 16).unwrap();
        let binder: Vec<u8> = (0..binder.len()).step_by(2).map(byte).collect();
        let key = Zeroizing::new(key);
        let psk = TlsPsk { key, hash };
        assert!(psk.binds(&hello, &binder));
        assert!(!psk.binds(&hello[1..], &binder) && !psk.binds(&hello, &binder[1..]));
        assert!(!psk.binds(&hello, &[]));
    }
}

#[test]
fn what_is_no_key_is_refused_and_not_shown() {
    for (text, error) in [
        ("", TlsKeyError::Form),
        ("DHHC-1:01:AAAA:", TlsKeyError::Form),
        (&format!("NVMeTLSkey-1:01:{SHORT}"), TlsKeyError::Form),
        (&format!("NVMeTLSkey-1:03:{SHORT}:"), TlsKeyError::Hash),
        (&format!("NVMeTLSkey-1:02:{SHORT}:"), TlsKeyError::Length),
        (&format!("NVMeTLSkey-1:01:{LONG}:"), TlsKeyError::Length),
        ("NVMeTLSkey-1:00::", TlsKeyError::Length),
        (
            &format!("NVMeTLSkey-1:01:{}:", SHORT.replace("fiaR", "fiaS")),
            TlsKeyError::Crc,
        ),
    ] {
        assert_eq!(TlsKey::read(text).unwrap_err(), error, "{text}");
    }
    let key = key(1, SHORT);
    let (_, psk) = key.of(HOST, SUBSYSTEM).unwrap();
    assert_eq!(format!("{key:?} {psk:?}"), "TlsKey TlsPsk");
}

#[test]
fn names_of_another_form_are_none() {
    let long = "n".repeat(600);
    for name in [
        "",
        "NVMe0R01",
        "NVMe0R01 nqn.a",
        "NVMe0R03 nqn.a nqn.b",
        "NVMe2R01 nqn.a nqn.b",
        "NVMe0G01 nqn.a nqn.b",
        &format!("NVMe0R01 nqn.a {long}"),
    ] {
        assert_eq!(TlsIdentity::parse(name.as_bytes()), None, "{name}");
    }
    assert_eq!(TlsIdentity::parse(b"NVMe0R01 \xff nqn.b"), None);
    // The context of a derivation by RFC 8446 has at most 255 bytes.
    let names = ["a", "b"].map(|name| format!("nqn.{}", name.repeat(130)));
    let name = format!("NVMe0R01 {} {}", names[0], names[1]);
    let identity = TlsIdentity::parse(name.as_bytes()).unwrap();
    assert_eq!(key(0, SHORT).psks(&identity).len(), 1);
}
