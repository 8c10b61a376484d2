//! Single rules with bytes typed from the specification (Base 2.1, 4.3.2), and, in `oracle`, random
//! lists against a walk that goes byte by byte.

use memory::{Access, Hint, Iova, Need, Segment};
use nvme_spec::Status;
use nvme_spec::sgl::SglDescriptor;
use port::prp::{MAX_SEGMENTS, Segments};
use port::testing::{Host, PAGE};

use super::{MAX_DESCRIPTORS, walk};

mod oracle;

/// A descriptor's bytes.
type Raw = [u8; 16];

/// The last byte of descriptors (Base 2.1, figures 115 and 116).
const DATA_BLOCK: u8 = 0x00;
const BIT_BUCKET: u8 = 0x10;
const SEGMENT: u8 = 0x20;
const LAST_SEGMENT: u8 = 0x30;

/// Status codes (Base 2.1, figure 102).
const DATA_TRANSFER_ERROR: Status = Status(0x04);
const INVALID_SEGMENT: Status = Status(0x0D);
const INVALID_NUMBER: Status = Status(0x0E);
const LENGTH_INVALID: Status = Status(0x0F);
const TYPE_INVALID: Status = Status(0x11);

/// Most pieces and descriptors, as the book has them.
const PIECES: u32 = 1280;
const DESCRIPTORS: u32 = 2048;

fn raw(identifier: u8, address: u64, length: u32) -> Raw {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[15] = identifier;
    bytes
}

fn data(address: u64, length: u32) -> Raw {
    raw(DATA_BLOCK, address, length)
}

fn bucket(length: u32) -> Raw {
    raw(BIT_BUCKET, 0, length)
}

/// Where bytes go, or come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// This many of the host's, from this address on.
    Host(u64, u32),
    /// This many that are discarded.
    Sink(u32),
}

use Piece::{Host as At, Sink};

fn walked(host: &Host, sgl1: Raw, len: u32, need: Need) -> Result<Vec<Piece>, Status> {
    let view = host.view();
    let mut out = Segments::new();
    let sgl1: SglDescriptor = zerocopy::transmute!(sgl1);
    walk(&view, &mut Hint::default(), sgl1, len, need, &mut out)?;
    let (sink, _) = Segment::sink(1).as_raw();
    let piece = |segment: &Segment<'_>| match segment.as_raw() {
        (start, _) if start == sink => Sink(segment.len()),
        _ => At(segment.iova().0, segment.len()),
    };
    Ok(out.iter().map(piece).collect())
}

/// As the command that has the host's memory written walks.
fn read(host: &Host, sgl1: Raw, len: u32) -> Result<Vec<Piece>, Status> {
    walked(host, sgl1, len, Need::DeviceWrites)
}

/// As the command that has the host's memory read walks.
fn write(host: &Host, sgl1: Raw, len: u32) -> Result<Vec<Piece>, Status> {
    walked(host, sgl1, len, Need::DeviceReads)
}

/// Writes a segment at `at`; its descriptor comes back.
fn segment(host: &Host, identifier: u8, at: u64, descriptors: &[Raw]) -> Raw {
    host.write(Iova(at), descriptors.as_flattened());
    raw(identifier, at, 16 * descriptors.len() as u32)
}

#[test]
fn limits_are_those_of_the_book() {
    assert_eq!(MAX_DESCRIPTORS, DESCRIPTORS);
    assert_eq!(MAX_SEGMENTS, PIECES as usize);
}

/// Figure 117, with SGLS 1: no alignment, no granularity.
#[test]
fn a_data_block_begins_and_ends_at_any_byte() {
    let host = Host::new(8);
    for (offset, len) in [(0, 512), (1, 511), (4095, 2), (3, 20_001), (7, 1)] {
        let at = host.page(1).0 + offset;
        assert_eq!(read(&host, data(at, len), len), Ok(vec![At(at, len)]));
        assert_eq!(write(&host, data(at, len), len), Ok(vec![At(at, len)]));
    }
}

