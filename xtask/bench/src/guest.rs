//! One guest with QEMU's `nvme`, its virtio-blk, and our drives in three ways to ring: all of them
//! files in memory, read in turn by the guest's own fio.
//!
//! QEMU emulates the processor here, and the guest and all servers share the machine: this compares
//! drives inside one guest; the results do not apply to guests on hardware.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use guest_rig::lines::NoLine;
use guest_rig::{Guest, Options, Report, Rig, Server};

use super::fio;
use super::sample::{Results, Subject};

const JOB: &str = include_str!("guest.sh");
/// Drives, by what their serial numbers say, and what they are called.
const DRIVES: [(&str, &str); 5] = [
    ("qemu-nvme", "guest: QEMU nvme"),
    ("virtio-blk", "guest: virtio-blk"),
    ("mapped", "guest: nvmirage mapped"),
    ("shadow", "guest: nvmirage shadow"),
    ("trapped", "guest: nvmirage trapped"),
];
const DEPTHS: [u64; 2] = [1, 32];
/// Bytes of each drive.
const LEN: usize = 64 << 20;
/// How much longer than its work a guest may take: booting, and starting fio without a fast
/// processor.
const SLACK: Duration = Duration::from_secs(120);

/// Boots the guest, and takes what it tells.
pub(super) fn measure(
    rig: &Rig,
    memory: &Path,
    (rounds, seconds): (u32, u32),
    results: &mut Results,
) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("nvmirage-")
        .tempdir_in(memory)?;
    let content: Vec<u8> = (0..LEN)
        .map(|at| (at / 4096 + at).to_le_bytes()[0])
        .collect();
    for (drive, _) in DRIVES {
        fs::write(dir.path().join(drive), &content)?;
    }
    let config = dir.path().join("config.toml");
    fs::write(&config, configuration(dir.path()))?;
    let mut server = Server::start(&["--config".as_ref(), config.as_os_str()])?;
    let ours = ["mapped", "shadow", "trapped"];
    for _ in 1..ours.len() {
        server.wait_for_line("ready: ", SLACK)?;
    }
    let file = |name: &str| dir.path().join(name).display().to_string();
    let drive = |id: &str| format!("file={},if=none,id={id},format=raw", file(id)).into();
    let options = Options {
        job: Some(job(rounds, seconds)),
        sockets: ours
            .map(|name| dir.path().join(format!("{name}.sock")))
            .to_vec(),
        qemu_args: vec![
            "-drive".into(),
            drive("qemu-nvme"),
            "-device".into(),
            "nvme,drive=qemu-nvme,serial=qemu-nvme".into(),
            "-drive".into(),
            drive("virtio-blk"),
            "-device".into(),
            "virtio-blk-pci,drive=virtio-blk".into(),
        ],
        ..Options::default()
    };
    let cases = u32::try_from(DRIVES.len() * DEPTHS.len())?;
    let bound = SLACK + Duration::from_secs(u64::from(rounds * cases * (seconds + 8)));
    let mut messages = Messages::new(dir.path());
    let report = run(rig, &options, rounds, bound, &mut messages)?;
    server.stop(Duration::from_secs(20))?;
    take(&report, seconds, &messages, results);
    Ok(())
}

/// Doorbells of the guest that came as messages, as our server counts them.
struct Messages {
    /// The server's control socket.
    control: String,
    before: BTreeMap<String, u64>,
    /// Those of each round of a case, `DRIVE-DEPTH`, of our drives.
    of_cases: BTreeMap<String, Vec<u64>>,
}

impl Messages {
    fn new(dir: &Path) -> Self {
        Messages {
            control: format!("unix:{}", dir.join("control").display()),
            before: BTreeMap::new(),
            of_cases: BTreeMap::new(),
        }
    }

    /// A case has ended: takes what was counted since the one before.
    fn look(&mut self, case: &str) -> Result<()> {
        let program = guest_rig::server::program()?;
        let listed = Command::new(program)
            .args(["ls", "--json", "--control", &self.control])
            .output()?;
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
        for controller in listed["controllers"].as_array().into_iter().flatten() {
            let name = controller["name"].as_str().unwrap_or_default();
            let count = controller["doorbell_messages"].as_u64().unwrap_or(0);
            let before = self.before.insert(name.to_owned(), count).unwrap_or(0);
            if case
                .rsplit_once('-')
                .is_some_and(|(drive, _)| drive == name)
            {
                let rounds = self.of_cases.entry(case.to_owned()).or_default();
                rounds.push(count.saturating_sub(before));
            }
        }
        Ok(())
    }
}

