"""Zoned flash [Zones]."""

from chance import Chance
from dies import Channel, Die, Link, buffered_at, check_shape
from machine import PAGE, Machine, ceil_div, is_code, latest, require


class Zone:
    def __init__(self):
        self.fill = 0  # bytes from its start that were ever written
        self.programmed = 0  # wordlines whose program was asked for, from the first on
        self.held = 0  # bytes of the buffer that the wordline has which is not full


class Zns(Machine):
    def __init__(self, parameters):
        super().__init__(parameters)
        z, p = parameters, parameters["flash"]
        self.zoned, self.flash = z, p
        check_shape(p)
        self.size, self.capacity = z["zone_size_bytes"], z["zone_capacity_bytes"]
        self.wordline = p["oneshot_bytes"]
        require(0 < self.capacity <= self.size, "a capacity within the zone")
        require(self.capacity % self.wordline == 0, "a capacity of whole wordlines")
        require(p["size_bytes"] >= self.size, "one zone at least")
        channels = [Channel(p, self) for _ in range(p["channels"])]
        count = p["channels"] * p["dies_per_channel"]
        self.chance = Chance(p)
        self.dies = [Die(p, channels[i % len(channels)], self.chance) for i in range(count)]
        require(1 <= z["dies_per_zone"] <= count, "dies for a zone")
        self.zones = [Zone() for _ in range(p["size_bytes"] // self.size)]
        self.link = Link(p, self)
        self.shared = z["zone_buffer_bytes"] == 0
        require(self.buffer() >= self.wordline, "a buffer of a wordline")
        self.used = [0] * (1 if self.shared else len(self.zones))

    def buffer(self):
        return self.flash["buffer_bytes"] if self.shared else self.zoned["zone_buffer_bytes"]

    def changed(self, before):
        require(self.buffer() >= self.wordline, "a buffer of a wordline")
        require(self.shared == (self.zoned["zone_buffer_bytes"] == 0), "a buffer of the same kind")
        for die in self.dies:
            die.changed()
        self.chance.changed(before["flash"])

    def die(self, zone, wordline):
        """The die of a wordline of a zone, and its row there."""
        row, i = divmod(wordline, self.zoned["dies_per_zone"])
        return self.dies[(zone * self.zoned["dies_per_zone"] + i) % len(self.dies)], row

    def start(self, t, number, op):
        if op["op"] == "read":
            done = self.read(t, op["offset"], op["len"])
        elif op["op"] == "write":
            done = self.write(t, op)
        elif op["op"] == "zone":
            actions = {"reset": self.reset, "finish": self.finish_zone}
            done = actions.get(op["action"], self.simple)(t, op)
        elif op["op"] == "flush":
            done = max([t] + [die.free for die in self.dies])
        elif op["op"] == "deallocate":
            done = t + self.flash["deallocate_ns"]
        else:
            done = t
        if done is None:
            return False
        self.finish(done, number)
        return True

    def simple(self, t, op):
        if is_code(self.flash):
            return t
        return t + (self.zoned["open_ns"] if op["action"] == "open" else 0)

    def give_back(self, zone, held, at=None):
        """Bytes return to the zone's buffer, at once or at a moment."""
        def event():
            self.used[0 if self.shared else zone] -= held

        if at is None:
            event()
        else:
            self.at(at, event)

    def write(self, t, op):
        number, x = divmod(op["offset"], self.size)
        zone = self.zones[number]
        fill = max(zone.fill, min(x + op["len"], self.capacity))
        new = min(fill - zone.fill, op["len"])
        sharing = self.zones if self.shared else [zone]
        need = max(0, min(new, self.buffer() - sum(z.held for z in sharing)))
        shared_by = 0 if self.shared else number
        if need > 0 and self.buffer() - self.used[shared_by] < need:
            return None
        self.used[shared_by] += need
        t2 = buffered_at(self.flash, self.link, t, op["len"])
        ends = [t2]
        begin = fill - new  # the bytes that take room are those from here on
        for wordline in range(zone.fill // self.wordline, ceil_div(fill, self.wordline)):
            first, end = wordline * self.wordline, (wordline + 1) * self.wordline
            zone.held += max(0, min(end, begin + need) - max(first, begin))
            if end <= fill:
                die, _ = self.die(number, wordline)
                ends.append(die.program(t2))
                self.give_back(number, zone.held, ends[-1])
                zone.held = 0
                zone.programmed = wordline + 1
        zone.fill = fill
        return t2 if self.flash["early_completion"] and not op["fua"] else latest(ends)

    def read(self, t, offset, length):
        p = self.flash
        t1 = t + (p["firmware_read_4k_ns"] if length <= PAGE else p["firmware_read_ns"])
        wanted = {}  # pages of each flash page (zone, index in the zone), by ascending offset
        for number, zone in enumerate(self.zones):
            start = max(offset - number * self.size, 0)
            end = min(offset + length - number * self.size, self.size)
            for page in range(start // PAGE, ceil_div(end, PAGE)):
                if page * PAGE < zone.fill:
                    place = (number, page * PAGE // p["flash_page_bytes"])
                    wanted[place] = wanted.get(place, 0) + 1
        ends = [t1]
        for (number, index), pages in wanted.items():
            in_wordline = self.wordline // p["flash_page_bytes"]
            die, row = self.die(number, index // in_wordline)
            flash_page = row * in_wordline + index % in_wordline
            ends.append(die.sense(t1, flash_page, pages, for_read=True))
        return self.link.send(max(ends), length)

    def reset(self, t, op):
        zone = self.zones[op["zone"]]
        if is_code(self.flash):
            self.give_back(op["zone"], zone.held)
            self.zones[op["zone"]] = Zone()
            return t
        rows = {}  # programmed ones, of each die
        for wordline in range(zone.programmed):
            die, row = self.die(op["zone"], wordline)
            rows[die] = row + 1
        ends = [t + self.zoned["reset_ns"]]
        for die, count in rows.items():
            for _ in range(ceil_div(count * self.wordline, self.flash["block_bytes"])):
                ends.append(die.erase(t))
        self.give_back(op["zone"], zone.held)
        self.zones[op["zone"]] = Zone()
        return latest(ends)

    def finish_zone(self, t, op):
        zone = self.zones[op["zone"]]
        if is_code(self.flash):
            self.give_back(op["zone"], zone.held)
            zone.held = 0
            return t
        ends = [t + self.zoned["finish_ns"]]
        if self.zoned["finish_writes"]:
            first, end, step = zone.programmed, self.capacity // self.wordline, self.zoned["dies_per_zone"]
            for on_die in range(first, min(first + step, end)):
                for wordline in range(on_die, end, step):
                    die, _ = self.die(op["zone"], wordline)
                    ends.append(die.program(t, with_data=False))
                    if wordline == first:
                        self.give_back(op["zone"], zone.held, ends[-1])
                        zone.held = 0
            zone.programmed = end
        else:
            self.give_back(op["zone"], zone.held)
            zone.held = 0
        return latest(ends)

    def counters(self):
        return {"buffer_used_bytes": sum(self.used)}
