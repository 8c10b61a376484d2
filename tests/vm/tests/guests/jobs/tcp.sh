# Functions of a host over NVMe/TCP: one drive at a time, of the subsystem NQN at ADDRESS:PORT, which
# is /dev/NAME. It has one namespace with blocks of 512 bytes.

HOST_ID=8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c01

# controller: the kernel's name of its controller.
controller() {
    controller_file=$(grep -l -x "$NQN" /sys/class/nvme/nvme*/subsysnqn) || return 1
    controller_file=${controller_file%/subsysnqn}
    echo "${controller_file##*/}"
}

# is_live: whether the controller is connected, with all its queues.
is_live() {
    [ "$(cat "/sys/class/nvme/$(controller)/state")" = live ]
}

# disk: the kernel's name of its disk, which is below the subsystem, or below the controller where
# that is the only one.
disk() {
    disk_subsystem=$(grep -l -x "$NQN" /sys/class/nvme-subsystem/*/subsysnqn) || return 1
    disk_found=$(ls -d "${disk_subsystem%/subsysnqn}"/nvme*n1 "/sys/class/nvme/$(controller)"/nvme*n1 2>/dev/null | grep -v 'nvme[0-9]*c' | head -n 1)
    [ -n "$disk_found" ] && echo "${disk_found##*/}"
}

# connect OPTION...: connects as one host.
connect() {
    nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$NQN" \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID "$@"
    eventually is_live
    eventually disk
    ln -s "$(disk)" "/dev/$NAME"
    appears "/dev/$NAME"
}

# ignore_broken_pipes: in a load during which the server dies. The kernel sends commands in the context of the program that submits
# them, without MSG_NOSIGNAL: on a connection that was reset that program gets SIGPIPE, though its command succeeds on the next one
# (seen with Linux 6.12 and 7.3). fio's job dies of the signal, and its parent then of a double free (3.39).
ignore_broken_pipes() {
    trap '' PIPE
}

# refused OPTION...: a connection with these options fails, and leaves no controller.
refused() {
    fails nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$NQN" \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID "$@"
    fails controller
}

# reset_once: the controller is set up again, with all that belongs to it.
reset_once() {
    nvme reset "/dev/$(controller)"
    eventually is_live
}

# handshakes: the kernel has handshakes of TLS done by tlshd, with keys of its keyring.
handshakes() {
    modprobe -a tls gcm aesni-intel
    printf '[debug]\nloglevel=1\ntls=0\nnl=0\n[authenticate]\nkeyrings=.nvme\n' >/tmp/tlshd.conf
    tlshd -s -c /tmp/tlshd.conf >/tmp/tlshd.log 2>&1 &
    sleep 1
    kill -0 $!
}

# insert_key KEY OPTION...: adds a key of this host and the subsystem to the keyring.
insert_key() {
    key=$1
    shift
    nvme check-tls-key --keydata="$key" --subsysnqn="$NQN" \
        --hostnqn="nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" --insert "$@"
}

disconnect() {
    rm "/dev/$NAME"
    nvme disconnect -n "$NQN" | grep 'disconnected 1 controller'
    fails controller
}

# checks: small and unaligned blocks in one job, 128 KiB in another, a load of reads and writes beside them.
checks() {
    verified --filename="/dev/$NAME" --rw=randwrite \
        --name=unaligned --bsrange=512-96k --bs_unaligned=0 --iodepth=16 --size=6m --cpus_allowed=0 \
        --name=large --bs=128k --iodepth=8 --offset=16m --size=16m --cpus_allowed=1 \
        --name=in-capsule --bs=4k --iodepth=32 --offset=48m --size=4m --cpus_allowed=1
    fio --filename="/dev/$NAME" --direct=1 --ioengine=libaio --rw=randrw --output=/dev/null --eta=never \
        --name=mixed --bsrange=512-256k --iodepth=16 --size=32m --io_size=8m
}

# a_file_system: ext4 with files, which are the same once it was unmounted and checked.
a_file_system() {
    mkfs.ext4 -q "/dev/$NAME"
    mount -t ext4 "/dev/$NAME" /mnt
    filled /mnt
    umount /mnt
    fsck.ext4 -fn "/dev/$NAME"
    mount -t ext4 "/dev/$NAME" /mnt
    intact /mnt
    umount /mnt
}

