# slow: 64 MiB in memory of a tenant that has one command in a second, served by ublk. The end of the disk flushes what programs have
# written, which takes longer than its bound.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "ram"
size = "64MiB"
[[tenant]]
name = "slow"
iops = 1
[[namespace]]
name = "slow"
media = "disk"
lba_size = 4096
[[controller]]
name = "slow"
namespaces = ["slow"]
listen = "ublk:"
queues = 1
tenant = "slow"
END
}
config >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step slow called slow ublkb0
# 15 pages that are no neighbours. Another one has the disk open, whose last close would write them.
dirty() {
    exec 4</dev/slow
    for dirty_page in $(seq 0 20 280); do
        dd if=/dev/urandom of=/dev/slow bs=4k count=1 seek="$dirty_page" conv=notrunc
    done
}
seconds() {
    cut -d. -f1 /proc/uptime
}
# The server ends within the bounds of a flush, a stop and a deletion.
late() {
    dirty
    late_begin=$(seconds)
    kill -TERM "$(server)"
    ends
    late_seconds=$(($(seconds) - late_begin))
    cat /tmp/serve.log
    echo "$late_seconds s"
    grep -F 'cannot flush /dev/ublkb0' /tmp/serve.log
    [ $late_seconds -ge 10 ]
    [ $late_seconds -lt 45 ]
    exec 4<&-
    absent /dev/ublkb0 /dev/ublkc0
}
step late late
# It is killed while it flushes: neither it nor the disk is left.
killed() {
    serve
    called slow ublkb0
    dirty
    kill -TERM "$(server)"
    eventually pidof sync
    sleep 2
    kill -9 "$(server)"
    ends
    absent /dev/ublkb0
}
step killed killed
step quiet no_faults
