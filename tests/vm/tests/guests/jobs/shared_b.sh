# The guest that meets the other's reservation, and takes it.

step register register
say registered
await write-exclusive
meets() {
    [ "$(registrants)" = 2 ]
    read_it 0 a
    read_it 1 a
    conflict write_it 1
    conflict blkdiscard -o 0 -l 4096 /dev/shared
    read_it 1 a
}
step meets meets
say seen
await exclusive-access
meets_again() {
    conflict read_it 1 a
    conflict write_it 1
    nvme resv-acquire "$disk" --crkey=0xb --prkey=0xa --rtype=1 --racqa=1
    [ "$(registrants)" = 1 ]
    write_it 4
}
step meets-again meets_again
say preempted
await lost
step clear nvme resv-release "$disk" --crkey=0xb --rrela=1
say cleared
await end
read_last() {
    read_it 5 a
    [ "$(registrants)" = 0 ]
}
step read-last read_last
driver_quiet() {
    ! dmesg | grep -v 'reservation conflict' | complaints
}
step quiet driver_quiet
