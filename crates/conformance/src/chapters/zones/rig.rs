//! A namespace of zones, and commands to it.

use crate::bench::{Bench, CC_ENABLE, Ns, Pair, pattern};
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::{Cqe, Sqe, bits, status, u8_at, u16_at, u32_at, u64_at};

/// Statuses of the Zoned Namespace command set (ZNS 1.1, 3.1.2).
pub(super) const INVALID_ZONE_OPERATION: u16 = 0x1b6;
pub(super) const NO_RANDOM_AREA: u16 = 0x1b7;
pub(super) const ZONE_BOUNDARY: u16 = 0x1b8;
pub(super) const ZONE_IS_FULL: u16 = 0x1b9;
pub(super) const ZONE_IS_READ_ONLY: u16 = 0x1ba;
pub(super) const ZONE_IS_OFFLINE: u16 = 0x1bb;
pub(super) const ZONE_INVALID_WRITE: u16 = 0x1bc;
pub(super) const TOO_MANY_ACTIVE: u16 = 0x1bd;
pub(super) const TOO_MANY_OPEN: u16 = 0x1be;
pub(super) const INVALID_TRANSITION: u16 = 0x1bf;

/// Zone States (ZNS 1.1, 2.1.1).
pub(super) const EMPTY: u8 = 0x1;
pub(super) const IMPLICIT: u8 = 0x2;
pub(super) const EXPLICIT: u8 = 0x3;
pub(super) const CLOSED: u8 = 0x4;
pub(super) const READ_ONLY: u8 = 0xd;
pub(super) const FULL: u8 = 0xe;
pub(super) const GONE: u8 = 0xf;

/// Zone Send Actions (ZNS 1.1, 3.4.3), and bits beside them in Dword 13.
pub(super) const CLOSE: u32 = 0x01;
pub(super) const FINISH: u32 = 0x02;
pub(super) const OPEN: u32 = 0x03;
pub(super) const RESET: u32 = 0x04;
pub(super) const OFFLINE: u32 = 0x05;
pub(super) const EXTENSION: u32 = 0x10;
pub(super) const COMMIT: u32 = 0x11;
pub(super) const ALL: u32 = 1 << 8;
pub(super) const ALLOCATE: u32 = 1 << 9;

/// A limit that is none (MAR and MOR).
const NO_LIMIT: u32 = 0xffff_ffff;

const WRITE: u8 = 0x01;
const SEND: u8 = 0x79;
const RECEIVE: u8 = 0x7a;
const APPEND: u8 = 0x7d;

/// A report's entry for a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) kind: u8,
    pub(super) state: u8,
    /// Zone Attributes.
    pub(super) attributes: u8,
    pub(super) capacity: u64,
    pub(super) start: u64,
    /// Of no meaning where the zone is full.
    pub(super) pointer: u64,
}

impl Zone {
    pub(super) fn at(bytes: &[u8], at: usize) -> Self {
        Self {
            kind: u8_at(bytes, at) & 0xf,
            state: u8_at(bytes, at + 1) >> 4,
            attributes: u8_at(bytes, at + 2),
            capacity: u64_at(bytes, at + 8),
            start: u64_at(bytes, at + 16),
            pointer: u64_at(bytes, at + 24),
        }
    }
}

/// A namespace of zones on a controller with all command sets enabled, and what it reports. Its
/// zones are reset.
pub(super) struct Rig<'b> {
    pub(super) bench: &'b mut Bench,
    pub(super) pair: Pair,
    pub(super) ns: Ns,
    /// Identify Namespace of the command set.
    pub(super) identity: Vec<u8>,
    /// Blocks from one zone to the next.
    pub(super) zone_blocks: u64,
    /// Bytes of a descriptor extension.
    pub(super) extension: usize,
    /// Zones there are.
    pub(super) count: u64,
    /// First blocks of the zones that are empty, all of them but those that are read only or
    /// offline.
    pub(super) empty: Vec<u64>,
    /// Blocks of the first of them that can be written.
    pub(super) capacity: u64,
}

