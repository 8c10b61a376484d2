# Functions of a host with two paths to the subsystem NQN, whose entrances are at ADDRESS. Its
# namespace is /dev/head.

# path PORT: the kernel's name of the controller of that entrance.
path() {
    path_file=$(grep -l "trsvcid=$1" /sys/class/nvme/nvme*/address) || return 1
    path_file=${path_file%/address}
    echo "${path_file##*/}"
}

path_is_live() {
    [ "$(cat "/sys/class/nvme/$(path "$1")/state")" = live ]
}

# has_state PORT STATE: whether the kernel knows the path by this ANA state.
has_state() {
    [ "$(cat "/sys/class/nvme/$(path "$1")"/nvme*c*n1/ana_state)" = "$2" ]
}

# add_path PORT: connects to an entrance.
add_path() {
    nvme connect -t tcp -a "$ADDRESS" -s "$1" -n "$NQN" \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID
    eventually path_is_live "$1"
}

# one_head: both paths are of one namespace, whose disk gets the name /dev/head.
one_head() {
    [ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ]
    eventually has_state "$PORT_A" optimized
    eventually has_state "$PORT_B" optimized
    head_found=$(ls -d /sys/class/nvme-subsystem/nvme-subsys*/nvme*n1 | grep -v 'nvme[0-9]*c')
    [ "$(echo "$head_found" | wc -l)" = 1 ]
    ln -s "${head_found##*/}" /dev/head
    appears /dev/head
}

# load: fio until /tmp/stop is there.
load() {
    until [ -e /tmp/stop ]; do
        verified --filename=/dev/head --rw=randwrite \
            --name=small --bs=4k --iodepth=16 --size=4m \
            --name=large --bs=128k --iodepth=4 --offset=16m --size=16m
    done
}

# switches: what the test says is what the kernel knows soon, and the load goes on: `PORT STATE`,
# `gone PORT` and `back PORT` for a controller that is deleted and created again, and `end`.
switches() {
    say next
    while read -r switch_word switch_rest && [ "$switch_word" != end ]; do
        case $switch_word in
        gone) step gone eventually is_gone "$switch_rest" ;;
        back) step back eventually path_is_live "$switch_rest" ;;
        *) step state eventually has_state "$switch_word" "$switch_rest" ;;
        esac
        step goes-on more_writes head 100
        say next
    done
}

# is_gone PORT: whether the path is down.
is_gone() {
    ! path_is_live "$1"
}

# stops: the load has had no error.
stops() {
    touch /tmp/stop
    done_in_background load
    rm /tmp/stop
}

# both_listed: nvme-cli lists one subsystem with two paths.
both_listed() {
    nvme list-subsys >/tmp/listed
    cat /tmp/listed
    [ "$(grep -c "NQN=$NQN" /tmp/listed)" = 1 ]
    [ "$(grep -c 'tcp .*live' /tmp/listed)" = 2 ]
}

# quiet_paths: the kernel complains of nothing but the path that was away.
quiet_paths() {
    ! dmesg | grep -v -e 'failed to connect socket' -e 'Failed reconnect attempt' | complaints
}
