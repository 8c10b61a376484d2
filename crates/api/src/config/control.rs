//! `control`: the addresses of the control API.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Listen;
use super::object::{Names, Short, object};
use super::problem::Problem;

/// Default of the socket.
pub(super) const DEFAULT_SOCKET: &str = "a socket in the runtime folder";

object! {
    /// Addresses of the control API: `control = "unix:PATH"`, or a table.
    #[derive(Default, Eq)]
    pub struct Control(ControlKeys, "control", short) {
        /// UNIX socket of the control API, as `unix:PATH`.
        socket: Option<Listen> | unset => Restart {
            unset: DEFAULT_SOCKET,
            value: "unix:PATH",
        };
        /// TCP address of the control API, as `127.0.0.1:9600`. Only with `token_file`.
        #[schema(value_type = Option<String>)]
        tcp: Option<SocketAddr> | unset => Restart { value: "ADDRESS:PORT" };
        /// File with the token that requests over TCP must carry, 32 to 512 characters. A missing
        /// file is created with mode 0600. Only with `tcp`.
        #[schema(value_type = Option<String>)]
        token_file: Option<PathBuf> | unset => Restart {
            value: "FILE",
            names: Names::Files,
        };
        /// Allow an address in `tcp` that other machines can reach. Nothing is encrypted, including
        /// the token.
        tcp_allow_remote: bool | unset => Restart;
    }
}

impl Control {
    /// Only a socket.
    pub fn at(socket: PathBuf) -> Self {
        Control {
            socket: Some(Listen::Unix(socket)),
            ..Control::default()
        }
    }

    /// Appends what is wrong with it.
    pub(super) fn validate(&self, problems: &mut Vec<Problem>) {
        let mut problem = |what: String| {
            problems.push(Problem {
                place: "control".into(),
                what,
            });
        };
        if let Some(socket) = &self.socket
            && !matches!(socket, Listen::Unix(_))
        {
            problem(format!("\"{socket}\": write unix:PATH"));
        }
        match (&self.tcp, &self.token_file) {
            (Some(tcp), None) => problem(format!(
                "tcp = \"{tcp}\" without a token is open to everybody: write token_file = \"/run/nvmirage/token\"; a missing file is created"
            )),
            (None, Some(_)) => problem(
                "token_file is only for tcp: add tcp = \"127.0.0.1:9600\", or remove token_file"
                    .into(),
            ),
            _ => {}
        }
        if let Some(tcp) = &self.tcp
            && !tcp.ip().is_loopback()
            && !self.tcp_allow_remote
        {
            problem(format!(
                "tcp = \"{tcp}\" is reachable from other machines, and nothing is encrypted: write 127.0.0.1:{}, or tcp_allow_remote = true on a trusted network",
                tcp.port()
            ));
        }
    }
}

impl Short for Control {
    fn to_text(&self) -> Option<String> {
        let socket = self.socket.as_ref()?;
        let is_alone = *self
            == Control {
                socket: Some(socket.clone()),
                ..Control::default()
            };
        is_alone.then(|| socket.to_string())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Control {
            socket: Some(text.parse()?),
            ..Control::default()
        })
    }

    const FORMS: &'static str = "an address in quotes, as in \"unix:/run/nvmirage/control.sock\", or a table with `socket` and `tcp`";
}

#[cfg(test)]
mod tests {
    use super::super::from_toml;

    #[test]
    fn tcp_is_for_this_machine_and_never_without_a_token() {
        let address =
            |table: &str| from_toml(&format!("[control]\n{table}")).map_err(|e| format!("{e:#}"));
        let tcp = "tcp = \"127.0.0.1:9600\"\n";
        let token = "token_file = \"/run/token\"\n";
        let control = address(&format!("{tcp}{token}")).unwrap().control.unwrap();
        assert_eq!(control.tcp, Some("127.0.0.1:9600".parse().unwrap()));
        assert!(address("tcp = \"[::1]:9600\"\ntoken_file = \"t\"").is_ok());
        for (table, says) in [
            (tcp.to_owned(), "open to everybody"),
            (token.to_owned(), "is only for tcp"),
            (
                format!("tcp = \"0.0.0.0:9600\"\n{token}"),
                "write 127.0.0.1:9600",
            ),
            (format!("tcp = \"[::]:9600\"\n{token}"), "tcp_allow_remote"),
            ("socket = \"vfio-user:a\"".to_owned(), "write unix:PATH"),
            (
                format!("tpc = \"127.0.0.1:1\"\n{token}"),
                "did you mean `tcp`?",
            ),
        ] {
            let error = address(&table).unwrap_err();
            assert!(error.contains(says), "{says} is missing in {error}");
        }
        let remote = address(&format!(
            "tcp = \"0.0.0.0:9600\"\ntcp_allow_remote = true\n{token}"
        ));
        assert!(remote.is_ok(), "{remote:?}");
    }

    #[test]
    fn a_socket_alone_is_a_string() {
        let config = from_toml("control = \"unix:/run/c\"").unwrap();
        let text = config.with_defaults(|_| true);
        assert!(text.contains("control = \"unix:/run/c\""), "{text}");
        let table =
            "[control]\nsocket = \"unix:/run/c\"\ntcp = \"127.0.0.1:1\"\ntoken_file = \"/t\"\n";
        let config = from_toml(table).unwrap();
        assert_eq!(
            from_toml(&config.with_defaults(|_| true)).unwrap().control,
            config.control
        );
    }
}
