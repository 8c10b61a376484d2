//! Drives over vhost-user-blk, as QEMU's own client (libblkio) uses them.

use std::fs;
use std::process::{Child, Command, Stdio};

use guest_rig::{Rig, libnbd};

use crate::nbd::{bytes, qemu, qemu_ok, run};
use crate::network::until;
use crate::world::{Server, World};

/// Bytes of each namespace.
const LEN: u64 = 32 << 20;

/// A namespace of each size of a block.
struct Served {
    world: World,
    server: Server,
}

impl Served {
    fn new() -> Self {
        let world = World::new();
        let namespace = |name: &str, block: u32| {
            let socket = world.path(&format!("{name}.sock")).display().to_string();
            format!(
                r#"
                [[media]]
                name = "{name}"
                kind = "ram"
                size = "32MiB"
                [[namespace]]
                name = "{name}"
                media = "{name}"
                lba_size = {block}
                [[controller]]
                name = "{name}"
                namespaces = ["{name}"]
                listen = "vhost-user-blk:{socket}"
                "#
            )
        };
        let config = [namespace("small", 512), namespace("large", 4096)].concat();
        let file = world.write("config.toml", &config);
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        Self { world, server }
    }

    fn path(&self, name: &str) -> String {
        self.world.path(name).display().to_string()
    }

    /// The options of QEMU's client for a namespace.
    fn options(&self, namespace: &str) -> String {
        let socket = self.path(&format!("{namespace}.sock"));
        format!("driver=virtio-blk-vhost-user,path={socket},cache.direct=on")
    }

    /// Commands of qemu-io, on a namespace.
    fn io(&self, namespace: &str, commands: &[&str]) -> String {
        let options = self.options(namespace);
        let mut args = vec!["--image-opts", &options];
        for command in commands {
            args.extend(["-c", command]);
        }
        let said = qemu_ok("qemu-io", &args);
        assert!(
            !said.contains("failed") && !said.contains("error"),
            "{said}"
        );
        said
    }
}

#[test]
fn images_are_copied_there_and_back() {
    let served = Served::new();
    let image = bytes(LEN as usize, 5);
    let (from, back) = (served.path("image"), served.path("back"));
    fs::write(&from, &image).unwrap();
    for namespace in ["small", "large"] {
        let options = served.options(namespace);
        let info = qemu_ok("qemu-img", &["info", "--image-opts", &options]);
        assert!(info.contains("32 MiB (33554432 bytes)"), "{info}");
        qemu_ok(
            "qemu-img",
            &[
                "convert",
                "-n",
                "--target-image-opts",
                "-f",
                "raw",
                &from,
                &options,
            ],
        );
        qemu_ok(
            "qemu-img",
            &["convert", "--image-opts", "-O", "raw", &options, &back],
        );
        assert!(fs::read(&back).unwrap() == image, "{namespace}");
        fs::remove_file(&back).unwrap();
    }
    served.server.stop();
}

#[test]
fn qemu_writes_zeroes_and_discards() {
    let served = Served::new();
    for namespace in ["small", "large"] {
        let commands = [
            "write -P 17 1M 2M",
            "write -f -P 18 4096 4096",
            "write -z 1M 64k",
            "write -z -u 1152k 64k",
            "discard 2M 512k",
            "flush",
            "read -P 18 4096 4096",
            "read -P 0 1M 64k",
            "read -P 17 1088k 64k",
            "read -P 0 1152k 64k",
            "read -P 17 1216k 832k",
            "read -P 0 2M 512k",
            "read -P 17 2560k 512k",
            "read -P 0 31M 1M",
        ];
        served.io(namespace, &commands);
        let outside = format!("read {LEN} 4096");
        let options = served.options(namespace);
        let (_, said) = qemu("qemu-io", &["--image-opts", &options, "-c", &outside]);
        assert!(said.contains("error") || said.contains("past"), "{said}");
    }
    served.server.stop();
}

/// A client that is ended with the test.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A storage daemon of QEMU uses the namespace, and serves it over NBD to a program that verifies.
#[test]
fn fio_finds_what_it_wrote_through_a_storage_daemon() {
    let served = Served::new();
    for namespace in ["small", "large"] {
        let socket = served.path(&format!("{namespace}-nbd.sock"));
        let mut command: Command = Rig::locate().unwrap().qemu("qemu-storage-daemon").command();
        let node = format!("{},node-name=disk", served.options(namespace));
        command.args(["--blockdev", &node]);
        command.args([
            "--nbd-server",
            &format!("addr.type=unix,addr.path={socket}"),
        ]);
        command.args([
            "--export",
            "type=nbd,id=disk,node-name=disk,name=disk,writable=on",
        ]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let daemon = Client(child.unwrap());
        until("the daemon does not serve", || {
            served.world.path(&format!("{namespace}-nbd.sock")).exists()
        });
        // The device has one front end at a time.
        let options = served.options(namespace);
        let (succeeded, said) = qemu("qemu-img", &["info", "--image-opts", &options]);
        assert!(!succeeded, "{said}");

        let mut fio = libnbd::program("fio").unwrap().command();
        fio.current_dir(served.world.path("")).args([
            "--ioengine=nbd",
            &format!("--uri=nbd+unix:///disk?socket={socket}"),
            "--rw=randrw",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--bsrange=4k-256k",
            "--iodepth=16",
            "--size=8m",
            "--name=a",
            "--name=b",
            "--offset=8m",
        ]);
        let output = run(fio);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("err= 0").count(), 2, "{said}");
        drop(daemon);
        served.io(namespace, &["read 0 4096"]);
    }
    served.server.stop();
}
