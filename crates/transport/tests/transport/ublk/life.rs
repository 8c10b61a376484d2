//! How a session begins, what it hears of, and how it ends.

use std::time::Duration;

use rustix::io::Errno;
use transport::ublk::{End, MAX_IO, News, TAGS};
use ublk::{Descriptor, Event, Operation, RequestFlags};

use super::kernel::Ask;
use super::rig::{LEN, Rig, Shape};

/// The only news is that of the stop.
fn stopped(rig: &Rig) {
    assert_eq!(rig.news(), [News::Stopped]);
    assert!(rig.session.is_none() && rig.kernel().is_closed);
}

/// The only news, which is that of the end.
fn ended(rig: &Rig, with: &str) {
    let news = rig.news();
    let [News::Ended(why)] = &news[..] else {
        panic!("one end: {news:?}");
    };
    assert!(why.contains(with), "{why}");
    assert!(rig.session.is_none() && rig.kernel().is_closed);
}

/// The only news, which is that of the end. The ring is left to the end of the thread.
fn left(rig: &Rig, with: &str) {
    let news = rig.news();
    let [News::Ended(why)] = &news[..] else {
        panic!("one end: {news:?}");
    };
    assert!(why.contains(with), "{why}");
    assert!(rig.session.is_none() && !rig.kernel().is_closed);
}

/// It has ended, and fails requests until its device is stopped.
fn fails_until_stopped(rig: &mut Rig, name: &str, with: &str) {
    assert_eq!(rig.end, None);
    let news = rig.news();
    let [News::Ended(why)] = &news[..] else {
        panic!("one end: {news:?}");
    };
    assert!(why.contains(with), "{why}");
    rig.done();
    for _ in 0..20 {
        assert_eq!(rig.run(Ask::read(0, 1)).errno(), Errno::IO);
        assert_eq!(rig.run(Ask::write(0, &[9; 512])).errno(), Errno::IO);
    }
    assert_eq!(rig.kernel().busy(), 0);
    rig.kernel_mut().stop();
    rig.settle();
    assert_eq!((rig.end, rig.news()), (Some(name), vec![]));
    assert!(rig.session.is_none() && rig.kernel().is_closed);
}

#[test]
fn tags_are_fetched_when_the_controller_is_ready() {
    for is_zoned in [false, true] {
        let mut rig = Rig::try_new(
            Shape {
                is_zoned,
                ..Shape::default()
            },
            |_| (),
        )
        .unwrap();
        assert!(rig.session.as_ref().unwrap().has_io_in_flight());
        assert_eq!((rig.news(), rig.kernel().free()), (vec![], 0));
        assert!(rig.turn());
        assert_eq!((rig.news(), rig.kernel().free()), (vec![], 0));
        rig.settle();
        assert_eq!((rig.news(), rig.kernel().free()), (vec![News::Fetched], 16));
        assert!(!rig.session.as_ref().unwrap().has_io_in_flight());
        assert_eq!(rig.session.as_ref().unwrap().next_deadline(), None);
    }
}

#[test]
fn devices_that_are_too_large_are_refused() {
    for (tags, buffer_len, max_transfer) in [
        (0, 4096, MAX_IO),
        (TAGS + 1, 4096, MAX_IO),
        (u16::MAX, 4096, MAX_IO),
        (1, 0, MAX_IO),
        (1, 512, MAX_IO),
        (1, 4097, MAX_IO),
        (1, MAX_IO as usize + 4096, 1 << 20),
        (1, u32::MAX as usize & !4095, 4 << 20),
        (u16::MAX, u32::MAX as usize, 4 << 20),
        // A command moves less than a request.
        (16, 256 << 10, 128 << 10),
    ] {
        let shape = Shape {
            tags,
            buffer_len,
            max_transfer,
            ..Shape::default()
        };
        let Err(error) = Rig::try_new(shape, |_| ()) else {
            panic!("{shape:?} is taken");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let said = format!("{tags} requests of up to {buffer_len} bytes");
        assert!(error.to_string().contains(&said), "{error}");
    }
    let most = Shape {
        tags: TAGS,
        buffer_len: MAX_IO as usize,
        ..Shape::default()
    };
    let mut rig = Rig::new(most);
    rig.succeed(Ask::write(0, &vec![1; MAX_IO as usize]));
    let refused = Rig::try_new(Shape::default(), |kernel| kernel.fails_calls = true);
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::PermissionDenied)
    );
}

#[test]
fn a_sleeping_session_makes_no_system_calls_and_no_polls() {
    let mut rig = Rig::new(Shape::default());
    for _ in 0..20 {
        rig.succeed(Ask::write(0, &[1; 512]));
        let (calls, polls) = (rig.kernel().calls, rig.polls);
        for _ in 0..100 {
            assert!(!rig.turn());
        }
        assert_eq!((rig.kernel().calls, rig.polls), (calls, polls));
    }
    // One to bring a request, and one for what became of it.
    assert!(rig.kernel().calls <= 1 + 20 * 2, "{}", rig.kernel().calls);
}

