//! Uses of a block device of this machine by ublk, as command lines of usual programs.

/// Command lines for a disk at a path as `/dev/ublkb0`: a file system, and a load. With zones,
/// those of a zoned disk.
pub fn lines(disk: &str, is_zoned: bool) -> [String; 2] {
    let load = |name: &str, rest: &str| {
        format!(
            "fio --name={name} --filename={disk} --direct=1 --ioengine=io_uring --bs=4k --iodepth=32 --runtime=10 --time_based {rest}"
        )
    };
    if is_zoned {
        return [
            format!("mkzonefs {disk} && mount -t zonefs {disk} /mnt"),
            load("write", "--zonemode=zbd --rw=write"),
        ];
    }
    [
        format!("mkfs.ext4 {disk} && mount {disk} /mnt"),
        load("read", "--rw=randread"),
    ]
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn a_disk_gets_a_file_system_and_a_load_that_reads() {
        let [mount, load] = lines("/dev/ublkb3", false);
        assert_eq!(mount, "mkfs.ext4 /dev/ublkb3 && mount /dev/ublkb3 /mnt");
        assert!(load.contains("--filename=/dev/ublkb3 ") && load.ends_with("--rw=randread"));
    }

    #[test]
    fn a_zoned_disk_is_written_in_order() {
        let [mount, load] = lines("/dev/ublkb0", true);
        assert_eq!(
            mount,
            "mkzonefs /dev/ublkb0 && mount -t zonefs /dev/ublkb0 /mnt"
        );
        assert!(load.ends_with("--zonemode=zbd --rw=write"), "{load}");
    }
}
