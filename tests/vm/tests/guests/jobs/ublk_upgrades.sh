# data: 64 MiB of a file, served by ublk. zoned: 64 MiB in zones of 4 MiB. The server is replaced UPGRADES times under writes that
# are verified. With FAILURES a program then does not take over, and the last one goes on.

config() {
    head_of_config
    cat <<END
[survival]
enabled = true
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
[[media]]
name = "zones"
kind = "file"
path = "/data/zones.img"
size = "64MiB"
[media.zoned]
zone_size = "4MiB"
max_open = 8
max_active = 8
[[namespace]]
name = "data"
media = "disk"
lba_size = 512
[[namespace]]
name = "zoned"
media = "zones"
lba_size = 4096
[[controller]]
name = "data"
namespaces = ["data"]
listen = "ublk:0"
queues = 2
[[controller]]
name = "zoned"
namespaces = ["zoned"]
listen = "ublk:1"
queues = 2
END
}
config >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step data called data ublkb0
step zoned called zoned ublkb1

# completed: requests that the kernel has seen completed: reads, writes and discards. Nothing here flushes: the kernel counts a flush
# twice.
completed() {
    set -- $(attribute data stat)
    [ "${16}" = 0 ] && echo $(($1 + $5 + ${12}))
}
# verify NAME OPTION...: rounds of fio, each of which verifies a block after 128 more, and all of them in the end.
verify() {
    verify_name=$1
    shift
    until [ -e /tmp/stop ]; do
        verified --rw=randwrite --filename=/dev/data --verify_backlog=128 "$@"
        echo "$verify_name" >>/tmp/rounds
    done
}
# Written in order, verified and reset. A write that fails ends it.
verify_zones() {
    until [ -e /tmp/stop ]; do
        blkzone reset /dev/zoned
        fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=8 --bs=16k --rw=randwrite --size=16m --max_open_zones=4 \
            --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 --output=/dev/null --eta=never \
            --name=zones --filename=/dev/zoned
        echo zones >>/tmp/rounds
    done
}
load() {
    in_background page verify page --name=page --bs=4k --iodepth=32 --size=4m --cpus_allowed=0
    in_background large verify large --bs=64k --iodepth=4 --offset=16m --size=16m --cpus_allowed=1 --name=large
    more_writes data 100
    # Before Linux 6.16 writes to zones fail that are in flight.
    if is_newer; then
        in_background zones verify_zones
        more_writes zoned 20
    fi
}
step load load

# upgraded: this program takes over; what the command said of devices that are not quiet is in /tmp/upgrade. On an emulated processor
# it may not serve within 1 s, or the reply to the command may be late: then there is another upgrade.
upgraded() {
    set -- $(attribute data inflight)
    echo "$(($1 + $2))" >>/tmp/in_flight
    upgraded_before=$(went_on)
    for upgraded_attempt in 1 2 3 4 5; do
        ! control upgrade >/tmp/upgrade 2>&1 || break
        cat /tmp/upgrade
        grep -E 'did not serve|closed the connection' /tmp/upgrade
    done
    cat /tmp/upgrade
    grep '^upgraded server: ' /tmp/upgrade
    if is_newer; then
        fails grep 'not quiesced' /tmp/upgrade
    else
        grep 'not quiesced: /dev/ublkb0: this kernel cannot' /tmp/upgrade
    fi
    eventually goes_on_since "$upgraded_before"
    more_writes data 5
}
# went_on: how often a process has taken the disk over.
went_on() {
    grep -c '/dev/ublkb0 goes on' /tmp/serve.log || [ $? = 1 ]
}
goes_on_since() {
    [ "$(went_on)" -gt "$1" ]
}
for upgrade in $(seq 1 "$UPGRADES"); do
    usleep $((100000 + upgrade * 37 % 100 * 3000))
    step upgraded upgraded
done

