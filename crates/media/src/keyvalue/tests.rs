//! The dialects, in bytes: what the commands and their data are, and what comes back. Expectations are those of the Key Value command
//! set 1.1, and of what Samsung and NVMeVirt have published.

use std::sync::Arc;

use memory::{
    Access, Buffer, ClientMappings, DmaMap, DmaView, Hint, HostMemory, Iova, Need, Segment,
};
use model::{KvKind, KvOp, Op};
use nvme_spec::Sqe;
use zerocopy::FromBytes;

use super::{Dialect, KeyValue};

const MIB: usize = 1 << 20;

/// A host with 4 MiB, and a medium.
struct Rig {
    medium: KeyValue,
    memory: Buffer,
    view: Arc<DmaView>,
}

/// What a completion says: status and Dword 0.
type Completion = (u16, u32);

impl Rig {
    fn new(dialect: Dialect, bytes: u64, keys: u32) -> Self {
        let memory = HostMemory::new(4 * MIB).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(4);
        map.map(Iova(0), 4 << 20, Access::READ_WRITE, Some((mapping, 0)))
            .unwrap();
        Rig {
            medium: KeyValue::new(bytes, keys, dialect).unwrap(),
            memory: memory.alloc(4 * MIB, 4096).unwrap(),
            view: map.view(),
        }
    }

    /// Does a command whose data are `len` bytes of the host, in pieces of odd lengths.
    fn command(&mut self, bytes: [u8; 64], len: usize) -> Completion {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < len {
            let part = (len - at).min(1999);
            let mut hint = Hint::default();
            let found =
                self.view
                    .translate(&mut hint, Iova(at as u64), part as u32, Need::DeviceWrites);
            pieces.push(found.unwrap());
            at += part;
        }
        let pieces: &[Segment<'_>] = &pieces;
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let answer = self.medium.command(&sqe, pieces);
        (answer.status.0, answer.result)
    }

    fn with(&mut self, bytes: [u8; 64], data: &[u8]) -> Completion {
        self.memory.write_from(0, data);
        self.command(bytes, data.len())
    }

    fn host(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_into(0, &mut bytes);
        bytes
    }

    fn fill(&self, len: usize) {
        self.memory.write_from(0, &vec![0xee; len]);
    }

    fn op(&self) -> Option<KvOp> {
        match self.medium.last_op()? {
            Op::Kv(op) => Some(op),
            op => panic!("{op:?}"),
        }
    }
}

mod nvme {
    use super::*;

    /// A command of the Key Value command set: opcode, key, Dword 10, options.
    fn sqe(opcode: u8, key: &[u8], size: u32, options: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[4] = 1;
        let mut field = [0; 16];
        field[..key.len()].copy_from_slice(key);
        bytes[8..16].copy_from_slice(&field[..8]);
        bytes[56..64].copy_from_slice(&field[8..]);
        bytes[40..44].copy_from_slice(&size.to_le_bytes());
        bytes[44] = key.len() as u8;
        bytes[45] = options;
        bytes
    }

    fn rig() -> Rig {
        Rig::new(Dialect::Nvme, 64 << 10, 100)
    }

    fn store(rig: &mut Rig, key: &[u8], value: &[u8], options: u8) -> Completion {
        rig.with(sqe(0x01, key, value.len() as u32, options), value)
    }

    fn list(rig: &mut Rig, from: &[u8], room: u32) -> Vec<u8> {
        rig.fill(room as usize + 8);
        let done = rig.command(sqe(0x06, from, room, 0), room as usize);
        assert_eq!(done, (0, 0));
        rig.host(room as usize + 8)
    }

