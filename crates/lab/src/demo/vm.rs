//! `nvmirage demo --vm`: a stock Debian guest on the demo's drives.
//!
//! The parts of the guest (QEMU if the system's is too old, a kernel, programs) are downloaded once
//! from Debian's packages into the user's cache. QEMU emulates the processor, so that no privilege
//! is needed: the guest shows that the drives work, not how fast.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use guest_rig::lines::NoLine;
use guest_rig::{Guest, Options, Report, Rig};
use serde::Serialize;
use terminal::interrupt::Interrupt;
use terminal::progress;

use super::configuration;
use super::server::Server;

/// Time limit of the guest.
const BOUND: Duration = Duration::from_secs(240);
/// Interval of checks for an interrupt while the guest prints nothing.
const LOOK: Duration = Duration::from_millis(200);
/// The drives, as the guest names them.
const DRIVES: [&str; 2] = ["nvme0n1", "nvme1n1"];

/// Script of the guest, with the functions of the rig's `steps.sh`.
const JOB: &str = "\
for drive in nvme0n1 nvme1n1; do
    step \"find-$drive\" appears /dev/$drive
done
tell list nvme list
for drive in nvme0n1 nvme1n1; do
    step \"format-$drive\" mkfs.ext4 -q /dev/$drive
    step \"mount-$drive\" mount -t ext4 /dev/$drive /mnt
    step \"fio-$drive\" fio --name=verify --directory=/mnt --size=24m --rw=randwrite --bs=4k \\
        --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --do_verify=1 --verify_fatal=1 \\
        --output=/tmp/fio.txt
    tell \"fio-$drive\" grep -E 'read:|write:|err=' /tmp/fio.txt
    step \"unmount-$drive\" umount /mnt
    step \"check-$drive\" fsck.ext4 -fn /dev/$drive
done
step quiet no_complaints
";

/// Results of the guest.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    /// Every step, in order; all of them succeeded.
    pub(super) steps: Vec<String>,
    /// Output of `nvme list`.
    pub(super) nvme_list: String,
    /// Output of fio for each drive.
    pub(super) fio: Vec<(&'static str, String)>,
}

/// Boots the guest on the drives of a server in `dir`.
pub(super) fn run_in(dir: &Path, interrupt: &Interrupt) -> anyhow::Result<Seen> {
    let rig = Rig::prepare(&mut |line| progress::note(&format!("setting up: {line}")))
        .context("the guest's parts cannot be put together")?;
    // a polling reactor would take a CPU from the guest
    let config = configuration(dir, None)?;
    let server = Server::start(&config, dir)?;
    let sockets = config
        .controller
        .iter()
        .filter_map(|c| c.listen.path().map(Path::to_owned))
        .collect();
    progress::note(&format!(
        "server: process {}; booting a Debian guest with both drives, its processor emulated by QEMU",
        server.id()
    ));
    let options = Options {
        job: Some(JOB.to_owned()),
        sockets,
        ..Options::default()
    };
    let report = watch(Guest::boot(&rig, &options)?, interrupt)
        .with_context(|| format!("the guest failed{}", server.last_words()))?;
    server.stop()?;
    seen(&report)
}

/// Prints the guest's steps as they come.
fn watch(mut guest: Guest, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let deadline = Instant::now() + BOUND;
    loop {
        ensure!(!interrupt.is_set(), "interrupted; everything is removed");
        match guest.next_line(LOOK) {
            Ok(line) => {
                if let Some(step) = line.strip_prefix("@@ step ") {
                    progress::note(&format!("guest: {step}"));
                }
            }
            Err(NoLine::Ended) => return guest.finish(LOOK),
            Err(NoLine::Late) if Instant::now() < deadline => {}
            Err(NoLine::Late) => return guest.finish(Duration::ZERO),
        }
    }
}

fn seen(report: &Report) -> anyhow::Result<Seen> {
    let text = |name: &str| match report.text(name) {
        Some(text) => Ok(text.trim_end().to_owned()),
        None => bail!("the guest did not tell {name}"),
    };
    let mut fio = Vec::new();
    for drive in DRIVES {
        fio.push((drive, text(&format!("fio-{drive}"))?));
    }
    Ok(Seen {
        steps: report.steps.iter().map(|step| step.name.clone()).collect(),
        nvme_list: text("list")?,
        fio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_tells_is_what_is_shown() {
        let lines = [
            "@@ step format-nvme0n1 ok 1 s",
            "@@ tell list Node  SN",
            "@@ tell list /dev/nvme0n1 X",
            "@@ tell fio-nvme0n1   write: IOPS=5",
            "@@ tell fio-nvme1n1   write: IOPS=6",
        ];
        let seen = seen(&Report::parse(&lines)).unwrap();
        assert_eq!(seen.steps, ["format-nvme0n1"]);
        assert_eq!(seen.nvme_list, "Node  SN\n/dev/nvme0n1 X");
        assert_eq!(seen.fio[1], ("nvme1n1", "  write: IOPS=6".to_owned()));
        assert!(super::seen(&Report::parse(&lines[..3])).is_err());
    }

    #[test]
    fn the_job_names_the_drives_that_are_asked_for() {
        for drive in DRIVES {
            assert!(JOB.contains(drive));
        }
    }
}
