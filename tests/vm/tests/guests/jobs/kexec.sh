# root: 128 MiB of a file. raw: 128 MiB of it that begin with a kernel (KERNEL_BYTES of them) and, at 32 MiB, its file system
# (INITRAMFS_BYTES). The job runs in one kernel after the other, and finds out by the command line and by what is on
# the drive in which it is.

# untouched: writes to the pages that the last kernel had registered, which this one was told to leave alone, and looks at
# them again after a while.
untouched() {
    for page in $PAGES; do
        yes untouched | head -c 4096 | dd of=/dev/mem bs=4096 seek=$((page / 4096)) conv=notrunc
    done
    # a server that sleeps would do nothing: every look at the function's registers wakes it
    for look in $(seq 30); do
        cat /sys/bus/pci/devices/*/config >/tmp/config
        usleep 10000
    done
    yes untouched | head -c 4096 >/tmp/untouched
    for page in $PAGES; do
        dd if=/dev/mem bs=4096 skip=$((page / 4096)) count=1 of=/tmp/page
        cmp /tmp/page /tmp/untouched
    done
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
    PAGES=$(sed 's/.*rig.pages=\([^ ]*\).*/\1/; s/,/ /' /proc/cmdline)
    step untouched untouched
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
    # Doorbell Buffer Config is command 7Ch; its pages are in PRP 1 and 2.
    registered() {
        trace_on
        cd /sys/kernel/tracing
        echo 'p:submitted __nvme_submit_sync_cmd op=+0($arg2):u8 page1=+24($arg2):x64 page2=+32($arg2):x64' >kprobe_events
        echo 'op == 0x7c' >events/kprobes/submitted/filter
        echo 1 >events/kprobes/submitted/enable
        nvme reset /dev/nvme0
        sed -n 's/.*op=124 page1=\(0x[0-9a-f]*\) page2=\(0x[0-9a-f]*\).*/\1,\2/p' trace >/tmp/pages
        cat /tmp/pages
        [ -s /tmp/pages ]
    }
    step registered registered
    tell registrations traced nvme_admin_dbbuf
    left_alone() {
        for page in $(tr , ' ' </tmp/pages); do
            echo "memmap=4K\$$page"
        done | tr '\n' ' '
    }
    kexec_load() {
        dd if=/dev/raw of=/tmp/kernel bs=1M count=32
        truncate -s "$KERNEL_BYTES" /tmp/kernel
        dd if=/dev/raw of=/tmp/initramfs bs=1M skip=32 count=80
        truncate -s "$INITRAMFS_BYTES" /tmp/initramfs
        kexec --kexec-file-syscall --load /tmp/kernel --initrd=/tmp/initramfs \
            --command-line="$(cat /proc/cmdline) rig.no-driver rig.pages=$(cat /tmp/pages) $(left_alone) \
initcall_blacklist=nvme_init"
    }
    step kexec-load kexec_load
    step load load
    say kexec
    await kexec
    kexec --exec
    sleep 60
    ;;
esac
