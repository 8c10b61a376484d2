# root and raw: 64 MiB each. Checksums under load while the host moves the queues, a reset meanwhile, and a mark that
# nobody may touch.

step root named 1 root
step raw named 2 raw
mark() {
    numbers 100000 >/tmp/numbers
    dd if=/tmp/numbers of=/dev/root bs=4096 seek=8192 conv=sync,fsync
}
marked() {
    dd if=/dev/root bs=4096 skip=8192 count=143 iflag=direct | cmp -s -n 585728 - /tmp/numbers
}
step mark mark
# ends when the host has moved everything as often as it wants to
load() {
    until [ -e /tmp/stop ]; do
        for drive in root raw; do
            verified --rw=randwrite --filename=/dev/$drive --bs=4k --size=2m \
                --name=a --iodepth=16 --cpus_allowed=0 \
                --name=b --iodepth=1 --offset=8m --cpus_allowed=1 \
                --name=large --offset=16m --bs=256k --iodepth=4 --size=8m || return 1
        done
    done
}
checked() {
    load >/tmp/load.log 2>&1
    echo $? >/tmp/load.status.new
    mv /tmp/load.status.new /tmp/load.status
}
checked &
say loaded
await reset
step reset nvme reset /dev/nvme0
say again
await stop
stopped() {
    touch /tmp/stop
    appears /tmp/load.status 100
    cat /tmp/load.log
    [ "$(cat /tmp/load.status)" = 0 ]
    marked
}
step stopped stopped
interrupts() {
    grep -c "nvme0q[12]" /proc/interrupts
}
tell vectors interrupts
step quiet no_complaints
