//! Commands byte by byte, for tests of a target.

use std::sync::atomic::Ordering;
use std::time::Instant;

use nvme_spec::{Cqe, Sqe};
use nvme_tcp::Encoder;
use zerocopy::{FromBytes, IntoBytes};

use super::connect::{self, Wanted, Way};
use super::{Fabrics, NvmeTcp, lock};
use crate::DriverError;

impl Fabrics for NvmeTcp {
    fn connect_data(&self) -> Vec<u8> {
        let wanted = Wanted {
            qid: 1,
            entries: 2,
            cntlid: Some(self.cntlid.load(Ordering::Relaxed)),
            in_capsule: 0,
        };
        let (_, data) = connect::connect(&self.target, wanted, &self.host);
        data.as_bytes().to_vec()
    }

    fn connect(&self, command: &[u8; 64], data: &[u8]) -> Result<[u32; 4], DriverError> {
        let deadline = Instant::now() + self.timeout;
        let channel = lock(&self.channel).clone();
        let way = Way {
            target: &self.target,
            peer: *lock(&self.peer),
            channel: &channel,
        };
        let (mut talk, agreement) = connect::agree(way, &self.host, self.timeout, deadline)?;
        let cqe = connect::ask(&mut talk, &Encoder::new(agreement), &sqe_of(command), data)?;
        Ok(dwords(&cqe))
    }

    fn execute(&self, command: &[u8; 64]) -> Result<[u32; 4], DriverError> {
        let what = "the answer to a command";
        self.run_own(sqe_of(command), what).map(|cqe| dwords(&cqe))
    }
}

fn sqe_of(bytes: &[u8; 64]) -> Sqe {
    Sqe::read_from_bytes(bytes).expect("an entry has 64 bytes")
}

fn dwords(cqe: &Cqe) -> [u32; 4] {
    let mut dwords = [0; 4];
    dwords.as_mut_bytes().copy_from_slice(cqe.as_bytes());
    dwords
}
