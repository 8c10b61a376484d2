//! A client of the socket that sends any messages, any bytes and any descriptors.
//!
//! Found would be: a panic, a session that ends although framing is intact, an answer that is no
//! message, a reset that hangs, a byte written where the client did not allow it.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use arbitrary::Arbitrary;
use controller::DoorbellMode;
use transport::vfio_user::{Caller, CallerEnd, Session, SessionConfig, SessionEnd};
use vfio_user::header::Command;
use vfio_user::relayed::Arrival;
use vfio_user::{Connection, ConnectionError, Header};

use crate::rig::Rig;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A message with a right header.
    Message {
        command: u8,
        flags: u8,
        body: Body,
        fds: Vec<Fd>,
    },
    /// Bytes that are no message, mostly.
    Raw(Vec<u8>),
    Turns(u8),
    Seconds(u8),
}

#[derive(Arbitrary, Debug)]
enum Body {
    Any(Vec<u8>),
    /// u32 argsz, u32 flags, then 64-bit fields: DMA_MAP, DMA_UNMAP.
    Dma {
        argsz: u8,
        flags: u8,
        offset: u8,
        iova: u8,
        pages: u8,
    },
    /// u64 offset, u32 region, u32 count, data: REGION_READ, REGION_WRITE.
    Access {
        offset: u16,
        region: u8,
        count: u8,
        data: Vec<u8>,
    },
    /// Five u32 and data: SET_IRQS, region and interrupt information.
    Words {
        words: [u8; 5],
        data: Vec<u8>,
    },
    /// VERSION.
    Version {
        major: u8,
        minor: u8,
        json: Vec<u8>,
    },
}

impl Body {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Body::Any(bytes) => bytes.clone(),
            Body::Dma {
                argsz,
                flags,
                offset,
                iova,
                pages,
            } => {
                let mut out = Vec::new();
                out.extend(u32::from(*argsz).to_le_bytes());
                out.extend(u32::from(*flags).to_le_bytes());
                for field in [offset, iova, pages] {
                    out.extend((u64::from(*field) << 12).to_le_bytes());
                }
                out
            }
            Body::Access {
                offset,
                region,
                count,
                data,
            } => {
                let mut out = Vec::new();
                out.extend(u64::from(*offset).to_le_bytes());
                out.extend(u32::from(region % 10).to_le_bytes());
                let count = if data.is_empty() {
                    usize::from(*count)
                } else {
                    data.len()
                };
                out.extend((count as u32).to_le_bytes());
                out.extend(data);
                out
            }
            Body::Words { words, data } => {
                let mut out = Vec::new();
                out.extend(words.iter().flat_map(|word| u32::from(*word).to_le_bytes()));
                out.extend(data);
                out
            }
            Body::Version { major, minor, json } => {
                let mut out = Vec::new();
                out.extend(u16::from(major % 2).to_le_bytes());
                out.extend(u16::from(*minor).to_le_bytes());
                out.extend(json);
                out
            }
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Fd {
    Memory,
    Event,
    Socket,
    Directory,
}

fn open(kind: &Fd, rig: &Rig) -> OwnedFd {
    match kind {
        Fd::Memory => rig.memory().fd().try_clone_to_owned().unwrap(),
        Fd::Event => {
            let event = memory::EventFd::new().unwrap();
            event.as_fd().try_clone_to_owned().unwrap()
        }
        Fd::Socket => UnixStream::pair().unwrap().0.into(),
        Fd::Directory => std::fs::File::open("/proc/self").unwrap().into(),
    }
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    mapped: bool,
    steps: Vec<Step>,
}

/// Most steps of one program.
const STEPS_MAX: usize = 100;

/// The server's end of the connection.
enum End {
    Caller(Box<Caller>),
    Host(Box<Session>),
}

/// Looks at the connection until there is nothing more to do; nothing when it has ended.
fn serve(rig: &mut Rig, end: End, intact: bool) -> Option<End> {
    let mut session = match end {
        End::Host(session) => session,
        End::Caller(mut caller) => match caller.poll(rig.now(), false) {
            Ok(()) if caller.is_introduced() => {
                let config = SessionConfig::of(rig.controller().config());
                let doorbells = rig.doorbells.clone();
                Box::new(caller.attach(doorbells, config, rig.controller()).ok()?)
            }
            Ok(()) => return Some(End::Caller(caller)),
            Err(CallerEnd::Ended(SessionEnd::FramingLost { size })) => {
                assert!(!intact || size < 16, "framing is intact");
                return None;
            }
            Err(_) => return None,
        },
    };
    is_served(rig, &mut session, intact).then_some(End::Host(session))
}

fn is_served(rig: &mut Rig, session: &mut Session, intact: bool) -> bool {
    for _ in 0..64 {
        let now = rig.now();
        let polled = session.poll(rig.controller(), now);
        rig.turns(1);
        match polled.ended {
            None if polled.messages == 0 => return true,
            None => {}
            Some(SessionEnd::FramingLost { size }) => {
                assert!(!intact || size < 16, "framing is intact");
                return false;
            }
            Some(_) => return false,
        }
    }
    true
}

/// Reads what was answered: whole messages, each an answer.
fn drain(reader: &mut UnixStream, pending: &mut Vec<u8>) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        pending.extend(&bytes[..count]);
    }
    while pending.len() >= 16 {
        let word = |at: usize| u32::from_le_bytes(pending[at..at + 4].try_into().unwrap());
        let (size, flags) = (word(4) as usize, word(8));
        assert!(size >= 16, "an answer of {size} bytes");
        assert_eq!(flags & 0xf, 1, "not an answer");
        if pending.len() < size {
            break;
        }
        pending.drain(..size);
    }
}

pub(crate) fn run(program: Program) {
    let mode = if program.mapped {
        DoorbellMode::Mapped
    } else {
        DoorbellMode::Unmapped
    };
    let mut rig = Rig::new(mode);
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut reader = theirs.try_clone().unwrap();
    let mut raw = theirs.try_clone().unwrap();
    let mut client = Connection::new(theirs).unwrap();
    let mut end = Some(End::Caller(Box::new(
        Caller::new(Arrival::ours(ours), rig.now()).unwrap(),
    )));
    let mut pending = Vec::new();
    let mut intact = true;
    for (id, step) in (0u16..).zip(program.steps.into_iter().take(STEPS_MAX)) {
        match step {
            Step::Message {
                command,
                flags,
                body,
                fds,
            } => {
                let mut header = Header::request(id, Command(u16::from(command % 20)));
                header.flags |= u32::from(flags & 0x10);
                let owned: Vec<OwnedFd> = fds.iter().take(16).map(|fd| open(fd, &rig)).collect();
                let fds: Vec<BorrowedFd<'_>> = owned.iter().map(AsFd::as_fd).collect();
                match client.send(&header, &[&body.bytes()], &fds) {
                    Ok(()) | Err(ConnectionError::Backlog) => {}
                    Err(_) => break,
                }
            }
            Step::Raw(bytes) => {
                use std::io::Write;
                intact &= bytes.is_empty();
                // a full socket takes less: any bytes will do
                let _ = raw.write(&bytes);
            }
            Step::Turns(count) => rig.turns(usize::from(count % 8)),
            Step::Seconds(seconds) => rig.advance(u64::from(seconds % 6) * 1_000_000_000),
        }
        end = end.and_then(|end| serve(&mut rig, end, intact));
        if end.is_none() {
            break;
        }
        drain(&mut reader, &mut pending);
    }
    drop(end);
    rig.finish();
}
