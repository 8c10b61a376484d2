# QEMU's own drive, 64 MiB, of which two tenants have a part each: a from 8 MiB on, b from 32 MiB on, 16 MiB each. The server's
# workers are killed while both write and verify; the drive is taken away and given back; no worker is left; and another server gives
# the drive up while it serves.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)
step bind nvmirage drive bind "$drive"

# config: that of the server, which also has a drive that keeps nothing.
config() {
    cat <<END
state_dir = "/tmp/state"
control = "unix:/tmp/control.sock"
[[reactor]]
mode = "adaptive"
[[media]]
name = "nothing"
kind = "null"
size = "16MiB"
[[namespace]]
name = "nothing"
media = "nothing"
[[controller]]
name = "nothing"
namespaces = ["nothing"]
listen = "vfio-user:/tmp/nothing.sock"
END
}
config_drive() {
    config
    cat <<END
[[media]]
name = "drive"
kind = "drive"
target = "pci:$drive"
END
    for part in a=8MiB..24MiB b=32MiB..48MiB; do
        cat <<END
[[namespace]]
name = "${part%%=*}"
media = "drive"
range = "${part#*=}"
lba_size = 512
[[controller]]
name = "${part%%=*}"
namespaces = ["${part%%=*}"]
listen = "vfio-user:/tmp/${part%%=*}.sock"
END
    done
}
config_drive >/tmp/nvmirage.toml

serve() {
    nvmirage --log debug serve --survive --config /tmp/nvmirage.toml >/tmp/serve.log 2>&1 &
    echo $! >/tmp/holder
    # The first worker serves, and the next one waits.
    serve_left=600
    until [ "$(grep -c '^ready: ' /tmp/serve.log)" = 3 ]; do
        { [ $serve_left -gt 0 ] && kill -0 "$(cat /tmp/holder)"; } || {
            cat /tmp/serve.log
            return 1
        }
        serve_left=$((serve_left - 1))
        usleep 100000
    done
}
step serve serve
holder=$(cat /tmp/holder)

# logged N WORDS: waits until the server has printed the words so often.
logged() {
    logged_left=600
    until [ "$(grep -c "$2" /tmp/serve.log)" -ge "$1" ]; do
        [ $logged_left -gt 0 ] || {
            tail -n 60 /tmp/serve.log
            return 1
        }
        logged_left=$((logged_left - 1))
        usleep 100000
    done
}
# worker: the process that serves; the next one waits behind it.
worker() {
    set -- $(cat "/proc/$holder/task/$holder/children")
    echo "$1"
}

# each checks all that it writes, from before the first death to after the last one
tenant() {
    tenant_seed=$3
    until [ -e /tmp/stop ]; do
        nvmirage bench --target "vfio-user:/tmp/$1.sock" --destroy-data --rw randrw --bs "$2" --qd 8 --time 8s --span 8MiB --seed $tenant_seed --verify
        tenant_seed=$((tenant_seed + 2))
    done
}
# loaded: the drive reaches the memory of both, as often as they have begun.
loaded() {
    in_background a tenant a 4k 1
    in_background b tenant b 64k 2
    logged 2 'a drive reaches memory of a host'
}
step loaded loaded

# deaths N: each worker has served for longer than a second, so that its death is not one of three in a row. What it had asked of
# the drive is at the drive when it dies.
deaths() {
    for deaths_at in $(seq 1 "$1"); do
        sleep 2
        kill -0 $holder
        kill -9 "$(worker)"
        logged $((deaths_at + $2)) 'hosts continue after'
        logged $((deaths_at + $2)) 'a drive of the last process continues'
    done
}
step deaths deaths 5 0
# An upgrade has a second until the other program serves, which is little for these processors beside such a load: the hosts stand
# still for it.
upgrade() {
    sleep 2
    kill -STOP $(pidof_bench)
    nvmirage upgrade --control unix:/tmp/control.sock
    kill -CONT $(pidof_bench)
    logged 6 'hosts continue after'
    logged 6 'a drive of the last process continues'
}
pidof_bench() {
    for pidof_bench in $(pidof nvmirage); do
        ! tr '\0' ' ' <"/proc/$pidof_bench/cmdline" | grep -q ' bench ' || echo "$pidof_bench"
    done
}
step upgrade upgrade
step deaths-later deaths 5 6
verified_both() {
    touch /tmp/stop
    for both in a b; do
        done_in_background $both
        cat /tmp/$both.log
    done
}
step verified verified_both
tell pauses sed -n 's/.*hosts continue after \([0-9]*\) ms.*/\1/p' /tmp/serve.log
tell served cat /tmp/serve.log

# the kernel asks for the drive: neither the worker nor the holder has it any more, and it comes back
taken() {
    echo 1 >"/sys/bus/pci/devices/$drive/remove" &
    taken_pid=$!
    logged 1 'a drive is lost'
    wait $taken_pid
    [ ! -e "/sys/bus/pci/devices/$drive" ]
    fails held
    echo 1 >/sys/bus/pci/rescan
    appears "/sys/bus/pci/devices/$drive"
    eventually nvmirage drive bind "$drive"
    logged 1 'a drive is back'
    nvmirage bench --target vfio-user:/tmp/a.sock --destroy-data --rw randrw --qd 4 --time 1s --span 8MiB --verify
}
# held: the holder has descriptors of the drive.
held() {
    ls -l "/proc/$holder/fd" | grep '/dev/vfio/\|vfio-device'
}
step held held
named_both() {
    nvmirage drive ls >/tmp/drives
    grep "process $holder) has /dev/vfio/" /tmp/drives
    grep "process $(worker)) has /dev/vfio/" /tmp/drives
}
step named named_both
step taken taken
step held-again held

# three deaths in a row: no process follows, and the holder, which lives, has nothing of the drive
has_worker() {
    [ -n "$(worker)" ]
}
struck() {
    for struck_at in 1 2 3; do
        # One that died before it served is followed after a second.
        eventually has_worker
        struck_worker=$(worker)
        kill -9 "$struck_worker"
        struck_left=300
        while [ "$(worker)" = "$struck_worker" ]; do
            [ $struck_left -gt 0 ]
            struck_left=$((struck_left - 1))
            usleep 100000
        done
    done
    logged 1 'hosts find a fatal status'
    kill -0 $holder
    fails held
}
step struck struck
step unbind nvmirage drive unbind "$drive"
step back appears /dev/nvme0n1
stop() {
    kill -TERM $holder
    stop_left=300
    while kill -0 $holder; do
        [ $stop_left -gt 0 ] || return 1
        stop_left=$((stop_left - 1))
        usleep 100000
    done
}
step stop stop

# The next server gives the drive up while it serves, has it again, and has released it when it ends.
again() {
    nvmirage drive bind "$drive"
    serve
    holder=$(cat /tmp/holder)
    held
    config >/tmp/nvmirage.toml
    nvmirage reload --control unix:/tmp/control.sock
    eventually not_held
    nvmirage drive unbind "$drive"
    appears /dev/nvme0n1
    nvmirage drive bind "$drive"
    config_drive >/tmp/nvmirage.toml
    nvmirage reload --control unix:/tmp/control.sock
    held
    kill -9 "$(worker)"
    logged 1 'a drive of the last process continues'
    stop
    nvmirage drive unbind "$drive"
    appears /dev/nvme0n1
}
not_held() {
    fails held
}
step again again
step quiet no_complaints
