# The package, installed into a system whose first process is systemd, as its administrator would.

unit=nvmirage.service

# value NAME: what systemd says of the service
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
            return 1
        }
        until_left=$((until_left - 1))
        sleep 0.1
    done
}

is() {
    [ "$(value "$1")" = "$2" ]
}

install_package() {
    files "$HOME"
    dpkg --install "$HOME"/nvmirage_*.deb
    until_true is ActiveState active
    [ "$(systemctl is-enabled $unit nvmirage.socket | sort -u)" = enabled ]
}

# what the kernel says of the process, and not the unit
confined() {
    status=/proc/$(value MainPID)/status
    cat $status
    [ "$(stat --format=%U "$status")" = nvmirage ]
    grep -E '^NoNewPrivs:\s1$' $status
    grep -E '^Seccomp:\s2$' $status
    for set in CapInh CapPrm CapEff CapBnd CapAmb; do
        grep -E "^$set:\s0+$" $status
    done
    root=/proc/$(value MainPID)/root
    touch /tmp/of-the-system
    [ ! -e "$root/tmp/of-the-system" ]
    [ ! -e "$root/dev/ttyS0" ]
    # what root has there, the package itself, is hidden
    fails ls "$root$HOME"/nvmirage_*.deb
    [ "$(stat --format=%a /var/lib/nvmirage)" = 700 ]
    [ "$(stat --format=%a%U /run/nvmirage/control.sock)" = 600nvmirage ]
}

# a drive in a file, made while the service runs, open to the service's group
drive() {
    nvmirage create media disk --kind file --path /var/lib/nvmirage/disk.img --size 16MiB
    nvmirage create namespace disk --media disk
    nvmirage create controller nvme0 --namespaces disk --listen vfio-user:/run/nvmirage/nvme0.sock --socket-mode 0660
    [ "$(stat --format=%a%U%G /run/nvmirage/nvme0.sock)" = 660nvmirage"nvmirage" ]
    nvmirage bench --target vfio-user:/run/nvmirage/nvme0.sock --destroy-data --rw randrw --time 500ms --verify
    nvmirage ls
}

# an edited file is served while hosts go on, and one that cannot be used changes nothing
reload() {
    config=/etc/nvmirage/nvmirage.toml
    cp $config /tmp/before.toml
    printf '[[tenant]]\nname = "web"\niops = 5\n' >>$config
    systemctl reload $unit
    nvmirage show tenant web | grep 5
    sed -i 's/iops = 5/iops = 6/' $config
    kill -HUP "$(value MainPID)"
    until_true sh -c 'nvmirage show tenant web | grep 6'
    echo 'nonsense = 1' >>$config
    fails systemctl reload $unit
    is ActiveState active
    nvmirage show tenant web
    cp /tmp/before.toml $config
    systemctl reload $unit
    fails nvmirage show tenant web
}

# the journal knows how bad a line is, by the priority in front of it
journal() {
    nvmirage set log filter=debug
    journalctl --no-pager --unit $unit --priority info | grep 'log settings changed'
    journalctl --no-pager --unit $unit --priority warning >/tmp/warnings
    fails grep 'log settings changed' /tmp/warnings
    journalctl --no-pager --unit $unit --output cat >/tmp/texts
    fails grep '^<[0-9]>' /tmp/texts
}

# somebody asks, and the service is there
activated() {
    systemctl stop $unit
    is ActiveState inactive
    [ -S /run/nvmirage/control.sock ]
    nvmirage ls
    is ActiveState active
}

# a service that hangs is killed and started again
watchdog() {
    mkdir -p /run/systemd/system/$unit.d
    printf '[Service]\nWatchdogSec=3s\nTimeoutAbortSec=3s\n' >/run/systemd/system/$unit.d/quick.conf
    systemctl daemon-reload
    systemctl restart $unit
    # it lives longer than the bound
    sleep 8
    is ActiveState active
    is NRestarts 0
    kill -STOP "$(value MainPID)"
    until_true is NRestarts 1
    until_true is ActiveState active
    nvmirage ls
    journalctl --no-pager --unit $unit | grep -i watchdog
}

# the process that serves: the main one keeps the sockets, and its oldest child serves
worker() {
    cut -d ' ' -f 1 "/proc/$(value MainPID)/task/$(value MainPID)/children"
}

# a process that dies, hangs or is upgraded is replaced, and the service goes on
survive() {
    cp /usr/share/doc/nvmirage/examples/survive.conf /run/systemd/system/$unit.d/
    printf '[Service]\nWatchdogSec=12s\n' >/run/systemd/system/$unit.d/quick.conf
    systemctl daemon-reload
    systemctl restart $unit
    is ActiveState active
    main=$(value MainPID)
    # what is killed within a second of service counts as a failure of the program
    sleep 2
    kill -KILL "$(worker)"
    until_true sh -c 'nvmirage ls | grep "^process 2 of this server: the last one ended (SIGKILL)"'
    sleep 2
    kill -STOP "$(worker)"
    until_true sh -c 'nvmirage ls | grep "^process 3 of this server: the last one ended (no sign of life)"'
    sleep 2
    nvmirage upgrade
    nvmirage ls | grep "^process 4 of this server: the last one ended (upgrade)"
    # it lives longer than the bound
    sleep 8
    nvmirage ls | grep "^process 4 of this server"
    is NRestarts 0
    is ActiveState active
    [ "$(value MainPID)" = "$main" ]
    systemctl reload $unit
    systemctl stop $unit
    is Result success
}

purge() {
    dpkg --purge nvmirage
    fails systemctl is-active $unit
    [ ! -e /usr/bin/nvmirage ]
    [ ! -e /etc/nvmirage/nvmirage.toml ]
    # what drives hold is not thrown away with the program
    [ "$(stat --format=%s /var/lib/nvmirage/disk.img)" = 16777216 ]
}

step install install_package
step verify systemd-analyze verify --man=no $unit nvmirage.socket
# 2.0 of 10 at most, where systemd says "OK" to less than 5
step security systemd-analyze security --no-pager --offline=yes --threshold=20 $unit
tell exposure tail -n 1 /tmp/step.log
step confined confined
step drive drive
step reload reload
step journal journal
step activated activated
step watchdog watchdog
step survive survive
step purge purge
step quiet no_complaints
