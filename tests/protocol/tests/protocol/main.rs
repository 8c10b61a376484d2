//! The server, to hosts that connect to it.

mod cases;

use tests_protocol::{Door, Options, Server};

fn serve(options: &Options) -> Server {
    Server::start(options, Door::Direct)
}
