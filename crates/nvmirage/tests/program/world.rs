//! The world of a test: a folder, the program, and a server.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Bound on every wait; far above what anything takes.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Bound on what is to fail before it has done anything.
const REFUSAL: Duration = Duration::from_secs(30);

/// Variables of a service manager for a program, which it may also have set for us.
const SERVICE: [&str; 6] = [
    "JOURNAL_STREAM",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// A folder, with the program's state and sockets in it.
pub(crate) struct World {
    dir: TempDir,
}

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn vfio_user(&self, name: &str) -> String {
        format!("vfio-user:{}", self.path(name).display())
    }

    pub(crate) fn unix(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    /// The program, in this folder and without the user's settings.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvmirage"));
        command
            .current_dir(self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env_remove("NVMIRAGE_CONTROL")
            .env_remove("NVMIRAGE_LOG")
            .stdin(Stdio::null());
        for of_a_service_manager in SERVICE {
            command.env_remove(of_a_service_manager);
        }
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        ran(self.program().args(args).output().unwrap())
    }

    /// Runs the program, which must succeed, and returns what it printed.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let ran = self.run(args);
        assert!(ran.status.success(), "{}: {}", ran.status, ran.err);
        ran.out
    }

    /// Runs the program, which must fail with status 1 and say nothing on standard output; what it
    /// says instead.
    pub(crate) fn fails<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let mut command = self.program();
        command.args(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(output) = receiver.recv_timeout(REFUSAL) else {
            // It serves, where it was to refuse.
            kill_process(pid, Signal::KILL).unwrap();
            panic!("it does not fail, and goes on");
        };
        let ran = ran(output.unwrap());
        assert_eq!(ran.status.code(), Some(1), "{}{}", ran.out, ran.err);
        assert_eq!(ran.out, "");
        assert!(ran.err.contains("error: "), "{}", ran.err);
        ran.err
    }

    /// Runs the program, which must print JSON.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// The served objects, without the counts of reactors and the identity of the process.
    pub(crate) fn inventory(&self) -> Value {
        let mut inventory = self.json(&self.steer(&["ls", "--json"]));
        inventory["reactors"].take();
        inventory["process"].take();
        inventory
    }

    /// Arguments of a command for the server's control socket.
    pub(crate) fn steer(&self, args: &[&str]) -> Vec<String> {
        let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(["--control".to_owned(), self.unix("control")]);
        args
    }

    /// Starts `serve` with these arguments and its own control socket, and waits until it is ready.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        let mut command = self.program();
        command
            .arg("serve")
            .args(args)
            .args(["--control", &self.unix("control")]);
        Server::start(command, self.path("server.log"))
    }

    /// Starts a server of one medium at `nvme.sock`.
    pub(crate) fn serve_media(&self, media: &str) -> Server {
        self.serve(&["--media", media, "--listen", &self.vfio_user("nvme.sock")])
    }
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running `serve`.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    pub(crate) first_line: String,
}

impl Server {
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        command
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut server = Server {
            child,
            log,
            first_line: String::new(),
        };
        server.first_line = receiver
            .recv_timeout(BOUND)
            .unwrap_or_else(|_| panic!("it is not ready: {}", server.log()));
        server
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Has it stand still, and waits until all of its threads do: a signal takes a while to reach
    /// one that runs.
    pub(crate) fn stand_still(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let deadline = Instant::now() + BOUND;
        let stands = || {
            let mut all = std::fs::read_dir(&tasks).unwrap().flatten();
            all.all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
                state.starts_with('T')
            })
        };
        while !stands() {
            assert!(Instant::now() < deadline, "it does not stand still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn end(mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        let log = self.log.clone();
        let status = self.end();
        assert!(
            status.success(),
            "{status}: {}",
            std::fs::read_to_string(log).unwrap()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a process, but not for ever.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the process does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
