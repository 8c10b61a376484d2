# small: 64 MiB, 512-byte blocks, /dev/ublkb0. large: 32 MiB, 4096-byte blocks, /dev/ublkb5. fixed: a file that cannot be
# written, /dev/ublkb6.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "file"
path = "/data/disk.img"
size = "112MiB"
[[media]]
name = "written-before"
kind = "file"
path = "/data/fixed.img"
read_only = true
[[namespace]]
name = "small"
media = "disk"
range = "0MiB..64MiB"
lba_size = 512
[[namespace]]
name = "large"
media = "disk"
range = "64MiB..96MiB"
lba_size = 4096
[[namespace]]
name = "fixed"
media = "written-before"
lba_size = 512
[[controller]]
name = "small"
namespaces = ["small"]
listen = "ublk:"
queues = 2
[[controller]]
name = "large"
namespaces = ["large"]
listen = "ublk:5"
queues = 1
[[controller]]
name = "fixed"
namespaces = ["fixed"]
listen = "ublk:6"
END
}
config >/tmp/nvmirage.toml
fixed_file() {
    numbers 100000 >/data/fixed.img
    truncate -s 1M /data/fixed.img
}
step fixed-file fixed_file

# Before the driver is there.
step no-driver refused 'modprobe ublk_drv' nvmirage serve --config /tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step small called small ublkb0
step large called large ublkb5
step fixed called fixed ublkb6
attributes() {
    is "$1" ro 0
    is "$1" size "$3"
    is "$1" queue/logical_block_size "$2"
    is "$1" queue/write_cache "write back"
    is "$1" queue/fua 1
    is "$1" queue/rotational 0
    is "$1" queue/zoned none
    fails is "$1" queue/discard_max_bytes 0
    fails is "$1" queue/write_zeroes_max_bytes 0
    attribute_queues=$(ls -d "/sys/block/$(readlink "/dev/$1")/mq/"* | wc -l)
    echo "$attribute_queues queues"
    [ "$attribute_queues" = "$4" ]
}
step small-attributes attributes small 512 131072 2
step large-attributes attributes large 4096 65536 1
listed() {
    control ls >/tmp/ls
    cat /tmp/ls
    for listed_disk in /dev/ublkb0 /dev/ublkb5 /dev/ublkb6; do
        grep -F "$listed_disk" /tmp/ls
    done
}
step listed listed

# Direct and cached I/O at the same time, on each processor, of pieces that are no pages.
uses() {
    verified --filename="/dev/$1" --rw=randrw --iodepth=16 \
        --name=a --bsrange=4k-64k --size=8m --cpus_allowed=0 \
        --name=b --bsrange=4k-256k --offset=8m --size=8m --cpus_allowed=1 \
        --name=c --bs=4k --offset=16m --size=2m --cpus_allowed=1 --iodepth=64 \
        --name=d --rw=write --bsrange=512-20k --offset=20m --size=4m --direct=0 --ioengine=psync
}
step small-uses uses small
step large-uses uses large
pieces() {
    verified --filename=/dev/small --rw=randwrite --iodepth=8 --name=a --bsrange=512-128k --bs_unaligned=0 \
        --iomem_align=512 --offset=24m --size=4m
}
step pieces pieces
# Bytes at odd places, by the page cache.
bytes() {
    numbers 100000 >/tmp/bytes
    dd if=/tmp/bytes of=/dev/small bs=1009 seek=29000 conv=notrunc,fsync
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/small bs=1009 skip=29000 | cmp -n "$(stat -c %s /tmp/bytes)" - /tmp/bytes
}
step bytes bytes
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
    fio --filename=/dev/small --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --offset=48m --size=256k \
        --name=flush --fsync=1
    synced_flushes=$(($(flushes small) - synced_before))
    echo "$synced_flushes flushes"
    [ $synced_flushes -ge 60 ]
}
step flush synced
forced() {
    forced_before=$(flushes small)
    fio --filename=/dev/small --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --offset=48m --size=256k \
        --name=fua --sync=1
    # The writes have Force Unit Access, and need no flush each.
    [ $(($(flushes small) - forced_before)) -lt 8 ]
}
step fua forced

# The first 16 MiB of the disk, and KiB of its file that are allocated.
PART=16777216
allocated() {
    sync /data/disk.img
    du -k /data/disk.img | cut -f1
}
pattern() {
    tr '\0' x </dev/zero | dd of=/dev/large bs=1M count=16 iflag=fullblock oflag=direct conv=fsync
    fails zeros
}
zeros() {
    cmp -s -n $PART /dev/large /dev/zero
}
# freed COMMAND...: the command makes the part read zeroes, and gives its memory back.
freed() {
    pattern
    freed_before=$(allocated)
    "$@"
    zeros
    freed_kib=$((freed_before - $(allocated)))
    echo "$freed_kib KiB given back"
    [ $freed_kib -ge 15360 ]
}
step discard freed blkdiscard -o 0 -l $PART /dev/large
# Write zeroes that may deallocate: BLKDEV_ZERO_NOFALLBACK refuses to write them as data.
step punch freed fallocate -p -o 0 -l $PART /dev/large
zeroes() {
    pattern
    blkdiscard -z -o 0 -l $PART /dev/large
    zeros
}
step write-zeroes zeroes

larger() {
    if is_newer; then
        control resize large 48MiB
        eventually is large size 98304
        verified --filename=/dev/large --rw=randwrite --bs=4k --offset=32m --size=16m --name=new --io_size=4m
    else
        control resize large 48MiB
        logged 'this kernel cannot change the size of a ublk disk'
        is large size 65536
    fi
}
step larger larger
step larger-small is small size 131072

fixed() {
    is fixed ro 1
    is fixed size 2048
    numbers 100000 | cmp -n 500000 - /dev/fixed
    fails dd if=/dev/zero of=/dev/fixed bs=512 count=1 oflag=direct
    fails blkdiscard -o 0 -l 65536 /dev/fixed
    numbers 100000 | cmp -n 500000 - /dev/fixed
}
step fixed-attributes fixed

# The ID of a device that serves, in another server of other drives.
other() {
    sed 's|/data/state|/data/other|; s|/tmp/control|/tmp/other|; s|/data/disk|/data/other-disk|' /tmp/nvmirage.toml >/tmp/other.toml
    refused "another drive's" nvmirage serve --config /tmp/other.toml
    is small size 131072
}
step other-server other
no_pci() {
    refused ublk control qemu-args small
    refused 'delete the controller' control disconnect small --all
}
step refusals no_pci

step stop stop
step gone absent /dev/ublkb0 /dev/ublkb5 /dev/ublkb6 /dev/ublkc0 /dev/ublkc5 /dev/ublkc6
step quiet no_complaints
