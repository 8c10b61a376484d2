# disk: 96 MiB of a file that is not allocated, served by ublk. The file system that has the file becomes full, and has room again.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "file"
path = "/data/disk.img"
size = "96MiB"
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
step driver modprobe ublk_drv
step serve serve
step disk called disk ublkb0
mounted() {
    mkfs.ext4 -q /dev/disk
    mount -t ext4 /dev/disk /mnt
    filled /mnt
    sync
}
step mounted mounted

# full: the file system of the file has no room any more.
full() {
    dd if=/dev/zero of=/data/filler bs=1M conv=fsync || true
    dd if=/dev/zero of=/data/filler.small bs=4k conv=fsync || true
    sync
    df -k /data
    [ "$(df -k /data | awk 'END { print $4 }')" -lt 64 ]
}
step full full
# A program that writes to a file of the disk, or to the disk, gets an error within a bound.
written() {
    fails timeout 60 dd if=/dev/urandom of=/mnt/more bs=1M count=32 conv=fsync
    # Of the disk itself, by direct writes: the error says what it is.
    refused 'no space left' timeout 60 dd if=/dev/urandom of=/dev/disk bs=64k seek=1100 count=400 oflag=direct conv=notrunc
}
step written written
# Reads go on, and writes of what is allocated.
allocated() {
    intact /mnt
    timeout 60 dd if=/dev/disk of=/tmp/first bs=4k count=1 iflag=direct
    timeout 60 dd if=/tmp/first of=/dev/disk bs=4k count=1 oflag=direct conv=notrunc
    control ls
}
step allocated allocated
room() {
    rm /data/filler /data/filler.small
    sync
    timeout 60 dd if=/dev/zero of=/dev/disk bs=64k seek=1100 count=400 oflag=direct conv=notrunc
}
step room room
# The file system may have become read-only by an error of its journal. It is whole after a check.
again() {
    timeout 60 umount /mnt
    fsck.ext4 -fy /dev/disk || [ $? -le 1 ]
    mount -t ext4 /dev/disk /mnt
    intact /mnt
    timeout 60 dd if=/dev/urandom of=/mnt/again bs=1M count=16 conv=fsync
    umount /mnt
    fsck.ext4 -fn /dev/disk
    kill -0 "$(server)"
    fails grep panicked /tmp/serve.log
}
step again again
step stop stop
step gone absent /dev/ublkb0 /dev/ublkc0
step quiet no_faults
