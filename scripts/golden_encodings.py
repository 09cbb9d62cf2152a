"""Writes golden numbers of encodings, evaluated from their formulas in f64 by plain Python.

    python3 scripts/golden_encodings.py

Each function below is independent: it loops over heads, queries and keys and shares no code with the crate. A case holds a
configuration, its parameters by path, queries, keys and the layer's input, and the logits of one layer up to each query. The test
`golden::logits` reads every file of the folder, so that a new encoding is a function here and its line in ENCODINGS.
"""

import json
import math
from pathlib import Path

FOLDER = Path("crates/posenc/tests/golden/logits")
SCALINGS = Path("crates/posenc/tests/golden/rope_scaling_2.json")
HEAD = {
    "verified_against": "the formula alone; no public implementation was run",
    "tolerance": "1e-6",
    "notes": "q and k [H, tokens, head_dim], hidden [tokens, d_model]; logits [H, rows up to the query], after the division by "
    "sqrt(head_dim)",
}


class Numbers:
    """Multiples of 1/64 in -1..1, which f32 holds exactly (a linear congruential generator)."""

    def __init__(self, seed):
        self.state = seed * 2654435761 % 2**32

    def one(self):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return ((self.state >> 16) % 129 - 64) / 64

    def list(self, *shape):
        if not shape:
            return self.one()
        return [self.list(*shape[1:]) for _ in range(shape[0])]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def column(matrix, j):
    return [row[j] for row in matrix]


def alibi_slopes(heads):
    """The authors' slopes for a power of two."""
    return [2 ** (-8 * h / heads) for h in range(1, heads + 1)]


def rotated(x, angles):
    """Pairs (i, i + d/2) of x turned by angles."""
    half = len(x) // 2
    a, b = x[:half], x[half:]
    turned = [(p * math.cos(t) - q * math.sin(t), q * math.cos(t) + p * math.sin(t)) for p, q, t in zip(a, b, angles, strict=True)]
    return [p for p, _ in turned] + [q for _, q in turned]


class Layer:
    """One layer's attention: random q, k and hidden of `tokens` tokens; parameters drawn when asked for."""

    def __init__(self, seed, heads=2, head_dim=4, tokens=6, start=0):
        numbers = Numbers(seed)
        self.numbers, self.heads, self.head_dim, self.tokens = numbers, heads, head_dim, tokens
        self.d_model = heads * head_dim
        self.positions = [start + t for t in range(tokens)]
        self.q, self.k = numbers.list(heads, tokens, head_dim), numbers.list(heads, tokens, head_dim)
        self.hidden = numbers.list(tokens, self.d_model)
        self.parameters = {}

    def parameter(self, path, *shape, scale=1.0, offset=0.0):
        def scaled(x):
            return [scaled(y) for y in x] if isinstance(x, list) else x * scale + offset

        self.parameters[path] = scaled(self.numbers.list(*shape))
        return self.parameters[path]

    def product(self, h, i, j):
        return dot(self.q[h][i], self.k[h][j]) / math.sqrt(self.head_dim)

    def turned(self, h, i, j, query_angles, key_angles):
        """The product of a query and a key turned by these angles."""
        return dot(rotated(self.q[h][i], query_angles), rotated(self.k[h][j], key_angles)) / math.sqrt(self.head_dim)

    def case(self, name, config, logit):
        logits = [[[logit(h, i, j) for j in range(i + 1)] for i in range(self.tokens)] for h in range(self.heads)]
        inputs = {
            "config": config,
            "head_dim": self.head_dim,
            "positions": self.positions,
            "parameters": self.parameters,
            "q": self.q,
            "k": self.k,
            "hidden": self.hidden,
        }
        return {"name": name, "kind": "logits", "inputs": inputs, "expected": logits}


def alibi():
    """DeepMind's form for bidirectional attention, half a slope less for every key before the query, and logarithms of distances."""
    layer = Layer(1)
    slopes = alibi_slopes(layer.heads)

    def logit(h, i, j):
        return layer.product(h, i, j) - slopes[h] * ((i - j) - (0.5 if j < i else 0))

    yield layer.case("asymmetric", {"kind": "alibi", "asymmetric": True}, logit)
    far = Layer(18)
    far.positions = [0, 1, 5, 40, 413, 8000]

    def far_logit(h, i, j):
        return far.product(h, i, j) - slopes[h] * math.log(1 + far.positions[i] - far.positions[j])

    yield far.case("log_distance", {"kind": "alibi", "log_distance": True}, far_logit)


