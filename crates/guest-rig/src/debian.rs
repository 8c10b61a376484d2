//! Packages of Debian, unpacked into a folder of ours: no root, no chroot, nothing installed.
//!
//! A private apt state with an empty list of installed packages makes `apt-get` resolve a package's
//! whole closure, the C library included; each archive is unpacked with `dpkg-deb` and `tar`, and
//! its own dynamic loader runs the programs ([`Program::private`]). apt checks every archive
//! against the keyring that Debian installs.
//!
//! Not included: maintainer scripts, essential packages, and systems other than Debian on x86-64.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::Note;
use crate::sources;

/// The release that guests and their programs come from.
pub const RELEASE: &str = "trixie";
/// Where packages newer than [`RELEASE`]'s come from.
pub const BACKPORTS: &str = "trixie-backports";
/// The suites of [`RELEASE`].
pub const SUITES: &[&str] = &[RELEASE, "trixie-updates", BACKPORTS];
/// The release before [`RELEASE`], and its suites.
pub(crate) const OLDER_RELEASE: &str = "bookworm";
pub(crate) const OLDER_SUITES: &[&str] = &[OLDER_RELEASE, "bookworm-updates"];

const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Whether this machine is a Debian that packages can be fetched on.
#[must_use]
pub fn is_debian() -> bool {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let debian = os.lines().any(|line| line == "ID=debian");
    debian
        && cfg!(target_arch = "x86_64")
        && on_path("apt-get").is_some()
        && on_path("dpkg-deb").is_some()
        && on_path("tar").is_some()
}

