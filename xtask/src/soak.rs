//! A daemon and hosts for real: under load, by seed, hosts reset, delete queues, unmap memory in
//! use, sleep and are killed, and queues move between reactors. Each host verifies everything that
//! it, and those before it, were told is written.
//!
//! The seed says what is tried in which order, and not what races come of it: a run is no
//! repetition of another one with the same seed. The simulation is (`cargo xtask simulate`).
//!
//! Everything that is started here ends with this program: the daemon and the hosts when their
//! standard input does.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use guest_rig::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::counts::Counts;
use crate::process::Interrupt;
use crate::stages::Context;
use crate::workspace::Workspace;

/// How long the stage of the tests goes on, and how long it does with `--all`.
const STAGE: Duration = Duration::from_secs(30);
const STAGE_OF_ALL: Duration = Duration::from_secs(300);
/// How often processes are looked at.
const TURN: Duration = Duration::from_millis(20);
/// How often progress is shown.
const SHOW: Duration = Duration::from_secs(5);
/// Lines of the server that are shown where something was wrong.
const LINES: usize = 40;
/// How long another worker may take.
const CONTINUE: Duration = Duration::from_secs(20);
/// How long the daemon and the hosts may take to end.
const END: Duration = Duration::from_secs(60);

/// How long, and what chance begins with.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// What chance begins with; without it, the time
    #[arg(long)]
    seed: Option<u64>,
    /// The server survives (`serve --survive`), and its worker is killed again and again
    #[arg(long)]
    kill_worker: bool,
    /// Ends after so many kills of the worker, instead of after a time
    #[arg(long, requires = "kill_worker")]
    kills: Option<u64>,
    /// Fails where the median of the pauses is longer, in milliseconds
    #[arg(long, requires = "kill_worker", value_name = "MS")]
    pause_median: Option<u64>,
    /// Fails where a pause is longer, in milliseconds
    #[arg(long, requires = "kill_worker", value_name = "MS")]
    pause_max: Option<u64>,
}

/// What a soak does, and for how long.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    length: Duration,
    kill_worker: bool,
    /// Kills of the worker after which it ends.
    kills: Option<u64>,
}

/// A controller: its medium, how doorbells are noticed, how its host rings, the reactors of its
/// queues.
const CONTROLLERS: [(&str, &str, &str, &str); 4] = [
    ("ram", "mapped", "mapped", "0, 1"),
    ("ram", "unmapped", "shadow", "1"),
    ("file", "trapped", "trapped", "1, 0"),
    ("null", "mapped", "mapped", "1"),
];
/// Completion queues that a host makes.
const QUEUES: u64 = 3;

/// What happened.
#[derive(Debug, Default)]
struct Summary {
    /// What hosts have counted.
    hosts: BTreeMap<String, u64>,
    moves: u64,
    refused: u64,
    deaths: u64,
    /// For each kill of the worker: milliseconds until its hosts went on.
    pauses: Vec<u64>,
}

impl Summary {
    /// The median and the maximum of the pauses, in milliseconds.
    fn pause(&self) -> Option<(u64, u64)> {
        let mut pauses = self.pauses.clone();
        pauses.sort_unstable();
        Some((*pauses.get(pauses.len() / 2)?, *pauses.last()?))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |name: &str| self.hosts.get(name).copied().unwrap_or(0);
        write!(
            f,
            "{} commands, {} resets, {} unmaps, {} queues deleted, {} waits for interrupts, {} moves ({} refused), {} deaths, longest wait {:.1} ms, {} stalls of the machine left out",
            of("commands"),
            of("resets"),
            of("unmaps"),
            of("deletions"),
            of("waits"),
            self.moves,
            self.refused,
            self.deaths,
            of("longest_us") as f64 / 1e3,
            of("stalls"),
        )?;
        if let Some((median, max)) = self.pause() {
            let kills = self.pauses.len();
            write!(
                f,
                ", {kills} kills of the worker, pause median {median} ms, maximum {max} ms"
            )?;
        }
        Ok(())
    }
}

