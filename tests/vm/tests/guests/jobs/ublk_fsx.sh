# disk: 64 MiB of a file, served by ublk, with ext4. An exerciser of file systems compares what it reads with what it has written, while
# the server is killed and pages are dropped from memory.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "file"
path = "/data/disk.img"
size = "64MiB"
[[namespace]]
name = "disk"
media = "disk"
lba_size = 4096
[[controller]]
name = "disk"
namespaces = ["disk"]
listen = "ublk:"
queues = 2
END
}
config >/tmp/nvmirage.toml
exerciser() {
    exerciser_disk=$(ls -d /sys/bus/pci/devices/0000:00:11.0/virtio*/block/vd?)
    appears "/dev/${exerciser_disk##*/}"
    head -c "$FSX_LEN" "/dev/${exerciser_disk##*/}" >/tmp/fsx
    chmod 755 /tmp/fsx
    /tmp/fsx --version
}
step exerciser exerciser
step driver modprobe ublk_drv
step serve serve
step disk called disk ublkb0
mounted() {
    mkfs.ext4 -q /dev/disk
    mount -t ext4 /dev/disk /mnt
}
step mounted mounted
rules() {
    cat <<END
flen = 4194304
[opsize]
max = 200000
[weights]
close_open = 1
truncate = 5
read = 10
write = 10
mapread = 5
mapwrite = 5
punch_hole = 3
posix_fallocate = 2
fsync = 2
fdatasync = 2
invalidate = 2
END
}
rules >/tmp/fsx.toml
# exercised NAME OPTION...
exercised() {
    exercised_name=$1
    shift
    /tmp/fsx -N "$OPERATIONS" -P /tmp -f /tmp/fsx.toml "$@" "/mnt/$exercised_name"
}
step once exercised once -S 1
load() {
    in_background first exercised first -S 2
    in_background second exercised second -S 3
    for load_death in 1 2 3; do
        usleep 700000
        echo 3 >/proc/sys/vm/drop_caches
        kill -9 "$(server)"
        ends
        serve
        logged '/dev/ublkb0 goes on'
        background_works
    done
    done_in_background first
    done_in_background second
}
step deaths load
ended() {
    umount /mnt
    fsck.ext4 -fn /dev/disk
}
step ended ended
step stop stop
step quiet no_complaints