    #[test]
    fn a_value_comes_back_whole_and_in_part() {
        let mut rig = rig();
        let value: Vec<u8> = (0..5003).map(|n| (n % 251) as u8).collect();
        assert_eq!(store(&mut rig, b"key", &value, 0), (0, 0));
        rig.fill(8192);
        // Dword 0 is the size of the value, whatever fits.
        assert_eq!(rig.command(sqe(0x02, b"key", 8192, 0), 8192), (0, 5003));
        assert_eq!(rig.host(5003), value);
        assert_eq!(rig.host(8192)[5003..], [0xee; 3189]);
        rig.fill(8192);
        assert_eq!(rig.command(sqe(0x02, b"key", 100, 1), 100), (0, 5003));
        assert_eq!(rig.host(101), [&value[..100], &[0xee]].concat());
        assert_eq!(rig.command(sqe(0x02, b"key", 0, 0), 0), (0, 5003));
        assert_eq!(store(&mut rig, b"key", b"", 0), (0, 0));
        assert_eq!(rig.command(sqe(0x02, b"key", 10, 0), 10), (0, 0));
    }

    #[test]
    fn keys_exist_and_are_deleted() {
        let mut rig = rig();
        assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0x087, 0));
        assert_eq!(rig.command(sqe(0x10, b"key", 0, 0), 0), (0x087, 0));
        assert_eq!(rig.command(sqe(0x02, b"key", 8, 0), 8), (0x087, 0));
        store(&mut rig, b"key", b"value", 0);
        assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0, 0));
        // Another length is another key, also where the bytes are the same.
        assert_eq!(rig.command(sqe(0x14, b"key\0", 0, 0), 0), (0x087, 0));
        assert_eq!(rig.command(sqe(0x10, b"key", 0, 0), 0), (0, 0));
        assert_eq!(rig.command(sqe(0x14, b"key", 0, 0), 0), (0x087, 0));
    }

    #[test]
    fn store_options_ask_what_there_is() {
        let mut rig = rig();
        assert_eq!(store(&mut rig, b"key", b"one", 1), (0x087, 0));
        assert_eq!(store(&mut rig, b"key", b"one", 2 | 4), (0, 0));
        assert_eq!(store(&mut rig, b"key", b"two", 2), (0x089, 0));
        assert_eq!(store(&mut rig, b"key", b"three", 1), (0, 0));
        assert_eq!(store(&mut rig, b"key", b"four", 3), (0x002, 0));
        assert_eq!(rig.command(sqe(0x02, b"key", 8, 0), 8), (0, 5));
        assert_eq!(rig.host(5), b"three");
    }

    #[test]
    fn sizes_of_keys_and_values_are_checked() {
        let mut rig = Rig::new(Dialect::Nvme, 4 << 20, 100);
        for opcode in [0x01, 0x02, 0x10, 0x14] {
            assert_eq!(rig.command(sqe(opcode, b"", 0, 0), 0), (0x086, 0));
            let mut long = sqe(opcode, b"0123456789abcdef", 0, 0);
            long[44] = 17;
            assert_eq!(rig.command(long, 0), (0x002, 0));
        }
        let value = vec![7; (2 << 20) + 1];
        assert_eq!(store(&mut rig, b"key", &value, 0), (0x085, 0));
        assert_eq!(store(&mut rig, b"key", &value[1..], 0), (0, 0));
        assert_eq!(rig.command(sqe(0x7f, b"key", 0, 0), 0), (0x001, 0));
        // Data that are not as large as Dword 10 says are nobody's.
        assert_eq!(rig.command(sqe(0x01, b"key", 100, 0), 99), (0x004, 0));
        assert_eq!(rig.command(sqe(0x06, b"", 3, 0), 3), (0x002, 0));
    }

    #[test]
    fn a_full_medium_says_so() {
        let mut rig = Rig::new(Dialect::Nvme, 1024, 3);
        assert_eq!(store(&mut rig, b"a", &[1; 1024], 0), (0, 0));
        assert_eq!(store(&mut rig, b"b", &[2; 1], 0), (0x081, 0));
        assert_eq!(rig.command(sqe(0x14, b"b", 0, 0), 0), (0x087, 0));
        assert_eq!(rig.command(sqe(0x10, b"a", 0, 0), 0), (0, 0));
        for key in [b"b", b"c", b"d"] {
            assert_eq!(store(&mut rig, key, b"", 0), (0, 0));
        }
        assert_eq!(store(&mut rig, b"e", b"", 0), (0x081, 0));
    }

    #[test]
    fn lists_are_in_order_and_end_where_the_buffer_does() {
        let mut rig = rig();
        for key in [&b"bb"[..], b"a", b"abcdefghijklmnop", b"c", b"b"] {
            store(&mut rig, key, key, 0);
        }
        let all = [
            &[5, 0, 0, 0][..],
            &[1, 0, b'a', 0],
            &[16, 0],
            b"abcdefghijklmnop",
            &[0, 0],
            &[1, 0, b'b', 0],
            &[2, 0, b'b', b'b'],
            &[1, 0, b'c', 0],
            &[0xee; 8],
        ]
        .concat();
        assert_eq!(list(&mut rig, b"", 40), all);
        // From a key on, with it; and from where one would be.
        let tail = [
            &[2, 0, 0, 0, 2, 0, b'b', b'b', 1, 0, b'c', 0][..],
            &[0xee; 8],
        ]
        .concat();
        assert_eq!(list(&mut rig, b"bb", 12), tail);
        assert_eq!(list(&mut rig, b"ba", 12), tail);
        // The second entry does not fit into 27 bytes, the rest of the buffer is left alone.
        let short = list(&mut rig, b"", 27);
        assert_eq!(short[..8], [1, 0, 0, 0, 1, 0, b'a', 0]);
        assert_eq!(short[8..], [0xee; 27]);
        assert_eq!(
            list(&mut rig, b"d", 4),
            [0, 0, 0, 0, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee]
        );
    }

    #[test]
    fn the_timing_model_is_told_what_was_moved() {
        let mut rig = rig();
        let hash = |key: &[u8]| {
            key.iter().fold(0x811c_9dc5u32, |hash, byte| {
                (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
            })
        };
        let op = |kind, hash, len| Some(KvOp { kind, hash, len });
        store(&mut rig, b"key", &[1; 300], 0);
        assert_eq!(rig.op(), op(KvKind::Store, hash(b"key"), 300));
        rig.command(sqe(0x02, b"key", 200, 0), 200);
        assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"key"), 200));
        rig.command(sqe(0x02, b"key", 400, 0), 400);
        assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"key"), 300));
        rig.command(sqe(0x02, b"kez", 400, 0), 400);
        assert_eq!(rig.op(), op(KvKind::Retrieve, hash(b"kez"), 0));
        rig.command(sqe(0x14, b"key", 0, 0), 0);
        assert_eq!(rig.op(), op(KvKind::Exist, hash(b"key"), 0));
        list(&mut rig, b"", 100);
        assert_eq!(rig.op(), op(KvKind::List, 0, 12));
        rig.command(sqe(0x10, b"key", 0, 0), 0);
        assert_eq!(rig.op(), op(KvKind::Delete, hash(b"key"), 0));
        rig.command(sqe(0x10, b"", 0, 0), 0);
        assert_eq!(rig.op(), None);
    }
}

