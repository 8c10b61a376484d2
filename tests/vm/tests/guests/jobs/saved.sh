# The guest after the one that saved a feature, of a server that has started again since.

step root named 1 root
saved() {
    # its value now, and what is kept; the default is another
    nvme get-feature /dev/nvme0 -f 0x04 -s 0 | grep 'value:0x00000150'
    nvme get-feature /dev/nvme0 -f 0x04 -s 2 | grep 'value:0x00000150'
    nvme get-feature /dev/nvme0 -f 0x04 -s 1 | grep 'value:0x00000157'
}
step saved saved
tell smart nvme smart-log /dev/nvme0 -o json
step quiet no_complaints