def kerple():
    for form in ["log", "power", "log3"]:
        for weight in [False, True]:
            layer = Layer(2)
            names = ["r1", "r2"] + (["r3"] if form == "log3" else []) + (["w1", "w2"] if weight else [])
            r = {name: layer.parameter(name, layer.heads, scale=0.5, offset=0.625) for name in names}

            def logit(h, i, j, form=form, weight=weight, r=r, layer=layer):
                d = i - j
                bias = {
                    "log": lambda: -r["r1"][h] * math.log(1 + r["r2"][h] * d),
                    "power": lambda: -r["r1"][h] * d ** r["r2"][h],
                    "log3": lambda: -r["r1"][h] * math.log(1 + r["r2"][h] * d ** r["r3"][h]),
                }[form]()
                factor = math.exp(-r["w1"][h] * d ** r["w2"][h]) if weight else 1
                return factor * layer.product(h, i, j) + bias

            if form == "log3" or weight:
                yield layer.case(f"{form}{'_weight' if weight else ''}", {"kind": "kerple", "form": form, "weight": weight}, logit)


def deberta():
    """Both places where the position-to-content term may read its table."""
    span = 3
    for form in ["paper", "code"]:
        layer = Layer(3)
        table = layer.parameter("table", 2 * span, layer.d_model, scale=0.5)
        c2p = layer.parameter("c2p.0", layer.d_model, layer.d_model, scale=0.5)
        p2c = layer.parameter("p2c.0", layer.d_model, layer.d_model, scale=0.5)

        def row(distance):
            return min(max(distance + span, 0), 2 * span - 1)

        def projected(at, matrix, h, table=table, layer=layer):
            whole = [dot(table[at], column(matrix, c)) for c in range(layer.d_model)]
            return whole[h * layer.head_dim : (h + 1) * layer.head_dim]

        def logit(h, i, j, form=form, layer=layer, c2p=c2p, p2c=p2c, projected=projected):
            read = row(j - i) if form == "paper" else row(i - j)
            total = (
                dot(layer.q[h][i], layer.k[h][j])
                + dot(layer.q[h][i], projected(row(i - j), c2p, h))
                + dot(layer.k[h][j], projected(read, p2c, h))
            )
            return total / math.sqrt(3 * layer.head_dim)

        yield layer.case(form, {"kind": "deberta", "max_distance": span, "form": form}, logit)


def log_scaling():
    """Scalable-Softmax: the logits times s_h times the logarithm of the number of keys."""
    layer = Layer(15)
    scale = layer.parameter("scale.0", layer.heads, offset=1.5)

    def logit(h, i, j):
        return layer.product(h, i, j) * scale[h] * math.log(i + 1)

    yield layer.case("ssmax", {"kind": "log_scaling", "form": "ssmax", "original_max_position_embeddings": 64}, logit)


def mobius():
    """Odd multiples of a half turn over 24 tokens in the first of two heads, RoPE in the other."""
    layer = Layer(4, start=17)

    def logit(h, i, j):
        theta = [math.pi * (2 * p + 1) / 24 for p in range(2)] if h == 0 else [1.0, 0.01]
        m, n = layer.positions[i], layer.positions[j]
        return layer.turned(h, i, j, [m * t for t in theta], [n * t for t in theta])

    config = {"kind": "mobius", "fraction": 0.5, "original_max_position_embeddings": 24}
    yield layer.case("half_of_the_heads", config, logit)


