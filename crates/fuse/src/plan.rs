//! Translates a request for bytes into steps on a drive with blocks.
//!
//! Invariants: a plan changes no byte outside of the request. It may write back bytes of a block
//! that it has read; such a plan is [exclusive](Plan::exclusive), and no other write may touch its
//! blocks meanwhile. No command exceeds the drive's maximum transfer size.
//!
//! This module does no I/O, and does not check the end of the namespace: the caller has cut the
//! request there.

use std::collections::VecDeque;
use std::ops::Range;

/// Most blocks of a command: a 0's based field of 16 bits (NVM 1.1, 3.2.4).
const COMMAND_BLOCKS: u32 = 1 << 16;

/// Properties of a drive's blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a block.
    pub(super) block_len: u32,
    /// Most bytes of one command.
    pub(super) transfer_len: u32,
}

/// Memory that a command moves data to or from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Offset in the request's data, which starts with the plan's first block.
    Data(usize),
    /// One of the two blocks that contain bytes outside of the request.
    Edge(Edge),
}

/// A block that the request covers in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    First,
    Last,
}

/// A step; each begins when the previous one is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read blocks.
    Read { lba: u64, blocks: u32, place: Place },
    /// Write blocks.
    Write {
        lba: u64,
        blocks: u32,
        place: Place,
        fua: bool,
    },
    /// Copy a range of an edge to an offset in the data.
    Keep {
        edge: Edge,
        bytes: Range<usize>,
        at: usize,
    },
    /// Zero a range of an edge.
    Blank { edge: Edge, bytes: Range<usize> },
    /// Zero blocks, as many as fit into one command, and continue with the rest.
    Zeroes { lba: u64, blocks: u64 },
    /// Make everything durable.
    Flush,
}

/// The steps of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Every block that a step touches.
    pub(super) blocks: Range<u64>,
    /// Bytes before the request in the first block.
    pub(super) skip: usize,
    /// Whether it writes back bytes that it has read.
    pub(super) exclusive: bool,
    /// In order of execution.
    pub(super) steps: VecDeque<Step>,
}

/// The number of blocks in the first command of a zero step, and the step for the rest.
pub(super) fn first_zeroes(lba: u64, blocks: u64) -> (u32, Option<Step>) {
    let now = u32::try_from(blocks).map_or(COMMAND_BLOCKS, |blocks| blocks.min(COMMAND_BLOCKS));
    let left = blocks - u64::from(now);
    let rest = (left > 0).then_some(Step::Zeroes {
        lba: lba + u64::from(now),
        blocks: left,
    });
    (now, rest)
}

impl Shape {
    fn block(self) -> u64 {
        self.block_len.into()
    }

    /// Most blocks of one command.
    fn step(self) -> u32 {
        (self.transfer_len / self.block_len).clamp(1, COMMAND_BLOCKS)
    }

    /// The blocks that `len` bytes at `offset` lie in. `len` is not 0, and the end fits in 64 bits.
    fn around(self, offset: u64, len: u64) -> Range<u64> {
        offset / self.block()..(offset + len).div_ceil(self.block())
    }

    /// The range within `block` of `len` bytes at `offset`.
    fn part(self, block: u64, offset: u64, len: u64) -> Range<usize> {
        let start = block * self.block();
        let within = |at: u64| usize::try_from(at.clamp(start, start + self.block()) - start);
        let fits = "a block fits in an address space";
        within(offset).expect(fits)..within(offset + len).expect(fits)
    }

    /// Transfers blocks to or from the request's data, which starts with block `first`.
    fn transfers(
        self,
        first: u64,
        blocks: Range<u64>,
        step: impl Fn(u64, u32, Place) -> Step,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut lba = blocks.start;
        while lba < blocks.end {
            let count = u64::from(self.step()).min(blocks.end - lba);
            let at = usize::try_from((lba - first) * self.block());
            let at = at.expect("a request fits in an address space");
            let count = u32::try_from(count).expect("65536 at most");
            steps.push(step(lba, count, Place::Data(at)));
            lba += u64::from(count);
        }
        steps
    }

    /// Reads `len` bytes at `offset`: whole blocks, into the data.
    pub(super) fn read(self, offset: u64, len: u32) -> Plan {
        let blocks = self.around(offset, len.into());
        let steps = self.transfers(blocks.start, blocks.clone(), |lba, blocks, place| {
            Step::Read { lba, blocks, place }
        });
        self.plan(offset, blocks, false, steps)
    }

