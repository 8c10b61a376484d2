//! One of our own drives in process, with a medium in memory, and a host that shares it.

mod again;
mod erase;
mod fabrics;
mod faults;
mod model;
mod reach;
mod relay;
mod report;
mod rig;
mod sleep;
mod windows;
