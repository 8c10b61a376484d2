# root: 128 MiB of a file. raw: 128 MiB of it that begin with a kernel (KERNEL_BYTES of them) and, at 32 MiB, its file system
# (INITRAMFS_BYTES). The job runs in one kernel after the other, and finds out by the command line and by what is on
# the drive in which it is.

# memory: fills most of it with a pattern, and looks at that again after a while: nobody else may have written there.
memory() {
    pattern() {
        fio --name=memory --filename=/run/memory --size=448m --bs=1m --ioengine=sync --verify=pattern \
            --verify_pattern=0x6e766d69 --verify_fatal=1 --verify_state_save=0 "$@"
    }
    mount -t tmpfs -o size=480m memory /run
    pattern --rw=write --do_verify=0
    # a server that sleeps would do nothing: every look at the function's registers wakes it
    for look in $(seq 30); do
        cat /sys/bus/pci/devices/*/config >/tmp/config
        usleep 10000
    done
    pattern --rw=read
    umount /run
}
# reset: without a word to the drive; but the host has all words of the job first.
reset() {
    say reset
    await reset
    echo b >/proc/sysrq-trigger
    sleep 60
}
# Reads and writes that are in flight when the kernel goes.
load() {
    fio --filename=/dev/raw --direct=1 --ioengine=libaio --offset=112m --size=16m --loops=1000 --output=/dev/null \
        --eta=never --name=small --rw=randrw --bs=4k --iodepth=32 --name=large --rw=read --bs=512k --iodepth=8 &
    more_writes raw 300
}

if grep -q rig.no-driver /proc/cmdline; then
    # The controller was shut down and not disabled: what the last kernel had registered is still known to it.
    step no-driver sh -c '! ls /dev/nvme*'
    step memory memory
    reset
fi

step root named 1 root
step raw named 2 raw
mark() {
    dd if=/dev/raw bs=4096 skip=27000 count=1 2>/dev/null | head -c 6
}
marks() {
    echo "$1" | dd of=/dev/raw bs=4096 seek=27000 conv=sync,fsync
}
intact_root() {
    mount -t ext4 /dev/root /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/root
}
case $(mark) in
second)
    step intact intact_root
    loaded() {
        marks third
        load
    }
    step load loaded
    reset
    ;;
third*)
    step memory memory
    step intact intact_root
    step checksums verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --iodepth=16 \
        --name=a --cpus_allowed=0 --name=b --offset=16m --cpus_allowed=1
    step quiet no_complaints
    ;;
*)
    first() {
        mkfs.ext4 -q /dev/root
        mount -t ext4 /dev/root /mnt
        filled /mnt
        umount /mnt
        marks second
    }
    step first first
    # The driver's memory is where the next kernel has none of its own: it is taken anew when the best places are taken.
    registered() {
        address=$(basename "$(readlink /sys/class/nvme/nvme0/device)")
        rm /dev/root /dev/raw
        trace_on
        echo "$address" >/sys/bus/pci/drivers/nvme/unbind
        mount -t tmpfs -o size=200m memory /run
        dd if=/dev/zero of=/run/memory bs=1M count=200
        echo "$address" >/sys/bus/pci/drivers/nvme/bind
        umount /run
        named 1 root
        named 2 raw
    }
    step registered registered
    tell registrations traced nvme_admin_dbbuf
    kexec_load() {
        dd if=/dev/raw of=/tmp/kernel bs=1M count=32
        truncate -s "$KERNEL_BYTES" /tmp/kernel
        dd if=/dev/raw of=/tmp/initramfs bs=1M skip=32 count=80
        truncate -s "$INITRAMFS_BYTES" /tmp/initramfs
        kexec --kexec-file-syscall --load /tmp/kernel --initrd=/tmp/initramfs \
            --command-line="$(cat /proc/cmdline) rig.no-driver initcall_blacklist=nvme_init"
    }
    step kexec-load kexec_load
    step load load
    say kexec
    await kexec
    kexec --exec
    sleep 60
    ;;
esac