def fope():
    """Four frequencies, of which three complete a turn in 80 tokens, in two columns; both ways to fill the other pairs."""
    head_dim, base, reach = 8, 20.0, 80
    theta = [t for t in (base ** (-2 * i / head_dim) for i in range(head_dim // 2)) if t >= 2 * math.pi / reach]
    rows, columns = len(theta), min(len(theta), head_dim // 4)
    step = math.ceil(rows / columns)
    for pad, learnable in [("paper", True), ("code", True), ("paper", False)]:
        layer = Layer(5, head_dim=head_dim, start=3)
        cos = layer.parameter("cos", layer.heads, rows, columns, scale=0.5)
        sin = layer.parameter("sin", layer.heads, rows, columns, scale=0.5)

        def wave(of, matrix, position, h):
            mixed = [
                sum(of(position * theta[r]) * (matrix[h][r][c] + (1 if r == c * step else 0)) for r in range(rows)) for c in range(columns)
            ]
            return mixed

        def turned(x, position, h, pad=pad, cos=cos, sin=sin, wave=wave):
            half = head_dim // 2
            c = wave(math.cos, cos, position, h) + [1.0] * (half - columns)
            s = wave(math.sin, sin, position, h) + [1.0 if pad == "code" else 0.0] * (half - columns)
            first = [x[p] * c[p] - x[p + half] * s[p] for p in range(half)]
            return first + [x[p + half] * c[p] + x[p] * s[p] for p in range(half)]

        def logit(h, i, j, layer=layer, turned=turned):
            m, n = layer.positions[i], layer.positions[j]
            return dot(turned(layer.q[h][i], m, h), turned(layer.k[h][j], n, h)) / math.sqrt(head_dim)

        config = {"kind": "fope", "base": base, "original_max_position_embeddings": reach, "pad": pad, "learnable": learnable}
        yield layer.case(pad if learnable else f"{pad}, not trained", config, logit)


def cable():
    for scaled in [True, False]:
        layer = Layer(6)
        weight = layer.parameter("layers.0.weight", layer.d_model, layer.heads, scale=0.5)
        bias = layer.parameter("layers.0.bias", layer.heads)

        def logit(h, i, j, scaled=scaled, layer=layer, weight=weight, bias=bias):
            added = [math.log(1 + math.exp(dot(x, column(weight, h)) + bias[h])) for x in layer.hidden]
            root = 1 if scaled else math.sqrt(layer.head_dim)
            return root * layer.product(h, i, j) - sum(added[j + 1 : i + 1])

        yield layer.case("scaled" if scaled else "unscaled", {"kind": "cable", "scaled": scaled}, logit)


def grape_a():
    for gate in ["key", "query", "both"]:
        layer = Layer(7)
        omega = layer.parameter("layers.0.omega", layer.heads)
        u = layer.parameter("layers.0.key", layer.heads, layer.head_dim) if gate != "query" else None
        v = layer.parameter("layers.0.query", layer.heads, layer.head_dim) if gate != "key" else None
        slopes = alibi_slopes(layer.heads)

        def opened(x, vector, layer=layer):
            unit = [y / math.sqrt(dot(vector, vector)) for y in vector]
            return math.log(1 + math.exp(dot(x, unit) / math.sqrt(layer.head_dim)))

        def logit(h, i, j, layer=layer, omega=omega, u=u, v=v, slopes=slopes, opened=opened):
            rate = (opened(layer.k[h][j], u[h]) if u else 0) + (opened(layer.q[h][i], v[h]) if v else 0)
            slope = slopes[h] * math.log(1 + math.exp(omega[h]))
            return layer.product(h, i, j) - (i - j) * slope * rate

        yield layer.case(gate, {"kind": "grape_a", "gate": gate}, logit)


def grape_ap():
    """The rotation turns every pair of the key's side by minus its position."""
    layer, width = Layer(8, start=5), 4
    weight = layer.parameter("layers.0", layer.d_model, layer.heads * width)
    slopes = alibi_slopes(layer.heads)

    def p(t, h):
        return [dot(layer.hidden[t], column(weight, h * width + c)) for c in range(width)]

    def step(i, at, h):
        x = p(at, h)
        root = math.sqrt(dot(x, x) / width + 2**-23)
        turned = rotated([y / root for y in x], [-layer.positions[at]] * (width // 2))
        return slopes[h] * math.log(sigmoid(dot(p(i, h), turned) / width))

    def logit(h, i, j):
        return layer.product(h, i, j) + sum(step(i, at, h) for at in range(j + 1, i + 1))

    yield layer.case("path", {"kind": "grape_ap", "width": width}, logit)


def selective_rope():
    """Phases from a convolution over two tokens; with an offset, gates and trained temperatures, and without."""
    base, rank, kernel = 500.0, 3, 2
    for full in [False, True]:
        layer = Layer(16, tokens=7, start=9)
        heads, pairs = layer.heads, layer.head_dim // 2
        down = layer.parameter("layers.0.down", layer.d_model, rank)
        up = layer.parameter("layers.0.up", rank, heads * pairs)
        taps = layer.parameter("layers.0.convolution", kernel, heads * pairs)
        if full:
            offset = layer.parameter("layers.0.offset", heads * pairs)
            gate_weight = layer.parameter("layers.0.gate_weight", layer.d_model, heads)
            gate_bias = layer.parameter("layers.0.gate_bias", heads)
            alpha = layer.parameter("layers.0.log_temperature", pairs)
        theta = [base ** (-2 * i / layer.head_dim) * (math.exp(alpha[i]) if full else 1) for i in range(pairs)]
        normed = []
        for x in layer.hidden:
            parts = [x[h * layer.head_dim : (h + 1) * layer.head_dim] for h in range(heads)]
            normed.append([y / math.sqrt(dot(part, part) + 1e-6) for part in parts for y in part])
        narrow = [[dot(x, column(down, r)) for r in range(rank)] for x in normed]
        raw = [[dot(x, column(up, c)) for c in range(heads * pairs)] for x in narrow]
        angles = [[[0.0] * pairs for _ in range(layer.tokens)] for _ in range(heads)]
        for h in range(heads):
            for i in range(pairs):
                total, c = 0.0, h * pairs + i
                for t in range(layer.tokens):
                    phi = taps[1][c] * raw[t][c] + (taps[0][c] * raw[t - 1][c] if t else 0)
                    if full:
                        phi += math.exp(offset[c])
                        phi *= sigmoid(dot(normed[t], column(gate_weight, h)) + gate_bias[h])
                    total += phi
                    angles[h][t][i] = total * theta[i]

        def logit(h, i, j, layer=layer, angles=angles):
            return layer.turned(h, i, j, angles[h][i], angles[h][j])

        config = {"kind": "selective_rope", "base": base, "rank": rank, "kernel": kernel, "bias": full, "gate": full, "learnable": full}
        yield layer.case("every_option" if full else "plain", config, logit)


def darope():
    """Two pairs turn in 16 tokens and two turn by content, at positions on both sides of 16; and all four by content at a length of 5."""
    for length in [16, 5]:
        layer = Layer(19, head_dim=8, tokens=7)
        layer.positions = [0, 3, 8, 14, 15, 17, 90]
        weight = layer.parameter("layers.0.weight", layer.d_model, layer.heads)
        alpha = layer.parameter("layers.0.alpha", layer.heads)
        theta = [25 ** (-2 * i / 8) for i in range(4)]

        def angles(h, t, layer=layer, weight=weight, alpha=alpha, length=length, theta=theta):
            p = layer.positions[t]
            share = min(max((p + 0.5) / length, 1e-6), 1 - 1e-6)
            beta = math.log(share) - math.log(1 - share)
            c = length * sigmoid(dot(layer.hidden[t], column(weight, h)) + alpha[h] * beta)
            return [(p if x >= 2 * math.pi / length else c) * x for x in theta]

        def logit(h, i, j, layer=layer, angles=angles):
            return layer.turned(h, i, j, angles(h, i), angles(h, j))

        config = {"kind": "darope", "base": 25.0, "original_max_position_embeddings": length}
        yield layer.case(f"length_{length}", config, logit)


def repo():
    """Positions from three channels, on layer 0."""
    layer, width = Layer(23, tokens=7, start=5), 3
    gate, content = (layer.parameter(f"layers.0.{name}", layer.d_model, width) for name in ["gate", "content"])
    position = layer.parameter("layers.0.position", width, layer.heads, scale=4.0)
    theta = [9 ** (-2 * i / layer.head_dim) for i in range(layer.head_dim // 2)]

    def angles(h, t):
        opened = [dot(layer.hidden[t], column(gate, c)) for c in range(width)]
        held = [dot(layer.hidden[t], column(content, c)) for c in range(width)]
        z = sum(g * sigmoid(g) * held[c] * position[c][h] for c, g in enumerate(opened))
        return [z * x for x in theta]

    def logit(h, i, j):
        return layer.turned(h, i, j, angles(h, i), angles(h, j))

    yield layer.case("three_channels", {"kind": "repo", "base": 9.0, "width": width}, logit)


def grape_m():
    """Trained frequencies of two pairs; phases by position and by content, by head and for all heads."""
    for phase, per_head in [("position", False), ("position", True), ("sigmoid", False), ("softplus", True)]:
        layer = Layer(17, start=6)
        heads = layer.heads if per_head else 1
        alpha = layer.parameter("layers.0.log_frequency", heads, 2)
        content = phase != "position"
        weight = layer.parameter("layers.0.weight", layer.d_model, heads) if content else None
        bias = layer.parameter("layers.0.bias", heads) if content else None

        def theta(h, alpha=alpha, per_head=per_head, content=content):
            own = alpha[h if per_head else 0]
            return [t * math.exp(a / (1 if content else 16)) for t, a in zip([1.0, 0.01], own, strict=True)]

        def reached(h, t, layer=layer, phase=phase, per_head=per_head, weight=weight, bias=bias):
            if weight is None:
                return layer.positions[t]
            at = h if per_head else 0
            opened = [dot(x, column(weight, at)) + bias[at] for x in layer.hidden[:t]]
            step = (lambda z: sigmoid(z / 16)) if phase == "sigmoid" else (lambda z: math.log(1 + math.exp(z)))
            return sum(step(z) for z in opened)

        def logit(h, i, j, layer=layer, theta=theta, reached=reached):
            return layer.turned(h, i, j, [reached(h, i) * t for t in theta(h)], [reached(h, j) * t for t in theta(h)])

        name = f"{phase}{'_per_head' if per_head else ''}"
        yield layer.case(name, {"kind": "grape_m", "phase": phase, "per_head": per_head}, logit)


def path():
    """One reflection after the other, over more tokens than a chunk of 16; with and without gates and convolution."""
    rank = 3
    for forget, kernel in [("none", 3), ("plain", 2), ("scaled", 0)]:
        layer = Layer(18, tokens=19)
        heads, width = layer.heads, layer.head_dim
        down = layer.parameter("layers.0.down", layer.d_model, rank)
        up = layer.parameter("layers.0.up", rank, heads * width)
        taps = layer.parameter("layers.0.convolution", kernel, heads * width) if kernel else []
        beta_weight = layer.parameter("layers.0.beta_weight", layer.d_model, heads)
        beta_bias = layer.parameter("layers.0.beta_bias", heads)
        gated = forget != "none"
        gate_weight = layer.parameter("layers.0.gates.0.weight", layer.d_model, heads) if gated else None
        gate_bias = layer.parameter("layers.0.gates.0.bias", heads) if gated else None
        gates = (gate_weight, gate_bias)
        narrow = [[dot(x, column(down, r)) for r in range(rank)] for x in layer.hidden]
        raw = [[dot(x, column(up, c)) for c in range(heads * width)] for x in narrow]

        def direction(h, t, layer=layer, kernel=kernel, taps=taps, raw=raw, width=width):
            w = []
            for c in range(h * width, (h + 1) * width):
                if kernel:
                    z = sum(taps[kernel - 1 - back][c] * raw[t - back][c] for back in range(kernel) if t >= back)
                    w.append(z * sigmoid(z))
                else:
                    w.append(raw[t][c])
            length = math.sqrt(dot(w, w) + 1e-6)
            return [x / length for x in w]

        def logit(h, i, j, layer=layer, forget=forget, direction=direction, beta=(beta_weight, beta_bias), gates=gates):
            key, forgotten = layer.k[h][j], 0.0
            for t in range(j + 1, i + 1):
                w = direction(h, t)
                along = 2 * sigmoid(dot(layer.hidden[t], column(beta[0], h)) + beta[1][h]) * dot(w, key)
                key = [x - along * y for x, y in zip(key, w, strict=True)]
                if forget != "none":
                    forgotten += math.log(sigmoid(dot(layer.hidden[t], column(gates[0], h)) + gates[1][h]))
            root = math.sqrt(layer.head_dim)
            return dot(layer.q[h][i], key) / root + (forgotten / root if forget == "scaled" else forgotten)

        yield layer.case(f"{forget}_kernel_{kernel}", {"kind": "path", "rank": rank, "kernel": kernel, "forget": forget}, logit)


def wall():
    """Over more tokens than a chunk of 16."""
    layer = Layer(19, tokens=18)
    weight = layer.parameter("layers.0.weight", layer.d_model, layer.d_model)
    bias = layer.parameter("layers.0.bias", layer.d_model, offset=2.0)

    def logit(h, i, j):
        total = 0.0
        for e in range(layer.head_dim):
            c = h * layer.head_dim + e
            kept = math.prod(sigmoid(dot(x, column(weight, c)) + bias[c]) for x in layer.hidden[j + 1 : i + 1])
            total += layer.q[h][i][e] * layer.k[h][j][e] * kept
        return total / math.sqrt(layer.head_dim)

    yield layer.case("decays", {"kind": "wall"}, logit)


def relative_projection():
    layer, curves, reach = Layer(9), 3, 4
    weight = layer.parameter("layers.0.weight", layer.d_model, layer.heads * curves)
    bias = layer.parameter("layers.0.bias", layer.heads * curves)
    bank = layer.parameter("layers.0.curves", curves, reach)

    def logit(h, i, j):
        share = [dot(layer.hidden[i], column(weight, h * curves + b)) + bias[h * curves + b] for b in range(curves)]
        added = dot(share, column(bank, i - j)) if i - j < reach else 0
        return layer.product(h, i, j) + added

    config = {"kind": "relative_projection", "curves": curves, "max_distance": reach}
    yield layer.case("three_curves", config, logit)


def stick_breaking():
    """The softmax of the logits is the share of the stick: its logarithm is what they have to be."""
    layer = Layer(10)

    def logit(h, i, j):
        def left(keys):
            return math.prod(1 - sigmoid(layer.product(h, i, at)) for at in keys)

        share = left(range(i)) if j == i else sigmoid(layer.product(h, i, j)) * left(range(j + 1, i))
        return math.log(share)

    yield layer.case("shares", {"kind": "stick_breaking"}, logit)


def dape():
    """Around ALiBi and around nothing, without and with neighbours among the keys."""
    width = 3
    for part in ["alibi", "nope"]:
        for kernel in [1, 3]:
            layer = Layer(11)
            inputs = layer.heads * (2 if part == "alibi" else 1)
            w1 = layer.parameter("functions.0.w1", kernel * inputs, width)
            b1 = layer.parameter("functions.0.b1", width)
            w2 = layer.parameter("functions.0.w2", kernel * width, layer.heads)
            b2 = layer.parameter("functions.0.b2", layer.heads)
            slopes = alibi_slopes(layer.heads)

            def bias(h, i, j, part=part, slopes=slopes):
                return -slopes[h] * (i - j) if part == "alibi" else 0

            def seen(i, j, layer=layer, bias=bias, inputs=inputs):
                """A of all heads, then B of all heads; 0 outside the row."""
                if not 0 <= j <= i:
                    return [0] * inputs
                a = [layer.product(h, i, j) for h in range(layer.heads)]
                b = [bias(h, i, j) for h in range(layer.heads)]
                return (a + b)[:inputs]

            def around(row, j, kernel=kernel):
                return [x for at in range(j - kernel // 2, j + kernel // 2 + 1) for x in row(at)]

            def hidden(i, j, w1=w1, b1=b1, seen=seen, around=around):
                if not 0 <= j <= i:
                    return [0] * width
                x = around(lambda at: seen(i, at), j)
                z = [dot(x, column(w1, c)) + b1[c] for c in range(width)]
                return [y if y > 0 else 0.01 * y for y in z]

            def logit(h, i, j, layer=layer, w2=w2, b2=b2, bias=bias, hidden=hidden, around=around):
                x = around(lambda at: hidden(i, at), j)
                return layer.product(h, i, j) + bias(h, i, j) + dot(x, column(w2, h)) + b2[h]

            config = {"kind": "dape", "hidden": width, "kernel": kernel, "part": {"kind": part}}
            yield layer.case(f"{part}_kernel_{kernel}", config, logit)


def by_head():
    """A head without an encoding, one that turns, two with the slopes of two heads; and the other way round."""
    layer = Layer(15, heads=4)
    slopes = alibi_slopes(2)

    def logit(h, i, j):
        if h == 0:
            return layer.product(h, i, j)
        return layer.turned(h, i, j, [i, i * 0.01], [j, j * 0.01]) if h == 1 else layer.product(h, i, j) - slopes[h - 2] * (i - j)

    parts = [{"kind": "nope"}, {"kind": "rope"}, {"kind": "alibi"}]
    yield layer.case("three_parts", {"kind": "by_head", "parts": parts, "heads": [1, 1, 2]}, logit)
    layer = Layer(16, heads=4)

    def nape(h, i, j, layer=layer):
        return layer.product(h, i, j) - (slopes[h] * (i - j) if h < 2 else 0)

    yield layer.case("halves", {"kind": "by_head", "parts": [{"kind": "alibi"}, {"kind": "nope"}]}, nape)


def by_layer():
    """The first layer of a pattern that begins with the second part."""
    layer = Layer(12)
    slopes = alibi_slopes(layer.heads)
    config = {"kind": "by_layer", "parts": [{"kind": "rope"}, {"kind": "alibi"}], "pattern": [1, 0]}
    yield layer.case("first_layer", config, lambda h, i, j: layer.product(h, i, j) - slopes[h] * (i - j))


def string():
    layer, shift, window = Layer(13, tokens=8), 3, 1

    def logit(h, i, j):
        d = i - j
        distance = d if d < shift else d - shift + window
        return layer.turned(h, i, j, [distance, distance * 0.01], [0, 0])

    yield layer.case("shifted_by_two", {"kind": "string", "shift": shift, "window": window}, logit)


def waveprune():
    """Wavelengths of 2 pi and of 10 pi: the second pair goes on after the first has ended; a dimension that is not rotated never ends."""
    for layout, rotated_dims in [("half", 4), ("interleaved", 4), ("half", 2)]:
        layer = Layer(20, tokens=7)
        layer.positions = [0, 6, 7, 31, 32, 40, 1000]
        pairs = rotated_dims // 2
        theta = [25 ** (-2 * i / rotated_dims) for i in range(pairs)]

        def logit(h, i, j, layer=layer, layout=layout, rotated_dims=rotated_dims, pairs=pairs, theta=theta):
            q, k = layer.q[h][i], layer.k[h][j]
            d = layer.positions[i] - layer.positions[j]
            total = dot(q[rotated_dims:], k[rotated_dims:])
            for p, t in enumerate(theta):
                a, b = (p, p + pairs) if layout == "half" else (2 * p, 2 * p + 1)
                if t * d < 2 * math.pi:
                    c, s = math.cos(t * d), math.sin(t * d)
                    total += c * (q[a] * k[a] + q[b] * k[b]) + s * (q[a] * k[b] - q[b] * k[a])
            return total / math.sqrt(layer.head_dim)

        config = {"kind": "waveprune", "base": 25.0, "layout": layout, "rotary_dim": rotated_dims}
        yield layer.case(f"{layout}_{rotated_dims}", config, logit)


def dual_chunk():
    """Chunks of 3 tokens and one of a local window: the third chunk sees all three zones."""
    layer, largest, local = Layer(14, tokens=11), 4, 1
    c = largest - local

    def logit(h, i, j):
        chunks = i // c - j // c
        query = [i % c, min(i % c + c, largest), min(2 * c - 1, largest)][min(chunks, 2)]
        key = j % c
        return layer.turned(h, i, j, [query, query * 0.01], [key, key * 0.01])

    yield layer.case("three_zones", {"kind": "dual_chunk", "chunk_size": largest, "local_window": local}, logit)


# name of the file, function, what the numbers are of
ENCODINGS = [
    ("alibi", alibi, "ALiBi's asymmetric form: DeepMind, Ruoss et al. 2023 (arXiv 2305.16843); log_distance: Schroeder et al. 2026 (arXiv 2608.03994)"),
    ("kerple", kerple, "KERPLE's kernels of three parameters and with a weight: Chi et al. 2022 (arXiv 2205.09921)"),
    ("deberta", deberta, "DeBERTa by its paper (arXiv 2006.03654, eq. 4) and by its released code"),
    ("log_scaling", log_scaling, "Scalable-Softmax, Nakanishi 2025 (arXiv 2501.19399)"),
    ("mobius", mobius, "Anti-Periodic Positional Encoding, 2026 (arXiv 2607.21405)"),
    ("fope", fope, "Hua et al. 2024 (arXiv 2412.17739), and FourierEmbedding in the authors' olmo/model.py"),
    ("cable", cable, "CABLE: axiomlab/Cable, Cable.py"),
    ("grape_a", grape_a, "GRAPE, 2025 (arXiv 2512.07805): the key- and query-gated additive bias of the authors' code"),
    ("grape_ap", grape_ap, "GRAPE, 2025 (arXiv 2512.07805): the path-integral bias of the authors' code"),
    ("darope", darope, "DaRoPE, Levy et al. 2026 (arXiv 2609.34556): equations 2 to 6 and method 1"),
    ("repo", repo, "RePo, Li et al. 2025 (arXiv 2512.14391), and the authors' OLMo/olmo/model.py, mode swigluex_multihead"),
    ("selective_rope", selective_rope, "Movahedi et al. 2026 (arXiv 2511.17388), and the authors' modules/rotary.py"),
    ("grape_m", grape_m, "GRAPE, 2025 (arXiv 2512.07805): the commuting rotations of the authors' code, by position and by content"),
    ("path", path, "Yang et al. 2025 (arXiv 2505.16381): one reflection after the other, w and beta as in flash-linear-attention"),
    ("wall", wall, "Wall attention of flash-linear-attention"),
    ("relative_projection", relative_projection, "RelativeProjPositionalBias of x-transformers"),
    ("stick_breaking", stick_breaking, "Tan et al. 2024 (arXiv 2410.17980), the remainder to the query's own token"),
    ("dape", dape, "Zheng et al. 2024 (arXiv 2405.14722 and 2410.04798), the hidden layer 0 past the query"),
    ("by_head", by_head, "the definition: the first heads have the first part, slopes are those of the part's own number of heads"),
    ("by_layer", by_layer, "the definition: layer 0 has the part that the pattern names first"),
    ("string", string, "STRING, An et al. 2024 (arXiv 2410.18745)"),
    ("waveprune", waveprune, "WavePrune, Du et al. 2026 (arXiv 2610.06963), by its abstract"),
    ("dual_chunk", dual_chunk, "Dual Chunk Attention, An et al. 2024 (arXiv 2402.17463)"),
]


def plain(dim, base):
    return [base ** (-2 * i / dim) for i in range(dim // 2)]


def ramp_ends(dim, base, original, fast, slow, whole):
    """First pair that is scaled and first that is scaled in full, as in YaRN's code."""
    ends = [dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow)]
    low, high = (math.floor(ends[0]), math.ceil(ends[1])) if whole else ends
    return max(low, 0), min(high, dim - 1)


def yarn_equal_ends():
    """Hugging Face widens a ramp of no width by 0.001."""
    dim, base, s, original, turns = 16, 10000.0, 4.0, 512, 4.0
    low, high = ramp_ends(dim, base, original, turns, turns, False)
    high += 0.001
    share = [min(max((i - low) / (high - low), 0), 1) for i in range(dim // 2)]
    theta = [t * (1 - r) + t / s * r for t, r in zip(plain(dim, base), share, strict=True)]
    options = {"beta_fast": turns, "beta_slow": turns, "truncate": False}
    yield "yarn_equal_betas", dim, base, s, original, "yarn", options, theta, 0.1 * math.log(s) + 1


def mrrope():
    """The divisors of a head of 64 at s = 16, and a ramp that is cut off at pair 0."""
    for dim, base, s, original in [(64, 10000.0, 16.0, 4096), (16, 10000.0, 4.0, 64)]:
        low, high = ramp_ends(dim, base, original, 32, 1, True)
        for form in ["pro", "uni"]:
            theta = []
            for i, plain_theta in enumerate(plain(dim, base)):
                inside = (i - low) / (high - low)
                share = inside * (i - low + 1) / (high - low + 1) if form == "pro" else inside
                theta.append(plain_theta * s ** -(0 if i <= low else 1 if i >= high else share))
            yield f"mrrope_{form}_d{dim}", dim, base, s, original, "mrrope", {"form": form}, theta, 0.1 * math.log(s) + 1


def evq_cosh():
    for tau, midpoint in [(1.5, True), (5.0, True), (1.5, False), (0.0, True)]:
        dim, base = 16, 10000.0
        pairs = dim // 2
        grid = [(k + (0.5 if midpoint else 0)) / pairs for k in range(pairs)]
        phi = [1 - math.asinh((1 - u) * math.sinh(tau)) / tau if tau else u for u in grid]
        theta = [base**-x for x in phi]
        name = f"evq_cosh_tau{tau}_{'mid' if midpoint else 'ends'}"
        yield name, dim, base, None, None, "evq_cosh", {"tau": tau, "midpoint": midpoint}, theta, 1.0
    # The authors' rule: head width over the root of the length, at least 1.4.
    for length in [64, 1024]:
        dim, base = 16, 10000.0
        tau = max(dim / length**0.5, 1.4)
        grid = [(k + 0.5) / (dim // 2) for k in range(dim // 2)]
        theta = [base ** (math.asinh((1 - u) * math.sinh(tau)) / tau - 1) for u in grid]
        options = {"tau": "auto", "original_max_position_embeddings": length}
        yield f"evq_cosh_auto_{length}", dim, base, None, None, "evq_cosh", options, theta, 1.0


def hope():
    """Pairs that do not complete a turn in L stand still; with base 1e4 and 64 dimensions the paper counts 18 of 64 at L = 4096."""
    for dim, base, length in [(16, 10000.0, 64), (128, 10000.0, 4096), (128, 500000.0, 4096), (8, 100.0, 6)]:
        theta = [t if 2 * math.pi / t <= length else 0.0 for t in plain(dim, base)]
        if dim == 128:
            assert theta.count(0.0) == {10000.0: 18, 500000.0: 32}[base]
        options = {"original_max_position_embeddings": length}
        yield f"hope_d{dim}_b{base:g}_{length}", dim, base, None, None, "hope", options, theta, 1.0


def periods():
    """Whole periods, repeated over the pairs; a turn for every token is none."""
    for dim, given in [(8, [2, 3, 5, 1]), (16, [2, 3, 7]), (4, [6])]:
        own = [given[i % len(given)] for i in range(dim // 2)]
        theta = [2 * math.pi / m if m > 1 else 0.0 for m in own]
        yield f"periods_d{dim}", dim, 10000.0, None, None, "resonance", {"periods": given}, theta, 1.0


SCALED = [yarn_equal_ends, mrrope, evq_cosh, hope, periods]


def write(path, head, cases):
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join("    " + json.dumps(case) for case in cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["{", *lines, '  "cases": [', body, "  ]", "}", ""]))
    print(f"{path}: {len(cases)} cases")


def main():
    for name, function, source in ENCODINGS:
        write(FOLDER / f"{name}.json", {"topic": name, "source": source} | HEAD, list(function()))
    cases = []
    for function in SCALED:
        for name, dim, base, s, original, kind, options, theta, factor in function():
            stretch = {"factor": s, "original_max_position_embeddings": original} if s else {}
            scaling = {"kind": kind} | stretch | options
            inputs = {"dim": dim, "base": base, "scaling": scaling, "length": None}
            expected = {"inv_freq": theta, "attention_factor": factor}
            cases.append({"name": name, "kind": "frequencies", "inputs": inputs, "expected": expected})
    head = {
        "topic": "scaled rotary frequencies and attention factors, continued",
        "source": "the formulas of the papers and of their authors' code",
        "verified_against": HEAD["verified_against"],
        "tolerance": "1e-12 on the host",
    }
    write(SCALINGS, head, cases)


if __name__ == "__main__":
    main()
