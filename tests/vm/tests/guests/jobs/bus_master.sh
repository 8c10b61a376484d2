# Bus Master Enable (bit 2 of the PCI command register) cleared under a read, and set again.

config=/sys/class/nvme/nvme0/device/config

register() {
    echo $((0x$(od -An -tx1 -j4 -N1 $config | tr -d ' ')))
}
set_register() {
    printf "\\$(printf %03o $1)" | dd of=$config bs=1 seek=4 conv=notrunc
    [ "$(register)" = $1 ]
}
there() {
    [ -b /dev/nvme0n1 ]
}
step drive eventually there
off() {
    before=$(register)
    [ $((before & 4)) = 4 ]
    seq 1 1000 | head -c 3893 >/tmp/put
    dd if=/tmp/put of=/dev/nvme0n1 bs=4k count=1 conv=sync,fsync
    set_register $((before & ~4))
    (
        dd if=/dev/nvme0n1 of=/tmp/got bs=4k count=1 iflag=direct
        touch /tmp/done
    ) &
    sleep 4
    [ ! -e /tmp/done ]
    set_register $before
    wait
    [ -e /tmp/done ]
    head -c 3893 /tmp/got | cmp - /tmp/put
}
step off-and-on off
calm() {
    # The command came by itself: nothing timed out, and the controller was not reset.
    fails sh -c 'dmesg | grep -E "nvme.*(timeout|reset)"'
}
step calm calm
