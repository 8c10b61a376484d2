//! Files with traces, as any program or accident may have left them: blocks with any content, their
//! checksums right or wrong, cut off anywhere. What comes out of one is written and read once more,
//! and must be the same.

use arbitrary::Arbitrary;
use trace_file::{Encoder, Header, Reader, Record, export, stats};

#[derive(Arbitrary, Debug)]
struct Block {
    kind: u8,
    packing: u8,
    count: u16,
    /// What the frame says of the unpacked length, beside what the payload is long.
    longer: i16,
    lost: u64,
    payload: Vec<u8>,
    /// The checksum is another one.
    broken: bool,
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    header: bool,
    /// Of the first version, which has fewer columns.
    first: bool,
    blocks: Vec<Block>,
    /// Bytes that are missing at the end.
    cut: u16,
    /// Instead of all that.
    bytes: Option<Vec<u8>>,
}

/// CRC-32C by the bit (RFC 3720, appendix B.4), so that a mistake in ours shows.
fn crc32c(parts: [&[u8]; 2]) -> u32 {
    let mut sum = !0u32;
    for byte in parts.concat() {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}

fn file(input: &Input) -> Vec<u8> {
    if let Some(bytes) = &input.bytes {
        return bytes.clone();
    }
    let mut file = if input.header {
        Encoder::default().header(&Header::default()).to_vec()
    } else {
        [&b"NVMTRACE"[..], &[2, 0, 0, 0]].concat()
    };
    if input.first {
        file[8] = 1;
    }
    for block in &input.blocks {
        let raw_len = (block.payload.len() as i64 + i64::from(block.longer)).max(0) as u32;
        let mut frame = vec![block.kind % 5, block.packing % 3, 0, 0];
        frame.extend(u32::from(block.count).to_le_bytes());
        frame.extend(raw_len.to_le_bytes());
        frame.extend((block.payload.len() as u32).to_le_bytes());
        frame.extend(block.lost.to_le_bytes());
        let sum = crc32c([&frame, &block.payload]) ^ u32::from(block.broken);
        frame.extend(sum.to_le_bytes());
        file.extend(frame);
        file.extend(&block.payload);
    }
    file.truncate(file.len().saturating_sub(input.cut.into()));
    file
}

fn read(file: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    if let Ok(mut reader) = Reader::new(file) {
        while let Ok(true) = reader.next(&mut records) {}
    }
    records
}

/// Records up to a number of lines of fio's, which has one for each GiB that a command names:
/// millions for a few bytes of a file.
fn few_lines(records: &[Record]) -> &[Record] {
    let mut lines = 0;
    let fit = records.iter().take_while(|record| {
        lines += record.extent().map_or(0, |(_, len)| len >> 30);
        lines < 10_000
    });
    &records[..fit.count()]
}

pub(crate) fn run(input: Input) {
    let mut records = read(&file(&input));
    let mut encoder = Encoder::default();
    let mut again = encoder.header(&Header::default()).to_vec();
    for part in records.chunks(trace_file::BLOCK_RECORDS) {
        again.extend_from_slice(encoder.records(part, 0));
    }
    assert!(
        read(&again) == records,
        "what was read is not what is written"
    );
    // nothing that is made of records minds what they are
    trace_file::by_time(&mut records);
    let _ = stats::of(&records);
    let mut out = std::io::sink();
    export::fio(&mut out, few_lines(&records)).unwrap();
    export::blktrace(&mut out, &records).unwrap();
    export::chrome(&mut out, &Header::default(), &records).unwrap();
    export::csv(&mut out, 0, &records).unwrap();
}
