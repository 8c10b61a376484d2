# A drive that comes and goes while the guest runs.

there() {
    [ -b /dev/nvme0n1 ]
}
left() {
    [ ! -e /dev/nvme0n1 ]
}
use() {
    seq 1 1000 | dd of=/dev/nvme0n1 bs=4k count=1 conv=sync,fsync iflag=fullblock
    seq 1 1000 | head -c 3893 >/tmp/put
    dd if=/dev/nvme0n1 of=/tmp/got bs=4k count=1 iflag=direct
    head -c 3893 /tmp/got | cmp - /tmp/put
}
for round in one two; do
    say $round
    step $round-comes eventually there
    step $round-use use
    say $round-used
    step $round-goes eventually left
    say $round-gone
done
