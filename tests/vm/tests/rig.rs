//! The rig checks itself, on the NVMe drive that QEMU emulates and on guests that go wrong: what
//! fails here is the rig's fault and no drive's of ours.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use guest_rig::{Guest, Options, Rig};
use tempfile::TempDir;

const BOUND: Duration = Duration::from_secs(120);

/// Boots a guest that runs `job`.
fn boot(job: &str, options: Options) -> Guest {
    let rig = Rig::locate().expect("the rig is set up");
    Guest::boot(
        &rig,
        &Options {
            job: Some(job.into()),
            ..options
        },
    )
    .expect("QEMU starts")
}

/// Options with an empty emulated drive, which lives as long as the folder.
fn with_drive() -> (TempDir, Options) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let image = dir.path().join("disk");
    File::create(&image)
        .and_then(|file| file.set_len(256 << 20))
        .expect("an image");
    let drive = format!(
        "file={},if=none,id=d,format=raw,discard=unmap",
        image.display()
    );
    let args = ["-drive", &drive, "-device", "nvme,drive=d,serial=rig-1"];
    (
        dir,
        Options {
            qemu_args: args.map(Into::into).into(),
            ..Options::default()
        },
    )
}

#[test]
fn a_guest_drives_the_emulated_drive_of_qemu() {
    let job = r#"
        step appears appears /dev/nvme0n1
        tell list nvme list -o json
        step pci sh -c 'lspci -n | grep " 0108: "'
        step fio fio --name=v --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=8 \
            --rw=randwrite --bs=4k --size=16m --verify=crc32c --do_verify=1 --verify_fatal=1
        step mkfs mkfs.ext4 -q /dev/nvme0n1
        step mount mount -t ext4 /dev/nvme0n1 /mnt
        step fill dd if=/dev/urandom of=/mnt/f bs=1M count=8
        step unmount umount /mnt
        step fsck fsck.ext4 -fn /dev/nvme0n1
        step discard blkdiscard /dev/nvme0n1
        step quiet no_complaints
        say ready
        await go
        step bye true
    "#;
    let (_dir, options) = with_drive();
    let mut guest = boot(job, options);
    guest.wait_for_line("@@ say ready", BOUND).unwrap();
    guest.send("go").unwrap();
    let report = guest.finish(BOUND).unwrap();
    assert_eq!(report.steps.len(), 11, "{:?}", report.steps);
    assert!(report.text("list").unwrap().contains("rig-1"));
}

#[test]
fn a_guest_reboots_where_it_may() {
    let job = r#"
        step appears appears /dev/nvme0n1
        if [ "$(head -c 5 /dev/nvme0n1)" = again ]; then
            step second true
        else
            step mark sh -c 'echo again | dd of=/dev/nvme0n1 bs=512 conv=sync,fsync'
            reboot -f
        fi
    "#;
    let (_dir, options) = with_drive();
    let report = boot(
        job,
        Options {
            may_reboot: true,
            ..options
        },
    )
    .finish(BOUND)
    .unwrap();
    let names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["appears", "mark", "appears", "second"]);
}

#[test]
fn a_failed_step_ends_the_job_and_shows_why() {
    // Any command of a step may fail, not only its last.
    let job =
        "bad() {\n echo what went wrong\n (exit 3)\n true\n}\nstep bad bad\nstep after true\n";
    let error = boot(job, Options::default())
        .finish(BOUND)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("step bad failed: exit status 3"),
        "{error}"
    );
    assert!(error.contains("what went wrong"), "{error}");
    assert!(!error.contains("begin after"), "{error}");
}

#[test]
fn a_guest_that_hangs_is_ended() {
    let mut guest = boot("step hang sleep 1000\n", Options::default());
    guest.wait_for_line("@@ begin hang", BOUND).unwrap();
    let process = format!("/proc/{}", guest.pid());
    assert!(Path::new(&process).exists());
    let late = guest
        .wait_for_line("never said", Duration::from_millis(100))
        .unwrap_err();
    assert!(late.to_string().contains("the bound passed"), "{late}");
    let error = guest
        .finish(Duration::from_secs(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("did not end within 1s: step hang did not end"),
        "{error}"
    );
    assert!(!Path::new(&process).exists());
}

#[test]
fn a_panic_of_the_kernel_is_an_error_at_once() {
    let job = "step panic sh -c 'echo c >/proc/sysrq-trigger; sleep 1000'\n";
    let error = boot(job, Options::default())
        .finish(BOUND)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("step panic did not end"), "{error}");
    assert!(error.contains("Kernel panic"), "{error}");
}
