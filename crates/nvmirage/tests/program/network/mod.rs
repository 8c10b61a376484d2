//! Hosts over NVMe/TCP, as the operator of a server meets them.

mod concat;
mod crowds;
mod discovered;
mod observed;
mod operators;
mod paths;
mod raw;
mod remote;
mod secure;
mod shared;
mod spread;
mod survive;
mod tls;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use serde_json::Value;

use crate::world::{BOUND, Server, World};

pub(super) const NQN: &str = "nqn.2026-11.test:store";

/// A TCP port that no other program gets: it is bound, and only the server listens.
pub(super) struct Port {
    _bound: OwnedFd,
    pub(super) number: u16,
}

impl Port {
    pub(super) fn new() -> Self {
        let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // Linux lets two sockets with this option have one port while neither listens.
        sockopt::set_socket_reuseaddr(&bound, true).unwrap();
        bind(&bound, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
        Port {
            number: address.port(),
            _bound: bound,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.number))
    }

    pub(super) fn listen(&self) -> String {
        format!("nvme-tcp:{}", self.address())
    }

    /// Address of the drive `store`, for our hosts.
    pub(super) fn target(&self) -> String {
        format!("{}/{NQN}", self.listen())
    }

    /// The controller `store` over namespace `data`.
    pub(super) fn controller(&self, more: &str) -> String {
        format!(
            "[[controller]]\nname = \"store\"\nnamespaces = [\"data\"]\nsubnqn = \"{NQN}\"\n\
             listen = \"{}\"\n{more}",
            self.listen()
        )
    }
}

/// A medium in memory, and namespace `data` of it.
pub(super) const DISK: &str = "[[media]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
                               [[namespace]]\nname = \"data\"\nmedia = \"disk\"\n";

pub(super) fn serve(world: &World, config: &str, more: &[&str]) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&[&["--config", file.to_str().unwrap()], more].concat())
}

/// A server of [`DISK`], with keys of `tcp`.
pub(super) fn served(world: &World, tcp: &str) -> (Server, Port) {
    let port = Port::new();
    let config = format!("{DISK}{}", port.controller(&format!("tcp = {{ {tcp} }}\n")));
    (serve(world, &config, &[]), port)
}

/// The hosts of controller `store`.
pub(super) fn hosts(world: &World) -> Vec<Value> {
    let reply = world.ask("GET /v1/hosts/store", &[], "");
    match reply.status {
        200 => reply.json()["hosts"]
            .as_array()
            .cloned()
            .unwrap_or_default(),
        404 => Vec::new(),
        _ => panic!("{reply:?}"),
    }
}

pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn until_hosts(world: &World, count: usize) {
    until(&format!("there are not {count} hosts"), || {
        hosts(world).len() == count
    });
}

/// A host with commands in flight, for as long as it is served.
pub(super) fn busy(world: &World, target: &str) -> Child {
    busy_as(world, target, &[])
}

/// The same, with options that say who it is.
pub(super) fn busy_as(world: &World, target: &str, options: &[&str]) -> Child {
    let mut command = world.program();
    command.args(["bench", "--target", target, "--rw", "randrw", "--qd", "16"]);
    command.args(options);
    command.args(["--bs", "64k", "--time", "10min", "--destroy-data"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The value of a sample in `/metrics` with these labels, 0 without one.
pub(super) fn metric(world: &World, sample: &str) -> f64 {
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    let found = metrics.lines().find_map(|line| line.strip_prefix(sample));
    found.map_or(0.0, |value| value.trim().parse().unwrap())
}
