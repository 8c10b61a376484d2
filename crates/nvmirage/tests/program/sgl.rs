//! Data that SGLs describe, through the whole of the program: over the socket, to media of every
//! kind and back.

use driver::bus::vfio_user::VfioUser;
use driver::{Device, DriverError, Options, QueuePair, io, sgl};
use memory::Buffer;
use nvme_spec::Status;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};

use crate::world::World;

/// Blocks of the medium that are used, and bytes of one.
const BLOCKS: u64 = 4096;
const BLOCK: u32 = 512;
/// Most blocks of one command here: several rounds of a bounce buffer.
const MOST: u32 = 400;

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 33) % u64::from(limit)).unwrap()
    }
}

/// A piece of the host's memory, or bytes that are discarded.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Data { at: u32, len: u32 },
    Discarded { len: u32 },
}

struct Host {
    queue: QueuePair<VfioUser>,
    namespace: io::Namespace,
    data: Buffer,
    lists: Buffer,
    /// Contents of the blocks.
    blocks: Vec<u8>,
    random: Random,
}

impl Host {
    fn new(device: &mut Device<VfioUser>) -> Self {
        let namespace = device.namespace(1).unwrap();
        assert_eq!(namespace.block_len, BLOCK);
        Host {
            queue: device.create_queue_pair(4, false).unwrap(),
            namespace,
            data: device.alloc(1 << 20).unwrap(),
            lists: device.alloc(1 << 16).unwrap(),
            blocks: vec![0; usize::try_from(BLOCKS).unwrap() * BLOCK as usize],
            random: Random(0x5317_2026),
        }
    }

    /// Pieces of `len` bytes in all, in an order that is not that of memory.
    fn scatter(&mut self, len: u32, discards: bool) -> Vec<Piece> {
        let largest = match self.random.below(4) {
            // No more pieces than a command may have.
            0 => len.div_ceil(400),
            1 => len,
            _ => len.div_ceil(8),
        };
        let aligned = self.random.below(3) == 0;
        let mut pieces = Vec::new();
        let (mut at, mut left) = (self.random.below(5000), len);
        while left > 0 {
            let mut piece = (1 + self.random.below(2 * largest)).min(left);
            if aligned {
                (at, piece) = (
                    at.next_multiple_of(BLOCK),
                    piece.next_multiple_of(BLOCK).min(left),
                );
            }
            left -= piece;
            if discards && self.random.below(4) == 0 {
                pieces.push(Piece::Discarded { len: piece });
                continue;
            }
            pieces.push(Piece::Data { at, len: piece });
            // Sometimes the next piece follows.
            at += piece + [0, 0, 1, 77, 600][self.random.below(5) as usize];
        }
        if self.random.below(2) == 0 {
            pieces.reverse();
        }
        pieces
    }

    /// The SGL of these pieces: in the command, or in one to three segments.
    fn describe(&mut self, pieces: &[Piece]) -> SglDescriptor {
        let mut descriptors: Vec<SglDescriptor> = pieces
            .iter()
            .map(|piece| match *piece {
                Piece::Data { at, len } => self.queue.data_block(&self.data, at, len),
                Piece::Discarded { len } => sgl::bit_bucket(len),
            })
            .collect();
        if descriptors.len() == 1 && self.random.below(2) == 0 {
            return descriptors[0];
        }
        // Something that describes nothing.
        let anywhere = self
            .random
            .below(u32::try_from(descriptors.len()).unwrap() + 1) as usize;
        descriptors.insert(anywhere, SglDescriptor::default());
        let parts = 1 + self.random.below(3) as usize;
        let part_len = descriptors.len().div_ceil(parts);
        let mut next: Option<SglDescriptor> = None;
        for (number, part) in descriptors
            .chunks(part_len)
            .enumerate()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let part: Vec<_> = part.iter().copied().chain(next).collect();
            // Qword aligned and no more.
            let at = 20_000 * u32::try_from(number).unwrap() + 8;
            let kind = match next {
                None => SglDescriptorType::LAST_SEGMENT,
                Some(_) => SglDescriptorType::SEGMENT,
            };
            next = Some(self.queue.segment(kind, &self.lists, at, &part));
        }
        next.unwrap()
    }

    fn run(
        &mut self,
        opcode: NvmOpcode,
        lba: u64,
        count: u32,
        first: SglDescriptor,
    ) -> Result<(), Status> {
        let nlb = io::Blocks::new(count).unwrap();
        let mut sqe = self.namespace.transfer(opcode, lba, nlb, false);
        sgl::set(&mut sqe, first);
        match self.queue.run("an SGL command", sqe) {
            Ok(_) => Ok(()),
            Err(DriverError::Status { status, .. }) => Err(status),
            Err(other) => panic!("{other}"),
        }
    }

    /// The pieces' bytes, in order.
    fn gather(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            if let Piece::Data { at, len } = *piece {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                self.data.read_into(at as usize, &mut bytes[start..]);
            }
        }
        bytes
    }

    /// Other bytes all over the host's memory.
    fn fill(&mut self) -> Vec<u8> {
        let seed = self.random.below(u32::MAX);
        let bytes: Vec<u8> = (0..u32::try_from(self.data.len()).unwrap())
            .map(|n| (n.wrapping_mul(0x9E37_79B9) ^ seed).to_be_bytes()[0])
            .collect();
        self.data.write_from(0, &bytes);
        bytes
    }

    fn place(&mut self) -> (u64, u32, std::ops::Range<usize>) {
        let count = match self.random.below(3) {
            0 => 1 + self.random.below(MOST),
            _ => 1 + self.random.below(9),
        };
        let last = u32::try_from(BLOCKS).unwrap() - count;
        let lba = self.random.below(last + 1);
        let start = (lba * BLOCK) as usize;
        (lba.into(), count, start..start + (count * BLOCK) as usize)
    }

    fn write(&mut self) {
        let (lba, count, range) = self.place();
        self.fill();
        let pieces = self.scatter(count * BLOCK, false);
        let first = self.describe(&pieces);
        self.run(NvmOpcode::WRITE, lba, count, first).unwrap();
        let data = self.gather(&pieces);
        self.blocks[range].copy_from_slice(&data);
    }

    fn read(&mut self) {
        let (lba, count, range) = self.place();
        let mut expected = self.fill();
        let pieces = self.scatter(count * BLOCK, true);
        let first = self.describe(&pieces);
        self.run(NvmOpcode::READ, lba, count, first).unwrap();
        let mut from = &self.blocks[range];
        for piece in &pieces {
            let (Piece::Data { len, .. } | Piece::Discarded { len }) = *piece;
            let (now, later) = from.split_at(len as usize);
            from = later;
            if let Piece::Data { at, .. } = *piece {
                expected[at as usize..][..now.len()].copy_from_slice(now);
            }
        }
        let mut found = vec![0; self.data.len()];
        self.data.read_into(0, &mut found);
        assert!(found == expected, "block {lba}, {count} blocks: {pieces:?}");
    }

    fn compare(&mut self) {
        let (lba, count, range) = self.place();
        self.fill();
        let pieces = self.scatter(count * BLOCK, false);
        let first = self.describe(&pieces);
        let mut from = &self.blocks[range];
        for piece in &pieces {
            if let Piece::Data { at, len } = *piece {
                let (now, later) = from.split_at(len as usize);
                self.data.write_from(at as usize, now);
                from = later;
            }
        }
        self.run(NvmOpcode::COMPARE, lba, count, first).unwrap();
        let which = self.random.below(u32::try_from(pieces.len()).unwrap()) as usize;
        let Piece::Data { at, len } = pieces[which] else {
            panic!("a compare discards nothing");
        };
        let at = (at + self.random.below(len)) as usize;
        let mut byte = [0];
        self.data.read_into(at, &mut byte);
        self.data.write_from(at, &[byte[0] ^ 4]);
        let result = self.run(NvmOpcode::COMPARE, lba, count, first);
        assert_eq!(result, Err(Status::COMPARE_FAILURE), "{pieces:?}");
    }
}

