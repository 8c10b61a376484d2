# root: 16 MiB, raw: 32 MiB, both of a file that has as much again to make namespaces of.

step root named 1 root
step raw named 2 raw

zeros() {
    echo 3 >/proc/sys/vm/drop_caches
    cmp -s -n "$(blockdev --getsize64 "$1")" "$1" /dev/zero
}
written() {
    numbers 100000 | dd of="$1" bs=4096 conv=sync,fsync
}
still() {
    echo 3 >/proc/sys/vm/drop_caches
    numbers 100000 | cmp -s -n 588895 - "$1"
}
block_size() {
    [ "$(attribute raw queue/logical_block_size)" = "$1" ]
}
formats() {
    written /dev/raw
    nvme format /dev/nvme0 -n 2 --block-size=512 --force
    eventually block_size 512
    [ "$(blockdev --getsize64 /dev/raw)" = $((32 << 20)) ]
    fails still /dev/raw
    verified --filename=/dev/raw --rw=randwrite --name=block --bs=512 --iodepth=8 --size=256k
    nvme format /dev/nvme0 -n 2 --block-size=4096 --ses=1 --force
    eventually block_size 4096
    zeros /dev/raw
    # its neighbour was left alone
    still /dev/root
    refused "Invalid Format" nvme format /dev/nvme0 -n 2 --lbaf=15 --force
    refused "Invalid Field" nvme format /dev/nvme0 -n 2 --lbaf=0 --ses=2 --force
}
step neighbour written /dev/root
step formats formats

# create BLOCKS: a namespace of blocks of 4096 bytes; prints its identifier.
create() {
    create_said=$(nvme create-ns /dev/nvme0 --nsze="$1" --ncap="$1" --block-size=4096)
    echo "${create_said##*nsid:}"
}
unallocated() {
    field unvmcap id-ctrl /dev/nvme0
}
namespaces() {
    nvme id-ns-granularity /dev/nvme0 -o json | tr -d ' ' | grep '"namespace-size-granularity":4096'
    me=$(field cntlid id-ctrl /dev/nvme0)
    free=$(unallocated)
    [ "$(create 4096)" = 3 ]
    [ "$(unallocated)" = $((free - (16 << 20))) ]
    # allocated, but not active here
    nvme list-ns /dev/nvme0 --all | grep -q :0x3
    nvme list-ns /dev/nvme0 >/tmp/attached
    fails grep :0x3 /tmp/attached
    [ "$(field nsze id-ns /dev/nvme0 -n 3 --force)" = 4096 ]
    [ "$(field num_ctrl list-ctrl /dev/nvme0 -n 3)" = 0 ]
    refused "Not Attached" nvme detach-ns /dev/nvme0 -n 3 -c "$me"
    nvme attach-ns /dev/nvme0 -n 3 -c "$me"
    named 3 third
    [ "$(field num_ctrl list-ctrl /dev/nvme0 -n 3)" = 1 ]
    refused "Already Attached" nvme attach-ns /dev/nvme0 -n 3 -c "$me"
    zeros /dev/third
    written /dev/third
    nvme detach-ns /dev/nvme0 -n 3 -c "$me"
    eventually gone 3 third
    nvme attach-ns /dev/nvme0 -n 3 -c "$me"
    named 3 third
    still /dev/third
    # also while it is attached
    nvme delete-ns /dev/nvme0 -n 3
    eventually gone 3 third
    [ "$(unallocated)" = "$free" ]
    # an identifier that no namespace has, and one that none can have (Base 2.1, 3.2.1.2)
    refused "Invalid Field" nvme attach-ns /dev/nvme0 -n 3 -c "$me"
    refused "Invalid Namespace" nvme attach-ns /dev/nvme0 -n 100000 -c "$me"
    refused "Insufficient Capacity" nvme create-ns /dev/nvme0 --nsze=1000000 --ncap=1000000 --block-size=4096
    # what the last one had written there is gone
    [ "$(create 4096)" = 3 ]
    nvme attach-ns /dev/nvme0 -n 3 -c "$me"
    named 3 third
    zeros /dev/third
    still /dev/root
}
step namespaces namespaces

# add NAME NUMBER NSID: Fetch and Add on a disk; prints the counter before it.
add() {
    nvme io-passthru "/dev/$(readlink "/dev/$1")" --opcode=0xc0 --cdw10="$2" "--namespace-id=$3" 2>&1 |
        sed -n 's/.*result: *0x0*\([0-9a-f]\)/\1/p'
}
vendor() {
    [ "$(add root 5 1)" = 0 ]
    [ "$(add root 3 1)" = 5 ]
    [ "$(add raw 0 2)" = 0 ]
    # a format resets the counter of its namespace only
    [ "$(add raw 7 2)" = 0 ]
    nvme format /dev/nvme0 -n 2 --block-size=4096 --force
    [ "$(add raw 0 2)" = 0 ]
    [ "$(add root 0 1)" = 8 ]
    # Commands Supported and Effects: I/O commands begin at byte 1024, 4 bytes each
    nvme get-log /dev/nvme0 --log-id=5 --log-len=4096 --raw-binary >/tmp/effects
    [ "$(od -A n -t x4 -j 1792 -N 4 /tmp/effects)" = " 00000001" ]
    refused "Invalid Command Opcode" nvme io-passthru "/dev/$(readlink /dev/root)" --opcode=0xc4 --namespace-id=1
}
step vendor vendor

