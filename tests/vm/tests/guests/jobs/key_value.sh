# Character devices of two namespaces: /dev/pairs, of the Key Value command set, and /dev/ssd, of Samsung's commands.

# pass DEVICE OPCODE [OPTION...]
pass() {
    pass_device=$1
    pass_opcode=$2
    shift 2
    nvme io-passthru /dev/$pass_device --opcode=$pass_opcode --namespace-id=1 "$@"
}
# status CODE COMMAND [ARGUMENT...]: the command fails with this status, SCT and SC; nvme-cli sets the bit Do Not Retry beside it.
status() {
    status_code=$1
    shift
    if "$@" >/tmp/status 2>&1; then
        echo "not refused: $*"
        return 1
    fi
    cat /tmp/status
    grep -E "\(0x(4?$status_code|${status_code#0})\)" /tmp/status
}
# says DWORD COMMAND [ARGUMENT...]: the command succeeds, and this is Dword 0 of its completion.
says() {
    says_dword=$1
    shift
    "$@" >/tmp/says 2>&1 || {
        cat /tmp/says
        return 1
    }
    cat /tmp/says
    grep -i "result: 0x$says_dword\$" /tmp/says
}
# bytes FILE COUNT: what it begins with, in hexadecimal.
bytes() {
    od -A n -t x1 -v -N "$2" "$1" | tr -s ' \n' ' ' | sed 's/^ //'
}

# The Key Value command set: the key is in Dwords 2, 3, 14 and 15, its length and the options in 11, a size in 10.
A="--cdw2=0x61 --cdw11=1"
B="--cdw2=0x62 --cdw11=1"
COLO="--cdw2=0x6f6c6f63 --cdw11=4"
LONG="--cdw2=0x33323130 --cdw3=0x37363534 --cdw14=0x62613938 --cdw15=0x66656463 --cdw11=16"
printf 'a value of 21 bytes..' >/tmp/value
dd if=/dev/urandom of=/tmp/large bs=1000 count=200 2>/dev/null

stored() {
    status 087 pass pairs 0x14 $COLO
    says 00000000 pass pairs 1 $COLO --write --input-file=/tmp/value --data-len=21 --cdw10=21
    says 00000000 pass pairs 1 $LONG --write --input-file=/tmp/large --data-len=200000 --cdw10=200000
    says 00000000 pass pairs 1 $A --cdw10=0
    says 00000000 pass pairs 0x14 $COLO
    pass pairs 2 $COLO --read --data-len=21 --cdw10=21 --raw-binary >/tmp/back
    cmp /tmp/value /tmp/back
    pass pairs 2 $LONG --read --data-len=200000 --cdw10=200000 --raw-binary >/tmp/back
    cmp /tmp/large /tmp/back
    # Dword 0 is the value's size, however much of it fits.
    says 00030d40 pass pairs 2 $LONG --read --data-len=512 --cdw10=512
    status 087 pass pairs 2 $B --read --data-len=16 --cdw10=16
}
step stored stored

lists() {
    pass pairs 6 --read --data-len=4096 --cdw10=4096 --raw-binary >/tmp/keys
    pass pairs 6 $B --read --data-len=4096 --cdw10=4096 --raw-binary >/tmp/keys-from-b
}
step lists lists
tell keys bytes /tmp/keys 36
tell keys-from-b bytes /tmp/keys-from-b 12

conditions() {
    # Only where the key does not exist (bit 1 of the options), only where it does (bit 0).
    status 089 pass pairs 1 --cdw2=0x6f6c6f63 --cdw11=0x204 --write --input-file=/tmp/value --data-len=5 --cdw10=5
    status 087 pass pairs 1 --cdw2=0x62 --cdw11=0x101 --write --input-file=/tmp/value --data-len=5 --cdw10=5
    says 00000000 pass pairs 1 --cdw2=0x6f6c6f63 --cdw11=0x104 --write --input-file=/tmp/large --data-len=5 --cdw10=5
    says 00000005 pass pairs 2 $COLO --read --data-len=8 --cdw10=8
    # A key of no bytes, one of seventeen, and a command that there is none.
    status 086 pass pairs 0x14 --cdw11=0
    status 002 pass pairs 0x14 --cdw11=17
    status 001 pass pairs 9
}
step conditions conditions

deleted() {
    pass pairs 0x10 $COLO
    status 087 pass pairs 0x10 $COLO
    status 087 pass pairs 2 $COLO --read --data-len=16 --cdw10=16
    pass pairs 6 --read --data-len=64 --cdw10=64 --raw-binary >/tmp/keys
    [ "$(bytes /tmp/keys 4)" = "02 00 00 00 " ] || [ "$(bytes /tmp/keys 4)" = "02 00 00 00" ]
}
step deleted deleted

