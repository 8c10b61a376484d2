use std::fs::File;

use vfio_user::message::{DmaMap, DmaMapFlags, DmaUnmap, DmaUnmapFlags, SetIrqs, SetIrqsFlags};

use super::*;

/// A host, its session, and the worker.
struct Rig {
    host: Connection,
    session: Session,
    worker: Connection,
}

/// A message as it arrived: number, command, whether a reply is wanted, body and descriptors.
type Seen = (u16, Command, bool, Vec<u8>, usize);

impl Rig {
    fn new() -> Self {
        let (host, ours) = UnixStream::pair().unwrap();
        let mut session = Session::new(Arrival::ours(ours)).unwrap();
        let worker = next_worker(&mut session);
        Self {
            host: Connection::new(host).unwrap(),
            session,
            worker,
        }
    }

    fn ask(&mut self, id: u16, command: Command, body: &[u8]) {
        let header = Header::request(id, command);
        self.host.send(&header, &[body], &[]).unwrap();
        assert_eq!(self.session.look(), Fate::Goes);
    }

    fn answer(&mut self, id: u16, command: Command, body: &[u8]) {
        let header = Header::request(id, command).reply();
        self.worker.send(&header, &[body], &[]).unwrap();
        assert_eq!(self.session.look(), Fate::Goes);
    }

    /// The worker keeps a host's state, so that another one can go on.
    fn keep(&mut self) {
        let file = File::open("/dev/null").unwrap();
        let fds = [file.as_fd(), file.as_fd()];
        let header = Header::posted(0, KEEP);
        self.worker.send(&header, &[], &fds).unwrap();
        assert_eq!(self.session.look(), Fate::Goes);
    }

    fn replace_worker(&mut self) {
        assert_eq!(self.session.lose_worker(false), Fate::Goes);
        self.worker = next_worker(&mut self.session);
    }
}

fn next_worker(session: &mut Session) -> Connection {
    let (ours, theirs) = UnixStream::pair().unwrap();
    session.give_to(ours).unwrap();
    session.begin_lessons().unwrap();
    assert_eq!(session.look(), Fate::Goes);
    Connection::new(theirs).unwrap()
}

fn seen(connection: &mut Connection) -> Option<Seen> {
    let message = connection.receive().unwrap()?;
    let header = message.header;
    let (wants, body) = (!header.no_reply(), message.body.to_vec());
    Some((header.id, header.command, wants, body, message.fds.len()))
}

fn all_seen(connection: &mut Connection) -> Vec<Seen> {
    std::iter::from_fn(|| seen(connection)).collect()
}

const READ: Command = Command::REGION_READ;

#[test]
fn a_host_gets_each_reply_under_its_own_number() {
    let mut rig = Rig::new();
    rig.ask(7, READ, b"one");
    rig.ask(7, READ, b"two");
    let given = all_seen(&mut rig.worker);
    assert_eq!(given[0], (1, READ, true, b"one".to_vec(), 0));
    assert_eq!(given[1], (2, READ, true, b"two".to_vec(), 0));
    rig.answer(2, READ, b"2");
    rig.answer(1, READ, b"1");
    let replies = all_seen(&mut rig.host);
    let body = |at: usize| (replies[at].0, replies[at].3.as_slice());
    assert_eq!((body(0), body(1)), ((7, &b"2"[..]), (7, &b"1"[..])));
    // A second reply is to no request.
    rig.answer(1, READ, b"1");
    assert_eq!(all_seen(&mut rig.host), []);
}

#[test]
fn a_posted_write_is_given_with_a_reply_that_goes_no_further() {
    let mut rig = Rig::new();
    let header = Header::posted(9, Command::REGION_WRITE);
    rig.host.send(&header, &[b"w"], &[]).unwrap();
    rig.session.look();
    let (id, _, wants, ..) = seen(&mut rig.worker).unwrap();
    assert!(wants);
    // Until then it would be given again.
    rig.replace_worker();
    assert_eq!(all_seen(&mut rig.worker).len(), 1);
    rig.answer(id, Command::REGION_WRITE, b"");
    assert_eq!(all_seen(&mut rig.host), []);
    rig.replace_worker();
    assert_eq!(all_seen(&mut rig.worker), []);
}

