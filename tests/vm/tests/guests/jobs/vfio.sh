# Functions of the jobs about VFIO.

# vfio: the modules. QEMU's IOMMU does not remap interrupts here, which VFIO calls unsafe.
vfio() {
    modprobe vfio_iommu_type1 allow_unsafe_interrupts=1
    modprobe vfio-pci
    test -e /dev/vfio/vfio
}

# address NAME: the PCI address of the controller NAME.
address() {
    readlink -f "/sys/class/nvme/$1/device" | sed 's|.*/||'
}

# refused WORDS COMMAND...: the command fails, and says WORDS.
refused() {
    refused_words=$1
    shift
    if "$@" >/tmp/refused.log 2>&1; then
        echo "it was not refused: $*"
        return 1
    fi
    cat /tmp/refused.log
    grep -q "$refused_words" /tmp/refused.log
}

# loading: a program that loads $drive for a minute, as process $loading_pid, and has it when this returns.
loading() {
    nvmirage bench --target "pci:$drive" --qd 8 --time 60s --span 16MiB >/tmp/bench.log 2>&1 &
    loading_pid=$!
    loading_left=100
    until nvmirage drive ls | grep -q "nvmirage (process $loading_pid) has /dev/vfio/"; do
        [ $loading_left -gt 0 ]
        loading_left=$((loading_left - 1))
        usleep 100000
    done
}