/// Figure 117: "An SGL Data Block descriptor specifying that no data is transferred is a valid SGL
/// Data Block descriptor".
#[test]
fn data_blocks_of_no_bytes_are_valid_wherever_they_are() {
    let host = Host::new(8);
    let at = host.page(2).0 + 9;
    let descriptors = [[0; 16], data(at, 100), data(u64::MAX, 0), data(at + 100, 1)];
    let list = segment(&host, LAST_SEGMENT, host.page(1).0, &descriptors);
    assert_eq!(read(&host, list, 101), Ok(vec![At(at, 101)]));
    assert_eq!(read(&host, [0; 16], 1), Err(LENGTH_INVALID));
}

#[test]
fn data_that_follows_data_is_one_piece() {
    let host = Host::new(8);
    let at = host.page(2).0 + 1;
    let blocks = [
        data(at, 10),
        data(at + 10, 1),
        data(at + 12, 8),
        data(at + 11, 1),
        data(at + 12, 3),
    ];
    let list = segment(&host, LAST_SEGMENT, host.page(1).0, &blocks);
    let expected = vec![At(at, 11), At(at + 12, 8), At(at + 11, 4)];
    assert_eq!(write(&host, list, 23), Ok(expected));
}

/// 4.3.2: segments follow each other by their last descriptors.
#[test]
fn segments_are_chained_by_their_last_descriptor() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    let last = [data(page(9), 3), data(page(4), 4)];
    let last = segment(&host, LAST_SEGMENT, page(3) + 8, &last);
    let second = segment(&host, SEGMENT, page(2) + 16, &[last]);
    let first = [data(page(8) + 1, 1), data(page(7), 2), second];
    let first = segment(&host, SEGMENT, page(1), &first);
    let expected = vec![
        At(page(8) + 1, 1),
        At(page(7), 2),
        At(page(9), 3),
        At(page(4), 4),
    ];
    assert_eq!(read(&host, first, 10), Ok(expected));
    // 4.3.2 has no error for a list that ends in a segment that was not announced as the last one.
    let ended = segment(&host, SEGMENT, page(2), &[data(page(8), 5)]);
    assert_eq!(read(&host, ended, 5), Ok(vec![At(page(8), 5)]));
}

/// 4.3.2: "Only the last descriptor in an SGL segment may be an SGL Segment descriptor or an SGL
/// Last Segment descriptor".
#[test]
fn a_segment_descriptor_before_the_end_of_its_segment_is_an_invalid_number() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    for identifier in [SEGMENT, LAST_SEGMENT] {
        let next = segment(&host, identifier, page(3), &[data(page(8), 512)]);
        for end in [data(page(9), 512), bucket(0), next] {
            for outer in [SEGMENT, LAST_SEGMENT] {
                let list = segment(&host, outer, page(2), &[data(page(7), 512), next, end]);
                assert_eq!(read(&host, list, 512), Err(INVALID_NUMBER));
                assert_eq!(read(&host, list, 1024), Err(INVALID_NUMBER));
            }
        }
    }
}

/// Figure 120: "A last SGL segment that contains an SGL Segment descriptor or an SGL Last Segment
/// descriptor is processed as an error"; figure 102, 0Dh, a).
#[test]
fn a_last_segment_is_the_last() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    for identifier in [SEGMENT, LAST_SEGMENT] {
        let next = segment(&host, identifier, page(3), &[data(page(8), 512)]);
        let list = segment(&host, LAST_SEGMENT, page(2), &[data(page(7), 512), next]);
        assert_eq!(read(&host, list, 512), Err(INVALID_SEGMENT));
        assert_eq!(read(&host, list, 1024), Err(INVALID_SEGMENT));
        let list = segment(&host, SEGMENT, page(2), &[data(page(7), 512), next]);
        assert!(read(&host, list, 1024).is_ok());
    }
}

