# raw: 64 MiB. The controller is reset under load while the server's workers die.

step raw named 2 raw
verify() {
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --bs=4k --size=1m --filename=/dev/raw --iodepth=32 \
            --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
    done
}
resets() {
    until [ -e /tmp/stop ]; do
        more_writes raw 20
        nvme reset /dev/nvme0
    done
}
load() {
    in_background verify verify
    in_background resets resets
    more_writes raw 100
}
step load load
say loaded
outlives_deaths raw
step verified done_in_background verify
step resets done_in_background resets
tell resets sh -c 'dmesg | grep -c "default/read/poll queues"'
step quiet no_complaints
