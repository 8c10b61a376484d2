# disk: what the firmware booted from; its second partition is empty.

step disk disk 10 disk
tell words cat /proc/cmdline
step variables sh -c 'modprobe efivarfs && mount -t efivarfs efivarfs /sys/firmware/efi/efivars'
# variable NAME: its text; four bytes of attributes come before it, and its characters have two bytes.
variable() {
    tail -c +5 /sys/firmware/efi/efivars/$1-* | tr -d '\0'
}
tell partition variable LoaderDevicePartUUID
tell uevent sh -c 'cat /sys/block/vda/vda1/uevent'
tell second-start cat /sys/block/vda/vda2/start
work() {
    mkfs.ext4 -q /dev/vda2
    mount -t ext4 /dev/vda2 /mnt
    filled /mnt
    umount /mnt
    mount -t ext4 /dev/vda2 /mnt
    intact /mnt
    umount /mnt
    fsck.ext4 -fn /dev/vda2
}
step work work
step quiet no_complaints
