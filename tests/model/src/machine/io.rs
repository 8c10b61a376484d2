//! I/O commands: what is sent, and what is compared.

use std::collections::BTreeMap;

use super::{Machine, PLAIN, bare};
use crate::host::{Failure, Layout};
use crate::model::Unsure;
use crate::program::{Blocks, Fault, Io};
use crate::wire::Command;

impl Machine {
    pub(super) fn io(&mut self, sqid: u16, io: &Io) -> Result<(), Failure> {
        if let Io::Fused(blocks, same, seed) = io {
            return self.fused(sqid, *blocks, *same, *seed);
        }
        let (command, layout, len) = self.io_command(io);
        let (verdicts, unsure) = self.model.io(io);
        self.host.put(sqid, command);
        self.host.ring(sqid);
        let completion = self.host.wait(sqid, 1)?[0];
        verdicts[0].judge(completion.status, completion.dw0)?;
        if matches!(io, Io::Read(..)) && verdicts[0].succeeds() {
            self.compare_data(&verdicts[0], &layout, len)?;
        }
        unsure.map_or(Ok(()), |unsure| self.make_sure(sqid, &unsure))
    }

    /// The command, and where its data is, which is put there.
    fn io_command(&self, io: &Io) -> (Command, Layout, usize) {
        let plain = |opcode, blocks: Blocks, last: u32| of_blocks(opcode, blocks, last);
        let (command, layout, fault, bytes) = match io {
            Io::Read(blocks, fua, layout, fault) => {
                let len = self.model.transfer_len(*blocks);
                self.host.spoil_data();
                let (flags, dptr) = self.host.describe(layout, len, *fault);
                let command = plain(0x02, *blocks, u32::from(*fua) << 30);
                let command = Command {
                    flags,
                    dptr,
                    ..command
                };
                return (command, layout.clone(), len);
            }
            Io::Write(blocks, seed, fua, layout, fault) => {
                let command = plain(0x01, *blocks, u32::from(*fua) << 30);
                let bytes = self.model.data(*blocks, *seed);
                (command, layout.clone(), *fault, bytes)
            }
            Io::Compare(blocks, same, layout, fault) => {
                let bytes = self.model.compared(*blocks, *same);
                (plain(0x05, *blocks, 0), layout.clone(), *fault, bytes)
            }
            Io::Verify(blocks) => return (plain(0x0c, *blocks, 0), PLAIN, 0),
            Io::WriteZeroes(blocks, deallocates) => {
                let last = u32::from(*deallocates) << 25;
                return (plain(0x08, *blocks, last), PLAIN, 0);
            }
            Io::WriteUncorrectable(blocks) => return (plain(0x04, *blocks, 0), PLAIN, 0),
            Io::Deallocate(ranges, deallocates) => {
                let mut command = plain(0x09, ranges[0], 0);
                let last = ranges.len() as u32 - 1;
                command.cdw = [last, u32::from(*deallocates) << 2, 0, 0, 0, 0];
                let bytes = ranges.iter().flat_map(deallocated).collect();
                (command, PLAIN, Fault::None, bytes)
            }
            Io::Copy(ranges, to) => {
                let mut command = plain(0x19, ranges[0], 0);
                let last = ranges.len() as u32 - 1;
                command.cdw = [*to as u32, (*to >> 32) as u32, last, 0, 0, 0];
                let bytes = ranges.iter().flat_map(copied).collect();
                (command, PLAIN, Fault::None, bytes)
            }
            Io::Flush(nsid) => return (bare(0x00, *nsid), PLAIN, 0),
            Io::Odd(opcode, nsid) => return (bare(*opcode, *nsid), PLAIN, 0),
            Io::Fused(..) => unreachable!("it is two commands"),
        };
        self.host.put_data(&layout, &bytes);
        let (flags, dptr) = self.host.describe(&layout, bytes.len(), fault);
        let command = Command {
            flags,
            dptr,
            ..command
        };
        (command, layout, bytes.len())
    }

    /// Two commands that are rung together; where the queue has no room for both, nothing.
    fn fused(&mut self, sqid: u16, blocks: Blocks, same: bool, seed: u8) -> Result<(), Failure> {
        // FUSES.
        if self.model.facts.controller[522] & 1 == 0 || self.model.sqs[&sqid].0 < 3 {
            return Ok(());
        }
        // A pair takes two places of the completion queue. Where every submission queue has one
        // place of its own and no more are there, it is refused: a rule of this controller's own,
        // with tests of its own.
        let cqid = self.model.sqs[&sqid].1;
        let sharing = self.model.sqs.values().filter(|(_, id)| *id == cqid);
        let places = self.model.cqs[&cqid] - 1;
        if places < 2 || places == sharing.count() as u32 {
            return Ok(());
        }
        let second = Layout::Prp {
            offset: 4 * 4096,
            list_at: 0,
        };
        let data = [
            self.model.compared(blocks, same),
            self.model.data(blocks, seed),
        ];
        let (verdicts, _) = self.model.io(&Io::Fused(blocks, same, seed));
        for (n, (layout, bytes)) in [PLAIN, second].iter().zip(&data).enumerate() {
            self.host.put_data(layout, bytes);
            let (_, dptr) = self.host.describe(layout, bytes.len(), Fault::None);
            let command = Command {
                flags: [0b01, 0b10][n],
                dptr,
                ..of_blocks([0x05, 0x01][n], blocks, 0)
            };
            self.host.put(sqid, command);
        }
        self.host.ring(sqid);
        let done = self.host.wait(sqid, 2)?;
        for (verdict, completion) in verdicts.iter().zip(&done) {
            let failed = |failure| format!("{completion:?}: {failure}");
            verdict.judge(completion.status, 0).map_err(failed)?;
        }
        Ok(())
    }

