//! Connections and sessions as a reactor uses them.

mod caller;
mod failing;
mod nbd;
mod nvme_tcp;
mod resume;
mod session;
mod ublk;
mod vhost_user;
