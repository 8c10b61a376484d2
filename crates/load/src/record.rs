//! Submitted commands, kept in memory until a trace of them is written: a job has no time to write.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use driver::DriverError;
use driver::workload::beside::{Beside, Submitted};
use simulate::trace::{self, Arrival, QUEUES_MAX};
use simulate::{Kind, Op};

/// Commands per allocation, and in all: 2.7 GB.
const PIECE: usize = 1 << 16;
const PIECES_MAX: usize = 1 << 10;

/// The commands submitted so far.
#[derive(Debug, Default)]
pub struct Recorder {
    /// All but the last are full.
    pieces: Vec<Vec<Arrival>>,
    /// Commands that found no room.
    left_out: u64,
}

impl Beside for Recorder {
    #[inline]
    fn turn(&mut self, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) && !self.add_piece() {
            return;
        }
        if let Some(piece) = self.pieces.last_mut() {
            let queue = command.queue % usize::from(QUEUES_MAX);
            piece.push(Arrival {
                at: command.at_ns,
                op: Op {
                    kind: if command.write {
                        Kind::Write
                    } else {
                        Kind::Read
                    },
                    offset: command.offset,
                    len: command.len,
                    fua: false,
                },
                queue: u16::try_from(queue).unwrap_or(0),
            });
        }
    }
}

impl Recorder {
    #[cold]
    fn add_piece(&mut self) -> bool {
        if self.pieces.len() == PIECES_MAX {
            self.left_out += 1;
            return false;
        }
        self.pieces.push(Vec::with_capacity(PIECE));
        true
    }

    /// Writes the commands as a trace into `file`, opened at `path`.
    ///
    /// # Errors
    /// Some commands found no room, or the file cannot be written.
    pub fn write(&self, file: File, path: &Path) -> anyhow::Result<()> {
        let write = || -> std::io::Result<()> {
            // a pipe has no length
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut out = BufWriter::new(file);
            trace::write(&mut out, self.pieces.iter().flatten(), &[])?;
            out.flush()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        if self.left_out > 0 {
            bail!(
                "{} has only the first {} commands: record a shorter run",
                path.display(),
                PIECE * PIECES_MAX
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_submitted_is_in_the_trace() {
        let mut recorder = Recorder::default();
        for number in 0..PIECE as u64 + 2 {
            recorder.submitted(Submitted {
                at_ns: 1000 + number,
                queue: 1,
                write: number % 2 == 1,
                offset: number * 4096,
                len: 4096,
            });
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace");
        recorder.write(File::create(&file).unwrap(), &file).unwrap();
        let trace = trace::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(trace.arrivals.len(), PIECE + 2);
        let last = trace.arrivals[PIECE + 1];
        assert_eq!((last.at, last.queue), (PIECE as u64 + 1, 1));
        assert_eq!(last.op.kind, Kind::Write);
        assert_eq!(last.op.offset, (PIECE as u64 + 1) * 4096);
        // not opened for writing
        let error = recorder
            .write(File::open(&file).unwrap(), &file)
            .unwrap_err();
        assert!(error.to_string().starts_with("cannot write"));
    }

    #[test]
    fn more_than_there_is_room_for_is_said() {
        let mut recorder = Recorder {
            pieces: vec![Vec::new(); PIECES_MAX],
            left_out: 0,
        };
        let command = Submitted {
            at_ns: 0,
            queue: 0,
            write: false,
            offset: 0,
            len: 512,
        };
        (0..PIECE + 3).for_each(|_| recorder.submitted(command));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace");
        let error = recorder
            .write(File::create(&file).unwrap(), &file)
            .unwrap_err();
        assert!(error.to_string().contains("shorter run"));
        assert_eq!(recorder.left_out, 3);
    }
}
