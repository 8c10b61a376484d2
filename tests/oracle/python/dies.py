"""Dies, channels and the link [Operations of a die], for conventional and zoned flash alike."""

from machine import PAGE, Intervals, ceil_div, duration, require


class Link:
    """Full duplex: a server each way."""

    def __init__(self, bandwidth):
        self.bandwidth = bandwidth
        self.to_host = Intervals()
        self.from_host = Intervals()

    def send(self, start, length):
        return self.to_host.reserve(start, duration(length, self.bandwidth))

    def fetch(self, start, length):
        return self.from_host.reserve(start, duration(length, self.bandwidth))


class Channel:
    def __init__(self, parameters):
        self.bandwidth = parameters["channel_bandwidth_bytes_per_s"]
        self.firmware = parameters["firmware_channel_transfer_ns"]
        self.times = Intervals()

    def transfer(self, start, length):
        return self.times.reserve(
            start, duration(length, self.bandwidth) + ceil_div(length, PAGE) * self.firmware
        )


class Die:
    def __init__(self, parameters, channel, chance):
        self.parameters = parameters
        self.channel = channel
        self.chance = chance  # the drive's
        self.free = 0  # A

    def sense(self, t, flash_page, pages, link=None):
        """Of one flash page, by its index in the block. With a link the data goes on to the host."""
        p = self.parameters
        cell = flash_page % p["cell_bits"]
        time = p["read_4k_ns"] if pages == 1 else p["read_ns"]
        end = max(self.free, t) + self.chance.sense(time[cell])
        sent = [end]
        left = pages * PAGE
        while left > 0:
            chunk = min(left, p["max_channel_transfer_bytes"])
            end = self.channel.transfer(end, chunk)
            if link is not None:
                sent.append(link.send(end, chunk))
            left -= chunk
        self.free = end
        return max(sent) if link is not None else end

    def program(self, t, with_data=True):
        start = max(self.free, t)
        if with_data:
            start = self.channel.transfer(start, self.parameters["oneshot_bytes"])
        self.free = start + self.chance.spread("program", self.parameters["program_ns"])
        return self.free

    def erase(self, t):
        self.free = max(self.free, t) + self.chance.spread("erase", self.parameters["erase_ns"])
        return self.free


def check_shape(p):
    """What [Shape] asks of any flash."""
    require(p["channels"] >= 1 and p["dies_per_channel"] >= 1, "no die")
    for part, whole in (("oneshot_bytes", "block_bytes"), ("flash_page_bytes", "oneshot_bytes")):
        require(p[part] > 0 and p[whole] > 0 and p[whole] % p[part] == 0, f"{whole} of whole {part}")
    require(p["flash_page_bytes"] % PAGE == 0, "flash pages of whole pages")
    require(1 <= p["cell_bits"] <= 4, "1 to 4 bits in a cell")
    require(p["max_channel_transfer_bytes"] >= PAGE, "transfers of a page at least")


def buffered_at(p, link, t, length):
    """t2 of a write: when its data is in the buffer [Write, 1]."""
    t1 = t + p["buffer_base_ns"] + ceil_div(length, PAGE) * p["buffer_per_page_ns"]
    return link.fetch(t1, length)
