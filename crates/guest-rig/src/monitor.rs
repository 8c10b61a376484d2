//! QEMU's monitor: one request each time, over its socket (QEMU Machine Protocol).
//!
//! Not included: events. A request is granted or rejected; its effect shows in the guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Asks for `command`, and waits until it is granted.
pub(crate) fn ask(socket: &Path, command: &str, bound: Duration) -> Result<()> {
    let deadline = Instant::now() + bound;
    let stream = UnixStream::connect(socket).context("QEMU's monitor is not there")?;
    stream.set_read_timeout(Some(bound))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    // The greeting, leave to ask, and then what is asked.
    line(&mut answers, r#""QMP""#, deadline)?;
    for command in [r#"{"execute":"qmp_capabilities"}"#, command] {
        writeln!(stream, "{command}")?;
        line(&mut answers, r#""return""#, deadline)
            .with_context(|| format!("QEMU's monitor does not do {command}"))?;
    }
    Ok(())
}

/// Waits for a line with `text`; events may come before it.
fn line(answers: &mut impl BufRead, text: &str, deadline: Instant) -> Result<()> {
    loop {
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            bail!("QEMU has ended");
        }
        if line.contains(text) {
            return Ok(());
        }
        if line.contains(r#""error""#) {
            bail!("it says {}", line.trim());
        }
        if Instant::now() > deadline {
            bail!("no answer");
        }
    }
}