/// Runs the guest, and says which round it is in.
fn run(
    rig: &Rig,
    options: &Options,
    rounds: u32,
    bound: Duration,
    messages: &mut Messages,
) -> Result<Report> {
    let deadline = Instant::now() + bound;
    let mut guest = Guest::boot(rig, options)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match guest.next_line(left) {
            Ok(line) => {
                if let Some(case) = line.strip_prefix("@@ say case ") {
                    messages.look(case)?;
                } else if let Some(round) = line.strip_prefix("@@ say ") {
                    eprintln!("guest: {round} of {rounds} is done");
                }
            }
            Err(NoLine::Ended) => return guest.finish(Duration::from_secs(20)),
            Err(NoLine::Late) => return guest.finish(Duration::ZERO),
        }
    }
}

fn job(rounds: u32, seconds: u32) -> String {
    let depths = DEPTHS.map(|depth| depth.to_string()).join(" ");
    JOB.replace("ROUNDS", &rounds.to_string())
        .replace("SECONDS", &seconds.to_string())
        .replace("DEPTHS", &depths)
        .replace("DRIVES", &DRIVES.map(|(drive, _)| drive).join(" "))
}

/// A server that sleeps where it can: one that polled would leave the guest's processors too
/// little.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    let mut text = format!(
        "state_dir = \"{dir}/state\"\ncontrol = \"unix:{dir}/control\"\n[[reactor]]\nmode = \"adaptive\"\n"
    );
    for (name, doorbells) in [
        ("mapped", "mapped"),
        ("shadow", "unmapped"),
        ("trapped", "trapped"),
    ] {
        text += &format!(
            "[[media]]\nname = \"{name}\"\nkind = \"file\"\npath = \"{dir}/{name}\"\n\
             [[namespace]]\nname = \"{name}\"\nmedia = \"{name}\"\n\
             [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nserial = \"{name}\"\n\
             listen = \"vfio-user:{dir}/{name}.sock\"\ndoorbells = \"{doorbells}\"\n"
        );
    }
    text
}

/// Takes the figures of every drive; one that told none is a failure of its own.
fn take(report: &Report, seconds: u32, messages: &Messages, results: &mut Results) {
    for depth in DEPTHS {
        for (drive, name) in DRIVES {
            let case = format!("{drive}-{depth}");
            let text = report.text(&case).unwrap_or_default();
            let subject = Subject::new(name, "randread", depth);
            let of_case = |round: usize, iops: f64| {
                let messages = *messages.of_cases.get(&case)?.get(round)?;
                Some(messages as f64 / (iops * f64::from(seconds)))
            };
            if let Err(error) = take_one(text, &subject, of_case, results) {
                results
                    .failures
                    .insert(name.to_owned(), format!("{error:#}"));
            }
        }
    }
}

fn take_one(
    text: &str,
    subject: &Subject,
    messages: impl Fn(usize, f64) -> Option<f64>,
    results: &mut Results,
) -> Result<()> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("3;")).collect();
    ensure!(!lines.is_empty(), "fio told nothing: {}", text.trim());
    for (round, line) in lines.into_iter().enumerate() {
        let mut sample = fio::parse(line)?;
        sample.messages = messages(round, sample.iops);
        sample.placement = "unknown".into();
        results.add(subject.clone(), sample);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_has_every_drive_and_depth() {
        let job = job(7, 2);
        assert!(
            job.contains("in $(seq 7)") && job.contains("--runtime=2 "),
            "{job}"
        );
        assert!(job.contains("for depth in 1 32;"), "{job}");
        assert!(
            job.contains("in qemu-nvme virtio-blk mapped shadow trapped;"),
            "{job}"
        );
    }

    #[test]
    fn a_drive_that_tells_nothing_fails_alone() {
        let report = Report::parse(&["@@ tell virtio-blk-1 exit status 1", "@@ end 0"]);
        let mut results = Results::default();
        take(&report, 1, &Messages::new(Path::new("/")), &mut results);
        assert!(results.series.is_empty());
        assert_eq!(results.failures.len(), 5);
        assert!(
            results.failures["guest: virtio-blk"].contains("exit status 1")
                || results.failures["guest: virtio-blk"].contains("told nothing")
        );
    }
}
