"""Pipelines written by hand in PyTorch: the peer of spec/bench/pipelines.ts.

    python3 pipelines.py NAME FOLDER SHAPES STEPS WARM IN_FLIGHT

FOLDER holds the input and the parameters as raw bf16. Each pipeline is run in eight ways: on one stream or
on several; issued call by call or captured into CUDA graphs; tick after tick on the same streams, or with
streams (and buffers) of its own for each tick in flight. In all of them at most IN_FLIGHT ticks are in
flight: before a tick is issued, the host waits for the end of the tick that had its output buffers before.
Events are made once. A tensor that another stream reads is kept until its tick has ended, so that no
`record_stream` is needed.

One JSON object on standard output: by way, milliseconds a tick (the median of three times STEPS ticks, from
the first call to the end of the last tick), MiB reserved at the peak, and whether its outputs are those of
the first way, bit for bit. The outputs of the first way are written to FOLDER/outputs.bf16, one after the
other, by name.
"""

import json
import pathlib
import sys
import time

import torch

name, folder, shapes = sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
steps, warm, in_flight = (int(word) for word in sys.argv[4:7])
shape = shapes[name]


def load(what, size, pinned=False):
    raw = bytearray((folder / f"{what}.bf16").read_bytes())
    data = torch.frombuffer(raw, dtype=torch.bfloat16).view(*size)
    return data.pin_memory() if pinned else data.cuda()


def weight(i, size, pinned=False):
    return load(f"w_{i}_", size, pinned)


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
        if later is earlier:
            return
        if self.next_event == len(self.events):
            self.events.append(torch.cuda.Event())
        event = self.events[self.next_event]
        self.next_event += 1
        event.record(earlier)
        later.wait_event(event)