impl<'b> Rig<'b> {
    /// The first such namespace, or the one that is to be used.
    pub(super) fn new(bench: &'b mut Bench) -> Verdict<Self> {
        // CAP.CSS, bit 6: one or more other command sets.
        if bits(bench.cap(), 43, 43) == 0 {
            return not_supported("CAP.CSS has no other command set than NVM");
        }
        bench.start_with(64, 64, CC_ENABLE | 0b110 << 4)?;
        let (sqe, page) = bench.identify_sqe(0x07, 0)?;
        let cqe = bench.admin(sqe.dw(11, 2 << 24))?;
        let nsid = u32_at(&page.bytes(0, 4), 0);
        if cqe.status() != status::SUCCESS || nsid == 0 {
            return not_supported("there is no namespace of the Zoned Namespace command set");
        }
        let Some(ns) = Ns::new(nsid, bench.identify(0x00, nsid)?) else {
            return not_supported("the namespace of zones has metadata");
        };
        let identity = set_identity(bench, nsid)?;
        let flbas = usize::from(u8_at(&ns.identity, 26));
        let format = 2816 + 16 * (flbas & 0xf | (flbas >> 5 & 0b11) << 4);
        let zone_blocks = u64_at(&identity, format);
        check(zone_blocks > 0, || "ZSZE is 0".into())?;
        let mut rig = Self {
            pair: bench.pair(64)?,
            bench,
            extension: 64 * usize::from(u8_at(&identity, format + 8)),
            count: ns.blocks / zone_blocks,
            ns,
            identity,
            zone_blocks,
            empty: Vec::new(),
            capacity: 0,
        };
        rig.send(0, RESET | ALL)?.ok()?;
        let zones = rig.zones()?;
        let empty = zones.iter().filter(|zone| zone.state == EMPTY);
        rig.empty = empty.clone().map(|zone| zone.start).collect();
        rig.capacity = empty.map(|zone| zone.capacity).next().unwrap_or(0);
        rig.needs(1)?;
        Ok(rig)
    }

    /// Not supported unless there are so many zones to work on.
    pub(super) fn needs(&self, zones: usize) -> Verdict {
        if self.empty.len() < zones {
            return not_supported(format!(
                "{} zones can be written, and {zones} are needed",
                self.empty.len()
            ));
        }
        Ok(())
    }

    /// The first block of the first zone to work on.
    pub(super) fn first(&self) -> u64 {
        self.empty[0]
    }

    /// Zones that may be active at a time; none where that is not limited.
    pub(super) fn active_most(&self) -> Option<usize> {
        limit(u32_at(&self.identity, 4))
    }

    /// Zones that may be open at a time; none where that is not limited.
    pub(super) fn open_most(&self) -> Option<usize> {
        limit(u32_at(&self.identity, 8))
    }

    /// Not supported where fewer zones may be open at a time.
    pub(super) fn needs_open(&self, zones: usize) -> Verdict {
        let most = self.open_most().unwrap_or(usize::MAX);
        if most < zones {
            return not_supported(format!("MOR: {most} zones may be open"));
        }
        self.needs(zones)
    }

    fn sqe(&self, opcode: u8, slba: u64) -> Sqe {
        Sqe::new(opcode).nsid(self.ns.nsid).qword(10, slba)
    }

    pub(super) fn run(&mut self, sqe: Sqe) -> Verdict<Cqe> {
        self.bench.run(&mut self.pair, sqe)
    }

    /// Zone Management Send without data.
    pub(super) fn send(&mut self, slba: u64, dword13: u32) -> Verdict<Cqe> {
        let sqe = self.sqe(SEND, slba).dw(13, dword13);
        self.run(sqe)
    }

    /// Zone Management Send with the data of a descriptor extension.
    pub(super) fn send_extension(&mut self, slba: u64, options: u32, data: &[u8]) -> Verdict<Cqe> {
        let mem = self.bench.mem(data.len())?;
        mem.write(0, data);
        let pointer = self.bench.pointer(&mem, 0, data.len())?;
        let sqe = self
            .sqe(SEND, slba)
            .dw(13, EXTENSION | options)
            .data(pointer);
        self.run(sqe)
    }

