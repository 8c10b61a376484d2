# The guest that takes the reservation.

step write write_it 0
step register register
say registered
await both
holds() {
    [ "$(registrants)" = 2 ]
    # Write Exclusive
    nvme resv-acquire "$disk" --crkey=0xa --rtype=1 --racqa=0
    write_it 1
}
step holds holds
say write-exclusive
await seen
excludes() {
    nvme resv-release "$disk" --crkey=0xa --rtype=1 --rrela=0
    # Exclusive Access
    nvme resv-acquire "$disk" --crkey=0xa --rtype=2 --racqa=0
    write_it 2
}
step excludes excludes
say exclusive-access
await preempted
lost() {
    conflict write_it 3
    # its registration went with its reservation
    refused "Reservation Conflict" nvme resv-release "$disk" --crkey=0xa --rtype=1 --rrela=0
    read_it 4 b
}
step lost lost
say lost
await cleared
step free write_it 5
driver_quiet() {
    ! dmesg | grep -v 'reservation conflict' | complaints
}
step quiet driver_quiet
