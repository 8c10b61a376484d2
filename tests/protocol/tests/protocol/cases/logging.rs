//! DMA_LOGGING_START, DMA_LOGGING_STOP and DMA_LOGGING_REPORT: a host learns which pages of its
//! memory its controller has written (linux/vfio.h).

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::time::Duration;

use tests_protocol::drive::{BASE, LEN};
use tests_protocol::{Body, Drive, Host, Options, Server, cmd, errno};

const GET: u32 = 1 << 16;
const SET: u32 = 1 << 17;
const PROBE: u32 = 1 << 18;
const START: u32 = 6;
const STOP: u32 = 7;
const REPORT: u32 = 8;

const PAGE: u64 = 4096;
const E2BIG: u32 = 7;
const EOVERFLOW: u32 = 75;

/// Pages of a drive's memory: its data, and the completion queues.
const DATA: u64 = 0;
const ADMIN_CQ: u64 = 2;
const IO_CQ: u64 = 4;

fn server() -> Server {
    crate::serve(&Options {
        controllers: 2,
        migrates: true,
        ..Options::default()
    })
}

fn start_of(page: u64, ranges: &[(u64, u64)]) -> Body {
    let count = ranges.len() as u32;
    let body = Body::new().u32(24 + 16 * count).u32(SET | START);
    let body = body.u64(page).u32(count).u32(0);
    let add = |body: Body, (iova, len): &(u64, u64)| body.u64(*iova).u64(*len);
    ranges.iter().fold(body, add)
}

/// The errno, 0 where it was done.
fn start(host: &mut Host, page: u64, ranges: &[(u64, u64)]) -> u32 {
    let body = start_of(page, ranges);
    let reply = host.request(cmd::DEVICE_FEATURE, &body, &[]);
    if reply.error == 0 {
        // The request again, with the pages of the device.
        assert_eq!(reply.body, start_of(PAGE, ranges).0);
    }
    reply.error
}

fn stop(host: &mut Host) {
    let body = Body::new().u32(8).u32(SET | STOP);
    let reply = host.request(cmd::DEVICE_FEATURE, &body, &[]).ok();
    assert_eq!(reply.len(), 8);
}

fn report_of(argsz: u32, iova: u64, len: u64, page: u64) -> Body {
    let body = Body::new().u32(argsz).u32(GET | REPORT);
    body.u64(iova).u64(len).u64(page)
}

fn refused(host: &mut Host, iova: u64, len: u64, page: u64) -> u32 {
    let body = report_of(1 << 20, iova, len, page);
    host.request(cmd::DEVICE_FEATURE, &body, &[]).errno()
}

/// The numbers of the pages in a report.
fn report(host: &mut Host, iova: u64, len: u64, page: u64) -> Vec<u64> {
    let words = (len / page).div_ceil(64);
    let argsz = 32 + 8 * words as u32;
    let body = report_of(argsz, iova, len, page);
    let reply = host.request(cmd::DEVICE_FEATURE, &body, &[]);
    assert_eq!((reply.error, reply.u32(0)), (0, argsz));
    assert_eq!(reply.body.len(), argsz as usize);
    assert_eq!(reply.u32(4), GET | REPORT);
    let fields = [reply.u64(8), reply.u64(16), reply.u64(24)];
    assert_eq!(fields, [iova, len, page]);
    let is_set = |bit: &u64| reply.u64(32 + 8 * (bit / 64) as usize) >> (bit % 64) & 1 != 0;
    (0..words * 64).filter(is_set).collect()
}

fn all(host: &mut Host) -> Vec<u64> {
    report(host, BASE, LEN, PAGE)
}

#[test]
fn a_report_has_what_was_written_since_the_last_one() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    assert_eq!(start(&mut host, PAGE, &[(BASE, LEN)]), 0);
    assert_eq!(all(&mut host), [0u64; 0]);
    drive.transfer(&mut host, true, 0);
    assert_eq!(all(&mut host), [IO_CQ], "a write reads the data");
    drive.transfer(&mut host, false, 0);
    assert_eq!(all(&mut host), [DATA, IO_CQ]);
    assert_eq!(all(&mut host), [0u64; 0]);
    drive.create_second_sq(&mut host, BASE + LEN - PAGE);
    assert_eq!(all(&mut host), [ADMIN_CQ]);
    drive.transfer(&mut host, false, 0);
    assert_eq!(report(&mut host, BASE, PAGE, PAGE), [0]);
    assert_eq!(report(&mut host, BASE + PAGE, 4 * PAGE, PAGE), [3]);
    drive.transfer(&mut host, false, 0);
    // Bits of two pages, and of four.
    assert_eq!(report(&mut host, BASE, LEN, 2 * PAGE), [0, 2]);
    stop(&mut host);
    assert_eq!(refused(&mut host, BASE, LEN, PAGE), errno::EINVAL);
    stop(&mut host);
}

