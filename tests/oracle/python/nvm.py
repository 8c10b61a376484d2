"""Low-latency non-volatile memory [NVM]."""

from fractions import Fraction
from math import ceil

from machine import PAGE, SECOND, Machine, require


class Pipeline:
    """The server of one direction. `share` units divide bandwidth and rate between them."""

    def __init__(self, parameters, share=1):
        self.free = Fraction(0)
        self.set(parameters, share)

    def set(self, parameters, share=1):
        self.latency = parameters["latency_ns"]
        self.bandwidth = Fraction(parameters["bandwidth_bytes_per_s"], share)
        self.rate = Fraction(parameters["rate_per_s"], share)
        self.free = Fraction(ceil(self.free))
        require(self.latency >= self.cost(PAGE), "a latency below the cost of a page")

    def cost(self, length):
        """In nanoseconds, exactly; what is 0 does not limit."""
        by_length = length * SECOND / self.bandwidth if self.bandwidth else Fraction(0)
        by_rate = SECOND / self.rate if self.rate else Fraction(0)
        return max(by_length, by_rate)

    def take(self, t, length, latency=None):
        """When a command of that length is done; `latency` in place of the direction's own."""
        self.free = max(self.free, t) + self.cost(length)
        if latency is None:
            return ceil(self.free + (self.latency - self.cost(PAGE)))
        return ceil(self.free + max(0, latency - self.cost(PAGE)))


class Nvm(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        self.read = Pipeline(parameters["read"])
        self.write = Pipeline(parameters["write"])
        self.last_write = 0  # W

    def start(self, t, number, op):
        if op["op"] == "read":
            done = self.read.take(t, op["len"])
        elif op["op"] in ("write", "deallocate"):
            done = self.write.take(t, op["len"] if op["op"] == "write" else 0)
            self.last_write = max(self.last_write, done)
        elif op["op"] == "flush":
            done = max(t, self.last_write)
        else:
            done = t
        self.finish(done, number)
        return True

    def changed(self, _):
        self.read.set(self.parameters["read"])
        self.write.set(self.parameters["write"])

    def counters(self):
        return {}
