# What nbdsh does with an export of random bytes: many requests at once, at any byte, through two
# connections; questions before an export is chosen; and requests that break the protocol's rules.
# URI and SIZE are set before.

import errno
import os
import random

random.seed(7)

def refused(expected, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errnum == expected, f"{error} instead of {errno.errorcode[expected]}"
    else:
        raise AssertionError(f"{call.__name__}{args} was not refused")

def connected(export):
    handle = nbd.NBD()
    handle.add_meta_context("base:allocation")
    handle.connect_uri(URI.format(export))
    return handle

def finish(handle):
    while handle.aio_in_flight() > 0:
        assert handle.poll(60000) == 1, "no reply for a minute"

# Options, before an export is chosen.
asks = nbd.NBD()
asks.set_opt_mode(True)
asks.connect_uri(URI.format(""))
names = []
asks.opt_list(lambda name, description: names.append(name))
assert names == ["small", "large"], names
asks.set_export_name("nothing")
refused(errno.ENOENT, asks.opt_info)
asks.set_export_name("small")
asks.opt_info()
assert asks.get_size() == SIZE
asks.set_export_name("large")
asks.opt_go()
assert asks.pread(512, SIZE - 512) == bytes(512)
asks.shutdown()
leaves = nbd.NBD()
leaves.set_opt_mode(True)
leaves.connect_uri(URI.format(""))
leaves.opt_abort()

for export in ("small", "large"):
    first, second = connected(export), connected(export)
    assert first.get_structured_replies_negotiated()
    assert first.get_extended_headers_negotiated()
    assert first.can_meta_context("base:allocation") and first.can_multi_conn()

    # 256 writes at once of parts of blocks that meet, and as many reads in another order.
    stride, places = 5000, list(range(256))
    data = [bytearray(os.urandom(stride)) for _ in places]
    random.shuffle(places)
    for at in places:
        buffer = nbd.Buffer.from_bytearray(data[at])
        first.aio_pwrite(buffer, 3 + at * stride, lambda error: 1 if error.value == 0 else os._exit(9))
    finish(first)
    first.flush()
    buffers = {at: nbd.Buffer(stride) for at in places}
    random.shuffle(places)
    for at in places:
        second.aio_pread(buffers[at], 3 + at * stride, lambda error: 1 if error.value == 0 else os._exit(9))
    finish(second)
    for at in places:
        assert buffers[at].to_bytearray() == data[at], f"{export}: other bytes at {at}"

    # What is trimmed is a hole, as every extent says; what says that it is zero reads as zeros.
    first.zero(1 << 20, 4 << 20)
    first.trim(2 << 20, 8 << 20)
    extents = []
    first.block_status_64(SIZE, 0, lambda context, at, entries, error: extents.extend(entries))
    at = 0
    for length, state in extents:
        if state & nbd.STATE_ZERO:
            piece = min(length, 1 << 20)
            assert first.pread(piece, at) == bytes(piece), f"{export}: extent at {at}"
        at += length
    assert 0 < at <= SIZE
    assert first.pread(1 << 20, 4 << 20) == bytes(1 << 20)

    # Requests that libnbd would not send. The connection goes on.
    first.set_strict_mode(0)
    refused(errno.EINVAL, first.pread, 4096, SIZE - 1)
    refused(errno.EINVAL, first.pread, 4096, (1 << 63) - 4096)
    refused(errno.ENOSPC, first.pwrite, bytes(4096), SIZE - 1)
    refused(errno.EINVAL, first.trim, 4096, SIZE)
    refused(errno.EINVAL, first.pwrite, b"x", 0, 1 << 6)
    refused(errno.EINVAL, first.block_status, 4096, SIZE, lambda *all: 0)
    assert first.pread(stride, 3) == data[0]
    for handle in (first, second):
        handle.shutdown()
