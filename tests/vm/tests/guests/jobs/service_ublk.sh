# The package with the rule $RULE and the drop-in $UNIT of the how-to: disks of ublk, first with the capability, then without.

unit=nvmirage.service

value() {
    systemctl show --property="$1" --value $unit
}
# until_true COMMAND...: waits, for a minute at most
until_true() {
    until_left=600
    until "$@"; do
        [ $until_left -gt 0 ] || {
            echo "not true within a minute: $*"
            systemctl status --no-pager $unit
            journalctl --no-pager --unit $unit
            ls -l /dev/ublk*
            return 1
        }
        until_left=$((until_left - 1))
        sleep 0.1
    done
}
is() {
    [ "$(value "$1")" = "$2" ]
}
logged() {
    journalctl --no-pager --unit $unit --output cat | grep -F "$1"
}
# given PATH: the rule has given it to the service's group.
given() {
    [ "$(stat --format=%a%U%G "$1")" = 660rootnvmirage ]
}

install_package() {
    files "$HOME"
    dpkg --install "$HOME"/nvmirage_*.deb
    until_true is ActiveState active
}
# Without the drop-in there is no driver, and the error says so.
without() {
    nvmirage create media disk --kind file --path /var/lib/nvmirage/disk.img --size 64MiB
    nvmirage create namespace disk --media disk
    nvmirage create controller local --namespaces disk --listen ublk:0 >/tmp/without 2>&1 && return 1
    cat /tmp/without
    grep -F 'modprobe ublk_drv' /tmp/without
}
# As the how-to has it.
configure() {
    echo "$RULE" >/etc/udev/rules.d/90-nvmirage-ublk.rules
    udevadm control --reload
    mkdir -p /etc/systemd/system/$unit.d
    echo "$UNIT" >/etc/systemd/system/$unit.d/ublk.conf
    systemctl daemon-reload
    systemctl restart $unit
    is ActiveState active
    until_true given /dev/ublk-control
}
disk() {
    nvmirage create controller local --namespaces disk --listen ublk:0
    nvmirage ls | grep -F /dev/ublkb0
    until_true given /dev/ublkb0
    given /dev/ublkc0
}
# The disk is swap space, which nothing here uses but which has it alone, and some data lie behind it.
written() {
    dd if=/dev/urandom of=/tmp/data bs=64k count=64
    dd if=/tmp/data of=/dev/ublkb0 bs=64k seek=512 oflag=direct conv=notrunc
    truncate --size=16M /tmp/swap
    mkswap /tmp/swap
    dd if=/tmp/swap of=/dev/ublkb0 bs=64k oflag=direct conv=notrunc
}
intact() {
    dd if=/dev/ublkb0 bs=64k skip=512 count=64 iflag=direct | cmp - /tmp/data
}
# The service's process dies, and the service manager starts another one.
died() {
    swapon /dev/ublkb0
    kill -KILL "$(value MainPID)"
    intact
    logged '/dev/ublkb0 goes on'
}
# A stop with the disk in use leaves it, and a start goes on.
stopped() {
    systemctl stop $unit
    is Result success
    [ -e /dev/ublkb0 ]
    systemctl start $unit
    intact
    swapoff /dev/ublkb0
    systemctl stop $unit
    is Result success
    [ ! -e /dev/ublkb0 ]
}
# Without the capability, only by the rule.
unprivileged() {
    sed -i '/Capabilit/d' /etc/systemd/system/$unit.d/ublk.conf
    systemctl daemon-reload
    systemctl start $unit
    grep -E '^CapEff:\s0+$' "/proc/$(value MainPID)/status"
    until_true given /dev/ublkb0
    intact
    unprivileged_pid=$(value MainPID)
    kill -KILL "$unprivileged_pid"
    until_true another_than "$unprivileged_pid"
    until_true given /dev/ublkb0
    intact
    systemctl stop $unit
    is Result success
    [ ! -e /dev/ublkb0 ]
}
another_than() {
    is ActiveState active && ! is MainPID "$1"
}

step install install_package
step without without
step configure configure
step disk disk
step written written
step died died
step stopped stopped
step unprivileged unprivileged
