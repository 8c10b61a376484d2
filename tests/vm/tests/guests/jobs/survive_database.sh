# root: 320 MiB. Two databases commit in an xfs file system while the server's workers die: one with a
# write-ahead log, one with a rollback journal.

step root named 1 root
format() {
    modprobe xfs
    mkfs.xfs -q /dev/root
    mount -t xfs /dev/root /mnt
}
step format format
# commits NAME: transactions of three rows each. The database says the number of a transaction when
# its commit has returned, and the file /tmp/NAME has those numbers.
commits() {
    transaction=0
    echo "PRAGMA journal_mode = $1;"
    echo "PRAGMA synchronous = FULL;"
    echo 'CREATE TABLE entries (number INTEGER, part INTEGER, body TEXT, PRIMARY KEY (number, part));'
    until [ -e /tmp/stop ]; do
        transaction=$((transaction + 1))
        echo 'BEGIN;'
        for part in 1 2 3; do
            echo "INSERT INTO entries VALUES ($transaction, $part, printf('%0*d', 1000 + $transaction % 3000, $transaction * $part));"
        done
        # rows change and go, too
        echo "UPDATE entries SET body = body || 'x' WHERE number = $transaction - 5 AND part = 1;"
        echo "DELETE FROM entries WHERE number = $transaction - 5 AND part = 3;"
        echo 'COMMIT;'
        echo "SELECT 'commit', $transaction;"
    done
}
# database NAME
database() {
    commits "$1" | sqlite3 -bail "/mnt/$1.db" >/tmp/$1
}
load() {
    in_background wal database wal
    in_background delete database delete
    more_writes root 50
}
step load load
say loaded
outlives_deaths root
step wal done_in_background wal database wal
step delete done_in_background delete database delete
# What is read comes from the drive, and not from memory.
again() {
    umount /mnt
    mount -t xfs /dev/root /mnt
}
step again again
last() {
    sed -n 's/^commit|//p' /tmp/$1 | tail -n 1
}
# holds NAME: it is consistent, and has each transaction that it said was committed, whole.
holds() {
    holds_last=$(last "$1")
    [ "$holds_last" -gt 0 ]
    holds_expected="ok
$holds_last
0"
    holds_found=$(sqlite3 "/mnt/$1.db" "
        PRAGMA integrity_check;
        SELECT count(DISTINCT number) FROM entries;
        SELECT count(*) FROM (SELECT number, count(*) AS parts, sum(body = printf('%0*d', 1000 + number % 3000, number * part)
            || iif(part = 1 AND number <= $holds_last - 5, 'x', '')) AS good FROM entries GROUP BY number)
            WHERE parts != iif(number <= $holds_last - 5, 2, 3) OR good != parts;")
    echo "$holds_found"
    [ "$holds_found" = "$holds_expected" ]
}
step holds-wal holds wal
step holds-delete holds delete
step unmount umount /mnt
step check xfs_repair -n /dev/root
tell commits sh -c 'cat /tmp/wal /tmp/delete | grep -c "^commit|"'
step quiet no_complaints
