//! HTTP/1 over a UNIX socket, on the calling thread.
//!
//! hyper speaks the protocol. Its connection is a future, and so is whatever waits for a reply:
//! both are polled in turn, and when neither can go on the thread sleeps in poll(2) until the
//! socket can be read or written. Every wait has a deadline. There is no runtime, and no second
//! thread.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Time between attempts to connect to a server with too many connections to accept.
const AGAIN: Duration = Duration::from_millis(10);

/// Why a wait ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The deadline has passed.
    Late,
    /// The server has closed the connection.
    Closed,
}

/// The requests that one connection may carry.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// hyper's side of a connection.
type Protocol = http1::Connection<Stream, Full<Bytes>>;

/// A connection, which makes progress only while something waits for it.
pub(crate) struct Connection {
    socket: Rc<UnixStream>,
    wanted: Rc<Cell<PollFlags>>,
    woken: Arc<Woken>,
    /// `None` once it is closed.
    protocol: Option<Pin<Box<Protocol>>>,
}

impl Connection {
    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// There is no server, or it accepts no connection before the deadline
    /// ([`io::ErrorKind::TimedOut`]).
    pub(crate) fn open(path: &Path, deadline: Instant) -> io::Result<(Sender, Self)> {
        let socket = Rc::new(connected(path, deadline)?);
        let wanted = Rc::new(Cell::new(PollFlags::empty()));
        let stream = Stream {
            socket: socket.clone(),
            wanted: wanted.clone(),
        };
        let mut connection = Connection {
            socket,
            wanted,
            woken: Arc::default(),
            protocol: None,
        };
        let opened = connection.poll_until(deadline, http1::handshake(stream))?;
        let (sender, protocol) = match opened {
            Ok(opened) => opened.map_err(io::Error::other)?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        connection.protocol = Some(Box::pin(protocol));
        Ok((sender, connection))
    }

    /// Waits for `work`, which depends on this connection alone.
    ///
    /// # Errors
    /// The system cannot wait.
    pub(crate) fn poll_until<T>(
        &mut self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> io::Result<Result<T, Interrupted>> {
        let mut work = pin!(work);
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.woken.0.store(false, Ordering::Relaxed);
            self.wanted.set(PollFlags::empty());
            if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
                return Ok(Ok(result));
            }
            if let Some(protocol) = &mut self.protocol
                && protocol.as_mut().poll(&mut context).is_ready()
            {
                // what it says of its end reaches `work`
                self.protocol = None;
                continue;
            }
            if self.woken.0.load(Ordering::Relaxed) {
                continue;
            }
            if self.wanted.get().is_empty() {
                return Ok(Err(Interrupted::Closed));
            }
            if !self.wait(deadline)? {
                return Ok(Err(Interrupted::Late));
            }
        }
    }

    /// Sleeps until the socket can do what was tried last; whether that was before the deadline.
    fn wait(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            });
            let mut fds = [PollFd::new(&*self.socket, self.wanted.get())];
            match poll(&mut fds, Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A socket that is connected to `path` and never blocks.
fn connected(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path)?;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            // The server has not accepted so many connections yet.
            Err(Errno::AGAIN) if Instant::now() >= deadline => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(Errno::AGAIN) => std::thread::sleep(AGAIN),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a future can go on without the socket.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The socket, for hyper.
struct Stream {
    socket: Rc<UnixStream>,
    /// Events that the socket waits for.
    wanted: Rc<Cell<PollFlags>>,
}

impl Stream {
    fn done<T>(&self, result: io::Result<T>, otherwise: PollFlags) -> Poll<io::Result<T>> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wanted.set(self.wanted.get() | otherwise);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 16 << 10];
        let len = bytes.len().min(buffer.remaining());
        let read = retried(|| (&*self.socket).read(&mut bytes[..len]));
        let done = read.map(|read| buffer.put_slice(&bytes[..read]));
        self.done(done, PollFlags::IN)
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = retried(|| (&*self.socket).write(bytes));
        self.done(written, PollFlags::OUT)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(std::net::Shutdown::Write))
    }
}

