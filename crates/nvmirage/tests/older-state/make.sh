#!/bin/sh
# Writes the state that an older program leaves, for the test `older_state`:
#
#   make.sh PROGRAM
#
# PROGRAM is the older `nvmirage`. Three folders are made beside this script, each with the
# configuration, the state folder, and `expected`: the objects and the identities that PROGRAM
# itself serves when it starts with that state.
#
#   stopped   objects changed at run time, and a clean stop
#   killed    the same, and the server was killed
#   reloaded  the same, a reload that failed halfway, and the server was killed
#
# It needs root, or fusermount3: the host of the medium in memory is a mount.
set -eu
program=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
root=/tmp/nvmirage-older-state
export XDG_STATE_HOME=$root/state XDG_RUNTIME_DIR=$root/run
unset NVMIRAGE_CONTROL NVMIRAGE_LOG
rm -rf "$root"
mkdir "$root" "$root/run" "$root/mount"
cp "$here/config.toml" "$root"

wait_for() { # LINE FILE
    for _ in $(seq 600); do
        if grep -q "$1" "$2"; then return; fi
        sleep 0.1
    done
    echo "no $1 in $2" >&2
    exit 1
}

serve() {
    "$program" serve --config "$root/config.toml" --control "unix:$root/control" \
        >"$root/out" 2>"$root/log" &
    server=$!
    wait_for ready "$root/out"
}

end() { # SIGNAL
    kill "-$1" "$server"
    wait "$server" || true
}

steer() {
    "$program" "$@" --control "unix:$root/control"
}

write_memory() {
    "$program" mount --target "vfio-user:$root/c.sock" "$root/mount" >"$root/mounted" &
    mount=$!
    wait_for ready "$root/mounted"
    # three blocks from the second on: 1, 2, 3, … a line each
    seq 4000 | head -c 12288 |
        dd of="$root/mount/ns1" bs=4096 seek=1 conv=notrunc,fsync status=none
    kill -INT "$mount"
    wait "$mount"
}

keep() { # NAME
    rm -rf "${here:?}/$1"
    mkdir -p "$here/$1/expected"
    (cd "$root" && cp -r config.toml memory.image flash.timing state "$here/$1")
    find "$here/$1" -name '*.lock' -delete
    gzip -9n "$here/$1/flash.timing" "$here/$1/memory.image"
}

expect() { # NAME
    steer ls --json >"$here/$1/expected/objects.json"
    for controller in a b c d e; do
        "$program" identify --json --target "vfio-user:$root/$controller.sock" \
            >"$here/$1/expected/$controller.json"
    done
}

truncate -s 8M "$root/disk.img"
"$program" partition create "$root/disk.img" part 2MiB
serve
steer partition grow disk part 3MiB
steer set tenant web iops=2000
steer delete tenant old
steer create tenant db --weight 3
steer create media late --kind file --path "$root/late.img" --size 4MiB
steer create namespace late --media late --range 0MiB..1MiB --tenant db
steer create controller e --namespaces late --listen "vfio-user:$root/e.sock" --queues 3
steer resize late 2MiB
steer create namespace spare --media pool --range 4MiB..5MiB
steer attach spare b
steer resize spare 2MiB
steer detach data a
steer set media flash timing.read_cell0=300us
write_memory
end TERM
keep stopped

serve
expect stopped
end KILL
keep killed

serve
expect killed
# the media of the pool is to be elsewhere, in a folder that is missing
sed -i 's|pool\.img|missing/pool.img|' "$root/config.toml"
if steer reload; then
    echo "the reload did not fail" >&2
    exit 1
fi
end KILL
keep reloaded
mkdir "$root/missing"
serve
expect reloaded
end TERM
rm -rf "$root"
