# The second guest of a drive whose first was killed.

step root named 1 root
step raw named 2 raw
second() {
    mount -t ext4 /dev/root /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/root
    numbers 100000 | cmp -s -n 588895 - /dev/raw
}
step second second
step checksums verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --offset=2m --iodepth=16 \
    --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
step quiet no_complaints
