//! Compare and Write, and commands that wait for another one.

use super::*;

/// A host's memory with `bytes` at its start.
pub(super) struct Lent {
    view: Arc<DmaView>,
    pub(super) buffer: memory::Buffer,
}

impl Lent {
    pub(super) fn new(bytes: &[u8]) -> Lent {
        let size = bytes.len().next_multiple_of(16_384).max(16_384);
        let memory = HostMemory::new(size).unwrap();
        let buffer = memory.alloc(size, 4096).unwrap();
        buffer.write_from(0, bytes);
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(1);
        map.map(
            Iova(0),
            size as u64,
            memory::Access::READ_WRITE,
            Some((mapping, 0)),
        )
        .unwrap();
        Lent {
            view: map.view(),
            buffer,
        }
    }

    /// Adds a request with the first `len` bytes; whether it may begin.
    pub(super) fn add(
        &self,
        fixture: &mut Fixture,
        request: &Request<'_>,
        len: u32,
    ) -> Option<u16> {
        let mut hint = Hint::default();
        let segment = self
            .view
            .translate(&mut hint, Iova(0), len, Need::DeviceReads);
        let added = fixture.channel.add(
            Ticket::numbered(77),
            request,
            &[segment.unwrap()],
            &self.view,
        );
        assert!(matches!(added, Added::Pending));
        fixture.channel.ready.pop_front()
    }
}

#[test]
fn compare_and_write_takes_what_the_kernel_answers() {
    let request = |commit| Request::CompareAndWrite {
        offset: 8192,
        len: 4096,
        commit,
        fua: true,
    };
    let read = |len, offset| Io::Read {
        into: Buffer::Bounce(len),
        offset,
    };
    let write = |offset| Io::Write {
        from: Buffer::Segments,
        offset,
        durable: true,
    };
    let mut fixture = Fixture::new(false);
    // The file is all zeros, as the first half of the host's bytes is.
    let mut bytes = vec![0; 8192];
    bytes[4096..].fill(7);
    let lent = Lent::new(&bytes);
    let begin = |fixture: &mut Fixture, commit| {
        let slot = lent.add(fixture, &request(commit), 8192).unwrap();
        // the bytes that the kernel, for which the test answers, would have read
        fixture.channel.ring.gather(slot, 4096);
        (slot, fixture.channel.operation(slot))
    };
    let (slot, io) = begin(&mut fixture, true);
    assert_eq!(io, Io::Sync);
    assert_eq!(fixture.again(slot, 0), read(4096, 8192));
    assert_eq!(fixture.again(slot, 512), read(3584, 8704));
    assert_eq!(fixture.again(slot, 3584), write(8192));
    assert_eq!(fixture.again(slot, 512), write(8704));
    assert_eq!(fixture.ends(slot, 3584), Outcome::OK);
    fixture.give_back(slot);
    // Which half it was that failed.
    let (slot, io) = begin(&mut fixture, false);
    assert_eq!(io, read(4096, 8192));
    let unread = failure(Cause::ReadFailed, libc::EIO);
    assert_eq!(fixture.ends(slot, -libc::EIO), unread);
    fixture.give_back(slot);
    let (slot, _) = begin(&mut fixture, false);
    fixture.again(slot, 4096);
    let full = failure(Cause::NoSpace, libc::ENOSPC);
    assert_eq!(fixture.ends(slot, -libc::ENOSPC), full);
    fixture.give_back(slot);
    // If the commit fails, nothing is compared, now or later.
    let (slot, _) = begin(&mut fixture, true);
    assert_eq!(fixture.ends(slot, -libc::EIO), unread);
    fixture.give_back(slot);
    let added = fixture.add(&request(true));
    let Added::Done(ticket, outcome) = added else {
        panic!("{added:?}")
    };
    ticket.retire();
    assert_eq!(outcome, unread);
}

#[test]
fn who_must_not_meet_another_begins_when_that_has_ended() {
    let mut fixture = Fixture::new(false);
    let lent = Lent::new(&[]);
    let write = Request::Write {
        offset: 0,
        len: 4096,
        fua: false,
    };
    let read = Request::Read {
        offset: 3584,
        len: 4096,
    };
    let first = lent.add(&mut fixture, &write, 4096).unwrap();
    assert_eq!(lent.add(&mut fixture, &write, 4096), None);
    assert_eq!(lent.add(&mut fixture, &read, 4096), None);
    fixture.channel.submit();
    assert_eq!(fixture.channel.in_flight(), 3);
    fixture.channel.ready_changes = false;
    fixture.give_back(first);
    assert_eq!(fixture.channel.ready.len(), 1, "one after another");
    assert!(fixture.channel.ready_changes);
    let done = fixture.drain();
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done.outcome == Outcome::OK));
    retire(done);
}
