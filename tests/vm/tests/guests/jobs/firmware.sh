# disk: what the firmware booted from; its second partition is empty.

step disk named 1 disk
tell words cat /proc/cmdline
tell read-before sh -c 'nvme smart-log /dev/nvme0 -o json | sed -n "s/.*\"data_units_read\" *: *\([0-9]*\).*/\1/p"'
step variables sh -c 'modprobe efivarfs && mount -t efivarfs efivarfs /sys/firmware/efi/efivars'
# variable NAME: its text; four bytes of attributes come before it, and its characters have two bytes.
variable() {
    tail -c +5 /sys/firmware/efi/efivars/$1-* | tr -d '\0'
}
tell partition variable LoaderDevicePartUUID
entry() {
    variable "Boot$(tail -c +5 /sys/firmware/efi/efivars/BootCurrent-* | hexdump -e '1/2 "%04X"')" | strings
}
tell entry entry
tell uevent cat /sys/class/block/nvme0n1p1/uevent
tell second-start cat /sys/class/block/nvme0n1p2/start
work() {
    mkfs.ext4 -q /dev/nvme0n1p2
    mount -t ext4 /dev/nvme0n1p2 /mnt
    filled /mnt
    umount /mnt
    mount -t ext4 /dev/nvme0n1p2 /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/nvme0n1p2
}
step work work
step quiet no_complaints
