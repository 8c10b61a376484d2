//! Hosts over NVMe/TCP: the same script on the target of the guest's own kernel, which is the
//! reference, and on a drive of ours.

use guest_rig::{Boot, Guest, Kernel, Options};

use crate::served::{finish, json, rig};

const FUNCTIONS: &str = concat!(
    include_str!("jobs/functions.sh"),
    include_str!("jobs/tcp.sh")
);

/// The guest's kernel as host and as target.
const REFERENCE: &str = "
step reference reference 4420 nqn.2026-11.org.example:reference
NAME=reference ADDRESS=127.0.0.1 PORT=4420 NQN=nqn.2026-11.org.example:reference
as_a_host
step quiet no_complaints
";

/// A guest with a network and no drive.
fn options(kernel: Kernel, job: &str) -> Options {
    let network = [
        "-netdev",
        "user,id=network",
        "-device",
        "virtio-net-pci,netdev=network,addr=0x1d",
    ];
    Options {
        boot: Boot::Kernel(kernel),
        job: Some(format!("{FUNCTIONS}\n{job}")),
        share_memory: false,
        qemu_args: network.map(Into::into).to_vec(),
        ..Options::default()
    }
}

/// Runs a job that uses the drive `name`, and checks what the kernel reads from its controller.
fn run(kernel: Kernel, job: &str, names: &[&str]) {
    let guest = Guest::boot(&rig(), &options(kernel, job));
    let report = finish(guest.unwrap_or_else(|error| panic!("{error}")));
    for name in names {
        let controller = json(&report, &format!("{name}-id-ctrl"));
        let number = |key: &str| controller[key].as_u64().unwrap_or_else(|| panic!("{key}"));
        assert_eq!(number("cntrltype"), 1, "an I/O controller");
        assert!(number("kas") > 0, "keep alive");
        assert!(number("ioccsz") >= 4, "a command fits into a capsule");
        assert_eq!(number("iorcsz"), 1);
        assert_eq!(number("icdoff"), 0);
    }
}

#[test]
fn a_host_uses_its_own_kernels_target() {
    run(Kernel::Stable, REFERENCE, &["reference"]);
}

mod slow {
    use guest_rig::Kernel;

    #[test]
    fn a_host_with_a_newer_kernel_uses_its_own_target() {
        super::run(Kernel::Backports, super::REFERENCE, &["reference"]);
    }
}
