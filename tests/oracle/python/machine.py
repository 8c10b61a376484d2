"""What every model is made of: a list of what is due, and servers.

Written from the page "Timing models, exactly" of the book and from nothing else; sections of that
page are named in brackets. Clearness goes before speed. Times are integers, in nanoseconds;
where the page asks for exact fractions they are fractions.Fraction.
"""

import heapq
from bisect import bisect_right
from copy import deepcopy

PAGE = 4096
SECOND = 10**9


class Refused(Exception):
    """Parameters of which no drive can be made."""


def require(holds, why):
    if not holds:
        raise Refused(why)


def ceil_div(a, b):
    return -(-a // b)


def duration(length, bandwidth):
    """dur(n, B) [Common to all]. A bandwidth of 0 is one that is not given."""
    return ceil_div(length * SECOND, bandwidth) if bandwidth else 0


def pages_touched(offset, length, end):
    """The pages that an operation touches; none beyond `end`, the number of pages [Common to all]."""
    if length == 0:
        return range(0)
    return range(offset // PAGE, min((offset + length - 1) // PAGE + 1, end))


def time_of(moment):
    """A moment is a time, or a function that gives the time as far as it is known: it may yet become later."""
    return moment() if callable(moment) else moment


def latest(moments):
    """The moment at which all of these have come."""
    known = max((moment for moment in moments if not callable(moment)), default=0)
    others = [moment for moment in moments if callable(moment)]
    if not others:
        return known
    return lambda: max(known, max(time_of(moment) for moment in others))


class Intervals:
    """A server of busy intervals, in ascending order [Servers that reserve intervals].

    Intervals that touch are kept as one, which changes no answer. None is forgotten, which changes
    none either, since nothing is ever reserved from a time that is past.
    """

    def __init__(self):
        self.busy = []

    def reserve(self, start, length):
        """Gives the end of the earliest free interval of that length that begins at `start` or later."""
        if length == 0:
            return start
        index = bisect_right(self.busy, start, key=lambda interval: interval[1])
        while index < len(self.busy) and self.busy[index][0] < start + length:
            start = self.busy[index][1]
            index += 1
        end = start + length
        self.busy.insert(index, (start, end))
        self._join(index)
        self._join(index - 1)
        return end

    def _join(self, index):
        """Makes one of the interval at `index` and the next one, where they touch."""
        if 0 <= index < len(self.busy) - 1 and self.busy[index][1] == self.busy[index + 1][0]:
            self.busy[index : index + 2] = [(self.busy[index][0], self.busy[index + 1][1])]


def extra(parameters, name, default=0):
    """A parameter of a mechanism that is off by default."""
    return parameters.get("extras", {}).get(name, default)


def is_code(parameters):
    return parameters.get("arithmetic") == "code"


class Machine:
    """What is due, and what was done.

    A model has a method `start(t, number, op)` for what happens on arrival. It is False for a stall,
    and otherwise tells `finish` when the command is done, at once or when it knows. Another,
    `changed(before)`, is called when its parameters have changed. Parameters are looked at when they are
    needed, so that a change is seen at once.
    """

    def __init__(self, parameters):
        self.parameters = parameters
        self.now = 0  # when what happens now happens
        self.due = []  # a heap of (time, rank, sequence, function, moment)
        self.sequence = 0
        self.accepted = 0
        self.done = []  # (time, number of the submission)

    def at(self, moment, function, rank=-1):
        """Calls the function at a moment; of several at one time the one with the lowest rank first."""
        self.sequence += 1
        heapq.heappush(self.due, (time_of(moment), rank, self.sequence, function, moment))

    def finish(self, moment, number):
        """The submission of that number is done at that moment."""
        if callable(moment):
            self.at(moment, lambda: self.done.append((time_of(moment), number)))
        else:
            self.done.append((moment, number))
            self.at(moment, lambda: None)

    def next_event(self):
        while self.due:
            time, rank, sequence, function, moment = self.due[0]
            if time_of(moment) == time:
                return time
            heapq.heapreplace(self.due, (time_of(moment), rank, sequence, function, moment))
        return None

    def advance(self, now):
        while (time := self.next_event()) is not None and time <= now:
            function = heapq.heappop(self.due)[3]
            function()

    def submit(self, t, op):
        """The number of the submission, or None where it stalls."""
        self.advance(t)
        self.now = t
        if not self.start(t, self.accepted, op):
            return None
        self.accepted += 1
        return self.accepted - 1

    def retune(self, t, parameters):
        """Other parameters from `t` on [Changes while it works]."""
        self.advance(t)
        before = deepcopy(self.parameters)
        replace(self.parameters, parameters)
        self.changed(before)


def replace(values, others):
    """Makes one dictionary like the other, and likewise those in it, which stay the same objects."""
    for name, value in others.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            replace(values[name], value)
        else:
            values[name] = value
    for name in set(values) - set(others):
        del values[name]