/// Soaks on the terminal; whether all went well.
///
/// # Errors
/// Something cannot be built or started, or we are asked to stop.
pub(crate) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &SoakArgs) -> Result<bool> {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = args.seed.unwrap_or(time.as_secs());
    let length = Duration::try_from_secs_f64(args.minutes * 60.0).context("a time to go on")?;
    println!("seed {seed}");
    build(
        |command| {
            ensure!(command.status()?.success(), "it does not build");
            Ok(())
        },
        workspace,
    )?;
    let start = Instant::now();
    let mut show = |text: &str| println!("{:>6.0} s  {text}", start.elapsed().as_secs_f64());
    let plan = Plan {
        seed,
        length: if args.kills.is_some() {
            Duration::MAX
        } else {
            length
        },
        kill_worker: args.kill_worker,
        kills: args.kills,
    };
    match soak(workspace, interrupt, plan, &mut show) {
        Ok(summary) => {
            println!("seed {seed}: {summary}");
            let (median, max) = summary.pause().unwrap_or_default();
            let is_within = |bar: Option<u64>, is: u64| bar.is_none_or(|bar| is <= bar);
            Ok(is_within(args.pause_median, median) && is_within(args.pause_max, max))
        }
        Err(error) => {
            println!("seed {seed}: {error:#}");
            Ok(false)
        }
    }
}

/// A stage of the tests.
///
/// # Errors
/// Something was wrong, or it cannot be built.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let workspace = context.workspace;
    build(|command| context.run(command).map(|_| ()), workspace)?;
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = time.as_secs();
    let mut log = fs::File::options().append(true).open(&context.log)?;
    let line = &mut *context.line;
    let mut show = |text: &str| {
        line.at(text);
        // A log that cannot be written loses what the line shows.
        let _ = writeln!(log, "{text}");
    };
    let length = if context.all { STAGE_OF_ALL } else { STAGE };
    let mut said = Vec::new();
    for kill_worker in [false, true] {
        let plan = Plan {
            seed,
            length: length / 2,
            kill_worker,
            kills: None,
        };
        let summary = soak(workspace, context.interrupt, plan, &mut show);
        let option = if kill_worker { " --kill-worker" } else { "" };
        let summary = summary.with_context(|| format!("cargo xtask soak --seed {seed}{option}"))?;
        said.push(summary.to_string());
    }
    context.line.note(&said.join("; "));
    Ok(Counts::ONE)
}

fn build(mut run: impl FnMut(&mut Command) -> Result<()>, workspace: &Workspace) -> Result<()> {
    // Together, so that both are made of the same.
    let args = [
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "nvmirage",
        "--package",
        "tests-soak",
    ];
    run(&mut workspace.cargo(&args)?)
}

/// Numbers that follow from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }
}

/// A host's process, which ends with us.
struct Host {
    child: Child,
    /// Its end is what it ends by.
    stdin: Option<ChildStdin>,
    said: Arc<Mutex<Said>>,
}

/// What a host has said.
#[derive(Debug, Default)]
struct Said {
    counts: BTreeMap<String, u64>,
    is_done: bool,
    other: Vec<String>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        match words.next() {
            Some(first @ ("at" | "done")) => {
                self.is_done = first == "done";
                let pairs = words.filter_map(|word| word.split_once('='));
                let pairs = pairs.filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
                self.counts = pairs.collect();
            }
            _ => self.other.push(line.to_owned()),
        }
    }
}

impl Host {
    fn start(workspace: &Workspace, dir: &Path, number: usize, seed: u64) -> Result<Self> {
        let (kind, _, doorbells, _) = CONTROLLERS[number];
        let mut command = workspace.command(&workspace.target.join("release/soak-host"))?;
        command
            .args(["--doorbells", doorbells, "--seed", &seed.to_string()])
            .arg("--socket")
            .arg(socket(dir, number))
            .arg("--journal")
            .arg(dir.join(format!("journal{number}")));
        if kind == "null" {
            command.arg("--unverified");
        }
        let (reader, writer) = std::io::pipe()?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn();
        let mut child = child.context("cannot start a host")?;
        // The command keeps its ends of the pipe, and the reader would wait for their end.
        drop(command);
        let said = Arc::new(Mutex::new(Said::default()));
        let hears = Arc::clone(&said);
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let mut said = hears.lock().unwrap_or_else(PoisonError::into_inner);
                said.hear(&line);
            }
        });
        let stdin = child.stdin.take();
        Ok(Host { child, stdin, said })
    }

    fn add_to(&self, summary: &mut Summary) {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in &said.counts {
            let sum = summary.hosts.entry(name.clone()).or_default();
            *sum = match name.as_str() {
                "longest_us" => (*sum).max(*count),
                _ => *sum + count,
            };
        }
    }

    fn complaint(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.other.join("; ")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only where the process has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number}.sock"))
}

