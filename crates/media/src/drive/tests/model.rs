//! Random requests, compared with their effects on a vector of bytes.

use port::{ByteRange, Cause, Outcome, Request};
use proptest::prelude::*;

use super::rig::{Host, Rig, SIZE, Shape};

/// Places in the medium, in blocks.
const BLOCKS: u64 = 256;

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64, Layout),
    Write(u64, u64, Layout, u8),
    Zero(u64, u64, bool),
    Deallocate(Vec<(u64, u64)>),
    Compare(u64, u64, bool),
    Fused(u64, bool, u8),
    Flush,
}

/// Layout of data in the host's memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// In one piece that begins at a page.
    Whole,
    /// In one piece that begins at this byte of a page.
    Inside(u64),
    /// Page by page, from the last one to the first.
    Pages,
    /// In pieces of this many bytes, apart.
    Pieces(u32),
    /// In such pieces that begin at a page each.
    Starts(u32),
}

impl Layout {
    fn pieces(self, len: u64) -> Vec<(u64, u32)> {
        let step = match self {
            Layout::Whole => return vec![(8192, len as u32)],
            Layout::Inside(at) => return vec![(8192 + at, len as u32)],
            Layout::Pages => 4096,
            Layout::Pieces(step) | Layout::Starts(step) => u64::from(step),
        };
        let count = len.div_ceil(step);
        let piece = |index: u64| {
            let at = match self {
                Layout::Pages | Layout::Starts(_) => (count - index) * 8192,
                _ => 4096 + index * (step + 60),
            };
            (at, step.min(len - index * step) as u32)
        };
        (0..count).map(piece).collect()
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::Whole),
        (0u64..1024).prop_map(|dword| Layout::Inside(dword * 4)),
        (0u64..4096).prop_map(Layout::Inside),
        Just(Layout::Pages),
        (400u32..3000).prop_map(Layout::Pieces),
        (400u32..3000).prop_map(Layout::Starts),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0u64..BLOCKS, 1u64..200);
    prop_oneof![
        4 => (place(), layout()).prop_map(|((at, len), layout)| Step::Read(at, len, layout)),
        4 => (place(), layout(), any::<u8>()).prop_map(|((at, len), layout, byte)| Step::Write(at, len, layout, byte)),
        1 => (place(), any::<bool>()).prop_map(|((at, len), deallocate)| Step::Zero(at, len, deallocate)),
        1 => prop::collection::vec(place(), 1..5).prop_map(Step::Deallocate),
        1 => (place(), any::<bool>()).prop_map(|((at, len), same)| Step::Compare(at, len, same)),
        1 => (0u64..BLOCKS, any::<bool>(), any::<u8>()).prop_map(|(at, same, byte)| Step::Fused(at, same, byte)),
        1 => Just(Step::Flush),
    ]
}

/// Bytes that differ from place to place.
fn pattern(byte: u8, len: u64) -> Vec<u8> {
    (0..len)
        .map(|at| byte.wrapping_add((at / 7) as u8))
        .collect()
}

struct World {
    rig: Rig,
    host: Host,
    model: Vec<u8>,
}

impl World {
    fn range(&mut self, at: u64, len: u64) -> &mut [u8] {
        let (at, len) = ((at * 512) as usize, (len * 512) as usize);
        &mut self.model[at..at + len]
    }

