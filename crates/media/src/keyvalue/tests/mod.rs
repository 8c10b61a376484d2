//! The dialects in bytes: commands, their data, and their results. Expectations come from the Key
//! Value command set 1.1, and from the publications of Samsung and NVMeVirt.

mod compound;
mod kept;
mod listings;
mod nvme;
mod samsung;
mod slices;

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

/// Status and Dword 0 of a completion.
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
        let answer = self.medium.command(&sqe, pieces, &self.view);
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
