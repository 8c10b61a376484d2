//! The thread of one trace.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use controller::flight::{FlightRecord, TraceRings};
use machine::clock::Clock;
use rustix::fs::{Advice, fadvise};
use trace_file::{BLOCK_RECORDS, Encoder, End, Header, Record};

/// Pause between two readings of the rings: with and without activity.
const PAUSE_BUSY: Duration = Duration::from_millis(2);
const PAUSE_IDLE: Duration = Duration::from_millis(10);
/// Maximum time until a record is in the file, where it survives the process being killed.
const WRITE_AFTER: Duration = Duration::from_millis(500);
/// Bytes reserved for the end of the file.
const END_ROOM: u64 = 2 << 10;
/// Bytes after which the system is asked to start writing the file to disk; otherwise the end,
/// which waits for the disk, would wait for too many.
const WRITE_OUT: u64 = 32 << 20;
/// Time limit for writing the file to its end.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Why a trace ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An operator stopped it.
    Stopped,
    /// The file reached its maximum size.
    Size,
    /// The maximum time passed.
    Time,
    /// The controller was deleted.
    Deleted,
    /// The server ends.
    ServerEnds,
    /// Writing to the file failed.
    File(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Stopped => f.write_str("it was stopped"),
            Reason::Size => f.write_str("its file has reached max_size"),
            Reason::Time => f.write_str("its duration has reached max_time"),
            Reason::Deleted => f.write_str("its controller was deleted"),
            Reason::ServerEnds => f.write_str("the server has stopped"),
            Reason::File(why) => write!(f, "cannot write its file: {why}"),
        }
    }
}

/// State that other threads read.
#[derive(Debug, Default)]
pub(super) struct Shared {
    commands: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    /// Reason and time in nanoseconds since 1970.
    ended: Mutex<Option<(Reason, u64)>>,
}

/// Parameters of a new trace.
pub(crate) struct Start {
    /// The file, which is empty.
    pub(crate) file: File,
    /// The header of the file.
    pub(crate) header: Header,
    /// Maximum size of the file in bytes.
    pub(crate) max_size: u64,
    /// Maximum duration.
    pub(crate) max_time: Option<Duration>,
    /// Source of the records.
    pub(crate) rings: Arc<TraceRings>,
    /// Turns recording off in the lanes, if the trace ends by itself.
    pub(crate) unwatch: Box<dyn FnOnce() + Send>,
    /// Called once if the trace ends by itself.
    pub(crate) ended: Box<dyn FnOnce() + Send>,
}

/// A trace that is active or has ended by itself.
#[derive(Debug)]
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    stop: mpsc::SyncSender<Reason>,
    done: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// Progress of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) ended: Option<(Reason, u64)>,
}

