# The server dies, and the next one has the zones as they were.
killed() {
    # A zone that is open is closed by a death.
    both 'blkzone reset @; dd if=/dev/urandom of=@ bs=64k count=40 oflag=direct; blkzone close --offset 0 --length 8192 @'
    dd if=/dev/zoned of=/tmp/before bs=64k count=40 iflag=direct
    kill -9 "$(server)"
    ends
    serve
    logged '/dev/ublkb0 goes on'
    dd if=/dev/zoned bs=64k count=40 iflag=direct | cmp - /tmp/before
    dd if=/dev/urandom of=/dev/zoned bs=64k count=4 seek=64 oflag=direct
    dd if=/dev/urandom of=/dev/reference bs=64k count=4 seek=64 oflag=direct
    same
}
step killed killed
step stop stop
step gone absent /dev/ublkb0 /dev/ublkc0
# The kernel reports the one write out of order that reached each device.
quiet() {
    no_faults
    [ "$(dmesg | complaints | grep -c ublkb0)" = 1 ]
}
step quiet quiet
