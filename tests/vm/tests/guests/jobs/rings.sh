# root: 64 MiB of a file. The driver has two queues with interrupts and one that it polls, the third.

step root named 1 root
step character appears /dev/ng0n1
tell queues sh -c 'dmesg | grep "default/read/poll queues"'
tell poll attribute root queue/io_poll
tell vectors sh -c 'grep -o "nvme0q.*" /proc/interrupts | sort'

all_interrupts() {
    echo $(($(interrupts 1) + $(interrupts 2)))
}
# ring NAME OPTION...: 4 MiB written and verified with io_uring, and what the driver did for it.
ring() {
    ring_name=$1
    shift
    tell $ring_name-interrupts-before all_interrupts
    work() {
        trace_on
        verified --rw=randwrite --bs=4k --size=4m --iodepth=8 --name=ring "$@"
    }
    step $ring_name work "$@"
    tell $ring_name-interrupts all_interrupts
    tell $ring_name-commands traced 'nsid=1.*nvme_cmd_(write|read) '
    tell $ring_name-queue-3 traced 'qid=3.*nvme_cmd_(write|read) '
}
passed="--direct=0 --ioengine=io_uring_cmd --cmd_type=nvme --filename=/dev/ng0n1"
ring polled --ioengine=io_uring --filename=/dev/root --hipri
ring passed $passed
ring passed-fixed $passed --fixedbufs --registerfiles
ring passed-polled $passed --fixedbufs --hipri

load() {
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --bs=4k --size=8m --ioengine=io_uring --hipri --filename=/dev/root \
            --iodepth=16 --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
    done
}
# No interrupt reports that a polled command was cancelled.
resets() {
    load &
    load=$!
    for reset in 1 2 3 4 5; do
        more_writes root 200
        nvme reset /dev/nvme0
    done
    more_writes root 200
    touch /tmp/stop
    wait $load
}
step resets resets
tell resets sh -c 'dmesg | grep -c "default/read/poll queues"'
# the driver's words where it cannot describe memory by SGLs
step described sh -c '! dmesg | grep -E "implicit buffer lengths|unchecked data buffer"'
step quiet no_complaints
