# root: 128 MiB of a file. The job runs twice: before the guest reboots, and after.

step root named 1 root
step raw named 2 raw
if [ "$(dd if=/dev/raw bs=4096 count=1 | head -c 5)" != again ]; then
    first() {
        mkfs.ext4 -q /dev/root
        mount -t ext4 /dev/root /mnt
        filled /mnt
        sync
        echo again | dd of=/dev/raw bs=4096 conv=sync,fsync
    }
    step first first
    loaded() {
        # The reboot comes while this is in flight.
        fio --filename=/dev/raw --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32 --offset=1m \
            --size=60m --loops=1000 --numjobs=2 --name=load --output=/dev/null --eta=never &
        more_writes raw 300
    }
    step load loaded
    reboot -f
fi
second() {
    # The file system was not unmounted.
    mount -t ext4 /dev/root /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/root
}
step second second
step checksums verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --offset=1m --iodepth=16 \
    --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
step quiet no_complaints
