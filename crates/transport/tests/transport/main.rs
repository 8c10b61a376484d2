//! Connections and sessions as a reactor uses them.

mod caller;
mod resume;
mod session;
