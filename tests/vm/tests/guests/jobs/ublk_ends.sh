# first and second: 64 MiB in memory each, 512-byte blocks, /dev/ublkb0 and /dev/ublkb1. Controllers, namespaces and the server end
# under a load.

config() {
    head_of_config
    for config_name in first second; do
        config_id=$([ $config_name = first ] && echo 0 || echo 1)
        cat <<END
[[media]]
name = "$config_name"
kind = "ram"
size = "64MiB"
[[namespace]]
name = "$config_name"
media = "$config_name"
lba_size = 512
[[controller]]
name = "$config_name"
namespaces = ["$config_name"]
listen = "ublk:$config_id"
END
    done
}
config >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step first called first ublkb0
step second called second ublkb1

# loaded NAME: fio in the background that ends with the first error, and in a minute.
loaded() {
    rm -f "/tmp/$1.done" "/tmp/$1.failed"
    in_background "$1" fio --direct=1 --ioengine=libaio --rw=randrw --bsrange=4k-128k --iodepth=32 --size=64m \
        --time_based --runtime=60 --output=/dev/null --eta=never --name=load --filename="/dev/$1"
    more_writes "$1" 50
}
# other: a load that is verified and ends with the file /tmp/stop.
other() {
    until [ -e /tmp/stop ]; do
        verified --filename=/dev/second --rw=randrw --iodepth=8 --bsrange=4k-64k --size=4m --name=other
    done
}
step other in_background other other
step loaded loaded first
# deleted: fio has errors and ends, and nothing else does. A disk that is open and not mounted may be deleted.
deleted() {
    control delete controller first
    absent /dev/ublkb0 /dev/ublkc0
    eventually [ -e /tmp/first.failed ]
    rm /tmp/first.failed
    more_writes second 20
    background_works
}
step deleted deleted
created() {
    control create controller first --namespaces first --listen ublk:0
    appears /dev/ublkb0
    verified --filename=/dev/first --rw=randrw --iodepth=8 --bsrange=4k-64k --size=4m --name=again
}
step created created
# Its namespace goes while it is in use; the controller waits for another one.
step loaded-again loaded first
detached() {
    control detach first first --detach-hosts
    absent /dev/ublkb0 /dev/ublkc0
    eventually [ -e /tmp/first.failed ]
    rm /tmp/first.failed
    control attach first first
    appears /dev/ublkb0
    verified --filename=/dev/first --rw=randrw --iodepth=8 --bsrange=4k-64k --size=4m --name=again
    more_writes second 20
    background_works
}
step detached detached

# Deleted while a file system is mounted: it has errors, and can be unmounted.
mounted() {
    mkfs.ext4 -q /dev/first
    mount -t ext4 /dev/first /mnt
    numbers 1000 >/mnt/numbers
    sync
    refused 'a host is attached' control delete controller first
    control delete controller first --detach-hosts
    fails dd if=/dev/zero of=/mnt/more bs=64k count=16 conv=fsync
    umount /mnt
    absent /dev/ublkb0 /dev/ublkc0
    more_writes second 20
    background_works
}
step mounted mounted
all_end() {
    touch /tmp/stop
    done_in_background other
}
step other-ends all_end
# A drive in memory does not outlive the server, nor does its disk.
step loaded-last loaded second
last() {
    kill -TERM "$(server)"
    ends
    absent /dev/ublkb1 /dev/ublkc1
    eventually [ -e /tmp/second.failed ]
    rm /tmp/second.failed
}
step last last
died() {
    serve
    called second ublkb1
    loaded second
    kill -9 "$(server)"
    ends
    eventually [ -e /tmp/second.failed ]
    rm /tmp/second.failed
    serve
    called second ublkb1
    verified --filename=/dev/second --rw=randrw --iodepth=8 --bsrange=4k-64k --size=4m --name=again
    stop
}
step died died

# A disk with zones is deleted under writes: its programs get errors, and another one of the same drive has all that was completed.
zones_config() {
    head_of_config
    cat <<END
[[media]]
name = "zones"
kind = "file"
path = "/data/zones.img"
size = "64MiB"
[media.zoned]
zone_size = "4MiB"
[[namespace]]
name = "zones"
media = "zones"
lba_size = 4096
[[controller]]
name = "zones"
namespaces = ["zones"]
listen = "ublk:"
queues = 2
END
}
zones_deleted() {
    zones_config >/tmp/nvmirage.toml
    serve
    called zones ublkb0
    dd if=/dev/urandom of=/tmp/zone bs=64k count=16
    dd if=/tmp/zone of=/dev/zones bs=64k count=16 oflag=direct
    for zones_round in 1 2 3; do
        rm -f /tmp/zones.failed /tmp/zones.done
        in_background zones fio --direct=1 --zonemode=zbd --ioengine=libaio --iodepth=8 --bsrange=4k-128k --rw=randwrite \
            --offset=4m --size=48m --max_open_zones=6 --time_based --runtime=60 --output=/dev/null --eta=never \
            --name=load --filename=/dev/zones
        more_writes zones 50
        control delete controller zones
        absent /dev/ublkb0 /dev/ublkc0
        eventually [ -e /tmp/zones.failed ]
        control create controller zones --namespaces zones --listen ublk:0
        appears /dev/ublkb0
        dd if=/dev/zones bs=64k count=16 iflag=direct | cmp - /tmp/zone
        [ "$(blkzone report /dev/zones | wc -l)" = 16 ]
        blkzone reset --offset 8192 /dev/zones
    done
    dd if=/tmp/zone of=/dev/zones bs=64k seek=64 count=16 oflag=direct
    rm /tmp/zones.failed
    stop
}
step zones-deleted zones_deleted
step quiet no_faults
