# The identity of a controller, as nvme-cli decodes it, and its features, as nvme-cli changes them.
# root: 64 MiB of a file, with a volatile write cache.

step root named 1 root
tell id-ctrl nvme id-ctrl /dev/nvme0 -o json
tell nvm-id-ctrl nvme nvm-id-ctrl /dev/nvme0 -o json
tell id-ns nvme id-ns /dev/nvme0 -n 1 -o json
tell nvm-id-ns nvme nvm-id-ns /dev/nvme0 -n 1 -o json
tell independent nvme cmdset-ind-id-ns /dev/nvme0 -n 1 -o json
tell descriptors nvme ns-descs /dev/nvme0 -n 1 -o json
tell active nvme list-ns /dev/nvme0 -o json
tell logs nvme supported-log-pages /dev/nvme0 -o json
# with its command set named, since nvme-cli else asks a register for it
tell effects nvme effects-log /dev/nvme0 --csi=0 -o json
tell registers nvme show-regs /dev/nvme0 -H
tell sysfs sh -c 'cat /sys/block/nvme0n1/eui /sys/block/nvme0n1/nguid'

# scope FID: the option that names the namespace, where the feature is of one.
scope() {
    case $1 in
    0x05 | 0x82 | 0x83) echo "-n 1" ;;
    esac
}
# feature FID SELECT [DWORD11]: 0 is its current value, 1 the default, 2 the saved one.
feature() {
    feature_said=$(nvme get-feature /dev/nvme0 $(scope "$1") -f "$1" -s "$2" -c "${3:-0}")
    feature_word=${feature_said#*value:}
    echo $((0x$(echo "${feature_word%% *}" | head -n 1 | sed 's/^0x//')))
}
# can FID WORD: whether the drive says that the feature is saveable, per-namespace or changeable.
can() {
    nvme get-feature /dev/nvme0 $(scope "$1") -f "$1" -s 3 | grep -q "Feature is $2"
}
set_feature() {
    nvme set-feature /dev/nvme0 $(scope "$1") -f "$@"
}
# changes FID VALUE [DWORD11]: the value takes effect, and only as the current one; a controller reset ends that. A value that is
# saved survives the reset.
changes() {
    [ "$(feature "$1" 0 $3)" = "$(feature "$1" 2 $3)" ]
    can "$1" changeable
    default=$(feature "$1" 1 $3)
    set_feature "$1" -V "$2"
    [ "$(feature "$1" 0 $3)" = $(($2)) ]
    [ "$(feature "$1" 1 $3)" = "$default" ]
    if can "$1" saveable; then
        set_feature "$1" -V "$2" --save
        [ "$(feature "$1" 2 $3)" = $(($2)) ]
        nvme reset /dev/nvme0
        [ "$(feature "$1" 0 $3)" = $(($2)) ]
        [ "$(feature "$1" 1 $3)" = "$default" ]
        set_feature "$1" -V "$default" --save
    else
        refused "Feature Identifier Not Saveable" set_feature "$1" -V "$2" --save
        nvme reset /dev/nvme0
    fi
    [ "$(feature "$1" 0 $3)" = "$default" ]
}
scopes() {
    can 0x05 per-namespace
    fails can 0x01 per-namespace
    refused "Feature Not Namespace Specific" nvme set-feature /dev/nvme0 -n 1 -f 0x01 -V 0
}
step scopes scopes
step arbitration changes 0x01 0x07030102
step power changes 0x02 0x20
step temperature changes 0x04 0x150
step recovery changes 0x05 0x64
step cache changes 0x06 0
step coalescing changes 0x08 0x0203
step vector changes 0x09 0x00010001 1
step atomicity changes 0x0a 1
# two minutes: the reset comes before
keep_alive() {
    timer=$(feature 0x0f 0)
    if kernel_refuses set_feature 0x0f -V 120000; then
        [ "$(feature 0x0f 0)" = "$timer" ]
    else
        nvme reset /dev/nvme0
        changes 0x0f 120000
    fi
}
step keep-alive keep_alive
step reservations changes 0x82 0x0e

# Log page 12h names the features that there are, and no others.
named_features() {
    nvme fid-support-effects-log /dev/nvme0 >/tmp/features
    for fid in $(seq 1 30) $(seq 126 134); do
        fid=$(printf %02x $fid)
        if grep "^FID $fid " /tmp/features; then
            for select in 0 1 2 3; do
                nvme get-feature /dev/nvme0 $(scope 0x$fid) -f 0x$fid -s $select
            done
        else
            refused "Invalid Field" nvme get-feature /dev/nvme0 -f 0x$fid
        fi
    done
}
step named-features named_features

# The driver has set its own values in these: they change only for a moment.
events() {
    driver=$(feature 0x0b 0)
    set_feature 0x0b -V 0x11f
    [ "$(feature 0x0b 0)" = $((0x11f)) ]
    set_feature 0x0b -V "$driver"
    kernel_refuses set_feature 0x07 -V 0x00010001 ||
        refused "Command Sequence Error" set_feature 0x07 -V 0x00010001
}
step events events
timestamp() {
    # milliseconds: a time of the year 2024, whose higher half stays as it is for months
    set_feature 0x0e -V 0x19012345678
    nvme get-feature /dev/nvme0 -f 0x0e -b >/tmp/time
    [ "$(hexdump -s 3 -n 5 -e '5/1 "%02x"' /tmp/time)" = 1290010200 ]
}
step timestamp timestamp
# The controller is told to start again behind its driver's back, which then starts it, and takes note of what it sees.
subsystem_reset() {
    nvme subsystem-reset /dev/nvme0
    nvme show-regs /dev/nvme0 -H | grep 'Subsystem Reset Occurred.*Yes'
    nvme reset /dev/nvme0
    nvme show-regs /dev/nvme0 -H | grep 'Subsystem Reset Occurred.*No'
    verified --filename=/dev/root --rw=randwrite --name=page --bs=4k --iodepth=8 --size=1m
}
step subsystem-reset subsystem_reset
# For the guest after the server's restart.
step save set_feature 0x04 -V 0x150 --save
tell smart nvme smart-log /dev/nvme0 -o json
step quiet no_complaints