/// The full path of `program`, looked for in `PATH`.
#[must_use]
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// A private apt state.
#[derive(Debug)]
pub struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Makes a private state in the folder `dir` and fetches the package lists of `suites`.
    ///
    /// # Errors
    /// No mirror is named in the system's own apt sources, or it cannot be reached.
    pub fn open(dir: PathBuf, suites: &[&str], note: Note<'_>) -> Result<Self> {
        for sub in ["lists/partial", "archives/partial", "parts"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        fs::write(dir.join("status"), "")?;
        let mirror = sources::debian_mirror(Path::new("/etc/apt"))?;
        let keyring = KEYRINGS
            .into_iter()
            .find(|path| Path::new(path).is_file())
            .context("no Debian keyring: install the package debian-archive-keyring")?;
        let list: String = suites
            .iter()
            .map(|suite| format!("deb [arch=amd64 signed-by={keyring}] {mirror} {suite} main\n"))
            .collect();
        fs::write(dir.join("sources.list"), list)?;
        fs::write(dir.join("apt.conf"), configuration(&dir))?;
        let apt = Self { dir };
        note("fetching package lists");
        apt.run("apt-get", &["update"])?;
        Ok(apt)
    }

    /// Fetches `packages` and everything that they depend on, and unpacks all of it into `root`.
    ///
    /// `release` is preferred over the others where it is given, as `apt-get -t` does.
    ///
    /// # Errors
    /// A package is not there, the network fails, or an archive cannot be unpacked.
    pub fn unpack_closure(
        &self,
        release: &str,
        packages: &[&str],
        root: &Path,
        note: Note<'_>,
    ) -> Result<()> {
        note(&format!(
            "fetching {} and what they need",
            packages.join(", ")
        ));
        let mut args = vec![
            "install",
            "--yes",
            "--download-only",
            "--target-release",
            release,
        ];
        args.extend(packages);
        self.run("apt-get", &args)?;
        self.unpack_archives(root, note)
    }

    /// As [`Apt::unpack_closure`] of the release, with the list of installed packages that `dpkg`
    /// reads.
    ///
    /// # Errors
    /// As [`Apt::unpack_closure`].
    pub fn install_closure(&self, packages: &[&str], root: &Path, note: Note<'_>) -> Result<()> {
        note(&format!(
            "fetching {} packages and what they need",
            packages.len()
        ));
        let mut args = vec!["install", "--yes", "--download-only"];
        args.extend(packages);
        self.run("apt-get", &args)?;
        let mut status = String::new();
        let lists = root.join("var/lib/dpkg/info");
        fs::create_dir_all(&lists)?;
        for archive in self.archives()? {
            let output = Command::new("dpkg-deb").arg("-f").arg(&archive).output()?;
            ensure!(output.status.success(), "cannot read {}", archive.display());
            let fields = String::from_utf8(output.stdout)?;
            let name = fields
                .strip_prefix("Package: ")
                .and_then(|rest| rest.lines().next());
            let name = name.context("a package does not begin with its name")?;
            let rest = fields.split_once('\n').map_or("", |(_, rest)| rest);
            status += &format!(
                "Package: {name}\nStatus: install ok installed\n{}\n\n",
                rest.trim_end()
            );
            // which files are whose is of no use here
            fs::write(lists.join(format!("{name}.list")), "")?;
        }
        fs::write(root.join("var/lib/dpkg/status"), status)?;
        self.unpack_archives(root, note)
    }

    /// Fetches `packages` alone, without what they depend on, and unpacks them into `root`.
    ///
    /// # Errors
    /// As [`Apt::unpack_closure`].
    pub fn unpack_alone(&self, packages: &[String], root: &Path, note: Note<'_>) -> Result<()> {
        note(&format!("fetching {}", packages.join(", ")));
        let mut args = vec!["download"];
        args.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &args)?;
        self.unpack_archives(root, note)
    }

    /// The packages that `package` of the suite `suite` depends on. Where one of several will do,
    /// the first is named.
    ///
    /// # Errors
    /// The package is not there.
    pub fn dependencies(&self, package: &str, suite: &str) -> Result<Vec<String>> {
        let text = self.run("apt-cache", &["show", &format!("{package}/{suite}")])?;
        let line = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        // "a (>= 1), b | c"
        let names = line.unwrap_or_default().split(", ");
        let names = names.filter_map(|part| part.split([' ', '(']).next());
        Ok(names.map(str::to_owned).collect())
    }

    /// The first package named `prefix…` that `package` of the suite `suite` depends on: what a
    /// meta package stands for.
    ///
    /// # Errors
    /// The package is not there, or depends on none of that name.
    pub fn first_dependency(&self, package: &str, suite: &str, prefix: &str) -> Result<String> {
        self.dependencies(package, suite)?
            .into_iter()
            .find(|name| name.starts_with(prefix))
            .with_context(|| format!("the package {package} of {suite} depends on no {prefix}"))
    }

    /// Removes the state: what was unpacked stays.
    ///
    /// # Errors
    /// Its folder cannot be removed.
    pub fn close(self) -> Result<()> {
        Ok(fs::remove_dir_all(self.dir)?)
    }

    fn unpack_archives(&self, root: &Path, note: Note<'_>) -> Result<()> {
        let archives = self.archives()?;
        ensure!(!archives.is_empty(), "apt-get fetched nothing");
        let bytes: u64 = archives
            .iter()
            .filter_map(|a| a.metadata().ok())
            .map(|m| m.len())
            .sum();
        note(&format!(
            "unpacking {} packages, {} MB",
            archives.len(),
            bytes / 1_000_000
        ));
        prepare_root(root)?;
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs)
                .map(|job| {
                    let mut mine = archives.iter().skip(job).step_by(jobs);
                    scope.spawn(move || mine.try_for_each(|archive| unpack(archive, root)))
                })
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("an unpacker does not panic"))
        })?;
        archives
            .iter()
            .try_for_each(|archive| Ok(fs::remove_file(archive)?))
    }

    fn archives(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.dir.join("archives"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = Command::new(program)
            .arg("-c")
            .arg(self.dir.join("apt.conf"))
            .args(args)
            .current_dir(self.dir.join("archives")) // where `apt-get download` writes
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .with_context(|| format!("cannot run {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {} failed:\n{}", args.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Makes the links that Debian's essential packages, which are in no closure, would make.
fn prepare_root(root: &Path) -> Result<()> {
    for name in ["bin", "lib", "lib64", "sbin"] {
        let target = format!("usr/{name}");
        fs::create_dir_all(root.join(&target))?;
        if !root.join(name).is_symlink() {
            symlink(target, root.join(name))?;
        }
    }
    Ok(())
}

/// Packages of older releases have folders where [`prepare_root`] has links, which `dpkg-deb -x`
/// would replace: their files go where the links lead.
fn unpack(archive: &Path, root: &Path) -> Result<()> {
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let files = reader.stdout.take().expect("standard output is a pipe");
    let output = Command::new("tar")
        .args(["-xpf", "-", "--keep-directory-symlink", "-C"])
        .arg(root)
        .stdin(files)
        .output();
    let read = reader.wait()?;
    let output = output.context("cannot run tar")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        read.success() && output.status.success(),
        "cannot unpack {}: {}",
        archive.display(),
        said.trim()
    );
    Ok(())
}

/// The private state's configuration. The system's own is read before it, so that a proxy set there
/// counts; hooks set there would act on the system's state, so they are cleared.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "#clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear DPkg::Pre-Invoke;\n\
         #clear DPkg::Post-Invoke;\n\
         Dir::State \"{dir}\";\n\
         Dir::State::lists \"{dir}/lists\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::Cache \"{dir}\";\n\
         Dir::Cache::archives \"{dir}/archives\";\n\
         Dir::Etc \"{dir}\";\n\
         Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
         Dir::Etc::sourceparts \"{dir}/parts\";\n\
         Dir::Etc::preferences \"{dir}/preferences\";\n\
         Dir::Etc::preferencesparts \"{dir}/parts\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures \"amd64\";\n\
         APT::Install-Recommends \"false\";\n\
         APT::Keep-Downloaded-Packages \"true\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Acquire::Retries \"3\";\n"
    )
}

/// How a program is started: the system's own, or one of an unpacked closure.
#[derive(Debug, Clone)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

impl Program {
    /// The program at `path`, started as it is.
    #[must_use]
    pub fn system(path: PathBuf) -> Self {
        Self {
            words: vec![path.into()],
            environment: Vec::new(),
        }
    }

    /// The program at `path` (relative, such as `usr/bin/fio`) of the closure unpacked in `root`,
    /// started by the closure's own dynamic loader and finding only the closure's libraries.
    #[must_use]
    pub fn private(root: &Path, path: &str) -> Self {
        let name = path
            .rsplit('/')
            .next()
            .expect("rsplit yields at least one part");
        Self::private_as(root, path, name)
    }

    /// As [`Program::private`], for a program that does what the name it is called by says.
    #[must_use]
    pub fn private_as(root: &Path, path: &str, name: &str) -> Self {
        let mut words = loader(root);
        words.extend(["--argv0".into(), name.into(), root.join(path).into()]);
        // QEMU looks for its modules (block drivers, accelerators) beside the system's libraries
        // unless this variable names their folder.
        let modules = root.join(LIBRARIES).join("qemu").into();
        Self {
            words,
            environment: vec![("QEMU_MODULE_DIR", modules)],
        }
    }

    /// Adds an argument that always comes first.
    #[must_use]
    pub fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.words.push(argument.into());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// A command that runs this program; arguments are added to it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .envs(self.environment.iter().map(|(k, v)| (k, v)));
        command
    }
}

