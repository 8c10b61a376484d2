# raw: 64 MiB. Its blocks are written and verified, and the drive gets admin commands, while the
# server's workers die.

step raw named 2 raw
# verify NAME OPTION...: rounds of fio, each of which verifies a block after 128 more, and all of them in the end.
verify() {
    verify_name=$1
    shift
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --filename=/dev/raw --verify_backlog=128 --output=/tmp/round-$verify_name \
            --output-format=terse --terse-version=3 "$@"
        cat /tmp/round-$verify_name >>/tmp/rounds
    done
}
administer() {
    until [ -e /tmp/stop ]; do
        nvme id-ctrl /dev/nvme0
        nvme smart-log /dev/nvme0
        nvme get-feature /dev/nvme0 -f 7
        nvme id-ns /dev/nvme0 -n 2
    done
}
# Two programs, so that one of them writes while the other begins.
load() {
    in_background small verify small --name=page --bs=4k --iodepth=32 --size=8m --cpus_allowed=0
    in_background large verify large --bs=256k --iodepth=4 --offset=16m --size=32m --cpus_allowed=1 --name=large \
        --name=flushed --bs=8k --offset=48m --size=1m --fsync=8
    in_background administer administer
    more_writes raw 100
}
step load load
say loaded
outlives_deaths raw
for name in small large administer; do
    step $name done_in_background $name
done
# Terse output has the longest latency of reads and writes in these fields, in microseconds.
longest() {
    awk -F ';' '{ for (at = 39; at <= 80; at += 41) if ($at > most) most = $at } END { print int(most) }' /tmp/rounds
}
tell longest-us longest
rounds() {
    wc -l </tmp/rounds
}
tell rounds rounds
step quiet no_complaints