impl Recorder {
    /// Writes the header of the file and starts the thread.
    pub(crate) fn start(start: Start) -> anyhow::Result<Self> {
        let Start {
            file,
            header,
            max_size,
            max_time,
            rings,
            unwatch,
            ended,
        } = start;
        let shared = Arc::<Shared>::default();
        let mut writer = Writer {
            file,
            encoder: Encoder::default(),
            len: 0,
            max_size,
            shared: shared.clone(),
            taken: Vec::with_capacity(BLOCK_RECORDS),
            since: None,
            commands: 0,
            lost: 0,
            lost_written: 0,
            written_out: 0,
            given_up: false,
        };
        writer.begin(&header).context("cannot write the trace")?;
        let (stop, stopped) = mpsc::sync_channel(1);
        let (tell, done) = mpsc::sync_channel(1);
        let deadline = max_time.and_then(|time| Instant::now().checked_add(time));
        let mut work = Work {
            writer,
            rings,
            cursors: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("trace".into())
            .spawn(move || {
                let reason = work.record(&stopped, deadline);
                let by_itself = matches!(reason, Reason::Size | Reason::Time | Reason::File(_));
                if by_itself {
                    unwatch();
                }
                work.finish(reason);
                if by_itself {
                    ended();
                }
                // the thread that stops the trace may have stopped waiting
                let _ = tell.try_send(());
            })
            .context("cannot start a thread")?;
        Ok(Recorder {
            shared,
            stop,
            done,
            thread: Some(thread),
        })
    }

    /// Current progress.
    pub(crate) fn progress(&self) -> Progress {
        let Shared {
            commands,
            bytes,
            lost,
            ended,
        } = &*self.shared;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        Progress {
            commands: commands.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
            lost: lost.load(Ordering::Relaxed),
            ended: ended.clone(),
        }
    }

    /// Ends the trace unless it has ended: writes the records in the rings, and closes the file.
    ///
    /// # Errors
    /// Writing times out, and continues.
    pub(crate) fn stop(&mut self, reason: Reason) -> anyhow::Result<()> {
        // full: the thread already has a reason
        let _ = self.stop.try_send(reason);
        if self.thread.is_none() {
            return Ok(());
        }
        match self.done.recv_timeout(STOP_WAIT) {
            Err(RecvTimeoutError::Timeout) => anyhow::bail!(
                "writing the trace's file takes longer than {} s: retry when its disk responds",
                STOP_WAIT.as_secs()
            ),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a trace's thread panicked; its file is readable up to its last block");
        }
        Ok(())
    }
}

/// State of the thread.
struct Work {
    writer: Writer,
    rings: Arc<TraceRings>,
    /// By completion queue: the number of the next record, and the number of missed commands.
    cursors: Vec<(u64, u64)>,
}

impl Work {
    /// Records until there is a reason to stop.
    fn record(&mut self, stopped: &mpsc::Receiver<Reason>, deadline: Option<Instant>) -> Reason {
        let mut pause = PAUSE_IDLE;
        loop {
            match stopped.recv_timeout(pause) {
                Ok(reason) => return reason,
                Err(RecvTimeoutError::Disconnected) => return Reason::ServerEnds,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let before = self.writer.seen();
            if let Err(reason) = self.drain().and_then(|()| self.writer.write_late()) {
                return reason;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Reason::Time;
            }
            pause = if self.writer.seen() > before {
                PAUSE_BUSY
            } else {
                PAUSE_IDLE
            };
        }
    }

    /// Takes all records in the rings.
    fn drain(&mut self) -> Result<(), Reason> {
        let Work {
            writer,
            rings,
            cursors,
        } = self;
        for (cqid, ring) in rings.rings() {
            let at = usize::from(cqid);
            if cursors.len() <= at {
                cursors.resize(at + 1, (0, 0));
            }
            let (next, missed) = &mut cursors[at];
            let missed_now = ring.missed();
            writer.lose(missed_now - std::mem::replace(missed, missed_now));
            let records = ring.records();
            let written = records.written();
            let oldest = written.saturating_sub(records.room() as u64);
            writer.lose(oldest.saturating_sub(*next));
            *next = oldest.max(*next);
            while *next < written {
                match records.get(*next) {
                    Some(record) => writer.take(record_of(cqid, &record)),
                    None => writer.lose(1),
                }
                *next += 1;
                if writer.is_full() {
                    writer.write()?;
                }
            }
        }
        Ok(())
    }

    /// Takes the remaining records, and writes the end of the file.
    fn finish(&mut self, reason: Reason) {
        let written = match reason {
            Reason::File(_) | Reason::Size => Err(reason.clone()),
            _ => self.drain().and_then(|()| self.writer.write()),
        };
        if written.is_err() {
            // the records in the rings have no room in the file and are counted as lost
            self.writer.give_up();
            let _ = self.drain();
        }
        let reason = written.err().unwrap_or(reason);
        let queues = self.rings.rings().map(|(cqid, _)| cqid).collect();
        self.writer.end(reason, queues);
    }
}

/// A file, and the records to be written to it.
struct Writer {
    file: File,
    encoder: Encoder,
    len: u64,
    max_size: u64,
    shared: Arc<Shared>,
    taken: Vec<Record>,
    /// When the first record of `taken` was taken.
    since: Option<Instant>,
    /// Commands in the file.
    commands: u64,
    lost: u64,
    /// Part of `lost` that is written in the file.
    lost_written: u64,
    /// Bytes that the system was asked to write to disk.
    written_out: u64,
    /// Whether writing has failed for good.
    given_up: bool,
}

impl Writer {
    fn begin(&mut self, header: &Header) -> io::Result<()> {
        let Writer { file, encoder, .. } = self;
        let bytes = encoder.header(header);
        file.write_all(bytes)?;
        self.len = bytes.len() as u64;
        self.shared.bytes.store(self.len, Ordering::Relaxed);
        Ok(())
    }

    /// Commands that were taken or lost so far.
    fn seen(&self) -> u64 {
        self.commands + self.taken.len() as u64 + self.lost
    }

