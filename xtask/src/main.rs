//! Set-up, tests, benchmarks and checks of nvmirage.

fn main() {}
