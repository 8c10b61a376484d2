# Disks of a server that is not root: user nvmirage, whose group has what the driver makes, as by the rule of udev in the how-to.
# disk: 64 MiB of a file. zones: a file with zones.

users() {
    mkdir -p /etc /data/state
    echo 'root:x:0:0:root:/root:/bin/sh
nvmirage:x:990:990:drives:/data:/bin/sh
other:x:991:991:other:/tmp:/bin/sh' >/etc/passwd
    echo 'root:x:0:
nvmirage:x:990:
other:x:991:' >/etc/group
    chown nvmirage:nvmirage /data /data/state
}
# as USER COMMAND: runs a line of shell as that user.
as() {
    su -s /bin/sh "$1" -c "$2"
}
# disk_of NAME: a medium, a namespace and a controller.
disk_of() {
    cat <<END
[[media]]
name = "$1"
kind = "file"
path = "/data/$1.img"
size = "64MiB"
$2
[[namespace]]
name = "$1"
media = "$1"
lba_size = 4096
[[controller]]
name = "$1"
namespaces = ["$1"]
listen = "ublk:"
queues = 2
END
}
config() {
    head_of_config
    disk_of disk
}
config >/tmp/nvmirage.toml
zoned_config() {
    head_of_config
    disk_of zones '[media.zoned]
zone_size = "4MiB"'
}
zoned_config >/tmp/zoned.toml

# The server, as `serve` of other jobs, of the user nvmirage.
serve_as_user() {
    rm -f /tmp/serve.log
    # `exec`: the process is that of su.
    su -s /bin/sh nvmirage -c 'exec nvmirage --log info serve --config /tmp/nvmirage.toml' >/tmp/serve.log 2>&1 &
    echo $! >/tmp/server
    logged 'ready: '
    [ "$(stat -c %U "/proc/$(server)")" = nvmirage ]
}
# given PATH: the rule has given it to the group.
given() {
    [ "$(stat -c %a%U%G "$1")" = 660rootnvmirage ]
}

step users users
step driver modprobe ublk_drv
# Before there is a rule.
forbidden() {
    refused 'run as root, or give this user the device by a udev rule' as nvmirage 'nvmirage serve --config /tmp/nvmirage.toml'
    ! as nvmirage 'nvmirage doctor --config /tmp/nvmirage.toml' >/tmp/doctor 2>&1
    cat /tmp/doctor
    grep -i 'ublk-control' /tmp/doctor
}
step forbidden forbidden
# What the rule does, by busybox: MODE="0660" and GROUP="nvmirage" for ublk-control, ublkc* and ublkb*.
rule() {
    # It begins with a look at all devices.
    echo 'ublk.* root:nvmirage 660
(null|zero|full|random|urandom) root:root 666' >/etc/mdev.conf
    rmmod ublk_drv
    mdev -d
    modprobe ublk_drv
    eventually given /dev/ublk-control
}
step rule rule
step serve serve_as_user
step disk called disk ublkb0
attributes() {
    given /dev/ublkb0
    given /dev/ublkc0
    is disk ro 0
    is disk size 131072
    control ls >/tmp/ls
    cat /tmp/ls
    grep -F /dev/ublkb0 /tmp/ls
    as nvmirage 'nvmirage doctor --config /tmp/nvmirage.toml' | grep -i ublk
}
step attributes attributes
# The user's own programs, with checksums.
uses() {
    as nvmirage 'fio --direct=1 --ioengine=libaio --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0 \
        --output=/dev/null --eta=never --rw=randrw --iodepth=16 --filename=/dev/ublkb0 --name=a --bsrange=4k-256k --size=8m \
        --name=b --rw=write --bs=16k --direct=0 --ioengine=psync --offset=16m --size=8m --fsync=16'
    blkdiscard -o 0 -l 1048576 /dev/ublkb0
    blkdiscard -z -o 0 -l 1048576 /dev/ublkb0
}
step uses uses
files() {
    mkfs.ext4 -q /dev/disk
    mount -t ext4 /dev/disk /mnt
    filled /mnt
    umount /mnt
}
step ext4 files
# Another user cannot reach the device, nor serve one.
other_user() {
    refused 'permission denied' as other 'dd if=/dev/ublkb0 of=/dev/null count=1'
    sed 's|/data/|/tmp/other/|; s|/tmp/control|/tmp/other/control|' /tmp/nvmirage.toml >/tmp/other.toml
    mkdir /tmp/other
    chown other /tmp/other
    refused 'permission denied' as other 'nvmirage serve --config /tmp/other.toml'
}
step other other_user
zones() {
    sed -i 's|/data/state|/data/zones|; s|/tmp/control|/data/zones|' /tmp/zoned.toml
    refused 'needs the capability CAP_SYS_ADMIN' as nvmirage 'nvmirage serve --config /tmp/zoned.toml'
}
step zones zones

# A server that dies takes its disk along; the next one makes it again.
loaded() {
    rm -f /tmp/load.done /tmp/load.failed
    in_background load fio --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=16 --time_based --runtime=60 \
        --output=/dev/null --eta=never --name=load --filename=/dev/disk
    eventually reads 50
}
reads() {
    set -- "$1" $(attribute disk stat)
    [ "$2" -ge "$1" ]
}
failed() {
    eventually [ -e /tmp/load.failed ]
    rm /tmp/load.failed
}
died() {
    loaded
    kill -9 "$(server)"
    ends
    failed
    absent /dev/ublkb0
    serve_as_user
    called disk ublkb0
    mount -t ext4 /dev/disk /mnt
    intact /mnt
}
step died died
# A clean stop under a mounted file system, too: it does not outlive the server.
stops_mounted() {
    kill -TERM "$(server)"
    ends
    grep -F 'is in use and is deleted: it does not outlive the server' /tmp/serve.log
    absent /dev/ublkb0 /dev/ublkc0
    umount /mnt
    serve_as_user
    called disk ublkb0
    mount -t ext4 /dev/disk /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/disk
}
step stops-mounted stops_mounted
step stop stop
step gone absent /dev/ublkb0 /dev/ublkc0
# Where no rule gives it the files of a device, the server says so, and nothing is left.
no_rule() {
    for no_pid in $(pidof mdev); do
        kill "$no_pid"
    done
    refused '/dev/ublkc0' as nvmirage 'nvmirage serve --config /tmp/nvmirage.toml'
    cat /tmp/refused
}
step no-rule no_rule
step quiet no_faults
