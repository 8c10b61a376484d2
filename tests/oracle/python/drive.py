"""The driver: commands with arrival times are given to a model, by the rule of the README."""

from collections import deque
from copy import deepcopy

from flash import Flash
from kv import Kv
from machine import is_code
from nvm import Nvm
from published import CodeKv, CodeNvm
from zns import Zns

KINDS = {"nvm": Nvm, "kv": Kv, "flash": Flash, "zns": Zns}
PUBLISHED = {"nvm": CodeNvm, "kv": CodeKv}

AFTERWARDS = 10**9


def model_of(parameters):
    kinds = KINDS | (PUBLISHED if is_code(parameters) else {})
    return kinds[parameters["kind"]](deepcopy(parameters))


def drive(parameters, commands, changes=()):
    """Runs all commands to their ends, with changes of the parameters. Gives [id, admitted, done] of each, in the order in which they
    are done, and the counters at the end."""
    model = model_of(parameters)
    waiting = deque(commands)  # not arrived yet
    changes = deque(changes)
    streams = {}  # the commands of each that have arrived, the next one first
    admitted = []  # (id, time), in the order of admission
    while True:
        times = [queue[0]["t"] for queue in (waiting, changes) if queue]
        if model.next_event() is not None:
            times.append(model.next_event())
        if not times:
            break
        now = min(times)
        model.advance(now)
        while changes and changes[0]["t"] <= now:
            model.retune(now, changes.popleft()["parameters"])
        while waiting and waiting[0]["t"] <= now:
            command = waiting.popleft()
            streams.setdefault(command["stream"], deque()).append(command)
        tried = {name: queue for name, queue in streams.items() if queue}
        while tried:
            name = min(tried, key=lambda name: tried[name][0]["id"])
            command = tried[name][0]
            if model.submit(now, command) is None:
                del tried[name]  # it stalls, and with it what is behind it
                continue
            admitted.append((command["id"], now))
            streams[name].popleft()
            # That may have made room for others.
            tried = {name: queue for name, queue in streams.items() if queue}
    done = sorted(model.done)
    assert len(done) == len(commands), f"{len(commands) - len(done)} commands stall for ever"
    # What a drive does by itself goes on: the counters are those of one time.
    model.advance(max([time for time, _ in done], default=0) + AFTERWARDS)
    return {
        "done": [[admitted[number][0], admitted[number][1], at] for at, number in done],
        "counters": model.counters(),
    }