    fn take(&mut self, record: Record) {
        if self.given_up {
            return self.lose(1);
        }
        if self.taken.is_empty() {
            self.since = Some(Instant::now());
        }
        self.taken.push(record);
        let commands = self.commands + self.taken.len() as u64;
        self.shared.commands.store(commands, Ordering::Relaxed);
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        self.shared.lost.store(self.lost, Ordering::Relaxed);
    }

    /// Stops writing for good: records that were taken are lost, as are all later ones.
    fn give_up(&mut self) {
        self.given_up = true;
        self.lose(self.taken.len() as u64);
        self.taken.clear();
        self.since = None;
    }

    fn is_full(&self) -> bool {
        self.taken.len() == BLOCK_RECORDS
    }

    /// Writes records that were taken some time ago.
    fn write_late(&mut self) -> Result<(), Reason> {
        match self.since {
            Some(since) if since.elapsed() >= WRITE_AFTER => self.write(),
            _ => Ok(()),
        }
    }

    /// Writes the taken records, or as many as fit into the file: the first in order of time,
    /// because the rest is cut off.
    fn write(&mut self) -> Result<(), Reason> {
        let all = self.taken.len();
        let mut count = all;
        while count > 0 {
            let lost = self.lost - self.lost_written;
            let block = self.encoder.records(&self.taken[..count], lost);
            if self.len + block.len() as u64 + END_ROOM > self.max_size {
                if count == all {
                    trace_file::by_time(&mut self.taken);
                }
                count /= 2;
                continue;
            }
            append(&mut self.file, &mut self.len, block)?;
            self.lost_written = self.lost;
            self.commands += count as u64;
            self.taken.drain(..count);
            break;
        }
        self.since = None;
        self.shared.bytes.store(self.len, Ordering::Relaxed);
        self.write_out();
        if count == all {
            Ok(())
        } else {
            Err(Reason::Size)
        }
    }

    fn write_out(&mut self) {
        let more = self.len - self.written_out;
        if more < WRITE_OUT {
            return;
        }
        // Linux starts writing and does not wait. If it ignores the advice, the end waits longer.
        let range = (self.written_out, NonZeroU64::new(more));
        let _ = fadvise(&self.file, range.0, range.1, Advice::DontNeed);
        self.written_out = self.len;
    }

