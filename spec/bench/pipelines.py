"""Pipelines written by hand in PyTorch: the peer of the benches `pipelines` and `graphs`.

    python3 pipelines.py JOBS

JOBS is JSON: `steps`, `seconds`, `warm`, `inFlight`, and `jobs`, each with the `pipeline`'s name, its `shape`,
the `folder` that holds its input and parameters as raw numbers, and, where not all of the ways are wanted,
their names as `ways`. Each pipeline (pipeline_bodies.py) is run in eight ways: on one stream or on several;
issued call by call or captured into CUDA graphs; tick after tick on the same streams, or with streams (and
buffers) of its own for each tick in flight. In all of them at most `inFlight` ticks are in flight: before a
tick is issued, the host waits for the end of the tick that had its output buffers before. Events are made
once. A tensor that another stream reads is kept until its tick has ended, so that no `record_stream` is
needed.

One JSON object on standard output: for each job, by way, milliseconds a tick (the median of three times, each
from the end of the first ticks in flight to the end of the last tick: of `steps` ticks, or of as many as
`seconds` last, ten at least), MiB reserved at the peak, and whether its outputs are those of the first way,
bit for bit. The outputs of the first way are written to the job's folder, one after the other, by name, as
`outputs`.
"""

import gc
import json
import pathlib
import sys
import time

import torch

from pipeline_bodies import bodies

run = json.loads(sys.argv[1])
in_flight = run["inFlight"]


class Streams:
    """The streams of a tick: `main`, `up` and `down` for the copies, and `side`. One and the same if not
    `several`.
    """

    def __init__(self, sides, several):
        make = torch.cuda.Stream
        self.several = several
        self.main = make()
        self.up, self.down = (make(), make()) if several else (self.main, self.main)
        self.side = [make() if several else self.main for _ in range(sides)]
        self.events, self.next_event = [], 0

    def begin(self):
        self.next_event = 0

    def after(self, later, earlier):
        """An event of this tick's order. The n-th of each tick is the same object."""
        self.after_mark(later, self.mark(earlier), earlier)

    def mark(self, stream):
        """An event at the present end of the stream. The n-th of each tick is the same object."""
        if not self.several:
            return None
        if self.next_event == len(self.events):
            self.events.append(torch.cuda.Event())
        event = self.events[self.next_event]
        self.next_event += 1
        event.record(stream)
        return event

    def after_mark(self, later, event, earlier):
        if later is not earlier:
            later.wait_event(event)


class Slot:
    """What a tick in flight owns: outputs in pinned memory, what its pipeline allocates once, and the tensors
    that several streams touch.
    """

    def __init__(self, work, streams):
        self.streams, self.own = streams, work.own()
        self.outputs = {
            key: torch.empty(*size, dtype=work.dtype).pin_memory() for key, size in work.outputs.items()
        }
        self.end = torch.cuda.Event()
        self.kept = []

    def keep(self, tensor):
        """Until the tick has ended: another stream reads it than the one it was allocated on."""
        if self.streams.several:
            self.kept.append(tensor)


class Eager:
    """Each call of each tick is issued anew; with `overlapped`, each tick in flight has its own streams, and
    what its pipeline allocates once.
    """

    def __init__(self, work, sets, overlapped):
        self.work = work
        self.slots = [Slot(work, sets[i if overlapped else 0]) for i in range(in_flight)]
        if not overlapped:
            for slot in self.slots:
                slot.own = self.slots[0].own

    def tick(self, n):
        slot = self.slots[n % in_flight]
        slot.end.synchronize()
        slot.kept.clear()
        slot.streams.begin()
        self.work.tick(slot)
        slot.end.record(slot.streams.down)


class Captured:
    """A graph for each tick in flight; with `overlapped`, each is launched on a stream of its own."""

    def __init__(self, work, sets, overlapped):
        self.slots, self.graphs = [], []
        for i in range(in_flight):
            # Captured on streams of its own: cuBLAS has a workspace for each stream, which the graph keeps.
            streams = sets[i]
            slot = Slot(work, streams)
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=streams.main):
                streams.begin()
                for stream in (streams.up, streams.down, *streams.side):
                    streams.after(stream, streams.main)
                work.tick(slot)
                for stream in (streams.up, streams.down, *streams.side):
                    streams.after(streams.main, stream)
                torch.cuda.set_stream(streams.main)
            slot.kept.clear()
            self.slots.append(slot)
            self.graphs.append(graph)
        self.launchers = [sets[i if overlapped else 0].main for i in range(in_flight)]

    def tick(self, n):
        i = n % in_flight
        end = self.slots[i].end
        end.synchronize()
        torch.cuda.set_stream(self.launchers[i])
        self.graphs[i].replay()
        end.record(self.launchers[i])


def milliseconds(way, ticks):
    for n in range(ticks + in_flight):
        if n == 2 * in_flight - 1:
            way.slots[in_flight - 1].end.synchronize()
            began = time.perf_counter()
        way.tick(n)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / ticks * 1e3


def measure(way):
    milliseconds(way, run["warm"])
    for slot in way.slots:
        for output in slot.outputs.values():
            output.view(torch.uint8).fill_(255)
    steps = int(run["seconds"] * 1e3 / milliseconds(way, in_flight))
    steps = min(run["steps"], max(10, steps))
    return sorted(milliseconds(way, steps) for _ in range(3))[1]


def bits(slot):
    return [output.view(torch.uint8).clone() for _, output in sorted(slot.outputs.items())]


def ways_of(work, wanted):
    # The same streams serve every way: PyTorch has 32 of a priority in all.
    one = [Streams(work.sides, False) for _ in range(in_flight)]
    several = [Streams(work.sides, True) for _ in range(in_flight)]
    # Libraries make their handles at the first call of a process, which no capture allows.
    for sets in (one, several):
        warm = Eager(work, sets, True)
        for n in range(in_flight):
            warm.tick(n)
        torch.cuda.synchronize()
        del warm
    ways, first = [], None
    for kind, issued in (("eager", Eager), ("graph", Captured)):
        for where, sets in (("one stream", one), ("several streams", several)):
            for how, overlapped in (("", False), (", a set for each tick", True)):
                row = {"way": f"{kind}, {where}{how}"}
                if wanted is not None and row["way"] not in wanted:
                    continue
                try:
                    gc.collect()
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    way = issued(work, sets, overlapped)
                    row["ms"] = measure(way)
                    row["reservedMiB"] = torch.cuda.max_memory_reserved() / 2**20
                    outputs = [bits(slot) for slot in way.slots]
                    first = first or outputs[0]
                    row["equal"] = all(
                        torch.equal(a, b) for own in outputs for a, b in zip(own, first, strict=True)
                    )
                    del way
                except RuntimeError as error:
                    row["error"] = str(error).splitlines()[0]
                torch.cuda.synchronize()
                torch.cuda.set_stream(torch.cuda.default_stream())
                ways.append(row)
    return ways, first or []


def main():
    results = []
    for job in run["jobs"]:
        folder = pathlib.Path(job["folder"])
        work = bodies[job["pipeline"]](job["shape"], folder)
        ways, outputs = ways_of(work, job.get("ways"))
        with (folder / "outputs").open("wb") as file:
            for output in outputs:
                file.write(output.numpy().tobytes())
        results.append({"pipeline": job["pipeline"], "ways": ways})
        del work
    print(json.dumps({"torch": torch.__version__, "jobs": results}))


with torch.inference_mode():
    main()
