"""Dies, channels and the link [Operations of a die], for conventional and zoned flash alike."""

from machine import PAGE, Intervals, ceil_div, duration, extra, is_code, require
from published import Slots


class Link:
    """Full duplex: a server each way."""

    def __init__(self, parameters, machine):
        self.parameters = parameters
        if is_code(parameters):
            times = lambda: Slots(parameters, "link_bandwidth_bytes_per_s", None, machine)
        else:
            times = Intervals
        self.to_host, self.from_host = times(), times()

    def send(self, start, length):
        return self._over(self.to_host, start, length)

    def fetch(self, start, length):
        return self._over(self.from_host, start, length)

    def _over(self, times, start, length):
        if is_code(self.parameters):
            return times.reserve(start, length)
        return times.reserve(start, duration(length, self.parameters["link_bandwidth_bytes_per_s"]))


class Channel:
    def __init__(self, parameters, machine):
        self.parameters = parameters
        if is_code(parameters):
            names = ("channel_bandwidth_bytes_per_s", "firmware_channel_transfer_ns")
            self.times = Slots(parameters, *names, machine)
        else:
            self.times = Intervals()

    def transfer(self, start, length):
        p = self.parameters
        if is_code(p):
            return self.times.reserve(start, length)
        firmware = ceil_div(length, PAGE) * p["firmware_channel_transfer_ns"]
        return self.times.reserve(start, duration(length, p["channel_bandwidth_bytes_per_s"]) + firmware)


class Operation:
    """A program or an erase of a die. Its end becomes later where it is suspended [Suspension]."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end  # x, end
        self.suspended = 0  # how often
        self.sensed = None  # y: the end of the last sense in its suspension

    def __call__(self):
        """As a moment."""
        return self.end


class Die:
    def __init__(self, parameters, channel, chance):
        self.parameters = parameters
        self.channel = channel
        self.chance = chance  # the drive's
        self.planes = [0] * extra(parameters, "planes", 1)  # A of each
        self.last = None  # the last operation

    @property
    def free(self):
        """A."""
        return max(self.planes)

    def sense(self, t, flash_page, pages, link=None, for_read=False):
        """Of one flash page, by its index in the block. With a link the data goes on to the host."""
        p = self.parameters
        cell = flash_page // len(self.planes) % p["cell_bits"]
        plane = flash_page % len(self.planes)
        time = self.chance.sense((p["read_4k_ns"] if pages == 1 else p["read_ns"])[cell])
        suspended = self.last if for_read and self.is_suspendable(t) else None
        if suspended is None:
            begin = max(self.planes[plane], t)
        elif self.is_suspended(t):
            begin = max(t, suspended.sensed)
        else:
            begin = t + extra(p, "suspend_ns")
        end = begin + time
        sent = [end]
        left = pages * PAGE
        while left > 0:
            chunk = min(left, p["max_channel_transfer_bytes"])
            end = self.channel.transfer(end, chunk)
            if link is not None:
                sent.append(link.send(end, chunk))
            left -= chunk
        if suspended is None:
            self.planes[plane] = end
        else:
            self.put_off(suspended, t, end)
        return max(sent) if link is not None else end

    def is_suspended(self, t):
        return self.last.suspended > 0 and t < self.last.sensed + extra(self.parameters, "resume_ns")

    def is_suspendable(self, t):
        """Whether a sense at that time comes before the end of the last operation."""
        last, limit = self.last, extra(self.parameters, "suspend_limit")
        if limit == 0 or last is None or self.free > last.end:
            return False
        if not last.begin <= t < last.end:
            return False
        return self.is_suspended(t) or last.suspended < limit

    def put_off(self, operation, t, sensed):
        """A sense at `t` in its suspension ended at `sensed`."""
        if self.is_suspended(t):
            operation.end += sensed - operation.sensed
        else:
            operation.end += sensed - t + extra(self.parameters, "resume_ns")
            operation.suspended += 1
        operation.sensed = sensed
        self.planes = [operation.end] * len(self.planes)

    def operate(self, begin, time):
        """The moment of its end, which is a time where it cannot be suspended."""
        operation = Operation(begin, begin + time)
        self.planes = [operation.end] * len(self.planes)
        if extra(self.parameters, "suspend_limit"):
            self.last = operation
            return operation
        self.last = None
        return operation.end

    def changed(self):
        if extra(self.parameters, "suspend_limit") == 0:
            self.last = None

    def program(self, t, with_data=True, in_cache=False):
        begin = max(self.free, t)
        if with_data:
            begin = self.channel.transfer(begin, self.parameters["oneshot_bytes"])
        p = self.parameters
        time = extra(p, "slc_program_ns") if in_cache else p["program_ns"]
        return self.operate(begin, self.chance.spread("program", time))

    def fold(self, t):
        begin = max(self.free, t) + extra(self.parameters, "slc_read_ns")
        return self.operate(begin, self.chance.spread("program", self.parameters["program_ns"]))

    def erase(self, t):
        return self.operate(max(self.free, t), self.chance.spread("erase", self.parameters["erase_ns"]))


def check_shape(p):
    """What [Shape] asks of any flash."""
    require(p["channels"] >= 1 and p["dies_per_channel"] >= 1, "no die")
    for part, whole in (("oneshot_bytes", "block_bytes"), ("flash_page_bytes", "oneshot_bytes")):
        require(p[part] > 0 and p[whole] > 0 and p[whole] % p[part] == 0, f"{whole} of whole {part}")
    require(p["flash_page_bytes"] % PAGE == 0, "flash pages of whole pages")
    planes = extra(p, "planes", 1)
    require(planes >= 1 and p["oneshot_bytes"] % (planes * p["flash_page_bytes"]) == 0, "a wordline on all planes")
    require(1 <= p["cell_bits"] <= 4, "1 to 4 bits in a cell")
    require(p["max_channel_transfer_bytes"] >= PAGE, "transfers of a page at least")


def buffered_at(p, link, t, length):
    """t2 of a write: when its data is in the buffer [Write, 1]."""
    t1 = t + p["buffer_base_ns"] + ceil_div(length, PAGE) * p["buffer_per_page_ns"]
    return link.fetch(t1, length)
