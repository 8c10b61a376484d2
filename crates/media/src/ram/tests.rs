//! Large commands: in slices, beside others and never mixed with them.

use std::sync::Arc;

use memory::{
    Access, Buffer, Claims, ClientMappings, DmaMap, DmaView, Hint, HostMemory, Iova, Need, Segment,
    Store,
};
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, Outcome, Request, testing};

use super::RamChannel;

const MIB: usize = 1 << 20;
const STORE: u64 = 16 << 20;

struct Rig {
    channel: RamChannel,
    store: Arc<Store>,
    memory: Buffer,
    view: Arc<DmaView>,
}

/// A host with 4 MiB, and a medium whose bytes tell where they are.
fn rig() -> Rig {
    let memory = HostMemory::new(4 * MIB).unwrap();
    let fd = memory.fd().try_clone_to_owned().unwrap();
    let mapping = ClientMappings::new().map(fd).unwrap();
    let mut map = DmaMap::new(4);
    map.map(Iova(0), 4 << 20, Access::READ_WRITE, Some((mapping, 0)))
        .unwrap();
    let store = Arc::new(Store::new(STORE).unwrap());
    for at in (0..STORE).step_by(4) {
        store.write_bytes(at, &(at as u32).to_le_bytes());
    }
    Rig {
        channel: RamChannel::new(
            Arc::clone(&store),
            Claims::new().claimant().unwrap(),
            super::SLICE,
        ),
        store,
        memory: memory.alloc(4 * MIB, 4096).unwrap(),
        view: map.view(),
    }
}

impl Rig {
    /// Adds a request whose data are these pieces of the host's memory.
    fn add(&mut self, bits: u64, request: &Request<'_>, pieces: &[(u64, u32)]) -> Added {
        let need = match request {
            Request::Read { .. } => Need::DeviceWrites,
            _ => Need::DeviceReads,
        };
        let find = |(at, len): &(u64, u32)| {
            let mut hint = Hint::default();
            self.view
                .translate(&mut hint, Iova(*at), *len, need)
                .unwrap()
        };
        let segments: Vec<Segment<'_>> = pieces.iter().map(find).collect();
        let ticket = Ticket::numbered(bits as u32);
        let is_full = self.channel.is_full(request);
        let added = self.channel.add(ticket, request, &segments, &self.view);
        assert_eq!(is_full, matches!(added, Added::Full(_)));
        added
    }

    /// Reaps until a command completes; returns the number of reaps, and the command with its
    /// outcome.
    fn reap(&mut self) -> (usize, u64, Outcome) {
        for count in 1.. {
            let mut done: Vec<Done> = Vec::with_capacity(64);
            self.channel.reap(&mut done);
            if let Some(Done { ticket, outcome }) = done.pop() {
                assert!(done.is_empty());
                return (count, u64::from(testing::number(ticket)), outcome);
            }
        }
        unreachable!("a command ends")
    }

    fn host(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_into(at, &mut bytes);
        bytes
    }

    fn stored(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.store.read_bytes(at, &mut bytes);
        bytes
    }
}

fn ended(added: Added) -> Outcome {
    let Added::Done(ticket, outcome) = added else {
        panic!("done at once, not {added:?}")
    };
    ticket.retire();
    outcome
}

fn pending(added: Added) {
    assert!(matches!(added, Added::Pending), "{added:?}");
}

fn refused(added: Added) {
    let Added::Full(ticket) = added else {
        panic!("refused for now, not {added:?}")
    };
    ticket.retire();
}

const READ: Request<'_> = Request::Read {
    offset: 4096,
    len: MIB as u32,
};

