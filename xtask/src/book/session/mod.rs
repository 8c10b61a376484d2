//! A page's blocks, run in order by one shell in a fresh folder.
//!
//! Folders that the page names by their absolute paths (`/tmp/nvme.sock`) lie in the page's own
//! folder while it is run, so that pages run beside each other and touch no file of the machine's:
//! the text of a block is changed for that, and what comes back is changed again. The shell leads a
//! process group, and no process of it outlives the page. Every block has a bound.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use guest_rig::lines::{Lines, NoLine};
use rustix::process::{Pid, Signal, kill_process_group};

use super::page::{Block, Commands, Kind, Page};
use super::{guest, output};
use crate::process::Interrupt;
use crate::workspace::Workspace;

/// How long a block may take, and one that is typed into a guest, which may have to boot first.
const BOUND: Duration = Duration::from_secs(60);
const GUEST_BOUND: Duration = Duration::from_secs(180);
/// How long servers and guests may take to end.
const END: Duration = Duration::from_secs(30);
/// How often an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Folders of the machine that a page has its own of.
const FOLDERS: &[&str] = &["/mnt", "/run", "/tmp", "/var/lib/nvmirage", "/var/log"];

const PRELUDE: &str = include_str!("../session.sh");

/// What pages are run with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct With<'a> {
    /// The project, whose tools are on the `PATH`.
    pub(crate) workspace: &'a Workspace,
    /// The program that the book is about.
    pub(crate) program: &'a Path,
    /// Ends a page early.
    pub(crate) interrupt: &'a Interrupt,
}

/// What became of a page.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Blocks of commands that were run.
    pub(crate) commands: u32,
    /// Configurations and other files that were checked.
    pub(crate) checked: u32,
    /// Outputs that were compared.
    pub(crate) outputs: u32,
    /// What was not run: where, and why.
    pub(crate) not_run: Vec<(String, String)>,
    /// What went wrong: where, and all that is needed to see why.
    pub(crate) failures: Vec<String>,
}

/// Runs a page; blocks after one that fails are not run.
///
/// # Errors
/// Its folder cannot be made, the shell cannot be started, or we are asked to stop.
pub(crate) fn run(page: &Page, with: With<'_>) -> Result<Ran> {
    let mut ran = Ran::default();
    for block in &page.blocks {
        match &block.kind {
            Kind::NotRun(reason) => ran.not_run.push((place(page, block), reason.clone())),
            Kind::Json => match serde_json::from_str::<serde_json::Value>(&block.text) {
                Ok(_) => ran.checked += 1,
                Err(error) => ran
                    .failures
                    .push(format!("{}: is no JSON: {error}", place(page, block))),
            },
            _ => {}
        }
    }
    let is_run = |block: &Block| {
        matches!(
            block.kind,
            Kind::Commands(_) | Kind::Configuration { .. } | Kind::File(_)
        )
    };
    if page.blocks.iter().any(is_run) {
        Session::start(page, with)?.run(&mut ran)?;
    }
    Ok(ran)
}

/// Where a block is.
fn place(page: &Page, block: &Block) -> String {
    format!("{}:{}", page.name, block.line)
}

/// A page that is being run.
struct Session<'a> {
    page: &'a Page,
    with: With<'a>,
    folder: tempfile::TempDir,
    shell: Child,
    lines: Lines,
}

