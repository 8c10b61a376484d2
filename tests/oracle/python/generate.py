"""Random parameters, commands and changes, by seed."""

from copy import deepcopy

from machine import PAGE, SECOND, ceil_div

KIB, MIB = 1 << 10, 1 << 20
SIZES = [512, 2048, 4096, 4096, 8192, 16384, 32768, 65536, 131072, 262144]
POLICIES = ["greedy", "fifo", "cost_benefit"]


# Parameters


def direction(rng):
    bandwidth = rng.choice([0, 10**9, 2400 * MIB, rng.randrange(10**7, 10**10)])
    rate = rng.choice([0, 0, 500_000, rng.randrange(10**5, 10**7)])
    cost = max(PAGE * SECOND / bandwidth if bandwidth else 0, SECOND / rate if rate else 0)
    return {
        "latency_ns": ceil_div(int(cost), 1) + 1 + rng.choice([0, rng.randrange(1, 100_000)]),
        "bandwidth_bytes_per_s": bandwidth,
        "rate_per_s": rate,
    }


def nvm(rng):
    return {"kind": "nvm", "read": direction(rng), "write": direction(rng)}


def kv(rng, compound):
    units = rng.choice([1, 3, 8, 10, 16])
    both = [direction(rng), direction(rng)]
    for one in both:
        one["latency_ns"] *= units
    return {
        "kind": "kv",
        "units": units,
        "read": both[0],
        "write": both[1],
        "delete_latency_ns": rng.randrange(200_000),
        "exist_latency_ns": rng.randrange(200_000),
        "list_latency_ns": rng.randrange(200_000),
        "compound": compound,
    }


def dies(rng):
    """What conventional and zoned flash share."""
    flash_page = PAGE * rng.choice([1, 2, 4, 8])
    oneshot = flash_page * rng.choice([1, 2, 3])
    cells = [rng.randrange(1_000, 80_000) for _ in range(4)]
    return {
        "flash_page_bytes": flash_page,
        "oneshot_bytes": oneshot,
        "cell_bits": rng.randrange(1, 5),
        "read_4k_ns": cells,
        "read_ns": [cell + rng.randrange(10_000) for cell in cells],
        "program_ns": rng.randrange(10_000, 2_000_000),
        "erase_ns": rng.choice([0, rng.randrange(5_000_000)]),
        "channel_bandwidth_bytes_per_s": rng.choice([0, 800 * MIB, rng.randrange(10**8, 2 * 10**9)]),
        "max_channel_transfer_bytes": rng.choice([PAGE, 3 * PAGE, 4 * PAGE, 5000, 256 * KIB]),
        "firmware_channel_transfer_ns": rng.choice([0, 413]),
        "link_bandwidth_bytes_per_s": rng.choice([0, 3360 * MIB, rng.randrange(10**8, 10**10)]),
        "firmware_read_4k_ns": rng.choice([0, 21_500]),
        "firmware_read_ns": rng.choice([0, 30_490]),
        "buffer_base_ns": rng.choice([0, 4_000]),
        "buffer_per_page_ns": rng.choice([0, 460]),
        "early_completion": rng.random() < 0.6,
        "deallocate_ns": rng.randrange(20_000),
        "extras": {},
    }