# Samsung's: the key is in Dwords 12 to 15, its length less one in 11 with the option above it and then the bytes to take off the
# size, which is in 10, in dwords.
key() {
    echo "--cdw12=0x2d727375 --cdw13=0x3$1"
}
ssd_stored() {
    status 310 pass ssd 0xb3 $(key 1) --cdw11=4
    for number in 1 2 3; do
        says 00000000 pass ssd 0x81 $(key $number) --cdw11=0x30004 --write --input-file=/tmp/value --data-len=21 --cdw10=6
    done
    says 00000000 pass ssd 0xb3 $(key 3) --cdw11=4
    pass ssd 0x90 $(key 2) --cdw11=0x30004 --read --data-len=21 --cdw10=6 --raw-binary >/tmp/back
    cmp /tmp/value /tmp/back
    # Append, whose opcode nvme-cli takes for one that reads and writes, and then takes the data from its standard output.
    cp /tmp/large /tmp/appended
    pass ssd 0x83 $(key 2) --cdw11=0x10004 --data-len=10003 --cdw10=2501 1<>/tmp/appended
    # The size alone (option 2).
    says 00002728 pass ssd 0x90 $(key 2) --cdw11=0x204
    cat /tmp/value /tmp/large | head -c 10024 >/tmp/both
    pass ssd 0x90 $(key 2) --cdw11=4 --read --data-len=10024 --cdw10=2506 --raw-binary >/tmp/back
    cmp /tmp/both /tmp/back
    # Only where the key does not exist (option 2), only where it does (option 8).
    status 380 pass ssd 0x81 $(key 1) --cdw11=0x204 --write --input-file=/tmp/value --data-len=4 --cdw10=1
    status 310 pass ssd 0x81 $(key 9) --cdw11=0x804 --write --input-file=/tmp/value --data-len=4 --cdw10=1
    # A key of three bytes.
    status 303 pass ssd 0xb3 --cdw12=0x727375 --cdw11=2
}
step ssd-stored ssd_stored

iterated() {
    # Open, for keys alone (1 and 4), of those that begin with "usr"; a key beside them begins otherwise.
    says 00000000 pass ssd 0x81 --cdw12=0x2d796e61 --cdw11=3 --write --input-file=/tmp/value --data-len=4 --cdw10=1
    says 00000001 pass ssd 0xb1 --cdw11=0x500 --cdw12=0x00727375 --cdw13=0x00ffffff
    # There is room for two keys; the last one comes with the end.
    pass ssd 0xb2 --cdw11=1 --read --data-len=28 --cdw10=7 --raw-binary >/tmp/iterated
    status 393 pass ssd 0xb2 --cdw11=1 --read --data-len=28 --cdw10=7
    pass ssd 0xb1 --cdw11=0x201
    status 390 pass ssd 0xb2 --cdw11=1 --read --data-len=28 --cdw10=7
}
step iterated iterated
tell iterated bytes /tmp/iterated 28

# part TEXT SIZE: the text, with zeros up to the size.
part() {
    printf %s "$1" >/tmp/part
    truncate -s "$2" /tmp/part
    cat /tmp/part
}
# attributes OPCODE KEY VALUE: 16 bytes; the sizes of the key and of the value are less than 8.
attributes() {
    printf "\\$1\\$2\\0\\0\\$3\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
}
# Two stores and a delete (81h, 81h, A0h) in one command.
compound() {
    {
        {
            attributes 201 5 6
            attributes 201 5 7
            attributes 240 5 0
        } >/tmp/head
        truncate -s 512 /tmp/head
        cat /tmp/head
        part '' 64
        part usr-4 64
        part fourth 64
        part '' 64
        part usr-5 64
        part fifth.. 64
        part '' 64
        part usr-1 64
    } >/tmp/compound
    [ "$(stat -c %s /tmp/compound)" = 1024 ]
    says 00000000 pass ssd 0x85 --cdw11=0x03000000 --write --input-file=/tmp/compound --data-len=1024 --cdw10=256
    [ "$(pass ssd 0x90 $(key 4) --cdw11=0x20004 --read --data-len=6 --cdw10=2 --raw-binary)" = fourth ]
    [ "$(pass ssd 0x90 $(key 5) --cdw11=0x10004 --read --data-len=7 --cdw10=2 --raw-binary)" = fifth.. ]
    status 310 pass ssd 0xb3 $(key 1) --cdw11=4
    # Again: the third of them finds no key.
    status 310 pass ssd 0x85 --cdw11=0x03000000 --write --input-file=/tmp/compound --data-len=1024 --cdw10=256
}
step compound compound

# As blocks the drive is there and has none to write.
blocks() {
    nvme id-ns /dev/ssd -n 1
    dd if=/dev/$(readlink /dev/ssd | sed s/ng/nvme/) of=/tmp/zeros bs=4k count=4
    tr -d '\0' </tmp/zeros | wc -c | grep -x 0
}
step blocks blocks
tell complaints sh -c 'dmesg | grep -E "nvme.*(timeout|abort|reset)" || echo none'