mod samsung {
    use super::*;

    /// A command: opcode, key of up to 16 bytes, bytes of the value or the buffer, option.
    fn sqe(opcode: u8, key: &[u8], len: usize, option: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[4] = 1;
        bytes[40..44].copy_from_slice(&(len.div_ceil(4) as u32).to_le_bytes());
        bytes[44] = (key.len() as u8).wrapping_sub(1);
        bytes[45] = option;
        bytes[46] = (4 - len % 4) as u8 % 4;
        let inline = key.len().min(16);
        bytes[48..48 + inline].copy_from_slice(&key[..inline]);
        bytes
    }

    fn rig() -> Rig {
        Rig::new(Dialect::Samsung, 64 << 10, 1000)
    }

    fn store(rig: &mut Rig, key: &[u8], value: &[u8], option: u8) -> Completion {
        rig.with(sqe(0x81, key, value.len(), option), value)
    }

    fn retrieve(rig: &mut Rig, key: &[u8], offset: u32, room: usize) -> (Completion, Vec<u8>) {
        let mut bytes = sqe(0x90, key, room, 0);
        bytes[16..20].copy_from_slice(&offset.to_le_bytes());
        rig.fill(room);
        (rig.command(bytes, room), rig.host(room))
    }

    /// An iterator request: handle, option, prefix and mask.
    fn request(handle: u8, option: u8, prefix: &[u8; 4], mask: &[u8; 4]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 0xb1;
        bytes[44] = handle;
        bytes[45] = option;
        bytes[48..52].copy_from_slice(prefix);
        bytes[52..56].copy_from_slice(mask);
        bytes
    }