copies() {
    written /dev/raw
    disk=/dev/$(readlink /dev/raw)
    # two ranges of 64 blocks in one command, the second before the first
    nvme copy "$disk" --sdlba=2048 --slbs=64,0 --blocks=63,63
    dd if=/dev/raw bs=4096 count=128 of=/tmp/from iflag=direct
    dd if=/dev/raw bs=4096 skip=2048 count=128 of=/tmp/to iflag=direct
    tail -c 262144 /tmp/from >/tmp/turned
    head -c 262144 /tmp/from >>/tmp/turned
    cmp /tmp/turned /tmp/to
    # between namespaces, for a host that says that it knows of that
    nvme copy "$disk" --format=0 --sdlba=0 --slbs=64 --blocks=7
    refused "Invalid Field" nvme copy "$disk" --format=2 --sdlba=0 --slbs=0 --blocks=7 --snsids=1 --sopts=0
    head -c 512 /dev/zero >/tmp/behavior
    printf '\004' | dd of=/tmp/behavior bs=1 seek=4 conv=notrunc
    if kernel_refuses nvme set-feature /dev/nvme0 -f 0x16 -l 512 -d /tmp/behavior; then
        return
    fi
    nvme copy "$disk" --format=2 --sdlba=0 --slbs=0 --blocks=7 --snsids=1 --sopts=0
    dd if=/dev/root bs=4096 count=8 iflag=direct of=/tmp/root
    dd if=/dev/raw bs=4096 count=8 iflag=direct of=/tmp/copy
    cmp /tmp/root /tmp/copy
}
step copies copies
verifies() {
    disk=/dev/$(readlink /dev/raw)
    nvme verify "$disk" -s 0 -c 127
    nvme write-uncor "$disk" -s 4096 -c 7
    nvme get-lba-status /dev/nvme0 -n 2 -s 4000 -m 1023 -a 0x11 -l 0 >/tmp/status
    grep 'DSLBA: 0x0*1000, NLB: 0x0*7,' /tmp/status
    refused "Unrecovered Read Error" nvme verify "$disk" -s 4100 -c 0
    refused "Unrecovered Read Error" nvme read "$disk" -s 4090 -c 15 -z 65536 -d /tmp/read
    nvme read "$disk" -s 4088 -c 7 -z 32768 -d /tmp/read
    head -c 32768 /tmp/from >/tmp/some
    nvme write "$disk" -s 4096 -c 7 -z 32768 -d /tmp/some
    nvme read "$disk" -s 4096 -c 7 -z 32768 -d /tmp/read
    cmp /tmp/read /tmp/some
    nvme compare "$disk" -s 4096 -c 7 -z 32768 -d /tmp/some
    tail -c 32768 /tmp/from >/tmp/other
    refused "Compare Failure" nvme compare "$disk" -s 4096 -c 7 -z 32768 -d /tmp/other
    refused "Out of Range" nvme verify "$disk" -s 8190 -c 7
}
step verifies verifies

# is_sanitized STATUS: it has ended (Base 2.1, log page 81h): 1 is success, 4 success and all is deallocated.
is_sanitized() {
    sanitize_log=$(nvme sanitize-log /dev/nvme0)
    echo "$sanitize_log"
    echo "$sanitize_log" | grep 'SPROG) :  65535'
    sanitize_status=$(echo "$sanitize_log" | sed -n 's/.*SSTAT) : *//p')
    [ $((sanitize_status & 7)) = "$1" ]
}
sanitizes() {
    refused "Invalid Field" nvme sanitize /dev/nvme0 --sanact=4
    nvme sanitize /dev/nvme0 --sanact=2
    eventually is_sanitized 1
    for disk in root raw third; do
        zeros /dev/$disk
    done
    # the blocks stay as they were overwritten
    nvme sanitize /dev/nvme0 --sanact=3 --owpass=1 --ovrpat=0x64636261 --no-dealloc
    eventually is_sanitized 1
    echo 3 >/proc/sys/vm/drop_caches
    for disk in root raw third; do
        yes abcdabcdabcdabc | tr '\n' d | cmp -s -n $((16 << 20)) - /dev/$disk
    done
}
step sanitizes sanitizes

# What the next guest finds after the server has started again.
leave() {
    nvme format /dev/nvme0 -n 2 --block-size=512 --force
    eventually block_size 512
    written /dev/third
    nvme write-uncor "/dev/$(readlink /dev/raw)" -s 1000 -c 0
    nvme set-feature /dev/nvme0 -f 0x04 -V 0x150 --save
}
step leave leave
tell errors nvme error-log /dev/nvme0 -e 16 -o json
step quiet no_complaints
