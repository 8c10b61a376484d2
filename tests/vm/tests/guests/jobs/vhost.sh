# Functions of a guest with disks of vhost-user-blk back ends.

# disk SLOT NAME: waits for the disk of the device in the PCI slot, and makes it /dev/NAME.
disk() {
    disk_left=200
    until disk_found=$(ls -d "/sys/bus/pci/devices/0000:00:$1.0/virtio"*/block/vd?); do
        [ $disk_left -gt 0 ] || {
            echo "the disk in slot $1 did not appear"
            return 1
        }
        disk_left=$((disk_left - 1))
        usleep 100000
    done
    ln -s "${disk_found##*/}" "/dev/$2"
    appears "/dev/$2"
}

# device NAME: the folder of the virtio device of a disk.
device() {
    readlink -f "/sys/block/$(readlink "/dev/$1")/device"
}

# features NAME: the features that device and driver have agreed on, a digit for each, bit 0 first.
features() {
    cat "$(device "$1")/features"
}

# is NAME FILE VALUE: the kernel's attribute of the disk has this value.
is() {
    is_value=$(attribute "$1" "$2")
    [ "$is_value" = "$3" ] || {
        echo "$2 of $1 is $is_value instead of $3"
        return 1
    }
}

# calls NAME QUEUE: how many interrupts the queue's vector has had, on all processors.
calls() {
    calls_device=$(device "$1")
    sed -n "s/^ *[0-9]*:\(.*\)PCI-MSI.*${calls_device##*/}-req\.$2\$/\1/p" /proc/interrupts |
        tr -s ' ' '\n' | awk '{ sum += $1 } END { print sum + 0 }'
}

# flushes NAME: how many flushes the kernel has seen completed.
flushes() {
    set -- $(attribute "$1" stat)
    echo "${16}"
}

step module modprobe virtio_blk
