# One drive, a part of a drive that does not exist: 128 MiB, blocks of 4096 bytes.

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
step quiet no_complaints
