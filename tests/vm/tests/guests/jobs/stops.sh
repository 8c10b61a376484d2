# Drives of a server each, all under load until their servers stop.

drives() {
    [ "$(ls -d /dev/nvme*n1 | wc -l)" = 10 ]
}
step drives eventually drives
load() {
    for drive in /dev/nvme*n1; do
        fio --filename=$drive --direct=1 --ioengine=libaio --rw=randrw --bs=4k --iodepth=8 --time_based \
            --runtime=1000 --name=load --output=/dev/null --eta=never &
    done
    sleep 3
}
step load load
say loaded
await end
say alive
sleep 1000