/// Repeats what a signal interrupts.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use http_body_util::BodyExt as _;
    use hyper::Request;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    /// A server that reads until the end of a request's head, and then does as `reply` says.
    fn serving(
        dir: &tempfile::TempDir,
        reply: impl FnOnce(UnixStream) + Send + 'static,
    ) -> (std::path::PathBuf, thread::JoinHandle<()>) {
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            reply(stream);
        });
        (path, thread)
    }

    fn get() -> Request<Full<Bytes>> {
        let request = Request::get("/").header("host", "test");
        request.body(Full::default()).unwrap()
    }

    #[test]
    fn a_reply_that_is_longer_than_the_socket_holds_arrives_whole() {
        let dir = tempfile::tempdir().unwrap();
        let long = 3 << 20;
        let (path, server) = serving(&dir, move |mut stream| {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {long}\r\n\r\n").unwrap();
            stream.write_all(&vec![7; long]).unwrap();
        });
        let deadline = Instant::now() + LONG;
        let (mut sender, mut connection) = Connection::open(&path, deadline).unwrap();
        let all = async {
            let response = sender.send_request(get()).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let body = connection.poll_until(deadline, all).unwrap().unwrap();
        assert_eq!(body.len(), long);
        assert!(body.iter().all(|byte| *byte == 7));
        server.join().unwrap();
    }

    #[test]
    fn a_request_that_is_longer_than_the_socket_holds_is_sent_whole() {
        let dir = tempfile::tempdir().unwrap();
        let long: usize = 3 << 20;
        let (path, server) = serving(&dir, move |mut stream| {
            // it reads late, so that the client has to wait for room
            thread::sleep(SOON);
            let mut body = vec![0; long];
            stream.read_exact(&mut body).unwrap();
            assert!(body.iter().all(|byte| *byte == 9));
            write!(stream, "HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        });
        let deadline = Instant::now() + LONG;
        let (mut sender, mut connection) = Connection::open(&path, deadline).unwrap();
        let body = Full::new(Bytes::from(vec![9; long]));
        let request = Request::put("/").body(body).unwrap();
        let sent = connection.poll_until(deadline, sender.send_request(request));
        assert_eq!(sent.unwrap().unwrap().unwrap().status(), 204);
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_says_nothing_is_waited_for_until_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (path, server) = serving(&dir, move |_stream| {
            let _ = ended.recv();
        });
        let (mut sender, mut connection) = Connection::open(&path, Instant::now() + LONG).unwrap();
        let begun = Instant::now();
        let late = connection.poll_until(begun + SOON, sender.send_request(get()));
        assert_eq!(late.unwrap().err(), Some(Interrupted::Late));
        assert!(begun.elapsed() >= SOON);
        drop(end);
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_closes_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, server) = serving(&dir, |mut stream| {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfour").unwrap();
        });
        let begun = Instant::now();
        let deadline = begun + LONG;
        let (mut sender, mut connection) = Connection::open(&path, deadline).unwrap();
        let all = async {
            let response = sender.send_request(get()).await?;
            response.into_body().collect().await
        };
        let read = connection.poll_until(deadline, all).unwrap();
        assert!(read.is_ok_and(|read| read.is_err()));
        assert!(begun.elapsed() < LONG);
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_accepts_nothing_is_waited_for_until_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut open = Vec::new();
        let late = loop {
            let deadline = Instant::now() + SOON;
            match Connection::open(&path, deadline) {
                Ok(connection) => open.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        let deadline = Instant::now() + LONG;
        let error = Connection::open(&dir.path().join("none"), deadline).err();
        assert_eq!(error.unwrap().kind(), io::ErrorKind::NotFound);
    }
}
