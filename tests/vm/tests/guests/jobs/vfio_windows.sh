# A drive that a server outside has, 64 MiB, of which two tenants have a part each: a from 8 MiB on, b from 32 MiB on, 16 MiB each.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)
step bind nvmirage drive bind "$drive"

{
    cat <<END
state_dir = "/tmp/state"
control = "unix:/tmp/control.sock"
[[reactor]]
mode = "adaptive"
[[media]]
name = "drive"
kind = "drive"
target = "pci:$drive"
END
    for part in a=8MiB..24MiB b=32MiB..48MiB; do
        cat <<END
[[namespace]]
name = "${part%%=*}"
media = "drive"
range = "${part#*=}"
[[controller]]
name = "${part%%=*}"
namespaces = ["${part%%=*}"]
listen = "vfio-user:/tmp/${part%%=*}.sock"
END
    done
} >/tmp/nvmirage.toml

serve() {
    nvmirage --log debug serve --config /tmp/nvmirage.toml >/tmp/serve.log 2>&1 &
    serve_left=600
    until [ "$(grep -c '^ready: ' /tmp/serve.log)" = 2 ]; do
        [ $serve_left -gt 0 ] || {
            cat /tmp/serve.log
            return 1
        }
        serve_left=$((serve_left - 1))
        usleep 100000
    done
}
step serve serve

# Each checks all that it writes, both at the same time, for long enough that the drive is shown its memory.
# The drive is behind QEMU, its IOMMU and an emulated processor, and on a busy machine it may be silent for 4 s: commands then end
# as interrupted, which hosts repeat. So does this one, three times at most; nothing else may fail.
tenant() {
    tenant_left=3
    until nvmirage bench --target "vfio-user:/tmp/$1.sock" --destroy-data --rw randrw --bs "$2" --qd 4 --time 5s --span 8MiB --seed "$3" --verify >"/tmp/tenant-$1.log" 2>&1; do
        cat "/tmp/tenant-$1.log"
        grep -q 'a command failed: Command Interrupted' "/tmp/tenant-$1.log" || return 1
        [ $tenant_left -gt 0 ] || return 1
        tenant_left=$((tenant_left - 1))
    done
    cat "/tmp/tenant-$1.log"
}
together() {
    tenant a 4k 1 >/tmp/a.log 2>&1 &
    tenant b 64k 2
    wait $! || {
        cat /tmp/a.log
        return 1
    }
}
step together together

# And once more: other memory, at the same places of the drive's addresses.
step again together

gone() {
    gone_left=100
    until [ "$(grep -c 'a drive reaches memory of a host' /tmp/serve.log)" -ge 4 ]; do
        [ $gone_left -gt 0 ]
        gone_left=$((gone_left - 1))
        usleep 100000
    done
    kill $(pidof nvmirage)
    gone_left=300
    while pidof nvmirage; do
        [ $gone_left -gt 0 ] || return 1
        gone_left=$((gone_left - 1))
        usleep 100000
    done
}
step gone gone
tell reaches sed -n 's/.*a drive reaches memory of a host.*bytes=\([0-9]*\).*/\1/p' /tmp/serve.log
tell served cat /tmp/serve.log
step unbind nvmirage drive unbind "$drive"
step back appears /dev/nvme0n1
step quiet no_complaints
