# One drive, a partition of a drive that does not exist: 128 MiB, blocks of 4096 bytes. It grows to 192 MiB.

step disk named 1 part
tell id-ns nvme id-ns /dev/part -o json

# What is verified: any blocks of any size, then in order; then a file system of it.
step random verified --filename=/dev/part --name=random --rw=randwrite --bsrange=4k-128k --iodepth=16 --size=32m
step order verified --filename=/dev/part --name=order --rw=write --bs=256k --iodepth=4 --offset=64m --size=32m
files() {
    mkfs.ext4 -q /dev/part
    mount -t ext4 /dev/part /mnt
    filled /mnt
    sync
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/part
}
step files files
# A drive that is reset while it works.
reset() {
    fio --name=load --filename=/dev/part --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=8 \
        --time_based --runtime=3 --output=/tmp/load.log --eta=never &
    sleep 1
    nvme reset /dev/nvme0
    wait $!
}
step reset reset
answers() {
    fio --name=times --filename=/dev/part --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=1 \
        --time_based --runtime=2 --eta=never
}
tell times answers

# It grows while files are in use: nobody is asked, the kernel reads of it in an event (Namespace Attribute Changed).
before() {
    mount -t ext4 /dev/part /mnt
    filled /mnt
    sync
    [ "$(blockdev --getsize64 /dev/part)" = $((128 << 20)) ]
}
step before before
say grow
await grown
is_grown() {
    [ "$(blockdev --getsize64 /dev/part)" = $((192 << 20)) ]
}
grows() {
    intact /mnt
    eventually is_grown
    nvme list -o json | tr -d ' \n' | grep "\"PhysicalSize\":$((192 << 20))"
    dmesg | grep 'nvme0n1: detected capacity change'
    resize2fs "/dev/$(readlink /dev/part)"
    # more than there was room for before: what it has grown by is written, and read back from the drive
    [ "$(df -m /mnt | awk 'END { print $2 }')" -gt 150 ]
    dd if=/dev/urandom of=/mnt/large bs=1M count=130
    (cd /mnt && sha256sum large >>sums)
    sync
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/part
    mount -t ext4 /dev/part /mnt
    intact /mnt
    umount /mnt
}
step grows grows
tell id-ns-grown nvme id-ns /dev/part -o json
# and the end of it as it is, any blocks of any size
step last verified --filename=/dev/part --name=last --rw=randwrite --bsrange=4k-128k --iodepth=16 --offset=128m --size=64m
step quiet no_complaints
