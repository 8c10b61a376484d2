# A guest whose memory the server cannot reach: its driver gives up, and the guest goes on.

gives_up() {
    gives_up_left=900
    until dmesg | grep -E 'nvme nvme0: .*(aborting initiali[sz]ation|[Dd]isabling|probe failure|Removing)'; do
        [ $gives_up_left -gt 0 ] || return 1
        gives_up_left=$((gives_up_left - 1))
        usleep 100000
    done
}
step gives-up gives_up
tell log sh -c 'dmesg | grep nvme'
step no-disk sh -c '! ls /dev/nvme0n*'
