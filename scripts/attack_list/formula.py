"""Formulas as encodings, encodings by head, automata as tasks, ranges of lengths: values that pass for right ones."""

import json, math, re
from box import SHORT, TINY, attack, kill_often, same, tensor


def formula(keys):
    return 'model.pe={ kind = "formula", ' + keys + " }"


def refuses(box, keys, *words, more=(), never=()):
    box.config(SHORT)
    box.refused("check", "x.toml", *more, formula(keys), words=words, never=never)


def losses(box, *more, runs="r", allowed=(0,)):
    """The losses of one run, by variant and length."""
    box.config(SHORT)
    box.lr("run", "x.toml", "--runs", runs, "--jobs", "1", *more, allowed=allowed)
    (record,) = box.records(runs).values()
    return {(row["variant"], row["test_len"]): row["metrics"].get("loss_nats", {}).get("value", math.nan) for row in record["evals"]}


@attack("formulas", "a division by zero at distance 5, which no list of usual distances has", "2 before any work, with d = 5")
def zero_at_five(box):
    refuses(box, 'bias = "1/(d-5)"', "model.pe.bias", "d = 5", "1/(d-5)")


@attack("formulas", "a division by zero in the second layer only", "2 before any work, with the layer")
def zero_in_layer(box):
    refuses(box, 'bias = "-d/(2-l)"', "model.pe.bias", "layer 2", more=("model.n_layers=2",))


@attack("formulas", "a logarithm that is undefined where the key is not the first token", "2 before any work, with d and t")
def undefined_by_row(box):
    refuses(box, 'bias = "log(d-t+1)"', "model.pe.bias", "NaN at d = ")


@attack("formulas", "numbers that f64 holds and f32 does not: 1e300, 1e400, 1e38 * 1e10 / 1e10", "2 with the number; nothing diverges at step 0")
def too_large(box):
    for bias in ("1e300*d", "1e400*d", "d*1e38*1e10/1e10"):
        refuses(box, f'bias = "{bias}"', "model.pe.bias", bias)


@attack("formulas", "powers and roots of negative numbers: (0-d)^17, (0-1)^d, max(sqrt(d-3), -9)", "2, or the numbers of the formula; never 0 in silence")
def negative_bases(box):
    wrong = []
    for bias, at in (("(0-d)^17/1e9", lambda d: -(d**17) / 1e9), ("(0-1)^d", lambda d: (-1) ** d), ("max(sqrt(d-3), -9)", None)):
        box.config(SHORT)
        if box.lr("check", "x.toml", formula(f'bias = "{bias}"'), allowed=(0, 2)).code == 0:
            wrong.append(bias)
    box.must(not wrong, f"accepted, and trained as a bias of 0: {', '.join(wrong)}")


@attack("formulas", "a bias of minus infinity at every distance, in all heads and in one", "2: nobody would see anything")
def all_hidden(box):
    refuses(box, 'bias = "log(0)"', "model.pe.bias", "hides every pair")
    refuses(box, 'bias = "log(h-1)"', "model.pe.bias", "hides every pair")


@attack("formulas", "names that have a meaning: d, log, i, E, and one in both tables", "2 with the name; what is allowed lists nothing twice")
def taken_names(box):
    refuses(box, 'bias = "-m*d", train = { d = 1 }', "d", never=("N, d",))
    refuses(box, 'bias = "-log*d", values = { log = 2 }', "model.pe.values.log")
    refuses(box, 'bias = "-E*d", values = { E = 2 }', "model.pe.values.E")
    refuses(box, 'bias = "-m*d", values = { m = 1 }, train = { m = 1 }', "model.pe.train.m", "values")


@attack("formulas", "a frequency of a name without a value, and of a trained one", "2; the help is one that works: `values`, not `train`")
def untrained_frequencies(box):
    refuses(box, 'inv_freq = "b^(-2*i/E)"', "model.pe.inv_freq", "`b`", "`values`", never=("or in `train`",))
    refuses(box, 'inv_freq = "b^(-2*i/E)", train = { b = 9 }', "model.pe.train.b", "not trained", "values")


