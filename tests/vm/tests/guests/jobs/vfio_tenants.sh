# QEMU's own drive, 64 MiB, of which two tenants have a part each: a from 8 MiB on, b from 32 MiB on, 16 MiB each. And a drive that
# another server in this guest makes, which tenant c has: that one is stopped.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)
step bind nvmirage drive bind "$drive"

cat >/tmp/other.toml <<END
state_dir = "/tmp/other"
control = "unix:/tmp/other-control.sock"
[[media]]
name = "memory"
kind = "ram"
size = "16MiB"
[[namespace]]
name = "memory"
media = "memory"
[[controller]]
name = "other"
namespaces = ["memory"]
listen = "vfio-user:/tmp/other.sock"
END
other() {
    nvmirage serve --config /tmp/other.toml >/tmp/other.log 2>&1 &
    echo $! >/tmp/other.pid
    appears /tmp/other.sock
}
step other other

cat >/tmp/nvmirage.toml <<END
state_dir = "/tmp/state"
control = "unix:/tmp/control.sock"
[[reactor]]
mode = "adaptive"
[[media]]
name = "drive"
kind = "drive"
target = "pci:$drive"
[[media]]
name = "other"
kind = "drive"
target = "vfio-user:/tmp/other.sock"
[[namespace]]
name = "a"
media = "drive"
range = "8MiB..24MiB"
lba_size = 512
[[namespace]]
name = "b"
media = "drive"
range = "32MiB..48MiB"
lba_size = 512
[[namespace]]
name = "c"
media = "other"
[[controller]]
name = "a"
namespaces = ["a"]
listen = "vfio-user:/tmp/a.sock"
[[controller]]
name = "b"
namespaces = ["b"]
listen = "vfio-user:/tmp/b.sock"
[[controller]]
name = "c"
namespaces = ["c"]
listen = "vfio-user:/tmp/c.sock"
END

serve() {
    nvmirage serve --config /tmp/nvmirage.toml >/tmp/serve.log 2>&1 &
    serve_left=200
    until [ "$(grep -c '^ready: ' /tmp/serve.log)" = 3 ]; do
        [ $serve_left -gt 0 ] || {
            cat /tmp/serve.log
            return 1
        }
        serve_left=$((serve_left - 1))
        usleep 100000
    done
}
step serve serve
step held refused "nvmirage (process [0-9]*) has /dev/vfio/" nvmirage drive unbind "$drive"

# each checks all that it writes, both at the same time
tenant() {
    nvmirage bench --target "vfio-user:/tmp/$1.sock" --destroy-data --rw randrw --bs "$2" --qd 8 --time 1s --span 8MiB --seed "$3" --verify
}
together() {
    tenant a 4k 1 >/tmp/a.log 2>&1 &
    tenant b 64k 2
    wait $! || {
        cat /tmp/a.log
        return 1
    }
}
step together together

# the other server stands still: who is on its drive has its answers in time, which say to try again; who is on the VFIO drive has
# commands done in every two seconds of it; and when the server goes on, so does its drive
tenant_c() {
    nvmirage bench --target vfio-user:/tmp/c.sock --destroy-data --rw randrw --qd 4 --time "$1" >/tmp/stopped-c.log 2>&1
}
# Commands that the reactor has done for all controllers. (By the program's own clock bench leaves out what a processor that is
# emulated takes; this counts everything.)
commands() {
    nvmirage ls --json --control unix:/tmp/control.sock | tr -d ' \n' |
        sed 's/.*"reactors":\[{\([^]]*\).*/\1/; s/.*"commands":\([0-9]*\).*/\1/'
}
# flowing N: waits until so many more are done.
flowing() {
    flowing_goal=$(($(commands) + $1))
    flowing_left=300
    until [ "$(commands)" -ge $flowing_goal ]; do
        [ $flowing_left -gt 0 ] || return 1
        flowing_left=$((flowing_left - 1))
        usleep 100000
    done
}
stopped() {
    nvmirage bench --target vfio-user:/tmp/a.sock --destroy-data --rw randrw --qd 4 --time 120s --span 8MiB --seed 3 >/tmp/stopped-a.log 2>&1 &
    stopped_a=$!
    flowing 100
    kill -STOP "$(cat /tmp/other.pid)"
    (
        fails tenant_c 1s
        cat /tmp/stopped-c.log
        grep -q 'Command Interrupted\|cannot shut the drive down\|cannot be shut down\|cannot be enabled\|is lost' /tmp/stopped-c.log
    ) >/tmp/stopped.log 2>&1 &
    stopped_c=$!
    stopped_before=$(commands)
    # half of what anything at the other drive takes
    for stopped_part in 1 2 3 4 5 6; do
        sleep 2
        stopped_now=$(commands)
        echo "part $stopped_part: $((stopped_now - stopped_before)) commands"
        # more than c can have had: four that end
        [ $((stopped_now - stopped_before)) -gt 4 ]
        stopped_before=$stopped_now
    done
    # 4 s at the drive; the rest is the end of the host, and this machine's
    stopped_left=300
    while kill -0 $stopped_c 2>/dev/null; do
        [ $stopped_left -gt 0 ]
        stopped_left=$((stopped_left - 1))
        usleep 100000
    done
    cat /tmp/stopped.log
    wait $stopped_c
    kill -0 $stopped_a
    kill $stopped_a
    wait $stopped_a || true
    kill -CONT "$(cat /tmp/other.pid)"
    eventually tenant_c 300ms
    together
}
step stopped stopped
tell stopped cat /tmp/step.log

# somebody resets the drive while both use it: their commands end, with a status that hosts repeat, the drive comes back, and
# both have their parts as before
reset() {
    for one in a b; do
        nvmirage bench --target "vfio-user:/tmp/$one.sock" --rw randread --qd 8 --time 3s >"/tmp/reset-$one.log" 2>&1 &
    done
    sleep 1
    echo 1 >"/sys/bus/pci/devices/$drive/reset"
    wait
    cat /tmp/reset-?.log
    reset_left=30
    until nvmirage identify --target vfio-user:/tmp/a.sock && together; do
        [ $reset_left -gt 0 ]
        reset_left=$((reset_left - 1))
        sleep 1
    done
    pidof nvmirage
}
step reset reset
tell reset cat /tmp/step.log

# and leaves known bytes in the last MiB of its part
mark() {
    mkdir -p "/tmp/files-$1"
    nvmirage mount "/tmp/files-$1" --target "vfio-user:/tmp/$1.sock" >"/tmp/mount-$1.log" 2>&1 &
    appears "/tmp/files-$1/ns1"
    { echo "$1"; numbers 1000; } | dd of="/tmp/files-$1/ns1" bs=1M seek=15 conv=notrunc,fsync iflag=fullblock
    kill $!
    wait $!
}
step mark-a mark a
step mark-b mark b

stop() {
    kill $(pidof nvmirage)
    stop_left=300
    while pidof nvmirage; do
        [ $stop_left -gt 0 ] || return 1
        stop_left=$((stop_left - 1))
        usleep 100000
    done
    cat /tmp/serve.log
}
step stop stop
tell served cat /tmp/serve.log
step unbind nvmirage drive unbind "$drive"
step back appears /dev/nvme0n1
step quiet no_complaints
