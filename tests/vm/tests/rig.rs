//! The rig checks itself on the NVMe drive that QEMU emulates: what fails here is the rig's fault and no drive's of ours.

use std::fs::File;
use std::time::Duration;

use tests_vm::{Guest, Options, Rig};

const BOUND: Duration = Duration::from_secs(120);

#[test]
fn a_guest_drives_the_emulated_drive_of_qemu() {
    let rig = Rig::locate().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk");
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
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
    let drive = format!(
        "file={},if=none,id=d,format=raw,discard=unmap",
        image.display()
    );
    let options = Options {
        job: Some(job.into()),
        qemu_args: ["-drive", &drive, "-device", "nvme,drive=d,serial=rig-1"]
            .map(Into::into)
            .into(),
        ..Options::default()
    };
    let mut guest = Guest::boot(&rig, &options).unwrap();
    guest.wait_for_line("@@ say ready", BOUND).unwrap();
    guest.send("go").unwrap();
    let report = guest.finish(BOUND).unwrap();
    assert_eq!(report.steps.len(), 11, "{:?}", report.steps);
    assert!(report.text("list").unwrap().contains("rig-1"));
}
