//! `socket_mode`: who may connect to a controller.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Permissions of a socket, as in chmod(1). Connecting needs write permission (unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct SocketMode(u32);

impl SocketMode {
    /// The bits, for chmod(2).
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Default for SocketMode {
    /// Access for the owner only.
    fn default() -> Self {
        SocketMode(0o600)
    }
}

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 4 && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| digits);
        // The owner, this server, must keep its access; executing a socket has no meaning.
        let mode = mode.filter(|mode| mode & !0o066 == 0o600);
        mode.map(SocketMode).ok_or_else(|| {
            format!("\"{text}\" is not a socket mode: write 0600 for its owner, 0660 for its group too, or 0666 for all users")
        })
    }
}

impl TryFrom<String> for SocketMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SocketMode> for String {
    fn from(mode: SocketMode) -> String {
        mode.to_string()
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modes_that_leave_us_the_socket() {
        for (text, bits) in [
            ("0600", 0o600),
            ("0660", 0o660),
            ("0622", 0o622),
            ("0666", 0o666),
        ] {
            let mode: SocketMode = text.parse().unwrap();
            assert_eq!((mode.bits(), mode.to_string().as_str()), (bits, text));
        }
        for text in [
            "", "660", "0060", "0700", "0661", "0668", "+660", "4600", "06600",
        ] {
            assert!(text.parse::<SocketMode>().is_err(), "{text}");
        }
    }
}
