# Two controllers in PCI slots 10 and 11: pairs, of the Key Value command set, and ssd, of Samsung's commands.

# drive SLOT NAME: waits for the controller in that PCI slot, and makes the character device of its namespace /dev/NAME.
drive() {
    drive_left=300
    until drive_path=$(ls -d /sys/bus/pci/devices/0000:00:$1.0/nvme/nvme*) && grep -x live "$drive_path/state"; do
        [ $drive_left -gt 0 ] || {
            echo "no controller in slot $1"
            return 1
        }
        drive_left=$((drive_left - 1))
        usleep 100000
    done
    appears "/dev/ng${drive_path##*/nvme}n1"
    ln -s "ng${drive_path##*/nvme}n1" "/dev/$2"
}
drives() {
    drive 10 pairs
    drive 11 ssd
}
step drives drives

