# QEMU's own drive in a slot that it is taken out of.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)

# the program runs in the background of this shell, which lives on when the step is over
loaded() {
    nvmirage drive bind "$drive"
    loading
    echo $loading_pid >/tmp/pid
    sleep 1
}
ended() {
    pid=$(cat /tmp/pid)
    ended_left=300
    while [ -e /proc/$pid/exe ] && [ $ended_left -gt 0 ]; do
        ended_left=$((ended_left - 1))
        usleep 100000
    done
    cat /tmp/bench.log
    grep -q "the drive is gone" /tmp/bench.log
    ended_left=300
    while [ -e "/sys/bus/pci/devices/$drive" ]; do
        [ $ended_left -gt 0 ] || { echo "the kernel still has it"; return 1; }
        ended_left=$((ended_left - 1))
        usleep 100000
    done
}
for round in one two; do
    step "loaded-$round" loaded
    say $round
    step "ended-$round" ended
    tell ends cat /tmp/bench.log
    say $round-gone
    step "back-$round" appears "/sys/bus/pci/devices/$drive/driver"
    # the wish for vfio-pci went with the drive: the kernel's driver has it
    step "kernel-$round" appears /dev/nvme0n1
done
step read dd if=/dev/nvme0n1 of=/dev/null bs=1M count=4 iflag=direct
