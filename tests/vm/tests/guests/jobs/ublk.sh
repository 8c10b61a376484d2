# Functions of jobs whose disks our own program serves inside the guest, by ublk.

# space: an ext4 file system at /data for the files of drives, on the raw disk in slot 10h.
space() {
    modprobe virtio_blk
    space_left=200
    until space_disk=$(ls -d /sys/bus/pci/devices/0000:00:10.0/virtio*/block/vd?); do
        [ $space_left -gt 0 ] || {
            echo "the disk in slot 10h did not appear"
            return 1
        }
        space_left=$((space_left - 1))
        usleep 100000
    done
    appears "/dev/${space_disk##*/}"
    mkfs.ext4 -q "/dev/${space_disk##*/}"
    mkdir /data
    mount -t ext4 "/dev/${space_disk##*/}" /data
}

# head_of_config: lines that begin each configuration.
head_of_config() {
    printf 'state_dir = "/data/state"\ncontrol = "unix:/tmp/control.sock"\n'
}

# serve: starts the server of /tmp/nvmirage.toml as process $(server), and waits until it serves.
serve() {
    # That of the server before says that it serves.
    rm -f /tmp/serve.log
    nvmirage --log info serve --config /tmp/nvmirage.toml >/tmp/serve.log 2>&1 &
    echo $! >/tmp/server
    serve_left=600
    until grep -s -q '^ready: ' /tmp/serve.log; do
        { [ $serve_left -gt 0 ] && kill -0 "$(server)"; } || {
            cat /tmp/serve.log
            return 1
        }
        serve_left=$((serve_left - 1))
        usleep 100000
    done
}
server() {
    cat /tmp/server
}

# ends: the server's process is gone, within a minute.
ends() {
    ends_left=600
    while runs; do
        [ $ends_left -gt 0 ] || {
            echo "the server does not end"
            tail -n 40 /tmp/serve.log
            return 1
        }
        ends_left=$((ends_left - 1))
        usleep 100000
    done
}
# runs: one of its threads lives. The first one may be a zombie before the others.
runs() {
    cat "/proc/$(server)/task/"*/status 2>/dev/null | grep '^State:' | grep -q -v Z
}

# stop: ends the server as an operator does. It reports no error.
stop() {
    kill -TERM "$(server)"
    ends
    fails grep -E 'ERROR|panicked' /tmp/serve.log
}

# logged WORDS: waits until the server has printed them.
logged() {
    logged_left=200
    until grep -q -F "$1" /tmp/serve.log; do
        [ $logged_left -gt 0 ] || {
            echo "the server did not print: $1"
            tail -n 40 /tmp/serve.log
            return 1
        }
        logged_left=$((logged_left - 1))
        usleep 100000
    done
}

# control COMMAND [ARGUMENT...]: steers the server.
control() {
    nvmirage "$@" --control unix:/tmp/control.sock
}

# called NAME DISK: the disk has a name of ours in /dev, by which functions find the kernel's attributes.
called() {
    appears "/dev/$2"
    ln -sf "$2" "/dev/$1"
}

# is NAME FILE VALUE: the kernel's attribute of the disk has this value.
is() {
    is_value=$(attribute "$1" "$2")
    [ "$is_value" = "$3" ] || {
        echo "$2 of $1 is $is_value instead of $3"
        return 1
    }
}

# absent PATH...: waits until none of them exists.
absent() {
    eventually none_is_there "$@"
}
none_is_there() {
    for none_path in "$@"; do
        [ ! -e "$none_path" ]
    done
}

# flushes NAME: how many flushes the kernel has seen completed.
flushes() {
    set -- $(attribute "$1" stat)
    echo "${16}"
}

# no_faults: the kernel's log has none of its own. It does report requests that failed.
no_faults() {
    ! dmesg | grep -E 'BUG:|Oops|WARNING:|Call Trace|hung task'
}

# is_newer: whether the kernel is Linux 7 or later.
is_newer() {
    newer_release=$(uname -r)
    [ "${newer_release%%.*}" -ge 7 ]
}

step program program
step space space
