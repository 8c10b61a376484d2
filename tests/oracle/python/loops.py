"""Closed loops: lists of commands of several workers, each with so many in flight, one phase after another.

A worker submits its first commands at the start of a phase, and each further one at the time at which one of
its own is done. What is submitted at the same time goes by worker, and within one in the order of its list. A worker's
command that stalls holds up those behind it. The drive rests between phases. [README, Closed loops]
"""

from collections import deque

from drive import model_of


class Worker:
    def __init__(self, commands, depth, now):
        self.waiting = deque(commands)  # not submitted yet
        self.queue = deque()  # submitted and not admitted: (command, time)
        self.latencies = []
        self.begin(depth, now)

    def begin(self, count, now):
        for _ in range(min(count, len(self.waiting))):
            self.queue.append((self.waiting.popleft(), now))


def run_phase(model, now, phase):
    """Runs a phase that begins at `now`; when it ends, and its workers."""
    workers = [Worker(commands, phase["depth"], now) for commands in phase["workers"]]
    whose = {}  # number of the submission: worker, time
    seen = len(model.done)
    pending = []  # (time, number) of what is known to be done later
    while True:
        progress = True
        while progress:
            progress = False
            for worker in workers:
                while worker.queue:
                    command, since = worker.queue[0]
                    number = model.submit(now, command)
                    if number is None:
                        break
                    worker.queue.popleft()
                    whose[number] = worker, since
                    progress = True
        pending += model.done[seen:]
        seen = len(model.done)
        if not whose and not any(worker.queue for worker in workers):
            return now, workers
        now = model.next_event()
        model.advance(now)
        pending += model.done[seen:]
        seen = len(model.done)
        ended = [entry for entry in pending if entry[0] <= now]
        pending = [entry for entry in pending if entry[0] > now]
        for time, number in ended:
            worker, since = whose.pop(number)
            worker.latencies.append(time - since)
            worker.begin(1, now)


def run(document):
    """The sum and number of latencies of the last phase, and how long it took."""
    model = model_of(document["parameters"])
    now = 0
    workers, begun = [], 0
    for phase in document["phases"]:
        begun = now
        ended, workers = run_phase(model, now, phase)
        now = ended + document["rest_ns"]
    latencies = [latency for worker in workers for latency in worker.latencies]
    return {"sum_ns": sum(latencies), "count": len(latencies), "elapsed_ns": ended - begun}
