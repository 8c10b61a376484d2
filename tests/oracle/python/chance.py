"""Mechanisms that are off by default: times that are left to chance [Optional, each off by default]."""

from math import isqrt

from machine import extra

MASK = 2**64 - 1


def roots():
    """The 2nd, 4th, 8th ... root of 2, times 2^30, to the nearest, for the bits 31 to 8."""
    value, found = 2 << 200, {}
    for bit in range(31, 7, -1):
        value = isqrt(value << 200)
        found[bit] = ((value >> 169) + 1) >> 1
    return found


ROOTS = roots()


def leaves_to_chance(parameters):
    names = ("read_retry_ppm", "read_jitter_permille", "program_jitter_permille", "erase_jitter_permille")
    return any(extra(parameters, name) for name in names)


class Chance:
    def __init__(self, parameters):
        self.parameters = parameters
        self.state = extra(parameters, "seed")

    def changed(self, before):
        seed = extra(self.parameters, "seed")
        if seed != extra(before, "seed") or not leaves_to_chance(before):
            self.state = seed

    def number(self):
        """SplitMix64."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def spread(self, what, time):
        sigma = extra(self.parameters, f"{what}_jitter_permille")
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
        senses, retry = 1, extra(self.parameters, "read_retry_ppm")
        if retry:
            for _ in range(8):
                if (self.number() >> 32) * 10**6 >= retry * 2**32:
                    break
                senses += 1
        return sum(self.spread("read", time) for _ in range(senses))
