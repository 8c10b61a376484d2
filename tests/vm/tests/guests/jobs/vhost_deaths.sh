# data: 64 MiB of a file. Its blocks are written and verified while the server dies and comes back.

# verify NAME OPTION...: rounds of fio, each of which verifies a block after 128 more, and all of them in the end.
verify() {
    verify_name=$1
    shift
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --filename=/dev/data --verify_backlog=128 "$@"
        echo "$verify_name" >>/tmp/rounds
    done
}
# Two programs, so that one of them writes while the other begins.
load() {
    in_background page verify page --name=page --bs=4k --iodepth=32 --size=8m --cpus_allowed=0
    in_background large verify large --bs=256k --iodepth=4 --offset=16m --size=32m --cpus_allowed=1 --name=large \
        --name=flushed --bs=8k --offset=48m --size=1m --fsync=8
    more_writes data 100
}
step load load
say loaded
outlives_deaths data
for name in page large; do
    step $name done_in_background $name
done
rounds() {
    wc -l </tmp/rounds
}
tell rounds rounds
tell features features data
step quiet no_complaints