@attack("formulas", "no formula at all, and empty ones", "2; both keys are named")
def none_at_all(box):
    box.config(SHORT)
    box.refused("check", "x.toml", 'model.pe={ kind = "formula" }', words=["bias", "inv_freq"])
    for bias in ("", " ", "(", "()"):
        refuses(box, f'bias = "{bias}"', "model.pe.bias", "where a value is expected")


@attack("formulas", "100,000 brackets, signs, powers, digits and terms; 40 brackets", "2 at once, the message shorter than 3 kB and without the whole text; 40 brackets are read, or the limit is named in brackets")
def deep(box):
    many = 100_000
    for bias in ("(" * many + "d" + ")" * many, "-" * many + "d", "d^" * many + "d", "9" * many, "d+" * many + "d", "max(" * many + "d" + ",1)" * many):
        box.config(SHORT.replace('{ kind = "rope" }', f'{{ kind = "formula", bias = "{bias}" }}'))
        ended = box.refused("check", "x.toml", words=["model.pe.bias", "x.toml:11"])
        box.must(len(ended.err) < 3000, f"a message of {len(ended.err)} bytes")
    box.config(SHORT)
    ended = box.lr("check", "x.toml", formula('bias = "' + "(" * 40 + "-d" + ")" * 40 + '"'), allowed=(0, 2))
    box.must(ended.code == 0 or b"nested more than 50 deep, at character 26" not in ended.err, "25 brackets count as 50")


@attack("formulas", "other signs: a Unicode minus, full-width digits, Greek, a superscript, an override of direction, NUL, a comment, hexadecimal", "2 with the sign and its place; no control character is printed")
def signs(box):
    for text, sign in (("-d−1", "−"), ("-１*d", "１"), ("-λ*d", "λ"), ("-d²", "²"), ("-d #c", "#"), ("-0x10*d", "x")):
        refuses(box, f'bias = "{text}"', "model.pe.bias", f"`{sign}`", "at character")
    for text in ("-\\u202ed", "-d\\u0000", "-d\\n*2"):
        refuses(box, f'bias = "{text}"', "model.pe.bias", "control character", never=("\u202e", "\0"))


@attack("formulas", "a trained parameter leaves the domain of its logarithm", "5, `diverged.json` names the step; verify 0; --retry diverged comes to the same record", limit=240)
def turns_nan(box):
    box.config(SHORT)
    command = ["run", "x.toml", "--runs", "r", "--jobs", "1", "train.lr=0.5", formula('bias = "log(m)*d", train = { m = 0.001 }')]
    ended = box.lr(*command, allowed=(5,))
    box.must(b"diverged at step" in ended.err, str(ended))
    (run,) = (box.path / "r/tiny").glob("*/record.json")
    before = run.read_bytes()
    box.must((run.parent / "diverged.json").is_file(), "no diverged.json")
    box.lr("verify", "r", allowed=(0,))
    box.lr(*command, "--retry", "diverged", allowed=(5,))
    box.must(run.read_bytes() == before, "the record differs after --retry")


@attack("formulas", "derivatives at 0: sqrt(d), d^m, abs(m), max(m, 0), sqrt(m), m^2 at m = 0 and d = 0", "0; every loss is finite", limit=240)
def derivatives(box):
    for i, keys in enumerate(('bias = "-m*sqrt(d)", train = { m = 0 }', 'bias = "-d^m", train = { m = 0.5 }', 'bias = "-abs(m)*d", train = { m = 0 }',
                              'bias = "-max(m, 0)*d", train = { m = 0 }', 'bias = "-sqrt(m)*d", train = { m = 0 }', 'bias = "-d*m^2", train = { m = 0 }')):
        found = losses(box, formula(keys), "train.lr=0.1", runs=f"r{i}")
        box.must(all(math.isfinite(loss) for loss in found.values()), f"{keys}: {found}")


@attack("formulas", "a bias that f32 holds at length 4 and not at 1024", "0 or 5; the length is recorded as diverged, or as a finite score, and the others are kept")
def grows(box):
    found = losses(box, formula('bias = "exp(d/10)"'), "eval.test_lens=[4, 1024]", allowed=(0, 5))
    box.must(math.isfinite(found.get(("trained", 4), math.nan)), str(found))


