//! Clones on a file system that shares blocks between files: XFS, in a file of its own, mounted in
//! a view of the file systems of its own. That takes rights; what a user without them meets is a
//! copy, or whatever the file system of the tests does.

use std::process::Command;

use crate::world::{World, ran};

/// Exit status of the script where this user may not mount.
const NO_RIGHTS: i32 = 77;

/// Makes the file system, a medium with the state of its timing, and their clone; then writes to
/// the one and the other.
const SCRIPT: &str = r#"
set -eu
PATH=$PATH:/usr/sbin:/sbin
truncate -s 512M disk.xfs
mkdir mounted
# Without rights this fails; with them the next one must not.
losetup --find >/dev/null 2>&1 || exit 77
mkfs.xfs -q -m reflink=1 disk.xfs
device=$(losetup --find --show disk.xfs) || exit 77
# A test that was killed may have left it read-only.
blockdev --setrw "$device"
mount "$device" mounted || { losetup --detach "$device"; exit 77; }
# It goes with the mount.
losetup --detach "$device"
dd if=/dev/urandom of=mounted/pro.img bs=1M count=48 status=none
truncate -s 1G mounted/pro.img
dd if=/dev/urandom of=mounted/pro.img.timing bs=1M count=4 status=none
sync -f mounted
available() { df --block-size=1 --output=avail mounted | tail -1; }
before=$(available)
./nvmirage clone mounted/pro.img mounted/vm1.img --json >report.json
sync -f mounted
echo "used $((before - $(available)))"
# Number, logical and physical place, length and flags of each extent.
for file in pro.img vm1.img; do
    echo "extents $file" $(filefrag -v -b4096 mounted/$file | awk '$1 ~ /^[0-9]+:$/ { print $2 $4 $5, (/shared/ ? "shared" : "alone") }' | tr ' \n' '_ ')
done
cmp mounted/pro.img mounted/vm1.img
cmp mounted/pro.img.timing mounted/vm1.img.timing
sha256sum <mounted/pro.img >sum
printf 'of the clone' | dd of=mounted/vm1.img bs=4096 seek=5 conv=notrunc,fsync status=none
sha256sum -c --status sum <mounted/pro.img
! cmp -s mounted/pro.img mounted/vm1.img
umount mounted
"#;

/// A clone where blocks may or may not be shared: it has the same bytes.
fn is_a_copy(world: &World) {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    std::fs::write(world.path("pro.img"), &bytes).unwrap();
    let report = world.json(&["clone", "pro.img", "vm1.img", "--json"]);
    let file = &report["files"][0];
    let copied = file["copied_bytes"].as_u64().unwrap();
    assert_eq!(copied == 0, file["shared"].as_bool().unwrap(), "{report:#}");
    assert!(std::fs::read(world.path("vm1.img")).unwrap() == bytes);
}

mod slow {
    use super::*;

    #[test]
    fn blocks_are_shared_where_the_file_system_can() {
        let world = World::new();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nvmirage"), world.path("nvmirage")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT]);
        command
            .current_dir(world.path(""))
            .env_remove("NVMIRAGE_LOG");
        let script = ran(command.output().unwrap());
        let may_mount =
            script.status.code() != Some(NO_RIGHTS) && !script.err.contains("unshare failed");
        if !may_mount {
            return is_a_copy(&world);
        }
        assert!(script.status.success(), "{}{}", script.out, script.err);
        let report = std::fs::read_to_string(world.path("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let files = report["files"].as_array().unwrap();
        assert_eq!(files.len(), 2, "{report:#}");
        for file in files {
            assert_eq!(
                (&file["shared"], &file["copied_bytes"]),
                (&true.into(), &0.into()),
                "{report:#}"
            );
        }
        assert_eq!(files[0]["size_bytes"], 1 << 30);
        // 52 MiB are written of the two files; what a clone takes is what says where they are.
        let said = |what: &str| {
            let line = script.out.lines().find_map(|line| line.strip_prefix(what));
            line.unwrap_or_else(|| panic!("no {what}: {}", script.out))
                .trim()
                .to_owned()
        };
        let used: i64 = said("used").parse().unwrap();
        assert!(used < 2 << 20, "{used} bytes were used");
        let (source, clone) = (said("extents pro.img"), said("extents vm1.img"));
        assert!(!source.is_empty() && !source.contains("alone"), "{source}");
        assert_eq!(source, clone, "they lie at the same places");
    }
}
