//! PostgreSQL and MariaDB as children of ours, each run by a user that may do nothing else, and
//! sysbench.

use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use guest_rig::debian::on_path;
use rustix::process::{Pid, Signal, kill_process};

/// How long a database may take until it answers.
const START: Duration = Duration::from_secs(60);
/// How many tables sysbench makes.
const TABLES: &str = "--tables=10";
/// What of the data a database holds in memory: little, so that it uses its drive.
const BUFFER: &str = "32MB";
/// User ID of the account without privileges, which owns no files (`overflowuid`).
const UNPRIVILEGED: &str = "65534";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PostgreSql,
    MariaDb,
}

/// A database that is installed.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    kind: Kind,
    /// The folder of its programs.
    programs: PathBuf,
    version: String,
    /// User and group.
    user: (u32, u32),
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) threads: u32,
    pub(super) rows: u32,
    pub(super) seconds: u32,
}

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    pub(super) transactions_per_s: f64,
    pub(super) mean_ms: f64,
    pub(super) p99_ms: f64,
}

impl Engine {
    /// Finds `postgresql` or `mariadb` where Debian's packages have it.
    ///
    /// # Errors
    /// It is not installed, or sysbench is not: names the packages.
    pub(super) fn find(name: &str) -> Result<Self> {
        ensure!(
            on_path("sysbench").is_some(),
            "no sysbench: install the package sysbench"
        );
        let (kind, programs, server, users) = match name {
            "postgresql" => (
                Kind::PostgreSql,
                postgresql(),
                "postgres",
                ["postgres", UNPRIVILEGED],
            ),
            _ => (
                Kind::MariaDb,
                mariadb(),
                "mariadbd",
                ["mysql", UNPRIVILEGED],
            ),
        };
        let packages = match kind {
            Kind::PostgreSql => "postgresql",
            Kind::MariaDb => "mariadb-server-core and mariadb-client-core",
        };
        let programs =
            programs.with_context(|| format!("it is not installed: install {packages}"))?;
        let version = output(Command::new(programs.join(server)).arg("--version"))?;
        let passwd = fs::read_to_string("/etc/passwd")?;
        let user = users.iter().find_map(|user| ids(&passwd, user));
        Ok(Self {
            kind,
            programs,
            version: version_of(&version),
            user: user.context("there is no user that a database can run as")?,
        })
    }

    /// Its name and version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Makes an empty database in a folder of its own in `data`, and starts it; its socket and log
    /// are in `dir`.
    pub(super) fn start(&self, data: &Path, dir: &Path) -> Result<Running<'_>> {
        let (data, run) = (data.join("db"), dir.join("run"));
        for folder in [&data, &run] {
            fs::create_dir(folder)?;
            chown(folder, Some(self.user.0), Some(self.user.1))?;
        }
        let log = fs::File::create(dir.join("log"))?;
        output(self.command(&self.initialize(&data)).current_dir(&run))?;
        fs::write(
            run.join("init.sql"),
            "CREATE DATABASE IF NOT EXISTS sbtest;\n",
        )?;
        let mut command = self.command(&self.serve(&data, &run));
        command.current_dir(&run).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut running = Running {
            engine: self,
            child,
            run,
            log: dir.join("log"),
        };
        running.wait()?;
        Ok(running)
    }

    /// A command of its user's.
    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LC_ALL", "C");
        command.uid(self.user.0).gid(self.user.1);
        command
    }

    fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    fn initialize(&self, data: &Path) -> Vec<String> {
        let data = data.display();
        let words = match self.kind {
            Kind::PostgreSql => format!(
                "{} -D {data} -A trust -U sysbench --locale=C --no-sync",
                self.program("initdb")
            ),
            Kind::MariaDb => format!(
                "mariadb-install-db --no-defaults --datadir={data} --auth-root-authentication-method=normal \
                 --skip-test-db --skip-name-resolve"
            ),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// No network: a socket in `run`. Logs are large enough that no point of a measurement has to
    /// wait for one to be cut.
    fn serve(&self, data: &Path, run: &Path) -> Vec<String> {
        let (data, run) = (data.display(), run.display());
        let words = match self.kind {
            Kind::PostgreSql => format!(
                "{} -D {data} -k {run} -p {PORT} -c listen_addresses= -c shared_buffers={BUFFER} \
                 -c max_connections=100 -c max_wal_size=1GB -c checkpoint_timeout=1h",
                self.program("postgres")
            ),
            Kind::MariaDb => format!(
                "{} --no-defaults --datadir={data} --socket={run}/socket --pid-file={run}/pid --tmpdir={run} \
                 --skip-networking --init-file={run}/init.sql --innodb-buffer-pool-size={} \
                 --innodb-log-file-size=512M --max-connections=100",
                self.program("mariadbd"),
                BUFFER.trim_end_matches('B')
            ),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }
}

/// The number in the name of PostgreSQL's socket.
const PORT: &str = "5499";

/// A database that runs.
pub(super) struct Running<'a> {
    engine: &'a Engine,
    child: Child,
    /// The folder of its socket.
    run: PathBuf,
    log: PathBuf,
}

impl Running<'_> {
    fn socket(&self) -> PathBuf {
        match self.engine.kind {
            Kind::PostgreSql => self.run.join(format!(".s.PGSQL.{PORT}")),
            Kind::MariaDb => self.run.join("socket"),
        }
    }

    /// Waits until it takes connections.
    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        while UnixStream::connect(self.socket()).is_err() {
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}:\n{}", log());
            }
            ensure!(Instant::now() < deadline, "it does not start:\n{}", log());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn sysbench(&self, load: &Load) -> Command {
        let mut words = vec!["sysbench".to_owned(), "oltp_read_write".to_owned()];
        let run = self.run.display();
        match self.engine.kind {
            Kind::PostgreSql => words.extend([
                "--db-driver=pgsql".to_owned(),
                format!("--pgsql-host={run}"),
                format!("--pgsql-port={PORT}"),
                "--pgsql-user=sysbench".to_owned(),
                "--pgsql-db=postgres".to_owned(),
            ]),
            Kind::MariaDb => words.extend([
                "--db-driver=mysql".to_owned(),
                format!("--mysql-socket={run}/socket"),
                "--mysql-user=root".to_owned(),
                "--mysql-db=sbtest".to_owned(),
            ]),
        }
        let mut command = self.engine.command(&words);
        command
            .current_dir(&self.run)
            .args([TABLES, "--rand-type=uniform"])
            .arg(format!("--table-size={}", load.rows));
        command
    }

    /// Fills the tables.
    pub(super) fn prepare(&self, load: &Load) -> Result<()> {
        output(self.sysbench(load).args(["--threads=4", "prepare"])).map(drop)
    }

    /// Does transactions for the time of a point.
    pub(super) fn run(&self, load: &Load) -> Result<Done> {
        let mut command = self.sysbench(load);
        command
            .arg(format!("--threads={}", load.threads))
            .arg(format!("--time={}", load.seconds))
            .args(["--percentile=99", "run"]);
        parse(&output(&mut command)?)
    }

    /// Ends it in order: SIGINT has PostgreSQL end its connections, SIGTERM is MariaDB's.
    pub(super) fn stop(mut self, bound: Duration) -> Result<()> {
        let signal = match self.engine.kind {
            Kind::PostgreSql => Signal::INT,
            Kind::MariaDb => Signal::TERM,
        };
        kill_process(self.pid(), signal)?;
        let deadline = Instant::now() + bound;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "the database does not end");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn pid(&self) -> Pid {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        id.expect("a process has an id")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SIGQUIT: at once, with all its processes.
            let _ = kill_process(self.pid(), Signal::QUIT);
            thread::sleep(Duration::from_millis(500));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The newest of those that Debian's packages put beside each other.
fn postgresql() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = folders.max_by_key(|path| number(path))?;
    let programs = newest.join("bin");
    programs.join("postgres").is_file().then_some(programs)
}

