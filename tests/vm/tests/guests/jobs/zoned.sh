# Namespace 1: 32 zones of 4 MiB with 3 MiB to write, 4096-byte blocks. Namespace 2: blocks. reference: zones of the kernel's own.

step zones named 1 zoned
step blocks named 2 blocks

reference() {
    modprobe null_blk nr_devices=0
    mount -t configfs none /sys/kernel/config
    # Its name is the disk's.
    mkdir /sys/kernel/config/nullb/reference
    cd /sys/kernel/config/nullb/reference
    echo 128 >size
    echo 4096 >blocksize
    echo 1 >memory_backed
    echo 1 >zoned
    echo 4 >zone_size
    echo 3 >zone_capacity
    echo 8 >zone_max_open
    echo 8 >zone_max_active
    echo 1 >power
    appears /dev/reference
}
step reference reference

tell model attribute zoned queue/zoned
tell id-ns sh -c 'nvme zns id-ns /dev/zoned -o json | tr -d " \n"'

# zones DISK: what Linux tells of the zones; of one that is full not the write pointer, which is of no meaning.
zones() {
    blkzone report "$1" | sed '/zcond:14/s/wptr 0x[0-9a-f]*//'
}

# state NAME: what Linux tells of the zones of both devices.
state() {
    for state_disk in nvme null; do
        case $state_disk in
        nvme) state_path=/dev/zoned ;;
        null) state_path=/dev/reference ;;
        esac
        tell $state_disk-$1 zones $state_path
    done
}

# both COMMAND...: runs the command with each device in place of @.
both() {
    for both_path in /dev/zoned /dev/reference; do
        sh -ec "$(echo "$*" | sed "s|@|$both_path|g")"
    done
}

tell limits sh -c 'cat /sys/block/$(readlink /dev/zoned)/queue/max_open_zones /sys/block/$(readlink /dev/zoned)/queue/max_active_zones /sys/block/$(readlink /dev/zoned)/queue/zone_append_max_bytes'
state fresh

step write both 'dd if=/dev/urandom of=@ bs=64k count=4 oflag=direct'
state written
# 1024 blocks of 4 KiB are 8192 sectors.
step open both 'blkzone open --offset 8192 --length 8192 @; blkzone close --offset 0 --length 8192 @'
state opened
step finish both 'blkzone finish --offset 16384 --length 8192 @'
state finished
# Out of order, and into a zone that is full.
refused() {
    both '! dd if=/dev/zero of=@ bs=4k count=1 seek=100 oflag=direct'
    both '! dd if=/dev/zero of=@ bs=4k count=1 seek=2048 oflag=direct'
}
step refused refused
step reset both 'blkzone reset @'
state reset

written() {
    both 'fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=8 --bs=16k --rw=randwrite --size=48m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never \
        --max_open_zones=6 --randseed=7 --name=zones --filename=@'
    both 'blkzone reset @'
    both 'fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=1 --bs=64k --rw=write --offset=4m --size=12m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never \
        --name=order --filename=@'
}
step fio written
state fio

zonefs() {
    modprobe zonefs
    for device in /dev/zoned /dev/reference; do
        blkzone reset $device
        mkzonefs -f -o perm=644 $device
        mount -t zonefs $device /mnt
        ls -l /mnt/seq | tail -n 3
        dd if=/dev/urandom of=/tmp/data bs=64k count=40
        dd if=/tmp/data of=/mnt/seq/5 bs=64k oflag=direct conv=notrunc
        [ "$(stat -c %s /mnt/seq/5)" = 2621440 ]
        umount /mnt
        mount -t zonefs $device /mnt
        cmp /tmp/data /mnt/seq/5
        # A file that is cut to nothing is a zone that is reset, one that is cut to its most is finished.
        truncate -s 0 /mnt/seq/5
        [ "$(stat -c %s /mnt/seq/5)" = 0 ]
        dd if=/tmp/data of=/mnt/seq/6 bs=64k count=1 oflag=direct conv=notrunc
        truncate -s 3145728 /mnt/seq/6
        umount /mnt
    done
}
step zonefs zonefs
state zonefs

