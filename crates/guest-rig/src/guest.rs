//! One guest: QEMU as a child of ours, its terminal, and its end.
//!
//! The kernel's console is the first serial port and goes to a file; the job's terminal is the
//! second and comes to us by a pipe, so that no word of the kernel breaks a line of the job.
//! Invariants: a guest does not outlive its [`Guest`]; every wait has a bound.
//!
//! A guest ends by itself, by its bound, or by [`Guest::kill`]; its devices come and go by
//! [`Guest::ask`].

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::kernel::Kernel;
use crate::lines::{Lines, NoLine, PANIC, tail};
use crate::qemu::{Disk, Qemu};
use crate::{Report, Rig, files, monitor};

/// Source from which a guest starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// This kernel, which QEMU puts into its memory.
    Kernel(Kernel),
    /// The release's kernel, with systemd as the first process and `dpkg` beside it.
    Systemd,
    /// The loader that the UEFI firmware finds on the first drive
    /// ([`Firmware::write_disk`](crate::firmware::Firmware::write_disk)).
    Firmware,
    /// The first block of the first drive, by the BIOS that QEMU brings.
    Bios,
}

/// Configuration of a guest.
#[derive(Debug, Clone)]
pub struct Options {
    /// Source from which it starts.
    pub boot: Boot,
    /// The shell script to run, with the functions of `guest/steps.sh`; without one, a shell for a
    /// person.
    pub job: Option<String>,
    /// Memory in MiB. The file system takes some 150 of them.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
    /// Whether the memory is a memfd that a vfio-user server can map. Without it, QEMU has no
    /// descriptor to share.
    pub share_memory: bool,
    /// Whether an IOMMU stands between the devices and the memory; the kernel uses it where it is
    /// told `intel_iommu=on`.
    pub iommu: bool,
    /// The sockets of vfio-user servers; each becomes a PCI device, the first at 00:10.0, the next
    /// at 00:11.0 and so on.
    pub sockets: Vec<PathBuf>,
    /// Disks that vhost-user-blk back ends serve; each becomes a PCI device, in the slots behind
    /// those of `sockets`.
    pub disks: Vec<Disk>,
    /// The QEMU that runs it.
    pub qemu: Qemu,
    /// Whether our own program is there for the job (`program` in the guest).
    pub program: bool,
    /// Files that the job finds in its folder once it has unpacked them (`files` in the guest).
    pub files: Vec<PathBuf>,
    /// Words for the kernel's command line. Firmware does not know them: they have to be on the
    /// drive that it boots ([`command_line`]).
    pub kernel_args: Vec<String>,
    /// Further arguments for QEMU.
    pub qemu_args: Vec<OsString>,
    /// Whether the guest may reboot; else a reboot ends it. The job starts again after a reboot, so
    /// it has to find out by what is on a drive.
    pub may_reboot: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            boot: Boot::Kernel(Kernel::default()),
            job: None,
            memory_mib: 768,
            cpus: 2,
            share_memory: true,
            iommu: false,
            sockets: Vec::new(),
            disks: Vec::new(),
            qemu: Qemu::default(),
            program: false,
            files: Vec::new(),
            kernel_args: Vec::new(),
            qemu_args: Vec::new(),
            may_reboot: false,
        }
    }
}

const FIRST_SLOT: usize = 0x10;

/// Arguments of every guest's kernel: it skips slow work that does not matter here, and ends at
/// once on a panic. A stall that it notices is a complaint in its log, and so a failure.
const KERNEL_ARGS: &str = "console=ttyS0 loglevel=5 reboot=t panic=-1 mitigations=off apparmor=0 lsm=capability \
     cryptomgr.notests nokaslr random.trust_cpu=on no_timer_check audit=0";

/// The words that the guest's kernel is started with.
#[must_use]
pub fn command_line(options: &Options) -> String {
    let mut line = KERNEL_ARGS.to_owned();
    let terminal = options.job.as_ref().map(|_| "rig.tty=ttyS1".to_owned());
    for word in terminal.iter().chain(&options.kernel_args) {
        line.push(' ');
        line += word;
    }
    line
}

