//! Nothing is allocated per command, whatever its way through a channel.

use allocation_counter::measure;
use media::{Direct, Medium, MediumKind, MediumSpec};
use port::allocation::Query;
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as _, Done, Request};

use crate::common::{Host, on_disk, open_file};

const DEPTH: usize = 8;

#[test]
fn no_command_allocates() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let ram = MediumSpec {
        kind: MediumKind::Ram { size: 1 << 20 },
    };
    let media = [
        open_file(&path, Some(1 << 20), Direct::Auto),
        Medium::open(&ram).expect("opened"),
    ];
    let host = Host::new(1 << 20);
    // Aligned in one piece and in several, and an address for the bounce buffer.
    let shapes = [
        vec![(0, 131_072)],
        vec![(4096, 65_536), (262_144, 65_536)],
        vec![(4, 131_072)],
    ];
    let segments = shapes.map(|pieces| host.segments(&pieces));
    let ranges = [ByteRange {
        offset: 0,
        len: 4096,
    }; 256];
    let (slba, blocks) = (0, 2048);
    let query = Query { slba, blocks }.command(1, 1);
    let (offset, len) = (8192, 131_072);
    let requests = [
        Request::Read { offset, len },
        Request::Write {
            offset,
            len,
            fua: false,
        },
        Request::Write {
            offset,
            len,
            fua: true,
        },
        Request::Compare { offset, len },
        Request::WriteZeroes {
            offset,
            len: len.into(),
            deallocate: true,
            fua: true,
        },
        Request::Deallocate { ranges: &ranges },
        Request::Flush,
        Request::Command {
            sqe: &query,
            extent: ByteRange {
                offset: 0,
                len: 1 << 20,
            },
            lba_shift: 9,
            fua: false,
        },
    ];
    for medium in &media {
        let mut channel = medium.channel(DEPTH as u16).expect("a channel");
        let mut done: Vec<Done> = Vec::with_capacity(DEPTH);
        let mut run = || {
            for request in &requests {
                for segments in &segments {
                    match channel.add(Ticket::numbered(1), request, segments, &host.view) {
                        Added::Pending => {}
                        Added::Done(ticket, _) | Added::Full(ticket) => ticket.retire(),
                    }
                }
                channel.submit();
                while channel.in_flight() > 0 {
                    channel.reap(&mut done);
                    done.drain(..).for_each(|done| done.ticket.retire());
                }
            }
        };
        run(); // the pins grow to as many as there are views
        let counted = measure(run);
        assert_eq!(counted.count_total, 0, "{}", medium.describe());
    }
}
