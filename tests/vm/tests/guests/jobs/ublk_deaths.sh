# data: 64 MiB of a file, served by ublk. The server is killed DEATHS times under writes that are verified, and each time the next
# one takes the disk over. Then it ends in order while the disk is mounted, and while nothing uses it.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "file"
path = "/data/disk.img"
size = "64MiB"
[media.timing]
preset = "optane-p4800x"
as_measured_by = "device"
read_latency = "5ms"
write_latency = "5ms"
[[namespace]]
name = "data"
media = "disk"
lba_size = 512
[[controller]]
name = "data"
namespaces = ["data"]
listen = "ublk:"
queues = 2
END
}
config >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step data called data ublkb0

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
    in_background page verify page --name=page --bs=4k --iodepth=32 --size=4m --cpus_allowed=0
    in_background large verify large --bs=64k --iodepth=4 --offset=16m --size=16m --cpus_allowed=1 --name=large \
        --name=flushed --bs=8k --offset=48m --size=256k --fsync=8 \
        --name=cached --rw=write --bsrange=512-20k --direct=0 --ioengine=psync --offset=32m --size=1m --fsync=16
    more_writes data 100
}
step load load
# killed: the server dies with requests of the disk in flight, and the next one takes the disk over.
killed() {
    set -- $(attribute data inflight)
    kill -9 "$(server)"
    echo "$(($1 + $2))" >>/tmp/in_flight
    ends
    serve
    logged '/dev/ublkb0 goes on'
    more_writes data 5
}
for death in $(seq 1 "$DEATHS"); do
    # Not always at the same place of the load.
    usleep $((100000 + death * 37 % 100 * 3000))
    step killed killed
done
end_load() {
    touch /tmp/stop
    for end_name in page large; do
        done_in_background $end_name
    done
}
step loads end_load
rounds() {
    wc -l </tmp/rounds
}
tell rounds rounds
interrupted() {
    awk '$1 > 0 { count++ } END { print count + 0 }' /tmp/in_flight
}
tell interrupted interrupted

# Deaths while a server takes the disk over: none of them makes it fail.
early() {
    for early_wait in 0 50000 200000 400000 800000; do
        kill -9 "$(server)"
        ends
        nvmirage serve --config /tmp/nvmirage.toml >/tmp/serve.log 2>&1 &
        echo $! >/tmp/server
        usleep $early_wait
    done
    kill -9 "$(server)"
    ends
    serve
    dd if=/dev/data of=/dev/null bs=64k count=16 iflag=direct
}
step early early

format() {
    mkfs.ext4 -q /dev/data
    mount -t ext4 /dev/data /mnt
    filled /mnt
}
step format format
# The server ends while the disk is mounted. Its users wait for the next one.
waits() {
    in_background writer dd if=/dev/urandom of=/mnt/later bs=64k count=64 conv=fsync
    stop
    [ -e /dev/ublkb0 ]
    grep -F 'it waits for the next server' /tmp/serve.log
    sleep 2
    background_works
    serve
    logged '/dev/ublkb0 goes on'
    done_in_background writer
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/data
}
step waits waits
# It ends while nothing uses the disk.
step stop stop
step gone absent /dev/ublkb0 /dev/ublkc0
# The drive has what was written, also as another device.
again() {
    sed -i 's/"ublk:"/"ublk:9"/' /tmp/nvmirage.toml
    serve
    called data ublkb9
    mount -t ext4 /dev/data /mnt
    intact /mnt
    umount /mnt
}
step again again
step stop-again stop
step gone-again absent /dev/ublkb9 /dev/ublkc9
step quiet no_complaints
