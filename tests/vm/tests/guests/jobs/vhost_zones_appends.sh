# The kernel's own NVMe target makes requests to append of the commands of its host, which is this guest, too.
target() {
    modprobe nvmet-tcp
    modprobe nvme-tcp
    ip link set lo up
    cd /sys/kernel/config/nvmet
    mkdir subsystems/zones
    echo 1 >subsystems/zones/attr_allow_any_host
    mkdir subsystems/zones/namespaces/1
    echo "/dev/$(readlink /dev/zoned)" >subsystems/zones/namespaces/1/device_path
    echo 1 >subsystems/zones/namespaces/1/enable
    mkdir ports/1
    echo tcp >ports/1/addr_trtype
    echo ipv4 >ports/1/addr_adrfam
    echo 127.0.0.1 >ports/1/addr_traddr
    echo 4420 >ports/1/addr_trsvcid
    ln -s /sys/kernel/config/nvmet/subsystems/zones ports/1/subsystems/
    nvme connect -t tcp -a 127.0.0.1 -s 4420 -n zones
    named 1 through
}
step target target
# Zones of 1024 blocks: two appends of two blocks each to the tenth.
appends() {
    blkzone reset /dev/zoned
    dd if=/dev/urandom of=/tmp/blocks bs=4k count=4
    for part in 0 1; do
        dd if=/tmp/blocks of=/tmp/part bs=8k skip=$part count=1
        nvme zns zone-append /dev/through --zslba=9216 --data-size=8192 --data=/tmp/part >/tmp/append-$part
        cat /tmp/append-$part
    done
    dd if=/dev/zoned bs=4k skip=9216 count=4 iflag=direct | cmp - /tmp/blocks
    # 16 sectors each.
    blkzone report --offset 73728 --count 1 /dev/zoned | grep 'wptr 0x000020'
    # Nothing is appended to a zone that is full.
    blkzone finish --offset 73728 --length 8192 /dev/zoned
    fails nvme zns zone-append /dev/through --zslba=9216 --data-size=8192 --data=/tmp/part
}
step appends appends
for part in 0 1; do
    tell append-$part sed -n 's/.*LBA[: ]*\([0-9a-f]*\).*/\1/p' /tmp/append-$part
done
step disconnect nvme disconnect -n zones

# A front end that hides zones: the disk appears, and nothing is read from it or written to it.
step unaware disk 11 unaware
hidden() {
    is unaware queue/zoned none
    fails dd if=/dev/unaware of=/dev/null bs=4k count=1 iflag=direct
    fails dd if=/dev/zero of=/dev/unaware bs=4k count=1 oflag=direct
}
step hidden hidden
