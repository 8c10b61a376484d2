//! A recorded session: text, one message a line.
//!
//! `>` (the host to the server) or `<`, the number of descriptors, and the message with its header
//! in hexadecimal. Lines that start with `#` are for a person, except that the first names the
//! format. `cargo xtask record` writes it.

use std::fmt;

/// The first line.
pub const FORMAT: &str = "# nvmirage vfio-user session, format 1";

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The client.
    Host,
    /// The device.
    Server,
}

/// One message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its sender.
    pub from: From,
    /// How many descriptors went with it.
    pub fds: usize,
    /// All of it, with its header.
    pub bytes: Vec<u8>,
}

/// Fault of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecording {
    /// Counted from 1.
    pub line: usize,
    /// The expected text there.
    pub expected: &'static str,
}

impl fmt::Display for BadRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} of the recording is not {}",
            self.line, self.expected
        )
    }
}

impl std::error::Error for BadRecording {}

/// Reads a recording.
///
/// # Errors
/// Its first line names another format, or a line is no message.
pub fn parse(text: &str) -> Result<Vec<Recorded>, BadRecording> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, first)| first != FORMAT) {
        let expected = "the name of a format that is known here";
        return Err(BadRecording { line: 1, expected });
    }
    lines
        .filter(|(_, line)| !line.starts_with('#'))
        .map(|(line, text)| {
            parse_line(text).ok_or(BadRecording {
                line,
                expected: "a message: `>` or `<`, a number of descriptors, and hexadecimal bytes",
            })
        })
        .collect()
}

fn parse_line(line: &str) -> Option<Recorded> {
    let mut words = line.split(' ');
    let from = match words.next()? {
        ">" => From::Host,
        "<" => From::Server,
        _ => return None,
    };
    let fds = words.next()?.parse().ok()?;
    let hex = words.next()?.as_bytes();
    if words.next().is_some() || hex.len() % 2 != 0 || hex.len() < 32 {
        return None;
    }
    let digit = |digit: u8| (digit as char).to_digit(16);
    let bytes = hex
        .chunks_exact(2)
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect::<Option<_>>()?;
    Some(Recorded { from, fds, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_remarks_are_not() {
        let text = "# nvmirage vfio-user session, format 1\n# a remark\n\
                    > 1 01000200100000000000000000000000\n< 0 0100020010000000010000000000000A\n";
        let recorded = parse(text).unwrap();
        assert_eq!(recorded.len(), 2);
        assert_eq!((recorded[0].from, recorded[0].fds), (From::Host, 1));
        assert_eq!(recorded[0].bytes[..4], [1, 0, 2, 0]);
        assert_eq!((recorded[1].from, recorded[1].fds), (From::Server, 0));
        assert_eq!(recorded[1].bytes[15], 10);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("# nvmirage vfio-user session, format 2\n", 1),
            ("# nvmirage vfio-user session, format 1\n? 0 00", 2),
            ("# nvmirage vfio-user session, format 1\n> 0 00", 2),
            (
                "# nvmirage vfio-user session, format 1\n#\n> x 01000200100000000000000000000000",
                3,
            ),
            (
                "# nvmirage vfio-user session, format 1\n> 0 0100020010000000000000000000000x",
                2,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