#[test]
fn a_larger_page_is_a_wish_and_no_range_is_all_memory() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    assert_eq!(
        start(
            &mut host,
            4 * PAGE,
            &[(BASE, LEN / 2), (BASE + LEN / 2, LEN / 2)]
        ),
        0
    );
    drive.transfer(&mut host, false, 0);
    assert_eq!(all(&mut host), [DATA, IO_CQ], "ranges that touch are one");
    stop(&mut host);
    assert_eq!(start(&mut host, PAGE, &[]), 0);
    drive.transfer(&mut host, false, 0);
    assert_eq!(all(&mut host), [DATA, IO_CQ]);
    assert_eq!(refused(&mut host, BASE, LEN + PAGE, PAGE), errno::EINVAL);
}

#[test]
fn a_start_waits_for_commands_in_flight() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    let cid = drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let body = start_of(PAGE, &[(BASE, LEN)]);
    let id = server.wait_for_messages(1, || host.send(cmd::DEVICE_FEATURE, &body, &[]));
    std::thread::sleep(Duration::from_millis(50));
    assert!(host.try_receive().is_none(), "that command is not logged");
    server.hold(false);
    let reply = host.receive();
    assert_eq!((reply.id, reply.error), (id, 0));
    assert_eq!(drive.wait(&mut host, cid).status, 0);
    let _ = all(&mut host);
    drive.transfer(&mut host, false, 0);
    assert_eq!(all(&mut host), [DATA, IO_CQ]);
}

#[test]
fn a_start_that_waits_too_long_leaves_no_log() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    let cid = drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let body = start_of(PAGE, &[(BASE, LEN)]);
    let id = server.wait_for_messages(1, || host.send(cmd::DEVICE_FEATURE, &body, &[]));
    server.advance(Duration::from_millis(4600));
    let reply = host.receive();
    assert_eq!((reply.id, reply.errno()), (id, errno::ETIMEDOUT));
    assert_eq!(refused(&mut host, BASE, LEN, PAGE), errno::EINVAL);
    server.hold(false);
    assert_eq!(drive.wait(&mut host, cid).status, 0, "nothing is aborted");
    assert_eq!(start(&mut host, PAGE, &[(BASE, LEN)]), 0);
}

#[test]
fn memory_that_is_unmapped_is_reported_after() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    let second = BASE + 2 * LEN;
    assert_eq!(start(&mut host, PAGE, &[(BASE, 3 * LEN)]), 0);
    host.dma_map(second, LEN, drive.fd());
    let cid = drive.submit_at(&mut host, false, 0, second + 8 * PAGE);
    assert_eq!(drive.wait(&mut host, cid).status, 0);
    let unmap = Body::new().u32(24).u32(0).u64(second).u64(LEN);
    let _ = host.request(cmd::DMA_UNMAP, &unmap, &[]).ok();
    assert_eq!(report(&mut host, second, LEN, PAGE), [8]);
    let dirty = Body::new().u32(24).u32(1).u64(BASE).u64(LEN);
    let reply = host.request(cmd::DMA_UNMAP, &dirty, &[]);
    assert_eq!(reply.errno(), errno::EOPNOTSUPP, "GET_DIRTY");
}

#[test]
fn a_log_ends_with_its_session_and_not_with_a_reset() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    assert_eq!(start(&mut host, PAGE, &[(BASE, LEN)]), 0);
    drive.transfer(&mut host, false, 0);
    let _ = host.request(cmd::DEVICE_RESET, &Body::new(), &[]).ok();
    assert_eq!(all(&mut host), [DATA, IO_CQ]);
    drop(host);
    let _ = server.wait_for_end(0);
    let mut next = Host::new(server.attach(0));
    let _ = Drive::new(&mut next);
    assert_eq!(refused(&mut next, BASE, LEN, PAGE), errno::EINVAL);
}

