# Controllers that get a namespace while the server runs: `memory` one of memory, `kept` one of a file. Then the server is killed.

config() {
    head_of_config
    cat <<END
[[media]]
name = "memory"
kind = "$1"
size = "32MiB"
$2
[[media]]
name = "file"
kind = "file"
path = "/data/disk.img"
size = "32MiB"
[[namespace]]
name = "memory"
media = "memory"
lba_size = 512
[[namespace]]
name = "kept"
media = "file"
lba_size = 512
[[controller]]
name = "memory"
subsystem = "both"
namespaces = ["memory"]
listen = "ublk:0"
[[controller]]
name = "kept"
subsystem = "both"
namespaces = ["kept"]
listen = "ublk:1"
END
}
config ram >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
waits() {
    called memory ublkb0
    called kept ublkb1
    control detach memory memory --detach-hosts
    control detach kept kept --detach-hosts
    absent /dev/ublkb0 /dev/ublkb1
    eventually waits_by_ls
}
# A disk is gone a moment before its controller is ready for another one.
waits_by_ls() {
    control ls >/tmp/ls
    grep -F 'waits for a namespace' /tmp/ls
}
step waits waits
attached() {
    control attach memory memory
    control attach kept kept
    called memory ublkb0
    called kept ublkb1
    numbers 100000 >/tmp/bytes
    for attached_disk in memory kept; do
        dd if=/tmp/bytes of=/dev/$attached_disk bs=4k oflag=direct conv=fsync
    done
}
step attached attached
# reader NAME: reads of the disk, in the background, for as long as they succeed.
reader() {
    in_background "$1" fio --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=4 --time_based --runtime=60 \
        --output=/dev/null --eta=never --name=load --filename="/dev/$1"
}
# The disk of memory ends with the server, and its users get errors. The other one waits.
killed() {
    reader memory
    reader kept
    usleep 500000
    kill -9 "$(server)"
    ends
    eventually [ -e /tmp/memory.failed ]
    rm /tmp/memory.failed
    absent /dev/ublkb0
    [ -e /dev/ublkb1 ]
    [ ! -e /tmp/kept.failed ]
}
step killed killed
# The next server has the namespaces that were attached: an empty disk of memory, and the same disk of the file.
next() {
    serve
    called memory ublkb0
    logged '/dev/ublkb0 is there'
    logged '/dev/ublkb1 goes on'
    cmp -n 65536 /dev/memory /dev/zero
    cmp -n 500000 /tmp/bytes /dev/kept
    background_works
}
step next next
# Detached and attached the other way round: the medium of the namespace decides.
swapped() {
    control detach memory memory --detach-hosts
    control detach kept kept --detach-hosts
    absent /dev/ublkb0 /dev/ublkb1
    rm -f /tmp/kept.failed
    control attach kept memory
    control attach memory kept
    called kept ublkb0
    called memory ublkb1
    cmp -n 500000 /tmp/bytes /dev/kept
    kill -9 "$(server)"
    ends
    absent /dev/ublkb1
    [ -e /dev/ublkb0 ]
    serve
    logged '/dev/ublkb0 goes on'
    called memory ublkb1
    cmp -n 500000 /tmp/bytes /dev/kept
    cmp -n 65536 /dev/memory /dev/zero
}
step swapped swapped

# A disk of a file that waits is not taken over for a drive in memory of the same namespace.
step stop stop
step gone absent /dev/ublkb0 /dev/ublkb1
never_taken() {
    sed -i 's|^state_dir.*|state_dir = "/data/other"|' /tmp/nvmirage.toml
    config file 'path = "/data/first.img"' >/tmp/file.toml
    config ram >/tmp/ram.toml
    sed -i 's|^state_dir.*|state_dir = "/data/other"|' /tmp/file.toml /tmp/ram.toml
    cp /tmp/file.toml /tmp/nvmirage.toml
    serve
    called memory ublkb0
    dd if=/tmp/bytes of=/dev/memory bs=4k oflag=direct conv=fsync
    kill -9 "$(server)"
    ends
    cp /tmp/ram.toml /tmp/nvmirage.toml
    refused 'this drive is in memory' nvmirage serve --config /tmp/nvmirage.toml
    cp /tmp/file.toml /tmp/nvmirage.toml
    serve
    logged '/dev/ublkb0 goes on'
    cmp -n 500000 /tmp/bytes /dev/memory
}
step never-taken never_taken
step stop-last stop
step gone-last absent /dev/ublkb0 /dev/ublkc0
step quiet no_faults
