# One drive, whose four I/O queues (two for reads, two for writes) the test moves between reactors. Each of two jobs,
# which write and read back, is on a processor of its own, so all four are used.

NAME=data
step connect connect -i 2 -W 2 --reconnect-delay=1 --ctrl-loss-tmo=120
queues() {
    [ "$(cat "/sys/class/nvme/$(controller)/queue_count")" = 5 ]
}
step queues queues
# A mark that no load touches.
mark() {
    numbers 100000 >/tmp/numbers
    dd if=/tmp/numbers of=/dev/data bs=4096 seek=10240 conv=sync,fsync
}
marked() {
    dd if=/dev/data bs=4096 skip=10240 count=143 iflag=direct | cmp -s -n 585728 - /tmp/numbers
}
step mark mark

load() {
    until [ -e /tmp/stop ]; do
        # Reads follow writes soon, so both kinds of queue have work all the time.
        verified --filename=/dev/data --rw=randwrite --verify_backlog=16 \
            --name=small --bsrange=4k-16k --iodepth=8 --size=4m --cpus_allowed=0 \
            --name=large --bsrange=32k-128k --iodepth=4 --offset=16m --size=16m --cpus_allowed=1
    done
    # What was written last, by its checksums.
    verified --filename=/dev/data --rw=write --name=last --bs=64k --iodepth=8 --offset=48m --size=8m
}
in_background load load

# goes_on: the controller is connected, and more writes are done.
goes_on() {
    eventually is_live
    more_writes data 50
}
# resets: the host ends its association and makes another one, again and again.
resets() {
    for reset in 1 2 3; do
        nvme reset "/dev/$(controller)"
        goes_on
    done
}
step begins goes_on
say again
while read -r word && [ "$word" != end ]; do
    case $word in
    reset) step resets resets ;;
    *) step goes-on goes_on ;;
    esac
    say again
done
touch /tmp/stop
step load done_in_background load
step still-all queues
step marked marked
no_io_errors() {
    ! dmesg | grep -E 'I/O error|Buffer I/O|critical|timeout'
}
step no-io-errors no_io_errors
step disconnect disconnect
