//! `cargo xtask vm`: one guest, for a person at its console or for a job from a file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use guest_rig::lines::NoLine;
use guest_rig::{Boot, Disk, Guest, Kernel, Options, Qemu, Rig, Server, guest};

/// What the guest is given.
#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    /// Serve a drive of this kind to the guest for as long as it runs, such as ram:size=1GiB
    #[arg(long, value_name = "MEDIA")]
    media: Option<String>,
    /// Give the guest the drive that a vfio-user server serves at this socket
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Give the guest a disk of the vhost-user-blk back end at this socket; may be repeated
    #[arg(long, value_name = "PATH")]
    disk: Vec<PathBuf>,
    /// Give the guest QEMU's own NVMe drive on this raw image, to compare with
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Run this shell script (with the functions of crates/guest-rig/guest/steps.sh) instead of a
    /// shell
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// End a guest with a job after this time
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Run the kernel of Debian's backports instead of the release's
    #[arg(long)]
    backports: bool,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Virtual processors
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Give the guest memory that QEMU cannot share, as a person who forgot share=on does
    #[arg(long)]
    private_memory: bool,
    /// Put an IOMMU before the guest's memory; `--append intel_iommu=on` lets its kernel use it
    #[arg(long)]
    iommu: bool,
    /// Let the guest reboot; else a reboot ends it
    #[arg(long)]
    may_reboot: bool,
    /// Further words for the kernel's command line
    #[arg(long, value_name = "WORD")]
    append: Vec<String>,
    /// Further arguments for QEMU
    #[arg(last = true)]
    qemu_args: Vec<OsString>,
}

/// Runs the guest until it turns itself off.
///
/// # Errors
/// Something is missing, the server or QEMU fails, or the job does.
pub(crate) fn run(args: &VmArgs) -> Result<()> {
    let rig = Rig::locate()?;
    let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
    let mut sockets = args.socket.clone();
    let mut server = None;
    if let Some(media) = &args.media {
        let socket = dir.path().join("drive.sock");
        let listen = format!("vfio-user:{}", socket.display());
        server = Some(Server::start(&["--media", media, "--listen", &listen])?);
        sockets.push(socket);
    }
    let mut qemu_args = args.qemu_args.clone();
    if let Some(image) = &args.image {
        let drive = format!(
            "file={},if=none,id=image,format=raw,discard=unmap",
            image.display()
        );
        qemu_args.extend([
            "-drive".into(),
            drive.into(),
            "-device".into(),
            "nvme,drive=image,serial=image".into(),
        ]);
    }
    let job = args.job.as_ref().map(|file| {
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
    });
    let options = Options {
        boot: Boot::Kernel(if args.backports {
            Kernel::Backports
        } else {
            Kernel::Stable
        }),
        job: job.transpose()?,
        memory_mib: args.memory,
        cpus: args.cpus,
        share_memory: !args.private_memory,
        iommu: args.iommu,
        sockets,
        disks: args.disk.iter().map(|socket| disk(socket, args)).collect(),
        qemu: Qemu::Current,
        program: false,
        files: Vec::new(),
        kernel_args: args.append.clone(),
        qemu_args,
        may_reboot: args.may_reboot,
    };
    if options.job.is_some() {
        run_job(&rig, &options, Duration::from_secs(args.seconds))?;
    } else {
        println!("The guest's console; `poweroff -f` turns it off, Ctrl-A X ends QEMU.");
        let status = guest::qemu_command(&rig, &options, dir.path())?.status()?;
        ensure!(status.success(), "QEMU ended with {status}");
    }
    if let Some(server) = server {
        server.stop(Duration::from_secs(10))?;
    }
    Ok(())
}

/// A disk with a queue for each processor, as QEMU gives it to a guest.
fn disk(socket: &Path, args: &VmArgs) -> Disk {
    Disk {
        socket: socket.to_owned(),
        queues: args.cpus,
        packed: false,
    }
}

/// Runs a job, and prints its lines as they come.
fn run_job(rig: &Rig, options: &Options, bound: Duration) -> Result<()> {
    let deadline = Instant::now() + bound;
    let mut guest = Guest::boot(rig, options)?;
    let report = loop {
        match guest.next_line(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => println!("{line}"),
            Err(NoLine::Ended) => break guest.finish(Duration::from_secs(10))?,
            Err(NoLine::Late) => break guest.finish(Duration::ZERO)?,
        }
    };
    if report.steps.is_empty() {
        bail!("the job has no step");
    }
    println!("{}", report.verdict());
    Ok(())
}
