//! A server in a folder of its own, the guests on it, and what is there when it has stopped.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use guest_rig::{Guest, Options, Report, Rig, Server};
use serde_json::Value;
use tempfile::TempDir;

/// The bound on a guest, from its first instruction to its last. An idle machine needs a tenth.
pub(crate) const BOUND: Duration = Duration::from_secs(240);
/// The bound on a server's last write after SIGTERM.
const STOP: Duration = Duration::from_secs(20);
/// Functions that come before every job.
const FUNCTIONS: &str = include_str!("jobs/functions.sh");

/// What a holder says of a worker that it replaces.
const REPLACED: &str = "another one goes on";

/// The configuration's file.
const CONFIG: &str = "nvmirage.toml";

/// A running server. Where a test fails, it shows what the server printed.
pub(crate) struct Served {
    server: Option<Server>,
    /// How often its worker was killed.
    deaths: usize,
    dir: TempDir,
}

impl Served {
    /// Serves the configuration `toml`, in which `DIR` stands for the server's folder. Each
    /// controller `NAME` must listen at `vfio-user:DIR/NAME.sock`.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_with(toml, |_| {})
    }

    /// As [`Served::start`], and logs what the filter lets through.
    pub(crate) fn start_logging(toml: &str, filter: &str) -> Self {
        Self::serve(configured(toml), &["--log", filter])
    }

    /// As [`Served::start`], with a holder that replaces its worker.
    pub(crate) fn start_surviving(toml: &str) -> Self {
        Self::serve(configured(toml), &["--survive"])
    }

    /// As [`Served::start`], after `prepare` has put files into the server's folder.
    pub(crate) fn start_with(toml: &str, prepare: impl FnOnce(&Path)) -> Self {
        let dir = configured(toml);
        prepare(dir.path());
        Self::serve(dir, &[])
    }

    /// Starts the server of a folder.
    fn serve(dir: TempDir, more: &[&str]) -> Self {
        let config = dir.path().join(CONFIG);
        let config = config.to_str().expect("a temporary folder is UTF-8");
        let server = Server::start(&[&["--config", config], more].concat())
            .unwrap_or_else(|error| panic!("{error}"));
        let server = Some(server);
        let deaths = 0;
        Self {
            server,
            deaths,
            dir,
        }
    }

    /// The lines that the server has printed.
    pub(crate) fn lines(&self) -> Vec<String> {
        let server = self.server.as_ref().expect("the server runs");
        server.lines()
    }

    /// A file of the server's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Boots a guest on the controller `name`, which runs `job`.
    pub(crate) fn boot(&self, name: &str, job: &str, options: Options) -> Guest {
        self.boot_on(&[name], job, options)
    }

    /// Boots a guest on several controllers, the first of them in PCI slot 10h, which runs `job`.
    pub(crate) fn boot_on(&self, names: &[&str], job: &str, options: Options) -> Guest {
        let socket = |name: &&str| self.file(&format!("{name}.sock"));
        boot_on_all(names.iter().map(socket).collect(), job, options)
    }

    /// Boots a guest as [`Served::boot`] does, and waits until its job has passed.
    pub(crate) fn run(&self, name: &str, job: &str, options: Options) -> Report {
        finish(self.boot(name, job, options))
    }

    /// Steers the server, as an operator does with `nvmirage COMMAND…`.
    pub(crate) fn steer(&self, command: &[&str]) {
        let steered = self.try_to_steer(command);
        steered.unwrap_or_else(|said| panic!("nvmirage {command:?}: {said}"));
    }

    /// The same, where the server may refuse it: with what it says then.
    pub(crate) fn try_to_steer(&self, command: &[&str]) -> Result<(), String> {
        let program = guest_rig::server::program().unwrap_or_else(|error| panic!("{error}"));
        let output = Command::new(program)
            .args(command)
            .arg("--control")
            .arg(format!("unix:{}", self.file("control.sock").display()))
            .output()
            .expect("nvmirage starts");
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// What the server answers to a question of its control API.
    pub(crate) fn ask(&self, path: &str) -> Value {
        let body = self.get(path);
        serde_json::from_str(&body).expect("the answer is JSON")
    }

    /// The value of a sample of the server's metrics, 0 where it has none.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let metrics = self.get("/metrics");
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(sample));
        value.map_or(0.0, |value| value.trim().parse().expect("a number"))
    }

    fn get(&self, path: &str) -> String {
        let stream = UnixStream::connect(self.file("control.sock"));
        let mut stream = stream.expect("the server listens for control");
        let bounded = stream.set_read_timeout(Some(BOUND));
        bounded.expect("a socket's reads can be bounded");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: guests\r\n\r\n").expect("the server reads");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        read.expect("the server answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
        assert!(head.contains(" 200 "), "{path}: {head}");
        body.to_owned()
    }

    /// Waits for a line of the server.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        let server = self.server.as_mut().expect("the server runs");
        server
            .wait_for_line(text, BOUND)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Kills the server's worker with SIGKILL, and waits until its holder starts another one. The
    /// server must have been started by [`Served::start_surviving`].
    pub(crate) fn kill_worker(&mut self) {
        let server = self.server.as_ref().expect("the server runs");
        server
            .kill_worker()
            .unwrap_or_else(|error| panic!("{error}"));
        self.deaths += 1;
        self.wait_for_line(REPLACED);
    }

    /// Has the server's program, the same one, take over from itself.
    pub(crate) fn upgrade(&self) {
        let program = guest_rig::server::program().unwrap_or_else(|error| panic!("{error}"));
        self.steer(&["upgrade", program.to_str().expect("its path is UTF-8")]);
    }

    /// How busy the server is, in processors, while `seconds` pass.
    pub(crate) fn load_over(&self, seconds: u32) -> f64 {
        let server = self.server.as_ref().expect("the server runs");
        let spent = || server.cpu_time().unwrap_or_else(|error| panic!("{error}"));
        let before = spent();
        std::thread::sleep(Duration::from_secs(seconds.into()));
        (spent() - before).as_secs_f64() / f64::from(seconds)
    }

    /// Kills the server with SIGKILL; its folder remains.
    pub(crate) fn kill(mut self) -> Stopped {
        self.server.take().expect("the server runs").kill();
        Stopped {
            dir: self.take_dir(),
        }
    }

    fn take_dir(&mut self) -> TempDir {
        std::mem::replace(&mut self.dir, TempDir::new().expect("a temporary folder"))
    }

    /// Stops the server as an operator does (SIGTERM), who then has its folder.
    pub(crate) fn stop(mut self) -> Stopped {
        let server = self.server.take().expect("the server runs");
        let lines = server.stop(STOP).unwrap_or_else(|error| panic!("{error}"));
        let errors = lines.iter().filter(|line| line.contains("ERROR"));
        let (deaths, bad): (Vec<_>, Vec<_>) = errors.partition(|line| line.contains(REPLACED));
        assert!(bad.is_empty(), "errors of the server: {bad:#?}");
        assert_eq!(deaths.len(), self.deaths, "deaths of workers");
        Stopped {
            dir: self.take_dir(),
        }
    }
}

