//! What `cargo xtask` and the programs that it starts share: where things are, which programs of
//! others there are, and commands that run with a bound. No task is here.

pub mod process;
pub mod tools;
pub mod workspace;