    /// Zone Management Receive of `len` bytes, whatever its status: the completion, and the bytes.
    pub(super) fn receive(
        &mut self,
        slba: u64,
        dword13: u32,
        len: usize,
    ) -> Verdict<(Cqe, Vec<u8>)> {
        let mem = self.bench.mem(len + 8)?;
        mem.fill(0xa5);
        let pointer = self.bench.pointer(&mem, 0, len)?;
        let dwords = u32::try_from(len / 4 - 1).expect("a report is short");
        let sqe = self.sqe(RECEIVE, slba).dw(12, dwords).dw(13, dword13);
        let cqe = self.run(sqe.data(pointer))?;
        let bytes = mem.bytes(0, len + 8);
        same(
            "what is behind the report",
            u64_at(&bytes, len),
            0xa5a5_a5a5_a5a5_a5a5,
        )?;
        Ok((cqe, bytes[..len].to_vec()))
    }

    /// The zones from a block on, as far as `room` of them have place: how many the report counts,
    /// and those.
    pub(super) fn report(
        &mut self,
        slba: u64,
        dword13: u32,
        room: usize,
    ) -> Verdict<(u64, Vec<Zone>)> {
        let (cqe, bytes) = self.receive(slba, dword13, 64 + 64 * room)?;
        cqe.ok()?;
        let count = u64_at(&bytes, 0);
        let there = usize::try_from(count).map_or(room, |count| count.min(room));
        let zones = (0..there).map(|n| Zone::at(&bytes, 64 + 64 * n)).collect();
        Ok((count, zones))
    }

    /// Every zone, report after report.
    pub(super) fn zones(&mut self) -> Verdict<Vec<Zone>> {
        let mut zones = Vec::new();
        while (zones.len() as u64) < self.count {
            let from = zones.len() as u64 * self.zone_blocks;
            let (_, mut more) = self.report(from, 0, 60)?;
            check(!more.is_empty(), || {
                format!("a report from block {from:#x} on lists no zone")
            })?;
            zones.append(&mut more);
        }
        Ok(zones)
    }

    /// The zone that begins at a block.
    pub(super) fn zone(&mut self, start: u64) -> Verdict<Zone> {
        let (_, zones) = self.report(start, 0, 1)?;
        let zone = zones.into_iter().next();
        let zone = zone.ok_or_else(|| format!("no zone is reported from block {start:#x} on"));
        let zone = zone.map_err(crate::verdict::Miss::Failed)?;
        same("the zone's start", zone.start, start)?;
        Ok(zone)
    }

    /// The zone at a block is in this state, with its write pointer so many blocks from there.
    pub(super) fn is(&mut self, start: u64, state: u8, written: u64) -> Verdict {
        let zone = self.zone(start)?;
        same("Zone State", zone.state, state)?;
        if state == FULL {
            return Ok(());
        }
        same("Write Pointer", zone.pointer, start + written)
    }

    /// Write of so many blocks of a pattern, whatever its status.
    pub(super) fn write(&mut self, slba: u64, blocks: u32, seed: u64) -> Verdict<Cqe> {
        let len = self.ns.bytes(blocks);
        let mem = self.bench.mem(len)?;
        mem.write(0, &pattern(len, seed));
        let sqe = self.bench.transfer(&self.ns, WRITE, slba, blocks, &mem)?;
        self.run(sqe)
    }

    /// Zone Append of so many blocks of a pattern to the zone at a block, whatever its status.
    pub(super) fn append(&mut self, start: u64, blocks: u32, seed: u64) -> Verdict<Cqe> {
        let sqe = self.append_sqe(start, blocks, seed)?;
        self.run(sqe)
    }

    pub(super) fn append_sqe(&mut self, start: u64, blocks: u32, seed: u64) -> Verdict<Sqe> {
        let len = self.ns.bytes(blocks);
        let mem = self.bench.mem(len)?;
        mem.write(0, &pattern(len, seed));
        self.bench.transfer(&self.ns, APPEND, start, blocks, &mem)
    }

