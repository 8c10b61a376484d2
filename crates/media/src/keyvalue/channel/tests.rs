//! A channel: who has the pairs, and what their namespaces say.

use memory::DmaMap;
use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::key_value::{KvOpcode, set_key};
use nvme_spec::samsung::{SamsungOpcode, status};
use nvme_spec::{Sqe, Status};
use port::ByteRange;

use super::*;

fn medium(dialect: Dialect) -> Arc<KeyValueMedium> {
    Arc::new(KeyValueMedium::open(1 << 20, 10, dialect).unwrap())
}

fn add(channel: &mut KeyValueChannel, request: &Request<'_>) -> Outcome {
    let view = DmaMap::new(1).view();
    match channel.add(Ticket::numbered(7), request, &[], &view) {
        Added::Done(ticket, outcome) => {
            assert_eq!(port::testing::number(ticket), 7);
            outcome
        }
        added => panic!("{added:?}"),
    }
}

/// A command without data: `key`, of the Key Value command set.
fn command(channel: &mut KeyValueChannel, opcode: KvOpcode, key: &[u8]) -> Outcome {
    let mut sqe = Sqe {
        opcode: opcode.0,
        ..Sqe::default()
    };
    set_key(&mut sqe, key);
    run(channel, &sqe)
}

fn run(channel: &mut KeyValueChannel, sqe: &Sqe) -> Outcome {
    let request = Request::Command {
        sqe,
        extent: ByteRange { offset: 0, len: 0 },
        lba_shift: 9,
        fua: false,
    };
    add(channel, &request)
}

#[test]
fn one_channel_has_the_pairs_and_leaves_them_to_the_next() {
    let medium = medium(Dialect::Nvme);
    let mut first = medium.channel((8, 1 << 20), || unreachable!()).unwrap();
    let error = medium
        .channel((8, 1 << 20), || unreachable!())
        .unwrap_err()
        .to_string();
    assert!(error.contains("one reactor"), "{error}");
    assert_eq!(command(&mut first, KvOpcode::STORE, b"key"), Outcome::OK);
    drop(first);
    let mut second = medium.channel((8, 1 << 20), || unreachable!()).unwrap();
    assert_eq!(command(&mut second, KvOpcode::EXIST, b"key"), Outcome::OK);
    let renew = Request::Renew {
        extent: ByteRange { offset: 0, len: 0 },
    };
    assert_eq!(add(&mut second, &renew), Outcome::OK);
    let gone = command(&mut second, KvOpcode::EXIST, b"key");
    assert_eq!(gone, Outcome::status(Status::KV_KEY_DOES_NOT_EXIST));
}

#[test]
fn a_status_comes_with_its_result() {
    let medium = medium(Dialect::Samsung);
    let mut channel = medium.channel((8, 1 << 20), || unreachable!()).unwrap();
    let sqe = |opcode: SamsungOpcode| {
        let mut bytes = [0; 64];
        (bytes[0], bytes[45], bytes[52]) = (opcode.0, 1, 0xff);
        let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| bytes[at + n]));
        Sqe::from_words([0, 1, 2, 3, 4, 5, 6, 7].map(|n| word(8 * n)))
    };
    let opened = run(&mut channel, &sqe(SamsungOpcode::ITERATOR_REQUEST));
    assert_eq!(opened, Outcome::with_result(1));
    let again = run(&mut channel, &sqe(SamsungOpcode::ITERATOR_REQUEST));
    assert_eq!(again, Outcome::status(status::ITERATOR_ALREADY_OPEN));
}

#[test]
fn blocks_read_as_zero_and_are_not_written() {
    let mut channel = medium(Dialect::Samsung)
        .channel((8, 1 << 20), || unreachable!())
        .unwrap();
    let read = Request::Read { offset: 0, len: 0 };
    assert_eq!(add(&mut channel, &read), Outcome::OK);
    assert_eq!(add(&mut channel, &Request::Flush), Outcome::OK);
    let write = Request::Write {
        offset: 0,
        len: 0,
        fua: false,
    };
    let refused = Outcome::of(Cause::Unsupported);
    assert_eq!(add(&mut channel, &write), refused);
    let zeroes = Request::WriteZeroes {
        offset: 0,
        len: 512,
        deallocate: true,
        fua: false,
    };
    assert_eq!(add(&mut channel, &zeroes), refused);
}

#[test]
fn utilization_is_told_as_it_changes() {
    let medium = medium(Dialect::Nvme);
    let mut channel = medium.channel((8, 1 << 20), || unreachable!()).unwrap();
    // A key of 16 bytes and no value takes no unit; what takes some is tested with data.
    assert_eq!(command(&mut channel, KvOpcode::STORE, b"key"), Outcome::OK);
    assert_eq!(medium.identity.used.load(Relaxed), 0);
    medium.identity.used.store(1536, Relaxed);
    let namespace = crate::keyvalue::set::tests::namespace();
    let id = medium.set().identify_namespace(&namespace);
    assert_eq!(id.len(), IDENTIFY_SIZE);
    // NSZE, NUSE, NKVF, NOVG; KVKML, KVVML, KVMNK of format 0 (KV 1.1, Identify Namespace).
    assert_eq!(id[..8], (1u64 << 20).to_le_bytes());
    assert_eq!(id[16..24], 1536u64.to_le_bytes());
    assert_eq!((id[25], &id[32..36]), (0, &512u32.to_le_bytes()[..]));
    assert_eq!(id[72..76], [16, 0, 0, 0]);
    assert_eq!(id[76..80], (2u32 << 20).to_le_bytes());
    assert_eq!(id[80..84], 10u32.to_le_bytes());
    assert_eq!((id[48], id[64]), (7, 8));
}