    fn read(handle: u8, len: u32) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 0xb2;
        bytes[40..44].copy_from_slice(&(len / 4).to_le_bytes());
        bytes[44] = handle;
        bytes
    }

    /// The keys of an iterator's buffer.
    fn keys(bytes: &[u8]) -> Vec<Vec<u8>> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let mut at = 4;
        let mut keys = Vec::new();
        for _ in 0..word(0) {
            let len = word(at);
            keys.push(bytes[at + 4..at + 4 + len].to_vec());
            at += 4 + len.next_multiple_of(4);
        }
        keys
    }

    #[test]
    fn values_come_back_from_any_offset() {
        let mut rig = rig();
        let value: Vec<u8> = (0..5003).map(|n| (n % 251) as u8).collect();
        assert_eq!(store(&mut rig, b"key1", &value, 0), (0, 0));
        let (done, got) = retrieve(&mut rig, b"key1", 0, 5003);
        assert_eq!((done, got), ((0, 5003), value.clone()));
        let (done, got) = retrieve(&mut rig, b"key1", 5000, 8);
        assert_eq!(done, (0, 5003));
        assert_eq!(got, [&value[5000..], &[0xee; 5]].concat());
        assert_eq!(retrieve(&mut rig, b"key1", 5003, 8).0, (0, 5003));
        assert_eq!(retrieve(&mut rig, b"key1", 5004, 8).0, (0x302, 0));
        assert_eq!(retrieve(&mut rig, b"key2", 0, 8).0, (0x310, 0));
        // Only the size.
        assert_eq!(rig.command(sqe(0x90, b"key1", 0, 2), 0), (0, 5003));
        assert_eq!(rig.command(sqe(0x90, b"key1", 0, 4), 0), (0x304, 0));
    }

    #[test]
    fn options_ask_what_there_is() {
        let mut rig = rig();
        assert_eq!(store(&mut rig, b"key1", b"one", 8), (0x310, 0));
        assert_eq!(store(&mut rig, b"key1", b"one", 2 | 1), (0, 0));
        assert_eq!(store(&mut rig, b"key1", b"two", 2), (0x380, 0));
        assert_eq!(store(&mut rig, b"key1", b"two", 8 | 4), (0, 0));
        assert_eq!(store(&mut rig, b"key1", b"no", 8 | 2), (0x304, 0));
        assert_eq!(store(&mut rig, b"key1", b"no", 16), (0x304, 0));
        assert_eq!(retrieve(&mut rig, b"key1", 0, 3).1, b"two");
        assert_eq!(rig.command(sqe(0xb3, b"key1", 0, 0), 0), (0, 0));
        assert_eq!(rig.command(sqe(0xa1, b"key1", 0, 0), 0), (0, 0));
        assert_eq!(rig.command(sqe(0xa1, b"key1", 0, 1), 0), (0x310, 0));
        assert_eq!(rig.command(sqe(0xb3, b"key1", 0, 0), 0), (0x310, 0));
    }

    #[test]
    fn append_goes_on_and_ends_at_the_largest_value() {
        let mut rig = Rig::new(Dialect::Samsung, 8 << 20, 10);
        let append =
            |rig: &mut Rig, value: &[u8]| rig.with(sqe(0x83, b"key1", value.len(), 0), value);
        assert_eq!(append(&mut rig, b"abc"), (0, 0));
        assert_eq!(append(&mut rig, &[7; 1000]), (0, 0));
        assert_eq!(
            rig.op().map(|op| (op.kind, op.len)),
            Some((KvKind::Append, 1000))
        );
        let (done, got) = retrieve(&mut rig, b"key1", 1, 1002);
        assert_eq!((done, got), ((0, 1003), [&b"bc"[..], &[7; 1000]].concat()));
        assert_eq!(append(&mut rig, &vec![1; (2 << 20) - 1003]), (0, 0));
        assert_eq!(append(&mut rig, &[1]), (0x381, 0));
    }

    #[test]
    fn sizes_and_offsets_are_checked() {
        let mut rig = rig();
        assert_eq!(store(&mut rig, b"abc", b"v", 0), (0x303, 0));
        assert_eq!(store(&mut rig, b"0123456789abcdef", b"v", 0), (0, 0));
        assert_eq!(store(&mut rig, b"0123456789abcdefg", b"v", 0), (0x303, 0));
        let mut huge = sqe(0xb3, b"key1", 0, 0);
        huge[44] = 255;
        assert_eq!(rig.command(huge, 0), (0x303, 0));
        let mut offset = sqe(0x81, b"key1", 4, 0);
        offset[16] = 4;
        assert_eq!(rig.command(offset, 4), (0x302, 0));
        let mut wrong = sqe(0x81, b"key1", 0, 0);
        wrong[46] = 1;
        assert_eq!(rig.command(wrong, 0), (0x301, 0));
        assert_eq!(rig.command(sqe(0x81, b"key1", 8, 0), 4), (0x004, 0));
        assert_eq!(
            store(&mut rig, b"key1", &vec![0; (64 << 10) + 1], 0),
            (0x312, 0)
        );
        assert_eq!(rig.command(sqe(0x82, b"key1", 0, 0), 0), (0x001, 0));
    }

    #[test]
    fn iterators_find_what_their_prefix_and_mask_say() {
        let mut rig = rig();
        for key in ["aaaa1", "aaaa2", "aaab1", "baaa1", "aaaa0", "zzzz"] {
            store(&mut rig, key.as_bytes(), key.as_bytes(), 0);
        }
        assert_eq!(
            rig.command(request(0, 1 | 4, b"aaaa", &[0xff; 4]), 0),
            (0, 1)
        );
        assert_eq!(
            rig.command(request(0, 1, b"?aa?", &[0, 0xff, 0xff, 0]), 0),
            (0, 2)
        );
        assert_eq!(
            rig.command(request(0, 1 | 8, b"zz..", &[0xff, 0xff, 0, 0]), 0),
            (0, 3)
        );
        assert_eq!(
            rig.command(request(0, 1 | 4, b"aaaa", &[0xff; 4]), 0),
            (0x392, 0)
        );
        rig.fill(64);
        assert_eq!(rig.command(read(1, 64), 64), (0x393, 40));
        assert_eq!(keys(&rig.host(64)), [b"aaaa0", b"aaaa1", b"aaaa2"]);
        assert_eq!(rig.host(64)[40..], [0xee; 24]);
        // Again and again the end.
        assert_eq!(rig.command(read(1, 64), 64), (0x393, 4));
        // In parts: a key of 5 bytes takes 12.
        assert_eq!(rig.command(read(2, 28), 28), (0, 28));
        assert_eq!(keys(&rig.host(28)), [b"aaaa0", b"aaaa1"]);
        assert_eq!(rig.command(read(2, 8), 8), (0x301, 0));
        // What comes in front of it is found, what is gone or behind it is not.
        store(&mut rig, b"aaaa00", b"", 0);
        store(&mut rig, b"aaac", b"", 0);
        rig.command(sqe(0xa1, b"aaaa2", 0, 0), 0);
        assert_eq!(rig.command(read(2, 64), 64), (0x393, 36));
        assert_eq!(keys(&rig.host(64)), [&b"aaab1"[..], b"aaac", b"baaa1"]);
        // Keys and values.
        assert_eq!(rig.command(read(3, 64), 64), (0x393, 20));
        let pair = [
            &[1, 0, 0, 0, 4, 0, 0, 0][..],
            b"zzzz",
            &[4, 0, 0, 0],
            b"zzzz",
        ]
        .concat();
        assert_eq!(rig.host(20), pair);
        assert_eq!(rig.command(request(3, 2, &[0; 4], &[0; 4]), 0), (0, 0));
        assert_eq!(rig.command(request(3, 2, &[0; 4], &[0; 4]), 0), (0x390, 0));
        assert_eq!(rig.command(read(3, 64), 64), (0x390, 0));
        assert_eq!(rig.command(read(0, 64), 64), (0x390, 0));
        assert_eq!(rig.command(read(200, 64), 64), (0x390, 0));
    }

    #[test]
    fn there_are_sixteen_iterators_and_one_that_deletes() {
        let mut rig = rig();
        for n in 0..16u8 {
            let opened = rig.command(request(0, 1, &[n, 0, 0, 0], &[0xff; 4]), 0);
            assert_eq!(opened, (0, u32::from(n) + 1));
        }
        assert_eq!(
            rig.command(request(0, 1, &[99; 4], &[0xff; 4]), 0),
            (0x391, 0)
        );
        assert_eq!(rig.command(request(5, 2, &[0; 4], &[0; 4]), 0), (0, 0));
        for key in ["keep", "kill1", "kill2", "kill3"] {
            store(&mut rig, key.as_bytes(), b"", 0);
        }
        assert_eq!(
            rig.command(request(0, 1 | 16, b"kill", &[0xff; 4]), 0),
            (0, 5)
        );
        assert_eq!(rig.command(read(5, 28), 28), (0, 28));
        assert_eq!(rig.command(read(5, 28), 28), (0x393, 16));
        assert_eq!(rig.command(sqe(0xb3, b"keep", 0, 0), 0), (0, 0));
        for key in [b"kill1", b"kill2", b"kill3"] {
            assert_eq!(rig.command(sqe(0xb3, key, 0, 0), 0), (0x310, 0));
        }
        for option in [0, 3, 1 | 4 | 8, 1 | 32] {
            assert_eq!(
                rig.command(request(0, option, &[7; 4], &[1; 4]), 0),
                (0x304, 0)
            );
        }
    }
}