# still_there: the files of that file system, read again.
still_there() {
    mount -t ext4 -o ro "/dev/$NAME" /mnt
    intact /mnt
    umount /mnt
}

# set_up: how often the kernel has set up the queues of a controller over TCP.
set_up() {
    dmesg | grep -c 'creating 2 I/O queues' || [ $? = 1 ]
}

# resets: three controller resets while a load writes behind the file system.
resets() {
    resets_before=$(set_up)
    (
        until [ -e /tmp/stop ]; do
            verified --filename="/dev/$NAME" --rw=randwrite --name=load --bs=4k --iodepth=8 --offset=48m --size=4m
        done
    ) &
    resets_load=$!
    for reset in 1 2 3; do
        more_writes "$NAME" 100
        nvme reset "/dev/$(controller)"
        eventually is_live
    done
    more_writes "$NAME" 100
    touch /tmp/stop
    wait $resets_load
    rm /tmp/stop
    [ "$(set_up)" = $((resets_before + 3)) ]
}

# two_queues: an I/O queue for each of the two processors, and the admin queue.
two_queues() {
    [ "$(cat "/sys/class/nvme/$(controller)/queue_count")" = 3 ]
}

# discovered: the discovery subsystem at the address lists the drive's.
discovered() {
    nvme discover -t tcp -a "$ADDRESS" -s "$PORT" \
        -q "nqn.2014-08.org.nvmexpress:uuid:$HOST_ID" -I $HOST_ID >/tmp/discovered
    cat /tmp/discovered
    grep -x "subnqn: *$NQN" /tmp/discovered
}

# as_a_host: all that a host does with a drive.
as_a_host() {
    step "$NAME-connect" connect
    tell "$NAME-id-ctrl" sh -c "nvme id-ctrl /dev/$(controller) -o json"
    tell "$NAME-list" nvme list -o json
    step "$NAME-queues" two_queues
    step "$NAME-checks" checks
    step "$NAME-ext4" a_file_system
    step "$NAME-resets" resets
    step "$NAME-disconnect" disconnect
    step "$NAME-again" connect
    step "$NAME-intact" still_there
    step "$NAME-disconnect-again" disconnect
    step "$NAME-digests" connect --hdr-digest --data-digest
    step "$NAME-checks-digests" checks
    step "$NAME-disconnect-digests" disconnect
    step "$NAME-without-flow-control" connect --disable-sqflow
    step "$NAME-checks-without-flow-control" checks
    step "$NAME-disconnect-without-flow-control" disconnect
}

# reference PORT NQN: a target of the guest's own kernel, over memory.
reference() {
    modprobe nvmet-tcp
    modprobe null_blk nr_devices=0
    mount -t configfs none /sys/kernel/config
    mkdir /sys/kernel/config/nullb/backing
    cd /sys/kernel/config/nullb/backing
    echo 64 >size
    echo 512 >blocksize
    echo 1 >memory_backed
    echo 1 >power
    appears /dev/backing
    cd /sys/kernel/config/nvmet
    mkdir "subsystems/$2"
    echo 1 >"subsystems/$2/attr_allow_any_host"
    mkdir "subsystems/$2/namespaces/1"
    echo /dev/backing >"subsystems/$2/namespaces/1/device_path"
    echo 1 >"subsystems/$2/namespaces/1/enable"
    mkdir ports/1
    echo tcp >ports/1/addr_trtype
    echo ipv4 >ports/1/addr_adrfam
    echo 127.0.0.1 >ports/1/addr_traddr
    echo "$1" >ports/1/addr_trsvcid
    ln -s "/sys/kernel/config/nvmet/subsystems/$2" ports/1/subsystems/
}

# network: the loopback device, and the emulator's user network, which reaches the machine's loopback
# at 10.0.2.2.
network() {
    ip link set lo up
    modprobe virtio_net
    eventually ip link show eth0
    ip addr add 10.0.2.15/24 dev eth0
    ip link set eth0 up
}

step network network
step initiator modprobe nvme-tcp
