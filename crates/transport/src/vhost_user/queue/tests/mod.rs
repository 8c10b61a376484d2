//! Rings against a driver that was written for these tests, from the specification alone.

mod deaths;
mod driver;
mod faults;
mod guest;
mod placement;
mod records;
mod traffic;

/// Numbers that differ by seed (xorshift).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }
}
