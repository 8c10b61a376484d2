//! Two guests on two controllers of one subsystem, with a namespace that both have: reservations
//! tell who may use it.

use guest_rig::Options;

use crate::served::{Served, finish, tell, wait};

const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "32MiB"

[[namespace]]
name = "both"
media = "memory"

[[controller]]
name = "a"
subsystem = "pair"
namespaces = ["both"]
listen = "vfio-user:DIR/a.sock"

[[controller]]
name = "b"
subsystem = "pair"
namespaces = ["both"]
listen = "vfio-user:DIR/b.sock"
"#;

#[test]
fn two_guests_share_a_namespace_under_reservations() {
    let mut served = Served::start(CONFIG);
    served.wait_for_line("controller b");
    let options = Options {
        cpus: 1,
        memory_mib: 512,
        ..Options::default()
    };
    let jobs = [
        ("a", include_str!("jobs/shared_a.sh")),
        ("b", include_str!("jobs/shared_b.sh")),
    ];
    let [mut a, mut b] = jobs.map(|(name, job)| {
        let job = format!("ME={name}\n{}\n{job}", include_str!("jobs/shared.sh"));
        served.boot(name, &job, options.clone())
    });
    for guest in [&mut a, &mut b] {
        wait(guest, "registered");
    }
    tell(&mut a, "both");
    // what one says, the other waits for
    wait(&mut a, "write-exclusive");
    tell(&mut b, "write-exclusive");
    wait(&mut b, "seen");
    tell(&mut a, "seen");
    wait(&mut a, "exclusive-access");
    tell(&mut b, "exclusive-access");
    wait(&mut b, "preempted");
    tell(&mut a, "preempted");
    wait(&mut a, "lost");
    tell(&mut b, "lost");
    wait(&mut b, "cleared");
    tell(&mut a, "cleared");
    finish(a);
    tell(&mut b, "end");
    finish(b);
    served.stop();
}