/// Figure 102, 0Dh, b) and c); figures 119 and 120.
#[test]
fn segments_are_qword_aligned_and_whole_descriptors() {
    let host = Host::new(16);
    let (at, block) = (host.page(2).0, data(host.page(8).0, 512));
    for identifier in [SEGMENT, LAST_SEGMENT] {
        for offset in 0..=16 {
            let list = segment(&host, identifier, at + offset, &[block]);
            let expected = match offset {
                0 | 8 | 16 => Ok(1),
                _ => Err(INVALID_SEGMENT),
            };
            assert_eq!(read(&host, list, 512).map(|p| p.len()), expected);
        }
        segment(&host, identifier, at, &[block, [0; 16]]);
        for length in 0..=32 {
            let expected = match length {
                16 | 32 => Ok(1),
                _ => Err(INVALID_SEGMENT),
            };
            let list = raw(identifier, at, length);
            assert_eq!(read(&host, list, 512).map(|p| p.len()), expected);
        }
    }
}

/// Figure 115: keyed and transport descriptors, and the types and sub types that nothing over PCIe
/// has.
#[test]
fn other_types_and_sub_types_are_invalid_types() {
    let host = Host::new(16);
    let at = host.page(8).0;
    for identifier in 0..=u8::MAX {
        let descriptor = raw(identifier, at, 512);
        let result = read(&host, descriptor, 512);
        let in_list = [data(at, 512), descriptor];
        let list = segment(&host, SEGMENT, host.page(2).0, &in_list);
        match identifier {
            DATA_BLOCK => assert_eq!(result, Ok(vec![At(at, 512)])),
            BIT_BUCKET => assert_eq!(result, Ok(vec![Sink(512)])),
            // They point to zeros: data blocks of nothing.
            SEGMENT | LAST_SEGMENT => assert_eq!(result, Err(LENGTH_INVALID)),
            _ => {
                assert_eq!(result, Err(TYPE_INVALID), "{identifier:#x}");
                assert_eq!(read(&host, list, 512), Err(TYPE_INVALID));
                assert_eq!(write(&host, list, 512), Err(TYPE_INVALID));
            }
        }
    }
}

/// Figures 117, 119 and 120: address plus length above 2^64 is Data SGL Length Invalid.
#[test]
fn nothing_ends_behind_the_last_address() {
    let host = Host::new(16);
    let at = host.page(8).0;
    let top = u64::MAX - 15;
    for identifier in [DATA_BLOCK, SEGMENT, LAST_SEGMENT] {
        let list = [data(at, 512), raw(identifier, top, 32)];
        let list = segment(&host, SEGMENT, host.page(2).0, &list);
        assert_eq!(read(&host, list, 512), Err(LENGTH_INVALID));
        assert_eq!(
            read(&host, raw(identifier, top, 32), 512),
            Err(LENGTH_INVALID)
        );
        // Exactly 2^64 is an address that nothing is mapped at.
        let result = read(&host, raw(identifier, top, 16), 16);
        assert_eq!(result, Err(DATA_TRANSFER_ERROR));
    }
    let list = [data(at, 512), data(top, 16), data(1, u32::MAX)];
    let list = segment(&host, SEGMENT, host.page(2).0, &list);
    assert_eq!(read(&host, list, 512), Ok(vec![At(at, 512)]));
    // A Bit Bucket's address is reserved.
    let bucket = raw(BIT_BUCKET, u64::MAX, 512);
    assert_eq!(read(&host, bucket, 512), Ok(vec![Sink(512)]));
}