@attack("formulas", "a variant that gives a trained name another start", "2, or the variant has that number: its loss is that of the formula with the number in it")
def variant_start(box):
    variants = 'eval.variants=[{ name = "three", set = { train = { m = 3.0 } } }, { name = "plain", set = { kind = "formula", bias = "-3*d" } }]'
    box.config(SHORT)
    pe = formula('bias = "-m*d", train = { m = 0.5 }')
    if box.lr("check", "x.toml", pe, variants, allowed=(0, 2)).code == 0:
        found = losses(box, pe, variants, "train.lr=1e-12")
        box.must(abs(found["three", 8] - found["plain", 8]) < 1e-5, f"three {found['three', 8]}, -3*d {found['plain', 8]}, trained {found['trained', 8]}")


@attack("formulas", "a variant trains a name that the trained formula does not have", "2, or its value is the one given: never that of another name")
def variant_name(box):
    variants = 'eval.variants=[{ name = "x", set = { bias = "-x*d", train = { x = 3.0 } } }, { name = "plain", set = { kind = "formula", bias = "-3*d" } }]'
    box.config(SHORT)
    pe = formula('bias = "-m*d", train = { m = 0.5 }')
    if box.lr("check", "x.toml", pe, variants, allowed=(0, 2)).code == 0:
        found = losses(box, pe, variants, "train.lr=1e-12")
        box.must(abs(found["x", 8] - found["plain", 8]) < 1e-5, f"x = 3 has the loss {found['x', 8]}, -3*d {found['plain', 8]}, m = 0.5 {found['trained', 8]}")


@attack("formulas", "a run starts from weights of a formula whose parameter has another name", "2 or 3, or a note that it is drawn anew; never the value of another name")
def start_name(box):
    losses(box, formula('bias = "-m*d", train = { m = 7.0 }'), "train.lr=1e-12", "train.steps=1", runs="base")
    box.config(SHORT)
    ended = box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", "train.start_from=\"base/tiny\"", "train.lr=1e-12", "train.steps=1",
                   formula('bias = "-z*d", train = { z = 0.5 }'), allowed=(0, 2, 3))
    if ended.code == 0:
        (run,) = (box.path / "r/tiny").glob("*/weights.safetensors")
        box.must(tensor(run, "encoding.trained.z")[0] < 1, f"z starts at {tensor(run, 'encoding.trained.z')[0]}, the value of m, not at 0.5")


@attack("formulas", "a variant gives a trained name in `values`", "2; the message names the key that was written, and calls nothing a default that is none")
def variant_values(box):
    box.config(SHORT)
    box.refused("check", "x.toml", formula('bias = "-m*d", train = { m = 0.5 }'), 'eval.variants=[{ name = "v", set = { values = { m = 2 } } }]',
                words=["eval.variants.0", "m"], never=("default value",))


@attack("formulas", "a run with trained numbers is killed at 12 instants and continued", "identical to an undisturbed one", limit=240)
def killed(box):
    box.config(TINY.replace("steps = 150", "steps = 2000").replace('{ kind = "rope" }', '{ kind = "formula", bias = "-m*log(1+r*d)", train = { m = 0.5, r = 1.0 } }'))
    command = ["run", "x.toml", "--runs", "r", "--jobs", "1", "--checkpoint-every", "20"]
    box.lr("run", "x.toml", "--runs", "calm", "--jobs", "1", allowed=(0,))
    killed = kill_often(box, command, 12)
    box.lr(*command, allowed=(0,))
    same(box, "r", "calm")
    return f"{killed} kills"


