//! A drive of another machine: the controller of one server over NVMe/TCP is the drive of another
//! one, whose tenants share it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use nvme_spec::Status;
use rustix::process::Signal;
use tempfile::TempDir;

use super::secure::{A, CTRL, KEY, secret};
use super::tls::KEY as TLS_KEY;
use super::{Port, hosts, metric, serve, served, until};
use crate::drives::{SLOWEST, Tenant, is_untouched};
use crate::world::{Server, World, ran};

/// Bytes of the drive.
const DRIVE: usize = 48 << 20;

/// A drive behind NVMe/TCP, of a file that shows what it holds, and the world of its users.
struct Remote {
    its: World,
    world: World,
    port: Port,
    folder: TempDir,
}

impl Remote {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::write(folder.path().join("drive.img"), vec![0xa5; DRIVE]).unwrap();
        Self {
            its: World::new(),
            world: World::new(),
            port: Port::new(),
            folder,
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("drive.img")
    }

    /// Starts the drive's server, with other tables before.
    fn start(&self, more: &str) -> Server {
        self.start_as(more, "")
    }

    /// The same, with keys of its namespace.
    fn start_as(&self, more: &str, keys: &str) -> Server {
        serve(&self.its, &self.its_config(more, keys), &[])
    }

    fn its_config(&self, more: &str, keys: &str) -> String {
        format!(
            "{more}[[media]]\nname = \"disk\"\nkind = \"file\"\npath = \"{}\"\n\
             [[namespace]]\nname = \"data\"\nmedia = \"disk\"\nlba_size = 512\n{keys}{}",
            self.image().display(),
            self.port.controller("")
        )
    }

    /// The configuration of two tenants, with a gap before, between and behind their parts.
    fn tenants(&self, keys: &str) -> String {
        let part = |name: &str, range: &str| {
            format!(
                "[[namespace]]\nname = \"{name}\"\nmedia = \"remote\"\nrange = \"{range}\"\nlba_size = 512\n\
                 [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nlisten = \"{}\"\n",
                self.world.vfio_user(name)
            )
        };
        format!(
            "[[media]]\nname = \"remote\"\nkind = \"drive\"\ntarget = \"{}\"\n{keys}{}{}",
            self.port.target(),
            part("a", "4MiB..20MiB"),
            part("b", "24MiB..40MiB")
        )
    }