def extras(rng, p):
    """What is off by default, all at once and each now and then."""
    flash = p["flash"] if p["kind"] == "zns" else p
    if p["kind"] == "flash":
        p["size_bytes"] = size_for(rng, p, p["collect_below"] + 8)
    some = lambda value: rng.choice([0, value, value])
    in_wordline = flash["oneshot_bytes"] // flash["flash_page_bytes"]
    conventional = {
        "slc_cache_bytes": some(flash["oneshot_bytes"] * rng.randrange(1, 24)) * flash["partitions"],
        "slc_program_ns": rng.randrange(5_000, 400_000),
        "slc_read_ns": rng.randrange(80_000),
        "slc_idle_ns": rng.choice([0, rng.randrange(5_000_000)]),
        "map_cache_pages": some(rng.randrange(1, 4)),
    }
    flash["extras"] = (conventional if p["kind"] == "flash" else {}) | {
        "planes": rng.choice([n for n in range(1, in_wordline + 1) if in_wordline % n == 0]),
        "suspend_limit": some(rng.randrange(1, 6)),
        "suspend_ns": rng.choice([0, rng.randrange(50_000)]),
        "resume_ns": rng.choice([0, rng.randrange(50_000)]),
        "background_below": 0 if p["kind"] == "zns" else some(p["collect_below"] + 3),
        "background_idle_ns": rng.choice([0, rng.randrange(5_000_000)]),
        "seed": rng.randrange(2**53),
        "read_jitter_permille": some(rng.randrange(1, 500)),
        "program_jitter_permille": some(rng.randrange(1, 500)),
        "erase_jitter_permille": some(rng.randrange(1, 500)),
        "read_retry_ppm": some(rng.randrange(1, 500_000)),
    }
    return p


def size_for(rng, p, spare=5):
    """A small size of which a drive can be made: 64 lines or somewhat more."""
    n = p["channels"] // p["partitions"] * p["dies_per_channel"]
    ppl = n * p["block_bytes"] // PAGE
    op = p["overprovisioning_permille"]
    lines = max(64, ceil_div(spare * (1000 + op), op) + 1) + rng.randrange(8)
    logical = lines * ppl * 1000 // (1000 + op)
    return logical * PAGE * p["partitions"] - 512 * rng.randrange(8)


