# small: 128 MiB, 512-byte blocks. large: 32 MiB, 4096-byte blocks. fixed: a read-only file. QUEUES: queues of each.

step small disk 10 small
step large disk 11 large
step fixed disk 12 fixed
attributes() {
    is "$1" ro 0
    is "$1" size "$3"
    is "$1" queue/logical_block_size "$2"
    is "$1" queue/write_cache "write back"
    fails is "$1" queue/discard_max_bytes 0
    fails is "$1" queue/write_zeroes_max_bytes 0
    attribute_queues=$(ls -d "/sys/block/$(readlink "/dev/$1")/mq/"* | wc -l)
    echo "$attribute_queues queues"
    [ "$attribute_queues" = "$QUEUES" ]
}
step small-attributes attributes small 512 262144
step large-attributes attributes large 4096 65536
tell small-features features small
tell fixed-features features fixed
tell small-serial attribute small serial
tell large-serial attribute large serial

# Jobs on each processor: the kernel has a queue for each of them.
by_all_queues() {
    by_before=$(for by_queue in $(seq 0 $((QUEUES - 1))); do calls "$1" "$by_queue"; done)
    verified --filename="/dev/$1" --rw=randrw --iodepth=16 \
        --name=a --bsrange=4k-64k --size=8m --cpus_allowed=0 \
        --name=b --bsrange=4k-256k --offset=8m --size=8m --cpus_allowed=1 \
        --name=c --bs=4k --offset=16m --size=2m --cpus_allowed=1 --iodepth=64
    by_after=$(for by_queue in $(seq 0 $((QUEUES - 1))); do calls "$1" "$by_queue"; done)
    echo "interrupts before: $by_before"
    echo "and after: $by_after"
    for by_queue in $(seq 1 "$QUEUES"); do
        [ "$(echo "$by_after" | sed -n "${by_queue}p")" -gt "$(echo "$by_before" | sed -n "${by_queue}p")" ]
    done
}
step small-queues by_all_queues small
step large-queues by_all_queues large
# Pieces that neither begin nor end with a page: a direct read or write of user memory at an odd place.
pieces() {
    verified --filename=/dev/small --rw=randwrite --iodepth=8 --name=a --bsrange=512-128k --bs_unaligned=0 \
        --iomem_align=512 --offset=24m --size=4m
}
step pieces pieces

files() {
    mkfs.ext4 -q "/dev/$1"
    mount -t ext4 "/dev/$1" /mnt
    filled /mnt
    umount /mnt
    mount -t ext4 "/dev/$1" /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn "/dev/$1"
}
step small-ext4 files small

synced() {
    synced_before=$(flushes small)
    fio --filename=/dev/small --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --offset=96m --size=256k \
        --name=flush --fsync=1
    synced_flushes=$(($(flushes small) - synced_before))
    echo "$synced_flushes flushes"
    [ $synced_flushes -ge 60 ]
}
step flush synced
# The first 16 MiB of the disk.
PART=16777216
pattern() {
    tr '\0' x </dev/zero | dd of=/dev/large bs=1M count=16 iflag=fullblock oflag=direct conv=fsync
}
zeros() {
    cmp -s -n $PART /dev/large /dev/zero
}
discard() {
    fails zeros
    blkdiscard -o 0 -l $PART /dev/large
    zeros
}
# Write zeroes that may deallocate: BLKDEV_ZERO_NOFALLBACK refuses to write them as data.
punched() {
    fails zeros
    fallocate -p -o 0 -l $PART /dev/large
    zeros
}
zeroes() {
    fails zeros
    blkdiscard -z -o 0 -l $PART /dev/large
    zeros
}
step pattern pattern
say filled
await discard
step discard discard
say discarded
await punch
step pattern-again pattern
say filled
await punch
step punch punched
say punched
await zeroes
step pattern-and-again pattern
step write-zeroes zeroes

say small
await larger
larger() {
    eventually is large size 98304
    verified --filename=/dev/large --rw=randwrite --bs=4k --offset=32m --size=16m --name=new --io_size=4m
}
step larger larger
step larger-small is small size 262144

fixed() {
    is fixed ro 1
    is fixed size 2048
    numbers 100000 | cmp -n 500000 - /dev/fixed
    fails dd if=/dev/zero of=/dev/fixed bs=512 count=1 oflag=direct
    fails blkdiscard -o 0 -l 65536 /dev/fixed
    numbers 100000 | cmp -n 500000 - /dev/fixed
}
step fixed-attributes fixed
# The driver starts the device again, with other rings.
again() {
    again_device=$(device small)
    echo "${again_device##*/}" >/sys/bus/virtio/drivers/virtio_blk/unbind
    rm /dev/small
    echo "${again_device##*/}" >/sys/bus/virtio/drivers/virtio_blk/bind
    disk 10 small
    mount -t ext4 /dev/small /mnt
    intact /mnt
    umount /mnt
}
step again again
step quiet no_complaints