    /// Writes `len` bytes at `offset`. Blocks that are written in part are read first. With `fua`,
    /// every write command has FUA.
    pub(super) fn write(self, offset: u64, len: u32, fua: bool) -> Plan {
        let len = u64::from(len);
        let blocks = self.around(offset, len);
        let block_len = usize::try_from(self.block_len).expect("a block fits in an address space");
        let last = blocks.end - 1;
        let mut steps = Vec::new();
        let head = self.part(blocks.start, offset, len);
        let tail = self.part(last, offset, len);
        let is_whole = |part: &Range<usize>| *part == (0..block_len);
        if !is_whole(&head) {
            steps.push(edge_read(blocks.start, Edge::First));
        }
        if last != blocks.start && !is_whole(&tail) {
            steps.push(edge_read(last, Edge::Last));
        }
        let exclusive = !steps.is_empty();
        if head.start > 0 {
            steps.push(Step::Keep {
                edge: Edge::First,
                bytes: 0..head.start,
                at: 0,
            });
        }
        if tail.end < block_len {
            let at = usize::try_from((last - blocks.start) * self.block());
            steps.push(Step::Keep {
                edge: if last == blocks.start {
                    Edge::First
                } else {
                    Edge::Last
                },
                bytes: tail.end..block_len,
                at: at.expect("a request fits in an address space") + tail.end,
            });
        }
        steps.extend(
            self.transfers(blocks.start, blocks.clone(), |lba, blocks, place| {
                Step::Write {
                    lba,
                    blocks,
                    place,
                    fua,
                }
            }),
        );
        self.plan(offset, blocks, exclusive, steps)
    }

    /// Zeroes `len` bytes at `offset`.
    pub(super) fn zero(self, offset: u64, len: u64) -> Plan {
        let blocks = self.around(offset, len);
        let block_len = usize::try_from(self.block_len).expect("a block fits in an address space");
        let mut whole = blocks.clone();
        let mut steps = Vec::new();
        let mut blank = |block: u64, edge: Edge| {
            let bytes = self.part(block, offset, len);
            if bytes == (0..block_len) {
                return false;
            }
            steps.push(edge_read(block, edge));
            steps.push(Step::Blank { edge, bytes });
            steps.push(Step::Write {
                lba: block,
                blocks: 1,
                place: Place::Edge(edge),
                fua: false,
            });
            true
        };
        if blank(blocks.start, Edge::First) {
            whole.start += 1;
        }
        if blocks.end - blocks.start > 1 && blank(blocks.end - 1, Edge::Last) {
            whole.end -= 1;
        }
        let exclusive = !steps.is_empty();
        if whole.start < whole.end {
            steps.push(Step::Zeroes {
                lba: whole.start,
                blocks: whole.end - whole.start,
            });
        }
        self.plan(offset, blocks, exclusive, steps)
    }

    fn plan(self, offset: u64, blocks: Range<u64>, exclusive: bool, steps: Vec<Step>) -> Plan {
        let skip = usize::try_from(offset % self.block()).expect("less than a block");
        Plan {
            blocks,
            skip,
            exclusive,
            steps: steps.into(),
        }
    }
}

impl Plan {
    /// Whether a step changes bytes of the drive.
    pub(super) fn changes_blocks(&self) -> bool {
        let changes = |step: &Step| matches!(step, Step::Write { .. } | Step::Zeroes { .. });
        self.steps.iter().any(changes)
    }

    /// Whether it uses the request's data, not only edges.
    pub(super) fn moves_data(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Read { place, .. } | Step::Write { place, .. } => {
                matches!(place, Place::Data(_))
            }
            _ => false,
        })
    }

    /// Makes everything durable.
    pub(super) fn flush() -> Self {
        Plan {
            steps: VecDeque::from([Step::Flush]),
            ..Plan::default()
        }
    }
}

