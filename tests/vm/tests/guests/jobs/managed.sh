# The second guest of a drive whose server has started again since the first had made namespaces on it.

step root named 1 root
step raw named 2 raw
step third named 3 third
kept() {
    [ "$(attribute raw queue/logical_block_size)" = 512 ]
    [ "$(blockdev --getsize64 /dev/third)" = $((16 << 20)) ]
    numbers 100000 | cmp -s -n 588895 - /dev/third
    disk=/dev/$(readlink /dev/raw)
    refused "Unrecovered Read Error" nvme read "$disk" -s 1000 -c 0 -z 512 -d /tmp/read
    nvme read "$disk" -s 1001 -c 0 -z 512 -d /tmp/read
    nvme get-feature /dev/nvme0 -f 0x04 | grep 0x00000150
}
step kept kept
tell sanitized nvme sanitize-log /dev/nvme0 -o json
step quiet no_complaints