mod compound {
    use super::*;

    /// Sub-commands: opcode, key, value, option.
    type Sub<'s> = (u8, &'s [u8], &'s [u8], u8);

    fn payload(subs: &[Sub<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        for (at, (opcode, key, value, option)) in subs.iter().enumerate() {
            let head = &mut bytes[16 * at..][..16];
            (head[0], head[1], head[8]) = (*opcode, key.len() as u8, *option);
            head[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
            for part in [&[0xdd; 64][..], key, value] {
                bytes.extend_from_slice(part);
                bytes.resize(bytes.len().next_multiple_of(64), 0xdd);
            }
        }
        bytes
    }

    fn batch(count: u8, len: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 0x85;
        bytes[40..44].copy_from_slice(&(len as u32 / 4).to_le_bytes());
        bytes[47] = count;
        bytes
    }

    fn run(rig: &mut Rig, subs: &[Sub<'_>]) -> Completion {
        let data = payload(subs);
        rig.with(batch(subs.len() as u8, data.len()), &data)
    }

    fn rig() -> Rig {
        Rig::new(Dialect::Samsung, 16 << 10, 1000)
    }

    fn value_of(rig: &mut Rig, key: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = [0; 64];
        (bytes[0], bytes[41], bytes[44]) = (0x90, 4, key.len() as u8 - 1);
        bytes[48..48 + key.len()].copy_from_slice(key);
        let (status, len) = rig.command(bytes, 4096);
        (status == 0).then(|| rig.host(len as usize))
    }

    #[test]
    fn sub_commands_are_done_in_their_order() {
        let mut rig = rig();
        let long = [5; 100];
        let subs: [Sub<'_>; 5] = [
            (0x81, b"key1", b"one", 0),
            (0x81, b"key2", &long, 2),
            (0xa1, b"key1", b"", 0),
            (0x81, b"key1", b"again", 2),
            (0x81, &[9; 255], b"", 0),
        ];
        assert_eq!(run(&mut rig, &subs), (0, 0));
        let Some(Op::Compound(ops)) = rig.medium.last_op() else {
            panic!("{:?}", rig.medium.last_op());
        };
        let told: Vec<_> = ops.iter().map(|op| (op.kind, op.len)).collect();
        let store = KvKind::Store;
        let expected = [
            (store, 3),
            (store, 100),
            (KvKind::Delete, 0),
            (store, 5),
            (store, 0),
        ];
        assert_eq!(told, expected);
        assert_eq!(value_of(&mut rig, b"key1").unwrap(), b"again");
        assert_eq!(value_of(&mut rig, b"key2").unwrap(), long);
        assert_eq!(rig.medium.pairs.size_of(&[9; 255]), Some(0));
    }

    #[test]
    fn one_that_fails_leaves_the_others() {
        let mut rig = rig();
        let big = vec![1; 17 << 10];
        let subs: [Sub<'_>; 8] = [
            (0x81, b"key1", b"one", 0),
            (0x81, b"key1", b"two", 2),
            (0xa1, b"nokey", b"", 0),
            (0x90, b"key1", b"", 0),
            (0x81, b"abc", b"", 0),
            (0x81, b"key3", &big, 0),
            (0x81, b"key4", b"", 64),
            (0x81, b"key2", b"last", 0),
        ];
        // Four bits each: idempotent 9, no key 6, opcode 3, key size 2, capacity 8, option 4. The status is the first one's.
        assert_eq!(run(&mut rig, &subs), (0x380, 0x0482_3690));
        assert_eq!(value_of(&mut rig, b"key1").unwrap(), b"one");
        assert_eq!(value_of(&mut rig, b"key2").unwrap(), b"last");
        assert_eq!(value_of(&mut rig, b"key3"), None);
        let update: [Sub<'_>; 1] = [(0x81, b"key9", b"", 8)];
        assert_eq!(run(&mut rig, &update), (0x310, 0xa));
        let deletes: [Sub<'_>; 1] = [(0xa0, b"key1", b"", 0)];
        assert_eq!(run(&mut rig, &deletes), (0, 0));
    }

    #[test]
    fn malformed_heads_do_nothing() {
        let mut rig = rig();
        let subs: [Sub<'_>; 2] = [(0x81, b"key1", b"one", 0), (0x81, b"key2", b"two", 0)];
        let data = payload(&subs);
        assert_eq!(rig.with(batch(0, data.len()), &data), (0x002, 0));
        assert_eq!(rig.with(batch(9, data.len()), &data), (0x002, 0));
        assert_eq!(rig.with(batch(2, 508), &data[..508]), (0x301, 0));
        // The data end before the second value, or a size leads out of them: of the sub-command, or of all addresses.
        let end = data.len() - 64;
        assert_eq!(rig.with(batch(2, end), &data[..end]), (0x301, 0));
        for size in [65, 1 << 20, u32::MAX] {
            let mut wrong = data.clone();
            wrong[20..24].copy_from_slice(&size.to_le_bytes());
            assert_eq!(rig.with(batch(2, data.len()), &wrong), (0x301, 0), "{size}");
        }
        let mut wrong = data.clone();
        wrong[17] = 255;
        assert_eq!(rig.with(batch(2, data.len()), &wrong), (0x301, 0));
        assert!(rig.medium.last_op().is_none());
        // The command says that there is less than the host gave.
        assert_eq!(rig.with(batch(2, 512), &data), (0x301, 0));
        assert_eq!(value_of(&mut rig, b"key1"), None);
        // What pads the last value may be missing.
        let cut = data.len() - 60;
        assert_eq!(rig.with(batch(2, cut), &data[..cut]), (0, 0));
        assert_eq!(value_of(&mut rig, b"key2").unwrap(), b"two");
    }
}