fn configuration(dir: &Path) -> String {
    let path = |name: &str| dir.join(name).display().to_string();
    let mut text = format!(
        "state_dir = {:?}\ncontrol = \"unix:{}\"\n[[reactor]]\nmode = \"poll\"\n[[reactor]]\nmode = \"adaptive\"\n",
        path("state"),
        path("control")
    );
    for (number, (kind, doorbells, _, reactors)) in CONTROLLERS.iter().enumerate() {
        let file = match *kind {
            "file" => format!("path = {:?}\n", path("disk")),
            _ => String::new(),
        };
        let listen = format!("vfio-user:{}", socket(dir, number).display());
        text += &format!(
            "[[media]]\nname = \"m{number}\"\nkind = {kind:?}\nsize = \"16MiB\"\n{file}\
             [[namespace]]\nname = \"n{number}\"\nmedia = \"m{number}\"\n\
             [[controller]]\nname = \"c{number}\"\nnamespaces = [\"n{number}\"]\nlisten = {listen:?}\n\
             doorbells = {doorbells:?}\nqueues = 8\nreactors = [{reactors}]\n"
        );
    }
    text
}

/// Everything that runs.
struct Soak<'a> {
    workspace: &'a Workspace,
    dir: TempDir,
    chance: Chance,
    server: Server,
    hosts: Vec<Host>,
    summary: Summary,
}

fn soak(
    workspace: &Workspace,
    interrupt: &Interrupt,
    plan: Plan,
    show: &mut dyn FnMut(&str),
) -> Result<Summary> {
    fs::create_dir_all(workspace.logs())?;
    // On a disk, where one is: a file in memory goes another way.
    let dir = tempfile::Builder::new()
        .prefix("soak-")
        .tempdir_in(workspace.logs())?;
    let file = dir.path().join("config.toml");
    fs::write(&file, configuration(dir.path()))?;
    let mut args = vec!["--config".as_ref(), file.as_os_str()];
    if plan.kill_worker {
        args.push("--survive".as_ref());
    }
    let mut server = Server::start(&args)?;
    for _ in 1..CONTROLLERS.len() {
        server.wait_for_line("ready: ", END)?;
    }
    let mut soak = Soak {
        workspace,
        dir,
        chance: Chance(plan.seed | 1 << 63),
        server,
        hosts: Vec::new(),
        summary: Summary::default(),
    };
    for number in 0..CONTROLLERS.len() {
        let host = soak.next_host(number)?;
        soak.hosts.push(host);
    }
    if let Err(error) = soak.go_on(interrupt, plan, show) {
        let lines = soak.server.lines();
        let last = lines.len().saturating_sub(LINES);
        return Err(error.context(lines[last..].join("\n")));
    }
    soak.end()
}

