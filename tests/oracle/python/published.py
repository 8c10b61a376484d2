"""The published program's rules [arithmetic = "code"]: what stands in place of servers and pipelines."""

from machine import PAGE, SECOND, Machine, ceil_div, require

SLOT = 4_000  # nanoseconds
HORIZON = 98_304  # slots
CREDIT = 128  # bytes


class Slots:
    """A link or a channel: slots of time, of each of which credits are taken."""

    def __init__(self, parameters, bandwidth, firmware, machine):
        self.parameters, self.names, self.machine = parameters, (bandwidth, firmware), machine
        self.taken = {}  # credits, by slot
        self.credits_of_slot()

    def bandwidth(self):
        return self.parameters[self.names[0]]

    def firmware(self):
        return self.parameters[self.names[1]] if self.names[1] else 0

    def credits_of_slot(self):
        """C."""
        if not self.bandwidth():
            return None
        credits = self.bandwidth() * SLOT // SECOND // CREDIT
        require(1 <= credits <= 255, "a bandwidth of 1 to 255 credits in a slot")
        return credits

    def credit_ns(self):
        """x."""
        own = CREDIT * SECOND // self.bandwidth() if self.bandwidth() else 0
        return own + self.firmware() * CREDIT // PAGE

    def reserve(self, start, length):
        wanted, limit = ceil_div(length, CREDIT), self.credits_of_slot()
        if limit is None:
            return start + self.credit_ns() * wanted
        first = start // SLOT
        if first - self.machine.now // SLOT >= HORIZON:
            return start
        slot, left = first, wanted
        while left > 0:
            took = min(left, max(0, limit - self.taken.get(slot, 0)))
            self.taken[slot] = self.taken.get(slot, 0) + took
            left -= took
            if left > 0:
                slot += 1
        return start + self.credit_ns() * wanted + max(0, slot - first - wanted // limit) * SLOT


class Units:
    """The units of NVM and key-value."""

    def __init__(self, count):
        self.busy = [0] * count  # b

    def request(self, t, direction, length):
        bandwidth = direction["bandwidth_bytes_per_s"]
        time = (PAGE * SECOND + bandwidth // 2) // bandwidth if bandwidth else 1
        end = max(t, self.busy[0]) + max(1, direction["latency_ns"] - time)
        for j in range(ceil_div(length, PAGE)):
            end += time
            self.busy[j % len(self.busy)] = end
        return end


class CodeNvm(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        self.units = Units(1)

    def start(self, t, number, op):
        if op["op"] in ("read", "write"):
            self.finish(self.units.request(t, self.parameters[op["op"]], op["len"]), number)
        elif op["op"] == "flush":
            self.finish(max([t] + self.units.busy), number)
        else:
            self.finish(t, number)
        return True

    def changed(self, _):
        pass

    def counters(self):
        return {}


WRITES, READS = ("store", "append"), ("retrieve",)


class CodeKv(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        require(parameters["units"] >= 1, "no unit")
        self.units = Units(parameters["units"])

    def start(self, t, number, op):
        if op["op"] == "kv":
            self.finish(self.run(t, [op]), number)
        elif op["op"] == "compound" and self.parameters["compound"] == "in_order":
            for part in op["parts"]:
                t = self.run(t, [part])
            self.finish(t, number)
        elif op["op"] == "compound":
            self.finish(self.run(t, op["parts"]), number)
        elif op["op"] == "flush":
            self.finish(max([t] + self.units.busy), number)
        else:
            self.finish(t, number)
        return True

    def run(self, t, parts):
        """All of them as one request."""
        timed = [part for part in parts if part["kind"] in WRITES + READS]
        if not timed:
            return t
        direction = "write" if any(part["kind"] in WRITES for part in timed) else "read"
        return self.units.request(t, self.parameters[direction], sum(part["len"] for part in timed))

    def changed(self, _):
        pass

    def counters(self):
        return {}