@attack("formulas", "formulas as an axis, whose signs *, _ and ^ mean something in Markdown and TeX", "0; every formula is in the report, and TeX has no bare _ or ^")
def labels(box):
    box.config(SHORT.replace('{ kind = "rope" }', '{ kind = "formula", bias = "-d", values = { m_1 = 2 } }') + '[axes]\n"model.pe.bias" = ["-m_1*d*2", "-m_1*d^2", "-2*m_1*d_2"]\n')
    box.refused("check", "x.toml", words=["d_2", "x.toml:20:44", "value 3 of 3"])
    box.config((box.path / "x.toml").read_text().replace(', "-2*m_1*d_2"', ""))
    box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", allowed=(0,))
    report = box.path / "r/tiny/report"
    page = (report / "report.html").read_text()
    box.must("-m_1*d*2" in page and "-m_1*d^2" in page, "HTML has not both formulas")
    tex = (report / "tables.tex").read_text()
    bare = [line for line in tex.splitlines() if "m_1" in line.replace("\\_", "") and not line.lstrip().startswith("%")]
    box.must(not bare, f"a bare _ in TeX: {bare[:1]}")


@attack("formulas", "`inspect` and `config show` of a formula", "the numbers of its definition; the config shown is the same run")
def shown(box):
    box.config(SHORT)
    said = json.loads(box.lr("inspect", "formula", "bias=-m*log(1+r*d)", "train={ m = 0.5, r = 2.0 }", "--json", allowed=(0,)).out)
    for d, bias in said["tables"][0]["rows"]:
        box.must(abs(bias + 0.5 * math.log(1 + 2 * d)) < 1e-12, f"{bias} at {d}")
    pe = formula('bias = "-m * log(1 + d)", train = { m = 0.5 }')
    ids = lambda name, *more: [run["run_id"] for run in json.loads(box.lr("check", name, *more, "--json", allowed=(0,)).out)["runs"]]
    box.config(box.lr("config", "show", "x.toml", pe, allowed=(0,)).out.decode(), "shown.toml")
    box.must(ids("x.toml", pe) == ids("shown.toml"), "another run id")


@attack("formulas", "formulas of t, l and h, alone, in a part of by_head and beside a rotation: decoded token by token, and trained three side by side", "exact match as by teacher forcing, to the last row; records as of runs one by one", limit=240)
def decoded(box):
    axes = ('axes={ "model.pe" = [{ kind = "formula", bias = "-m*log(1+d)-l*d/N/9+t*d/50", train = { m = 0.3 } }, { kind = "by_head", parts = [{ kind = "formula", bias = "-h*d/H/3" }, { kind = "rope" }] }, '
            '{ kind = "formula", inv_freq = "2^(-i)", bias = "-d/9" }] }')
    more = ("train.steps=400", "train.lr=1e-2", "task.test_rows=64", "seeds=[0, 1]", axes)
    box.config(SHORT)
    box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", *more, allowed=(0,))
    box.lr("run", "x.toml", "--runs", "beside", "--jobs", "1", "--runs-per-worker", "3", *more, allowed=(0,))
    same(box, "beside", "r")
    box.lr("eval", "r/tiny", "--decode", "greedy", allowed=(0,))
    between = 0
    for path in (box.path / "r/tiny").glob("*/record.json"):
        (greedy,) = (json.loads(each.read_text()) for each in (path.parent / "evals").glob("*.json"))
        one, other = ([row["metrics"]["exact_match"] for row in each["evals"]] for each in (json.loads(path.read_text()), greedy))
        box.must(one == other, f"{one} and {other}")
        between += 0 < one[0]["value"] < 1
    return f"{between} of 6 runs match some rows and not all"


@attack("by head", "numbers of heads: too many, none, negative, 2^63, whose sum wraps to the right one", "2 with the number, what is allowed, and no overflow")
def heads(box):
    box.config(SHORT)
    for heads, word in (("[2, 2]", "adds up to 4"), ("[2, 0]", "heads.1"), ("[-1, 3]", "-1"), ("[2]", "1 numbers for 2 parts"), ("[9223372036854775807, 9223372036854775807]", "heads")):
        box.refused("check", "x.toml", 'model.pe={ kind = "by_head", parts = [{ kind = "rope" }, { kind = "nope" }], heads = ' + heads + " }", words=["model.pe.heads", word])
    box.refused("check", "x.toml", "model.n_heads=4", 'model.pe={ kind = "by_head", parts = [{ kind = "rope" }, { kind = "nope" }, { kind = "alibi" }], heads = [9223372036854775807, 9223372036854775807, 6] }',
                words=["model.pe.heads", "4 heads"])


