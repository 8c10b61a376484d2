//! `cargo xtask record`: the messages between a real QEMU and our server, as a fixture for the
//! protocol tests.
//!
//! A relay stands between the two and passes every message on with its descriptors. The fixture is
//! text, one message a line: `>` (QEMU to the server) or `<`, the number of descriptors, and the
//! message with its header in hexadecimal. Lines that start with `#` are for a person.

use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use guest_rig::{Guest, Options, Rig, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vfio_user::{Connection, ConnectionError};
use zerocopy::IntoBytes;

/// What is recorded.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// How the guest reaches the doorbells
    #[arg(long, default_value = "mapped", value_parser = ["mapped", "unmapped"])]
    doorbells: String,
    /// The fixture to write
    file: PathBuf,
}

/// The fixture's first line, which names its format.
const FORMAT: &str = "# nvmirage vfio-user session, format 1";

/// What the guest does: bind the drive, use it, reset it, and shut it down.
const JOB: &str = "\
step appears appears /dev/nvme0n1
step mkfs mkfs.ext4 -q /dev/nvme0n1
step reset nvme reset /dev/nvme0
step mount mount -t ext4 /dev/nvme0n1 /mnt
step unmount umount /mnt
step quiet no_complaints
";

const BOUND: Duration = Duration::from_secs(120);

/// Records a session.
///
/// # Errors
/// The guest or the server fails, or the file cannot be written.
pub(crate) fn run(args: &RecordArgs) -> Result<()> {
    let rig = Rig::locate()?;
    let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
    let (server_path, relay_path) = (dir.path().join("server"), dir.path().join("relay"));
    let listen = format!("vfio-user:{}", server_path.display());
    let server = Server::start(&[
        "--media",
        "ram:size=64MiB",
        "--listen",
        &listen,
        "--doorbells",
        &args.doorbells,
    ])?;
    let listener = UnixListener::bind(&relay_path)?;
    let relay = thread::spawn(move || relay(&listener, &server_path));
    let options = Options {
        job: Some(JOB.into()),
        sockets: vec![relay_path],
        ..Options::default()
    };
    Guest::boot(&rig, &options)?.finish(BOUND)?;
    let messages = relay.join().expect("the relay does not panic")?;
    server.stop(Duration::from_secs(10))?;

    let count = messages.lines().count();
    let about = format!(
        "{FORMAT}\n# QEMU with the server, doorbells {how}: a Debian guest makes a file system, resets the controller, mounts.\n\
         # Recorded by: cargo xtask record --doorbells {how} FILE\n",
        how = args.doorbells
    );
    fs::write(&args.file, about + &messages)
        .with_context(|| format!("cannot write {}", args.file.display()))?;
    println!("{count} messages in {}", args.file.display());
    Ok(())
}

/// Passes messages on until one side closes, and returns the fixture's lines.
fn relay(listener: &UnixListener, server: &Path) -> Result<String> {
    let deadline = Instant::now() + BOUND;
    wait(&[listener.as_fd()], deadline)?;
    let mut client = Connection::new(listener.accept()?.0)?;
    let mut server = Connection::new(UnixStream::connect(server)?)?;
    let mut lines = String::new();
    loop {
        let open = pass(&mut client, &mut server, '>', &mut lines)?
            && pass(&mut server, &mut client, '<', &mut lines)?;
        if !open {
            return Ok(lines);
        }
        client.flush()?;
        server.flush()?;
        wait(&[client.as_fd(), server.as_fd()], deadline)?;
    }
}

/// Passes on all messages that have arrived. Whether the side that sends them is still there.
fn pass(
    from: &mut Connection,
    to: &mut Connection,
    direction: char,
    lines: &mut String,
) -> Result<bool> {
    loop {
        let message = match from.receive() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(true),
            Err(ConnectionError::Closed) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        ensure!(!message.fds_truncated, "a message has too many descriptors");
        let _ = write!(lines, "{direction} {} ", message.fds.len());
        for byte in message.header.as_bytes().iter().chain(message.body) {
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push('\n');
        let fds: Vec<_> = message.fds.iter().map(AsFd::as_fd).collect();
        to.send(&message.header, &[message.body], &fds)?;
    }
}

/// Waits until one of `fds` can be read.
fn wait(fds: &[std::os::fd::BorrowedFd<'_>], deadline: Instant) -> Result<()> {
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs())?,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    if poll(&mut polled, Some(&timeout))? == 0 {
        bail!("no message came within {BOUND:?}");
    }
    Ok(())
}
