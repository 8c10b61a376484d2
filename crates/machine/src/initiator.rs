//! The kernel's NVMe/TCP initiator: the command that gives this machine, or another one, a drive.

use std::net::SocketAddr;

use crate::qemu::shell_quoted;

/// Placeholder for an address of a server that listens on all of its addresses.
const ANY: &str = "ADDRESS";

/// The command that connects a Linux host to the subsystem `subnqn` at `address`. Where that is
/// not one address of the server's machine, the command has `ADDRESS` in its place.
pub fn connect(address: SocketAddr, subnqn: &str) -> String {
    format!(
        "nvme connect -t tcp -a {} -s {} -n {}",
        traddr(address).unwrap_or(ANY.to_owned()),
        address.port(),
        shell_quoted(subnqn)
    )
}

/// The transport address that a host names. `None`: any address of the server's machine.
pub fn traddr(address: SocketAddr) -> Option<String> {
    let ip = address.ip().to_canonical();
    match address {
        _ if ip.is_unspecified() => None,
        // an interface of this machine, as in fe80::1%2
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            Some(format!("{ip}%{}", address.scope_id()))
        }
        _ => Some(ip.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_address_port_and_subsystem() {
        for (address, line) in [
            ("127.0.0.1:4420", "-a 127.0.0.1 -s 4420"),
            ("[::1]:1", "-a ::1 -s 1"),
            ("[::ffff:10.0.0.1]:2", "-a 10.0.0.1 -s 2"),
            ("[fe80::1%3]:4420", "-a fe80::1%3 -s 4420"),
            ("0.0.0.0:4420", "-a ADDRESS -s 4420"),
            ("[::]:4420", "-a ADDRESS -s 4420"),
        ] {
            let made = connect(address.parse().unwrap(), "nqn.2026-01.org.example:a");
            assert_eq!(
                made,
                format!("nvme connect -t tcp {line} -n nqn.2026-01.org.example:a")
            );
        }
        let quoted = connect("127.0.0.1:1".parse().unwrap(), "nqn.2026-01.org:a b");
        assert!(quoted.ends_with("-n 'nqn.2026-01.org:a b'"), "{quoted}");
    }
}
