# small: 64 MiB, 512-byte blocks. large: 64 MiB, 4096-byte blocks. fixed: a read-only file.

lists() {
    nbd-client -l 10.0.2.2 "$PORT" >/tmp/list
    cat /tmp/list
    for export in small large fixed; do
        grep -x "$export" /tmp/list
    done
}
step lists lists
step unknown refuses "unknown export" nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -N unknown
step no-default refuses "unknown export" nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -N ""

NAME=small
step small-attach attach small nbd0 -C 4
tell small-flags cat /sys/kernel/debug/nbd/nbd0/flags
step small-connections connections 4
say attached
await seen
writable() {
    is "$1" ro 0
    is "$1" size 131072
    is "$1" queue/write_cache "write back"
    is "$1" queue/fua 1
    is "$1" queue/rotational 0
    is "$1" queue/logical_block_size "$2"
    fails is "$1" queue/discard_max_bytes 0
    fails is "$1" queue/write_zeroes_max_bytes 0
}
step small-attributes writable small 512
step small-checks checks
step small-ext4 a_file_system

NAME=large
# nbd-client ignores the block size of an export: without -b, the disk has blocks of 512 bytes, which are parts of those of
# the namespace.
step large-attach attach large nbd1 -C 3
step large-attributes writable large 512
step large-connections connections 7
parts() {
    verified --filename=/dev/large --rw=randwrite --bs=512 --bs_unaligned=0 --iodepth=16 --norandommap=0 \
        --name=a --size=128k --cpus_allowed=0 \
        --name=b --size=128k --offset=131584 --cpus_allowed=1 \
        --name=c --size=3m --offset=1m --bsrange=512-64k --cpus_allowed=1
}
step large-parts parts
step large-detach detach large
step small-remains connections 4
step large-blocks attach large nbd1 -C 2 -b 4096
step large-block-attributes writable large 4096

synced() {
    synced_before=$(flushes large)
    fio --filename=/dev/large --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=256k \
        --name=flush --fsync=1
    synced_flushes=$(($(flushes large) - synced_before))
    echo "$synced_flushes flushes"
    [ $synced_flushes -ge 60 ]
}
step flush synced
forced() {
    forced_before=$(flushes large)
    fio --filename=/dev/large --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=256k \
        --name=fua --sync=1
    # The writes have Force Unit Access, and need no flush each.
    [ $(($(flushes large) - forced_before)) -lt 8 ]
}
step fua forced

pattern() {
    tr '\0' x </dev/zero | dd of=/dev/large bs=1M count=32 iflag=fullblock oflag=direct conv=fsync
}
zeros() {
    cmp -s -n 33554432 /dev/large /dev/zero
}
step pattern pattern
say filled
await discard
discard() {
    sends_little blkdiscard -o 0 -l 33554432 /dev/large
    zeros
}
step discard discard
say discarded
await zeroes
step pattern-again pattern
zeroes() {
    fails zeros
    sends_little blkdiscard -z -o 0 -l 33554432 /dev/large
    zeros
}
step write-zeroes zeroes
step large-ext4 a_file_system

# By NBD_OPT_EXPORT_NAME, as older clients choose an export.
step fixed attach fixed nbd2 -no-optgo
tell fixed-flags cat /sys/kernel/debug/nbd/nbd2/flags
fixed() {
    is fixed ro 1
    is fixed size 2048
    numbers 100000 | cmp -n 500000 - /dev/fixed
    fails dd if=/dev/zero of=/dev/fixed bs=512 count=1 oflag=direct
    fails blkdiscard -o 0 -l 65536 /dev/fixed
    numbers 100000 | cmp -n 500000 - /dev/fixed
}
step fixed-attributes fixed
step fixed-connections connections 7
step fixed-detach detach fixed
step small-detach detach small
step large-detach-again detach large
step none connections 0
step quiet no_complaints
