"""Conventional flash: reads, writes and the write buffer [Flash]."""

from chance import Chance
from dies import Link, buffered_at, check_shape
from machine import PAGE, Machine, ceil_div, extra, is_code, latest, pages_touched, require
from partition import Partition

FOLD, COLLECT = 0, 1  # what a partition does by itself, in the order in which it does them
BINS = 16  # of the histogram of valid pages in full lines


class Flash(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        p = parameters
        count = p["partitions"]
        check_shape(p)
        require(count >= 1 and p["channels"] % count == 0, "channels for each partition")
        self.pages = ceil_div(p["size_bytes"], PAGE)
        self.chance = Chance(p)
        self.partitions = [Partition(p, self.chance, self) for _ in range(count)]
        self.check()
        self.arrived = 0  # when the last command was accepted
        self.link = Link(p, self)
        self.used = 0

    def check(self):
        """What must hold of parameters that may change."""
        p = self.parameters
        require(p["collect_below"] >= 2, "two lines that stay free")
        require(p["buffer_bytes"] >= p["partitions"] * p["oneshot_bytes"], "a buffer of a wordline for each")

    def changed(self, before):
        self.check()
        for partition in self.partitions:
            partition.changed()
        self.chance.changed(before)

    def start(self, t, number, op):
        p = self.parameters
        if op["op"] == "read":
            self.finish(self.read(t, op), number)
        elif op["op"] == "write":
            return self.write(t, number, op)
        elif op["op"] == "deallocate":
            self.deallocate(op)
            self.finish(t + p["deallocate_ns"], number)
        elif op["op"] == "flush":
            dies = [die.free for partition in self.partitions for die in partition.dies]
            self.finish(max([t] + dies), number)
        else:
            self.finish(t, number)
        return True

    def submit(self, t, op):
        number = super().submit(t, op)
        if number is not None:
            self.arrived = t
        return number

    def background(self):
        """What a partition does next, though no command asks for it, as (time, what, partition); or None."""
        times = []
        for index, partition in enumerate(self.partitions):
            if partition.cached:
                times.append((max(self.arrived + extra(self.parameters, "slc_idle_ns"), partition.folded), FOLD, index))
            if partition.wants_background():
                idle = extra(self.parameters, "background_idle_ns")
                time = max(self.arrived + idle, partition.background_ended)
                times.append((time, COLLECT, index))
        return min(times, default=None)

    def advance(self, now):
        while (background := self.background()) is not None and background[0] <= now:
            time, what, index = background
            super().advance(time)
            self.now = time
            partition = self.partitions[index]
            if what == FOLD:
                partition.fold(time)
            else:
                partition.background_ended = partition.collect(time, partition.victim())
        super().advance(now)

    def read(self, t, op):
        p, count = self.parameters, len(self.partitions)
        small = op["len"] <= PAGE * count
        t1 = t + (p["firmware_read_4k_ns"] if small else p["firmware_read_ns"])
        pages = pages_touched(op["offset"], op["len"], self.pages)
        done = [t1]
        for index, partition in enumerate(self.partitions):
            touched = [logical // count for logical in pages if logical % count == index]
            t2 = partition.ask_map(t1, touched, for_read=True)
            runs = []  # [die, line, flash page, pages] of each sense; None for a page that is not mapped
            for logical in touched:
                if logical not in partition.map:
                    runs.append(None)
                    continue
                line, page = partition.map[logical]
                die, block_page = partition.where(page)
                place = [die, line, block_page // partition.flash_page]
                if runs and runs[-1] is not None and runs[-1][:3] == place:
                    runs[-1][3] += 1
                else:
                    runs.append(place + [1])
            for run in runs:
                if run is None:
                    done.append(t2 if is_code(p) else self.link.send(t2, PAGE))
                else:
                    die = partition.dies[run[0]]
                    done.append(die.sense(t2, run[2], run[3], self.link, for_read=True))
        return max(done)

    def write(self, t, number, op):
        p, count = self.parameters, len(self.partitions)
        pages = pages_touched(op["offset"], op["len"], self.pages)
        most = p["buffer_bytes"] - count * (p["oneshot_bytes"] - PAGE)
        need = min(PAGE * len(pages), most)
        if p["buffer_bytes"] - self.used < need:
            return False
        self.used += need
        t2 = buffered_at(p, self.link, t, op["len"])
        for index, partition in enumerate(self.partitions):
            touched = [page // count for page in pages if page % count == index]
            partition.ask_map(t, touched, for_read=False)
        ends = [t2]
        for page in pages:
            partition = self.partitions[page % count]
            partition.pay(t)
            share = min(PAGE, need)
            need -= share
            user = partition.user
            user.held += share
            filled = partition.place(user, page // count)
            partition.host_pages += 1
            if filled is not None:
                ends.append(partition.program(filled, t2))
                self.give_back(ends[-1], user.held)
                user.held = 0
        assert need == 0
        early = p["early_completion"] and not op["fua"]
        self.finish(t2 if early else latest(ends), number)
        return True

    def give_back(self, moment, held):
        def event():
            self.used -= held

        self.at(moment, event)

    def deallocate(self, op):
        first, end = ceil_div(op["offset"], PAGE), (op["offset"] + op["len"]) // PAGE
        for page in range(first, min(end, self.pages)):
            count = len(self.partitions)
            self.partitions[page % count].drop(page // count)

    def counters(self):
        """All partitions together; `free_lines` is of the one that has fewest."""
        lines = [line for partition in self.partitions for line in partition.lines]
        histogram = [0] * BINS
        for partition in self.partitions:
            for line in partition.full:
                histogram[min(line.valid * BINS // partition.ppl, BINS - 1)] += 1
        return {
            "host_pages": sum(partition.host_pages for partition in self.partitions),
            "collected_pages": sum(partition.collected_pages for partition in self.partitions),
            "erased_lines": sum(partition.lines_erased for partition in self.partitions),
            "free_lines": min(len(partition.free) for partition in self.partitions),
            "erases_least": min(line.erases for line in lines),
            "erases_most": max(line.erases for line in lines),
            "lines": len(lines),
            "folded_pages": sum(partition.folded_pages for partition in self.partitions),
            "map_misses": sum(partition.map_misses for partition in self.partitions),
            "valid_histogram": histogram,
            "buffer_used_bytes": self.used,
        }
