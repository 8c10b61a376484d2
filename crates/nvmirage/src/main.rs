//! nvmirage: NVMe drives made in software.

fn main() {}
