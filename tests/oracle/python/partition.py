"""Conventional flash: lines, credits and collection of one partition [Shape, Credits and collection]."""

from collections import OrderedDict, deque
from fractions import Fraction

from dies import Channel, Die
from machine import PAGE, ceil_div, extra, require, time_of

MAPPED = 1024  # logical pages of a page of the map


class Line:
    """A block of the same index on every die of a partition."""

    def __init__(self, index, pages):
        self.index = index
        self.owner = [None] * pages  # the logical page that is valid in each page
        self.valid = 0
        self.erases = 0
        self.taken = 0  # pages, in the order in which they are written
        self.filled = None  # how many pages had been placed in the partition when it became full


class Open:
    """An open line: the user line or the collection line."""

    def __init__(self):
        self.line = None
        self.held = 0  # bytes of the buffer that the wordline has which is not full yet
        self.sensed = 0  # the greatest end of the senses of that wordline's pages


class Partition:
    def __init__(self, p, chance, machine):
        self.parameters = p
        channels = p["channels"] // p["partitions"]
        own = [Channel(p, machine) for _ in range(channels)]
        count = channels * p["dies_per_channel"]
        self.dies = [Die(p, own[i % channels], chance) for i in range(count)]
        self.wordline = p["oneshot_bytes"] // PAGE  # w
        self.flash_page = p["flash_page_bytes"] // PAGE
        self.block = p["block_bytes"] // PAGE
        self.ppl = count * self.block
        logical = ceil_div(p["size_bytes"], PAGE * p["partitions"])
        lines = ceil_div(logical * (1000 + p["overprovisioning_permille"]), 1000 * self.ppl)
        require(lines >= 64, "fewer than 64 lines")
        self.logical = logical
        self.lines = [Line(i, self.ppl) for i in range(lines)]
        self.free = list(self.lines)  # the one that has been free for longest first
        self.full = []  # the one filled first, first
        self.map = {}  # logical page: (line, page)
        self.user = Open()
        self.collection = Open()
        self.placed = 0
        self.cached = deque()  # the dies of the wordlines in the cache, the oldest first
        self.folded = 0  # when the last fold ended
        self.folded_pages = 0
        self.map_cached = OrderedDict()  # the one used last, last
        self.map_misses = 0
        self.background_ended = 0  # when the last erase of the last collection in the background ends
        self.credits = self.ppl
        self.refill = self.ppl
        self.host_pages = self.collected_pages = self.lines_erased = 0
        self.check()

    def check(self):
        """What must hold of parameters that may change."""
        p, lines = self.parameters, len(self.lines)
        require(lines * self.ppl - self.logical >= (p["collect_below"] + 3) * self.ppl, "not enough spare lines")
        most = lines - ceil_div(self.logical, self.ppl) - 3
        require(extra(p, "background_below") <= most, "more lines kept free than can be")
        require(extra(p, "slc_cache_bytes") == 0 or self.cache_wordlines() >= 1, "a cache of a wordline")

    def changed(self):
        self.check()
        for die in self.dies:
            die.changed()
        if self.cache_wordlines() == 0:
            self.cached.clear()
            self.folded = 0
        self.forget_map()

    def forget_map(self):
        """What was not used for longest, of more than there is room for."""
        while len(self.map_cached) > extra(self.parameters, "map_cache_pages"):
            self.map_cached.popitem(last=False)

    def cache_wordlines(self):
        p = self.parameters
        return extra(p, "slc_cache_bytes") // (p["partitions"] * p["oneshot_bytes"])

    def where(self, page):
        """The die and the block page of a page of a line."""
        wordline, j = divmod(page, self.wordline)
        row, die = divmod(wordline, len(self.dies))
        return die, row * self.wordline + j

    def drop(self, logical):
        """The place of a page becomes invalid."""
        if logical in self.map:
            line, page = self.map.pop(logical)
            line.owner[page] = None
            line.valid -= 1

    def place(self, opened, logical):
        """A page takes the next one of an open line. The die of the wordline that this fills, or None."""
        if opened.line is None:
            opened.line = self.free.pop(0)
            assert opened.line.taken == 0
        line, page = opened.line, opened.line.taken
        self.drop(logical)
        line.owner[page] = logical
        line.valid += 1
        line.taken += 1
        self.map[logical] = (line, page)
        self.placed += 1
        if line.taken == self.ppl:
            line.filled = self.placed
            self.full.append(line)
            opened.line = None
        return self.dies[self.where(page)[0]] if line.taken % self.wordline == 0 else None

    def pay(self, t):
        """Before a page of a host is placed [Credits and collection]."""
        if self.credits <= 0:
            if len(self.free) <= self.parameters["collect_below"]:
                victim = self.victim()
                if victim is not None:
                    self.refill = self.ppl - victim.valid
                    self.collect(t, victim)
            self.credits += self.refill
        self.credits -= 1

    def victim(self):
        policy = self.parameters["policy"]
        candidates = [line for line in self.full if line.valid < self.ppl]
        if not candidates or policy == "fifo":
            return candidates[0] if candidates else None
        # min and max give the first of several, and the first is the one filled first.
        if policy == "greedy":
            return min(candidates, key=lambda line: line.valid)
        return max(candidates, key=self.benefit)

    def benefit(self, line):
        """Lines without a valid page come before all."""
        if line.valid == 0:
            return (1, Fraction(0))
        age = self.placed - line.filled
        return (0, Fraction((self.ppl - line.valid) * age, 2 * line.valid))

    def wants_background(self):
        return len(self.free) < extra(self.parameters, "background_below") and self.victim() is not None

    def collect(self, t, victim):
        """Gives when the last erase ends."""
        self.collected_pages += victim.valid
        self.lines_erased += 1
        victim.erases += 1
        self.full.remove(victim)
        for flash_page in range(self.block // self.flash_page):
            for die in range(len(self.dies)):
                self.move(t, victim, die, flash_page)
        assert victim.valid == 0
        ends = [time_of(die.erase(t)) for die in self.dies]
        victim.taken = 0
        victim.filled = None
        self.free.append(victim)
        return max(ends)

    def program(self, die, t):
        """Of a wordline of the user line."""
        in_cache = len(self.cached) < self.cache_wordlines()
        if in_cache:
            self.cached.append(die)
        return die.program(t, in_cache=in_cache)

    def fold(self, t):
        """Takes the oldest wordline out of the cache."""
        self.folded = time_of(self.cached.popleft().fold(t))
        self.folded_pages += self.wordline

    def ask_map(self, t, logical, for_read):
        """Asks for the pages of the map that these logical pages are in. Gives when all are there."""
        there, is_on = t, extra(self.parameters, "map_cache_pages") > 0
        for page in sorted({each // MAPPED for each in logical}) if is_on else []:
            if page not in self.map_cached:
                self.map_misses += 1
                die = self.dies[page % len(self.dies)]
                there = max(there, die.sense(t, 0, 1, for_read=for_read))
                self.map_cached[page] = None
            self.map_cached.move_to_end(page)
            self.forget_map()
        return there

    def move(self, t, victim, die, flash_page):
        """Moves the valid pages of one flash page to the collection line."""
        first = flash_page * self.flash_page  # of the block's pages
        row, j = divmod(first, self.wordline)
        start = (row * len(self.dies) + die) * self.wordline + j  # of the line's
        owners = [o for o in victim.owner[start : start + self.flash_page] if o is not None]
        if not owners:
            return
        end = self.dies[die].sense(t, flash_page, len(owners))
        for logical in owners:
            self.collection.sensed = max(self.collection.sensed, end)
            filled = self.place(self.collection, logical)
            if filled is not None:
                filled.program(self.collection.sensed)
                self.collection.sensed = 0
