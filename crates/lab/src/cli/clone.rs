//! `nvmirage clone`: copies a prepared drive, with the state of its timing model.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{
    FlockOperation, SeekFrom, copy_file_range, fcntl_lock, flock, ioctl_ficlone, seek,
};
use rustix::io::Errno;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  nvmirage clone prepared.img vm1.img
      The medium, and the state of its timing model in prepared.img.timing, if any
  nvmirage clone pro.timing pro2.timing
      Only the state of a timing model

Where the file system can share blocks between files (XFS, Btrfs, bcachefs) that takes a moment,
whatever the size; elsewhere what is written of the file is copied.";

/// Bytes per copy request to the kernel.
const PART: usize = 16 << 20;
/// Suffix of the file that holds the state of a medium's timing.
const TIMING: &str = ".timing";

/// Clone the file of a drive that is not in use
///
/// The clone includes the state files beside the medium's file. Configuration and identities are
/// not cloned.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Clone {
    /// File of a medium that no server uses
    source: PathBuf,

    /// New file; must not exist
    destination: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    files: Vec<Cloned>,
    seconds: f64,
}

/// A new file.
#[derive(Debug, Serialize)]
struct Cloned {
    path: PathBuf,
    size_bytes: u64,
    /// Both files share their blocks until one of them is written to.
    shared: bool,
    copied_bytes: u64,
}

impl Clone {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut all = vec![(self.source.clone(), self.destination.clone())];
        let timing = beside(&self.source);
        if timing.exists() {
            // The timing state is published before the medium: a medium that exists has its timing
            // state.
            all.insert(0, (timing, beside(&self.destination)));
        }
        for (_, destination) in &all {
            if fs::symlink_metadata(destination).is_ok() {
                bail!(
                    "{} already exists: name another file, or remove it",
                    destination.display()
                );
            }
        }
        let sources = all.iter().map(|(source, _)| open(source));
        let sources = sources.collect::<anyhow::Result<Vec<File>>>()?;
        let mut files: Vec<Cloned> = Vec::new();
        for ((_, destination), source) in all.iter().zip(&sources) {
            let cloned = clone(source, destination);
            if cloned.is_err() {
                files
                    .iter()
                    .for_each(|made| drop(fs::remove_file(&made.path)));
            }
            files.push(cloned.with_context(|| format!("cannot make {}", destination.display()))?);
        }
        files.reverse();
        let seconds = begun.elapsed().as_secs_f64();
        let report = Report { files, seconds };
        if self.json {
            terminal::print_json(&report)
        } else {
            terminal::print(&report.in_words())
        }
    }
}

impl Report {
    fn in_words(&self) -> String {
        let line = |file: &Cloned| {
            let how = if file.shared {
                "its blocks are shared".to_owned()
            } else {
                format!(
                    "{} were copied: this file system shares no blocks between these files",
                    terminal::units::bytes(file.copied_bytes)
                )
            };
            format!("{}: {how}\n", file.path.display())
        };
        let lines: String = self.files.iter().map(line).collect();
        format!("{lines}done in {:.3} s\n", self.seconds)
    }
}

pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TIMING);
    name.into()
}

/// Opens a file, and rejects one that a server uses.
pub(super) fn open(path: &Path) -> anyhow::Result<File> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    if !file.metadata()?.is_file() {
        bail!("{shown} is not a regular file: only regular files can be cloned");
    }
    // A server locks a medium's file with one kind of lock, and the timing state with the other.
    for locked in [
        fcntl_lock(&file, FlockOperation::NonBlockingLockShared),
        flock(&file, FlockOperation::NonBlockingLockShared),
    ] {
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => {
                bail!(
                    "{shown} is in use: stop the server that uses it first (`fuser -v` on the path names it)"
                )
            }
            Err(errno) => Err(errno).with_context(|| format!("cannot lock {shown}"))?,
        }
    }
    Ok(file)
}

/// Clones a file completely, or not at all.
fn clone(source: &File, destination: &Path) -> io::Result<Cloned> {
    let mut name = destination.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary);
    let made = made?;
    let size_bytes = source.metadata()?.len();
    let filled = fill(source, &made, size_bytes).and_then(|copied_bytes| {
        made.sync_all()?;
        // An existing file is not replaced: unlike a rename, a link fails if the name exists.
        fs::hard_link(&temporary, destination)?;
        Ok(copied_bytes)
    });
    let removed = fs::remove_file(&temporary);
    let copied_bytes = filled?;
    removed?;
    Ok(Cloned {
        path: destination.to_owned(),
        size_bytes,
        shared: copied_bytes.is_none(),
        copied_bytes: copied_bytes.unwrap_or(0),
    })
}

/// Copies the bytes of a file. Returns the number of bytes copied; `None` if the files share
/// blocks.
fn fill(source: &File, made: &File, size_bytes: u64) -> io::Result<Option<u64>> {
    match ioctl_ficlone(made, source) {
        Ok(()) => return Ok(None),
        // The files are on different file systems, or the file system cannot share blocks.
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTTY) => {}
        Err(errno) => return Err(errno.into()),
    }
    made.set_len(size_bytes)?;
    let bar = ProgressBar::new(size_bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let (mut copied, mut at) = (0, 0);
    while let Some((start, end)) = next_data(source, at, size_bytes)? {
        copied += copy(source, made, start, end, &bar)?;
        at = end;
    }
    bar.finish_and_clear();
    Ok(Some(copied))
}

/// The next data range of a file at or after `at`, without holes.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    Ok((start < end).then_some((start, end)))
}

fn copy(source: &File, made: &File, start: u64, end: u64, bar: &ProgressBar) -> io::Result<u64> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let part = usize::try_from(end - from).map_or(PART, |left| left.min(PART));
        let copied = match copy_file_range(source, Some(&mut from), made, Some(&mut to), part) {
            Ok(copied) => copied,
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let copied = copy_by_hand(source, made, from, part)?;
                (from, to) = (from + copied as u64, to + copied as u64);
                copied
            }
            Err(errno) => return Err(errno.into()),
        };
        if copied == 0 {
            return Err(io::Error::other(
                "the file became shorter while it was cloned",
            ));
        }
        bar.set_position(from);
    }
    Ok(end - start)
}

/// Copies through memory where the kernel does not copy between the two file systems.
fn copy_by_hand(source: &File, made: &File, at: u64, len: usize) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len];
    let read = source.read_at(&mut bytes, at)?;
    made.write_all_at(&bytes[..read], at)?;
    Ok(read)
}
