"""Reference values of the encodings at far positions, for crates/posenc/tests/golden/positions.json.

Independent of the crate: every formula is written out again here in 50-digit arithmetic and rounded once to f64 for printing.
Run from the repository root with Python 3 and mpmath installed:

    python3 scripts/golden_positions.py > crates/posenc/tests/golden/positions.json
"""

import json
import struct

from mpmath import mp, mpf, ceil, cos, exp, floor, log, nint, pi, sin, sqrt

mp.dps = 50
POSITIONS = [0, 1, 2, 127, 1023, 4095, 65535, 1000000]


def plain(dim, base):
    return [mpf(base) ** (-mpf(2 * i) / dim) for i in range(dim // 2)]


def stretched_base(dim, base, factor):
    return mpf(base) * mpf(factor) ** (mpf(dim) / (dim - 2))


def yarn(dim, base, factor, trained, fast=32, slow=1):
    """Blend of theta and theta / factor, linear in the pair index between the two corner dimensions."""
    corner = lambda turns: dim * log(mpf(trained) / (turns * 2 * pi)) / (2 * log(mpf(base)))
    low, high = max(floor(corner(fast)), 0), min(ceil(corner(slow)), dim - 1)
    out = []
    for i, theta in enumerate(plain(dim, base)):
        share = min(max((i - low) / (high - low), 0), 1)
        out.append(share * theta / factor + (1 - share) * theta)
    return out, mpf("0.1") * log(mpf(factor)) + 1


def by_parts(dim, base, factor, trained, alpha=1, beta=32):
    """Eq. 17 to 19 of the YaRN paper: linear in the turns within the trained length."""
    out = []
    for theta in plain(dim, base):
        gamma = min(max((trained * theta / (2 * pi) - alpha) / (beta - alpha), 0), 1)
        out.append((1 - gamma) * theta / factor + gamma * theta)
    return out


def llama3(dim, base, factor, trained, low=1, high=4):
    """By wavelength, as Meta's code has it."""
    out = []
    for theta in plain(dim, base):
        wavelength = 2 * pi / theta
        if wavelength < mpf(trained) / high:
            out.append(theta)
        elif wavelength > mpf(trained) / low:
            out.append(theta / factor)
        else:
            smooth = (trained / wavelength - low) / (high - low)
            out.append((1 - smooth) * theta / factor + smooth * theta)
    return out


def newer_scalings(dim, base, trained, length):
    stretch = [mpf(1) + mpf(3 * i) / 4 for i in range(dim // 2)]
    kept = 3 * (dim // 2) // 4
    options = {"factor": 8.0, "original_max_position_embeddings": trained}
    yield {"kind": "ntk_by_parts", **options}, by_parts(dim, base, 8, trained), mpf(1)
    dynamic = {"kind": "dynamic_yarn", "original_max_position_embeddings": trained}
    yield dynamic, *yarn(dim, base, mpf(length) / trained, trained)
    factors = {"short_factor": [1.0] * (dim // 2), "long_factor": numbers(stretch)}
    longer = [theta / f for theta, f in zip(plain(dim, base), stretch)]
    yield {"kind": "longrope", **options, **factors}, longer, sqrt(1 + log(mpf(8)) / log(mpf(trained)))
    yield {"kind": "llama3", **options}, llama3(dim, base, 8, trained), mpf(1)
    yield {"kind": "proportional", "fraction": 0.75}, plain(dim, base)[:kept] + [mpf(0)] * (dim // 2 - kept), mpf(1)
    yield {"kind": "resonance"}, [2 * pi / nint(2 * pi / theta) for theta in plain(dim, base)], mpf(1)


def rope_cases():
    length = POSITIONS[-1] + 1
    for dim, base in [(8, 100), (16, 10000), (32, 500000)]:
        for scaling, frequencies, attention in newer_scalings(dim, base, 512, length):
            yield rope_case(dim, base, scaling, frequencies, attention)
    for dim, base in [(8, 100), (16, 10000), (64, 500000)]:
        trained = 512
        scalings = [
            (None, plain(dim, base), mpf(1)),
            ({"kind": "linear", "factor": 8.0}, [f / 8 for f in plain(dim, base)], mpf(1)),
            ({"kind": "ntk", "factor": 8.0}, plain(dim, stretched_base(dim, base, 8)), mpf(1)),
            (
                {"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": trained},
                plain(dim, stretched_base(dim, base, mpf(2) * length / trained - 1)),
                mpf(1),
            ),
            ({"kind": "yarn", "factor": 8.0, "original_max_position_embeddings": trained}, *yarn(dim, base, 8, trained)),
        ]
        for scaling, frequencies, attention in scalings:
            yield rope_case(dim, base, scaling, frequencies, attention)


def rope_case(dim, base, scaling, frequencies, attention):
    kind = scaling["kind"] if scaling else "plain"
    tables = turned([[p * f for f in frequencies] for p in POSITIONS], attention)
    expected = {"inv_freq": numbers(frequencies), "attention_factor": float(attention), **tables}
    return case(f"rope_{kind}_d{dim}_base{base}", "rope", {"dim": dim, "base": float(base), "scaling": scaling}, expected)


def turned(angles, factor=1):
    sides = {"cos": cos, "sin": sin}
    return {side: [numbers(factor * f(a) for a in row) for row in angles] for side, f in sides.items()}


# Coordinates on up to three axes: the positions, backwards, and shifted by three places.
COORDINATES = [POSITIONS, POSITIONS[::-1], POSITIONS[3:] + POSITIONS[:3]]


def axial_cases():
    for base in [100, 10000]:
        for mode, dim, axes, sections in [
            ("split", 16, 2, None),
            ("split", 16, 3, [8, 4, 4]),
            ("sectioned", 16, 2, None),
            ("sectioned", 16, 3, [2, 3, 3]),
            ("interleaved", 16, 2, None),
            ("interleaved", 12, 3, None),
        ]:
            if mode == "split":
                widths = sections or [dim // axes] * axes
                owners = [(axis, theta) for axis, width in enumerate(widths) for theta in plain(width, base)]
            else:
                pairs = sections or [dim // 2 // axes] * axes
                by_section = [axis for axis, count in enumerate(pairs) for _ in range(count)]
                axis_of = (lambda i: by_section[i]) if mode == "sectioned" else (lambda i: i % axes)
                owners = [(axis_of(i), theta) for i, theta in enumerate(plain(dim, base))]
            angles = [[COORDINATES[axis][p] * theta for axis, theta in owners] for p in range(len(POSITIONS))]
            inputs = {"mode": mode, "dim": dim, "axes": axes, "sections": sections, "base": float(base)}
            yield case(f"axial_{mode}_{axes}axes_base{base}", "axial", inputs, turned(angles))
        # Two heads, directions half a turn over the number of heads apart, frequencies moved by the trained offsets.
        dim, heads = 8, 2
        offset = [[[mpf((5 * a + 3 * h + i) % 7 - 3) / 1024 for i in range(dim // 2)] for h in range(heads)] for a in range(2)]
        side = lambda a, h: (cos, sin)[a](pi * h / heads)
        frequency = lambda a, h, i: plain(dim, base)[i] * side(a, h) + offset[a][h][i]
        angle = lambda h, p, i: sum(COORDINATES[a][p] * frequency(a, h, i) for a in range(2))
        angles = [[angle(h, p, i) for i in range(dim // 2)] for h in range(heads) for p in range(len(POSITIONS))]
        inputs = {"mode": "mixed", "dim": dim, "axes": 2, "n_heads": heads, "base": float(base)}
        inputs["frequency_offset"] = [[numbers(row) for row in axis] for axis in offset]
        yield case(f"axial_mixed_base{base}", "axial", inputs, turned(angles))


def vector(dim, step):
    return [mpf((step * i + 3) % 11 - 5) / 4 for i in range(dim)]


def turned_product(q, k, distance, frequencies, weight=lambda i: 1):
    """Product of two vectors of interleaved pairs, q turned by `distance` against k."""
    total = mpf(0)
    for i, theta in enumerate(frequencies):
        (a, b), (c, d), angle = q[2 * i : 2 * i + 2], k[2 * i : 2 * i + 2], distance * theta
        total += weight(i) * ((a * c + b * d) * cos(angle) + (a * d - b * c) * sin(angle))
    return total


def visible():
    return [(m, n) for m in POSITIONS for n in POSITIONS if n <= m]


def xpos_cases():
    for dim, scale_base, farthest in [(8, 512, 4095), (16, 32768, 1000000), (64, 16384, 1000000)]:
        q, k = vector(dim, 2), vector(dim, 7)
        zeta = [(mpf(2 * i) / dim + mpf("0.4")) / mpf("1.4") for i in range(dim // 2)]
        score = lambda m, n: turned_product(q, k, m - n, plain(dim, 10000), lambda i: zeta[i] ** (mpf(m - n) / scale_base))
        pairs = [(m, n) for m, n in visible() if m <= farthest]
        inputs = {"scale_base": float(scale_base), "q": numbers(q), "k": numbers(k), "pairs": pairs}
        yield case(f"xpos_d{dim}_scale_base{scale_base}", "xpos", inputs, numbers(score(m, n) for m, n in pairs))


def pope_cases():
    softplus = lambda x: log(1 + exp(x))
    for dim in [4, 16]:
        q, k, delta = vector(dim, 2), vector(dim, 7), [-mpf(j % 5) / 2 for j in range(dim)]
        theta = [mpf(10000) ** (-mpf(j) / dim) for j in range(dim)]
        angle = lambda m, n, j: (m - n) * theta[j] - delta[j]
        score = lambda m, n: sum(softplus(q[j]) * softplus(k[j]) * cos(angle(m, n, j)) for j in range(dim))
        inputs = {"base": 10000.0, "q": numbers(q), "k": numbers(k), "delta": numbers(delta), "pairs": visible()}
        yield case(f"pope_d{dim}", "pope", inputs, numbers(score(m, n) for m, n in visible()))


def zone_cases():
    """ReRoPE and Self-Extend: distances, and scores of vectors turned by them."""
    dim = 16
    q, k = vector(dim, 2), vector(dim, 7)

    def rerope(m, n, window, leak):
        distance = m - n
        return distance if distance < window else window + (mpf(distance - window) / leak if leak else 0)

    def self_extend(m, n, window, group):
        return m - n if m - n < window else m // group - n // group + window - window // group

    variants = [("rerope", rerope, {"window": w, "leak": leak}) for w, leak in [(100, None), (512, 4.0), (512, 3.0)]]
    variants += [("self_extend", self_extend, {"window": w, "group": g}) for w, g in [(100, 8), (512, 7), (1024, 64)]]
    for kind, distance, options in variants:
        distances = [distance(m, n, *options.values()) for m, n in visible()]
        scores = [turned_product(q, k, d, plain(dim, 10000)) for d in distances]
        inputs = {**options, "layout": "interleaved", "base": 10000.0, "q": numbers(q), "k": numbers(k), "pairs": visible()}
        name = "_".join([kind, *(f"{key}{value}" for key, value in options.items() if value)])
        yield case(name, kind, inputs, {"distances": numbers(distances), "scores": numbers(scores)})


def log_scaling_cases():
    for trained in [64, 512, 8192]:
        inputs = {"original_max_position_embeddings": trained}
        log_n = [max(mpf(1), log(mpf(p + 1)) / log(mpf(trained))) for p in POSITIONS]
        yield case(f"log_n_{trained}", "log_scaling", {"form": "log_n", **inputs}, numbers(log_n))
        llama4 = [1 + mpf("0.1") * log(mpf((p + 1) // trained + 1)) for p in POSITIONS]
        yield case(f"llama4_{trained}", "log_scaling", {"form": "llama4", "strength": 0.1, **inputs}, numbers(llama4))


def whole(x, rounded):
    """`rounded` of a number that may be whole and not quite show it."""
    return int(nint(x)) if abs(x - nint(x)) < mpf(10) ** -30 else int(rounded(x))


# The far positions as distances, and all small ones, with the powers of two at which buckets end.
DISTANCES = sorted({*POSITIONS, *range(140), 200, 255, 256, 257, 300, 511, 512, 1024, 2048, 4096, 8192})


def t5_cases():
    def bucket(relative, buckets, farthest, both):
        first = 0
        if both:
            buckets //= 2
            first = buckets if relative > 0 else 0
            distance = abs(relative)
        else:
            distance = max(-relative, 0)
        exact = buckets // 2
        if distance < exact:
            return first + distance
        return first + min(exact + whole(log(mpf(distance) / exact) / log(mpf(farthest) / exact) * (buckets - exact), floor), buckets - 1)

    causal = [(32, 128, False), (16, 128, False), (8, 64, False), (64, 8192, False)]
    for buckets, farthest, both in [*causal, (32, 128, True), (32, 2048, True)]:
        relative = [-d for d in DISTANCES] + ([d for d in DISTANCES if d] if both else [])
        inputs = {"num_buckets": buckets, "max_distance": farthest, "bidirectional": both, "relative": relative}
        yield case(f"t5_{buckets}_{farthest}_{both}".lower(), "t5", inputs, [bucket(r, buckets, farthest, both) for r in relative])


def deberta_cases():
    def bucket(distance, buckets, farthest):
        middle = buckets // 2
        if abs(distance) <= middle:
            return distance
        share = log(mpf(abs(distance)) / middle) / log(mpf(farthest - 1) / middle)
        return (whole(share * (middle - 1), ceil) + middle) * (1 if distance > 0 else -1)

    for buckets, farthest in [(256, 512), (8, 16), (64, 4096), (32, 100000), (10, 4097)]:
        distances = [-d for d in DISTANCES[:0:-1]] + DISTANCES
        inputs = {"buckets": buckets, "max_distance": farthest, "distances": distances}
        yield case(f"deberta_{buckets}_{farthest}", "deberta", inputs, [bucket(d, buckets, farthest) for d in distances])


def kerple_cases():
    for form, r1, r2 in [("log", "1", "1"), ("log", "0.5", "2"), ("log", "0.01", "0.01"), ("power", "1", "0.5"), ("power", "0.25", "2")]:
        # The parameters are f32 where they are used.
        a, b = mpf(f32(r1)), mpf(f32(r2))
        value = (lambda d: -a * log(1 + b * d)) if form == "log" else (lambda d: -a * mpf(d) ** b)
        inputs = {"form": form, "r1": float(r1), "r2": float(r2), "query": POSITIONS[-1]}
        yield case(f"kerple_{form}_{r1}_{r2}", "kerple", inputs, numbers(value(POSITIONS[-1] - p) for p in POSITIONS))


def sandwich_cases():
    for width, heads in [(8, 4), (64, 8), (128, 6)]:
        half = width // 2
        wave = lambda d: sum(cos(d / mpf(10000) ** (mpf(i) / half)) for i in range(1, half + 1)) - half
        bias = [numbers(wave(POSITIONS[-1] - p) / (mpf(8 * h) / heads) for p in POSITIONS) for h in range(1, heads + 1)]
        inputs = {"width": width, "n_heads": heads, "query": POSITIONS[-1]}
        yield case(f"sandwich_w{width}_h{heads}", "sandwich", inputs, bias)


def fire_cases():
    w1, b1 = [mpf("1"), mpf("-0.5"), mpf("0.25"), mpf("2")], [mpf("0"), mpf("0.5"), mpf("-0.125"), mpf("-1")]
    w2, b2 = [[-0.5, 0.75], [0.25, -1.25], [1.0, -0.5], [-1.0, 0.25]], [0.125, -0.25]
    for c, multiplier, threshold in [(0.125, 1.0, 512.0), (0.125, -0.5, 512.0), (2.0, 4.0, 16384.0), (-1.0, 1.0, 64.0)]:
        psi = lambda x: log(abs(mpf(c) * x) + 1)
        reach = lambda m: psi(max(mpf(m), abs(mpf(multiplier) * threshold))) + mpf("1e-6")
        hidden = lambda m, n: [max(psi(m - n) / reach(m) * w + b, 0) for w, b in zip(w1, b1)]
        value = lambda h, m, n: sum(x * w[h] for x, w in zip(hidden(m, n), w2)) + b2[h]
        bias = [numbers(value(h, m, n) for m, n in visible()) for h in range(2)]
        inputs = {"c": c, "multiplier": multiplier, "threshold": threshold, "w1": numbers(w1), "b1": numbers(b1), "w2": w2, "b2": b2}
        yield case(f"fire_c{c}_{multiplier}x{threshold}", "fire", inputs | {"pairs": visible()}, bias)


def sinusoidal_row(order, width, base, p):
    half = width // 2
    if order == "tensor2tensor":
        angles = [p * mpf(base) ** (-mpf(i) / (half - 1)) for i in range(half)]
        return [sin(a) for a in angles] + [cos(a) for a in angles] + [mpf(0)] * (width % 2)
    angles = [p * mpf(base) ** (-mpf(2 * i) / width) for i in range((width + 1) // 2)]
    if order == "half":
        return [sin(a) for a in angles] + [cos(a) for a in angles[:half]]
    return [f(a) for a in angles for f in (sin, cos)][:width]


def sinusoidal_cases():
    for order in ["interleaved", "half", "tensor2tensor"]:
        for width, base in [(7, 10000), (16, 10000), (64, 500000)]:
            yield {
                "name": f"sinusoidal_{order}_d{width}_base{base}",
                "kind": "sinusoidal",
                "inputs": {"order": order, "d_model": width, "base": float(base)},
                "expected": [numbers(sinusoidal_row(order, width, base, p)) for p in POSITIONS],
            }


def alibi_slopes(heads):
    power = 1
    while power * 2 <= heads:
        power *= 2
    regular = [mpf(2) ** (-mpf(8 * h) / power) for h in range(1, power + 1)]
    between = [mpf(2) ** (-mpf(4 * h) / power) for h in range(1, 2 * power + 1, 2)]
    return regular + between[: heads - power]


def alibi_cases():
    """Penalty of every key against one query at the last position."""
    for heads in [4, 6, 8, 12]:
        yield {
            "name": f"alibi_h{heads}",
            "kind": "alibi",
            "inputs": {"n_heads": heads, "query": POSITIONS[-1]},
            "expected": [numbers(-s * (POSITIONS[-1] - p) for p in POSITIONS) for s in alibi_slopes(heads)],
        }


def case(name, kind, inputs, expected):
    return {"name": name, "kind": kind, "inputs": inputs, "expected": expected}


def f32(text):
    """The f32 nearest to a decimal number."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def numbers(values):
    return [float(v) for v in values]


def main():
    head = {
        "topic": "encodings at far positions",
        "source": "scripts/golden_positions.py: the formulas of encodings in 50-digit arithmetic (mpmath)",
        "verified_against": "nothing else; written without looking at the crate's code",
        "tolerance": "one f32 ulp for tables, 1e-12 for frequencies, 1e-6 of their scale for scores and biases, none for buckets",
        "positions": POSITIONS,
    }
    cases = [*rope_cases(), *sinusoidal_cases(), *alibi_cases()]
    for more in [axial_cases, xpos_cases, pope_cases, zone_cases, log_scaling_cases, t5_cases, deberta_cases]:
        cases += more()
    for more in [kerple_cases, sandwich_cases, fire_cases]:
        cases += more()
    print("{")
    for key, value in head.items():
        print(f"  {json.dumps(key)}: {json.dumps(value)},")
    print('  "cases": [')
    print(",\n".join("    " + json.dumps(case) for case in cases))
    print("  ]\n}")


if __name__ == "__main__":
    main()
