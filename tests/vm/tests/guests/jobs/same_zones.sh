# zones: /dev/zoned has 32 zones of 4 MiB with 3 MiB to write, 4096-byte blocks. reference: zones of the kernel's own.

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
attributes() {
    is zoned queue/zoned host-managed
    is zoned queue/chunk_sectors 8192
    is zoned queue/nr_zones 32
    is zoned queue/max_open_zones 8
    is zoned queue/max_active_zones 8
    is zoned queue/logical_block_size 4096
    is zoned size 262144
    fails is zoned queue/zone_append_max_bytes 0
}
step attributes attributes

# zones DISK: what Linux tells of the zones; of one that is full not the write pointer, which is of no meaning.
zones() {
    blkzone report "$1" | sed '/zcond:14/s/wptr 0x[0-9a-f]*//'
}
# same: both devices have the same zones.
same() {
    zones /dev/zoned >/tmp/zones
    zones /dev/reference | diff /tmp/zones -
    [ "$(wc -l </tmp/zones)" = 32 ]
}
# both COMMAND...: runs the command with each device in place of @, and compares their zones.
both() {
    for both_path in /dev/zoned /dev/reference; do
        sh -ec "$(echo "$*" | sed "s|@|$both_path|g")"
    done
    same
}
step fresh same
step write both 'dd if=/dev/urandom of=@ bs=64k count=4 oflag=direct'
# 1024 blocks of 4 KiB are 8192 sectors.
step open both 'blkzone open --offset 8192 --length 8192 @; blkzone close --offset 0 --length 8192 @'
step finish both 'blkzone finish --offset 16384 --length 8192 @'
# Out of order, and into a zone that is full.
not_written() {
    both '! dd if=/dev/zero of=@ bs=4k count=1 seek=100 oflag=direct'
    both '! dd if=/dev/zero of=@ bs=4k count=1 seek=2048 oflag=direct'
}
step not-written not_written
# A report that begins in the middle, and one of a part.
parts() {
    for parts_device in zoned reference; do
        blkzone report --offset 40960 "/dev/$parts_device" >"/tmp/$parts_device"
        blkzone report --offset 8192 --count 2 "/dev/$parts_device" | sed '/zcond:14/s/wptr 0x[0-9a-f]*//' >>"/tmp/$parts_device"
        wc -l <"/tmp/$parts_device"
    done
    cmp /tmp/zoned /tmp/reference
    [ "$(wc -l </tmp/zoned)" = 29 ]
}
step parts parts
step reset-one both 'blkzone reset --offset 16384 --length 8192 @'
step reset both 'blkzone reset @'

written() {
    fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=8 --bs=16k --rw=randwrite --size=48m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never \
        --max_open_zones=6 --randseed=7 --name=zones --filename=/dev/zoned
    blkzone reset /dev/zoned
    fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=1 --bs=64k --rw=write --offset=4m --size=12m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never \
        --name=order --filename=/dev/zoned
    blkzone reset /dev/zoned
}
step fio written

zonefs() {
    modprobe zonefs
    for device in /dev/zoned /dev/reference; do
        blkzone reset $device
        mkzonefs -f -o perm=644 $device
        mount -t zonefs $device /mnt
        dd if=/dev/urandom of=/tmp/data bs=64k count=40
        dd if=/tmp/data of=/mnt/seq/5 bs=64k oflag=direct conv=notrunc
        [ "$(stat -c %s /mnt/seq/5)" = 2621440 ]
        # Asynchronous direct writes, in order.
        fio --direct=1 --ioengine=libaio --iodepth=1 --bs=32k --rw=write --size=2m --verify=crc32c --do_verify=1 \
            --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never --name=order --filename=/mnt/seq/7 \
            --allow_file_create=0 --file_append=1
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
    same
}
step zonefs zonefs
