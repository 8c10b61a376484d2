# Functions for a guest's job. Lines that start with @@ are for the host's side of the rig
# (report.rs); others are for a person.

# step NAME COMMAND [ARGUMENT...]: runs the command in a shell of its own, where any failure ends
# it, and reports how it went. A failed step shows what it printed and the kernel's last words, and
# ends the job: what comes after would only fail because of it.
step() {
    step_name=$1
    shift
    echo "@@ begin $step_name"
    step_start=$(cut -d. -f1 /proc/uptime)
    # In the background, since a command that is part of a condition is not ended by `set -e`.
    (
        set -e
        "$@"
    ) >/tmp/step.log 2>&1 </dev/null &
    step_status=0
    wait $! || step_status=$?
    step_seconds=$(($(cut -d. -f1 /proc/uptime) - step_start))
    if [ $step_status = 0 ]; then
        echo "@@ step $step_name ok ${step_seconds} s"
        return 0
    fi
    tail -n 60 /tmp/step.log | sed 's/^/  | /'
    dmesg | tail -n 40 | sed 's/^/  k /'
    echo "@@ step $step_name fail exit status $step_status after ${step_seconds} s"
    exit 1
}

# fails COMMAND [ARGUMENT...]: the command must fail. (`! COMMAND` says nothing in a step: `set -e` does not look at it.)
fails() {
    if "$@"; then
        echo "this should have failed: $*"
        return 1
    fi
}

# tell NAME COMMAND [ARGUMENT...]: hands the command's output to the host as the text NAME.
tell() {
    tell_name=$1
    shift
    "$@" >/tmp/tell.log 2>&1 </dev/null || echo "exit status $?" >>/tmp/tell.log
    # the last line may have no end
    [ -z "$(tail -c 1 /tmp/tell.log)" ] || echo >>/tmp/tell.log
    sed "s/^/@@ tell $tell_name /" /tmp/tell.log
}

# say WORD: a line that the host can wait for.
say() {
    echo "@@ say $1"
}

# await WORD: waits until the host sends the line WORD.
await() {
    while read -r await_line; do
        [ "$await_line" = "$1" ] && return 0
    done
    return 1
}

# appears PATH [SECONDS]: waits until the path exists.
appears() {
    appears_left=$((${2:-20} * 10))
    until [ -e "$1" ]; do
        [ $appears_left -gt 0 ] || {
            echo "$1 did not appear"
            return 1
        }
        appears_left=$((appears_left - 1))
        sleep 0.1
    done
}

# complaints: the lines of standard input that have a word of trouble with a drive, or of the kernel's own.
complaints() {
    grep -E 'nvme.*(timeout|[Aa]bort|not ready|fail|removing|invalid|disabl)|I/O error|EXT4-fs error|BUG:|Oops|WARNING:|Call Trace|hung task|unusual effects'
}

# no_complaints: fails where the kernel's log has one.
no_complaints() {
    ! dmesg | complaints
}

# program: unpacks our own program, where the rig has given it to the guest (Options::program).
program() {
    files / || return 1
    nvmirage --version
}

# files FOLDER: unpacks the files that the rig has given to the guest (Options::files) into the folder.
files() {
    modprobe virtio_blk
    files_left=200
    until files_disk=$(ls -d /sys/bus/pci/devices/0000:00:1e.0/virtio*/block/vd? 2>/dev/null); do
        [ $files_left -gt 0 ] || {
            echo "the drive with the files did not appear"
            return 1
        }
        files_left=$((files_left - 1))
        sleep 0.1
    done
    appears "/dev/${files_disk##*/}"
    (cd "$1" && cpio -id <"/dev/${files_disk##*/}")
}
