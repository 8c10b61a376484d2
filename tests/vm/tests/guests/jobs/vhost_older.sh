# data: 64 MiB of a file, for an older QEMU. The server is killed and started again under the load of the job that comes after.

older() {
    is data size 131072
    mkfs.ext4 -q /dev/data
    mount -t ext4 /dev/data /mnt
    filled /mnt
    umount /mnt
    mount -t ext4 /dev/data /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/data
    verified --filename=/dev/data --rw=randrw --iodepth=16 \
        --name=a --bsrange=4k-64k --size=8m --cpus_allowed=0 \
        --name=b --bsrange=4k-64k --offset=8m --size=8m --cpus_allowed=1
    blkdiscard -o 0 -l 16777216 /dev/data
    cmp -n 16777216 /dev/data /dev/zero
}
