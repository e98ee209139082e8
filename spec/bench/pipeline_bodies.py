"""The pipelines of pipelines.py: what a tick of each issues, on one stream or on several.

Each has `dtype` and the sizes of its `outputs`, `sides` (streams beside the main one), `own()` (what a tick in
flight allocates once), and `tick(slot)`.
"""

import torch
import torch.nn.functional as functional


class Body:
    dtype = torch.bfloat16

    def __init__(self, shape, folder):
        self.shape, self.folder = shape, folder
        self.set_up(**shape)

    def own(self):
        return None

    def load(self, what, size, pinned=False):
        raw = bytearray((self.folder / what).read_bytes())
        data = torch.frombuffer(raw, dtype=self.dtype).view(*size)
        return data.pin_memory() if pinned else data.cuda()

    def weights(self, count, size, pinned=False):
        return [self.load(f"w_{i}_", size, pinned) for i in range(count)]


class Branches(Body):
    """Products of one value after another, in branches that are added up."""

    def set_up(self, width, count, depth):
        self.depth, self.lanes = depth, count
        self.sides, self.outputs = count - 1, {"y": (width, width)}
        self.x = self.load("x", (width, width), pinned=True)
        self.w = self.weights(count * depth, (width, width))
        self.count = count

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        lanes = [streams.main, *streams.side]
        use(streams.up)
        start = self.x.to("cuda", non_blocking=True)
        slot.keep(start)
        for lane in lanes:
            streams.after(lane, streams.up)
        branches = []
        for b in range(self.count):
            use(lanes[b % len(lanes)])
            y = start
            for d in range(self.depth):
                y = (y @ self.w[b * self.depth + d]).relu_()
            branches.append(y)
            slot.keep(y)
        use(streams.main)
        for lane in lanes[1:]:
            streams.after(streams.main, lane)
        y = branches[0]
        for branch in branches[1:]:
            y = y + branch
        slot.keep(y)
        streams.after(streams.down, streams.main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Towers(Branches):
    """Branches of few rows, more of them than streams."""

    def set_up(self, rows, width, count, depth):
        self.depth, self.count = depth, count
        self.sides, self.outputs = min(count, 8) - 1, {"y": (rows, width)}
        self.x = self.load("x", (rows, width), pinned=True)
        self.w = self.weights(count * depth, (width, width))


class Diamonds(Body):
    """Two products of one value, added; many times."""

    def set_up(self, width, count):
        self.count = count
        self.sides, self.outputs = 1, {"y": (width, width)}
        self.x = self.load("x", (width, width), pinned=True)
        self.w = self.weights(2 * count, (width, width))

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


class Ensemble(Body):
    """Two models on the same rows."""

    def set_up(self, rows, features, classes):
        self.sides, self.outputs = 1, {"y": (rows,)}
        self.x = self.load("x", (rows, features), pinned=True)
        self.w = self.weights(2, (features, classes))

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


class Ring:
    """Weight buffers that uploads take in turn, as far as the window of two ahead holds."""

    def __init__(self, size):
        self.buffers = [torch.empty(*size, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        self.read = [torch.cuda.Event() for _ in self.buffers]
        self.was_read = [False for _ in self.buffers]


class Offload(Body):
    """Weights streamed in while activations go out."""

    def set_up(self, width, rows, layers):
        self.layers, self.size = layers, (width, width)
        self.kept_layers = list(range(2, layers - 1, 3))
        self.sides = 0
        self.outputs = {f"a{layer}": (rows, width) for layer in self.kept_layers} | {"y": (rows, width)}
        self.x = self.load("x", (rows, width), pinned=True)
        self.w = self.weights(layers, self.size, pinned=True)

    def own(self):
        return Ring(self.size)

    def tick(self, slot):
        streams, ring, use = slot.streams, slot.own, torch.cuda.set_stream
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


class Decode(Body):
    """Few rows through layers of two products, with gelu between them and a residual around them."""

    def set_up(self, rows, width, hidden, layers):
        self.sides, self.outputs = 0, {"y": (rows, width)}
        self.x = self.load("x", (rows, width), pinned=True)
        self.w = [
            self.load(f"w_{i}_", (width, hidden) if i % 2 == 0 else (hidden, width)) for i in range(2 * layers)
        ]

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        use(streams.up)
        y = self.x.to("cuda", non_blocking=True)
        slot.keep(y)
        streams.after(streams.main, streams.up)
        use(streams.main)
        for into, out in zip(self.w[::2], self.w[1::2]):
            y = y + functional.gelu(y @ into) @ out
        slot.keep(y)
        streams.after(streams.down, streams.main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


class Wide(Body):
    """A Walsh-Hadamard transform over rows, then the largest of each column: layers of additions and
    subtractions of two rows each. A stream has eight neighbouring rows.
    """

    def set_up(self, rows, size):
        self.rows = rows
        self.sides, self.outputs = max(1, rows // 8) - 1, {"y": (1, size)}
        self.x = self.load("x", (rows, size), pinned=True)

    def meet(self, slot, lanes, stride):
        """Lane i comes after lane i + stride / 8 and the other way round."""
        streams, apart = slot.streams, stride // 8
        if apart == 0 or not streams.several:
            return
        marks = [streams.mark(lane) for lane in lanes]
        for i, lane in enumerate(lanes):
            streams.after_mark(lane, marks[i ^ apart], lanes[i ^ apart])

    def tick(self, slot):
        streams, use = slot.streams, torch.cuda.set_stream
        lanes = [streams.main, *streams.side]
        use(streams.up)
        x = self.x.to("cuda", non_blocking=True)
        slot.keep(x)
        for lane in lanes:
            streams.after(lane, streams.up)
        values = [x[i : i + 1] for i in range(self.rows)]
        stride = 1
        while stride < self.rows:
            self.meet(slot, lanes, stride)
            before, values = values, []
            for i in range(self.rows):
                use(lanes[i // 8])
                a, b = before[i], before[i ^ stride]
                values.append(a + b if i & stride == 0 else b - a)
                slot.keep(values[-1])
            stride *= 2
        while stride > 1:
            stride //= 2
            self.meet(slot, lanes, stride)
            for i in range(stride):
                use(lanes[i // 8])
                values[i] = torch.maximum(values[i], values[i + stride])
                slot.keep(values[i])
        streams.after(streams.down, streams.main)
        use(streams.down)
        slot.outputs["y"].copy_(values[0], non_blocking=True)


class Lattice(Body):
    """Rows of one small kernel a column, each from its column and the next one in the row above; a stream a
    column. A column's values lie in four buffers in turn: when a row is begun, its readers of four rows above
    are done.
    """

    dtype = torch.int32

    def set_up(self, columns, rows, size):
        self.columns, self.rows, self.size = columns, rows, size
        self.sides, self.outputs = columns - 1, {"y": (1, size)}
        self.x = self.load("x", (columns, size), pinned=True)

    def own(self):
        make = lambda: torch.empty(1, self.size, dtype=self.dtype, device="cuda")
        return [[make() for _ in range(self.columns)] for _ in range(4)]

    def tick(self, slot):
        streams, use, columns = slot.streams, torch.cuda.set_stream, range(self.columns)
        lanes = [streams.main, *streams.side]
        use(streams.up)
        x = self.x.to("cuda", non_blocking=True)
        slot.keep(x)
        for lane in lanes:
            streams.after(lane, streams.up)
        values = [x[c : c + 1] for c in columns]
        for row in range(self.rows):
            if row > 0:
                marks = [streams.mark(lane) for lane in lanes]
                for c in columns:
                    next_one = (c + 1) % self.columns
                    streams.after_mark(lanes[c], marks[next_one], lanes[next_one])
            before, values = values, slot.own[row % 4]
            for c in columns:
                use(lanes[c])
                torch.add(before[c], before[(c + 1) % self.columns], alpha=2, out=values[c])
        for lane in lanes[1:]:
            streams.after(streams.main, lane)
        use(streams.main)
        y = values[0]
        for value in values[1:]:
            y = y + value
        slot.keep(y)
        streams.after(streams.down, streams.main)
        use(streams.down)
        slot.outputs["y"].copy_(y, non_blocking=True)


bodies = {
    "branches": Branches,
    "diamonds": Diamonds,
    "ensemble": Ensemble,
    "offload": Offload,
    "decode": Decode,
    "towers": Towers,
    "wide": Wide,
    "lattice": Lattice,
}