def flash(rng, policy):
    partitions = rng.choice([1, 1, 2, 4])
    p = dies(rng) | {
        "kind": "flash",
        "policy": policy,
        "partitions": partitions,
        "channels": partitions * rng.choice([1, 1, 2, 3]),
        "dies_per_channel": rng.choice([1, 2, 3]),
        "overprovisioning_permille": rng.choice([80, 100, 140, 280]),
        "collect_below": rng.choice([2, 2, 2, 3, 5]),
    }
    p["block_bytes"] = p["oneshot_bytes"] * rng.choice([1, 2, 4])
    least = partitions * p["oneshot_bytes"]
    p["buffer_bytes"] = least + rng.choice([0, least // 2, least, rng.randrange(MIB), MIB])
    p["size_bytes"] = size_for(rng, p, p["collect_below"] + 3)
    return p


def zns(rng, own_buffers):
    p = dies(rng) | {"channels": rng.choice([1, 2, 4]), "dies_per_channel": rng.choice([1, 2, 3])}
    count = p["channels"] * p["dies_per_channel"]
    p["block_bytes"] = p["oneshot_bytes"] * rng.choice([1, 2, 4])
    zone_size = rng.choice([MIB, 2 * MIB, 8 * MIB])
    p["size_bytes"] = zone_size * rng.randrange(1, 24)
    p["buffer_bytes"] = p["oneshot_bytes"] * rng.choice([1, 2, 8, 64]) + 512 * rng.randrange(16)
    capacity = zone_size - rng.choice([0, rng.randrange(zone_size // 2)])
    return {
        "kind": "zns",
        "flash": ftl_unused(p),
        "zone_size_bytes": zone_size,
        "zone_capacity_bytes": max(capacity // p["oneshot_bytes"], 1) * p["oneshot_bytes"],
        "dies_per_zone": rng.randrange(1, count + 1),
        "zone_buffer_bytes": p["buffer_bytes"] if own_buffers else 0,
        "reset_ns": rng.choice([0, rng.randrange(10_000_000)]),
        "finish_ns": rng.choice([0, rng.randrange(10_000_000)]),
        "finish_writes": rng.random() < 0.6,
        "open_ns": rng.randrange(10_000),
    }


def ftl_unused(p):
    """Parameters of the FTL, which zones do not look at."""
    return p | {"partitions": 1, "overprovisioning_permille": 0, "collect_below": 2, "policy": "greedy"}


def scaled(rng, p):
    """The same drive made so small that collection and resets happen often."""
    if p["kind"] == "flash":
        p = p | {"block_bytes": p["oneshot_bytes"] * 2}
        return p | {"size_bytes": size_for(rng, p, p["collect_below"] + 3)}
    if p["kind"] == "zns":
        oneshot = p["flash"]["oneshot_bytes"]
        zone_size = 8 * MIB
        return p | {
            "flash": p["flash"] | {"size_bytes": 12 * zone_size, "block_bytes": 4 * oneshot},
            "zone_size_bytes": zone_size,
            "zone_capacity_bytes": 3 * zone_size // 4 // oneshot * oneshot,
        }
    return p


def code(rng, p):
    """The same drive by the published program's rules."""
    flash = p["flash"] if p["kind"] == "zns" else p
    flash["arithmetic"] = "code"
    for name in ("channel_bandwidth_bytes_per_s", "link_bandwidth_bytes_per_s"):
        if name in flash:
            flash[name] = rng.choice([0, 800 * MIB, 3360 * MIB, rng.randrange(32 * 10**6, 8_191 * 10**6)])
    if p["kind"] in ("flash", "zns") and rng.random() < 0.3:
        return extras(rng, p)
    return p


LIVE_FLASH = """program_ns erase_ns firmware_channel_transfer_ns firmware_read_4k_ns firmware_read_ns buffer_base_ns
    buffer_per_page_ns deallocate_ns channel_bandwidth_bytes_per_s link_bandwidth_bytes_per_s""".split()
LARGEST = {f"{what}_jitter_permille": 2000 for what in ("read", "program", "erase")}
LIVE_EXTRAS = """read_jitter_permille program_jitter_permille erase_jitter_permille background_idle_ns slc_program_ns
    slc_read_ns slc_idle_ns suspend_ns resume_ns suspend_limit map_cache_pages""".split()


def change(rng, p):
    """Other parameters of the same drive."""
    p = deepcopy(p)
    near = lambda value: value * rng.randrange(50, 200) // 100
    if p["kind"] in ("nvm", "kv"):
        name = rng.choice(["read", "write"])
        p[name] = direction(rng)
        p[name]["latency_ns"] *= p.get("units", 1)
        if p["kind"] == "kv":
            p["compound"] = rng.choice(["together", "in_order"])
        return p
    flash = p["flash"] if p["kind"] == "zns" else p
    for name in rng.sample(LIVE_FLASH, 3):
        flash[name] = near(flash[name])
        if flash.get("arithmetic") == "code" and "bandwidth" in name and flash[name]:
            flash[name] = min(max(flash[name], 32 * 10**6), 8_191 * 10**6)
    extras = flash["extras"] = dict(flash["extras"])
    for name in LIVE_EXTRAS:
        if name in extras and extras[name] and rng.random() < 0.3:
            extras[name] = min(max(near(extras[name]), 1), LARGEST.get(name, 10**10))
    conventional = p["kind"] == "flash" and bool(extras)
    if conventional and rng.random() < 0.4:
        unit = p["partitions"] * flash["oneshot_bytes"]
        extras["slc_cache_bytes"] = rng.choice([0, unit * rng.randrange(1, 24)])
        # A cache needs the time of its programs.
        if extras["slc_cache_bytes"] and not extras["slc_program_ns"]:
            extras["slc_program_ns"] = flash["program_ns"] // 3 + 1
    for name in ("suspend_limit", "map_cache_pages") if conventional else ("suspend_limit",):
        if extras and rng.random() < 0.2:
            extras[name] = rng.randrange(4)
    if rng.random() < 0.2 and extras:
        extras["seed"] = rng.randrange(2**53)
    flash["early_completion"] = rng.random() < 0.6
    flash["read_4k_ns"] = [near(cell) for cell in flash["read_4k_ns"]]
    if p["kind"] == "flash":
        p["policy"] = rng.choice(POLICIES)
    return p


def changes(rng, parameters, commands):
    """Changes of the parameters now and then, in half of all cases."""
    last, made = commands[-1]["t"] if commands else 0, []
    for t in sorted(rng.randrange(last + 1) for _ in range(rng.choice([0, 0, 1, 5]))):
        parameters = change(rng, parameters)
        made.append({"t": t, "parameters": parameters})
    return made


SHAPES = {
    "nvm": nvm,
    "kv-together": lambda rng: kv(rng, "together"),
    "kv-in-order": lambda rng: kv(rng, "in_order"),
    "flash-greedy": lambda rng: flash(rng, "greedy"),
    "flash-fifo": lambda rng: flash(rng, "fifo"),
    "flash-cost-benefit": lambda rng: flash(rng, "cost_benefit"),
    "zns-shared": lambda rng: zns(rng, False),
    "zns-own": lambda rng: zns(rng, True),
    "flash-extras": lambda rng: extras(rng, flash(rng, rng.choice(POLICIES))),
    "zns-extras": lambda rng: extras(rng, zns(rng, False)),
    "nvm-code": lambda rng: code(rng, nvm(rng)),
    "kv-code": lambda rng: code(rng, kv(rng, rng.choice(["together", "in_order"]))),
    "flash-code": lambda rng: code(rng, flash(rng, rng.choice(POLICIES))),
    "zns-code": lambda rng: code(rng, zns(rng, rng.random() < 0.5)),
}


# Commands


class Pace:
    """Arrival times: phases of bursts, of steady load below and above what the drive can do, and idle gaps."""

    def __init__(self, rng):
        self.rng, self.t, self.left = rng, 0, 0

    def next(self, cost):
        """The arrival of a command that takes about `cost` ns of the drive's time."""
        if self.left == 0:
            self.left = self.rng.randrange(1, 150)
            self.load = self.rng.choice([0.02, 0.1, 0.3, 0.8, 1.2, 4.0, 1000.0])
            if self.rng.random() < 0.4:
                self.t += self.rng.randrange(20_000_000)
        self.left -= 1
        self.t += int(cost / self.load * self.rng.expovariate(1))
        return self.t


def commands(rng, parameters, count):
    """That many commands, with ids in the order of their arrival."""
    make = {"nvm": block_ops, "kv": kv_ops, "flash": block_ops, "zns": zone_ops}[parameters["kind"]]
    pace, streams = Pace(rng), rng.choice([1, 2, 4])
    made = []
    for op, cost, stream in make(rng, parameters, count):
        stream = rng.randrange(streams) if stream is None else stream % streams
        made.append({"id": len(made), "t": pace.next(cost), "stream": stream} | op)
    return made


def extent(rng, size, most=256 * KIB):
    """Offset and length of a command: of blocks, aligned to pages, or to its own length."""
    length = min(rng.choice(SIZES + [512 * rng.randrange(1, 512)]), size, most)
    align = rng.choice([512, PAGE, PAGE, max(length, PAGE)])
    return rng.randrange(size - length + 1) // align * align, length


def write(rng, offset, length):
    return {"op": "write", "offset": offset, "len": length, "fua": rng.random() < 0.1}


def block_ops(rng, parameters, count):
    """For NVM and conventional flash. Many first commands fill the drive in sequence."""
    nvm = parameters["kind"] == "nvm"
    size = 64 * MIB if nvm else parameters["size_bytes"]
    page_ns = 2_000 if nvm else flash_page_ns(parameters)
    reads = rng.choice([0.1, 0.4, 0.7])
    hot = rng.choice([None, size // 5])
    large = rng.choice([0.0, 0.0, 0.02])
    often = rng.choice([0.0, 0.0, 0.3])  # how often it goes on in sequence after that
    most = rng.choice([8 * KIB, 32 * KIB, 256 * KIB])
    sequential = filled = 0
    for _ in range(count):
        choice = rng.random()
        offset, length = extent(rng, size, most)
        if hot is not None and rng.random() < 0.8:
            offset = offset % hot // 512 * 512
            length = min(length, size - offset)
        cost = ceil_div(length, PAGE) * page_ns
        if choice < 0.9 * reads:
            yield {"op": "read", "offset": offset, "len": length}, cost // 2, None
        elif choice < 0.9:
            if rng.random() < (often if filled >= size else 0.5):
                length = min(max(length, 64 * KIB), size - sequential)
                offset, sequential = sequential, (sequential + length) % size
                filled += length
            yield write(rng, offset, length), cost, None
        elif choice < 0.97:
            if rng.random() < large:
                length = min(size // 6 // 512 * 512, size - offset)
            yield {"op": "deallocate", "offset": offset, "len": length}, 1_000, None
        else:
            yield {"op": "flush"}, 1_000, None


def flash_page_ns(p):
    """What a page of a write takes of all dies, roughly, with some collection."""
    count = p["channels"] * p["dies_per_channel"]
    return 2 * p["program_ns"] * PAGE // p["oneshot_bytes"] // count + 1


def kv_part(rng, keys):
    kind = rng.choice(["store", "store", "retrieve", "retrieve", "append", "delete", "exist", "list"])
    length = rng.choice([0, 1, 100, 512, 4096, 4096, 4097, rng.randrange(65_536), rng.randrange(2 * MIB)])
    if kind in ("delete", "exist"):
        length = 0
    key = "" if kind == "list" else rng.choice(keys)
    return {"kind": kind, "key": key, "len": length}


def kv_ops(rng, parameters, count):
    keys = [rng.randbytes(rng.randrange(1, 17)).hex() for _ in range(300)]
    cost = parameters["write"]["latency_ns"] // parameters["units"]
    for _ in range(count):
        choice = rng.random()
        if choice < 0.75:
            yield {"op": "kv"} | kv_part(rng, keys), cost, None
        elif choice < 0.97:
            parts = [kv_part(rng, keys) for _ in range(rng.randrange(0, 9))]
            yield {"op": "compound", "parts": parts}, cost * len(parts), None
        else:
            yield {"op": "flush"}, 1_000, None


def zone_ops(rng, parameters, count):
    """Each zone's own commands go through one stream, so that they arrive in their order."""
    p = parameters["flash"]
    size, capacity = parameters["zone_size_bytes"], parameters["zone_capacity_bytes"]
    zones = [{"at": 0, "full": False} for _ in range(p["size_bytes"] // size)]
    active = rng.randrange(1, 16)  # about how many zones are written at the same time
    reads, odd = rng.choice([0.1, 0.4]), rng.choice([0.0, 0.0, 0.02])
    writable = list(range(len(zones)))
    for _ in range(count):
        choice = rng.random()
        _, length = extent(rng, min(size, 256 * KIB))
        number = rng.choice(writable[:active]) if writable else rng.randrange(len(zones))
        zone = zones[number]
        cost = ceil_div(length, PAGE) * flash_page_ns(p)
        if choice < 0.9 * reads:
            offset = rng.randrange(len(zones)) * size + rng.randrange(max(2 * zone["at"], size // 8)) // 512 * 512
            offset = min(offset, len(zones) * size - length)
            yield {"op": "read", "offset": offset, "len": length}, cost // 2, None
        elif choice < 0.9 and not zone["full"]:
            at = zone["at"]
            if rng.random() < odd:  # within a random write area, or behind what was written
                at = max(0, min(at + 512 * rng.randrange(-64, 64), capacity - 512))
            length = min(length, capacity - at)
            zone["at"] = max(zone["at"], at + length)
            yield write(rng, number * size + at, length), cost, number
            if zone["at"] == capacity:
                zone["full"] = True
                writable.remove(number)
        elif choice < 0.97 or (choice < 0.98 and len(writable) < active):
            action = rng.choice(["open", "close", "finish", "reset", "reset"])
            if action == "reset" or not writable:
                number, action = rng.randrange(len(zones)), "reset"
                zones[number].update(at=0, full=False)
                if number not in writable:
                    writable.append(number)
            elif action == "finish" and not zone["full"]:
                zone["full"] = True
                writable.remove(number)
            yield {"op": "zone", "action": action, "zone": number}, cost, number
        elif choice < 0.98:
            yield {"op": "deallocate", "offset": number * size, "len": length}, 1_000, None
        else:
            yield {"op": "flush"}, 1_000, None
