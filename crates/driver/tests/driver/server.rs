//! A scripted vfio-user server at the other end of a socket pair: it answers
//! what every server must, and leaves the registers to the test.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use vfio_user::message::{
    Access, DeviceFlags, DeviceInfo, DmaMap, DmaUnmap, IrqFlags, IrqInfo, RegionFlags, RegionInfo,
    SetIrqs, SparseArea, Version,
};
use vfio_user::{Command, Connection, Header};

/// Longer than any test needs; reached only when something hangs.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// Vectors that the server offers.
pub(crate) const VECTORS: u32 = 4;

/// Events of the client, for the test to look at.
pub(crate) enum Event<'a> {
    /// Fill the bytes.
    Read {
        region: u32,
        offset: u64,
        bytes: &'a mut [u8],
    },
    Write {
        region: u32,
        offset: u64,
        bytes: &'a [u8],
        posted: bool,
    },
    Map(DmaMap, Vec<OwnedFd>),
    Unmap(DmaUnmap),
    Interrupts(SetIrqs<'a>, Vec<OwnedFd>),
    Reset,
}

/// Reaction to an event.
pub(crate) enum Answer {
    Done,
    Refuse(u32),
    /// Never answer, but stay.
    Ignore,
    /// Close the socket.
    Leave,
}

/// A file for BAR0 whose doorbell page can be mapped: as in the region, it lies
/// at 0x1000.
pub(crate) fn doorbell_file() -> OwnedFd {
    let fd = rustix::fs::memfd_create("doorbells", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, 0x2000).unwrap();
    fd
}

/// The 32-bit word at `offset` of a file.
pub(crate) fn word(fd: impl AsFd, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    assert_eq!(rustix::io::pread(fd, &mut bytes, offset).unwrap(), 4);
    u32::from_le_bytes(bytes)
}

/// Runs a server until the client leaves or the script does. The other end of
/// the socket, and the thread with the script's state.
pub(crate) fn serve<S: Send + 'static>(
    doorbells: Option<OwnedFd>,
    state: S,
    script: impl FnMut(&mut S, Event<'_>) -> Answer + Send + 'static,
) -> (UnixStream, JoinHandle<S>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = Connection::new(theirs).unwrap();
    let server = Server {
        connection,
        doorbells,
        state,
        script,
    };
    (ours, std::thread::spawn(|| server.run()))
}

struct Server<S, F> {
    connection: Connection,
    doorbells: Option<OwnedFd>,
    state: S,
    script: F,
}

impl<S, F: FnMut(&mut S, Event<'_>) -> Answer> Server<S, F> {
    fn run(mut self) -> S {
        loop {
            let message = match self.connection.receive() {
                Ok(Some(message)) => {
                    let fds: Vec<OwnedFd> = message.fds.into_iter().collect();
                    (message.header, message.body.to_vec(), fds)
                }
                Ok(None) => {
                    let limit = Timespec::try_from(LONG).unwrap();
                    let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
                    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "nothing came");
                    continue;
                }
                Err(_) => return self.state,
            };
            let (header, body, fds) = message;
            if !self.handle(&header, &body, fds) {
                return self.state;
            }
        }
    }

    /// Whether to go on.
    fn handle(&mut self, header: &Header, body: &[u8], fds: Vec<OwnedFd>) -> bool {
        let mut reply = Vec::new();
        let event = match header.command {
            Command::VERSION => {
                let answer = Version::parse(body).unwrap().answer().unwrap();
                answer.encode(&mut reply);
                return self.reply(header, &reply);
            }
            Command::DEVICE_GET_INFO => {
                DeviceInfo {
                    argsz: 16,
                    flags: DeviceFlags::default(),
                    num_regions: 9,
                    num_irqs: 5,
                }
                .encode(&mut reply);
                return self.reply(header, &reply);
            }
            Command::DEVICE_GET_REGION_INFO => return self.region_info(header, body),
            Command::DEVICE_GET_IRQ_INFO => {
                let asked = IrqInfo::parse(body).unwrap();
                IrqInfo {
                    flags: IrqFlags::EVENTFD,
                    count: VECTORS,
                    ..asked
                }
                .encode(&mut reply);
                return self.reply(header, &reply);
            }
            Command::REGION_READ => return self.region_read(header, body),
            Command::REGION_WRITE => {
                let (access, bytes) = Access::parse_with_data(body).unwrap();
                access.encode(&mut reply);
                Event::Write {
                    region: access.region,
                    offset: access.offset,
                    bytes,
                    posted: header.no_reply(),
                }
            }
            Command::DMA_MAP => Event::Map(DmaMap::parse(body).unwrap(), fds),
            Command::DMA_UNMAP => {
                reply.extend_from_slice(body);
                Event::Unmap(DmaUnmap::parse(body).unwrap())
            }
            Command::DEVICE_SET_IRQS => Event::Interrupts(SetIrqs::parse(body).unwrap(), fds),
            Command::DEVICE_RESET => Event::Reset,
            other => panic!("an unexpected {other}"),
        };
        let answer = (self.script)(&mut self.state, event);
        self.answer(header, answer, &reply)
    }

    fn reply(&mut self, header: &Header, body: &[u8]) -> bool {
        self.connection.reply(header, &[body], &[]).is_ok()
    }

    fn answer(&mut self, header: &Header, answer: Answer, reply: &[u8]) -> bool {
        match answer {
            Answer::Done => self.reply(header, reply),
            Answer::Refuse(errno) => self.connection.reply_error(header, errno).is_ok(),
            Answer::Ignore => true,
            Answer::Leave => false,
        }
    }

    fn region_read(&mut self, header: &Header, body: &[u8]) -> bool {
        let access = Access::parse(body).unwrap();
        let mut bytes = vec![0; access.count as usize];
        let event = Event::Read {
            region: access.region,
            offset: access.offset,
            bytes: &mut bytes,
        };
        let answer = (self.script)(&mut self.state, event);
        let mut reply = Vec::new();
        access.encode(&mut reply);
        reply.extend_from_slice(&bytes);
        self.answer(header, answer, &reply)
    }

    fn region_info(&mut self, header: &Header, body: &[u8]) -> bool {
        let asked = RegionInfo::parse(body).unwrap();
        let mut flags = RegionFlags::READ | RegionFlags::WRITE;
        let mut areas = Vec::new();
        let doorbells = self.doorbells.as_ref().filter(|_| asked.index == 0);
        if doorbells.is_some() {
            flags = flags | RegionFlags::MMAP;
            areas.push(SparseArea {
                offset: 0x1000,
                size: 0x1000,
            });
        }
        let info = RegionInfo {
            argsz: 0,
            flags,
            index: asked.index,
            cap_offset: 0,
            size: 0x4000,
            offset: 0,
        };
        let mut reply = Vec::new();
        let whole = info.encode_reply(&areas, asked.argsz, &mut reply);
        let fds = doorbells.filter(|_| whole).map(AsFd::as_fd);
        self.connection
            .reply(header, &[&reply], fds.as_slice())
            .is_ok()
    }
}