fn exercise(media: &str) {
    let world = World::new();
    let server = world.serve_media(media);
    let path = world.path("nvme.sock");
    let mut device = Device::connect(path, &Options::default()).unwrap();
    device.enable().unwrap();
    let sgls = device.identify_controller().unwrap().sgls;
    assert_eq!(u32::from(sgls), 0x0005_0001);
    let mut host = Host::new(&mut device);
    for _ in 0..300 {
        match host.random.below(5) {
            0..2 => host.write(),
            2..4 => host.read(),
            _ => host.compare(),
        }
    }
    mistakes(&mut host);
    host.read();
    drop(host);
    drop(device);
    server.stop();
}

/// Lists that are refused move nothing, and the queue goes on.
fn mistakes(host: &mut Host) {
    let block = host.queue.data_block(&host.data, 1, BLOCK);
    let keyed = SglDescriptor::new(SglDescriptorType::KEYED_DATA_BLOCK, block.address, BLOCK);
    let short = host.queue.data_block(&host.data, 1, BLOCK - 1);
    let lost = SglDescriptor {
        address: 0x10,
        ..block
    };
    // A segment that leads back to itself.
    let kind = SglDescriptorType::SEGMENT;
    let circle = host.queue.segment(kind, &host.lists, 64, &[block; 2]);
    host.queue.segment(kind, &host.lists, 64, &[block, circle]);
    let askew = SglDescriptor {
        address: circle.address + 4,
        ..circle
    };
    for (first, status) in [
        (keyed, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (short, Status::DATA_SGL_LENGTH_INVALID),
        (lost, Status::DATA_TRANSFER_ERROR),
        (circle, Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        (askew, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
    ] {
        for opcode in [NvmOpcode::READ, NvmOpcode::WRITE, NvmOpcode::COMPARE] {
            assert_eq!(host.run(opcode, 0, 1, first), Err(status));
        }
    }
}

#[test]
fn memory_takes_and_gives_any_pieces() {
    exercise("ram:size=16MiB,lba_size=512");
}

mod slow {
    use super::*;

    #[test]
    fn a_file_past_the_page_cache_takes_and_gives_any_pieces() {
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = disk.path().join("disk.img");
        exercise(&format!(
            "file:path={},size=16MiB,lba_size=512,direct=on",
            path.display()
        ));
    }

    /// Memory that SGLs describe becomes PRP entries, and parts that those cannot describe are
    /// copied.
    #[test]
    fn a_drive_that_is_shared_takes_and_gives_any_pieces() {
        let its = World::new();
        let listen = its.vfio_user("drive.sock");
        let drive = its.serve(&[
            "--media",
            "ram:size=16MiB,lba_size=512",
            "--listen",
            &listen,
            "--doorbells",
            "mapped",
        ]);
        exercise(&format!("drive:target={listen},lba_size=512"));
        drive.stop();
    }

    #[test]
    fn a_file_in_the_page_cache_takes_and_gives_any_pieces() {
        exercise("file:path=disk.img,size=16MiB,lba_size=512,direct=off");
    }
}
