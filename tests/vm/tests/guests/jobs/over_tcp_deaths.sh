# One drive; the test kills what serves it while a load writes and reads back, or ends its
# connections in order (ENDS=ordered), which is no signal for the load.

NAME=data NQN=nqn.2026-11.org.example:vm
step connect connect_to vm
there() {
    eventually disk
    ln -s "$(disk)" /dev/data
    appears /dev/data
}
step there there

load() {
    [ "$ENDS" = ordered ] || ignore_broken_pipes
    until [ -e /tmp/stop ]; do
        verified --filename=/dev/data --rw=randwrite --name=load --bsrange=4k-64k --iodepth=16 --size=24m --io_size=8m
    done
    # What was written last, by its checksums.
    verified --filename=/dev/data --rw=write --name=last --bs=64k --iodepth=8 --offset=32m --size=8m
}
in_background load load

# goes_on: the controller is connected, and more writes are done.
goes_on() {
    eventually is_live
    more_writes data 50
}
step begins goes_on
say again
while read -r word && [ "$word" = killed ]; do
    step goes-on goes_on
    say again
done
touch /tmp/stop
step load done_in_background load
no_io_errors() {
    ! dmesg | grep -E 'I/O error|Buffer I/O|critical'
}
step no-io-errors no_io_errors