@attack("by head", "one number for each head of the model, inside a part with fewer heads", "2: the heads of the part count")
def part_values(box):
    box.config(SHORT)
    box.refused("check", "x.toml", "model.n_heads=4", 'model.pe={ kind = "by_head", heads = [3, 1], parts = [{ kind = "formula", bias = "-m*d", values = { m = [1, 2, 3, 4] } }, { kind = "nope" }] }',
                words=["model.pe.parts.0.values.m", "4 numbers for 3 heads"])


@attack("by head", "one part that has all heads, beside the part alone; and parts within parts", "the same losses to the last digit")
def one_part(box):
    plain = losses(box, 'model.pe={ kind = "alibi" }', runs="a")
    box.must(losses(box, 'model.pe={ kind = "by_head", parts = [{ kind = "alibi" }] }', runs="b") == plain, "one part differs from the part alone")
    nested = 'model.pe={ kind = "by_head", parts = [{ kind = "by_head", parts = [{ kind = "alibi" }] }] }'
    box.must(losses(box, nested, runs="c") == plain, "a part within a part differs")


@attack("by head", "h and H of a formula in a part of 2 of 4 heads", "they count the heads of the part: the numbers of alibi in the same part")
def part_heads(box):
    pair = lambda part: 'model.pe={ kind = "by_head", heads = [2, 2], parts = [{ kind = "nope" }, ' + part + "] }"
    slopes = losses(box, "model.n_heads=4", pair('{ kind = "alibi" }'), runs="a")
    written = losses(box, "model.n_heads=4", pair('{ kind = "formula", bias = "-d*2^(-8*h/H)" }'), runs="b")
    box.must(all(abs(slopes[key] - written[key]) < 1e-6 for key in slopes), f"{slopes} {written}")


AUTOMATON = SHORT.replace('kind = "copy"\nalphabet = 4', 'kind = "automaton"\nlanguage = "tomita_3"')
OWN = 'task={ kind = "automaton", language = "own", test_rows = 8, symbols = ["a", "b"], states = ["x", "y"], start = "x", accepting = ["x"], transitions = { x = { a = "y", b = "x" }, y = { a = "x", b = "y" } } }'


@attack("automata", "an automaton with a foreign start, end, symbol and state, and names that stand twice", "2 with the very key and what is allowed")
def foreign(box):
    box.config(AUTOMATON)
    for before, after, key in (('start = "x"', 'start = "z"', "task.start"), ('accepting = ["x"]', 'accepting = ["z"]', "task.accepting.0"), ('a = "y"', 'a = "z"', "task.transitions.x.a"),
                               ('b = "x"', 'c = "x"', "task.transitions.x"), ('["a", "b"]', '["a", "a"]', "task.symbols.1"), ('["x", "y"]', '["x", "x"]', "task.states.1")):
        box.refused("check", "x.toml", OWN.replace(before, after), words=[key, "allowed: "])


@attack("automata", "a transition is missing", "2 with the key; no value is made up that was not written")
def missing(box):
    box.config(AUTOMATON)
    box.refused("check", "x.toml", OWN.replace(', b = "x"', ""), words=["task.transitions.x.b", "is missing"], never=("default value",))


@attack("automata", "languages in which all words of a length are in, or none", "2 with the length")
def no_question(box):
    box.config(AUTOMATON)
    for task, length in ((OWN.replace('["x"]', "[]"), "length 4"), ('task={ kind = "automaton", language = "aa_star" }', "length 4"), ('task={ kind = "automaton", language = "ab_star" }', "length 5")):
        box.refused("check", "x.toml", task, "eval.test_lens=[4, 5]", words=["task.answer", length])