    /// One command for each of the first blocks of a namespace, all rung at once.
    pub(super) fn burst(
        &mut self,
        sqid: u16,
        nsid: u32,
        writes: &[(bool, u8)],
    ) -> Result<(), Failure> {
        let room = self.model.sqs[&sqid].0 as usize - 1;
        let blocks = self.model.namespaces[&nsid].blocks() as usize;
        // Each has a page of data of its own.
        let most = room.min(blocks).min(16);
        let mut expected = BTreeMap::new();
        self.host.spoil_data();
        for (n, (is_write, seed)) in writes.iter().take(most).enumerate() {
            let blocks = Blocks {
                nsid,
                slba: n as u64,
                count: 1,
            };
            let layout = Layout::Prp {
                offset: 4096 * n as u32,
                list_at: 0,
            };
            let io = match is_write {
                true => Io::Write(blocks, *seed, false, layout.clone(), Fault::None),
                false => Io::Read(blocks, false, layout.clone(), Fault::None),
            };
            let bytes = self.model.data(blocks, *seed);
            let (_, dptr) = self.host.describe(&layout, bytes.len(), Fault::None);
            if *is_write {
                self.host.put_data(&layout, &bytes);
            }
            let opcode = if *is_write { 0x01 } else { 0x02 };
            let command = Command {
                dptr,
                ..of_blocks(opcode, blocks, 0)
            };
            let cid = self.host.put(sqid, command);
            let (verdicts, _) = self.model.io(&io);
            expected.insert(cid, (verdicts[0].clone(), layout, bytes.len(), *is_write));
        }
        self.host.ring(sqid);
        for completion in self.host.wait(sqid, expected.len())? {
            let failed = |failure| format!("{completion:?}: {failure}");
            let Some((verdict, layout, len, is_write)) = expected.remove(&completion.cid) else {
                return Err(format!("{completion:?} is of no command"));
            };
            verdict
                .judge(completion.status, completion.dw0)
                .map_err(failed)?;
            let data = verdict.data.first().filter(|_| !is_write);
            if data.is_some_and(|(_, wanted)| *wanted != self.host.take_data(&layout, len)) {
                return Err(format!("{completion:?}: its data is wrong"));
            }
        }
        Ok(())
    }

    /// Looks at each block that a failed command may have written: it is as before, or as it would
    /// have become.
    fn make_sure(&mut self, sqid: u16, unsure: &Unsure) -> Result<(), Failure> {
        let shift = self.model.namespaces[&unsure.nsid].shift;
        for (n, wanted) in (0..).zip(unsure.bytes.chunks(1 << shift)) {
            let blocks = Blocks {
                nsid: unsure.nsid,
                slba: unsure.slba + n,
                count: 1,
            };
            let read = Io::Read(blocks, false, PLAIN, Fault::None);
            let (command, layout, len) = self.io_command(&read);
            let (before, _) = self.model.io(&read);
            self.host.put(sqid, command);
            self.host.ring(sqid);
            let completion = self.host.wait(sqid, 1)?[0];
            let as_before = before[0]
                .judge(completion.status, completion.dw0)
                .and_then(|()| {
                    if before[0].succeeds() {
                        self.compare_data(&before[0], &layout, len)
                    } else {
                        Ok(())
                    }
                });
            if let Err(failure) = as_before {
                if completion.status != 0 || self.host.take_data(&layout, len) != wanted {
                    return Err(format!("{blocks:?}: neither old nor new: {failure}"));
                }
                if let Some(namespace) = self.model.namespaces.get_mut(&unsure.nsid) {
                    namespace.write(blocks.slba, wanted);
                }
            }
        }
        Ok(())
    }
}

/// SLBA in Dwords 10 and 11, NLB, 0's based, in Dword 12 beside what is in its upper half.
fn of_blocks(opcode: u8, blocks: Blocks, last: u32) -> Command {
    let Blocks { nsid, slba, count } = blocks;
    let cdw = [
        slba as u32,
        (slba >> 32) as u32,
        last | (count - 1),
        0,
        0,
        0,
    ];
    Command {
        cdw,
        ..bare(opcode, nsid)
    }
}

/// A range of Dataset Management: attributes, blocks, and the first of them (NVM 1.1, figure 38).
fn deallocated(range: &Blocks) -> Vec<u8> {
    let first = u64::from(range.count) << 32;
    [first.to_le_bytes(), range.slba.to_le_bytes()].concat()
}

/// A source range of Copy, format 0: the first block at byte 8, NLB, 0's based, at byte 16 (NVM
/// 1.1, figure 29).
fn copied(range: &Blocks) -> Vec<u8> {
    let mut entry = vec![0; 32];
    entry[8..16].copy_from_slice(&range.slba.to_le_bytes());
    entry[16..18].copy_from_slice(&(range.count as u16 - 1).to_le_bytes());
    entry
}