    /// A tenant that checks every byte that it reads.
    fn verify(&self, tenant: &str) -> Child {
        let mut command = self.world.program();
        command.args(["bench", "--target", &self.world.vfio_user(tenant)]);
        command.args(["--rw", "randrw", "--bs", "4KiB,128KiB", "--qd", "1,16"]);
        command.args(["--time", "300ms", "--verify", "--destroy-data"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn verify_both(&self) {
        for child in ["a", "b"].map(|tenant| self.verify(tenant)) {
            let ran = ran(child.wait_with_output().unwrap());
            assert!(ran.status.success(), "{}{}", ran.out, ran.err);
        }
    }

    fn check_gaps(&self) {
        let file = File::open(self.image()).unwrap();
        for (start, end) in [(0, 4), (20, 24), (40, 48)] {
            let mut bytes = vec![0; (end - start) << 20];
            file.read_exact_at(&mut bytes, (start << 20) as u64)
                .unwrap();
            assert!(is_untouched(&bytes), "{start} to {end} MiB");
        }
        let mut part = vec![0; 16 << 20];
        file.read_exact_at(&mut part, 4 << 20).unwrap();
        assert!(!is_untouched(&part), "the tenants' data are on the drive");
    }
}

#[test]
fn tenants_share_a_drive_of_another_machine() {
    let remote = Remote::new();
    let drive = remote.start("");
    let config = remote.tenants("");
    let tenants = serve(&remote.world, &config, &[]);
    remote.verify_both();
    let inventory = remote.world.inventory();
    let description = inventory["media"][0]["description"].as_str().unwrap();
    assert!(description.contains(&remote.port.target()), "{description}");
    tenants.stop();
    remote.check_gaps();
    // The process that goes on would be another host of the target.
    let file = remote.world.write("config.toml", &config);
    let args = ["serve", "--survive", "--config", file.to_str().unwrap()];
    let error = remote.world.fails(&args);
    assert!(error.contains("does not survive"), "{error}");
    drive.stop();
    let error = remote
        .world
        .fails(&["serve", "--config", file.to_str().unwrap()]);
    assert!(error.contains("the target is running"), "{error}");
}

#[test]
fn a_drive_of_another_machine_that_dies_is_used_again() {
    let remote = Remote::new();
    let mut drive = remote.start("");
    let tenants = serve(&remote.world, &remote.tenants(""), &[]);
    let mut tenant = Tenant::attach(&remote.world, "a");
    assert_eq!(tenant.turn(1).0, Ok(()));
    for round in 2..4 {
        drive.signal(Signal::KILL);
        drop(drive);
        let start = Instant::now();
        let (ended, slowest) = tenant.turn(0xff);
        assert_eq!(ended, Err(Status::COMMAND_INTERRUPTED));
        assert!(slowest < SLOWEST, "{slowest:?}");
        drive = remote.start("");
        let mut found = Err(Status::COMMAND_INTERRUPTED);
        until("the drive is not back", || {
            found = tenant.look();
            found.is_ok()
        });
        assert_eq!(found, Ok([round - 1; 4096]), "it has what was written");
        assert_eq!(tenant.turn(round).0, Ok(()));
        assert!(start.elapsed() < 4 * SLOWEST, "{:?}", start.elapsed());
    }
    drop(tenant);
    remote.verify_both();
    let log = tenants.log();
    assert!(log.contains("a drive is lost"), "{log}");
    assert!(log.contains("a drive is back"), "{log}");
    tenants.stop();
    remote.check_gaps();
    drive.stop();
}

/// Everything but its NGUID is the same, as of volumes of one target with its default names.
#[test]
fn another_volume_at_the_same_address_is_not_used() {
    let remote = Remote::new();
    let named = |digit: &str| format!("nguid = \"{}\"\n", digit.repeat(32));
    let mut drive = remote.start_as("", &named("a"));
    let tenants = serve(&remote.world, &remote.tenants(""), &[]);
    let mut tenant = Tenant::attach(&remote.world, "a");
    assert_eq!(tenant.turn(1).0, Ok(()));
    drive.signal(Signal::KILL);
    drop(drive);
    drive = remote.start_as("", &named("b"));
    until("the other volume is not refused", || {
        tenants
            .log()
            .contains("a drive is not back: it has another NGUID")
    });
    assert_eq!(tenant.look(), Err(Status::COMMAND_INTERRUPTED));
    drop(drive);
    drive = remote.start_as("", &named("a"));
    until("the drive is not back", || tenant.look() == Ok([1; 4096]));
    drop(tenant);
    tenants.stop();
    drive.stop();
}

#[test]
fn a_server_proves_its_secret_to_a_drive() {
    let remote = Remote::new();
    let its_key = secret(&remote.its, "a.key", KEY);
    let its_ctrl = secret(&remote.its, "c.key", CTRL);
    let _drive = remote.start(&format!(
        "[[host]]\nnqn = \"{A}\"\ndhchap_key = \"{}\"\ndhchap_ctrl_key = \"{}\"\n",
        its_key.display(),
        its_ctrl.display()
    ));
    let file = |keys: &str| remote.world.write("config.toml", &remote.tenants(keys));
    let refused = |keys: &str, says: &str| {
        let file = file(keys);
        let error = remote
            .world
            .fails(&["serve", "--config", file.to_str().unwrap()]);
        assert!(error.contains(says), "{error}");
    };
    let (key, ctrl) = (its_key.display(), its_ctrl.display());
    refused("", "does not admit this host");
    refused(&format!("hostnqn = \"{A}\"\n"), "requires authentication");
    let named = format!("hostnqn = \"{A}\"\ndhchap_key = ");
    refused(&format!("{named}\"{ctrl}\"\n"), "uthentication failed");
    refused(&format!("{named}\"/nowhere\"\n"), "/nowhere");
    let keys = format!(
        "{named}\"{key}\"\ndhchap_ctrl_key = \"{ctrl}\"\nheader_digest = true\ndata_digest = true\n"
    );
    let tenants = serve(&remote.world, &remote.tenants(&keys), &[]);
    remote.verify_both();
    for hidden in ["AAECAwQF", "ZGVmZ2hp"] {
        assert!(!tenants.log().contains(hidden));
        assert!(!remote.world.inventory().to_string().contains(hidden));
    }
    tenants.stop();
}

#[test]
fn a_drive_is_reached_through_tls() {
    let remote = Remote::new();
    let its_key = secret(&remote.its, "a.key", TLS_KEY);
    let _drive = remote.start(&format!(
        "[[host]]\nnqn = \"{A}\"\ntls_key = \"{}\"\n",
        its_key.display()
    ));
    let file = |keys: &str| remote.world.write("config.toml", &remote.tenants(keys));
    let refused = |keys: &str, says: &str| {
        let file = file(keys);
        let error = remote
            .world
            .fails(&["serve", "--config", file.to_str().unwrap()]);
        assert!(error.contains(says), "{error}");
    };
    let key = its_key.display();
    refused(&format!("hostnqn = \"{A}\"\n"), "TLS");
    refused(&format!("tls_key = \"{key}\"\n"), "write hostnqn, too");
    let keys = format!("hostnqn = \"{A}\"\ntls_key = \"{key}\"\n");
    let tenants = serve(&remote.world, &remote.tenants(&keys), &[]);
    remote.verify_both();
    assert!(!remote.world.inventory().to_string().contains("AAECAwQF"));
    assert!(!tenants.log().contains("AAECAwQF"));
    tenants.stop();
    remote.check_gaps();
}

/// It opens a queue of its own for its last flush, when its server stops.
#[test]
fn a_drive_makes_keys_of_tls_also_when_the_first_is_forgotten() {
    let remote = Remote::new();
    let [key, other] =
        [("a.key", KEY), ("b.key", CTRL)].map(|(name, text)| secret(&remote.its, name, text));
    let host = |key: &PathBuf| {
        let key = key.display();
        format!("[[host]]\nnqn = \"{A}\"\ndhchap_key = \"{key}\"\nconcatenation = \"required\"\n")
    };
    let drive = remote.start(&host(&key));
    let config = |more: &str| {
        let keys = format!(
            "hostnqn = \"{A}\"\ndhchap_key = \"{}\"\n{more}",
            key.display()
        );
        remote.tenants(&keys)
    };
    let file = remote.world.write("config.toml", &config(""));
    let args = ["serve", "--config", file.to_str().unwrap()];
    let error = remote.world.fails(&args);
    assert!(error.contains("secure channel concatenation"), "{error}");
    let tenants = serve(&remote.world, &config("concat = true\n"), &[]);
    remote.verify_both();
    assert_eq!(hosts(&remote.its)[0]["tls"], true);
    for key in [&other, &key] {
        let config = remote.its_config(&host(key), "");
        remote.its.write("config.toml", &config);
        remote.its.ok(&remote.its.steer(&["reload"]));
    }
    assert_eq!(hosts(&remote.its).len(), 1, "its association lives on");
    tenants.stop();
    let refused =
        "nvmirage_tcp_connections_refused_total{controller=\"store\",reason=\"tls-identity\"}";
    assert!(
        metric(&remote.its, refused) > 0.0,
        "the first key was forgotten"
    );
    remote.check_gaps();
    drive.stop();
}

#[test]
fn digests_are_had_or_the_target_is_refused() {
    let world = World::new();
    let (_server, port) = served(&world, "data_digest = false");
    let target = port.target();
    world.ok(&["identify", "--target", &target, "--hdr-digest"]);
    let error = world.fails(&["identify", "--target", &target, "--data-digest"]);
    assert!(error.contains("DGST 0x00 is not the 0x02"), "{error}");
}
