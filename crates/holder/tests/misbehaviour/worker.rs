//! A worker that does what a host asks it to do.
//!
//! It serves one path, `n` in the folder of the test. Its other actions depend on its mode (the
//! second argument), on the name of its file, and on the messages of a host ([`Worker::told`]).

use std::fs::{self, File};
use std::io::Write as _;
use std::mem::take;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use vfio_user::relayed::{self, Inbox, Origin};
use vfio_user::{Connection, Header};

use crate::SCRIBBLER;
use crate::control::{self, Control, odd_descriptor, packet};
use crate::host::{REGION_READ, TELL, VERSION};

/// The descriptors that a worker of the mode `fetches` asks for.
pub(crate) const KINDS: [&str; 7] = [
    "pipe",
    "directory",
    "null",
    "socket",
    "control",
    "path",
    "other",
];

/// A host.
struct Session {
    connection: Connection,
    /// Its set-up is not known yet.
    learns: bool,
}

struct Worker {
    dir: PathBuf,
    control: Control,
    generation: u32,
    inbox: Inbox,
    sessions: Vec<Session>,
    /// The last host was one of a former worker.
    resumed: bool,
    /// Requests that were executed.
    executed: u32,
    /// It dies with so many requests read: without a reply, or within one.
    dies: Option<(u32, bool)>,
    /// Its action after its reply.
    then: Option<String>,
}

/// The worker's process.
pub(crate) fn run() {
    SigSet::empty().thread_set_mask().unwrap();
    let arguments: Vec<_> = std::env::args().collect();
    let (dir, mode) = (PathBuf::from(&arguments[1]), arguments[2].as_str());
    let mut started = File::options();
    let started = started.create(true).append(true).open(dir.join("started"));
    writeln!(started.unwrap(), "{}", std::process::id()).unwrap();
    let before = fs::read_to_string(dir.join("started")).unwrap();
    if mode == "dies-at-start" && before.lines().count() > 1 {
        exit(3);
    }
    let mut control = Control::new();
    let file = std::env::current_exe().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let formats = if name == "old" { [1, 1] } else { [1, 2_u64] };
    let [from, to] = formats.map(u64::to_le_bytes);
    let greeting = [
        (control::READS_FROM, from.as_slice()),
        (control::WRITES, to.as_slice()),
        (control::VERSION, name.as_bytes()),
    ];
    match name {
        "mute" => hang(&control),
        "garbled" => drop(control.send(b"garbage of some length", &[])),
        // It does not wait for the reply, as it should.
        "chatty" => (0..20_000).for_each(|_| _ = control.begin(control::HELLO, &greeting)),
        _ => {}
    }
    // The reply comes when this process is wanted.
    let number = control.begin(control::HELLO, &greeting);
    wait_for_input(&control);
    let hello = control.answer_to(number);
    let generation = hello.field(control::GENERATION).unwrap();
    let generation = u32::from_le_bytes(generation[..4].try_into().unwrap());
    match (name, mode) {
        ("unready", _) => hang(&control),
        ("hopper", _) => hop(&mut control, &dir),
        (_, "dies-greeted") if generation > 1 => exit(3),
        _ => {}
    }
    if mode == "fetches" {
        let said = KINDS.map(|what| {
            let name = [(control::NAME, what.as_bytes())];
            kind_of(control.ask(control::FETCH, &name).fds.pop())
        });
        fs::write(dir.join("fetched"), said.join(" ")).unwrap();
    }
    let path = dir.join("n");
    let mut listening = control.ask(control::LISTEN, &[(control::NAME, name_of(&path))]);
    let inbox = Inbox::from_fd(listening.fds.pop().unwrap()).unwrap();
    control.ask(control::READY, &[]);
    let mut words = mode.split(' ');
    let dies = match words.next() {
        Some(how @ ("dies-reading" | "dies-replying")) => {
            let mut number = || words.next().unwrap().parse::<u32>().unwrap();
            let (requests, generations) = (number(), number());
            (generation <= generations).then_some((requests, how == "dies-replying"))
        }
        _ => None,
    };
    let worker = Worker {
        dir,
        control,
        generation,
        inbox,
        sessions: Vec::new(),
        resumed: false,
        executed: 0,
        dies,
        then: None,
    };
    match mode {
        "learns-nothing" if generation > 1 => worker.learn_nothing(),
        _ => worker.serve(),
    }
}

