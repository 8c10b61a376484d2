# A guest whose driver binds, and reads and writes.

step root named 1 root
step checksums verified --filename=/dev/root --rw=randwrite --name=page --bs=4k --iodepth=16 --size=2m
step quiet no_complaints
