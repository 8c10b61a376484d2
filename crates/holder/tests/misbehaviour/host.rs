//! A host, from bytes: the headers of vfio-user are written and read here.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a host waits for a reply.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) const VERSION: u16 = 1;
pub(crate) const DMA_MAP: u16 = 2;
pub(crate) const REGION_READ: u16 = 9;
pub(crate) const REGION_WRITE: u16 = 10;
/// A command that a worker of these tests executes: its body is text.
pub(crate) const TELL: u16 = 0x70;
const REPLY: u32 = 1;
const ERROR: u32 = 0x20;
/// The last register of the tests' controllers that a worker does not echo: controller status.
pub(crate) const CSTS: u64 = 0x1c;

/// A connection to a server.
pub(crate) struct Host {
    pub(crate) stream: UnixStream,
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: u16,
    pub(crate) command: u16,
    /// Its errno, where it is an error.
    pub(crate) error: Option<u32>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Number of the worker that answered a read, and of the requests that it had executed.
    pub(crate) fn by(&self) -> (u32, u32) {
        assert_eq!(self.error, None, "{self:?}");
        let number = |at: usize| u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap());
        (number(16), number(20))
    }
}

/// The bytes of a request.
pub(crate) fn request(id: u16, command: u16, body: &[u8]) -> Vec<u8> {
    let mut out = [id, command].map(u16::to_le_bytes).concat();
    let size = 16 + body.len() as u32;
    out.extend([size, 0, 0].map(u32::to_le_bytes).concat());
    out.extend(body);
    out
}

/// The body of an access to a register.
pub(crate) fn access(offset: u64, count: u32) -> Vec<u8> {
    let mut body = offset.to_le_bytes().to_vec();
    body.extend([0, count].map(u32::to_le_bytes).concat());
    body
}

/// The body of a DMA_MAP of a page, without a file.
pub(crate) fn map(iova: u64) -> Vec<u8> {
    let mut body = [32_u32, 3].map(u32::to_le_bytes).concat();
    body.extend([0, iova, 4096].map(u64::to_le_bytes).concat());
    body
}

impl Host {
    /// Connects, and agrees on a version.
    pub(crate) fn connect(path: &Path) -> Self {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "cannot connect: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut host = Self { stream };
        let version = b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8}}\0";
        host.send(0xfff0, VERSION, version);
        let reply = host.reply();
        assert_eq!((reply.id, reply.command), (0xfff0, VERSION));
        assert_eq!((reply.error, reply.body), (None, version.to_vec()));
        host
    }

    pub(crate) fn send(&mut self, id: u16, command: u16, body: &[u8]) {
        self.stream.write_all(&request(id, command, body)).unwrap();
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).expect("a reply is due");
        let half = |at: usize| u16::from_le_bytes(head[at..at + 2].try_into().unwrap());
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let (size, flags) = (word(4), word(8));
        assert_eq!(flags & 0xf, REPLY, "it is a reply");
        let mut body = vec![0; size as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        Reply {
            id: half(0),
            command: half(2),
            error: Some(word(12)).filter(|_| flags & ERROR != 0),
            body,
        }
    }

    /// Reads a register; the number of the worker that answers.
    pub(crate) fn generation(&mut self) -> u32 {
        self.send(7, REGION_READ, &access(0, 4));
        let reply = self.reply();
        assert_eq!((reply.id, reply.command), (7, REGION_READ));
        reply.by().0
    }

    /// Waits until the worker of this number answers. The one before may answer until it ends.
    pub(crate) fn is_served_by(&mut self, generation: u32) {
        let until = Instant::now() + PATIENCE;
        loop {
            let by = self.generation();
            if by == generation {
                return;
            }
            assert!(
                by < generation && Instant::now() < until,
                "worker {by} answers"
            );
        }
    }

    /// Has the worker do something; what it says of it.
    pub(crate) fn tell(&mut self, text: &str) -> String {
        self.send(8, TELL, text.as_bytes());
        let reply = self.reply();
        assert_eq!((reply.id, reply.command), (8, TELL), "{reply:?}");
        String::from_utf8(reply.body).unwrap()
    }

    /// Nothing comes for a while, and the connection is open.
    pub(crate) fn sees_nothing(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let read = self.stream.read(&mut [0; 1]);
        let kind = read.expect_err("nothing is to be read").kind();
        assert_eq!(kind, ErrorKind::WouldBlock);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}