#[test]
fn wrong_requests_change_nothing() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    assert_eq!(refused(&mut host, BASE, LEN, PAGE), errno::EINVAL, "no log");
    for page in [0, 1, 512, 2048, 4097, 3 * PAGE, u64::MAX] {
        assert_eq!(
            start(&mut host, page, &[(BASE, LEN)]),
            errno::EINVAL,
            "{page}"
        );
    }
    let last = 0u64.wrapping_sub(PAGE);
    for (ranges, expected) in [
        (&[(BASE, 0)][..], errno::EINVAL),
        (&[(BASE + 512, LEN)], errno::EINVAL),
        (&[(BASE, LEN + 1)], errno::EINVAL),
        (&[(last, 2 * PAGE)], EOVERFLOW),
        (&[(BASE, LEN), (BASE + LEN - PAGE, PAGE)], errno::EINVAL),
        (&[(0, 1 << 45)], errno::ENOSPC),
        (&[(BASE, PAGE); 1025], E2BIG),
    ] {
        assert_eq!(start(&mut host, PAGE, ranges), expected, "{:?}", ranges[0]);
    }
    let one = start_of(2 * PAGE, &[(BASE + PAGE, LEN)]);
    assert_eq!(
        host.request(cmd::DEVICE_FEATURE, &one, &[]).errno(),
        errno::EINVAL
    );
    // Too few bytes, and too many, for its ranges; a client that does not take the reply.
    let mut cut = start_of(PAGE, &[(BASE, LEN)]);
    cut.0.truncate(39);
    let longer = start_of(PAGE, &[(BASE, LEN)]).u32(0);
    let mut small = start_of(PAGE, &[(BASE, LEN)]);
    small.0[0] -= 1;
    for body in [&cut, &longer, &small, &Body::new().u32(8).u32(SET | START)] {
        let reply = host.request(cmd::DEVICE_FEATURE, body, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{body:?}");
    }
    assert_eq!(refused(&mut host, BASE, LEN, PAGE), errno::EINVAL, "no log");
    assert_eq!(start(&mut host, PAGE, &[(BASE, 4 << 40)]), 0);
    assert_eq!(start(&mut host, PAGE, &[(BASE, LEN)]), errno::EBUSY);
    // As much as one report has.
    assert_eq!(report(&mut host, BASE + LEN, 32 << 30, PAGE), [0u64; 0]);
    drive.transfer(&mut host, false, 0);
    for (iova, len, page, expected) in [
        (BASE, 0, PAGE, errno::EINVAL),
        (BASE, LEN, 0, errno::EINVAL),
        (BASE, LEN, 512, errno::EINVAL),
        (BASE, LEN, 3 * PAGE, errno::EINVAL),
        (BASE + 512, LEN, PAGE, errno::EINVAL),
        (BASE, LEN + 512, PAGE, errno::EINVAL),
        (BASE - PAGE, LEN, PAGE, errno::EINVAL),
        (last, 2 * PAGE, PAGE, EOVERFLOW),
        (BASE, (32 << 30) + 64 * PAGE, PAGE, E2BIG),
        (BASE, 4 << 40, PAGE, E2BIG),
    ] {
        assert_eq!(
            refused(&mut host, iova, len, page),
            expected,
            "{iova:#x} {len:#x} {page}"
        );
    }
    let small = report_of(31 + 8 * 4, BASE, LEN, PAGE);
    assert_eq!(
        host.request(cmd::DEVICE_FEATURE, &small, &[]).errno(),
        errno::EINVAL
    );
    let cut = Body::new().u32(64).u32(GET | REPORT).u64(BASE).u64(LEN);
    assert_eq!(
        host.request(cmd::DEVICE_FEATURE, &cut, &[]).errno(),
        errno::EINVAL
    );
    assert_eq!(all(&mut host), [DATA, IO_CQ], "nothing was forgotten");
    host.expect_in_step();
}

#[test]
fn the_uses_of_the_features_are_as_specified() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut ask = |flags: u32| {
        let body = Body::new().u32(8).u32(flags);
        host.request(cmd::DEVICE_FEATURE, &body, &[])
    };
    for known in [SET | START, SET | STOP, GET | REPORT] {
        let reply = ask(PROBE | known);
        assert_eq!((reply.error, reply.u32(4)), (0, PROBE | known));
        assert_eq!(reply.body.len(), 8);
    }
    for wrong in [
        START,
        PROBE | REPORT,
        GET | START,
        PROBE | GET | STOP,
        SET | REPORT,
        GET | SET | REPORT,
        GET | REPORT | 1 << 19,
    ] {
        assert_eq!(ask(wrong).errno(), errno::EINVAL, "{wrong:#x}");
    }
}
