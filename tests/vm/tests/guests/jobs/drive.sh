# root: 256 MiB of a file, 4096-byte blocks. raw: the 256 MiB before it, 512-byte blocks.
# fast: 64 MiB of memory.

step root named 1 root
step raw named 2 raw
step fast named 3 fast
tell list nvme list -o json
tell id-ctrl nvme id-ctrl /dev/nvme0 -o json
for nsid in 1 2 3; do
    tell id-ns-$nsid nvme id-ns /dev/nvme0 -n $nsid -o json
done
tell smart-before nvme smart-log /dev/nvme0 -o json
tell error-log nvme error-log /dev/nvme0 -e 4 -o json
tell cache attribute raw queue/write_cache

ext4() {
    mkfs.ext4 -q /dev/root
    mount -t ext4 /dev/root /mnt
    filled /mnt
    umount /mnt
    fsck.ext4 -fn /dev/root
    mount -t ext4 /dev/root /mnt
    intact /mnt
}
step ext4 ext4

checksums() {
    echo 16 >/proc/sys/vm/nr_hugepages
    verified --filename=/dev/raw --rw=randwrite \
        --name=block --bs=512 --iodepth=32 --size=512k --cpus_allowed=0 \
        --name=page --bs=4k --iodepth=8 --offset=16m --size=8m --cpus_allowed=1 \
        --name=odd --bs=13k --iodepth=2 --rw=write --offset=32m --size=3328k --cpus_allowed=0 \
        --name=mixed --bsrange=512-256k --iodepth=16 --offset=64m --size=16m --cpus_allowed=1
    trace_on
    verified --filename=/dev/raw --rw=write --iomem=mmaphuge \
        --name=large --bs=1m --iodepth=4 --offset=96m --size=16m --cpus_allowed=0
    verified --filename=/dev/fast --rw=randwrite \
        --name=deep --bs=4k --iodepth=128 --size=8m --cpus_allowed=0 \
        --name=shallow --bs=64k --iodepth=1 --offset=16m --size=8m --cpus_allowed=1
}
step checksums checksums
tell largest traced 'nvme_cmd_(write|read) .*len=2047,'

flushes() {
    trace_on
    fio --filename=/dev/raw --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=256k \
        --name=flush --fsync=1
}
step flush flushes
tell flushes traced 'nsid=2.*nvme_cmd_flush'
forced() {
    trace_on
    fio --filename=/dev/raw --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=256k \
        --name=fua --sync=1
}
step fua forced
tell fua traced 'nsid=2.*nvme_cmd_write .*ctrl=0x4000'

pattern() {
    tr '\0' x </dev/zero | dd of=/dev/raw bs=1M count=32 iflag=fullblock oflag=direct conv=fsync
}
zeros() {
    cmp -s -n 33554432 /dev/raw /dev/zero
}
discard() {
    trace_on
    blkdiscard -o 0 -l 33554432 /dev/raw
    zeros
}
zeroes() {
    trace_on
    blkdiscard -z -o 0 -l 33554432 /dev/raw
    zeros
}
step pattern pattern
say filled
await discard
step discard discard
tell discards traced 'nsid=2.*nvme_cmd_dsm'
say discarded
await zeroes
step pattern-again pattern
step write-zeroes zeroes
tell write-zeroes traced 'nsid=2.*nvme_cmd_write_zeroes'
tell writes-beside traced 'nsid=2.*nvme_cmd_write '

load() {
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --bs=4k --size=8m \
            --name=file --filename=/dev/raw --iodepth=32 --cpus_allowed=0 \
            --name=memory --filename=/dev/fast --iodepth=16 --cpus_allowed=1
    done
}
resets() {
    load &
    load=$!
    for reset in 1 2 3 4 5; do
        more_writes raw 200
        more_writes fast 200
        echo 1 >/sys/class/nvme/nvme0/reset_controller
    done
    more_writes raw 200
    touch /tmp/stop
    wait $load
}
step resets resets
tell resets sh -c 'dmesg | grep -c "default/read/poll queues"'

step intact intact /mnt
step unmount umount /mnt
step fsck fsck.ext4 -fn /dev/root
mark() {
    numbers 100000 | dd of=/dev/raw bs=512 seek=409600 iflag=fullblock conv=sync,fsync
}
step mark mark
rebinds() {
    address=$(basename "$(readlink /sys/class/nvme/nvme0/device)")
    rm /dev/root /dev/raw /dev/fast
    for rebind in 1 2 3; do
        echo "$address" >/sys/bus/pci/drivers/nvme/unbind
        [ ! -e /dev/nvme0 ]
        # once as it is, once after a reset of the function, once as a device that is new
        [ $rebind != 2 ] || echo 1 >"/sys/bus/pci/devices/$address/reset"
        # the kernel binds a new device by itself, and may still be about to: a second bind would then fail
        [ $rebind = 3 ] || echo "$address" >/sys/bus/pci/drivers/nvme/bind
        [ $rebind != 3 ] || {
            echo 1 >"/sys/bus/pci/devices/$address/remove"
            echo 1 >/sys/bus/pci/rescan
        }
        named 1 root
        named 2 raw
        numbers 100000 >/tmp/numbers
        dd if=/dev/raw bs=512 skip=409600 count=1150 | cmp -s -n 588800 - /tmp/numbers
        rm /dev/root /dev/raw
    done
}
tell interrupts-1 interrupts 1
tell interrupts-2 interrupts 2
tell smart-after nvme smart-log /dev/nvme0 -o json
tell error-log-after nvme error-log /dev/nvme0 -e 4 -o json
step rebinds rebinds
step quiet no_complaints
