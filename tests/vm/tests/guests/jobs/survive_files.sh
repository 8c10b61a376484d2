# root: 320 MiB. Files are written and flushed in an ext4 file system while the server's workers
# die.

step root named 1 root
format() {
    mkfs.ext4 -q /dev/root
    mount -t ext4 /dev/root /mnt
    mkdir /mnt/a /mnt/b /tmp/a /tmp/b
}
step format format
# write FOLDER: files of 256 KiB, 40 at most at a time, and their checksums.
write() {
    written=0
    until [ -e /tmp/stop ]; do
        name=$((written % 40))
        rm -f "/mnt/$1/$name"
        head -c 262144 /dev/urandom >/tmp/$1/content
        dd if=/tmp/$1/content of="/mnt/$1/$name" bs=16k conv=fsync
        (cd /tmp/$1 && sha256sum content | sed "s/content/$name/" >"sum-$name")
        written=$((written + 1))
        echo $written >/tmp/$1/written
        [ $((written % 10)) != 0 ] || whole "$1"
    done
}
# whole FOLDER: reads its files back, from the drive and not from memory.
whole() {
    echo 3 >/proc/sys/vm/drop_caches
    (cd "/mnt/$1" && cat /tmp/$1/sum-* | sha256sum -c)
}
load() {
    in_background a write a
    in_background b write b
    more_writes root 50
}
step load load
say loaded
outlives_deaths root
step a done_in_background a write a
step b done_in_background b write b
step whole-a whole a
step whole-b whole b
step unmount umount /mnt
step fsck fsck.ext4 -fn /dev/root
tell files sh -c 'echo $(($(cat /tmp/a/written) + $(cat /tmp/b/written)))'
step quiet no_complaints
