//! Hosts that mean harm to a drive that they share, and drives that lie.

mod lies;
mod list;