    fn play(&mut self, step: Step) {
        let host = &self.host;
        match step {
            Step::Read(at, len, layout) => {
                let bytes = len * 512;
                let pieces = layout.pieces(bytes);
                host.buffer.fill(0xEE);
                let (offset, len32) = (at * 512, bytes as u32);
                let request = Request::Read { offset, len: len32 };
                assert_eq!(self.rig.run(host, &request, &pieces), Outcome::OK);
                let found = self.host.get(&pieces);
                assert!(found == *self.range(at, len), "{layout:?}");
            }
            Step::Write(at, len, layout, byte) => {
                let bytes = pattern(byte, len * 512);
                let pieces = layout.pieces(len * 512);
                host.put(&pieces, &bytes);
                let request = Request::Write {
                    offset: at * 512,
                    len: (len * 512) as u32,
                    fua: byte % 2 == 0,
                };
                assert_eq!(self.rig.run(host, &request, &pieces), Outcome::OK);
                self.range(at, len).copy_from_slice(&bytes);
            }
            Step::Zero(at, len, deallocate) => {
                let request = Request::WriteZeroes {
                    offset: at * 512,
                    len: len * 512,
                    deallocate,
                    fua: false,
                };
                assert_eq!(self.rig.run(host, &request, &[]), Outcome::OK);
                self.range(at, len).fill(0);
            }
            Step::Deallocate(places) => {
                let ranges: Vec<ByteRange> = places
                    .iter()
                    .map(|(at, len)| ByteRange {
                        offset: at * 512,
                        len: len * 512,
                    })
                    .collect();
                let request = Request::Deallocate { ranges: &ranges };
                assert_eq!(self.rig.run(host, &request, &[]), Outcome::OK);
                // Whole pages are deallocated, and read as zero; the contents of others are
                // undefined, so the test ignores them from here on.
                for (at, len) in places {
                    let request = Request::WriteZeroes {
                        offset: at * 512,
                        len: len * 512,
                        deallocate: false,
                        fua: false,
                    };
                    assert_eq!(self.rig.run(&self.host, &request, &[]), Outcome::OK);
                    self.range(at, len).fill(0);
                }
            }
            Step::Compare(at, len, same) => {
                let mut bytes = self.range(at, len).to_vec();
                let last = bytes.len() - 1;
                bytes[last] ^= u8::from(!same);
                let pieces = Layout::Pieces(1000).pieces(len * 512);
                self.host.put(&pieces, &bytes);
                let request = Request::Compare {
                    offset: at * 512,
                    len: (len * 512) as u32,
                };
                let outcome = self.rig.run(&self.host, &request, &pieces);
                let expected = if same {
                    Cause::None
                } else {
                    Cause::CompareMismatch
                };
                assert_eq!(outcome.cause, expected);
            }
            Step::Fused(at, same, byte) => {
                let mut bytes = self.range(at, 8).to_vec();
                bytes[4095] ^= u8::from(!same);
                let new = pattern(byte, 4096);
                bytes.extend(&new);
                let pieces = Layout::Pieces(700).pieces(8192);
                self.host.put(&pieces, &bytes);
                let request = Request::CompareAndWrite {
                    offset: at * 512,
                    len: 4096,
                    commit: byte % 3 == 0,
                    fua: byte % 2 == 0,
                };
                let outcome = self.rig.run(&self.host, &request, &pieces);
                if same {
                    assert_eq!(outcome, Outcome::OK);
                    self.range(at, 8).copy_from_slice(&new);
                } else {
                    assert_eq!(outcome.cause, Cause::CompareMismatch);
                }
            }
            Step::Flush => assert_eq!(self.rig.run(host, &Request::Flush, &[]), Outcome::OK),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn requests_do_what_a_vector_of_bytes_says(
        steps in prop::collection::vec(step(), 1..40),
        shares in any::<bool>(),
        max_transfer in prop_oneof![Just(8u32 << 10), Just(16 << 10), Just(1 << 20)],
        zeroes in any::<bool>(),
    ) {
        let mut rig = Rig::new(Shape { max_transfer, ..Shape::default() });
        if !zeroes {
            rig.channel.forget_zeroes();
        }
        let host = Host::new();
        if shares {
            let read = Request::Read { offset: 0, len: 512 };
            rig.run(&host, &read, &[(0, 512)]);
            rig.tick(3);
            prop_assert_eq!(rig.keeper.shared().len(), 1);
        }
        let mut world = World { rig, host, model: vec![0; SIZE as usize] };
        for step in steps {
            world.play(step);
        }
        // Nothing outside has changed.
        let all = [(0u64, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (3 << 20, 1 << 20)];
        for (offset, len) in all {
            let request = Request::Read { offset, len };
            prop_assert_eq!(world.rig.run(&world.host, &request, &[(0, len)]), Outcome::OK);
            let found = world.host.get(&[(0, len)]);
            prop_assert!(found[..] == world.model[offset as usize..][..len as usize]);
        }
    }
}

/// All of that, for rigs of another kind.
pub(super) fn programs() {
    requests_do_what_a_vector_of_bytes_says();
}