fn mariadb() -> Option<PathBuf> {
    on_path("mariadb-install-db").and(on_path("my_print_defaults"))?;
    let server = on_path("mariadbd").or_else(|| {
        let path = PathBuf::from("/usr/sbin/mariadbd");
        path.is_file().then_some(path)
    })?;
    Some(server.parent()?.to_owned())
}

/// User and group of an account in /etc/passwd (passwd(5)), by its name or user ID.
fn ids(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let mut lines = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let is_user = |fields: &Vec<&str>| [fields.first(), fields.get(2)].contains(&Some(&user));
    let fields = lines.find(is_user)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

/// "postgres (PostgreSQL) 15.18 (Debian …)", "/usr/sbin/mariadbd Ver 10.11.19-MariaDB-0+deb12u1 for
/// …".
fn version_of(said: &str) -> String {
    let starts = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let number = said.split_whitespace().find(starts).unwrap_or_default();
    let number = number.split('-').next().unwrap_or_default();
    if said.contains("PostgreSQL") {
        format!("PostgreSQL {number}")
    } else {
        format!("MariaDB {number}")
    }
}

/// What sysbench prints at the end of a run.
fn parse(said: &str) -> Result<Done> {
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
        line.with_context(|| format!("sysbench printed no {name}\n{said}"))
    };
    let number = |text: &str| -> Result<f64> {
        let text = text.trim();
        text.parse()
            .with_context(|| format!("{text:?} is no number"))
    };
    // "transactions:   7038   (1171.31 per sec.)"
    let transactions = field("transactions:")?;
    let rate = transactions
        .split(['(', ' '])
        .rfind(|word| word.contains('.') && !word.contains("sec"));
    Ok(Done {
        transactions_per_s: number(rate.context("no rate")?)?,
        mean_ms: number(field("avg:")?)?,
        p99_ms: number(field("99th percentile:")?)?,
    })
}

/// Runs a command to its end; what it printed.
///
/// # Errors
/// It is missing, or fails: with its words.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} failed: {}{}",
        said.trim(),
        out.trim()
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sysbench 1.0.20 printed it.
    const RUN: &str = "\
SQL statistics:
    transactions:                        7038   (1171.31 per sec.)
    queries:                             140760 (23426.14 per sec.)

Latency (ms):
         min:                                    2.47
         avg:                                   13.64
         max:                                   71.11
         99th percentile:                       29.19
         sum:                                95982.29
";

    #[test]
    fn what_sysbench_prints_is_read() {
        let done = Done {
            transactions_per_s: 1171.31,
            mean_ms: 13.64,
            p99_ms: 29.19,
        };
        assert_eq!(parse(RUN).unwrap(), done);
        let error = parse("FATAL: no").unwrap_err().to_string();
        assert!(
            error.contains("transactions:") && error.contains("FATAL"),
            "{error}"
        );
    }

    #[test]
    fn users_and_versions_are_read() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:x:/:/bin/sh\n";
        assert_eq!(ids(passwd, "postgres"), Some((101, 104)));
        assert_eq!(ids(passwd, "101"), Some((101, 104)));
        assert_eq!(ids(passwd, "post"), None);
        let postgresql = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version_of(postgresql), "PostgreSQL 15.18");
        let mariadb = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64\n";
        assert_eq!(version_of(mariadb), "MariaDB 10.11.19");
    }
}