class Ring:
    """Weight buffers that uploads take in turn, as far as the window of two ahead holds."""

    def __init__(self, work):
        self.buffers = [torch.empty(*work.ring, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        self.read = [torch.cuda.Event() for _ in self.buffers]
        self.was_read = [False for _ in self.buffers]


class Slot:
    """What a tick in flight owns: outputs in pinned memory, and the tensors that several streams touch."""

    def __init__(self, work, streams, ring):
        self.streams, self.ring = streams, ring
        self.outputs = {
            key: torch.empty(*size, dtype=torch.bfloat16).pin_memory() for key, size in work.outputs.items()
        }
        self.ends = [torch.cuda.Event() for _ in work.ends(streams)]
        self.kept = []

    def keep(self, tensor):
        """Until the tick has ended: another stream reads it than the one it was allocated on."""
        if self.streams.several:
            self.kept.append(tensor)


class Branches:
    def __init__(self):
        width, self.count, self.depth = shape["width"], shape["count"], shape["depth"]
        self.size = (width, width)
        self.sides, self.outputs, self.ring = self.count - 1, {"y": self.size}, None
        self.x = load("x", self.size, pinned=True)
        self.w = [weight(i, self.size) for i in range(self.count * self.depth)]

    def ends(self, streams):
        return [streams.down]

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        lanes = [streams.main, *streams.side]
        use(streams.up)
        start = self.x.to("cuda", non_blocking=True)
        slot.keep(start)
        branches = []
        for b, lane in enumerate(lanes):
            streams.after(lane, streams.up)
            use(lane)
            y = start
            for d in range(self.depth):
                y = (y @ self.w[b * self.depth + d]).relu_()
            branches.append(y)
            slot.keep(y)
        use(streams.main)
        y = branches[0]
        for lane, branch in zip(lanes[1:], branches[1:]):
            streams.after(streams.main, lane)
            y = y + branch
        slot.keep(y)
        streams.after(streams.down, streams.main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Diamonds:
    def __init__(self):
        width, self.count = shape["width"], shape["count"]
        self.size = (width, width)
        self.sides, self.outputs, self.ring = 1, {"y": self.size}, None
        self.x = load("x", self.size, pinned=True)
        self.w = [weight(i, self.size) for i in range(2 * self.count)]

    def ends(self, streams):
        return [streams.down]

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        main, side = streams.main, streams.side[0]
        use(streams.up)
        y = self.x.to("cuda", non_blocking=True)
        slot.keep(y)
        streams.after(main, streams.up)
        for d in range(self.count):
            streams.after(side, main)
            use(side)
            right = (y @ self.w[2 * d + 1]).relu_()
            slot.keep(right)
            use(main)
            left = (y @ self.w[2 * d]).relu_()
            streams.after(main, side)
            y = left + right
            slot.keep(y)
        streams.after(streams.down, main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Ensemble:
    def __init__(self):
        rows, features, classes = shape["rows"], shape["features"], shape["classes"]
        self.sides, self.outputs, self.ring = 1, {"y": (rows,)}, None
        self.x = load("x", (rows, features), pinned=True)
        self.w = [weight(i, (features, classes)) for i in range(2)]

    def ends(self, streams):
        return [streams.down]

    def scores(self, data, i):
        return torch.softmax(data @ self.w[i], dim=1)

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        main, side = streams.main, streams.side[0]
        use(streams.up)
        data = self.x.to("cuda", non_blocking=True)
        slot.keep(data)
        streams.after(main, streams.up)
        streams.after(side, streams.up)
        use(side)
        other = self.scores(data, 1)
        slot.keep(other)
        use(main)
        own = self.scores(data, 0)
        streams.after(main, side)
        y = (own + other).amax(dim=1)
        slot.keep(y)
        streams.after(streams.down, main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Offload:
    def __init__(self):
        width, rows, self.layers = shape["width"], shape["rows"], shape["layers"]
        self.kept_layers = [layer for layer in range(2, self.layers - 1, 3)]
        self.sides, self.ring = 0, (width, width)
        self.outputs = {f"a{layer}": (rows, width) for layer in self.kept_layers} | {"y": (rows, width)}
        self.x = load("x", (rows, width), pinned=True)
        self.w = [weight(i, self.ring, pinned=True) for i in range(self.layers)]

    def ends(self, streams):
        return [streams.down]

    def tick(self, slot):
        streams, ring, use = slot.streams, slot.ring, torch.cuda.set_stream
        main, up, down = streams.main, streams.up, streams.down
        use(up)
        y = self.x.to("cuda", non_blocking=True)
        slot.keep(y)
        for layer in range(self.layers):
            i = layer % len(ring.buffers)
            if streams.several and ring.was_read[i]:
                up.wait_event(ring.read[i])
            use(up)
            ring.buffers[i].copy_(self.w[layer], non_blocking=True)
            streams.after(main, up)
            use(main)
            y = (y @ ring.buffers[i]).relu_()
            if streams.several:
                ring.read[i].record(main)
                ring.was_read[i] = True
            if layer in self.kept_layers:
                slot.keep(y)
                streams.after(down, main)
                use(down)
                slot.outputs[f"a{layer}"].copy_(y, non_blocking=True)
        use(main)
        y = y * 0.5
        slot.keep(y)
        streams.after(down, main)
        use(down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Eager:
    """Each call of each tick is issued anew; with `overlapped`, each tick in flight has its own streams."""

    def __init__(self, work, sets, overlapped):
        self.work = work
        rings = [Ring(work) if work.ring else None for _ in sets]
        which = [i if overlapped else 0 for i in range(in_flight)]
        self.slots = [Slot(work, sets[i], rings[i]) for i in which]

    def tick(self, n):
        slot = self.slots[n % in_flight]
        for end in slot.ends:
            end.synchronize()
        slot.kept.clear()
        slot.streams.begin()
        self.work.tick(slot)
        for end, stream in zip(slot.ends, self.work.ends(slot.streams)):
            end.record(stream)


class Captured:
    """A graph for each tick in flight; with `overlapped`, each is launched on a stream of its own."""

    def __init__(self, work, sets, overlapped):
        self.slots, self.graphs = [], []
        for i in range(in_flight):
            # Captured on streams of its own: cuBLAS has a workspace for each stream, which the graph keeps.
            streams = sets[i]
            slot = Slot(work, streams, Ring(work) if work.ring else None)
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
        end = self.slots[i].ends[0]
        end.synchronize()
        torch.cuda.set_stream(self.launchers[i])
        self.graphs[i].replay()
        end.record(self.launchers[i])


def measure(way):
    for n in range(warm):
        way.tick(n)
    torch.cuda.synchronize()
    for slot in way.slots:
        for output in slot.outputs.values():
            output.fill_(float("nan"))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        for n in range(steps):
            way.tick(n)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / steps * 1e3)
    return sorted(times)[1]


def bits(slot):
    return [output.view(torch.int16).clone() for _, output in sorted(slot.outputs.items())]


def main():
    work = {"branches": Branches, "diamonds": Diamonds, "ensemble": Ensemble, "offload": Offload}[name]()
    # The same streams serve every way: PyTorch has 32 of a priority in all.
    one = [Streams(work.sides, False) for _ in range(in_flight)]
    several = [Streams(work.sides, True) for _ in range(in_flight)]
    ways, first = [], None
    for kind, issued in (("eager", Eager), ("graph", Captured)):
        for where, sets in (("one stream", one), ("several streams", several)):
            for how, overlapped in (("", False), (", a set for each tick", True)):
                row = {"way": f"{kind}, {where}{how}"}
                try:
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
    with (folder / "outputs.bf16").open("wb") as file:
        for output in first or []:
            file.write(output.numpy().tobytes())
    print(json.dumps({"torch": torch.__version__, "ways": ways}))


with torch.inference_mode():
    main()
