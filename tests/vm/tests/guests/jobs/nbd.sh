# Functions of a host of NBD exports at 10.0.2.2:PORT. /dev/EXPORT is the disk of an export.

# attach EXPORT DISK OPTION...: makes the export the kernel's disk /dev/DISK.
attach() {
    attach_export=$1 attach_disk=$2
    shift 2
    nbd-client 10.0.2.2 "$PORT" "/dev/$attach_disk" -N "$attach_export" "$@"
    eventually nbd-client -c "/dev/$attach_disk"
    ln -s "$attach_disk" "/dev/$attach_export"
}

# detach EXPORT: its disk is an empty one again.
detach() {
    detach_disk=$(readlink "/dev/$1")
    nbd-client -d "/dev/$detach_disk"
    eventually has_no_server "$detach_disk"
    rm "/dev/$1"
}
has_no_server() {
    [ ! -e "/sys/block/$1/pid" ] && [ "$(cat "/sys/block/$1/size")" = 0 ]
}

# is EXPORT FILE VALUE: the kernel's attribute of the disk has this value.
is() {
    is_value=$(attribute "$1" "$2")
    [ "$is_value" = "$3" ] || {
        echo "$2 of $1 is $is_value instead of $3"
        return 1
    }
}

# connections N: so many connections to the server are open.
connections() {
    netstat -t -n >/tmp/connections
    [ "$(grep -c "10.0.2.2:$PORT  *ESTABLISHED" /tmp/connections)" = "$1" ] || {
        cat /tmp/connections
        return 1
    }
}

# flushes EXPORT: how many flushes the kernel has seen completed.
flushes() {
    set -- $(attribute "$1" stat)
    echo "${16}"
}

# sent: bytes that have left the guest.
sent() {
    cat /sys/class/net/eth0/statistics/tx_bytes
}

# sends_little COMMAND [ARGUMENT...]: the command sends less than a megabyte.
sends_little() {
    sends_before=$(sent)
    "$@"
    sends_bytes=$(($(sent) - sends_before))
    echo "$sends_bytes bytes sent"
    [ $sends_bytes -lt 1000000 ]
}

# refuses WORDS COMMAND [ARGUMENT...]: the command fails, and says these words.
refuses() {
    refuses_words=$1
    shift
    fails "$@" >/tmp/refuses 2>&1
    cat /tmp/refuses
    grep -F -i "$refuses_words" /tmp/refuses
}

# no_faults: the kernel's log has none of its own.
no_faults() {
    ! dmesg | grep -E 'BUG:|Oops|WARNING:|Call Trace|hung task'
}

step module modprobe nbd nbds_max=4
step debugfs mount -t debugfs debugfs /sys/kernel/debug
