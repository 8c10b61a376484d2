# Seven controllers in PCI slots 10 to 16: nothing, memory, disk, optane, flash, zones, pairs.

# drive SLOT NAME: waits for the controller in that PCI slot, and makes its namespace /dev/NAME: its disk, or where it has none the
# character device that commands are passed through.
drive() {
    drive_left=300
    until drive_path=$(ls -d /sys/bus/pci/devices/0000:00:$1.0/nvme/nvme*) && grep -x live "$drive_path/state"; do
        [ $drive_left -gt 0 ] || {
            echo "no controller in slot $1"
            return 1
        }
        drive_left=$((drive_left - 1))
        usleep 100000
    done
    drive_name=${drive_path##*/nvme}
    if [ "$2" = pairs ]; then
        ln -s "ng${drive_name}n1" "/dev/$2"
    else
        ln -s "nvme${drive_name}n1" "/dev/$2"
    fi
    appears "/dev/$2"
}
drives() {
    drive 10 nothing
    drive 11 memory
    drive 12 disk
    drive 13 optane
    drive 14 flash
    drive 15 zones
    drive 16 pairs
}
step drives drives
tell controllers sh -c 'ls -d /sys/class/nvme/nvme* | wc -l'
tell disks sh -c 'ls -d /dev/nvme*n1 | wc -l'
tell zones sh -c 'blkzone report /dev/zones | wc -l'
tell model attribute zones queue/zoned

nothing() {
    dd if=/dev/urandom of=/dev/nothing bs=64k count=4 oflag=direct
    dd if=/dev/nothing of=/dev/null bs=64k count=4 iflag=direct
}
step nothing nothing

BLOCKS="memory disk optane flash"
filesystems() {
    for name in $BLOCKS; do
        mkfs.ext4 -q /dev/$name
        mkdir /mnt/$name
        mount -t ext4 /dev/$name /mnt/$name
        filled /mnt/$name
        sync -f /mnt/$name
    done
    for name in $BLOCKS; do
        intact /mnt/$name
        umount /mnt/$name
        fsck.ext4 -fn /dev/$name
    done
}
step filesystems filesystems

# Whole writes of the flash.
zones() {
    blkzone reset /dev/zones
    fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=4 --bs=192k --rw=write --size=128m --io_size=18m --offset=128m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/tmp/zones.log --eta=never \
        --name=zones --filename=/dev/zones
    blkzone report --offset 262144 --count 1 /dev/zones | grep 'wptr 0x009000'
}
step zones zones

# pass OPCODE [OPTION...]: a command of the Key Value command set; the first eight bytes of its key are in Dwords 2 and 3, its
# length in Dword 11.
pass() {
    pass_opcode=$1
    shift
    nvme io-passthru /dev/pairs --opcode=$pass_opcode --namespace-id=1 "$@"
}
COLO="--cdw2=0x6f6c6f63 --cdw11=4"
KEY1="--cdw2=0x2d79656b --cdw3=0x31303030 --cdw11=8"
pairs() {
    printf 'a value of 21 bytes..' >/tmp/value
    dd if=/dev/urandom of=/tmp/large bs=1000 count=40
    fails pass 0x14 $COLO
    pass 1 $COLO --write --input-file=/tmp/value --data-len=21 --cdw10=21
    pass 1 $KEY1 --write --input-file=/tmp/large --data-len=40000 --cdw10=40000
    pass 0x14 $COLO
    pass 2 $COLO --read --data-len=21 --cdw10=21 --raw-binary >/tmp/back
    cmp /tmp/value /tmp/back
    pass 2 $KEY1 --read --data-len=40000 --cdw10=40000 --raw-binary >/tmp/back
    cmp /tmp/large /tmp/back
    pass 6 --read --data-len=4096 --cdw10=4096 --raw-binary >/tmp/keys
}
step pairs pairs
tell keys sh -c "od -A n -t x1 -v -N 24 /tmp/keys | tr -s ' \n' ' ' | sed 's/^ //'"

# All of them at the same time, each as its kind is used, every byte checked.
together() {
    for name in $BLOCKS; do
        verified --bs=4k --iodepth=8 --rw=randwrite --size=2m --offset=512m --name=$name --filename=/dev/$name &
        jobs="$jobs $!"
    done
    fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=1 --bs=192k --rw=write --size=128m --io_size=6m --offset=384m \
        --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/tmp/zones.log --eta=never \
        --name=zones --filename=/dev/zones &
    jobs="$jobs $!"
    for round in 1 2 3 4 5 6 7 8; do
        dd if=/dev/urandom of=/tmp/value bs=3000 count=1
        pass 1 $COLO --write --input-file=/tmp/value --data-len=3000 --cdw10=3000
        pass 2 $COLO --read --data-len=3000 --cdw10=3000 --raw-binary >/tmp/back
        cmp /tmp/value /tmp/back
    done
    for job in $jobs; do
        wait $job
    done
    pass 0x10 $COLO
    fails pass 0x14 $COLO
}
step together together
step complaints no_complaints

# Not where the write pointer is, which the kernel complains of.
out_of_order() {
    fails dd if=/dev/zero of=/dev/zones bs=4k count=1 seek=100 oflag=direct
}
step out-of-order out_of_order