impl<'a> Session<'a> {
    fn start(page: &'a Page, with: With<'a>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("book-").tempdir()?;
        let root = folder.path();
        for name in ["bin", "blocks", "here", "home", "out", "state"] {
            fs::create_dir(root.join(name))?;
        }
        for name in FOLDERS {
            fs::create_dir_all(inside(root, name))?;
        }
        fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o700))?;
        let program = fs::canonicalize(with.program)
            .with_context(|| format!("there is no {}", with.program.display()))?;
        symlink(program, root.join("bin/nvmirage"))?;
        // who reads the book has a clone of the project
        symlink(&with.workspace.root, root.join("home/nvmirage"))?;
        if page.blocks.iter().any(needs_guest) {
            guest::prepare(root)?;
        }
        if page
            .blocks
            .iter()
            .any(|block| block.text.contains("virt-xml-validate"))
        {
            guest::prepare_libvirt(root)?;
        }
        let script = root.join("script");
        fs::write(&script, script_of(page, root)?)?;
        let mut command = with.workspace.command("bash".as_ref())?;
        let path = command
            .get_envs()
            .find_map(|(name, value)| (name == "PATH").then_some(value).flatten())
            .map(std::ffi::OsStr::to_owned)
            .context("a command has a PATH")?;
        let mut folders = vec![root.join("bin")];
        folders.extend(std::env::split_paths(&path));
        let mut shell = command
            .arg(&script)
            .arg(root)
            .current_dir(root.join("here"))
            .env("PATH", std::env::join_paths(folders)?)
            .env("HOME", root.join("home"))
            .env("TMPDIR", root.join("tmp"))
            .env("XDG_RUNTIME_DIR", root.join("run"))
            .env("XDG_STATE_HOME", root.join("state"))
            .env_remove("XDG_CACHE_HOME")
            .env_remove("NVMIRAGE_CONTROL")
            .env_remove("NVMIRAGE_LOG")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(root.join("out/shell"))?)
            .process_group(0)
            .spawn()
            .context("cannot run bash")?;
        let output = shell.stdout.take().context("its output is a pipe")?;
        Ok(Self {
            page,
            with,
            folder,
            shell,
            lines: Lines::collect(output),
        })
    }

    fn run(mut self, ran: &mut Ran) -> Result<()> {
        // what an output is compared with
        let mut last = None;
        for (number, block) in self.page.blocks.iter().enumerate() {
            match &block.kind {
                Kind::Commands(_) | Kind::Configuration { .. } | Kind::File(_) => {
                    let bound = if needs_guest(block) {
                        GUEST_BOUND
                    } else {
                        BOUND
                    };
                    if let Err(why) = self.wait(&number.to_string(), bound)? {
                        ran.failures.push(self.failure(number, block, &why));
                        return Ok(());
                    }
                    match &block.kind {
                        Kind::Commands(commands) if !commands.hidden => ran.commands += 1,
                        Kind::Configuration { .. } => ran.checked += 1,
                        _ => {}
                    }
                    if matches!(block.kind, Kind::Commands(_)) {
                        last = Some(number);
                    }
                }
                Kind::Output { numbers_vary } => {
                    let came = last.map(|number| self.came(number)).unwrap_or_default();
                    match output::compare(&block.text, &came, *numbers_vary) {
                        Ok(()) => ran.outputs += 1,
                        Err(line) => ran.failures.push(format!(
                            "{}: is not what comes, from the line `{line}` on:\n{came}",
                            place(self.page, block)
                        )),
                    }
                }
                Kind::NotRun(_) | Kind::Json | Kind::Shown => {}
            }
        }
        if let Err(why) = self.wait("end", END)? {
            let said = fs::read_to_string(self.folder.path().join("out/end")).unwrap_or_default();
            let outputs = self.outputs();
            ran.failures.push(format!(
                "{}: its end: {why}\n{said}{outputs}",
                self.page.name
            ));
        }
        Ok(())
    }

    /// Waits until the shell is done with a block; else why it is not.
    fn wait(&mut self, block: &str, bound: Duration) -> Result<Result<(), String>> {
        let deadline = Instant::now() + bound;
        let text = format!("@@ end {block}.");
        loop {
            if self.with.interrupt.is_set() {
                bail!("interrupted");
            }
            match self.lines.wait_for(&text, LOOK) {
                Ok(_) => return Ok(Ok(())),
                Err(NoLine::Ended) => {
                    let status = self.shell.wait()?;
                    return Ok(Err(format!("it failed ({status})")));
                }
                Err(NoLine::Late) if Instant::now() >= deadline => {
                    return Ok(Err(format!("it did not end within {bound:?}")));
                }
                Err(NoLine::Late) => {}
            }
        }
    }

    /// What a block printed: the commands that were run, or the server where there is nothing else.
    fn came(&self, number: usize) -> String {
        let out = self.folder.path().join("out");
        let read = |name: String| fs::read_to_string(out.join(name)).unwrap_or_default();
        let text = read(number.to_string());
        let text = if text.is_empty() {
            read(format!("{number}.server"))
        } else {
            text
        };
        self.as_shown(&text)
    }

    /// The text with the page's folders called as the page calls them.
    fn as_shown(&self, text: &str) -> String {
        let root = self.folder.path().display().to_string();
        text.replace(&root, "")
    }

    fn failure(&self, number: usize, block: &Block, why: &str) -> String {
        let root = self.folder.path();
        let command = fs::read_to_string(root.join("command")).unwrap_or_default();
        let mut text = format!("{}: {why}", place(self.page, block));
        if !command.trim().is_empty() {
            let _ = write!(text, ", at: {}", self.as_shown(command.trim()));
        }
        let _ = write!(
            text,
            "\n{}--- it printed\n{}",
            indented(&block.text),
            self.came(number)
        );
        text += &self.outputs();
        text
    }

    /// What the shell and servers of the page have printed, the last lines of each.
    fn outputs(&self) -> String {
        let out = self.folder.path().join("out");
        let mut text = String::new();
        let mut names: Vec<_> = fs::read_dir(&out)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name == "shell" || name.ends_with(".server"))
            .collect();
        names.sort();
        for name in names {
            let said = fs::read_to_string(out.join(&name)).unwrap_or_default();
            let lines: Vec<_> = said.lines().collect();
            let tail = lines[lines.len().saturating_sub(30)..].join("\n");
            if !tail.is_empty() {
                let _ = write!(text, "\n--- {name} printed\n{}", self.as_shown(&tail));
            }
        }
        text
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let group = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // fails where no process of the group is left
            let _ = kill_process_group(group, Signal::KILL);
        }
        // fails only where it has already been waited for
        let _ = self.shell.wait();
    }
}

