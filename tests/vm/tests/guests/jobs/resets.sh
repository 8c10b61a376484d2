# root and raw: 128 MiB each of one file.

step root named 1 root
step raw named 2 raw
mark() {
    numbers 100000 >/tmp/numbers
    dd if=/tmp/numbers of=/dev/root bs=4096 conv=sync,fsync
}
marked() {
    dd if=/dev/root bs=4096 count=143 iflag=direct | cmp -s -n 585728 - /tmp/numbers
}
step mark mark

load() {
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --bs=4k --size=8m --filename=/dev/raw --iodepth=32 \
            --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1 \
            --name=large --offset=32m --bs=256k --iodepth=4 --size=16m
    done
}
resets() {
    load &
    load=$!
    for reset in $(seq 20); do
        more_writes raw 100
        nvme reset /dev/nvme0
    done
    more_writes raw 100
    touch /tmp/stop
    wait $load
    marked
}
starts() {
    dmesg | grep -c "default/read/poll queues"
}
step resets resets
tell resets starts
step quiet no_complaints

# A program that writes then gets errors, so there are no checksums; the driver must not wait for the drive.
rebinds() {
    address=$(basename "$(readlink /sys/class/nvme/nvme0/device)")
    for rebind in $(seq 20); do
        for writer in 1 2 3 4; do
            dd if=/dev/zero of=/dev/raw bs=64k seek=$((writer * 256)) count=100000 oflag=direct &
        done
        more_writes raw 20
        rm /dev/root /dev/raw
        echo "$address" >/sys/bus/pci/drivers/nvme/unbind
        wait || true
        [ ! -e /dev/nvme0 ]
        echo "$address" >/sys/bus/pci/drivers/nvme/bind
        named 1 root
        named 2 raw
        marked
    done
}
step rebinds rebinds
tell starts starts
step checksums verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --iodepth=16 \
    --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
driver_quiet() {
    ! dmesg | grep -v -E 'I/O error, dev nvme|Buffer I/O error' | complaints
}
step quiet-again driver_quiet