fn edge_read(lba: u64, edge: Edge) -> Step {
    Step::Read {
        lba,
        blocks: 1,
        place: Place::Edge(edge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 8;
    const BLOCKS: usize = 5;

    /// A drive that executes steps, with the memory of one request.
    struct Drive {
        bytes: Vec<u8>,
        data: Vec<u8>,
        edges: [[u8; BLOCK]; 2],
        command_blocks: u32,
        /// Blocks that were written.
        written: Vec<usize>,
    }

    fn index(edge: Edge) -> usize {
        match edge {
            Edge::First => 0,
            Edge::Last => 1,
        }
    }

    impl Drive {
        fn new(transfer_len: u32) -> Self {
            Drive {
                bytes: (0..BLOCK * BLOCKS).map(|at| 100 + at as u8).collect(),
                data: vec![0xee; BLOCK * BLOCKS],
                edges: [[0xdd; BLOCK]; 2],
                command_blocks: transfer_len / BLOCK as u32,
                written: Vec::new(),
            }
        }

        fn run(&mut self, plan: &Plan) {
            let mut steps = plan.steps.clone();
            while let Some(step) = steps.pop_front() {
                match step {
                    Step::Read { lba, blocks, place } => {
                        let from = self.range(lba, blocks);
                        let bytes = self.bytes[from].to_vec();
                        match place {
                            Place::Data(at) => {
                                self.data[at..at + bytes.len()].copy_from_slice(&bytes)
                            }
                            Place::Edge(edge) => self.edges[index(edge)].copy_from_slice(&bytes),
                        }
                    }
                    Step::Write {
                        lba, blocks, place, ..
                    } => {
                        let to = self.range(lba, blocks);
                        let bytes = match place {
                            Place::Data(at) => self.data[at..at + to.len()].to_vec(),
                            Place::Edge(edge) => self.edges[index(edge)].to_vec(),
                        };
                        self.written.extend(to.start / BLOCK..to.end / BLOCK);
                        self.bytes[to].copy_from_slice(&bytes);
                    }
                    Step::Keep { edge, bytes, at } => {
                        let kept = self.edges[index(edge)][bytes].to_vec();
                        self.data[at..at + kept.len()].copy_from_slice(&kept);
                    }
                    Step::Blank { edge, bytes } => self.edges[index(edge)][bytes].fill(0),
                    Step::Zeroes { lba, blocks } => {
                        let (now, rest) = first_zeroes(lba, blocks);
                        let start = lba as usize * BLOCK;
                        self.bytes[start..start + now as usize * BLOCK].fill(0);
                        steps.extend(rest);
                    }
                    Step::Flush => {}
                }
            }
        }

        fn range(&self, lba: u64, blocks: u32) -> Range<usize> {
            assert!(
                blocks > 0 && blocks <= self.command_blocks.max(1),
                "{blocks} blocks in a command"
            );
            let start = lba as usize * BLOCK;
            start..start + blocks as usize * BLOCK
        }
    }

    /// All ranges on a small drive, with all limits of a command.
    fn every_case(mut check: impl FnMut(Shape, u64, u32)) {
        for transfer_len in [8, 16, 24, 40] {
            let shape = Shape {
                block_len: BLOCK as u32,
                transfer_len,
            };
            for offset in 0..(BLOCK * BLOCKS) as u64 {
                for len in 1..=(BLOCK * BLOCKS) as u32 - offset as u32 {
                    check(shape, offset, len);
                }
            }
        }
    }

    #[test]
    fn reads_give_the_bytes_of_the_range() {
        every_case(|shape, offset, len| {
            let mut drive = Drive::new(shape.transfer_len);
            let plan = shape.read(offset, len);
            drive.run(&plan);
            let (offset, len) = (offset as usize, len as usize);
            let got = &drive.data[plan.skip..plan.skip + len];
            assert_eq!(got, &drive.bytes[offset..offset + len]);
            assert!(drive.written.is_empty() && !plan.exclusive);
        });
    }

    #[test]
    fn writes_change_the_bytes_of_the_range_and_no_others() {
        every_case(|shape, offset, len| {
            let mut drive = Drive::new(shape.transfer_len);
            let mut expected = drive.bytes.clone();
            let plan = shape.write(offset, len, true);
            let (offset, len) = (offset as usize, len as usize);
            expected[offset..offset + len].fill(7);
            drive.data[plan.skip..plan.skip + len].fill(7);
            drive.run(&plan);
            assert_eq!(drive.bytes, expected, "{len} bytes at {offset}");
            let is_whole = offset % BLOCK == 0 && len % BLOCK == 0;
            assert_eq!(plan.exclusive, !is_whole, "{len} bytes at {offset}");
            let touched = plan.blocks.start as usize..plan.blocks.end as usize;
            assert!(drive.written.iter().all(|block| touched.contains(block)));
            let durable = |step: &Step| !matches!(step, Step::Write { fua: false, .. });
            assert!(plan.steps.iter().all(durable));
        });
    }

    #[test]
    fn zeros_fill_the_range_and_nothing_else() {
        every_case(|shape, offset, len| {
            let mut drive = Drive::new(shape.transfer_len);
            let mut expected = drive.bytes.clone();
            let plan = shape.zero(offset, len.into());
            drive.run(&plan);
            let (offset, len) = (offset as usize, len as usize);
            expected[offset..offset + len].fill(0);
            assert_eq!(drive.bytes, expected, "{len} bytes at {offset}");
            assert_eq!(plan.exclusive, offset % BLOCK != 0 || len % BLOCK != 0);
        });
    }

    #[test]
    fn whole_blocks_are_written_by_one_command_without_a_read() {
        let shape = Shape {
            block_len: 4096,
            transfer_len: 1 << 20,
        };
        let plan = shape.write(8192, 1 << 20, false);
        let only = Step::Write {
            lba: 2,
            blocks: 256,
            place: Place::Data(0),
            fua: false,
        };
        assert_eq!(plan.steps, [only]);
    }

    #[test]
    fn more_zeros_than_a_command_has_blocks_take_several() {
        let (now, rest) = first_zeroes(10, 65_537);
        assert_eq!(now, 65_536);
        assert_eq!(
            rest,
            Some(Step::Zeroes {
                lba: 65_546,
                blocks: 1
            })
        );
        assert_eq!(first_zeroes(10, 65_536), (65_536, None));
        assert_eq!(first_zeroes(0, u64::MAX).0, 65_536);
    }
}