# append: two blocks, one after the other, to the ninth zone.
append() {
    blkzone reset /dev/zoned
    blkzone reset /dev/reference
    dd if=/dev/urandom of=/tmp/block bs=4k count=1
    for number in 1 2; do
        nvme zns zone-append /dev/zoned --zslba=8192 --data-size=4096 --data=/tmp/block >/tmp/append-$number
        cat /tmp/append-$number
    done
    dd if=/dev/zoned of=/tmp/back bs=4k skip=8192 count=2 iflag=direct
    cat /tmp/block /tmp/block | cmp - /tmp/back
    dd if=/tmp/back of=/dev/reference bs=4k seek=8192 count=2 oflag=direct
}
step append append
for number in 1 2; do
    tell append-$number sed -n 's/.*LBA[: ]*\([0-9a-f]*\).*/\1/p' /tmp/append-$number
done
tell report-zones nvme zns report-zones /dev/zoned --start=8192 --descs=1
state last

# Blocks of a random write area in any order, and again; then up to block 3, and with it, explicitly, and two steps implicitly.
random() {
    blkzone reset /dev/zoned
    nvme zns open-zone /dev/zoned --start-lba=0 --zrwaa
    # The block layer writes at the write pointer alone.
    for slba in 9 0 3 9 15; do
        nvme write /dev/zoned --start-block=$slba --block-count=0 --data-size=4096 --data=/tmp/block
    done
    nvme zns report-zones /dev/zoned --descs=1 | tee /tmp/random
    grep 'WP: 0 .*State: 0x30 .*Attrs: 0x8' /tmp/random
    nvme zns zrwa-flush-zone /dev/zoned --lba=3
    nvme zns report-zones /dev/zoned --descs=1 | grep 'WP: 0x4 '
    fails nvme zns zrwa-flush-zone /dev/zoned --lba=5
    fails nvme write /dev/zoned --start-block=3 --block-count=0 --data-size=4096 --data=/tmp/block
    nvme write /dev/zoned --start-block=24 --block-count=0 --data-size=4096 --data=/tmp/block
    nvme zns report-zones /dev/zoned --descs=1 | grep 'WP: 0xc '
    dd if=/dev/zoned of=/tmp/back bs=4k skip=9 count=1 iflag=direct
    cmp /tmp/block /tmp/back
    fails nvme zns open-zone /dev/zoned --start-lba=0 --zrwaa
    fails nvme zns zone-append /dev/zoned --zslba=0 --data-size=4096 --data=/tmp/block
    nvme zns reset-zone /dev/zoned --start-lba=0
    dd if=/dev/zoned bs=4k count=32 iflag=direct | tr -d '\0' | wc -c | grep -x 0
}
step random random

managed() {
    nvme zns report-zones /dev/zoned --descs=2
    nvme zns open-zone /dev/zoned --start-lba=1024
    nvme zns report-zones /dev/zoned --state=3 --descs=32 | grep 'State: 0x30'
    nvme zns close-zone /dev/zoned --start-lba=1024
    nvme zns finish-zone /dev/zoned --start-lba=1024
    nvme zns reset-zone /dev/zoned --select-all
    fails nvme zns offline-zone /dev/zoned --start-lba=1024
    nvme zns changed-zone-list /dev/zoned
    nvme zns id-ctrl /dev/nvme0
    nvme cmdset-ind-id-ns /dev/nvme0 -n 1
}
step managed managed

# The neighbour has blocks.
neighbour() {
    mkfs.ext4 -q /dev/blocks
    mount -t ext4 /dev/blocks /mnt
    numbers 1000 >/mnt/numbers
    umount /mnt
    fsck.ext4 -fn /dev/blocks
}
step neighbour neighbour

# A zone wears out: the tenth. The kernel, which has seen the event, lets others read the list of it.
say ready
await lost
lost() {
    nvme zns changed-zone-list /dev/zoned | tee /tmp/changed
    grep -i -E '2400|9216' /tmp/changed
    nvme zns report-zones /dev/zoned --start=9216 --descs=1 | tee /tmp/offline
    grep 'State: 0xf0' /tmp/offline
    fails nvme read /dev/zoned --start-block=9216 --block-count=0 --data-size=4096 --data=/tmp/nothing
    blkzone report --offset 73728 --length 8192 /dev/zoned | grep 'zcond:15'
}
step lost lost
