"""Mechanisms that are off by default: times that are left to chance [Optional, each off by default]."""

from math import isqrt

MASK = 2**64 - 1


def roots():
    """The 2nd, 4th, 8th ... root of 2, times 2^30, to the nearest, for the bits 31 to 8."""
    value, found = 2 << 200, {}
    for bit in range(31, 7, -1):
        value = isqrt(value << 200)
        found[bit] = ((value >> 169) + 1) >> 1
    return found


ROOTS = roots()


class Chance:
    def __init__(self, parameters):
        extras = parameters.get("extras", {})
        self.state = extras.get("seed", 0)
        self.retry = extras.get("read_retry_ppm", 0)
        self.sigma = {
            what: extras.get(f"{what}_jitter_permille", 0) for what in ("read", "program", "erase")
        }

    def number(self):
        """SplitMix64."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def spread(self, what, time):
        sigma = self.sigma[what]
        if sigma == 0:
            return time
        numbers = [self.number() for _ in range(3)]
        total = sum((number >> shift) & 0xFFFF for number in numbers for shift in (0, 16, 32, 48))
        product = sigma * (total - 393210)
        x = product // 1000 if product >= 0 else -(-product // 1000)
        y = x * 6196328019 // 65536
        m = 2**30
        for bit, root in ROOTS.items():
            if y >> bit & 1:
                m = m * root // 2**30
        power = y >> 32
        return (time * m << power) // 2**30 if power >= 0 else (time * m >> -power) // 2**30

    def sense(self, time):
        """With its repeats."""
        senses = 1
        if self.retry:
            for _ in range(8):
                if (self.number() >> 32) * 10**6 >= self.retry * 2**32:
                    break
                senses += 1
        return sum(self.spread("read", time) for _ in range(senses))