LANGUAGES = {
    "ends_in_a": (".*a", "ab"), "begins_with_a": ("a.*", "ab"), "contains_ab": (".*ab.*", "ab"), "a_first": ("c*a.*", "abc"), "flip_flop": ("(.*1i*)", "01i"), "ab_star": ("(ab)*", "ab"),
    "tomita_1": ("1*", "01"), "tomita_2": ("(10)*", "01"), "tomita_4": ("(?!.*000).*", "01"), "tomita_5": ("(00|11|(01|10)(00|11)*(01|10))*", "01"), "tomita_7": ("0*1*0*1*", "01"),
}


def is_in(language, word):
    if language == "tomita_3":
        # No odd number of 0 in a row anywhere after an odd number of 1 in a row.
        odd = [run[0] for run in re.findall("0+|1+", word) if len(run) % 2]
        return "1" not in odd or "0" not in odd[odd.index("1") :]
    if language == "tomita_6":
        return (word.count("0") - word.count("1")) % 3 == 0
    return re.fullmatch(LANGUAGES[language][0], word) is not None


@attack("automata", "150 words of each of the thirteen languages at lengths 6, 8 and 12, beside their regular expressions", "every answer is that of the definition; about half of the words are in the language")
def answers(box):
    for language in [*LANGUAGES, "tomita_3", "tomita_6"]:
        signs = LANGUAGES.get(language, ("", "01"))[1]
        for length in (6, 8, 12):
            out = box.lr("export-rows", "automaton", f"language={language}", "--length", str(length), "--rows", "50", allowed=(0,)).out
            accepted = 0
            for line in out.splitlines()[1:]:
                row = json.loads(line)
                word = "".join(signs[token - 3] for token in row["inputs"][1 : length + 1])
                answer = row["targets"][row["counted"].index(True)] - 3
                box.must(answer in (0, 1) and is_in(language, word) == bool(answer), f"{language}: {word} is answered {answer}")
                accepted += answer
            box.must(5 < accepted < 45, f"{language}: {accepted} of 50 words of length {length} are in it")


@attack("ranges", "`\"100..51\"`, `\"4..4\"`, `\"..8\"`, `\"4..=8\"`, `\"-4..8\"`, 10^23, full-width digits, an empty list", "2 with the key, the value and a range that would do")
def ranges(box):
    box.config(SHORT)
    for lens, words in (('["100..51"]', ["51..100"]), ('["4..4"]', ["write 4"]), ('["..8"]', ["range such as"]), ('["4..=8"]', ["range such as"]), ('["-4..8"]', ["range such as"]), ('["0..4"]', ["1..4"]),
                        ('["4..99999999999"]', ["4194304"]), ('["4..99999999999999999999999"]', ["allowed"]), ('["４..８"]', ["range such as"]), ("[]", ["1 to 1000 lengths"])):
        box.refused("check", "x.toml", f"eval.test_lens={lens}", words=["eval.test_lens", *words])


@attack("ranges", "a list inside the list, and a table", "2; what is allowed names ranges too")
def not_a_range(box):
    box.config(SHORT)
    for lens in ('[["4..8"]]', "[{ from = 4, to = 8 }]"):
        box.refused("check", "x.toml", f"eval.test_lens={lens}", words=["eval.test_lens.0", "range"])


@attack("ranges", "ranges that overlap, and one that holds the other lengths", "0; every range has its own score and row of the report")
def overlapping(box):
    box.config(SHORT)
    box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", 'eval.test_lens=[4, "2..6", "5..9"]', allowed=(0,))
    (record,) = box.records("r").values()
    box.must(len({json.dumps([row.get("test_len"), row.get("from"), row.get("to")]) for row in record["evals"]}) == 3, json.dumps(record["evals"])[:300])
    page = (box.path / "r/tiny/report/report.md").read_text()
    box.must("2..6" in page and "5..9" in page, "the report does not name the ranges")


@attack("ranges", "`eval.during` holds a range that test_lens lacks, half of one, and the same turned", "2 with the key")
def during(box):
    box.config(SHORT)
    for lens in ('["4..7"]', '["8..4"]', "[5]"):
        box.refused("check", "x.toml", "eval.every=2", 'eval.test_lens=["4..8"]', f"eval.during={lens}", words=["eval.during"])
