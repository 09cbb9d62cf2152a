"""Records of elsewhere (`run --recorded`), published corpora, files of token ids, weights to start from, configs of published models, exported tables."""

import gzip, json, os, shutil, struct
from box import SHORT, TINY, attack, kill_often, tensor

RUN = ("run", "x.toml", "--jobs", "1", "--runs")


def recorded(box):
    """Two runs, gathered: the lines of their records."""
    box.config(SHORT.replace("seeds = [0]", "seeds = [0, 1]"))
    box.lr(*RUN, "first", allowed=(0,))
    box.lr("gather", "first", "--out", "all.jsonl", allowed=(0,))
    return (box.path / "all.jsonl").read_text().splitlines()


def changed(line, seal=True, **values):
    record = json.loads(line)
    for key, value in values.items():
        record[key] = value
    if not seal:
        del record["seal"]
    return json.dumps(record)


def use(box, content, *words, code=3, never=(), name="a.jsonl"):
    """`run --recorded` of a file with this content."""
    (box.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    shutil.rmtree(box.path / "runs", ignore_errors=True)
    ended = box.refused(*RUN, "runs", "--recorded", name, words=words, code=code, never=never)
    box.must(code == 0 or not list((box.path / "runs").glob("*/*/record.json")), "something was recorded")
    return ended


@attack("recorded", "records with blank lines, CRLF, no end of the last line, a byte order mark, every line twice, the file named twice", "0: all runs count as done")
def readable(box):
    lines = recorded(box)
    for content in ("\n\n" + "\n\n".join(lines) + "\n\n", "\r\n".join(lines) + "\r\n", "\n".join(lines), "\n".join(lines + lines), "\ufeff" + "\n".join(lines)):
        use(box, content, "2 of 2 runs count as done", code=0)


@attack("recorded", "an empty file, gzip, UTF-16, one JSON array, indented JSON, a CSV", "3 with the file and what it is: gzip, UTF-16, an array")
def unreadable(box):
    lines = recorded(box)
    text = "\n".join(lines) + "\n"
    use(box, "", "a.jsonl", "no record")
    use(box, "run_id,seed\n1,2\n", "a.jsonl:1")
    use(box, json.dumps(json.loads(lines[0]), indent=1), "a.jsonl:1")
    use(box, gzip.compress(text.encode()), "a.jsonl", "gzip")
    use(box, text.encode("utf-16"), "a.jsonl", "UTF-16")
    use(box, "[" + ",".join(lines) + "]", "a.jsonl", "array", never=("u32",))


@attack("recorded", "a line of 17 MB and one of 200 MB, in front of a record", "3 at once, with the line and the limit; less than 600 MB of memory")
def huge_line(box):
    lines = recorded(box)
    for size in (17, 200):
        use(box, '{"x":"' + "a" * (size << 20) + '"}\n' + lines[0], "a.jsonl:1", "16777216")


@attack("recorded", "schema 0, 2, 2^40, -1, 1.5, \"1\", none", "3 with the line; a newer version is called that")
def versions(box):
    line = recorded(box)[0]
    for value in (0, 1 << 40, -1, 1.5, "1", None):
        use(box, changed(line, schema=value), "a.jsonl:1")
    use(box, changed(line, schema=2), "a.jsonl:1", "newer")
    record = json.loads(line)
    del record["schema"]
    use(box, json.dumps(record), "a.jsonl:1")


@attack("recorded", "the seal of another record, null, text, half of one; a digit of a score under its seal", "3 with the line and the run")
def seals(box):
    lines = recorded(box)
    own = json.loads(lines[0])
    use(box, json.dumps(dict(own, seal=json.loads(lines[1])["seal"])), "a.jsonl:1", own["run_id"], "seal")
    for seal in ("x", {}, {"record_blake3": own["seal"]["record_blake3"][:-1]}, [1]):
        use(box, json.dumps(dict(own, seal=seal)), "a.jsonl:1")
    own["evals"][0]["metrics"]["loss_nats"]["value"] += 1e-9
    use(box, json.dumps(own), "a.jsonl:1", "seal")


@attack("recorded", "run ids that are another's, a path, upper case, empty; seeds that are not those of the spec", "3 with the line; nothing is written elsewhere")
def ids(box):
    lines = recorded(box)
    other = json.loads(lines[1])["run_id"]
    for value in (other, "../../../../tmp/evil", other.upper(), ""):
        use(box, changed(lines[0], seal=False, run_id=value), "a.jsonl:1")
    use(box, changed(lines[0], seal=False, seed=7), "a.jsonl:1", "seed")


@attack("recorded", "two numbers for one run: in one file, in two, in the file and in the directory of runs", "3; both places are named, nothing is trained or replaced")
def two_numbers(box):
    lines = recorded(box)
    other = json.loads(lines[0])
    other["evals"][0]["metrics"]["loss_nats"]["value"] += 0.5
    del other["seal"]
    other = json.dumps(other)
    use(box, lines[0] + "\n" + other, "a.jsonl:1 and a.jsonl:2")
    (box.path / "b.jsonl").write_text(other)
    (box.path / "a.jsonl").write_text(lines[0])
    box.refused(*RUN, "runs", "--recorded", "a.jsonl", "b.jsonl", words=["a.jsonl:1", "b.jsonl:1"], code=3)
    before = {path: path.read_bytes() for path in (box.path / "first").glob("*/*/record.json")}
    box.refused(*RUN, "first", "--recorded", "b.jsonl", words=["b.jsonl:1", "record.json"], code=3)
    box.must(all(path.read_bytes() == content for path, content in before.items()), "a record was replaced")


@attack("recorded", "a directory, /dev/null, a pipe that nobody writes to, no file, a link to a file, a link to itself", "3 at once in plain words; the link to a file works")
def places(box):
    recorded(box)
    (box.path / "d").mkdir()
    os.mkfifo(box.path / "pipe")
    (box.path / "loop.jsonl").symlink_to("loop.jsonl")
    for name in ("d", "/dev/null", "pipe", "nowhere.jsonl", "loop.jsonl"):
        box.refused(*RUN, "runs", "--recorded", name, words=[name, "= help"], code=3, never=("metadata",))
    (box.path / "link.jsonl").symlink_to("all.jsonl")
    box.refused(*RUN, "runs", "--recorded", "link.jsonl", words=["2 of 2 runs count as done"], code=0)


@attack("recorded", "records without a seal that no training gives: no evaluations, `diverged` with scores, 999,999 tokens scored of 80, 3 steps of 6", "3, or the run is trained: never done and then WRONG for verify")
def unsealed(box):
    line = recorded(box)[0]
    record = json.loads(line)
    scores = json.loads(json.dumps(record["evals"]))
    scores[0]["metrics"]["loss_nats"]["n"] = 999999
    wrong = []
    for name, values in (("no evaluations", {"evals": []}), ("diverged", {"status": "diverged"}), ("999,999 tokens", {"evals": scores}), ("3 steps", {"train": dict(record["train"], steps=3)})):
        (box.path / "a.jsonl").write_text(changed(line, seal=False, **values))
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        ended = box.lr(*RUN, "runs", "--recorded", "a.jsonl", allowed=(0, 3))
        if ended.code == 0 and b"1 of 2 runs count as done" in ended.err:
            wrong.append(f"{name} (verify {box.lr('verify', 'runs').code})")
    box.must(not wrong, f"count as done: {', '.join(wrong)}")


@attack("recorded", "records without a seal whose experiment is ../x and whose labels hold ESC, HTML and a bar", "nothing is written outside; no command prints the control character; the report is not broken")
def hostile(box):
    line = recorded(box)[0]
    label = [{"key": "model.pe", "text": "\x1b[31m<b>|red", "value": "x"}]
    ended = use(box, changed(line, seal=False, experiment="../x", labels=label), code=0)
    box.must(not (box.path / "x").exists() and not (box.path.parent / "x").exists(), "written outside")
    box.must(b"\x1b[31m" not in ended.err + ended.out, "an escape is printed")
    for command in (["status", "runs"], ["report", "runs"], ["verify", "runs"], ["list", "methods"]):
        ended = box.lr(*command, allowed=(0, 1, 2))
        box.must(b"\x1b[31m" not in ended.err + ended.out, f"{command} prints an escape")
    page = (box.path / "runs/tiny/report/report.html").read_text()
    box.must("<b>|red" not in page and "\x1b" not in page, "HTML is not escaped")


@attack("recorded", "a key=value, a config and an option after --recorded", "2 or 3, with where it belongs")
def order(box):
    recorded(box)
    box.refused("run", "x.toml", "--runs", "runs", "--recorded", "all.jsonl", "train.lr=1e-3", words=["train.lr=1e-3", "before --recorded"])
    ended = box.lr("run", "--recorded", "all.jsonl", "x.toml", allowed=(2, 3))
    box.must(b"CONFIG" in ended.err or b"x.toml" in ended.err, str(ended))


@attack("recorded", "eval, export of logits, tables and tokenizer, verify --reevaluate of a run whose record was copied", "3 for what needs weights, with the line that it was copied from")
def without_weights(box):
    recorded(box)
    box.lr(*RUN, "runs", "--recorded", "all.jsonl", allowed=(0,))
    run = str(next((box.path / "runs/tiny").glob("*/record.json")).parent)
    box.refused("eval", run, "--lengths", "16", words=["all.jsonl:"], code=3)
    for kind in ("logits", "tables"):
        box.refused("export", run, "--format", kind, "--out", "out.safetensors", words=["all.jsonl:"], code=3)
    box.must(not (box.path / "out.safetensors").exists(), "a file was written")
    box.lr("verify", run, "--reevaluate", allowed=(0, 1, 3))


@attack("recorded", "a sweep with half of its records given is killed at 12 random instants", "the bytes of a sweep that trained all of them, and the copied ones")
def killed(box):
    box.config(TINY.replace("steps = 150", "steps = 1500"))
    box.lr(*RUN, "calm", allowed=(0,))
    box.lr("gather", "calm", "--out", "all.jsonl", allowed=(0,))
    (box.path / "half.jsonl").write_text((box.path / "all.jsonl").read_text().splitlines()[0] + "\n")
    command = [*RUN, "runs", "--checkpoint-every", "50", "--recorded", "half.jsonl"]
    count = kill_often(box, command, 12, 0.4)
    box.lr(*command, allowed=(0,))
    for name, record in box.records("calm").items():
        box.must(box.records()[name] == record, f"{name} differs")
    box.lr("verify", "runs", allowed=(0,))
    return f"{count} kills"


@attack("recorded", "the file of records is written anew by `gather` while runs read it, 15 times", "0 or 3 each time; never half of it in silence")
def rewritten(box):
    import threading
    recorded(box)
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            box.lr("gather", "first", "--out", "all.jsonl")
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(15):
            ended = box.lr("check", "x.toml", "--runs", "none", "--recorded", "all.jsonl", "--json", allowed=(0, 3))
            box.must(ended.code == 3 or all(run["recorded"] for run in json.loads(ended.out)["runs"]), "half of the file was read")
    finally:
        stop.set()
        thread.join()


TEXT = SHORT.replace('kind = "copy"\nalphabet = 4\ntest_rows = 8', 'kind = "text"\nfiles = ["c.txt"]\neval_tokens = 64')


def corpus(box, task, *words, code, never=()):
    box.config(TEXT)
    return box.refused("check", "x.toml", "task=" + task, words=words, code=code, never=never)


@attack("corpora", "tinyshakespeare with another hash, one byte short, one long, empty", "3 with the bytes and hash of both")
def shakespeare(box):
    for size in (1115394, 1115393, 1115395, 0):
        (box.path / "input.txt").write_bytes(os.urandom(size))
        corpus(box, '{ kind = "text", corpus = "tinyshakespeare", files = ["input.txt"] }', "input.txt", f"{size} bytes", "1115394 bytes", code=3)


@attack("corpora", "a named corpus that is a directory, a dangling link, a pipe, /dev/zero, missing, without a right to read it", "3 at once with the path")
def odd_files(box):
    (box.path / "d").mkdir()
    (box.path / "dangling").symlink_to("nowhere")
    os.mkfifo(box.path / "pipe")
    for name in ("d", "dangling", "pipe", "/dev/zero", "missing"):
        corpus(box, f'{{ kind = "text", corpus = "text8", files = ["{name}"] }}', name, "= help", code=3)


@attack("corpora", "two files where one is meant, three of WikiText without a test file, two with `test` in their names, none", "2 with the files that are meant")
def wrong_number(box):
    for name in ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens", "more.test.tokens"):
        (box.path / name).write_text("= Title =\n some words \n" * 50)
    wiki = lambda *names: '{ kind = "text", corpus = "wikitext-2", files = [' + ", ".join(f'"{name}"' for name in names) + "] }"
    corpus(box, wiki("wiki.train.tokens", "wiki.valid.tokens"), "wiki.test.tokens", code=2)
    corpus(box, wiki("*.tokens"), "task.files", code=2)
    corpus(box, '{ kind = "text", corpus = "text8", files = ["*.tokens"] }', "more than one", code=2)
    corpus(box, '{ kind = "text", corpus = "text8" }', "names no file", code=2)
    corpus(box, wiki("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"), "wikitext-2", "published", code=3)


@attack("corpora", "names in other spellings, with a split, crates, a limit of bytes, files for the text that is carried", "2 with the key and the nearest name")
def spellings(box):
    (box.path / "c.txt").write_text("words " * 100)
    for name, near in (("Text8", "text8"), ("wikitext2", "wikitext-2"), ("enwiki8", "enwik8"), ("shakespeare", "tinyshakespeare")):
        corpus(box, f'{{ kind = "text", corpus = "{name}", files = ["c.txt"] }}', "task.corpus", near, code=2)
    for more in ('split = { by = "files", valid = ["c.txt"] }', 'crates = ["rand"]'):
        corpus(box, '{ kind = "text", corpus = "text8", files = ["c.txt"], ' + more + " }", "= help", code=2)
    corpus(box, '{ kind = "text", corpus = "rust-2026", files = ["c.txt"] }', "task.files", code=2)


@attack("corpora", "100,000,000 bytes that are not Wikipedia as enwik8 and as text8, as who takes one for the other", "3: it is not the published file")
def other_hundred(box):
    with open(box.path / "sparse", "wb") as file:
        file.truncate(100_000_000)
    corpus(box, '{ kind = "text", corpus = "text8", files = ["sparse"] }', "sparse", "published", code=3)
    corpus(box, '{ kind = "text", corpus = "enwik8", files = ["sparse"] }', "sparse", code=3)


def numpy_file(ids, kind="<u2", version=1, shape=None, fortran=False):
    letter = {"<u2": "H", "<i4": "i", "<u4": "I", "<u8": "Q", "<f4": "f", ">u2": "H", "|O": "H"}[kind]
    about = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape or (len(ids),)}, }}".encode()
    about += b" " * (-(len(about) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(about)) + about + struct.pack(f"{'>' if kind[0] == '>' else '<'}{len(ids)}{letter}", *ids)


def shard(ids, magic=20240520, version=1, count=None):
    return struct.pack("<256i", magic, version, len(ids) if count is None else count, *[0] * 253) + struct.pack(f"<{len(ids)}H", *ids)


IDS = [(7 * i * i + i // 3) % 50 for i in range(5000)]


def tokens(box, content, *words, code=3, name="ids.npy", level="u16", vocab=50):
    (box.path / name).write_bytes(content)
    return corpus(box, f'{{ kind = "text", level = "{level}", vocab = {vocab}, files = ["{name}"] }}', *words, code=code)


@attack("token files", "NumPy arrays of floats, big-endian, by columns, of objects, empty; cut by a byte, longer by 100, a header that is cut", "3 with the file and what it holds")
def arrays(box):
    good = numpy_file(IDS)
    tokens(box, numpy_file([i / 2 for i in IDS], "<f4"), "ids.npy", "<f4")
    tokens(box, numpy_file(IDS, ">u2"), "ids.npy", ">u2")
    tokens(box, numpy_file(IDS, "|O"), "ids.npy", "|O")
    tokens(box, numpy_file(IDS, shape=(50, 100), fortran=True), "ids.npy", "by columns")
    tokens(box, numpy_file([]), "ids.npy", "empty")
    tokens(box, good[:-1], "ids.npy", "9999 bytes follow")
    tokens(box, good + b"\0" * 100, "ids.npy", "10100 bytes follow")
    tokens(box, good[:40], "ids.npy", "header")


@attack("token files", "headers of versions that nobody has written: .npy 9.0, an llm.c shard of version 9", "3 with the version")
def unknown_headers(box):
    tokens(box, numpy_file(IDS, version=9), "ids.npy", "9")
    tokens(box, shard(IDS, version=9), "ids.bin", "version 9", name="ids.bin")


@attack("token files", "shapes that overflow: (2^63, 2^63), (-1,), (5000, 0), a header of 4 GiB", "3 at once")
def shapes(box):
    for shape in ("(9223372036854775808, 9223372036854775808)", "(-1,)", "(5000, 0)", "(4294967296, 4294967296)", "()"):
        tokens(box, numpy_file(IDS, shape=shape), "ids.npy")
    tokens(box, b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + numpy_file(IDS)[10:], "ids.npy", "header")


@attack("token files", "a shard whose count is too small, too large, negative; an odd number of bytes; a zip of arrays; ids at and above vocab", "3 with the file and the numbers")
def shards(box):
    for count in (4000, 6000, -1):
        tokens(box, shard(IDS, count=count), "ids.bin", name="ids.bin")
    tokens(box, struct.pack("<5000H", *IDS) + b"x", "10001 bytes", name="ids.bin")
    tokens(box, b"PK\x03\x04" + bytes(1000), "zip", name="ids.npz")
    tokens(box, numpy_file(IDS[:-1] + [50]), "50", vocab=50)
    tokens(box, numpy_file(IDS, "<i4"), "u32", code=2)
    tokens(box, struct.pack("<5000H", *IDS), "u16", code=2, name="ids.bin", level="u32")


@attack("token files", "the same ids as a bare file, a shard, an array, an array of two axes, of 32 bits, of 64 bits", "the same losses, step by step")
def same_ids(box):
    box.config(TEXT)
    found = []
    for name, content, level in (("a.bin", struct.pack("<5000H", *IDS), "u16"), ("b.bin", shard(IDS), "u16"), ("c.npy", numpy_file(IDS), "u16"), ("d.npy", numpy_file(IDS, shape=(50, 100)), "u16"),
                                 ("e.npy", numpy_file(IDS, "<u4"), "u32"), ("f.npy", numpy_file(IDS, "<u8"), "u64")):
        (box.path / name).write_bytes(content)
        box.lr(*RUN, name[0], f'task={{ kind = "text", level = "{level}", vocab = 50, eval_tokens = 64, files = ["{name}"] }}', allowed=(0,))
        (record,) = box.records(name[0]).values()
        found.append((record["train"]["loss_curve"], [row["metrics"]["loss_nats"] for row in record["evals"]]))
    box.must(all(one == found[0] for one in found), f"they differ: {[one[1] for one in found]}")


@attack("starts", "start_from a path that is not there, a file, an empty directory, runs of other seeds, two runs of one seed, a run that diverged", "2 or 3 with the path and what is missing; nothing is trained")
def starts(box):
    box.config(SHORT)
    box.lr(*RUN, "base", allowed=(0,))
    box.lr(*RUN, "two", allowed=(0,))
    box.lr(*RUN, "two", "train.lr=2e-3", allowed=(0,))
    box.lr(*RUN, "gone", "train.lr=1e9", "train.steps=40", allowed=(0, 5))
    (box.path / "empty").mkdir()
    (box.path / "file").write_text("x")
    for place, words in (("nowhere", ["nowhere"]), ("file", ["file"]), ("empty", ["empty"]), ("two/tiny", ["two"])):
        ended = box.lr("check", "x.toml", f'train.start_from="{place}"', allowed=(2, 3))
        box.must(all(word.encode() in ended.err for word in ["start_from", *words]), str(ended))
    ended = box.lr("check", "x.toml", 'train.start_from="base/tiny"', "seeds=[5]", allowed=(2, 3))
    box.must(b"5" in ended.err, str(ended))
    if any(record["status"] == "diverged" for record in box.records("gone").values()):
        ended = box.lr("check", "x.toml", 'train.start_from="gone/tiny"', allowed=(2, 3))
        box.must(b"diverged" in ended.err, str(ended))


@attack("starts", "the weights to start from are cut, hold NaN, are of another width, change after the plan", "2 or 3 with the file; no run starts from them in silence")
def bad_starts(box):
    box.config(SHORT)
    box.lr(*RUN, "base", allowed=(0,))
    path = next((box.path / "base/tiny").glob("*/weights.safetensors"))
    whole = path.read_bytes()
    nan = whole[:-400] + struct.pack("<f", float("nan")) * 100
    for content in (whole[:-1], whole[:100], b"", nan):
        path.write_bytes(content)
        ended = box.lr(*RUN, "r", 'train.start_from="base/tiny"', allowed=(1, 2, 3))
        box.must(b"weights" in ended.err or b"base" in ended.err, str(ended))
    path.write_bytes(whole)
    ended = box.lr("check", "x.toml", 'train.start_from="base/tiny"', "model.d_model=32", allowed=(0, 2, 3))
    box.must(ended.code or b"note" in ended.err, "other widths, without a word")


@attack("starts", "the source is its own experiment; the source is removed after the training", "works or 2; verify and report of the result end with 0 or say what is missing")
def own_source(box):
    box.config(SHORT)
    box.lr(*RUN, "runs", allowed=(0,))
    box.lr(*RUN, "more", 'train.start_from="runs/tiny"', "train.lr=2e-3", allowed=(0,))
    shutil.rmtree(box.path / "runs")
    box.lr("verify", "more", allowed=(0,))
    box.lr("report", "more", allowed=(0,))
    ended = box.lr("verify", "more", "--retrain", allowed=(1, 3))
    box.must(b"runs" in ended.err + ended.out, str(ended))


@attack("published configs", "rope_theta as text, a factor as text, heads 0, an unknown rotation, theta 0, a head_dim of 0", "2 with the file, its own key and value; no number of another model in silence")
def model_values(box):
    base = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 10000.0}
    for change, word in (({"rope_theta": "x"}, "rope_theta"), ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, '"4"'), ({"num_attention_heads": 0}, "num_attention_heads"),
                         ({"rope_scaling": {"rope_type": "magic", "factor": 4}}, "allowed"), ({"rope_theta": 0}, "rope_theta"), ({"head_dim": 0}, "head_dim")):
        (box.path / "m.json").write_text(json.dumps({**base, **change}))
        box.refused("inspect", "--model-config", "m.json", words=["m.json", word])


@attack("published configs", "a missing file, a directory, a pipe, an empty file, bytes that are not text, NaN, 100,000 levels, an array", "3, or 2 with the file named, at once")
def model_files(box):
    (box.path / "d").mkdir()
    os.mkfifo(box.path / "pipe")
    for name, content in (("e.json", b""), ("b.json", b"\xff\xfe"), ("n.json", b'{"rope_theta":NaN}'), ("l.json", b'{"a":' * 100000 + b"1" + b"}" * 100000), ("a.json", b"[]")):
        (box.path / name).write_bytes(content)
    for name in ("nowhere.json", "d", "pipe", "/dev/zero", "e.json", "b.json", "n.json", "l.json", "a.json"):
        ended = box.lr("inspect", "--model-config", name, allowed=(2, 3))
        box.must(name.encode() in ended.err and len(ended.err) < 2000, str(ended))


@attack("tables", "tables of alibi, rope and a formula beside `inspect` of the same", "the same numbers to 1e-6, at every distance")
def table_numbers(box):
    box.config(SHORT)
    for i, (pe, expected) in enumerate((('{ kind = "alibi" }', lambda h, d: -(2.0 ** (-8 * h / 2)) * d), ('{ kind = "formula", bias = "-h*log(1+d)" }', lambda h, d: -h * __import__("math").log(1 + d)))):
        box.lr(*RUN, f"r{i}", f"model.pe={pe}", allowed=(0,))
        run = str(next((box.path / f"r{i}/tiny").glob("*/record.json")).parent)
        box.lr("export", run, "--format", "tables", "--out", f"t{i}.safetensors", allowed=(0,))
        bias = tensor(box.path / f"t{i}.safetensors", "trained.8.layers.0.bias")
        length = len(bias) // 2
        for h in (1, 2):
            for d in range(length):
                box.must(abs(bias[(h - 1) * length + d] - expected(h, d)) < 1e-6 * max(1, d), f"head {h}, distance {d}: {bias[(h - 1) * length + d]}")


@attack("tables", "an encoding that no table can hold, a length and a variant that the run lacks, a run that diverged", "2 or 3 by name; no file is left")
def no_tables(box):
    box.config(SHORT)
    box.lr(*RUN, "r", 'model.pe={ kind = "cope" }', allowed=(0,))
    box.lr(*RUN, "s", allowed=(0,))
    cope, rope = (str(next((box.path / name / "tiny").glob("*/record.json")).parent) for name in "rs")
    for run, more, word in ((cope, (), "cope"), (rope, ("--lengths", "7"), "7"), (rope, ("--variant", "yarn"), "yarn"), (rope, ("--lengths", "0"), "0"), (rope, ("--lengths", "99999999999999999999"), "9999")):
        ended = box.lr("export", run, "--format", "tables", "--out", "t.safetensors", *more, allowed=(2, 3))
        box.must(word.encode() in ended.err, str(ended))
        box.must(not (box.path / "t.safetensors").exists(), "a file is left")


@attack("tables", "tables are written into a directory, a file of the user, a link, a path below a file, a full device", "6, 2 or 3 by name, or the file is replaced whole; no half file")
def table_places(box):
    box.config(SHORT)
    box.lr(*RUN, "s", allowed=(0,))
    run = str(next((box.path / "s/tiny").glob("*/record.json")).parent)
    (box.path / "d").mkdir()
    (box.path / "mine.txt").write_text("mine")
    (box.path / "link").symlink_to("mine.txt")
    for out in ("d", "mine.txt/x", "/dev/full", "link"):
        ended = box.lr("export", run, "--format", "tables", "--out", out, allowed=(0, 2, 3, 6))
        box.must(ended.code == 0 or out.split("/x")[0].encode() in ended.err, str(ended))
    box.must((box.path / "link").is_symlink() is False or (box.path / "mine.txt").read_text() != "" , "the file of the link is empty")
    box.must(list((box.path / "d").iterdir()) == [], "something is in the directory")


@attack("tables", "weights of the run are edited or cut, then tables are exported", "3: no tables of weights that are not those of the record")
def table_weights(box):
    box.config(SHORT)
    box.lr(*RUN, "s", 'model.pe={ kind = "t5" }', allowed=(0,))
    path = next((box.path / "s/tiny").glob("*/weights.safetensors"))
    whole = path.read_bytes()
    for content in (whole[:-4] + b"\0\0\x80\x3f", whole[:-1], b""):
        path.write_bytes(content)
        box.refused("export", str(path.parent), "--format", "tables", "--out", "t.safetensors", words=["weights"], code=3)
        box.must(not (box.path / "t.safetensors").exists(), "a file is left")
