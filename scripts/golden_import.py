"""Writes the golden files of the crates from a folder of reference numbers, one JSON file per topic.

The reference numbers are evaluations of published formulas in f64; what confirmed them is in the head of every file written.
Names of sizes become those of the configurations, and what the crates do not have is left out by name. The two topics at the end,
marked so, have no file: they are evaluated here, from definitions.
Run from the repository root with Python 3:

    python3 scripts/golden_import.py FOLDER
"""

import json
import math
import sys
from pathlib import Path

POSENC = Path("crates/posenc/tests/golden")
MODEL = Path("crates/tiny-transformer/tests/golden")
PLAIN = "evaluated in f64 by plain Python"
FORMULA = "the formula alone; no public implementation was run"
CLOSE = "1e-6"


def case(name, kind, inputs, expected):
    return {"name": name, "kind": kind, "inputs": inputs, "expected": expected}


def lower(matrix):
    """Row m up to column m."""
    return [row[: m + 1] for m, row in enumerate(matrix)]


def alibi(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        heads = {"n_heads": i["num_heads"]}
        if name.startswith(("slopes", "mpt_slopes")):
            yield case(name, "slopes", heads, want)
        elif name.startswith("interpolated"):
            yield case(name, "interpolated_slopes", heads | {"train_len": i["train_len"], "test_len": i["eval_len"]}, want)
        elif name.startswith("bias_decode"):
            yield case(name, "decode_bias", heads | {"query": i["q_offset"], "keys": i["k_len"]}, want)
        else:
            kinds = {"causal": "causal_bias", "key_index": "key_index_bias", "bidirectional": "symmetric_bias"}
            kind = next(kind for part, kind in kinds.items() if part in name)
            yield case(name, kind, heads | {"length": i["T"]}, want["bias"] if kind == "key_index_bias" else want)


def sinusoidal(cases):
    for c in cases:
        order = {"interleaved": "interleaved", "halves": "half", "t2t": "tensor2tensor"}[c["name"].split("_")[0]]
        i = c["inputs"]
        yield case(c["name"], order, {"d_model": i["d"], "base": i["base"], "positions": i["positions"]}, c["expected"])


def rope(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        if name.startswith("inv_freq"):
            yield case(name, "inv_freq", {"dim": i["d"], "base": i["theta"]}, want)
        elif name.startswith("layout_permutation"):
            # Vector and position were recovered from the numbers.
            inputs = {"base": 10000.0, "position": 7, "x": [-0.5, 1.25, 0.25, -0.75, 1.0, 0.0, -1.0, 0.75]}
            assert want["lhs"] == want["rhs"]
            yield case(name, "layout_permutation", inputs | {"permutation": want["half_to_interleaved_perm"]}, want["lhs"])
        elif name.startswith("scores"):
            inputs = {"layout": i["layout"], "base": i["theta"], "q": i["q"], "k": i["k"], "pairs": i["pairs_m_n"]}
            yield case(name, "scores", inputs, want)
        else:
            inputs = {"layout": i["layout"], "base": i["theta"], "rotary_dim": i.get("rotary_dim")}
            yield case(name, "rotate", inputs | {"x": i["x"], "positions": i["positions"]}, want)


YARN_OPTIONS = {
    "truncate": "truncate",
    "att": "attention_factor",
    "mscale": "mscale",
    "mall": "mscale_all_dim",
    "bf": "beta_fast",
    "bs": "beta_slow",
}


def rope_scaling(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        if name.endswith("scores_end_to_end"):
            scaling = {"kind": name.split("_")[0], "factor": i["factor"]}
            if "original_max_position_embeddings" in i:
                scaling["original_max_position_embeddings"] = i["original_max_position_embeddings"]
            inputs = {"layout": i["layout"], "base": i["rope_theta"], "scaling": scaling}
            yield case(name, "scores", inputs | {"q": i["q"], "k": i["k"], "pairs": i["pairs_m_n"]}, want["q_dot_k"])
            continue
        published = i["rope_type"].split("(")[0].strip()
        kind = {"ntk_aware": "ntk", "dynamic": "dynamic_ntk"}.get(published, published)
        original = i.get("original_max_position_embeddings", i.get("max_position_embeddings"))
        scaling = {"kind": kind}
        if "factor" in i:
            scaling["factor"] = i["factor"]
        if kind == "proportional":
            scaling["fraction"] = i["partial_rotary_factor"]
        else:
            scaling["original_max_position_embeddings"] = original
        if kind == "longrope":
            scaling |= {"factor": i["max_position_embeddings"] / original}
            scaling |= {key: i[key] for key in ["short_factor", "long_factor"]}
        if kind == "llama3":
            scaling |= {key: i[key] for key in ["low_freq_factor", "high_freq_factor"]}
        scaling |= {YARN_OPTIONS[key]: value for key, value in i.get("options", {}).items()}
        inputs = {"dim": i["head_dim"], "base": i["rope_theta"], "scaling": scaling, "length": i.get("seq_len")}
        frequencies = {"inv_freq": want["inv_freq"], "attention_factor": want.get("attention_factor", 1.0)}
        yield case(name, "frequencies", inputs, frequencies)
        if kind == "dynamic_yarn":
            auto = {"kind": "yarn", "factor": "auto", "original_max_position_embeddings": original}
            yield case(name + "_by_auto_factor", "frequencies", inputs | {"scaling": auto}, frequencies)


def rope_combinations(cases):
    for c in cases:
        i, want = c["inputs"], c["expected"]
        if c["name"] == "dscore_dfreq":
            inputs = {"layout": i["layout"], "base": i["theta"], "q": i["q"], "k": i["k"], "query": i["m"], "key": i["n"]}
            yield case(c["name"], "gradient", inputs, want)
        else:
            # Base, layout and the division by sqrt(head_dim) were recovered from the numbers.
            inputs = {"layout": "interleaved", "base": 10000.0, "n_heads": 4, "head": 0, "q": i["Q"], "k": i["K"]}
            assert i["slope"] == 2.0 ** (-8 / 4)
            yield case(c["name"], "alibi", inputs, {"logits": lower(want["logits_lower"]), "weights": lower(want["probs"])})


def xpos(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        if name.startswith("zeta"):
            yield case(name, "zeta", {"dim": i["d"], "gamma": i["gamma"]}, want)
            continue
        rotated = next(c["inputs"] for c in cases if c["name"].startswith("rotated"))
        inputs = {"layout": "interleaved", "base": 10000.0, "scale_base": i["scale_base"], "q": rotated["q"], "k": rotated["k"]}
        if name.startswith("scores"):
            # The vectors are those of the other case, and the layout has no part in scores beyond pairing their entries.
            yield case(name, "scores", inputs | {"pairs": i["pairs_m_n"]}, want)
        else:
            yield case(name, "rotate", inputs | {"length": i["L"], "center": i["L"] // 2}, want)


def axial_rope(cases):
    for c in cases:
        i, want = c["inputs"], c["expected"]
        if "dims" in i:
            inputs = {"layout": i["layout"], "base": i["theta"], "sections": i["dims"], "x": i["x"], "coordinates": i["coords"]}
            yield case(c["name"], "rotate", inputs, want)
        else:
            inputs = {"base": i["theta"], "head_dim": i["head_dim"], "coordinates": [i["h"], i["w"]]}
            yield case(c["name"], "whole_head_angles", inputs, want)


def position_maps(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        if "rerope" in name:
            yield case(name, "rerope", {"window": i["window"], "leak": i.get("k"), "length": i["n"]}, lower(want))
        elif name.startswith("logn"):
            inputs = {"original_max_position_embeddings": i["train_len"], "positions": i["positions_0based"]}
            yield case(name, "log_scaling", inputs, want)
        else:
            inputs = {"train_len": i["train_len"], "test_len": i["target_len"], "tokens": i["positions"]}
            yield case(name, "interpolated", inputs, want)


def randomized_positions(cases):
    for c in cases:
        inputs = {"max_position": c["inputs"]["L_max"], "length": c["inputs"]["n"]}
        yield case(c["name"], "randomized", inputs, {"means": c["expected"]["expected_mean_of_kth"]})


def pope(cases):
    for c in (c for c in cases if c["name"].startswith("pope")):
        i, want = c["inputs"], c["expected"]
        inputs = {"base": i["theta"], "q": i["q"], "k": i["k"], "delta": i["delta"], "pairs": i["pairs_m_n"]}
        yield case(c["name"], "scores", inputs, want["scores"])


def fox(cases):
    for c in (c for c in cases if c["name"].startswith("fox")):
        yield case(c["name"], "bias", {"gates": c["inputs"]["forget_gates"]}, [lower(head) for head in c["expected"]["bias_lower"]])


def t5(cases):
    for c in cases:
        i, want = c["inputs"], c["expected"]
        if c["name"].startswith("bias_lookup"):
            yield case(c["name"], "bias", {"length": i["T"], "table": i["table"]}, [lower(head) for head in want])
            continue
        relative = i["relative_position_key_minus_query"]
        assert relative == list(range(relative[0], relative[-1] + 1)) and not want["f32_f64_disagree_at"]
        inputs = {key: i[key] for key in ["num_buckets", "max_distance", "bidirectional"]}
        yield case(c["name"], "buckets", inputs | {"first": relative[0], "last": relative[-1]}, want["bucket_f64"])


def kerple(cases):
    for c in (c for c in cases if "r3" not in c["inputs"]):
        form = c["name"].split("_")[0]
        yield case(c["name"], form, {key: c["inputs"][key] for key in ["r1", "r2", "distance"]}, c["expected"])


def sandwich(cases):
    for c in cases:
        i = c["inputs"]
        yield case(c["name"], "bias", {"width": i["dbar"], "n_heads": i["heads"], "distance": i["distance"]}, c["expected"])


def fire(cases):
    mlp = cases[0]["inputs"]["mlp"]
    for c in cases:
        i = c["inputs"]
        assert i.get("mlp", mlp) == mlp and i.get("eps", 1e-6) == 1e-6
        inputs = {"positions": i.get("positions", list(range(i["T"]))), "c": i["c"], "multiplier": i["L_multiplier"]}
        # Rows of the second layer's weight are outputs there, inputs here.
        layers = {"w1": mlp["W1"], "b1": mlp["b1"], "w2": [list(row) for row in zip(*mlp["W2"])], "b2": mlp["b2"]}
        inputs |= {"threshold": i["init_L"]} | layers
        yield case(c["name"], "bias", inputs, [lower(head) for head in c["expected"]["bias_lower"]])


def shaw(cases):
    for c in cases:
        i, want = c["inputs"], c["expected"]
        if c["name"].startswith("index"):
            yield case(c["name"], "rows", {"length": i["T"], "max_distance": i["k"]}, want)
        else:
            inputs = {"max_distance": i["k"], "q": i["Q"], "k": i["K"], "v": i["V"], "keys": i["aK"], "values": i["aV"]}
            expected = {"logits": want["logits"], "weights": lower(want["probs_causal"]), "output": want["output_causal"]}
            yield case(c["name"], "attention", inputs, expected)


def transformer_xl(cases):
    for c in cases:
        name, i, want = c["name"], c["inputs"], c["expected"]
        if name == "positions_and_R":
            yield case(name, "table", {"d_model": i["d_model"], "distances": want["positions"]}, want["R"])
        elif name.startswith("scores"):
            inputs = {"q": i["q"], "k": i["k"], "u": i["u_content_bias"], "v": i["v_position_bias"], "projection": i["W_r"]}
            yield case(name, "logits", inputs, lower(want["logits_unscaled_lower_triangle"]))
        elif name.startswith("rel_shift"):
            # Column c of row m is distance k_len - c before the shift and, after it, that of the key it lands on.
            rows = i["input_positions_klen_to_minus_qlen_plus1"]
            k_len = len(want[0])
            distances = [[k_len - row.index(x) for x in out] for row, out in zip(rows, want)]
            yield case(name, "distances", {"queries": list(range(len(rows))), "keys": k_len}, distances)
        else:
            queries = [i["klen"] - i["qlen"] + m for m in range(i["qlen"])]
            yield case(name, "distances", {"queries": queries, "keys": i["klen"]}, want)


def cope(cases):
    for c in cases:
        i, want = c["inputs"], c["expected"]
        inputs = {"max_position": i["npos_max"], "q": i["Q"], "k": i["K"]}
        # One column of the table per position.
        inputs["table"] = [list(row) for row in zip(*i["pos_emb"])]
        yield case(c["name"], "logits", inputs, {"bias": lower(want["cope_logits"]), "logits": lower(want["total_logits_lower"])})


def deberta(cases):
    for c in cases:
        i = c["inputs"]
        inputs = {"buckets": i["bucket_size"], "max_distance": i["max_position"], "distances": i["rel"]}
        yield case(c["name"], "buckets", inputs, c["expected"])
    yield from deberta_scores()


def linear_attention(cases):
    for c in cases:
        i = c["inputs"]
        inputs = {"q": i["Q"], "k": i["K"], "v": i["V"], "base": i["theta"], "layout": i["layout"], "feature_map": i["phi"]}
        for mask, want in c["expected"].items():
            yield case(f"{c['name']}_{mask}", mask, inputs, want)


# Without a file: evaluated here.


def hard_alibi(_):
    """Heads 0 and 1 of three see distances 0..h, the third everything; written out by hand."""
    bias = [
        [["0", "-", "-", "-"], ["-", "0", "-", "-"], ["-", "-", "0", "-"], ["-", "-", "-", "0"]],
        [["0", "0", "-", "-"], ["0", "0", "0", "-"], ["-", "0", "0", "0"], ["-", "-", "0", "0"]],
        [["0", "0", "0", "0"], ["0", "0", "0", "0"], ["0", "0", "0", "0"], ["0", "0", "0", "0"]],
    ]
    seen = [[[int(cell == "0") for cell in row] for row in head] for head in bias]
    yield case("three_heads_two_masked", "seen", {"n_heads": 3, "masked_heads": 2, "length": 4}, seen)


def deberta_scores():
    """The sums of eq. 4, term by term; entries of all vectors by a rule, so that none is special."""
    length, k, heads, width = 5, 3, 2, 2
    d_model = heads * width
    entry = lambda i, a, b: ((7 * a + 3 * b + i) % 11 - 5) / 4
    matrix = lambda i, rows, columns: [[entry(i, a, b) for b in range(columns)] for a in range(rows)]
    q, key = matrix(1, length, d_model), matrix(4, length, d_model)
    table, c2p, p2c = matrix(2, 2 * k, d_model), matrix(6, d_model, d_model), matrix(9, d_model, d_model)
    delta = lambda m, n: min(max(m - n + k, 0), 2 * k - 1)
    project = lambda w, row, e: sum(table[row][i] * w[i][e] for i in range(d_model))
    for terms, parts in [("both", 3), ("c2p", 2), ("p2c", 2)]:
        logits = []
        for h in range(heads):
            columns = range(h * width, (h + 1) * width)
            rows = []
            for m in range(length):
                row = []
                for n in range(length):
                    score = sum(q[m][e] * key[n][e] for e in columns)
                    if terms != "p2c":
                        score += sum(q[m][e] * project(c2p, delta(m, n), e) for e in columns)
                    if terms != "c2p":
                        score += sum(key[n][e] * project(p2c, delta(n, m), e) for e in columns)
                    row.append(score / math.sqrt(parts * width))
                rows.append(row)
            logits.append(rows)
        inputs = {"terms": terms, "n_heads": heads, "max_distance": k, "q": q, "k": key, "table": table, "c2p": c2p, "p2c": p2c}
        yield case(f"scores_{terms}", "logits", inputs, logits)


TOPICS = [
    (POSENC, "alibi", "alibi", alibi, {
        "topic": "ALiBi slopes and biases",
        "source": "formula of Press et al. 2021 (arXiv 2108.12409) as in the authors' fairseq code "
        f"(ofirpress/attention_with_linear_biases), interpolated slopes of Al-Khateeb et al. 2023 (arXiv 2310.13017), {PLAIN}",
        "verified_against": "slopes: transformers BLOOM within 5e-8, MPT within 2e-8, x-transformers 2.31.10 exactly; bias: "
        "x-transformers exactly",
        "tolerance": "1e-6 between implementations; host values here are compared at 1e-12",
        "notes": "the bias is added after the division by sqrt(head_dim); slopes of head counts that are no power of two are not sorted; "
        "mpt_ cases are MPT's own construction with alibi_bias_max 8; kind key_index_bias is slope times key index in every row, equal "
        "after a causal softmax",
    }),
    (POSENC, "sinusoidal", "sinusoidal", sinusoidal, {
        "topic": "sinusoidal tables in three orders",
        "source": "interleaved: Vaswani et al. 2017, section 3.5; half: DeepMind randomized_positional_encodings and RoFormer in "
        f"transformers (odd widths); tensor2tensor: tensor2tensor and fairseq, exponent i/(D/2 - 1); {PLAIN}",
        "verified_against": "half order: RoFormer's table in transformers within 3e-8",
        "tolerance": "1e-6 between implementations; one f32 ulp here",
        "notes": "the three orders cannot be exchanged in a trained model",
    }),
    (POSENC, "rope", "rope", rope, {
        "topic": "rotary embedding: frequencies, rotations, scores",
        "source": "Su et al. 2021 (arXiv 2104.09864), eq. 15 and 34; half layout as Llama in transformers, interleaved as GPT-J, partial "
        f"rotation as GPT-J and NeoX; {PLAIN}",
        "verified_against": "Llama and x-transformers within 1e-6 up to position 10000; within 1.3e-3 at 100000, where those form the "
        "angle in f32",
        "tolerance": "1e-6, also at position 100000: angles here are f64",
        "notes": "scores: pairs are (query position, key position); layout_permutation: half(x[perm]) = interleaved(x)[perm] = expected; "
        "its vector and position were recovered from the numbers",
    }),
    (POSENC, "rope_scaling", "rope_scaling", rope_scaling, {
        "topic": "scaled rotary frequencies and attention factors",
        "source": "linear, dynamic, yarn, longrope, llama3, proportional: transformers 5.23 modeling_rope_utils; ntk, dynamic yarn: "
        f"jquesnelle/yarn; ntk_by_parts: Peng et al. 2023 (arXiv 2309.00071), eq. 17 to 19; {PLAIN}",
        "verified_against": "transformers 5.23.0 (f32): linear 8e-8, dynamic 1e-7, yarn 2.7e-7, longrope 1.2e-7, llama3 4.4e-7, "
        "proportional 7e-8 relative, attention factors exactly; jquesnelle/yarn: ntk, yarn, dynamic yarn 2.7e-7 relative; ntk_by_parts: "
        "the formula alone",
        "tolerance": "1e-6 between implementations; host values here are compared at 1e-12",
        "notes": "length is the sequence length that auto factors and the dynamic kinds read, null where nothing does; the ends of yarn's "
        "ramp stop at 0 and d - 1",
    }),
    (POSENC, "rope_combinations", "rope_combinations", rope_combinations, {
        "topic": "rotary embedding with trained frequencies, and beside ALiBi",
        "source": "definitions: derivative of a score by the inverse frequencies; logits with ALiBi's bias after the division by "
        f"sqrt(head_dim); {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "with frequencies theta exp(alpha) the derivative by alpha is theta times that by theta; layout and base of the ALiBi "
        "case were recovered from the numbers; rows up to the query",
    }),
    (POSENC, "xpos", "xpos", xpos, {
        "topic": "xPos: factors, scores, rotated vectors",
        "source": f"Sun et al. 2022 (arXiv 2212.10554); microsoft/torchscale, x-transformers; {PLAIN}",
        "verified_against": "x-transformers: vectors within 3e-7; torchscale: scores within 4e-7",
        "tolerance": CLOSE,
        "notes": "center is the position without a factor, x-transformers' here; vectors of implementations with another differ by a "
        "power of zeta, scores do not; gamma 0.4",
    }),
    (POSENC, "axial_rope", "axial_rope", axial_rope, {
        "topic": "rotary embedding by two and three coordinates",
        "source": "one block of the head per axis, Heo et al. 2024 (arXiv 2403.13298); whole_head_angles: vision tower of qwen3_vl in "
        f"transformers; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "sections are dimensions per axis; whole_head_angles: angle of each dimension where the half layout spans the head, "
        "[h|w|h|w], a permutation of the blocks",
    }),
    (POSENC, "newer_encodings", "pope", pope, {
        "topic": "PoPE: scores",
        "source": f"Gopalakrishnan et al. 2025 (arXiv 2509.10534); x-transformers' PolarEmbedding; {PLAIN}",
        "verified_against": "x-transformers within 2.5e-6",
        "tolerance": CLOSE,
        "notes": "scores are not divided by sqrt(head_dim)",
        "left_out": "abacus_positions: positions of digits inside numbers are made from tokens, which no encoding here sees",
    }),
    (POSENC, "position_maps", "position_maps", position_maps, {
        "topic": "changed distances, positions and logit scales",
        "source": f"ReRoPE, leaky ReRoPE and log n: bojone/rerope; interpolation: Chen et al. 2023 (arXiv 2306.15595); {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "rerope: distance that a query and a key are turned by, rows up to the query; log_scaling: factor on the query at each "
        "position",
    }),
    (POSENC, "randomized_positions", "randomized_positions", randomized_positions, {
        "topic": "randomized positions: means of the order statistics",
        "source": "Ruoss et al. 2023 (arXiv 2305.16843): a sorted sample of n from 0..L without replacement; k(L + 1)/(n + 1) - 1; "
        f"{PLAIN}",
        "verified_against": FORMULA,
        "tolerance": "five standard errors of the mean of the draws",
    }),
    (POSENC, "t5_buckets", "t5", t5, {
        "topic": "T5 buckets and biases",
        "source": f"Raffel et al. 2019 (arXiv 1910.10683); mesh-tensorflow, transformers, x-transformers, torchscale; {PLAIN}",
        "verified_against": "transformers exactly; f32 and f64 agree on all of these distances",
        "tolerance": "exact",
        "notes": "buckets of relative positions key - query from first to last; bias: [H, rows up to the query]",
    }),
    (POSENC, "kerple", "kerple", kerple, {
        "topic": "KERPLE biases",
        "source": f"Chi et al. 2022 (arXiv 2205.09921), section 4; chijames/KERPLE; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "added after the division by sqrt(head_dim), as in the authors' code",
        "left_out": "log_3para: the form with a third parameter is not in the catalogue",
    }),
    (POSENC, "sandwich", "sandwich", sandwich, {
        "topic": "Sandwich biases",
        "source": f"Chi et al. 2022 (arXiv 2212.10356) as in NVIDIA NeMo's sandwich_relative_position_embedding; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": "1e-6; one f32 ulp here",
        "notes": "bias of each head at each distance; the index of the sum runs from 1",
    }),
    (POSENC, "fire", "fire", fire, {
        "topic": "FIRE biases",
        "source": f"Li et al. 2023 (arXiv 2310.04418) as in mcleish7/arithmetic, cramming/architectures/embeddings.py; {PLAIN}",
        "verified_against": "mcleish7/arithmetic within 5e-7",
        "tolerance": CLOSE,
        "notes": "[H, rows up to the query]",
    }),
    (POSENC, "shaw", "shaw", shaw, {
        "topic": "Shaw's relative vectors: rows, logits, output",
        "source": f"Shaw et al. 2018 (arXiv 1803.02155), eq. 1 to 5; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "logits of all pairs, divided by sqrt(head_dim); weights and output under a causal mask",
    }),
    (POSENC, "transformer_xl", "transformer_xl", transformer_xl, {
        "topic": "Transformer-XL: table, logits, distances after the relative shift",
        "source": f"Dai et al. 2019 (arXiv 1901.02860), appendix B; XLNet in transformers; {PLAIN}",
        "verified_against": "relative shift: XLNet in transformers exactly; the rest: the formula alone",
        "tolerance": CLOSE,
        "notes": "logits are not divided by sqrt(head_dim), rows up to the query; projection maps a row R(d) from the left, R(d) W; "
        "distances: query minus key of each cell, as the shifts of columns in the reference tell",
    }),
    (POSENC, "cope", "cope", cope, {
        "topic": "CoPE: biases and logits",
        "source": f"Golovneva et al. 2024 (arXiv 2405.18719), eq. 3 to 7 and appendix; {PLAIN}",
        "verified_against": "x-transformers within 3e-8",
        "tolerance": CLOSE,
        "notes": "no logit is divided by sqrt(head_dim) here, nor are those that the gates see; rows up to the query",
    }),
    (POSENC, "newer_encodings", "fox", fox, {
        "topic": "FoX: biases of given forget gates",
        "source": f"Lin et al. 2025 (arXiv 2503.02130); x-transformers' DataDependentAlibi; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "gates [H, tokens]; bias [H, rows up to the query]",
    }),
    (POSENC, "deberta", "deberta", deberta, {
        "topic": "DeBERTa: buckets and disentangled logits",
        "source": "buckets: make_log_bucket_position of deberta_v2 in transformers; logits: He et al. 2020 (arXiv 2006.03654), eq. 3 and "
        f"4, by scripts/golden_import.py; {PLAIN}",
        "verified_against": "buckets: transformers exactly; logits: the formula alone",
        "tolerance": CLOSE,
        "notes": "logits [H, queries, keys] over sqrt(terms head_dim); position to content reads row delta(key, query), as eq. 4 has it; "
        "the authors' code and transformers read delta(query, key) there",
    }),
    (POSENC, None, "hard_alibi", hard_alibi, {
        "topic": "Hard-ALiBi: what each head sees",
        "source": "Jelassi et al. 2024 (arXiv 2402.01032); sjelassi/transformers_ssm_copy, hard_alibi_model.py; written by hand",
        "verified_against": FORMULA,
        "tolerance": "exact",
        "notes": "1 where a head sees a key, [H, queries, keys]; keys after the query by the same distance",
    }),
    (MODEL, "rope_linear_attention", "rope_linear_attention", linear_attention, {
        "topic": "linear attention with rotary embedding",
        "source": f"Su et al. 2021 (arXiv 2104.09864), eq. 19, and two other normalizations; {PLAIN}",
        "verified_against": FORMULA,
        "tolerance": CLOSE,
        "notes": "q and k [tokens, head_dim], v [tokens, 2]; numerator weights [tokens, tokens] are (R phi(q)).(R phi(k)), denominators "
        "their row sums with or without R; hidden pairs are 0 in the causal case; out_divide_by_count divides by the number of visible "
        "keys",
    }),
]


def main():
    folder = Path(sys.argv[1])
    for crate, file, name, convert, head in TOPICS:
        reference = json.loads((folder / f"{file}.json").read_text())["cases"] if file else []
        cases = list(convert(reference))
        crate.mkdir(parents=True, exist_ok=True)
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        body = ",\n".join("    " + json.dumps(case) for case in cases)
        (crate / f"{name}.json").write_text("\n".join(["{", *lines, '  "cases": [', body, "  ]", "}", ""]))
        print(f"{crate / name}.json: {len(cases)} cases")


if __name__ == "__main__":
    main()
