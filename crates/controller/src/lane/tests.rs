//! The lane driven by a small host: rings in its own memory, one or more media.

mod commands;
mod control;
mod doorbells;
mod maps;
mod model;
mod rig;
mod shadow;
