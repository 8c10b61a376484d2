//! Our own program inside a guest serves parts of a drive that it has through VFIO, behind the guest's IOMMU.

use tempfile::TempDir;
use tests_vm::Kernel;

use crate::served::{finish, text};
use crate::vfio::boot;

/// Two tenants of one drive, which our program in the guest has through VFIO and an IOMMU: each checks what it writes, and
/// the drive's file holds each one's bytes in its part and nothing elsewhere.
#[test]
fn two_tenants_of_a_drive_have_their_parts_and_no_more() {
    let dir = TempDir::new().expect("a temporary folder");
    let job = include_str!("jobs/vfio_tenants.sh");
    let report = finish(boot(&dir, Kernel::Stable, job));
    println!("{}", text(&report, "served"));
    let disk = std::fs::read(dir.path().join("disk.img")).expect("the drive's file");
    let part = |mib: std::ops::Range<usize>| &disk[mib.start << 20..mib.end << 20];
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    for (name, first) in [("a", 8), ("b", 32)] {
        let written = part(first..first + 8).chunks(4096);
        let written = written.filter(|block| !is_zero(block)).count();
        assert!(written > 16, "{name} has written {written} blocks");
        assert!(is_zero(part(first + 8..first + 15)), "between, of {name}");
        let known = [name.as_bytes(), b"\n", &crate::numbers(1000)].concat();
        let (marked, rest) = part(first + 15..first + 16).split_at(known.len());
        assert!(marked == known, "what {name} has left");
        assert!(is_zero(rest), "behind what {name} has left");
    }
    for between in [0..8, 24..32, 48..64] {
        assert!(is_zero(part(between.clone())), "nobody has {between:?}");
    }
}
