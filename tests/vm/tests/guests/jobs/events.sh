# root: 64 MiB of memory. Namespaces come, grow and go; nothing here looks for them.

step root named 1 root
trace_on
load() {
    until [ -e /tmp/stop ]; do
        verified --filename=/dev/root --rw=randwrite --name=load --bs=4k --iodepth=8 --size=4m
    done
}
load >/tmp/load.log 2>&1 &
load=$!
say ready
step appears named 2 added
step use verified --filename=/dev/added --rw=randwrite --name=use --bs=4k --iodepth=8 --size=4m
size_is() {
    [ "$(blockdev --getsize64 /dev/added)" = $(($1 << 20)) ]
}
step size size_is 32
say used
step grows eventually size_is 64
step use-more verified --filename=/dev/added --rw=randwrite --name=use --bs=4k --iodepth=8 --offset=40m --size=4m
mark() {
    numbers 100000 | dd of=/dev/added bs=4096 conv=sync,fsync
}
step mark mark
say grown
step leaves eventually gone 2 added
say gone
await back
step returns named 2 added
still() {
    numbers 100000 | cmp -s -n 588895 - /dev/added
}
step still still
# Get Log Page, its lowest byte the page
tell changes traced 'nvme_admin_get_log_page cdw10=04'
touch /tmp/stop
wait $load
step loaded test $? = 0
step quiet no_complaints
