//! A worker's side of the socket to its holder, from bytes: what is sent need not be a message.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Kinds of requests.
pub(crate) const HELLO: u16 = 1;
pub(crate) const LISTEN: u16 = 2;
pub(crate) const KEEP: u16 = 4;
pub(crate) const FETCH: u16 = 5;
pub(crate) const READY: u16 = 7;
pub(crate) const UPGRADE: u16 = 9;
pub(crate) const HAND_OVER: u16 = 10;
/// Types of fields.
pub(crate) const NAME: u16 = 1;
pub(crate) const REFUSED: u16 = 3;
pub(crate) const GENERATION: u16 = 4;
pub(crate) const READS_FROM: u16 = 7;
pub(crate) const WRITES: u16 = 8;
pub(crate) const VERSION: u16 = 9;
pub(crate) const DEVICE: u16 = 11;

/// The holder's socket.
pub(crate) struct Control {
    pub(crate) socket: OwnedFd,
    number: u32,
}

/// A reply of the holder.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) number: u32,
    fields: Vec<(u16, Vec<u8>)>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Answer {
    pub(crate) fn field(&self, of: u16) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        fields
            .find(|(it, _)| *it == of)
            .map(|(_, it)| it.as_slice())
    }

    /// "ok", or why the request was refused.
    pub(crate) fn text(&self) -> String {
        match self.field(REFUSED) {
            Some(why) => String::from_utf8_lossy(why).into_owned(),
            None => "ok".into(),
        }
    }
}

/// The bytes of a request.
pub(crate) fn packet(kind: u16, number: u32, fields: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = [kind, 1].map(u16::to_le_bytes).concat();
    out.extend(number.to_le_bytes());
    for (field, bytes) in fields {
        out.extend([*field, bytes.len() as u16].map(u16::to_le_bytes).concat());
        out.extend(*bytes);
    }
    out
}

impl Control {
    /// Standard input.
    pub(crate) fn new() -> Self {
        let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
        Self { socket, number: 0 }
    }

    /// The same socket for another thread.
    pub(crate) fn other(&self) -> Self {
        let socket = self.socket.try_clone().unwrap();
        Self { socket, number: 0 }
    }

    /// Sends a packet as it is, with descriptors. False: the holder does not take it.
    pub(crate) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, flags).is_ok()
    }

    /// Sends a request, and does not wait for the reply; its number.
    pub(crate) fn begin(&mut self, kind: u16, fields: &[(u16, &[u8])]) -> u32 {
        self.number += 1;
        self.send(&packet(kind, self.number, fields), &[]);
        self.number
    }

    /// A request and its reply.
    pub(crate) fn ask(&mut self, kind: u16, fields: &[(u16, &[u8])]) -> Answer {
        self.ask_with(kind, fields, &[])
    }

    pub(crate) fn ask_with(
        &mut self,
        kind: u16,
        fields: &[(u16, &[u8])],
        fds: &[BorrowedFd<'_>],
    ) -> Answer {
        self.number += 1;
        self.send(&packet(kind, self.number, fields), fds);
        self.answer_to(self.number)
    }

    pub(crate) fn answer_to(&self, number: u32) -> Answer {
        loop {
            let answer = self.receive(8);
            if answer.number == number {
                return answer;
            }
        }
    }

    /// The next reply. Ends this process when the holder has gone, or says nothing.
    pub(crate) fn receive(&self, seconds: i64) -> Answer {
        let patience = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut polled, Some(&patience)).unwrap_or(0) == 0 {
            eprintln!("the holder gives no reply");
            std::process::exit(98);
        }
        let mut bytes = [0; 8192];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let len = match recvmsg(&self.socket, &mut parts, &mut control, flags) {
            Ok(received) if received.bytes > 0 => received.bytes,
            // It has gone.
            _ => std::process::exit(0),
        };
        let mut answer = Answer::default();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                answer.fds.extend(fds);
            }
        }
        answer.number = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let mut rest = &bytes[8..len];
        while let [a, b, c, d, after @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*c, *d]));
            let field = u16::from_le_bytes([*a, *b]);
            answer.fields.push((field, after[..len].to_vec()));
            rest = &after[len..];
        }
        answer
    }
}

/// A descriptor that is no memory.
pub(crate) fn odd_descriptor(what: &str, control: &Control) -> OwnedFd {
    match what {
        "pipe" => io::pipe().unwrap().0.into(),
        "directory" => File::open("/").unwrap().into(),
        "null" => File::open("/dev/null").unwrap().into(),
        "socket" => std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        // It keeps the holder's own socket open.
        "control" => control.socket.try_clone().unwrap(),
        "path" => {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open("/", flags, rustix::fs::Mode::empty()).unwrap()
        }
        other => panic!("there is no descriptor {other}"),
    }
}
