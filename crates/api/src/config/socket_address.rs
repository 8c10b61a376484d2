//! Places where a server listens, as text: `ADDRESS:PORT`, and the path of a UNIX socket.

use std::net::{IpAddr, SocketAddr};

/// Longest path of a UNIX socket: `sun_path` holds 108 bytes, the last of them NUL (unix(7)).
const MAX_SOCKET_PATH_LEN: usize = 107;

/// Checks the path of a UNIX socket; `whole` is the text that it is in.
pub(super) fn check_socket_path(path: &str, whole: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err(format!("`{whole}`: name a socket"));
    }
    if path.len() > MAX_SOCKET_PATH_LEN {
        return Err(format!(
            "`{whole}`: a socket path has 1 to {MAX_SOCKET_PATH_LEN} bytes; shorten it"
        ));
    }
    Ok(())
}

/// Reads `ADDRESS:PORT`. Names are not resolved: an address that depends on the machine's
/// resolver could open a server to others. `usual` is the port of the protocol, and `form` says
/// what to write.
pub(super) fn socket_address(
    text: &str,
    whole: &str,
    usual: u16,
    form: &str,
) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => Err(format!(
                "`{whole}`: port 0 is no port: write 1 to 65535; {usual} is the usual one"
            )),
            _ => Ok(address),
        };
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return Err(format!(
            "`{whole}` has no port, or an IPv6 address without brackets: {form}"
        ));
    }
    match text.rsplit_once(':') {
        Some((ip, _))
            if ip
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<IpAddr>()
                .is_ok() =>
        {
            Err(format!(
                "`{whole}`: the port is a number, 1 to 65535: {form}"
            ))
        }
        Some((name, _)) if !name.is_empty() => Err(format!(
            "`{whole}`: `{name}` is no IP address, and names are not resolved: {form}"
        )),
        _ => Err(format!("`{whole}` has no address or no port: {form}")),
    }
}