fn name_of(path: &std::path::Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Waits without a bound of its own.
fn wait_for_input(control: &Control) {
    let mut polled = [PollFd::new(&control.socket, PollFlags::IN)];
    poll(&mut polled, None).unwrap();
}

/// Does nothing until the holder has gone.
fn hang(control: &Control) -> ! {
    let mut polled = [PollFd::new(&control.socket, PollFlags::empty())];
    poll(&mut polled, None).unwrap();
    exit(0);
}

/// Passes on to its own program, and never serves.
fn hop(control: &mut Control, dir: &std::path::Path) -> ! {
    let path = dir.join("hopper");
    let fields = [(control::NAME, name_of(&path))];
    let said = control.ask(control::UPGRADE, &fields).text();
    fs::write(dir.join("hopped"), said).unwrap();
    control.ask(control::HAND_OVER, &[]);
    hang(control)
}

/// Writes replies to no request to standard input, a socket, for as long as it takes them.
pub(crate) fn scribble() {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = UnixStream::from(socket);
    socket.set_nonblocking(false).unwrap();
    let until = Instant::now() + Duration::from_secs(40);
    let frame = [1_u32 << 16 | 0xffff, 16, 1, 0].map(u32::to_le_bytes);
    // Many at a time: they are written faster than they are read.
    let frame = frame.concat().repeat(4096);
    while Instant::now() < until && socket.write_all(&frame).is_ok() {}
}

impl Worker {
    fn serve(mut self) {
        loop {
            let sessions = self.sessions.iter().map(|it| {
                let writes = it.connection.wants_write();
                let flags = if writes {
                    PollFlags::OUT
                } else {
                    PollFlags::IN
                };
                (it.connection.as_fd(), flags)
            });
            let fds = [self.control.socket.as_fd(), self.inbox.as_fd()];
            let polled = fds
                .map(|fd| (fd, PollFlags::IN))
                .into_iter()
                .chain(sessions);
            let polled = polled.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
            let mut polled: Vec<_> = polled.collect();
            poll(&mut polled, None).unwrap();
            if polled[0].revents().contains(PollFlags::HUP) {
                exit(0);
            }
            while let Ok(Some(arrival)) = self.inbox.accept() {
                let mut connection = Connection::new(arrival.stream).unwrap();
                let learns = arrival.origin == Origin::Resumed;
                self.resumed = learns;
                if !learns {
                    keep_state(&mut connection, 2, "null", &self.control);
                }
                let session = Session { connection, learns };
                self.sessions.push(session);
            }
            let sessions = take(&mut self.sessions);
            for session in sessions {
                if let Some(session) = self.look(session) {
                    self.sessions.push(session);
                }
            }
        }
    }

    /// Answers all that a host has asked; none when it has gone.
    fn look(&mut self, mut session: Session) -> Option<Session> {
        session.connection.flush().ok()?;
        loop {
            if session.connection.wants_write() {
                return Some(session);
            }
            let (header, body) = match session.connection.receive() {
                Ok(Some(message)) => (message.header, message.body.to_vec()),
                Ok(None) => return Some(session),
                Err(_) => return None,
            };
            if header.command == relayed::RESUMED {
                session.learns = false;
            }
            if session.learns || relayed::is_between(header.command) {
                continue;
            }
            let reply = self.execute(&header, &body, &mut session.connection);
            session
                .connection
                .send(&header.reply(), &[&reply], &[])
                .ok()?;
            if let Some(what) = self.then.take() {
                self.then_do(&what, &mut session.connection);
            }
        }
    }

    /// The reply to a request.
    fn execute(&mut self, header: &Header, body: &[u8], connection: &mut Connection) -> Vec<u8> {
        match header.command.0 {
            TELL => {
                let text = String::from_utf8(body.to_vec()).unwrap();
                return self.told(&text, connection).into_bytes();
            }
            VERSION => return body.to_vec(),
            _ => {}
        }
        self.executed += 1;
        let mut reply = body[..body.len().min(16)].to_vec();
        if header.command.0 == REGION_READ {
            let count = u32::from_le_bytes(body[12..16].try_into().unwrap()) as usize;
            let data = [self.generation, self.executed].map(u32::to_le_bytes);
            reply.extend(data.concat());
            reply.resize(reply.len().max(16 + count), 0);
        }
        match self.dies {
            Some((after, false)) if self.executed > after => exit(4),
            Some((after, true)) if self.executed > after => {
                let mut half = [header.id, header.command.0].map(u16::to_le_bytes).concat();
                half.extend(
                    [16 + reply.len() as u32, 1, 0]
                        .map(u32::to_le_bytes)
                        .concat(),
                );
                half.extend(&reply[..reply.len() / 2]);
                rustix::io::write(connection.as_fd(), &half).unwrap();
                exit(4)
            }
            _ => reply,
        }
    }

    /// Executes a request of a host, and returns the body of its reply.
    fn told(&mut self, text: &str, connection: &mut Connection) -> String {
        let words: Vec<_> = text.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words.as_slice() {
            // An action that ends this process, or loses the reply, comes after it.
            ["then", ..] => self.then = Some(words[1..].join(" ")),
            ["ask", hex] => {
                let packet = bytes_of(hex);
                let number = u32::from_le_bytes(packet[4..8].try_into().unwrap());
                self.control.send(&packet, &[]);
                return self.control.answer_to(number).text();
            }
            ["keep", name, what] => {
                let fd = odd_descriptor(what, &self.control);
                let name = [(control::NAME, name.as_bytes())];
                let kept = self.control.ask_with(control::KEEP, &name, &[fd.as_fd()]);
                return kept.text();
            }
            // A file of that name, which is kept as it is, or as a device.
            ["keep-file", name, what] => {
                let file = File::create(self.dir.join(name)).unwrap();
                let mut fields = vec![(control::NAME, name.as_bytes())];
                if *what == "device" {
                    fields.push((control::DEVICE, &[]));
                }
                let kept = self
                    .control
                    .ask_with(control::KEEP, &fields, &[file.as_fd()]);
                return kept.text();
            }
            ["keep-many", count] => {
                let null = odd_descriptor("null", &self.control);
                let mut granted = 0;
                for at in 0..count.parse::<u32>().unwrap() {
                    let name = format!("kept {at}");
                    let name = [(control::NAME, name.as_bytes())];
                    let kept = self.control.ask_with(control::KEEP, &name, &[null.as_fd()]);
                    granted += u32::from(kept.text() == "ok");
                }
                return granted.to_string();
            }
            ["listen-many", count] => {
                let mut granted = 0;
                for at in 0..count.parse::<u32>().unwrap() {
                    let path = self.dir.join(format!("more {at}"));
                    let path = [(control::NAME, name_of(&path))];
                    granted += u32::from(self.control.ask(control::LISTEN, &path).text() == "ok");
                }
                return granted.to_string();
            }
            ["resumed"] => return self.resumed.to_string(),
            ["ready-many", count] => {
                for _ in 0..count.parse::<u32>().unwrap() {
                    self.control.ask(control::READY, &[]);
                }
            }
            ["storm", seconds] => self.storm(Duration::from_secs(seconds.parse().unwrap())),
            ["noise", _] => {
                for _ in 0..number(1) {
                    // A reply to no request, a request, and a message of no kind.
                    for (id, command, flags) in [(0xffff, 9, 1), (1, 9, 0), (1, 0x7777, 0xd)] {
                        let mut header = Header::request(id, vfio_user::Command(command));
                        header.flags = flags;
                        connection.send(&header, &[&[7; 64]], &[]).unwrap();
                        flush(connection);
                    }
                }
            }
            ["keep-state", count, what] => {
                keep_state(connection, count.parse().unwrap(), what, &self.control);
            }
            ["upgrade", name] => return self.upgrade(name).text(),
            ["upgrade-twice", name] => {
                let path = self.dir.join(name);
                let path = [(control::NAME, name_of(&path))];
                let first = self.control.begin(control::UPGRADE, &path);
                let second = self.control.begin(control::UPGRADE, &path);
                // The second one is refused at once.
                let second = self.control.answer_to(second).text();
                return format!("{}; {second}", self.control.answer_to(first).text());
            }
            ["hand-over"] => return self.control.ask(control::HAND_OVER, &[]).text(),
            other => panic!("a worker cannot do {other:?}"),
        }
        "done".into()
    }

    fn then_do(&mut self, what: &str, connection: &mut Connection) {
        let words: Vec<_> = what.split(' ').collect();
        match words.as_slice() {
            ["die"] => exit(5),
            // As one that is killed, whose memory takes long to be freed.
            ["die-slowly"] => {
                let both = rustix::net::Shutdown::Both;
                rustix::net::shutdown(connection.as_fd(), both).unwrap();
                rustix::net::shutdown(&self.control.socket, both).unwrap();
                sleep(Duration::from_millis(1500));
                exit(5);
            }
            ["send", hex] => drop(self.control.send(&bytes_of(hex), &[])),
            ["pass", count] => {
                let null = odd_descriptor("null", &self.control);
                let fds = vec![null.as_fd(); count.parse().unwrap()];
                let packet = packet(control::KEEP, 99, &[(control::NAME, b"many")]);
                self.control.send(&packet, &fds);
            }
            ["frame", hex] => drop(rustix::io::write(connection.as_fd(), &bytes_of(hex))),
            // Without a look at the replies.
            ["ask-without-end"] => loop {
                self.control.begin(control::FETCH, &[(control::NAME, b"x")]);
            },
            ["listen-again", count] => {
                let path = self.dir.join("n");
                let path = [(control::NAME, name_of(&path))];
                for _ in 0..count.parse::<u32>().unwrap() {
                    let mut listening = self.control.ask(control::LISTEN, &path);
                    self.inbox = Inbox::from_fd(listening.fds.pop().unwrap()).unwrap();
                }
            }
            ["leave-a-scribbler"] => {
                let socket = connection.as_fd().try_clone_to_owned().unwrap();
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.env(SCRIBBLER, "1").env_remove("NVMIRAGE_HOLDER");
                command.arg(&self.dir).stdin(Stdio::from(socket));
                command.spawn().unwrap();
                sleep(Duration::from_millis(300));
                exit(5);
            }
            ["upgrade-late", name] => {
                sleep(Duration::from_millis(200));
                let path = self.dir.join(name);
                self.control
                    .begin(control::UPGRADE, &[(control::NAME, name_of(&path))]);
            }
            ["hand-over"] => {
                self.control.begin(control::HAND_OVER, &[]);
            }
            other => panic!("a worker cannot do {other:?} afterwards"),
        }
    }

    fn upgrade(&mut self, name: &str) -> control::Answer {
        let path = self.dir.join(name);
        self.control
            .ask(control::UPGRADE, &[(control::NAME, name_of(&path))])
    }

    /// Asks without a pause on one thread, and reads the replies on another one.
    fn storm(&self, time: Duration) {
        let until = Instant::now() + time;
        let other = || self.control.other();
        let (mut asking, hearing) = (other(), other());
        // The replies that are still to come fit into the socket.
        let left = Arc::new(AtomicU32::new(0));
        let asked = left.clone();
        spawn(move || {
            while Instant::now() < until {
                if asked.load(Relaxed) < 150 {
                    asked.fetch_add(1, Relaxed);
                    asking.begin(control::FETCH, &[(control::NAME, b"x")]);
                }
            }
        });
        spawn(move || {
            while Instant::now() < until {
                hearing.receive(60);
                left.fetch_sub(1, Relaxed);
            }
        });
    }

    /// Takes its hosts, writes to them, and reads none of the lessons about them.
    fn learn_nothing(self) {
        wait_for_arrival(&self.inbox);
        let arrival = self.inbox.accept().unwrap().unwrap();
        rustix::io::write(&arrival.stream, b"x").unwrap();
        fs::write(self.dir.join("ignores"), b"").unwrap();
        hang(&self.control);
    }
}

fn wait_for_arrival(inbox: &Inbox) {
    poll(&mut [PollFd::new(inbox, PollFlags::IN)], None).unwrap();
}

/// Sends what the holder did not take at once.
fn flush(connection: &mut Connection) {
    while matches!(connection.flush(), Ok(false)) {
        sleep(Duration::from_millis(1));
    }
}

/// Gives the descriptors with which another process goes on with a host.
fn keep_state(connection: &mut Connection, count: usize, what: &str, control: &Control) {
    let fd = odd_descriptor(what, control);
    let fds: Vec<BorrowedFd<'_>> = vec![fd.as_fd(); count];
    let keep = Header::posted(0, relayed::KEEP);
    connection.send(&keep, &[], &fds).unwrap();
}

fn kind_of(fd: Option<OwnedFd>) -> String {
    let Some(fd) = fd else {
        return "none".into();
    };
    let mode = rustix::fs::fstat(&fd).unwrap().st_mode;
    format!("{:?}", rustix::fs::FileType::from_raw_mode(mode))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let digits = digits.map(|two| std::str::from_utf8(two).unwrap());
    digits
        .map(|two| u8::from_str_radix(two, 16).unwrap())
        .collect()
}