    /// Blocks are read, and are this.
    pub(super) fn holds(&mut self, slba: u64, expected: &[u8]) -> Verdict {
        let blocks = u32::try_from(expected.len() / self.ns.block_len).expect("a few blocks");
        let found = self
            .bench
            .read_blocks(&mut self.pair, &self.ns, slba, blocks)?;
        crate::verdict::same_bytes("what is read", &found, expected)
    }

    /// Bytes of so many blocks of a pattern.
    pub(super) fn pattern(&self, blocks: u32, seed: u64) -> Vec<u8> {
        pattern(self.ns.bytes(blocks), seed)
    }

    /// Blocks of as many bytes, and at least one.
    pub(super) fn blocks_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / self.ns.block_len).map_or(u32::MAX, |blocks| blocks.max(1))
    }

    /// Blocks that one command writes: no more than the first zone holds.
    pub(super) fn blocks_most(&mut self) -> Verdict<u32> {
        let mdts = self.bench.mdts()?.unwrap_or(1 << 20).min(1 << 20);
        let blocks = self.blocks_of(mdts).min(1 << 16);
        Ok(u32::try_from(self.capacity).map_or(blocks, |most| blocks.min(most)))
    }

    /// Writes a zone to this many blocks from its start, where it is `from` blocks from there,
    /// without a look at what.
    pub(super) fn fill(&mut self, start: u64, from: u64, to: u64) -> Verdict {
        let most = self.blocks_most()?;
        let mut at = from;
        while at < to {
            let blocks = u32::try_from(to - at).map_or(most, |left| left.min(most));
            self.write(start + at, blocks, at)?.ok()?;
            at += u64::from(blocks);
        }
        Ok(())
    }

    /// Not supported unless blocks that were never written are said to read as zeros (DLFEAT, bits
    /// 2:0).
    pub(super) fn needs_zeros(&self) -> Verdict {
        if u8_at(&self.ns.identity, 33) & 0b111 != 1 {
            return not_supported("DLFEAT: what deallocated blocks read as is not said");
        }
        Ok(())
    }

    /// Brings a zone into a state that hosts can bring it into.
    pub(super) fn bring(&mut self, start: u64, state: u8) -> Verdict {
        self.send(start, RESET)?.ok()?;
        match state {
            IMPLICIT => self.write(start, 1, 1)?.ok().map(drop)?,
            EXPLICIT => self.send(start, OPEN)?.ok().map(drop)?,
            CLOSED => {
                self.write(start, 1, 1)?.ok()?;
                self.send(start, CLOSE)?.ok()?;
            }
            FULL => self.send(start, FINISH)?.ok().map(drop)?,
            _ => {}
        }
        same("Zone State", self.zone(start)?.state, state)
    }

    /// The random write area: blocks of one, blocks of a step, and how many zones may have one.
    pub(super) fn random(&mut self) -> Verdict<(u32, u32, usize)> {
        // OZCS, bit 1.
        if u16_at(&self.identity, 2) & 0b10 == 0 {
            return not_supported("OZCS bit 1: no random write area");
        }
        let (size, step) = (u16_at(&self.identity, 50), u16_at(&self.identity, 48));
        let zones = limit(u32_at(&self.identity, 44)).unwrap_or(usize::MAX);
        check(size > 0 && step > 0 && size.is_multiple_of(step), || {
            format!("ZRWASZ {size} is not whole steps of ZRWAFG {step}")
        })?;
        Ok((size.into(), step.into(), zones))
    }
}

/// A 0's based limit.
fn limit(limit_z: u32) -> Option<usize> {
    let zones = limit_z.checked_add(1).filter(|_| limit_z != NO_LIMIT)?;
    usize::try_from(zones).ok()
}

/// Identify Namespace of the Zoned Namespace command set.
pub(super) fn set_identity(bench: &mut Bench, nsid: u32) -> Verdict<Vec<u8>> {
    let (sqe, page) = bench.identify_sqe(0x05, nsid)?;
    bench.admin(sqe.dw(11, 2 << 24))?.ok()?;
    Ok(page.bytes(0, 4096))
}
