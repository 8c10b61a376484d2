# data: 64 MiB of a file. The test kills the server under a load, and starts it again when the kernel has lost it.

# On the disk itself, place N of 64 KiB; or file N of an ext4 file system on it.
raw_write() {
    dd if="$2" of=/dev/data bs=64k seek="$1" conv=notrunc,fsync
}
raw_read() {
    dd if=/dev/data bs=64k skip="$1" count=1 iflag=direct
}
file_write() {
    dd if="$2" of="/mnt/$1" bs=64k conv=fsync
}
file_read() {
    cat "/mnt/$1"
}

# record N: random bytes at place N, with their checksum once they are synced.
record() {
    rm -f "/tmp/synced/$1"
    head -c 65536 /dev/urandom >/tmp/content
    "${KIND}_write" "$1" /tmp/content || return 1
    sha256sum </tmp/content >/tmp/sum
    mv /tmp/sum "/tmp/synced/$1"
}
# records: one after the other until the disk fails, at 100 places again and again.
records() {
    records_written=0
    while record $((records_written % 100)); do
        records_written=$((records_written + 1))
        echo $records_written >/tmp/written
    done
}
# busy: requests in flight beside the records, until the disk fails.
busy() {
    fails fio --direct=1 --ioengine=libaio --rw=randrw --bsrange=4k-128k --iodepth=32 --size=16m \
        --time_based --runtime=600 --eta=never --name=busy "$@"
}
# begins FIO-OPTION...: a load of both.
begins() {
    rm -rf /tmp/synced /tmp/records.* /tmp/busy.*
    echo 0 >/tmp/written
    mkdir /tmp/synced
    in_background records records
    in_background busy busy "$@"
    begins_left=1200
    until [ "$(cat /tmp/written)" -gt 10 ]; do
        background_works
        [ $begins_left -gt 0 ] || {
            echo "the load is stuck after $(cat /tmp/written) records"
            tail -n 20 /tmp/records.log
            return 1
        }
        begins_left=$((begins_left - 1))
        usleep 100000
    done
}
fails_all() {
    done_in_background records
    done_in_background busy
}
# remain: all records that were synced are there.
remain() {
    remain_count=0
    for remain_file in /tmp/synced/*; do
        "${KIND}_read" "${remain_file##*/}" | sha256sum | cmp - "$remain_file"
        remain_count=$((remain_count + 1))
    done
    echo "$remain_count records"
    [ $remain_count -gt 10 ]
}
# lost: the kernel has noticed that a connection ended, in a request or while it waits for replies.
lost() {
    eventually is_lost
}
is_lost() {
    [ "$(complaints_of_nbd)" -gt "$LOST" ]
}
complaints_of_nbd() {
    dmesg | grep -c -E 'block nbd0: (Receive|Send) .* failed' || [ $? = 1 ]
}

# A disk that was set up by netlink, as nbd-client does by itself, keeps requests in flight until it is disconnected.
KIND=file
step attach attach data nbd0 -C 2
format() {
    mkfs.ext4 -q /dev/data
    mount -t ext4 /dev/data /mnt
}
step format format
step begins begins --filename=/mnt/busy
LOST=$(complaints_of_nbd)
say loaded
await killed
step lost lost
say lost
await back
disconnects() {
    nbd-client -d /dev/nbd0
    fails_all
    umount /mnt
    eventually has_no_server nbd0
    rm /dev/data
}
step disconnects disconnects
step again attach data nbd0 -C 2
recovers() {
    mount -t ext4 /dev/data /mnt
    remain
    umount /mnt
    fsck.ext4 -fn /dev/data
}
step recovers recovers
step detach detach data

# A disk that was set up by ioctl fails all requests when its connection is lost. nbd-client then ends, also with -persist:
# the kernel's ioctl succeeds, which the client takes for an order to end (3.26.1).
KIND=raw
step attach-ioctl attach data nbd0 -nonetlink -persist
step begins-ioctl begins --filename=/dev/data --offset=32m
LOST=$(complaints_of_nbd)
say loaded
await killed
step lost-ioctl lost
ends() {
    fails_all
    eventually has_no_server nbd0
    eventually fails pidof nbd-client
    rm /dev/data
}
step ends ends
say lost
await back
step again-ioctl attach data nbd0 -nonetlink
step remain remain
step detach-ioctl detach data
step quiet no_faults
