//! HTTP on the control socket, byte by byte: what a client other than ours may send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::world::{BOUND, World};

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The status line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// Reads a whole reply, of a server that closes after it.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Reply {
            status: status.unwrap_or(0),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// A problem of that status (RFC 9457), which says these words.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        for key in ["type", "title", "detail"] {
            assert!(problem[key].as_str().is_some_and(|text| !text.is_empty()));
        }
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{words} is missing in\n{detail}");
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

impl World {
    /// A connection to the server's control socket.
    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path("control")).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// Asks, with these headers beside the usual, and reads the whole answer.
    pub(crate) fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut text = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        text += body;
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Reply::of(&bytes)
    }
}
