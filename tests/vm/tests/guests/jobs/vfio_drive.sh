# QEMU's own drive behind an IOMMU: 64 MiB, and nobody else's.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)
tell list nvmirage drive ls

pattern() {
    numbers 1000 | dd of=/dev/nvme0n1 bs=4096 count=1 seek=4096 iflag=fullblock conv=fsync
}
step pattern pattern

mounted() {
    mkfs.ext4 -q /dev/nvme0n1 8m
    mount /dev/nvme0n1 /mnt
    refused "nvme0n1 is mounted at /mnt" nvmirage drive bind "$drive"
    umount /mnt
}
step mounted mounted

# this shell's table of mounts does not name it, as with a container's
elsewhere() {
    unshare -m sh -c 'mount /dev/nvme0n1 /mnt && echo there >/tmp/elsewhere && sleep 100' &
    appears /tmp/elsewhere
    refused "open exclusively" nvmirage drive bind "$drive"
    kill $!
    wait $! || true
}
step elsewhere elsewhere

swap() {
    mkswap /dev/nvme0n1
    swapon /dev/nvme0n1
    refused "nvme0n1 is swap space" nvmirage drive bind "$drive"
    swapoff /dev/nvme0n1
}
step swap swap

held() {
    sleep 100 </dev/nvme0n1 &
    refused "sleep (process $!) has /dev/nvme0n1 open" nvmirage drive bind "$drive"
    kill $!
    wait $! || true
}
step held held

step bind nvmirage drive bind "$drive"
step gone test ! -e /dev/nvme0n1
tell bound nvmirage drive ls
step identify nvmirage identify --target "pci:$drive"
tell identity nvmirage identify --target "pci:$drive" --json

check() {
    nvmirage bench --target "pci:$drive" --destroy-data --rw randrw --bs 4k,128k --qd 1,16 --time 500ms --span 16MiB --verify "$@"
}
step mapped check
step trapped check --doorbells trapped

# one has it at a time, and it is not given back while it is used
used() {
    loading
    refused "nvmirage (process $loading_pid) has /dev/vfio/" nvmirage drive unbind "$drive"
    refused "is in use: another process uses" nvmirage identify --target "pci:$drive"
    # as it ends, so do the drive's queues; the next one finds it as if new
    kill -KILL $loading_pid
    wait $loading_pid || true
    nvmirage identify --target "pci:$drive"
}
step used used

# its commands are lost when somebody resets the drive: it gives them up in time, and the drive is as good as before
reset() {
    loading
    sleep 1
    echo 1 >"/sys/bus/pci/devices/$drive/reset"
    reset_left=900
    while kill -0 $loading_pid; do
        [ $reset_left -gt 0 ]
        reset_left=$((reset_left - 1))
        usleep 100000
    done
    cat /tmp/bench.log
    if wait $loading_pid; then return 1; fi
    nvmirage bench --target "pci:$drive" --destroy-data --rw randrw --qd 8 --time 300ms --span 16MiB --verify
}
step reset reset

step unbind nvmirage drive unbind "$drive"
step back appears /dev/nvme0n1
same() {
    dd if=/dev/nvme0n1 bs=4096 count=1 skip=4096 iflag=direct | cmp -n 3000 - /tmp/numbers
}
numbers 1000 >/tmp/numbers
step same same
step kernel verified --filename=/dev/nvme0n1 --name=k --rw=randwrite --bs=4k --iodepth=4 --size=1m
step quiet no_complaints