/// What came while it was polled makes nothing readable.
#[test]
fn a_session_does_not_sleep_with_a_request() {
    let mut rig = Rig::new(Shape::default());
    rig.wake_up();
    rig.give(Ask::read(0, 1));
    let session = rig.session.as_mut().unwrap();
    assert!(!session.arm(), "it sleeps");
    rig.wake_up();
    rig.settle();
    assert_eq!(rig.done().len(), 1);
    assert!(rig.session.as_mut().unwrap().arm());
}

/// All requests that are there have one system call.
#[test]
fn a_batch_of_requests_has_few_system_calls() {
    let mut rig = Rig::new(Shape {
        tags: 128,
        ..Shape::default()
    });
    let before = rig.kernel().calls;
    for at in 0..128 {
        rig.give(Ask::write(at, &[at as u8; 512]));
    }
    rig.settle();
    assert_eq!(rig.done().len(), 128);
    assert!(rig.kernel().calls - before <= 6);
}

#[test]
fn a_device_that_stops_ends_when_all_is_committed() {
    for busy in [0, 1, 16] {
        let mut rig = Rig::new(Shape::default());
        rig.medium(|medium| medium.delays = true);
        for at in 0..busy {
            rig.give(Ask::write(at, &[1; 512]));
        }
        rig.settle();
        rig.kernel_mut().stop();
        rig.settle();
        if busy > 0 {
            assert_eq!((rig.end, rig.kernel().busy()), (None, busy as usize));
            // Those that are committed are taken away, and the others are waited for.
            rig.medium(|medium| medium.release(busy as usize - 1, true));
            rig.settle();
            assert_eq!((rig.end, rig.kernel().busy()), (None, 1));
            rig.medium(|medium| medium.release(1, true));
            rig.settle();
        }
        assert_eq!(rig.end, Some("stopped"));
        assert_eq!(rig.done().len(), busy as usize);
        stopped(&rig);
    }
}

/// Requests that came before the driver took the other tags away are done.
#[test]
fn requests_that_come_with_a_stop_are_done() {
    let mut rig = Rig::new(Shape::default());
    rig.give(Ask::write(0, &[1; 512]));
    rig.kernel_mut().stop();
    rig.settle();
    let done = rig.done();
    assert_eq!((done.len(), done[0].result), (1, 512));
    assert_eq!(rig.end, Some("stopped"));
    stopped(&rig);
}

#[test]
fn what_the_driver_refuses_ends_the_session() {
    let request = |op| {
        Event::Request(Descriptor {
            flags: RequestFlags::new().with_op(op),
            sectors: 1,
            start: 0,
        })
    };
    for (index, event, why) in [
        (3, Event::Failed(Errno::INVAL), "refused a command"),
        (0, Event::Failed(Errno::PROTO), "refused a command"),
        // Tags that there are not.
        (16, request(0), "to tag 16"),
        (u16::MAX, request(2), "to tag 65535"),
    ] {
        let mut rig = Rig::new(Shape::default());
        rig.kernel_mut().post(index, event);
        rig.settle();
        assert_eq!(rig.end, Some("refused"));
        ended(&rig, why);
    }
    // A tag that has a request.
    let mut rig = Rig::new(Shape::default());
    rig.medium(|medium| medium.delays = true);
    let tag = rig.give(Ask::write(0, &[1; 512]));
    rig.settle();
    rig.kernel_mut().post(tag, request(1));
    rig.settle();
    assert_eq!(rig.end, Some("refused"));
    ended(&rig, "which has one");
}

#[test]
fn a_ring_that_fails_ends_the_session() {
    // When it fetches, when it takes, and when it commits.
    let fetches = Rig::try_new(Shape::default(), |_| ());
    let mut rig = fetches.unwrap();
    rig.kernel_mut().fails_calls = true;
    rig.settle();
    assert_eq!(rig.end, Some("io"));
    ended(&rig, "its io_uring failed");
    let mut rig = Rig::new(Shape::default());
    rig.kernel_mut().fails_calls = true;
    rig.give(Ask::read(0, 1));
    rig.settle();
    assert_eq!(rig.end, Some("io"));
    ended(&rig, "its io_uring failed");
    let mut rig = Rig::new(Shape::default());
    rig.medium(|medium| medium.delays = true);
    rig.give(Ask::write(0, &[1; 512]));
    rig.settle();
    rig.kernel_mut().fails_calls = true;
    rig.medium(|medium| medium.release(1, true));
    rig.settle();
    assert_eq!(rig.end, Some("io"));
    ended(&rig, "its io_uring failed");
}

#[test]
fn a_namespace_that_grows_or_shrinks_is_news() {
    let mut rig = Rig::new(Shape::default());
    for len in [LEN + (1 << 20), 1 << 20] {
        rig.resize(len);
        rig.settle();
        assert_eq!(rig.news(), [News::Resized(len / 512)]);
        rig.succeed(Ask::write(len / 512 - 1, &[4; 512]));
        assert_eq!(rig.run(Ask::read(len / 512, 1)).errno(), Errno::IO);
    }
    assert_eq!((rig.news(), rig.end), (vec![], None));
}

