# Functions of a host that connects to what discovery logs list, at ADDRESS.

# as_host COMMAND OPTION...: a command of nvme-cli for an address, as one host.
as_host() {
    as_host_command=$1
    shift
    nvme "$as_host_command" -t tcp -a "$ADDRESS" \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID "$@"
}

# live NQN: how many I/O controllers of the subsystem are connected.
live() {
    live_count=0
    for live_folder in /sys/class/nvme/nvme*; do
        if [ "$(cat "$live_folder/subsysnqn" "$live_folder/state" "$live_folder/cntrltype")" = "$1
live
io" ]; then
            live_count=$((live_count + 1))
        fi
    done
    echo $live_count
}

# are_live COUNT NQN COUNT NQN...: each subsystem has so many.
are_live() {
    while [ $# -gt 0 ]; do
        [ "$(live "$2")" = "$1" ] || return 1
        shift 2
    done
}

# none: there is no controller, not even one of a discovery service.
none() {
    ! ls -d /sys/class/nvme/nvme*
}

# listed FILE: subtype, address and port of the entries that nvme-cli has printed.
listed() {
    sed -n -e 's/^subtype: *//p' -e 's/^trsvcid: *//p' -e 's/^traddr: *//p' "$1" | paste -d ' ' - - -
}

# lists PORT LINE...: the log at the port has these entries behind its own.
lists() {
    lists_port=$1
    shift
    as_host discover -s "$lists_port" >/tmp/discovered
    cat /tmp/discovered
    listed /tmp/discovered >/tmp/listed
    printf '%s\n' "$@" >/tmp/expected
    tail -n +2 /tmp/listed | diff /tmp/expected -
}

# stays PORT: a connection to the discovery service stays, whose events are in /tmp/uevents.
stays() {
    as_host discover -s "$1" --persistent >/tmp/discovered
    stays_folder=$(grep -l -x discovery /sys/class/nvme/nvme*/cntrltype)
    stays_folder=${stays_folder%/cntrltype}
    echo "${stays_folder##*/}" >/tmp/discovery
    printf '#!/bin/sh\necho "$NVME_AEN" >>/tmp/uevents\n' >/tmp/on_event
    chmod +x /tmp/on_event
    busybox uevent /tmp/on_event &
}

# is_told: the discovery service has reported a changed log.
is_told() {
    grep -x -i 0x70f002 /tmp/uevents
}

# connect_by_device PORT: connects to all, by the connection that has stayed.
connect_by_device() {
    as_host connect-all -s "$1" --device="$(cat /tmp/discovery)"
}
