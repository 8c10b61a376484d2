# One of two guests that share a namespace of one subsystem: $ME is a or b, its key 0xa or 0xb.
# shared: 32 MiB of memory.

step shared named 1 shared
disk=/dev/$(readlink /dev/shared)

# A host has an identity, by which reservations know it.
register() {
    printf 'host-identity-%s-' $ME >/tmp/host
    nvme set-feature /dev/nvme0 -f 0x81 -V 1 -l 16 -d /tmp/host
    nvme resv-register "$disk" --nrkey=0x$ME --rrega=0
}
write_it() {
    echo "$ME was here" | dd of=/dev/shared bs=4096 seek=$1 conv=sync oflag=direct
}
read_it() {
    dd if=/dev/shared bs=4096 skip=$1 count=1 iflag=direct | grep -q "^$2 was here"
}
# The kernel's words for EBADE, which it makes of Reservation Conflict.
conflict() {
    refused "exchange" "$@"
}
registrants() {
    nvme resv-report "$disk" --eds -o json | tr -d ' ' | grep -c '"rkey":'
}
