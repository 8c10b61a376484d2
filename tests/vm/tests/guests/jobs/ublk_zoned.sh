# zoned: 32 zones of 4 MiB with 3 MiB to write, 4096-byte blocks, by ublk.

config() {
    head_of_config
    cat <<END
[[media]]
name = "zones"
kind = "file"
path = "/data/zones.img"
size = "128MiB"
[media.zoned]
zone_size = "4MiB"
zone_capacity = "3MiB"
max_open = 8
max_active = 8
[[namespace]]
name = "zones"
media = "zones"
lba_size = 4096
[[controller]]
name = "zones"
namespaces = ["zones"]
listen = "ublk:"
queues = 2
END
}
config >/tmp/nvmirage.toml
step driver modprobe ublk_drv
step serve serve
step zoned called zoned ublkb0
