# The first guest of a drive: it is killed while it writes.

step root named 1 root
step raw named 2 raw
first() {
    mkfs.ext4 -q /dev/root
    mount -t ext4 /dev/root /mnt
    filled /mnt
    sync
    numbers 100000 | dd of=/dev/raw bs=4096 iflag=fullblock conv=sync,fsync
}
step first first
loaded() {
    dd if=/dev/zero of=/mnt/unsynced bs=64k count=100000 &
    fio --filename=/dev/raw --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=64 --offset=2m \
        --size=60m --loops=1000 --numjobs=2 --name=load --output=/dev/null --eta=never &
    more_writes raw 300
}
step load loaded
say loaded
sleep 1000