/// The command that starts a guest. Where there is a job, `dir` gets it and the kernel's log, and
/// the job's terminal is the command's standard input and output; else the guest's console is.
///
/// # Errors
/// `dir` cannot be written to, or something has not been fetched.
pub fn qemu_command(rig: &Rig, options: &Options, dir: &Path) -> Result<Command> {
    let mut command = rig.emulator(options.qemu)?.command();
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-cpu",
        "max",
    ]);
    // Asked for by name: a /dev/kvm that answers may still be unable to run a stock kernel.
    command.args(["-accel", "tcg,thread=multi"]);
    let memory = options.memory_mib;
    command.args(["-smp", &options.cpus.to_string(), "-m", &memory.to_string()]);
    if options.share_memory {
        command.args(["-machine", "q35,memory-backend=mem"]);
        command.arg("-object").arg(format!(
            "memory-backend-memfd,id=mem,size={memory}M,share=on"
        ));
    } else {
        command.args(["-machine", "q35"]);
    }
    if options.iommu {
        // Before the devices that it stands before.
        command.args(["-machine", "kernel-irqchip=off"]);
        command.args(["-device", "intel-iommu,intremap=off,caching-mode=on"]);
    }
    match options.boot {
        Boot::Kernel(_) | Boot::Systemd => {
            let kernel = match options.boot {
                Boot::Kernel(kernel) => rig.kernel(kernel)?,
                _ => rig.systemd()?,
            };
            command.arg("-kernel").arg(kernel.image);
            command.arg("-initrd").arg(kernel.initramfs);
            command.arg("-append").arg(command_line(options));
        }
        Boot::Bios => {}
        Boot::Firmware => {
            let firmware = rig.firmware()?;
            let variables = dir.join("variables");
            fs::copy(firmware.variables(), &variables)
                .with_context(|| format!("cannot write {}", variables.display()))?;
            for (flash, how) in [(firmware.code(), "readonly=on,"), (variables, "")] {
                let drive = format!("if=pflash,format=raw,{how}file={}", flash.display());
                command.arg("-drive").arg(drive);
            }
        }
    }
    if let Some(job) = &options.job {
        let file = dir.join("job");
        fs::write(&file, job).with_context(|| format!("cannot write {}", file.display()))?;
        command
            .arg("-fw_cfg")
            .arg(format!("name=opt/nvmirage/job,file={}", file.display()));
        command
            .arg("-serial")
            .arg(format!("file:{}", dir.join(KERNEL_LOG).display()));
        command.args(["-serial", "stdio"]);
    } else {
        command.args(["-serial", "mon:stdio"]);
    }
    if !options.may_reboot {
        command.arg("-no-reboot");
    }
    let boots_from_drive = matches!(options.boot, Boot::Firmware | Boot::Bios);
    for (index, socket) in options.sockets.iter().enumerate() {
        let slot = FIRST_SLOT + index;
        let path = socket.display();
        let boots = index == 0 && boots_from_drive;
        let order = if boots { r#","bootindex":1"# } else { "" };
        command.arg("-device").arg(format!(
            r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}},"bus":"pcie.0","addr":"0x{slot:x}"{order}}}"#
        ));
    }
    for (index, disk) in options.disks.iter().enumerate() {
        ensure!(
            options.share_memory,
            "a vhost-user-blk back end maps the guest's memory: share it (share_memory)"
        );
        let at = options.sockets.len() + index;
        let boots = at == 0 && boots_from_drive;
        command.args(disk.arguments(options.qemu, at, FIRST_SLOT + at, boots));
    }
    if options.program || !options.files.is_empty() {
        let file = dir.join("program");
        if options.program {
            rig.write_program(&file)?;
        } else {
            files::write_files(&options.files, &file)?;
        }
        // In the last slot: the drives under test have theirs from 10h on.
        command.arg("-drive").arg(format!(
            "if=none,id=program,format=raw,readonly=on,file={}",
            file.display()
        ));
        command.args(["-device", "virtio-blk-pci,drive=program,addr=0x1e"]);
    }
    command.args(&options.qemu_args);
    Ok(command)
}

/// The socket of QEMU's monitor.
const MONITOR: &str = "monitor";
const KERNEL_LOG: &str = "kernel.log";
const QEMU_LOG: &str = "qemu.log";

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    input: ChildStdin,
    terminal: Lines,
    dir: Option<TempDir>,
}

