# Functions of the jobs here, beside those of the rig (guest/steps.sh).

# verified OPTION...: fio writes and reads back, with a checksum in every block. Options of all its
# jobs come first, those of one after its --name.
verified() {
    fio --direct=1 --ioengine=libaio --verify=crc32c --do_verify=1 --verify_fatal=1 \
        --verify_state_save=0 --allow_mounted_write=1 --output=/dev/null --eta=never "$@"
}

# numbers N: text that the host can make, too.
numbers() {
    seq 1 "$1"
}

# named NSID NAME: waits for a namespace of the first controller, and makes its disk /dev/NAME. Disks
# are numbered as the kernel finds namespaces, in any order.
named() {
    named_left=200
    until named_disk=$(grep -l -x "$1" /sys/block/nvme0n*/nsid); do
        [ $named_left -gt 0 ] || {
            echo "namespace $1 did not appear"
            return 1
        }
        named_left=$((named_left - 1))
        usleep 100000
    done
    named_disk=${named_disk%/nsid}
    ln -s "${named_disk##*/}" "/dev/$2"
    appears "/dev/$2"
}

# attribute NAME FILE: the kernel's attribute of the disk /dev/NAME.
attribute() {
    cat "/sys/block/$(readlink "/dev/$1")/$2"
}

# writes_done DISK: how many writes the kernel has seen completed.
writes_done() {
    set -- $(attribute "$1" stat)
    echo "$5"
}

# more_writes DISK N: waits until N more writes are done. Fails as soon as a command in the background has.
more_writes() {
    more_goal=$(($(writes_done "$1") + $2))
    more_left=1200
    until [ "$(writes_done "$1")" -ge $more_goal ]; do
        background_works || return 1
        [ $more_left -gt 0 ] || {
            echo "$1 is stuck before $more_goal writes: $(attribute "$1" stat)"
            return 1
        }
        more_left=$((more_left - 1))
        usleep 50000
    done
}

# outlives_deaths DISK: the test kills the server's workers while the job's load goes on, which ends with the file /tmp/stop. The
# disk's writes go on after each death.
outlives_deaths() {
    say again
    while read -r outlives_word && [ "$outlives_word" = killed ]; do
        step goes-on more_writes "$1" 5
        say again
    done
    touch /tmp/stop
}

# in_background NAME COMMAND [ARGUMENT...]: the file /tmp/NAME.done says that the command has succeeded, and /tmp/NAME.failed
# that it has not. Its output is in /tmp/NAME.log.
in_background() {
    (
        in_background_name=$1
        shift
        trap 'echo "exit status $?"; touch "/tmp/$in_background_name.failed"' EXIT
        set -e
        "$@"
        touch "/tmp/$in_background_name.done"
        trap - EXIT
    ) >"/tmp/$1.log" 2>&1 &
}

# background_works: whether no command in the background has failed; prints the last output of one that has.
background_works() {
    for background_failed in /tmp/*.failed; do
        [ -e "$background_failed" ] || return 0
        echo "failed in the background: ${background_failed%.failed}.log"
        tail -n 40 "${background_failed%.failed}.log"
        return 1
    done
}

# done_in_background NAME: waits until it has succeeded.
done_in_background() {
    done_left=1200
    until [ -e "/tmp/$1.done" ]; do
        background_works || return 1
        [ $done_left -gt 0 ] || {
            echo "$1 does not end"
            tail -n 40 "/tmp/$1.log"
            return 1
        }
        done_left=$((done_left - 1))
        usleep 100000
    done
}

# filled DIRECTORY: files with a list of their checksums.
filled() {
    numbers 100000 >"$1/numbers"
    for filled_file in a b c d; do
        dd if=/dev/urandom of="$1/$filled_file" bs=1M count=4
    done
    (cd "$1" && sha256sum numbers a b c d >sums)
}

# intact DIRECTORY: reads those files back, from the drive and not from memory.
intact() {
    echo 3 >/proc/sys/vm/drop_caches
    (cd "$1" && sha256sum -c sums)
}

# The commands that the kernel's driver sends, by its own trace.
trace_on() {
    [ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
    echo 8192 >/sys/kernel/tracing/buffer_size_kb
    echo >/sys/kernel/tracing/trace
    echo 1 >/sys/kernel/tracing/events/nvme/nvme_setup_cmd/enable
}

# traced PATTERN: how many of them match.
traced() {
    echo 0 >/sys/kernel/tracing/events/nvme/nvme_setup_cmd/enable
    grep -c -E "$1" /sys/kernel/tracing/trace || [ $? = 1 ]
}

# interrupts QUEUE: how many interrupts that queue's vector has had, on all processors.
interrupts() {
    sed -n "s/:\(.*\)PCI-MSI.*nvme0q$1\$/\1/p" /proc/interrupts | tr -s ' ' '\n' | awk '{ sum += $1 } END { print sum }'
}

# kernel_refuses COMMAND [ARGUMENT...]: kernels since the autumn of 2026 let nobody but their own driver change the features
# that it uses (Number of Queues, Keep Alive Timer, Host Behavior Support, power states). The command then reaches no drive, and
# fails with the words of EACCES; else it is carried out.
kernel_refuses() {
    if "$@" >/tmp/kernel 2>&1; then
        return 1
    fi
    grep -F 'Permission denied' /tmp/kernel && return 0
    cat /tmp/kernel
    return 1
}

# refused WORDS COMMAND [ARGUMENT...]: the command fails, and says these words.
refused() {
    refused_words=$1
    shift
    if "$@" >/tmp/refused 2>&1; then
        echo "not refused: $*"
        return 1
    fi
    grep -F -i "$refused_words" /tmp/refused || {
        echo "refused in other words than '$refused_words': $*"
        cat /tmp/refused
        return 1
    }
}

# field FIELD COMMAND...: a number of what nvme-cli says in JSON.
field() {
    field_name=$1
    shift
    nvme "$@" -o json | tr -d ' ' | sed -n "s/^\"$field_name\":\"*\(0x\)*\([0-9a-f]*\).*/\1\2/p" | head -n 1
}

# eventually COMMAND [ARGUMENT...]: waits until the command succeeds.
eventually() {
    eventually_left=150
    until ("$@") >/tmp/eventually 2>&1; do
        [ $eventually_left -gt 0 ] || {
            echo "never: $*"
            cat /tmp/eventually
            return 1
        }
        eventually_left=$((eventually_left - 1))
        usleep 100000
    done
}

# gone NSID NAME: the namespace has no disk any more, and its name in /dev is removed.
gone() {
    ! grep -l -x "$1" /sys/block/nvme0n*/nsid && rm "/dev/$2"
}