#[test]
fn the_next_worker_gets_what_has_no_reply_and_in_order() {
    let mut rig = Rig::new();
    for body in [b"a", b"b", b"c"] {
        rig.ask(1, READ, body);
    }
    all_seen(&mut rig.worker);
    // Sent before it died, and read after.
    let header = Header::request(2, READ).reply();
    rig.worker.send(&header, &[b"B"], &[]).unwrap();
    rig.replace_worker();
    assert_eq!(all_seen(&mut rig.host)[0].3, b"B");
    let given: Vec<_> = all_seen(&mut rig.worker)
        .into_iter()
        .map(|it| it.3)
        .collect();
    assert_eq!(given, [b"a".to_vec(), b"c".to_vec()]);
    // Half a reply is none.
    rig.answer(1, READ, b"A");
    assert_eq!(all_seen(&mut rig.host)[0].3, b"A");
}

#[test]
fn half_a_reply_of_a_worker_that_dies_is_none() {
    let mut rig = Rig::new();
    rig.ask(1, READ, b"a");
    let (id, ..) = seen(&mut rig.worker).unwrap();
    let whole = [
        &id.to_le_bytes()[..],
        &[9, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'x'],
    ];
    let socket = rig.worker.as_fd().try_clone_to_owned().unwrap();
    rustix::io::write(&socket, &whole.concat()).unwrap();
    drop(socket);
    rig.replace_worker();
    assert_eq!(all_seen(&mut rig.host), []);
    let (id, ..) = seen(&mut rig.worker).unwrap();
    rig.answer(id, READ, b"y");
    assert_eq!(all_seen(&mut rig.host)[0].3, b"y");
}

fn map(iova: u64) -> Vec<u8> {
    let mut body = Vec::new();
    let map = DmaMap {
        argsz: DmaMap::LEN as u32,
        flags: DmaMapFlags::READ,
        offset: 0,
        iova,
        size: 0x1000,
    };
    map.encode(&mut body);
    body
}

#[test]
fn memory_is_remembered_in_the_order_of_the_requests() {
    const MAP: Command = Command::DMA_MAP;
    const UNMAP: Command = Command::DMA_UNMAP;
    let mut rig = Rig::new();
    rig.keep();
    let mut unmap = Vec::new();
    let request = DmaUnmap {
        argsz: 24,
        flags: DmaUnmapFlags(0),
        iova: 0x1000,
        size: 0x1000,
    };
    request.encode(&mut unmap);
    rig.ask(1, MAP, &map(0x1000));
    rig.answer(1, MAP, b"");
    rig.ask(2, UNMAP, &unmap);
    rig.ask(3, MAP, &map(0x1000));
    all_seen(&mut rig.worker);
    // The reply to the DMA_UNMAP waits for commands.
    rig.answer(3, MAP, b"");
    let replies: Vec<_> = all_seen(&mut rig.host).iter().map(|it| it.0).collect();
    assert_eq!(replies, [1, 3]);
    // The next worker unmaps before it maps.
    rig.replace_worker();
    let mapped = (0, MAP, false, map(0x1000), 0);
    let given = all_seen(&mut rig.worker);
    assert_eq!(given[1], mapped);
    assert_eq!(given[3], (2, UNMAP, true, unmap, 0));
    assert_eq!(given[4], (3, MAP, true, map(0x1000), 0));
    rig.answer(3, MAP, b"");
    assert_eq!(all_seen(&mut rig.host), []);
    rig.answer(2, UNMAP, b"");
    assert_eq!(all_seen(&mut rig.host)[0].0, 2);
    rig.replace_worker();
    let given = all_seen(&mut rig.worker);
    assert_eq!((&given[1], given.len()), (&mapped, 3));
}