impl Guest {
    /// Starts a guest that runs the job of `options`.
    ///
    /// # Errors
    /// There is no job, or QEMU cannot be started.
    pub fn boot(rig: &Rig, options: &Options) -> Result<Self> {
        if options.job.is_none() {
            bail!("a guest without a job is for a person: `cargo xtask vm`");
        }
        let dir = TempDir::with_prefix("nvmirage-vm-")?;
        let monitor = dir.path().join(MONITOR);
        let mut child = qemu_command(rig, options, dir.path())?
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", monitor.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join(QEMU_LOG))?)
            .spawn()
            .context("cannot start QEMU")?;
        let input = child.stdin.take().expect("standard input is a pipe");
        let output = child.stdout.take().expect("standard output is a pipe");
        let terminal = Lines::collect(output);
        Ok(Self {
            child,
            input,
            terminal,
            dir: Some(dir),
        })
    }

    /// QEMU's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of the job that contains `text`, and returns it. Lines up to it are not
    /// looked at again.
    ///
    /// # Errors
    /// The guest ended, or `bound` passed: with the last lines that it printed.
    pub fn wait_for_line(&mut self, text: &str, bound: Duration) -> Result<String> {
        let found = self.terminal.wait_for(text, bound);
        found.map_err(|why| self.error(&format!("no line with {text:?}: {why}")))
    }

    /// Asks QEMU's monitor for something, as `{"execute":…}`, and waits until it is granted.
    ///
    /// # Errors
    /// QEMU refuses, does not answer within `bound`, or has ended.
    pub fn ask(&self, command: &str, bound: Duration) -> Result<()> {
        let dir = self.dir.as_ref().context("the guest's folder is gone")?;
        monitor::ask(&dir.path().join(MONITOR), command, bound)
    }

    /// The next line of the job.
    ///
    /// # Errors
    /// There is none within `bound`.
    pub fn next_line(&mut self, bound: Duration) -> Result<String, NoLine> {
        self.terminal.wait_for("", bound)
    }

    /// Sends a line to the job (`await` in the guest).
    ///
    /// # Errors
    /// The guest has ended.
    pub fn send(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes())?;
        self.input.flush().context("the guest has ended")
    }

    /// Waits until the guest has turned itself off, and returns what its job said.
    ///
    /// # Errors
    /// A step failed, the job did not end well, a kernel panicked, QEMU failed, or `bound` passed
    /// (the guest is killed then): with the step, the last lines of the job and of the kernel, and
    /// the folder with all of them.
    pub fn finish(mut self, bound: Duration) -> Result<Report> {
        if !self.terminal.wait_for_end(bound) {
            self.end();
            let verdict = self.report().verdict();
            return Err(self.error(&format!(
                "the guest did not end within {bound:?}: {verdict}"
            )));
        }
        // QEMU closes its standard output as it exits, so this does not wait for long.
        let status = self.child.wait()?;
        let report = self.report();
        if !report.ok() {
            return Err(self.error(&report.verdict()));
        }
        if !status.success() {
            return Err(self.error(&format!("QEMU ended with {status}")));
        }
        // A guest that may reboot also does so after a panic.
        if self.kernel_log().contains(PANIC) {
            return Err(self.error("the kernel panicked"));
        }
        Ok(report)
    }

    /// Kills QEMU with SIGKILL, and returns what the job had said.
    pub fn kill(mut self) -> Report {
        self.end();
        self.report()
    }

    /// The job's lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.terminal.so_far()
    }

    /// The kernel's log so far.
    #[must_use]
    pub fn kernel_log(&self) -> String {
        self.log(KERNEL_LOG)
    }

    fn report(&self) -> Report {
        Report::parse(&self.terminal.so_far())
    }

    fn log(&self, name: &str) -> String {
        let file = self.dir.as_ref().map(|dir| dir.path().join(name));
        let bytes = file
            .and_then(|file| fs::read(file).ok())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The error, with all that a person needs to see its cause. Keeps the guest's folder.
    fn error(&mut self, what: &str) -> anyhow::Error {
        let mut text = what.to_owned();
        text += &tail("job", &self.lines().join("\n"), 80);
        text += &tail("kernel", &self.log(KERNEL_LOG), 40);
        text += &tail("QEMU", &self.log(QEMU_LOG), 20);
        if let Some(dir) = self.dir.take() {
            let _ = write!(text, "\n--- all of it is in {}", dir.keep().display());
        }
        anyhow!(text)
    }

    fn end(&mut self) {
        // Both fail only where the process has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}