# counts: requests of the disk in each process that was to be replaced.
counts() {
    sed -n 's/.* \([0-9]*\) requests of the block device in this process.*controller="\?data.*/\1/p' /tmp/serve.log
}
# children: the processes of the holder: the one that serves, and those that wait.
children() {
    cat "/proc/$(server)/task/$(server)/children"
}
# quiet: waits for the next line of the log about a device that is quiet, or cannot be. No command is started for a line: between
# that line and the takeover is a quarter of a second.
quiet() {
    quiet_left=2000
    while :; do
        if read -r quiet_line <&3; then
            case $quiet_line in
            */dev/ublkb0\ is\ quiet* | */dev/ublkb0\ is\ not\ quiet*) return 0 ;;
            esac
        else
            [ $quiet_left -gt 0 ] || {
                cat /tmp/upgrade.log
                tail -n 40 /tmp/serve.log
                return 1
            }
            quiet_left=$((quiet_left - 1))
            usleep 2000
        fi
    done
}
# to_waiting SIGNAL: an upgrade whose program gets the signal when a device is quiet and it has not taken over.
to_waiting() {
    exec 3</tmp/serve.log
    while read -r waiting_line <&3; do :; done
    in_background upgrade sh -c '! nvmirage upgrade --control unix:/tmp/control.sock'
    renice -n -20 -p $$
    quiet
    # It has no end of a line.
    read -r waiting_children <"/proc/$(server)/task/$(server)/children" || [ -n "$waiting_children" ]
    # The last one.
    kill "-$1" "${waiting_children##* }"
    renice -n 0 -p $$
    exec 3<&-
}
# It dies: the process that has served goes on, and takes the disk back.
taken_back() {
    taken_before=$(went_on)
    counts | wc -l >/tmp/not_last
    set -- $(children)
    to_waiting KILL
    logged 'the other program does not take over'
    if is_newer; then
        eventually goes_on_since "$taken_before"
    fi
    more_writes data 50
    kill -0 "$1"
    done_in_background upgrade
    grep -F 'still serves' /tmp/upgrade.log
}
[ -z "$FAILURES" ] || step taken-back taken_back
# It hangs: the holder ends it, and starts the last program again.
fallen_back() {
    fallen_before=$(went_on)
    rm -f /tmp/upgrade.done
    to_waiting STOP
    done_in_background upgrade
    grep -F 'did not serve' /tmp/upgrade.log
    eventually goes_on_since "$fallen_before"
    more_writes data 50
}
[ -z "$FAILURES" ] || step fallen-back fallen_back
# What is no such program changes nothing.
no_program() {
    no_before=$(went_on)
    refused 'cannot go on' control upgrade /bin/true
    [ "$(went_on)" = "$no_before" ]
    more_writes data 20
}
step no-program no_program
end_load() {
    touch /tmp/stop
    done_in_background page
    done_in_background large
    ! is_newer || done_in_background zones
}
step loads end_load

# Each process has logged how many requests it has had when it was to be replaced; the one that went on did so twice. After a last
# upgrade, without requests in flight, these are all requests; the kernel knows how many there were.
last() {
    control upgrade || grep -F 'goes on' /tmp/serve.log
    if [ -n "$FAILURES" ]; then
        counts | sed "$(($(cat /tmp/not_last) + 1))d" >/tmp/given
    else
        counts >/tmp/given
    fi
    cat /tmp/given
}
step last last
given() {
    awk '{ sum += $1 } END { print sum }' /tmp/given
}
tell given given
tell completed completed
rounds() {
    wc -l </tmp/rounds
}
tell rounds rounds
in_flight() {
    awk '{ sum += $1 } END { print sum + 0 }' /tmp/in_flight
}
tell in-flight in_flight
# The log has the errors of the upgrades that failed, and no other ones.
ends_in_order() {
    kill -TERM "$(server)"
    ends
    grep -E 'ERROR|panicked' /tmp/serve.log >/tmp/errors || [ $? = 1 ]
    fails grep -v -E 'does not (take over|get ready|serve)|process ended .SIGKILL' /tmp/errors
}
step stop ends_in_order
step gone absent /dev/ublkb0 /dev/ublkc0 /dev/ublkb1 /dev/ublkc1
step quiet no_complaints