/// Whether a block has to do with a guest.
fn needs_guest(block: &Block) -> bool {
    match &block.kind {
        Kind::Commands(commands) => {
            commands.guest.is_some() || block.text.contains("qemu-system-x86_64 ")
        }
        _ => false,
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The page's own folder in place of one of the machine's.
fn inside(root: &Path, folder: &str) -> PathBuf {
    root.join(folder.trim_start_matches('/'))
}

/// The text with folders of the machine replaced by the page's own.
fn in_own_folders(text: &str, root: &Path) -> String {
    let root = root.display().to_string();
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    'next: while let Some(at) = rest.find('/') {
        let (before, after) = rest.split_at(at);
        whole += before;
        let last = whole.chars().next_back();
        // a path begins here, which is not the middle of a longer one
        let begins = !last.is_some_and(|c| c.is_alphanumeric() || "_-.~}/".contains(c));
        for folder in FOLDERS.iter().filter(|_| begins) {
            if let Some(behind) = after.strip_prefix(folder)
                && !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-')
            {
                whole += &root;
                whole += folder;
                rest = behind;
                continue 'next;
            }
        }
        whole.push('/');
        rest = &after[1..];
    }
    whole + rest
}

/// The script that runs a page, and the files of its blocks.
fn script_of(page: &Page, root: &Path) -> Result<String> {
    let mut script = PRELUDE.to_owned();
    for (number, block) in page.blocks.iter().enumerate() {
        let text = in_own_folders(&block.text, root);
        let file = root.join(format!("blocks/{number}"));
        let body = match &block.kind {
            Kind::Commands(commands) => {
                let (server, rest) = match &commands.background {
                    Some(_) => first_command(&text),
                    None => ("", text.as_str()),
                };
                fs::write(file.with_extension("server"), server)?;
                // a guest has folders of its own
                let is_guest = commands.guest.is_some();
                fs::write(&file, if is_guest { &block.text } else { rest })?;
                body_of(number, commands)
            }
            Kind::Configuration { before, file: name } => {
                fs::write(&file, in_own_folders(before, root) + &text)?;
                configuration(number, &text, name.as_deref())
            }
            Kind::File(name) => {
                fs::write(&file, &text)?;
                format!("cp \"$page/blocks/{number}\" '{name}'\n")
            }
            Kind::NotRun(_) | Kind::Json | Kind::Output { .. } | Kind::Shown => continue,
        };
        let _ = write!(script, "begin {number}\n{body}echo '@@ end {number}.'\n");
    }
    script += "begin end\nfinish >\"$page/out/end\" 2>&1\necho '@@ end end.'\n";
    Ok(script)
}

fn body_of(number: usize, commands: &Commands) -> String {
    let block = format!("\"$page/blocks/{number}\"");
    let out = format!("\"$page/out/{number}\"");
    let mut body = String::new();
    if let Some(until) = &commands.background {
        let until = until.replace('\'', r"'\''");
        let _ = write!(
            body,
            "(trap : TERM; . \"$page/blocks/{number}.server\") >\"$page/out/{number}.server\" 2>&1 &\n\
             servers+=($!)\n\
             await \"$page/out/{number}.server\" '{until}' $!\n"
        );
    }
    let _ = match (commands.guest, commands.fails) {
        (Some(guest), false) => writeln!(body, "guest {guest} {block} >{out} 2>&1"),
        (Some(guest), true) => writeln!(
            body,
            "if guest {guest} {block} >{out} 2>&1; then echo 'this should have failed' >>{out}; exit 1; fi"
        ),
        (None, true) => writeln!(body, "fails {block} >{out} 2>&1"),
        (None, false) => writeln!(body, ". {block} >{out} 2>&1"),
    };
    body
}

/// What checks a configuration, or a description of a drive.
fn configuration(number: usize, text: &str, name: Option<&str>) -> String {
    let file = name.map_or_else(|| format!("block-{number}.toml"), str::to_owned);
    let command = if text.trim_start().starts_with("nvmirage_preset") {
        "explain"
    } else {
        "check"
    };
    let keep = match name {
        Some(_) => "",
        None => &format!("rm '{file}'\n"),
    };
    // a preset's name is that of a file where it has a slash
    format!(
        "cp \"$page/blocks/{number}\" '{file}'\nnvmirage {command} './{file}' >\"$page/out/{number}\" 2>&1\n{keep}"
    )
}

/// The first command of a block, with its continued lines, and the rest.
fn first_command(text: &str) -> (&str, &str) {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let code = line.trim();
        if !code.is_empty() && !code.starts_with('#') && !code.ends_with('\\') {
            break;
        }
    }
    text.split_at(end)
}

#[cfg(test)]
mod tests;
