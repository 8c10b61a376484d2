# program: an executable, with zeros behind it. disk: 64 MiB. The kernel's driver has one queue to be polled.

step program named 1 program
step disk named 2 disk
tell polls attribute disk queue/io_poll
copied() {
    cat /dev/program >/run/nvmirage
    chmod +x /run/nvmirage
    /run/nvmirage --version
}
step copied copied

serve() {
    export XDG_STATE_HOME=/run/state
    disk=$(readlink -f /dev/disk)
    /run/nvmirage serve --media "file:path=$disk,poll_completions=$1" --listen vfio-user:/run/$1.sock \
        --control unix:/run/$1.ctl >/run/log.$1 2>&1 &
    echo $! >/run/pid.$1
    serve_left=300
    until grep -q "ready: " /run/log.$1; do
        [ $serve_left -gt 0 ] && kill -0 "$(cat /run/pid.$1)" || {
            cat /run/log.$1
            return 1
        }
        serve_left=$((serve_left - 1))
        usleep 100000
    done
}

all_interrupts() {
    sed -n 's/:\(.*\)PCI-MSI.*nvme0q[1-9][0-9]*$/\1/p' /proc/interrupts | tr -s ' ' '\n' | awk '{ sum += $1 } END { print sum }'
}

step serves serve true
before=$(all_interrupts)
bench() {
    /run/nvmirage bench --target vfio-user:/run/true.sock --destroy-data --rw randrw --bs 4k,64k --qd 1,8 --time 500ms \
        --verify --json >/run/bench.json
}
step bench bench
tell interrupts sh -c "echo $(($(all_interrupts) - before))"
tell log cat /run/log.true
tell bench cat /run/bench.json
stopped() {
    kill "$(cat /run/pid.true)"
    eventually grep -q stopping /run/log.true
}
step stopped stopped