#[test]
fn a_large_read_takes_a_slice_at_a_time() {
    let mut rig = rig();
    // Not in the order of addresses, and cut anywhere.
    let pieces = [
        (2 << 20, 300_001),
        (100, 512),
        (1 << 20, MIB as u32 - 300_513),
    ];
    pending(rig.add(7, &READ, &pieces));
    assert_eq!(rig.channel.in_flight(), 1);
    assert_eq!(rig.reap(), (8, 7, Outcome::OK));
    assert_eq!(rig.channel.in_flight(), 0);
    let expected = rig.stored(4096, MIB);
    let read: Vec<u8> = pieces
        .iter()
        .flat_map(|(at, len)| rig.host(*at as usize, *len as usize))
        .collect();
    assert!(read == expected);
}

#[test]
fn what_shares_bytes_with_it_waits_and_others_do_not() {
    let mut rig = rig();
    pending(rig.add(7, &READ, &[(0, MIB as u32)]));
    let end = 4096 + MIB as u64;
    let small = |offset| Request::Write {
        offset,
        len: 512,
        fua: false,
    };
    let data = [(3 << 20, 512)];
    refused(rig.add(8, &small(4096), &data));
    refused(rig.add(8, &small(end - 512), &data));
    assert_eq!(ended(rig.add(8, &small(4096 - 512), &data)), Outcome::OK);
    assert_eq!(ended(rig.add(8, &small(end), &data)), Outcome::OK);
    assert_eq!(ended(rig.add(8, &Request::Flush, &[])), Outcome::OK);
    let ranges = [0, end - 1].map(|offset| port::ByteRange { offset, len: 512 });
    refused(rig.add(8, &Request::Deallocate { ranges: &ranges }, &[]));
    // A large one as well.
    refused(rig.add(8, &READ, &[(0, MIB as u32)]));
    assert_eq!(rig.reap().1, 7);
    assert_eq!(ended(rig.add(8, &small(4096), &data)), Outcome::OK);
}

#[test]
fn writes_comparisons_and_zeroes_take_slices_too() {
    let mut rig = rig();
    let len = MIB as u32;
    rig.memory.fill(9);
    let write = Request::Write {
        offset: 512,
        len,
        fua: true,
    };
    pending(rig.add(1, &write, &[(0, len)]));
    assert_eq!(rig.reap(), (8, 1, Outcome::OK));
    assert!(rig.stored(512, MIB).iter().all(|byte| *byte == 9));
    let compare = Request::Compare { offset: 512, len };
    pending(rig.add(2, &compare, &[(MIB as u64, len)]));
    assert_eq!(rig.reap(), (8, 2, Outcome::OK));
    rig.memory.write_from(2 * MIB - 1, &[8]);
    pending(rig.add(3, &compare, &[(MIB as u64, len)]));
    assert_eq!(rig.reap().2, Outcome::of(Cause::CompareMismatch));
    for deallocate in [false, true] {
        rig.store.write_bytes(0, &vec![5; 10 * MIB]);
        let zero = Request::WriteZeroes {
            offset: 512,
            len: 9 << 20,
            deallocate,
            fua: false,
        };
        pending(rig.add(4, &zero, &[]));
        assert_eq!(rig.reap().1, 4);
        let all = rig.stored(0, 10 * MIB);
        assert!(all[512..512 + 9 * MIB].iter().all(|byte| *byte == 0));
        assert!(
            all[..512]
                .iter()
                .chain(&all[512 + 9 * MIB..])
                .all(|byte| *byte == 5)
        );
    }
}

#[test]
fn what_lies_outside_is_refused_and_a_flood_is_bounded() {
    let mut rig = rig();
    let outside = Request::Read {
        offset: STORE - 512,
        len: MIB as u32,
    };
    let added = rig.add(1, &outside, &[(0, MIB as u32)]);
    assert_eq!(ended(added), Outcome::of(Cause::Unsupported));
    let len = 132 << 10;
    for index in 0..64 {
        let offset = u64::from(len) * index;
        pending(rig.add(index, &Request::Read { offset, len }, &[(0, len)]));
    }
    let offset = u64::from(len) * 64;
    refused(rig.add(64, &Request::Read { offset, len }, &[(0, len)]));
    for index in 0..64 {
        assert_eq!(rig.reap(), (2, index, Outcome::OK));
    }
}
