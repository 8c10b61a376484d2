# Functions of a host of several subsystems at 10.0.2.2: NAME is that of PORT_OF_NAME.

# connect_to NAME: connects as one host, which tries again every second where a connection is lost.
connect_to() {
    NQN=nqn.2026-11.org.example:$1
    eval "connect_to_port=\$PORT_OF_$1"
    nvme connect -t tcp -a 10.0.2.2 -s "$connect_to_port" -n "$NQN" --reconnect-delay=1 --ctrl-loss-tmo=120 \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID
    eventually is_live
}

# keys NAME: connects, and makes the character device of the namespace /dev/NAME.
keys() {
    connect_to "$1"
    eventually keys_device "$1"
    ln -s "$(keys_device "$1")" "/dev/$1"
}
keys_device() {
    keys_found=$(disk) || return 1
    keys_found=ng${keys_found#nvme}
    [ -e "/dev/$keys_found" ] && echo "$keys_found"
}
