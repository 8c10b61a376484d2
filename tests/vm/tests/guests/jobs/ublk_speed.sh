# IOPS of 4 KiB requests: ublk over a file, the kernel's loop over one, and null_blk. An emulated processor: only the proportions
# between them mean something.

config() {
    head_of_config
    cat <<END
[[media]]
name = "disk"
kind = "file"
path = "/data/disk.img"
size = "64MiB"
[[namespace]]
name = "disk"
media = "disk"
[[controller]]
name = "disk"
namespaces = ["disk"]
listen = "ublk:0"
queues = 2
END
}
config >/tmp/nvmirage.toml
disks() {
    modprobe ublk_drv
    modprobe loop
    modprobe null_blk nr_devices=1 gb=1
    serve
    appears /dev/ublkb0
    # Both files have all their blocks.
    dd if=/dev/zero of=/dev/ublkb0 bs=1M count=64 oflag=direct
    dd if=/dev/zero of=/data/loop.img bs=1M count=64 oflag=direct
    losetup -b 4096 --direct-io=on /dev/loop0 /data/loop.img
}
step disks disks
# iops DISK RW DEPTH: a line with them and the number.
iops() {
    # Fields 8 and 49 of version 3 are the IOPS of reads and of writes; the other one is 0.
    fio --direct=1 --ioengine=libaio --bs=4k --size=64m --time_based --ramp_time=1 --runtime=3 --rw="$2" \
        --iodepth="$3" --name=speed --filename="/dev/$1" --output-format=terse --terse-version=3 |
        awk -F ';' -v what="$1 $2 $3" '{ print what, $8 + $49 }'
}
all() {
    for all_rw in randread randwrite; do
        for all_depth in 1 32; do
            for all_disk in ublkb0 loop0 nullb0; do
                iops $all_disk $all_rw $all_depth
            done
        done
    done
}
tell speed all
step quiet no_complaints
