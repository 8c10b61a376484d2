# zoned: the device in slot 10h, by vhost-user-blk. unaware: the one in slot 11h, whose front end hides zones.

step zoned disk 10 zoned
# VIRTIO_BLK_F_DISCARD, WRITE_ZEROES, SECURE_ERASE and ZONED.
zoned_features() {
    [ "$(features zoned | cut -c 14,15,17,18)" = 0001 ]
}
step features zoned_features