/// The libraries that the program at `path` of the closure in `root` is loaded with, all inside
/// `root`, without the loader.
///
/// # Errors
/// A library is missing from the closure.
pub fn libraries(root: &Path, path: &str) -> Result<Vec<PathBuf>> {
    let words = loader(root);
    let output = Command::new(&words[0])
        .args(&words[1..])
        .args(["--inhibit-cache", "--list"])
        .arg(root.join(path))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cannot list the libraries of {path}: {}",
        said.trim()
    );
    let mut found = Vec::new();
    for line in text.lines() {
        // "libc.so.6 => /…/libc.so.6 (0x…)"; the vdso and the loader come without an arrow.
        let Some((name, file)) = line.split_once(" => ") else {
            continue;
        };
        let file = Path::new(
            file.split(" (")
                .next()
                .expect("split yields at least one part"),
        );
        ensure!(
            file.starts_with(root),
            "{} of {path} is not in the closure",
            name.trim()
        );
        found.push(file.to_owned());
    }
    Ok(found)
}

/// The command line that starts the closure's dynamic loader.
fn loader(root: &Path) -> Vec<OsString> {
    let libraries = root.join(LIBRARIES);
    // librados finds its own common library by a path in the file, which names the system's folder.
    let mut search = libraries.clone().into_os_string();
    search.push(":");
    search.push(libraries.join("ceph"));
    vec![
        libraries.join(LOADER).into(),
        "--library-path".into(),
        search,
    ]
}

/// The file name of the dynamic loader.
pub(crate) const LOADER: &str = "ld-linux-x86-64.so.2";
