"""Reference values of the encodings at far positions, for crates/posenc/tests/golden/positions.json.

Independent of the crate: every formula is written out again here in 50-digit arithmetic and rounded once to f64 for printing.
Run from the repository root with Python 3 and mpmath installed:

    python3 scripts/golden_positions.py > crates/posenc/tests/golden/positions.json
"""

import json

from mpmath import mp, mpf, ceil, cos, floor, log, pi, sin

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


def rope_cases():
    length = POSITIONS[-1] + 1
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
            kind = scaling["kind"] if scaling else "plain"
            angles = [[p * f for f in frequencies] for p in POSITIONS]
            yield {
                "name": f"rope_{kind}_d{dim}_base{base}",
                "kind": "rope",
                "inputs": {"dim": dim, "base": float(base), "scaling": scaling},
                "expected": {
                    "inv_freq": numbers(frequencies),
                    "attention_factor": float(attention),
                    "cos": [numbers(attention * cos(a) for a in row) for row in angles],
                    "sin": [numbers(attention * sin(a) for a in row) for row in angles],
                },
            }


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


def numbers(values):
    return [float(v) for v in values]


def main():
    head = {
        "topic": "encodings at far positions",
        "source": "scripts/golden_positions.py: the formulas of encodings in 50-digit arithmetic (mpmath)",
        "verified_against": "nothing else; written without looking at the crate's code",
        "tolerance": "one f32 ulp for tables, 1e-12 for frequencies",
        "positions": POSITIONS,
    }
    cases = [*rope_cases(), *sinusoidal_cases(), *alibi_cases()]
    print("{")
    for key, value in head.items():
        print(f"  {json.dumps(key)}: {json.dumps(value)},")
    print('  "cases": [')
    print(",\n".join("    " + json.dumps(case) for case in cases))
    print("  ]\n}")


if __name__ == "__main__":
    main()