impl Soak<'_> {
    fn next_host(&mut self, number: usize) -> Result<Host> {
        let seed = self.chance.below(u64::MAX);
        Host::start(self.workspace, self.dir.path(), number, seed)
    }

    fn go_on(
        &mut self,
        interrupt: &Interrupt,
        plan: Plan,
        show: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let start = Instant::now();
        let mut next_kill = start + Duration::from_secs(2);
        let (mut next_death, mut next_move) = (start + Duration::from_secs(2), start);
        let mut next_show = start + SHOW;
        let kills = plan.kills.unwrap_or(u64::MAX);
        while start.elapsed() < plan.length && (self.summary.pauses.len() as u64) < kills {
            ensure!(!interrupt.is_set(), "interrupted");
            self.check_hosts()?;
            let now = Instant::now();
            if now >= next_death {
                next_death = now + self.chance.millis(500, 4_000);
                self.kill_one()?;
            }
            if plan.kill_worker && now >= next_kill {
                self.kill_worker()?;
                next_kill = Instant::now() + self.chance.millis(1_100, 2_500);
            }
            if now >= next_move {
                next_move = now + self.chance.millis(10, 300);
                self.move_one()?;
            }
            if now >= next_show {
                next_show = now + SHOW;
                show(&self.so_far().to_string());
            }
            thread::sleep(TURN);
        }
        Ok(())
    }

    fn so_far(&self) -> Summary {
        let mut sum = Summary {
            hosts: self.summary.hosts.clone(),
            pauses: self.summary.pauses.clone(),
            ..self.summary
        };
        self.hosts.iter().for_each(|host| host.add_to(&mut sum));
        sum
    }

    fn check_hosts(&mut self) -> Result<()> {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if let Some(status) = host.child.try_wait()? {
                // Its last words may still be on their way.
                thread::sleep(TURN);
                bail!(
                    "host {number} ({:?}) ended with {status}: {}",
                    CONTROLLERS[number],
                    host.complaint()
                );
            }
        }
        Ok(())
    }

    /// A host is killed, and the next one verifies what was acknowledged to it.
    fn kill_one(&mut self) -> Result<()> {
        let number = self.chance.below(CONTROLLERS.len() as u64) as usize;
        self.hosts[number].child.kill()?;
        self.hosts[number].child.wait()?;
        self.hosts[number].add_to(&mut self.summary);
        self.summary.deaths += 1;
        self.hosts[number] = self.next_host(number)?;
        Ok(())
    }

    /// The server's worker is killed, and another one goes on with all hosts.
    fn kill_worker(&mut self) -> Result<()> {
        let holder = self.server.pid();
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children"))?;
        let worker = children.split_whitespace().next();
        let worker = worker.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        let worker = worker.context("the holder has no worker")?;
        kill_process(worker, Signal::KILL).context("cannot kill the worker")?;
        let line = self
            .server
            .wait_for_line("hosts continue after ", CONTINUE)?;
        let pause = line.split("after ").nth(1);
        let pause = pause.and_then(|text| text.split(' ').next()?.parse().ok());
        self.summary
            .pauses
            .push(pause.context("a line without a pause")?);
        Ok(())
    }

    /// Queues of a controller move to other reactors. What cannot move now stays.
    fn move_one(&mut self) -> Result<()> {
        let number = self.chance.below(CONTROLLERS.len() as u64);
        let reactor = self.chance.below(2);
        let control = format!("unix:{}", self.dir.path().join("control").display());
        let mut command = self.workspace.command(&self.workspace.program())?;
        command.args(["move", &format!("c{number}"), &reactor.to_string()]);
        command.args(["--control", &control]);
        match self.chance.below(4) {
            0 => {}
            1 => {
                command.arg((1 - reactor).to_string());
            }
            _ => {
                let queue = 1 + self.chance.below(QUEUES);
                command.args(["--queue", &queue.to_string()]);
            }
        }
        if command.output()?.status.success() {
            self.summary.moves += 1
        } else {
            self.summary.refused += 1
        }
        Ok(())
    }

    /// The hosts verify everything once more, and then the daemon ends.
    fn end(mut self) -> Result<Summary> {
        let deadline = Instant::now() + END;
        for number in 0..self.hosts.len() {
            let host = &mut self.hosts[number];
            drop(host.stdin.take());
            let status = loop {
                if let Some(status) = host.child.try_wait()? {
                    break status;
                }
                ensure!(Instant::now() < deadline, "host {number} does not end");
                thread::sleep(TURN);
            };
            thread::sleep(TURN);
            let complaint = host.complaint();
            ensure!(
                status.success(),
                "host {number} ended with {status}: {complaint}"
            );
            let said = host.said.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(said.is_done, "host {number} has ended before its end");
        }
        let sum = self.so_far();
        self.hosts.clear();
        self.server.stop(END)?;
        ensure!(
            sum.hosts.get("commands").is_some_and(|count| *count > 0),
            "nothing was done"
        );
        Ok(sum)
    }
}
