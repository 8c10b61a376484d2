//! Drives mounted by a user who may not mount, and has fusermount3 do it.
//!
//! The user that runs the tests is such a user; root becomes one, in a view of the file systems of
//! its own, where everybody may open /dev/fuse as on an installed system.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use crate::world::{World, ran};

/// UID and GID of a user without privileges, and without files of its own.
const NOBODY: u32 = 65_534;

/// Three servers of one file, one after the other: the first gets SIGTERM, the second is killed and
/// leaves a dead mount, which the third has the helper clean.
const SCRIPT: &str = r#"
set -e
serve() {
    left=600
    until grep -q '^ready' ready; do
        # The kernel lets go of the file of a server that was killed a moment after its end, so another may have to be started.
        kill -0 $server 2>/dev/null || {
            ./nvmirage serve --media file:path=disk.img,size=16MiB --listen "fuse:$PWD/drive" --control "unix:$PWD/control" >ready 2>>log &
            server=$!
        }
        [ $left -gt 0 ]
        left=$((left - 1))
        sleep 0.1
    done
    : >ready
}
: >ready
server=none
serve
printf 'by a user' | dd of=drive/ns1 conv=notrunc,fsync status=none
[ "$(head -c 9 drive/ns1)" = 'by a user' ]
[ "$(stat -c %u drive/ns1)" = "$(id -u)" ]
grep -q "user_id=$(id -u)," /proc/self/mounts
kill $server
wait $server
[ -z "$(ls drive)" ]

serve
printf 'once more' | dd of=drive/ns1 seek=1 bs=4096 conv=notrunc,fsync status=none
kill -9 $server
wait $server || true
! ls drive 2>/dev/null

serve
grep -q 'by a process that no longer exists' log
[ "$(dd if=drive/ns1 bs=4096 skip=1 count=1 status=none | head -c 9)" = 'once more' ]
kill $server
wait $server
[ -z "$(ls drive)" ]
"#;

/// First steps of root: it makes a view of its own, in which all may open /dev/fuse (character
/// device 10, 229), and then becomes that user.
const AS_NOBODY: &str = "
set -e
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -x script
";

#[test]
fn a_user_has_the_helper_mount_and_unmount() {
    let world = World::new();
    let folder = world.path("user");
    let program = folder.join("nvmirage");
    fs::create_dir_all(folder.join("drive")).unwrap();
    // where the one that was built may lie in a folder that others may not enter
    fs::copy(env!("CARGO_BIN_EXE_nvmirage"), &program).unwrap();
    fs::write(folder.join("script"), SCRIPT).unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        for path in [&world.path(""), &folder, &folder.join("drive")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", AS_NOBODY]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-x", "script"]);
        command
    };
    command
        .current_dir(&folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("XDG_RUNTIME_DIR", folder.join("run"));
    let ran = ran(command.output().unwrap());
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(ran.status.success(), "{}{}\n{log}", ran.out, ran.err);
    let disk = fs::read(folder.join("disk.img")).unwrap();
    assert_eq!(&disk[..9], b"by a user");
    assert_eq!(&disk[4096..][..9], b"once more");
}
