# Reads 4 KiB at random from every drive of the guest in turn, ROUNDS times, and hands over what fio says.

# disk SERIAL: the disk of the NVMe drive with this serial number; of virtio-blk, there is one.
disk() {
    [ "$1" = virtio-blk ] && echo vda && return
    for disk_path in /sys/block/nvme*n1; do
        [ "$(tr -d ' ' <"$disk_path/device/serial")" != "$1" ] || echo "${disk_path##*/}"
    done
}

# read_disk DISK DEPTH
read_disk() {
    fio --name=bench --filename="/dev/$1" --rw=randread --bs=4k --iodepth="$2" \
        --ioengine=libaio --direct=1 --thread --time_based --runtime=SECONDS \
        --randrepeat=0 --norandommap --output-format=terse --terse-version=3
}

ready() {
    modprobe virtio_blk
    appears /dev/vda
    appears /dev/nvme3n1
}
step ready ready
for round in $(seq ROUNDS); do
    for depth in DEPTHS; do
        for drive in DRIVES; do
            tell "$drive-$depth" read_disk "$(disk $drive)" $depth
            say "case $drive-$depth"
        done
    done
    say "round $round"
done
