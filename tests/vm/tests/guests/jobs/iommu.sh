# root: 64 MiB of a file. Every command's memory is mapped before it and unmapped after it.

step root named 1 root
step iommu test -e /sys/class/iommu/dmar0
work() {
    verified --filename=/dev/root --rw=randwrite --name=pages --bs=4k --iodepth=8 --size=2m \
        --name=lists --bs=256k --iodepth=4 --offset=16m --size=8m
}
step work work
step reset nvme reset /dev/nvme0
step work-again work
step quiet no_complaints
