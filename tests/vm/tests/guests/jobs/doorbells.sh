# root: 64 MiB of memory. Short commands, one at a time on one processor and several on the other,
# with a reset between two halves.

step root named 1 root
trace_on
work() {
    verified --filename=/dev/root --rw=randwrite --bs=4k \
        --name=one --iodepth=1 --size=4m --cpus_allowed=0 \
        --name=more --iodepth=8 --offset=16m --size=8m --cpus_allowed=1
}
step work work
# the server counts from zero for the queues that come after the reset
say half
await on
step reset nvme reset /dev/nvme0
step work-again work
commands() {
    set -- $(attribute root stat)
    echo $(($1 + $5))
}
tell commands commands
tell registrations traced nvme_admin_dbbuf
step quiet no_complaints
say idle
await end