/// It may change while the device is made.
#[test]
fn a_namespace_that_changed_before_is_news_after_the_fetch() {
    let mut rig = Rig::try_new(Shape::default(), |_| ()).unwrap();
    rig.resize(1 << 20);
    rig.settle();
    let news = rig.news();
    assert_eq!(news.len(), 2);
    assert!(news.contains(&News::Fetched) && news.contains(&News::Resized(2048)));
    let mut rig = Rig::try_new(Shape::default(), |_| ()).unwrap();
    rig.detach();
    rig.settle();
    assert_eq!(rig.end, Some("changed"));
    ended(&rig, "is not what it was");
}

#[test]
fn a_namespace_that_is_another_one_ends_the_session() {
    for is_zoned in [false, true] {
        let shape = Shape {
            is_zoned,
            ..Shape::default()
        };
        for is_hot in [false, true] {
            let mut rig = Rig::new(shape);
            if is_hot {
                rig.give(Ask::read(0, 1));
                rig.turn();
            }
            rig.format(12);
            rig.settle();
            fails_until_stopped(&mut rig, "changed", "is not what it was");
            let mut rig = Rig::new(shape);
            rig.detach();
            rig.settle();
            fails_until_stopped(&mut rig, "changed", "is not what it was");
        }
    }
}

#[test]
fn a_controller_that_fails_ends_the_session() {
    // CC.EN is cleared.
    let mut rig = Rig::new(Shape::default());
    rig.with_controller(|it| it.bar_write(0, 0x14, &[0; 4]));
    rig.give(Ask::read(0, 1));
    for _ in 0..100 {
        rig.turn();
    }
    assert_eq!(rig.done().pop().unwrap().errno(), Errno::IO);
    fails_until_stopped(&mut rig, "controller", "its controller has failed");
    // It does not become ready.
    let mut rig = Rig::try_new(Shape::default(), |_| ()).unwrap();
    rig.advance(Duration::from_secs(10));
    rig.turn();
    assert_eq!(rig.end, Some("controller"));
    ended(&rig, "its controller has failed");
}

/// Requests of other tags go on, and so does the end.
#[test]
fn a_medium_that_hangs_holds_its_requests_alone() {
    let mut rig = Rig::new(Shape::default());
    rig.medium(|medium| medium.holds = true);
    for at in 0..8 {
        rig.give(Ask::write(at, &[1; 512]));
    }
    rig.settle();
    assert_eq!(rig.medium(|medium| medium.kept()), 8);
    for _ in 0..30 {
        assert_eq!(rig.succeed(Ask::read(0, 8)), [0; 4096]);
        rig.advance(Duration::from_secs(1));
    }
    assert_eq!((rig.end, rig.kernel().busy()), (None, 8));
    // Another one's format waits for it no longer than it must.
    rig.end_with(&End::Removed);
    left(&rig, "the operator ended it");
    for _ in 0..100 {
        rig.turn();
        rig.advance(Duration::from_millis(100));
    }
    rig.medium(|medium| assert_eq!(medium.kept(), 8));
}

/// An aborted command is not the end of what its medium does with the memory: the driver gets
/// another buffer for later requests.
#[test]
fn a_command_that_is_aborted_ends_the_session() {
    let mut rig = Rig::new(Shape::default());
    rig.medium(|medium| medium.holds = true);
    let tag = rig.give(Ask::write(0, &[1; 512]));
    rig.settle();
    rig.with_controller(|it| it.abandon(u64::MAX));
    rig.settle();
    let done = rig.done();
    assert_eq!((done.len(), done[0].errno()), (1, Errno::IO));
    assert!(rig.kernel().refused[usize::from(tag)]);
    fails_until_stopped(&mut rig, "medium-hangs", "a medium does not end a command");
}

#[test]
fn each_way_of_ending_is_reported_once() {
    for end in [
        End::Removed,
        End::Taken,
        End::Changed,
        End::Controller,
        End::MediumHangs,
        End::Stopped,
        End::Tag(3),
        End::Refused(Errno::BUSY),
        End::Io(std::io::ErrorKind::Other.into()),
    ] {
        let mut rig = Rig::new(Shape::default());
        rig.medium(|medium| medium.delays = true);
        rig.give(Ask::write(0, &[1; 512]));
        rig.give(Ask::new(Operation::FLUSH, 0, 0));
        rig.settle();
        rig.end_with(&end);
        match end {
            End::Removed | End::Taken => left(&rig, &end.to_string()),
            End::Stopped => stopped(&rig),
            _ => ended(&rig, &end.to_string()),
        }
        rig.medium(|medium| medium.release(9, false));
        for _ in 0..20 {
            rig.turn();
        }
        assert_eq!(rig.news(), []);
        assert_eq!(rig.done().len(), 0);
    }
}

/// Without a receiver of the news a session works all the same.
#[test]
fn news_without_a_receiver_are_no_reason_to_end() {
    let mut rig = Rig::new(Shape::default());
    rig.forget_news();
    rig.resize(1 << 20);
    rig.settle();
    rig.succeed(Ask::write(0, &[1; 512]));
    assert_eq!(rig.end, None);
}