/// 4.3.2: data "shall be equal to or exceed" what is transferred; SGLS says that it may exceed.
#[test]
fn a_list_may_be_longer_than_the_data_and_not_shorter() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    let at = page(8);
    for (length, expected) in [
        (511, Err(LENGTH_INVALID)),
        (512, Ok(vec![At(at, 512)])),
        (513, Ok(vec![At(at, 512)])),
        (u32::MAX, Ok(vec![At(at, 512)])),
    ] {
        assert_eq!(read(&host, data(at, length), 512), expected);
        let list = [data(at, 100), data(at + 100, length - 100), data(0, 512)];
        let list = segment(&host, LAST_SEGMENT, page(2), &list[..2]);
        assert_eq!(write(&host, list, 512), expected);
    }
    // A segment that is not needed is not read, and is a list all the same.
    let tail = segment(&host, LAST_SEGMENT, page(3), &[data(0, 512), bucket(7)]);
    let list = segment(&host, SEGMENT, page(2), &[data(at, 600), data(0, 9), tail]);
    assert_eq!(read(&host, list, 512), Ok(vec![At(at, 512)]));
    segment(
        &host,
        LAST_SEGMENT,
        page(3),
        &[data(0, 512), raw(0x40, 0, 0)],
    );
    assert_eq!(read(&host, list, 512), Err(TYPE_INVALID));
    let lost = raw(SEGMENT, 0x1000, 16);
    let list = segment(&host, SEGMENT, page(2), &[data(at, 600), lost]);
    assert_eq!(read(&host, list, 512), Err(DATA_TRANSFER_ERROR));
}

/// Figure 118, for a destination.
#[test]
fn reads_discard_what_a_bit_bucket_takes() {
    let host = Host::new(16);
    let at = host.page(8).0 + 3;
    let descriptors = [
        bucket(7),
        data(at, 100),
        bucket(0),
        data(at + 100, 5),
        bucket(1),
        data(at + 105, 5),
        bucket(1000),
    ];
    let list = segment(&host, LAST_SEGMENT, host.page(2).0, &descriptors);
    let expected = vec![
        Sink(7),
        At(at, 105),
        Sink(1),
        At(at + 105, 5),
        Sink(512 - 118),
    ];
    assert_eq!(read(&host, list, 512), Ok(expected));
    assert_eq!(read(&host, list, 1119), Err(LENGTH_INVALID));
    // The sink has 64 KiB; a command's own descriptor may be one.
    let expected = vec![Sink(65_536), Sink(65_536), Sink(1)];
    assert_eq!(read(&host, bucket(u32::MAX), 131_073), Ok(expected));
}

/// Figure 118, for a source: "the Bit Bucket Descriptor has no effect".
#[test]
fn writes_have_no_bit_buckets() {
    let host = Host::new(16);
    let at = host.page(8).0 + 3;
    let descriptors = [bucket(7), data(at, 100), bucket(9), data(at + 100, 5)];
    let list = segment(&host, LAST_SEGMENT, host.page(2).0, &descriptors);
    assert_eq!(write(&host, list, 105), Ok(vec![At(at, 105)]));
    assert_eq!(write(&host, list, 106), Err(LENGTH_INVALID));
    assert_eq!(write(&host, bucket(512), 512), Err(LENGTH_INVALID));
}

#[test]
fn what_cannot_be_reached_is_a_data_transfer_error() {
    let mut host = Host::unmapped(16);
    host.map_pages(0, 4);
    host.map_without_descriptor(4, 2);
    let read_only = Access {
        read: true,
        write: false,
    };
    host.map_as(6, 2, read_only);
    let page = |n| host.page(n).0;
    let error = Err(DATA_TRANSFER_ERROR);
    for bad in [page(8), page(4), 0, PAGE, u64::MAX - 4095] {
        assert_eq!(read(&host, data(bad, 512), 512), error, "{bad:#x}");
        assert_eq!(write(&host, data(bad, 512), 512), error, "{bad:#x}");
        let list = [data(page(0), 512), data(bad, 512)];
        let list = segment(&host, LAST_SEGMENT, page(1), &list);
        assert_eq!(read(&host, list, 1024), error, "{bad:#x}");
        // Beyond the data it does not matter.
        assert!(read(&host, list, 512).is_ok(), "{bad:#x}");
        assert_eq!(
            read(&host, raw(LAST_SEGMENT, bad, 16), 512),
            error,
            "{bad:#x}"
        );
    }
    // Into what may only be read; from there, and lists there.
    let to = data(page(6), 512);
    assert_eq!(read(&host, to, 512), error);
    assert!(write(&host, to, 512).is_ok());
    let list = segment(&host, LAST_SEGMENT, page(7), &[data(page(0), 512)]);
    assert!(read(&host, list, 512).is_ok());
    // The last byte.
    let end = data(page(3) + 1, 4096);
    assert_eq!(read(&host, end, 4095), Ok(vec![At(page(3) + 1, 4095)]));
    assert_eq!(read(&host, end, 4096), error);
}

