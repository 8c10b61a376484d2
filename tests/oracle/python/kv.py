"""Key-value [Key-value]."""

from machine import Machine, require
from nvm import Pipeline


def fnv1a32(key):
    value = 2166136261
    for byte in key:
        value = ((value ^ byte) * 16777619) % 2**32
    return value


class Unit:
    def __init__(self, parameters):
        self.read = Pipeline(parameters["read"], parameters["units"])
        self.write = Pipeline(parameters["write"], parameters["units"])

    def set(self, parameters):
        self.read.set(parameters["read"], parameters["units"])
        self.write.set(parameters["write"], parameters["units"])


class Kv(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        require(parameters["units"] >= 1, "no unit")
        self.units = [Unit(parameters) for _ in range(parameters["units"])]
        self.last_write = 0  # W

    def start(self, t, number, op):
        if op["op"] == "kv":
            self.finish(self.run(t, op), number)
        elif op["op"] == "compound" and self.parameters["compound"] == "in_order":
            self.run_in_order(t, number, op["parts"])
        elif op["op"] == "compound":
            self.finish(max([t] + [self.run(t, part) for part in op["parts"]]), number)
        elif op["op"] == "flush":
            self.finish(max(t, self.last_write), number)
        else:
            self.finish(t, number)
        return True

    def run_in_order(self, t, number, parts):
        """Starts the first part now, and the others when it is done."""
        if not parts:
            self.finish(t, number)
            return
        done = self.run(t, parts[0])
        if len(parts) == 1:
            self.finish(done, number)
        else:
            self.at(done, lambda: self.run_in_order(done, number, parts[1:]), rank=number)

    def run(self, t, part):
        """When one operation that starts at `t` is done."""
        kind, length = part["kind"], part["len"]
        if kind == "list":
            return self.units[0].read.take(t, length, self.parameters["list_latency_ns"])
        unit = self.units[fnv1a32(bytes.fromhex(part["key"])) % len(self.units)]
        if kind == "retrieve":
            return unit.read.take(t, length)
        if kind == "exist":
            return unit.read.take(t, 0, self.parameters["exist_latency_ns"])
        if kind == "delete":
            done = unit.write.take(t, 0, self.parameters["delete_latency_ns"])
        else:
            require(kind in ("store", "append"), f"no kind {kind}")
            done = unit.write.take(t, length)
        self.last_write = max(self.last_write, done)
        return done

    def changed(self, _):
        for unit in self.units:
            unit.set(self.parameters)

    def counters(self):
        return {}
