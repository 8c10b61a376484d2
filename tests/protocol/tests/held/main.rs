//! The server, to hosts that connect to a holder: the same tests, and the same expectations.

#[path = "../protocol/cases/mod.rs"]
mod cases;

use tests_protocol::{Door, Options, Server};

fn serve(options: &Options) -> Server {
    let door = Door::Holder(env!("CARGO_BIN_EXE_protocol-holder"));
    Server::start(options, door)
}
