# One of two guests of one server, each with the namespace of a file system and a raw one.

step root named 1 root
step raw named 2 raw
say here
await go
work() {
    mkfs.ext4 -q /dev/root
    mount -t ext4 /dev/root /mnt
    filled /mnt
    verified --filename=/dev/raw --rw=randwrite --name=page --bs=4k --iodepth=16 --size=6m \
        --name=large --bs=128k --iodepth=4 --offset=8m --size=16m
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/root
}
step work work
tell serial cat /sys/class/nvme/nvme0/serial
say done
await read
# one of the two has a cap
reads() {
    fio --direct=1 --ioengine=libaio --filename=/dev/raw --name=reads --rw=randread --bs=4k --iodepth=16 --time_based --runtime=3 \
        --eta=never --minimal | cut -d ';' -f 8
}
tell iops reads
step quiet no_complaints
say read
await end
