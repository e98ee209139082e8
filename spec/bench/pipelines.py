"""Pipelines written by hand in PyTorch, on one stream and on several: the peer of spec/bench/pipelines.ts.

    python3 pipelines.py NAME FOLDER SHAPES STEPS WARM

FOLDER holds the input and the parameters as raw bf16; the output of the last step is written there as y.bf16. One
JSON object on standard output: milliseconds a step, all steps queued one after the other and the last one waited
for.
"""

import json
import pathlib
import sys
import time

import torch

name, folder, shapes = sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
steps, warm = int(sys.argv[4]), int(sys.argv[5])
shape = shapes[name]


def load(what, size, pinned=False):
    raw = bytearray((folder / f"{what}.bf16").read_bytes())
    data = torch.frombuffer(raw, dtype=torch.bfloat16).view(*size)
    return data.pin_memory() if pinned else data.cuda()


def weight(i, size, pinned=False):
    return load(f"w_{i}_", size, pinned)


class Streams:
    """Forks and joins by events; with `several` off all of them are the one main stream."""

    def __init__(self, count, several):
        self.several = several
        self.main = torch.cuda.Stream()
        self.side = [torch.cuda.Stream() for _ in range(count)] if several else [self.main] * count

    def after(self, later, earlier):
        if self.several and later is not earlier:
            event = torch.cuda.Event()
            event.record(earlier)
            later.wait_event(event)


def pipeline(several):
    if name == "branches":
        width, count, depth = shape["width"], shape["count"], shape["depth"]
        x = load("x", (width, width), pinned=True)
        w = [weight(i, (width, width)) for i in range(count * depth)]
        streams = Streams(count, several)

        def step(out):
            with torch.cuda.stream(streams.main):
                start = x.to("cuda", non_blocking=True)
            ends = []
            for b, side in enumerate(streams.side):
                streams.after(side, streams.main)
                with torch.cuda.stream(side):
                    y = start
                    for d in range(depth):
                        y = torch.relu(y @ w[b * depth + d])
                    ends.append(y)
                if several:
                    start.record_stream(side)
            for side in streams.side:
                streams.after(streams.main, side)
            with torch.cuda.stream(streams.main):
                y = ends[0]
                for end in ends[1:]:
                    y = y + end
                    if several:
                        end.record_stream(streams.main)
                out.copy_(y, non_blocking=True)

        return streams, step, (width, width)

    if name == "diamonds":
        width, count = shape["width"], shape["count"]
        x = load("x", (width, width), pinned=True)
        w = [weight(i, (width, width)) for i in range(2 * count)]
        streams = Streams(1, several)
        side = streams.side[0]

        def step(out):
            with torch.cuda.stream(streams.main):
                y = x.to("cuda", non_blocking=True)
            for d in range(count):
                streams.after(side, streams.main)
                with torch.cuda.stream(side):
                    right = torch.relu(y @ w[2 * d + 1])
                if several:
                    y.record_stream(side)
                with torch.cuda.stream(streams.main):
                    left = torch.relu(y @ w[2 * d])
                    streams.after(streams.main, side)
                    y = left + right
                if several:
                    right.record_stream(streams.main)
            with torch.cuda.stream(streams.main):
                out.copy_(y, non_blocking=True)

        return streams, step, (width, width)

    if name == "ensemble":
        rows, features, classes = shape["rows"], shape["features"], shape["classes"]
        x = load("x", (rows, features), pinned=True)
        w = [weight(i, (features, classes)) for i in range(2)]
        streams = Streams(1, several)
        side = streams.side[0]

        def scores(data, i):
            return torch.softmax(data @ w[i], dim=1)

        def step(out):
            with torch.cuda.stream(streams.main):
                data = x.to("cuda", non_blocking=True)
            streams.after(side, streams.main)
            with torch.cuda.stream(side):
                other = scores(data, 1)
            if several:
                data.record_stream(side)
            with torch.cuda.stream(streams.main):
                own = scores(data, 0)
                streams.after(streams.main, side)
                out.copy_((own + other).amax(dim=1), non_blocking=True)
            if several:
                other.record_stream(streams.main)

        return streams, step, (rows,)

    width, rows, layers = shape["width"], shape["rows"], shape["layers"]
    x = load("x", (rows, width), pinned=True)
    w = [weight(i, (width, width), pinned=True) for i in range(layers)]
    streams = Streams(2, several)
    copy, back = streams.side
    # Three weight buffers, as the window of two ahead holds.
    held = [torch.empty(width, width, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    read = [torch.cuda.Event() for _ in range(3)]
    kept = [torch.empty(rows, width, dtype=torch.bfloat16).pin_memory() for _ in range(layers)]

    def step(out):
        with torch.cuda.stream(streams.main):
            y = x.to("cuda", non_blocking=True)
        for layer in range(layers):
            buffer = held[layer % 3]
            if several:
                copy.wait_event(read[layer % 3])
            with torch.cuda.stream(copy):
                buffer.copy_(w[layer], non_blocking=True)
            streams.after(streams.main, copy)
            with torch.cuda.stream(streams.main):
                y = torch.relu(y @ buffer)
                if several:
                    read[layer % 3].record(streams.main)
            if layer % 3 == 2 and layer + 1 < layers:
                streams.after(back, streams.main)
                with torch.cuda.stream(back):
                    kept[layer].copy_(y, non_blocking=True)
                if several:
                    y.record_stream(back)
        with torch.cuda.stream(streams.main):
            out.copy_(y * 0.5, non_blocking=True)

    return streams, step, (rows, width)


def measure(several):
    streams, step, size = pipeline(several)
    out = torch.empty(*size, dtype=torch.bfloat16).pin_memory()
    for _ in range(warm):
        step(out)
    torch.cuda.synchronize()
    best = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(steps):
            step(out)
        torch.cuda.synchronize()
        best.append((time.perf_counter() - began) / steps * 1e3)
    return sorted(best)[1], out


with torch.inference_mode():
    one, _ = measure(False)
    many, out = measure(True)
(folder / "y.bf16").write_bytes(out.contiguous().view(torch.uint8).numpy().tobytes())
print(json.dumps({"oneMs": one, "streamsMs": many}))
