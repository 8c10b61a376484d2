"""What is known of such drives without any simulator, and checks of the oracle against it.

Closed forms: write amplification of FIFO collection, the throughput of a pipeline. Where there is none
(greedy collection, dies that are read at random), a plain simulation that shares no line with the
oracle.
"""

import heapq
import random
from math import exp, sqrt

from flash import Flash
from machine import PAGE
from nvm import Nvm

LINES, PPL = 512, 64  # and pages of each

# At a collection two lines are free, or open and not yet written, together: so many fewer hold data.
RESERVE = 2


def fifo_write_amplification(op):
    """1 / (1 - p), p = exp(-(1 - p) (1 + op)): p is the chance that a page is still valid when the log
    has come round. By iteration, from below."""
    p = 0.0
    for _ in range(10_000):
        p = exp(-(1 - p) * (1 + op))
    return 1 / (1 - p)


def plain_greedy(blocks, op, seed, rounds=6):
    """Greedy collection of uniform random writes, on that many blocks: the write amplification of the
    second half of `rounds` overwrites of all pages."""
    rng = random.Random(seed)
    pages = int(blocks * PPL / (1 + op))
    where = [None] * pages
    holds = [set() for _ in range(blocks)]
    free, closed = list(range(blocks)), []
    heads = {}  # of the host and of the collection: [block, pages written]
    written = 0

    def put(page, who):
        nonlocal written
        if who not in heads:
            heads[who] = [free.pop(0), 0]
        if where[page] is not None:
            holds[where[page]].discard(page)
        block = heads[who][0]
        where[page] = block
        holds[block].add(page)
        heads[who][1] += 1
        written += 1
        if heads[who][1] == PPL:
            closed.append(block)
            del heads[who]

    def host(page):
        while len(free) < RESERVE:
            victim = min(closed, key=lambda block: len(holds[block]))
            closed.remove(victim)
            for moved in sorted(holds[victim]):
                put(moved, "collection")
            free.append(victim)
        put(page, "host")

    for page in range(pages):
        host(page)
    for turn in range(rounds):
        if turn == rounds // 2:
            before = written
        for _ in range(pages):
            host(rng.randrange(pages))
    return (written - before) / (pages * (rounds - rounds // 2))


def flash_parameters(policy, op, lines, reserve=0):
    """One partition in which nothing takes time: `lines` of which it has `1 + op` times the logical space,
    and a reserve beside them."""
    logical = int(lines * PPL / (1 + op))
    permille = (lines + reserve) * PPL * 1000 // logical - 1000
    zero = {
        name: 0
        for name in (
            "program_ns erase_ns channel_bandwidth_bytes_per_s firmware_channel_transfer_ns link_bandwidth_bytes_per_s "
            "firmware_read_4k_ns firmware_read_ns buffer_base_ns buffer_per_page_ns deallocate_ns"
        ).split()
    }
    return zero | {
        "size_bytes": logical * PAGE,
        "partitions": 1,
        "channels": 1,
        "dies_per_channel": 1,
        "flash_page_bytes": PAGE,
        "oneshot_bytes": PAGE,
        "block_bytes": PPL * PAGE,
        "cell_bits": 1,
        "overprovisioning_permille": permille,
        "read_4k_ns": [0] * 4,
        "read_ns": [0] * 4,
        "max_channel_transfer_bytes": PAGE,
        "buffer_bytes": PAGE,
        "early_completion": True,
        "collect_below": 2,
        "policy": policy,
    }


def oracle_write_amplification(policy, op, seed, reserve, rounds=6):
    """That of the oracle, measured as `plain_greedy` does."""
    rng = random.Random(seed)
    model = Flash(flash_parameters(policy, op, LINES, reserve))
    partition = model.partitions[0]
    assert len(partition.lines) == LINES + reserve, len(partition.lines)
    pages = model.pages

    def host(page):
        model.submit(0, {"op": "write", "offset": page * PAGE, "len": PAGE, "fua": False})

    for page in range(pages):
        host(page)
    for turn in range(rounds):
        if turn == rounds // 2:
            before = partition.placed
        for _ in range(pages):
            host(rng.randrange(pages))
    return (partition.placed - before) / (pages * (rounds - rounds // 2))


def plain_occupancy(dies, depth, count, seed):
    """How busy dies are that `depth` readers use, each one die at random and then the next at once. A
    service takes one unit of time."""
    rng = random.Random(seed)
    free = [0] * dies
    out = [0] * depth
    heapq.heapify(out)
    for _ in range(count):
        now = heapq.heappop(out)
        die = rng.randrange(dies)
        free[die] = max(free[die], now) + 1
        heapq.heappush(out, free[die])
    return count / max(free) / dies


def closed_loop(model, make, depth, count):
    """The time at which `count` commands are done that `depth` submitters give the model one by one."""
    out = [0] * depth
    heapq.heapify(out)
    for _ in range(count):
        model.submit(heapq.heappop(out), make())
        heapq.heappush(out, model.done[-1][0])
    return max(out)


def oracle_occupancy(dies, depth, count, seed):
    rng = random.Random(seed)
    p = flash_parameters("greedy", 0.5, 256)
    p |= {"channels": dies, "read_4k_ns": [1000] * 4, "buffer_bytes": PAGE}
    p["size_bytes"] *= dies
    model = Flash(p)
    for page in range(model.pages):
        model.submit(0, {"op": "write", "offset": page * PAGE, "len": PAGE, "fua": False})
    read = lambda: {"op": "read", "offset": rng.randrange(model.pages) * PAGE, "len": PAGE}
    return count * 1000 / closed_loop(model, read, depth, count) / dies


def oracle_nvm_rate(latency_ns, bandwidth, depth, count):
    direction = {"latency_ns": latency_ns, "bandwidth_bytes_per_s": bandwidth, "rate_per_s": 0}
    model = Nvm({"read": direction, "write": direction})
    read = lambda: {"op": "read", "offset": 0, "len": PAGE}
    return count * 1e9 / closed_loop(model, read, depth, count)


def mean_and_interval(values):
    """The mean, and the half width of its 95 % interval (for ten values or so: 2.3 standard errors)."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    deviation = sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, 2.3 * deviation / sqrt(len(values))


def checks(seeds):
    """Rows (what, expected, measured, interval, within), within being the part that may be missing."""
    for permille, known in ((70, 7.82), (140, 4.25), (280, 2.48)):
        expected = fifo_write_amplification(permille / 1000)
        yield f"FIFO, {permille / 10:.0f} % spare: the closed form", known, expected, 0.0, 0.002
        values = [oracle_write_amplification("fifo", permille / 1000, seed, RESERVE) for seed in range(seeds)]
        yield f"FIFO, {permille / 10:.0f} % spare: write amplification", expected, *mean_and_interval(values), 0.02
    for permille, known in ((70, 7.4), (140, 4.1), (280, 2.4)):
        plain = mean_and_interval([plain_greedy(LINES, permille / 1000, 100 + seed) for seed in range(seeds)])
        values = [oracle_write_amplification("greedy", permille / 1000, seed, 0) for seed in range(seeds)]
        yield f"greedy, {permille / 10:.0f} % spare: a plain simulation", known, *plain, 0.03
        yield f"greedy, {permille / 10:.0f} % spare: write amplification", plain[0], *mean_and_interval(values), 0.03
    for depth, known in ((16, 0.60), (32, 0.78), (128, 0.94)):
        plain = plain_occupancy(16, depth, 200_000, 1)
        yield f"16 dies, {depth} random reads at a time: a plain simulation", known, plain, 0.0, 0.02
        measured = oracle_occupancy(16, depth, 40_000, 1)
        yield f"16 dies, {depth} random reads at a time: busy", plain, measured, 0.0, 0.01
    for depth in (1, 2, 4, 8, 32):
        expected = min(depth / 12e-6, 2400 * 2**20 / PAGE)
        measured = oracle_nvm_rate(12_000, 2400 * 2**20, depth, 20_000)
        yield f"NVM, {depth} at a time: min(q / L, 1 / c), per second", expected, measured, 0.0, 0.001