#[test]
fn regions_cut_data_and_lists() {
    let mut host = Host::unmapped(16);
    host.map_pages(0, 1);
    host.map_pages(1, 1);
    host.map_pages(2, 14);
    let page = |n| host.page(n).0;
    // The second descriptor lies in both regions.
    let descriptors = [data(page(0), 1), data(page(1) - 1, 4098), data(page(3), 1)];
    let list = segment(&host, LAST_SEGMENT, page(1) - 24, &descriptors);
    let expected = vec![
        At(page(0), 1),
        At(page(1) - 1, 1),
        At(page(1), 4096),
        At(page(2), 1),
        At(page(3), 1),
    ];
    assert_eq!(read(&host, list, 4100), Ok(expected));
}

#[test]
fn as_many_descriptors_as_the_limit_and_no_more() {
    let host = Host::new(64);
    let page = |n| host.page(n).0;
    let mut descriptors = [[0; 16]; DESCRIPTORS as usize];
    descriptors[DESCRIPTORS as usize - 1] = data(page(40), 512);
    let list = segment(&host, LAST_SEGMENT, page(1), &descriptors);
    assert_eq!(read(&host, list, 512), Ok(vec![At(page(40), 512)]));
    let list = raw(LAST_SEGMENT, page(1), 16 * (DESCRIPTORS + 1));
    assert_eq!(read(&host, list, 512), Err(INVALID_NUMBER));
    // In two segments, with the descriptor that leads from one to the other.
    let half = DESCRIPTORS as usize / 2;
    for (more, expected) in [(0, Ok(1)), (1, Err(INVALID_NUMBER))] {
        let second = raw(LAST_SEGMENT, page(1), 16 * (half + more) as u32);
        let mut first = vec![data(page(40), 512); half];
        first[half - 1] = second;
        let first = segment(&host, SEGMENT, page(20), &first);
        assert_eq!(read(&host, first, 512).map(|p| p.len()), expected);
    }
    // A segment that is too long is not even read.
    let list = raw(LAST_SEGMENT, 0x1000, 0xFFFF_FFF0);
    assert_eq!(read(&host, list, 512), Err(INVALID_NUMBER));
}

#[test]
fn segments_in_a_circle_end_with_the_limit() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    let own = raw(SEGMENT, page(1), 16);
    segment(&host, SEGMENT, page(1), &[own]);
    assert_eq!(read(&host, own, 512), Err(INVALID_NUMBER));
    // With data in it, of which there is enough after a few rounds.
    let pair = raw(SEGMENT, page(2), 32);
    segment(&host, SEGMENT, page(2), &[data(page(8), 100), pair]);
    assert_eq!(read(&host, pair, 512), Err(INVALID_NUMBER));
}

#[test]
fn as_many_pieces_as_a_command_holds_and_no_more() {
    let host = Host::new(64);
    let page = |n| host.page(n).0;
    // One byte each, with a byte between them.
    let blocks: Vec<Raw> = (0..=PIECES)
        .map(|n| data(page(40) + 2 * u64::from(n), 1))
        .collect();
    let list = segment(&host, LAST_SEGMENT, page(1), &blocks);
    let pieces = read(&host, list, PIECES).unwrap();
    assert_eq!(pieces.len(), PIECES as usize);
    assert_eq!(pieces[1279], At(page(40) + 2558, 1));
    assert_eq!(read(&host, list, PIECES + 1), Err(INVALID_NUMBER));
    assert_eq!(write(&host, list, PIECES + 1), Err(INVALID_NUMBER));
    // A command of one block can be in as many pieces as it has bytes.
    assert_eq!(write(&host, list, 512).map(|p| p.len()), Ok(512));
}