#[test]
fn the_next_worker_learns_what_the_host_has_set_up() {
    let mut rig = Rig::new();
    rig.keep();
    let memory = File::open("/dev/zero").unwrap();
    for iova in [0x2000, 0x1000, 0x3000] {
        let header = Header::request(1, Command::DMA_MAP);
        let fds = [memory.as_fd()];
        rig.host.send(&header, &[&map(iova)], &fds).unwrap();
        rig.session.look();
        let (id, ..) = seen(&mut rig.worker).unwrap();
        // The server refuses the last one.
        let header = Header::request(id, Command::DMA_MAP);
        let reply = match iova {
            0x3000 => header.error_reply(22),
            _ => header.reply(),
        };
        rig.worker.send(&reply, &[], &[]).unwrap();
        rig.session.look();
    }
    let mut irqs = Vec::new();
    let set = SetIrqs {
        argsz: 20,
        flags: SetIrqsFlags::DATA_EVENTFD | SetIrqsFlags::ACTION_TRIGGER,
        index: 2,
        start: 1,
        count: 1,
        data: &[],
    };
    set.encode(&mut irqs);
    for _ in 0..2 {
        let header = Header::request(1, Command::DEVICE_SET_IRQS);
        rig.host.send(&header, &[&irqs], &[memory.as_fd()]).unwrap();
        rig.session.look();
        let (id, ..) = seen(&mut rig.worker).unwrap();
        rig.answer(id, Command::DEVICE_SET_IRQS, b"");
    }
    rig.ask(1, READ, b"r");
    rig.replace_worker();
    let lessons = all_seen(&mut rig.worker);
    let expected = [
        (0, RESUME, false, vec![0; 4], 2),
        (0, Command::DMA_MAP, false, map(0x1000), 1),
        (0, Command::DMA_MAP, false, map(0x2000), 1),
        (0, Command::DEVICE_SET_IRQS, false, irqs, 1),
        (0, RESUMED, false, vec![], 0),
    ];
    assert_eq!(lessons[..5], expected);
    assert_eq!((lessons[5].1, lessons.len()), (READ, 6));
}

#[test]
fn messages_between_holder_and_worker_are_no_host_s() {
    let mut rig = Rig::new();
    rig.ask(3, KEEP, b"");
    rig.ask(4, PART, b"");
    assert_eq!(all_seen(&mut rig.worker), []);
    assert_eq!(all_seen(&mut rig.host).len(), 2);
    rig.keep();
    assert_eq!(all_seen(&mut rig.host), []);
    let header = Header::posted(0, PART);
    rig.worker.send(&header, &[], &[]).unwrap();
    assert_eq!(rig.session.look(), Fate::Over);
}

#[test]
fn a_host_that_only_asks_is_read_to_a_limit() {
    let mut rig = Rig::new();
    for _ in 0..2 * MAX_PENDING {
        let header = Header::request(1, READ);
        rig.host.send(&header, &[b"r"], &[]).unwrap();
    }
    for _ in 0..2 * MAX_PENDING {
        rig.session.look();
    }
    assert_eq!(all_seen(&mut rig.worker).len(), MAX_PENDING);
    let (_, reads, _) = rig.session.host_interest();
    assert!(!reads);
    rig.answer(1, READ, b"");
    assert_eq!(all_seen(&mut rig.worker).len(), 1);
}

#[test]
fn a_host_without_a_server_finds_a_fatal_status() {
    let mut rig = Rig::new();
    rig.session.lose_worker(false);
    rig.session.strike();
    let status = [0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
    rig.ask(5, READ, &status);
    let (id, _, _, body, _) = seen(&mut rig.host).unwrap();
    assert_eq!((id, &body[16..]), (5, &[2, 0, 0, 0][..]));
    rig.ask(6, Command::DMA_UNMAP, &[0; 24]);
    assert_eq!(seen(&mut rig.host).unwrap().3, [0; 24]);
}

#[test]
fn the_next_worker_learns_that_the_last_one_failed_by_itself() {
    for (crashed, expected) in [(true, [1, 0]), (false, [0, 0])] {
        let mut rig = Rig::new();
        rig.keep();
        assert_eq!(rig.session.lose_worker(crashed), Fate::Goes);
        let mut worker = next_worker(&mut rig.session);
        let (_, command, _, body, fds) = seen(&mut worker).expect("a first lesson");
        assert_eq!((command, &body[2..], fds), (RESUME, &expected[..], 2));
    }
}

#[test]
fn a_number_is_not_used_again_before_its_reply() {
    let mut rig = Rig::new();
    rig.ask(7, READ, b"slow");
    let slow = seen(&mut rig.worker).unwrap().0;
    for _ in 0..=u16::MAX {
        rig.ask(8, READ, b"fast");
        let (id, ..) = seen(&mut rig.worker).unwrap();
        assert_ne!(id, slow);
        rig.answer(id, READ, b"");
        assert_eq!(seen(&mut rig.host).unwrap().0, 8);
    }
    rig.answer(slow, READ, b"");
    assert_eq!(seen(&mut rig.host).unwrap().0, 7);
}
