# root and raw: 64 MiB each of a file. The kernel was told to use no message interrupts.

step root named 1 root
step raw named 2 raw
tell queues sh -c 'dmesg | grep "default/read/poll queues"'
tell line grep nvme /proc/interrupts

pin() {
    sed -n 's/:\(.*\)IO-APIC.*nvme0q.*/\1/p' /proc/interrupts | tr -s ' ' '\n' | awk '{ sum += $1 } END { print sum }'
}
before=$(pin)
step one-by-one verified --filename=/dev/raw --rw=randwrite --bs=4k --size=2m --iodepth=1 --name=one
tell one-by-one sh -c "echo $(($(pin) - before))"
work() {
    mkfs.ext4 -q /dev/root
    mount -t ext4 /dev/root /mnt
    filled /mnt
    verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --iodepth=32 \
        --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
    nvme reset /dev/nvme0
    intact /mnt
    umount /mnt
    address=$(basename "$(readlink /sys/class/nvme/nvme0/device)")
    rm /dev/root /dev/raw
    echo "$address" >/sys/bus/pci/drivers/nvme/unbind
    echo "$address" >/sys/bus/pci/drivers/nvme/bind
    named 1 root
    fsck.ext4 -fn /dev/root
}
step work work
step quiet no_complaints
