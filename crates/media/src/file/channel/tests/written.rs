//! The host's pages that a read has written are in the log when the read has ended, and not before.

use memory::{LogError, PAGE};

use super::*;

struct Host {
    _memory: HostMemory,
    map: DmaMap,
}

const LEN: u64 = 16 * PAGE;

impl Host {
    fn new() -> Self {
        let memory = HostMemory::new(LEN as usize).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(1);
        let access = memory::Access::READ_WRITE;
        map.map(Iova(0), LEN, access, Some((mapping, 0))).unwrap();
        Host {
            _memory: memory,
            map,
        }
    }

    /// Pages that were written, a bit for each.
    fn take(&self) -> u64 {
        let mut pages = [0];
        let log = self.map.log().unwrap();
        log.take(Iova(0), LEN, PAGE, &mut pages).unwrap();
        pages[0]
    }

    /// Adds a command with the pages 1, 3 and 4.
    fn add(&self, fixture: &mut Fixture, request: &Request<'_>, need: Need) -> Added {
        let view = self.map.view();
        let segments = [(PAGE, PAGE), (3 * PAGE, 2 * PAGE)].map(|(at, len)| {
            view.translate(&mut Hint::default(), Iova(at), len as u32, need)
                .unwrap()
        });
        let ticket = Ticket::numbered(77);
        fixture.channel.add(ticket, request, &segments, &view)
    }
}

const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 3 * PAGE as u32,
};
const WRITE: Request<'static> = Request::Write {
    offset: 0,
    len: 3 * PAGE as u32,
    fua: false,
};

#[test]
fn a_read_s_pages_are_marked_when_it_has_ended() {
    let mut host = Host::new();
    host.map.start_log(&[]).unwrap();
    for is_memory in [false, true] {
        for bounced in [false, true] {
            let mut fixture = Fixture::with(None, |opened| opened.is_memory = is_memory);
            fixture.channel.alignment.memory = if bounced { 1 << 20 } else { 1 };
            let added = host.add(&mut fixture, &READ, Need::DeviceWrites);
            assert!(matches!(added, Added::Pending));
            assert_eq!(host.take(), 0, "the bytes are not there");
            retire(fixture.drain());
            assert_eq!(host.take(), 0b11010, "{is_memory} {bounced}");
            assert!(matches!(
                host.add(&mut fixture, &WRITE, Need::DeviceReads),
                Added::Pending
            ));
            retire(fixture.drain());
            assert_eq!(host.take(), 0, "a write reads the host's memory");
        }
    }
}

#[test]
fn a_read_that_fails_is_marked_too() {
    let mut host = Host::new();
    host.map.start_log(&[]).unwrap();
    let mut fixture = Fixture::new(false);
    assert!(matches!(
        host.add(&mut fixture, &READ, Need::DeviceWrites),
        Added::Pending
    ));
    let slot = fixture.channel.ready.pop_front().unwrap();
    let _ = fixture.channel.operation(slot);
    let _ = fixture.again(slot, PAGE as i32);
    let _ = fixture.ends(slot, -libc::EIO);
    assert_eq!(host.take(), 0);
    fixture.give_back(slot);
    assert_eq!(host.take(), 0b11010);
}

#[test]
fn a_read_of_an_earlier_view_is_not_marked() {
    let mut host = Host::new();
    let mut fixture = Fixture::new(false);
    assert!(matches!(
        host.add(&mut fixture, &READ, Need::DeviceWrites),
        Added::Pending
    ));
    host.map.start_log(&[]).unwrap();
    retire(fixture.drain());
    assert_eq!(host.take(), 0);
    assert!(matches!(
        host.add(&mut fixture, &READ, Need::DeviceWrites),
        Added::Pending
    ));
    let log = host.map.view();
    host.map.stop_log();
    assert!(matches!(host.map.log(), Err(LogError::Off)));
    retire(fixture.drain());
    let mut pages = [0];
    let log = log.log().unwrap();
    log.take(Iova(0), LEN, PAGE, &mut pages).unwrap();
    assert_eq!(pages, [0b11010], "in the log of its view");
}