/// A folder with the configuration `toml`.
fn configured(toml: &str) -> TempDir {
    let dir = TempDir::with_prefix("nvmirage-guests-").expect("a temporary folder");
    let path = dir.path().to_str().expect("a temporary folder is UTF-8");
    let head = "state_dir = \"DIR/state\"\ncontrol = \"unix:DIR/control.sock\"\n";
    let text = format!("{head}{toml}").replace("DIR", path);
    std::fs::write(dir.path().join(CONFIG), text).expect("the configuration is written");
    dir
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = &self.server
            && std::thread::panicking()
        {
            eprintln!("--- the server's lines:\n{}", server.lines().join("\n"));
        }
    }
}

/// What a server leaves.
pub(crate) struct Stopped {
    dir: TempDir,
}

impl Stopped {
    /// Starts it again, with the same configuration and what it has kept.
    pub(crate) fn start_again(self) -> Served {
        Served::serve(self.dir, &[])
    }

    /// A file of the server's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Boots a guest on the controllers at these sockets, of any servers.
pub(crate) fn boot_on_all(sockets: Vec<PathBuf>, job: &str, options: Options) -> Guest {
    let options = Options {
        job: Some(format!("{FUNCTIONS}\n{job}")),
        sockets,
        ..options
    };
    Guest::boot(&rig(), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// What guests are made of.
pub(crate) fn rig() -> Rig {
    Rig::locate().unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until the guest has turned itself off and its job has passed.
pub(crate) fn finish(guest: Guest) -> Report {
    let report = guest
        .finish(BOUND)
        .unwrap_or_else(|error| panic!("{error}"));
    for step in &report.steps {
        println!("{}: {}", step.name, step.detail);
    }
    report
}

/// Waits until the job says `word`.
pub(crate) fn wait(guest: &mut Guest, word: &str) {
    guest
        .wait_for_line(&format!("@@ say {word}"), BOUND)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Lets a job go on that waits for `word`.
pub(crate) fn tell(guest: &mut Guest, word: &str) {
    guest.send(word).unwrap_or_else(|error| panic!("{error}"));
}

/// A text that the job handed over.
pub(crate) fn text<'a>(report: &'a Report, name: &str) -> &'a str {
    report
        .text(name)
        .unwrap_or_else(|| panic!("the job did not tell {name}"))
}

/// A number that the job handed over.
pub(crate) fn number(report: &Report, name: &str) -> u64 {
    let text = text(report, name).trim();
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number"))
}

/// JSON that the job handed over.
pub(crate) fn json(report: &Report, name: &str) -> Value {
    let text = text(report, name);
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{name} is no JSON: {error}\n{text}"))
}
