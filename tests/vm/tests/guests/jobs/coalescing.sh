# raw: 64 MiB of a file. One processor, so that one vector has all of the I/O queues' interrupts.

step raw named 2 raw
# counted OPTION...: how many interrupts 1024 blocks have, written and verified.
counted() {
    counted_before=$(interrupts 1)
    verified --filename=/dev/raw --rw=randwrite --bs=4k --size=4m --name=counted "$@"
    echo $(($(interrupts 1) - counted_before))
}
tell each counted --iodepth=1
# 16 completions or 25.5 ms
step coalescing nvme set-feature /dev/nvme0 -f 0x08 -V 0xff0f
tell together counted --iodepth=16
step vector nvme set-feature /dev/nvme0 -f 0x09 -V 0x00010001
tell left-out counted --iodepth=1
step quiet no_complaints
