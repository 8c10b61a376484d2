# root: 64 MiB of memory, served from outside.

step program program
step vfio vfio
appears /dev/nvme0n1
drive=$(address nvme0)
step bind nvmirage drive bind "$drive"
conforms() {
    nvmirage conformance --target "pci:$drive" --destroy-data --doorbells "$1" >/tmp/conformance.log 2>&1
}
all() {
    conforms auto || { cat /tmp/conformance.log; return 1; }
}
step auto all
tell conformance cat /tmp/conformance.log
step unbind nvmirage drive unbind "$drive"
step back appears /dev/nvme0n1
step kernel verified --filename=/dev/nvme0n1 --name=k --rw=randwrite --bs=4k --iodepth=4 --size=1m
step quiet no_complaints