    /// Writes the end, as far as possible.
    fn end(&mut self, reason: Reason, queues: Vec<u16>) {
        self.give_up();
        let end = End {
            end_ns: Clock::now_of_process().0,
            reason: reason.to_string(),
            commands: self.commands,
            lost: self.lost,
            queues,
        };
        let block = self.encoder.end(&end, self.lost - self.lost_written);
        let written = append(&mut self.file, &mut self.len, block);
        let kept = match written {
            Ok(()) => self
                .file
                .sync_all()
                .map_err(|error| Reason::File(error.to_string())),
            Err(reason) => Err(reason),
        };
        // The operator needs the first reason.
        let reason = match (reason, kept) {
            (Reason::File(why), _) => Reason::File(why),
            (_, Err(why)) => why,
            (reason, Ok(())) => reason,
        };
        let Shared {
            commands,
            bytes,
            ended,
            ..
        } = &*self.shared;
        commands.store(self.commands, Ordering::Relaxed);
        bytes.store(self.len, Ordering::Relaxed);
        let now = unix_ns();
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((reason, now));
    }
}

/// Appends a whole block, or nothing.
fn append(file: &mut File, len: &mut u64, block: &[u8]) -> Result<(), Reason> {
    let Err(error) = file.write_all(block) else {
        *len += block.len() as u64;
        return Ok(());
    };
    // A partial block is useless. If it cannot be removed, readers skip it.
    let cut = file.set_len(*len);
    let back = cut.and_then(|()| file.seek(SeekFrom::Start(*len)));
    if let Err(error) = back {
        tracing::warn!("a trace's file ends with a part of a block: {error}");
    }
    Err(Reason::File(error.to_string()))
}

/// Nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

fn record_of(cqid: u16, record: &FlightRecord) -> Record {
    let FlightRecord {
        begun,
        stages,
        sqid,
        cid,
        opcode,
        fua,
        status,
        nsid,
        csi,
        lba_shift,
        slba,
        blocks,
        detail,
        key,
        bytes,
        depth,
    } = *record;
    Record {
        at_ns: begun.0,
        stages,
        cqid,
        sqid,
        cid,
        opcode,
        fua,
        csi: csi.0,
        lba_shift,
        status: status.0,
        nsid,
        slba,
        blocks,
        detail,
        key,
        bytes,
        depth,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use trace_file::{Reader, Tail};

    use super::*;

    fn start(file: File, max_size: u64) -> Start {
        Start {
            file,
            header: Header::default(),
            max_size,
            max_time: None,
            rings: Arc::new(TraceRings::new(1, 16)),
            unwatch: Box::new(|| {}),
            ended: Box::new(|| {}),
        }
    }

    fn writer(file: File, max_size: u64) -> Writer {
        Writer {
            file,
            encoder: Encoder::default(),
            len: 0,
            max_size,
            shared: Arc::default(),
            taken: Vec::new(),
            since: None,
            commands: 0,
            lost: 0,
            lost_written: 0,
            written_out: 0,
            given_up: false,
        }
    }

    fn ended(writer: &Writer) -> Reason {
        let ended = writer.shared.ended.lock().unwrap();
        ended.as_ref().unwrap().0.clone()
    }

    /// Records that cannot be made smaller.
    fn noise(count: u64) -> impl Iterator<Item = Record> {
        let random = |of: u64| of.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of << 17;
        (1..=count).map(move |of| Record {
            at_ns: random(of),
            slba: random(of + 1000),
            ..Record::default()
        })
    }

    #[test]
    fn a_file_is_never_larger_than_it_may_be_and_has_as_many_as_fit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let max = 64 << 10;
        let mut writer = writer(File::create_new(&path).unwrap(), max);
        writer.begin(&Header::default()).unwrap();
        noise(10_000).for_each(|record| writer.take(record));
        assert_eq!(writer.write(), Err(Reason::Size));
        writer.lose(7);
        writer.end(Reason::Size, vec![1]);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() as u64 <= max, "{}", bytes.len());
        assert!(bytes.len() as u64 > max / 3, "{}", bytes.len());
        let mut reader = Reader::new(&*bytes).unwrap();
        let records = reader.rest().unwrap();
        let mut first: Vec<_> = noise(10_000).collect();
        first.sort_by_key(|record| record.at_ns);
        first.truncate(records.len());
        assert!(records == first, "what was cut off is not the last");
        assert!(records.len() > 1000, "{}", records.len());
        let lost = 10_000 - records.len() as u64 + 7;
        assert_eq!(reader.lost(), lost);
        let Some(Tail::Ended(end)) = reader.tail() else {
            panic!("{:?}", reader.tail());
        };
        assert_eq!((end.commands, end.lost), (records.len() as u64, lost));
        assert!(end.reason.contains("max_size"));
        assert_eq!(ended(&writer), Reason::Size);
    }

    /// A device that is always full.
    #[test]
    fn a_full_disk_ends_it() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer = writer(file, 1 << 20);
        noise(10).for_each(|record| writer.take(record));
        let Err(Reason::File(why)) = writer.write() else {
            panic!("it was written");
        };
        assert!(why.contains("No space left"), "{why}");
        writer.end(Reason::File(why.clone()), Vec::new());
        assert_eq!(ended(&writer), Reason::File(why));
        // records that it did not write are lost
        assert_eq!(writer.shared.lost.load(Ordering::Relaxed), 10);
        assert_eq!(writer.shared.commands.load(Ordering::Relaxed), 0);
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = Recorder::start(start(file, 1 << 20)).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the trace");
    }

    #[test]
    fn its_time_ends_it_and_stopping_it_again_is_nothing() {
        let (told, tells) = mpsc::channel();
        let tell = told.clone();
        let file = tempfile::tempfile().unwrap();
        let mut recorder = Recorder::start(Start {
            max_time: Some(Duration::from_millis(20)),
            unwatch: Box::new(move || told.send("lanes").unwrap()),
            ended: Box::new(move || tell.send("others").unwrap()),
            ..start(file, 1 << 20)
        })
        .unwrap();
        let wait = Duration::from_secs(30);
        let told = [tells.recv_timeout(wait), tells.recv_timeout(wait)];
        assert_eq!(told, [Ok("lanes"), Ok("others")]);
        recorder.stop(Reason::Stopped).unwrap();
        recorder.stop(Reason::Stopped).unwrap();
        let (reason, _) = recorder.progress().ended.unwrap();
        assert_eq!(reason, Reason::Time);
    }
}
