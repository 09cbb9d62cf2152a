"""Configs, records, jobs, weights and checkpoints that somebody else wrote or damaged."""

import json, os, shutil, struct, time
from box import TINY, attack

READERS = ("status", "verify", "report")


def read_all(box, allowed=(0, 1, 3)):
    for command in READERS:
        box.lr(command, "runs", allowed=allowed)
    box.lr("gather", "runs", "--out", "r.jsonl", allowed=allowed)
    box.lr("compare", "runs", "runs", allowed=(0, 1, 2, 3))


def changed(box, name, change):
    """Finished runs, of which the first has another file."""
    runs = box.trained()
    path = runs[0] / name
    path.write_bytes(change(path.read_bytes()))
    return runs[0]


def edit(box, name, **values):
    def change(text):
        document = json.loads(text)
        document.update(values)
        return json.dumps(document).encode()
    return changed(box, name, change)


@attack("future", "a record of this schema with a key that no version knows", "refused by name, not replaced in silence")
def unknown_key(box):
    run = edit(box, "record.json", from_the_future={"x": 1})
    said = box.lr("report", "runs", allowed=(0, 3))
    box.must(run.name[:8].encode() in said.err + said.out, "the record is not named")
    box.lr("verify", "runs", allowed=(1, 3))
    again = box.run(allowed=(0, 1, 3))
    box.must(b"trained again" in again.err or again.code, str(again))


@attack("future", "timings.json and the kept configs are of another version", "nothing reads them as a condition: identical, status and verify 0")
def other_timings(box):
    run = box.trained()[0]
    (run / "timings.json").write_text('{"version": 99}')
    for path in (box.path / "runs/tiny/configs").glob("*"):
        path.write_text('version = 99\n')
    box.run(allowed=(0,))
    box.lr("status", "runs", allowed=(0,))
    box.lr("report", "runs", allowed=(0,))
    box.identical()


@attack("future", "job.json of a finished run has an unknown key", "verify says so; run writes it anew; identical")
def future_job(box):
    edit(box, "job.json", from_the_future=1)
    box.lr("verify", "runs", allowed=(0, 1, 3))
    box.lr("status", "runs", allowed=(0,))
    box.run()
    box.identical()


def resumable(box):
    """A killed sweep, with a checkpoint."""
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "2", "--checkpoint-every", "10")
    found = lambda: list((box.path / "runs").glob("tiny/*/checkpoints/*/*"))
    box.wait_for(lambda: len(found()) > 4 or process.poll() is not None)
    box.kill(process)
    time.sleep(0.2)
    for path in (box.path / "runs").glob("tiny/*/record.json"):
        path.unlink()
    return found()


@attack("checkpoints", "the manifest of a checkpoint is of version 99", "not used; identical")
def manifest_version(box):
    for path in resumable(box):
        if path.suffix == ".json":
            path.write_text(path.read_text().replace("1", "99", 1))
    box.mended()


@attack("checkpoints", "two runs swap their checkpoints", "not used; identical")
def swapped(box):
    resumable(box)
    places = [path for path in (box.path / "runs/tiny").glob("*/checkpoints")]
    if len(places) == 2:
        os.rename(places[0], box.path / "aside")
        os.rename(places[1], places[0])
        os.rename(box.path / "aside", places[1])
    box.mended()
    return f"{len(places)} checkpoints"


@attack("checkpoints", "a checkpoint has NaN in its weights, with the same size", "not used; identical")
def nan_checkpoint(box):
    for path in resumable(box):
        if path.suffix == ".safetensors":
            data = bytearray(path.read_bytes())
            data[-4:] = struct.pack("<f", float("nan"))
            path.write_bytes(data)
    box.mended()


@attack("checkpoints", "`checkpoints` is a file, then a directory of 2,000 odd names", "not used; identical")
def odd_checkpoints(box):
    resumable(box)
    for path in (box.path / "runs/tiny").glob("*/checkpoints"):
        shutil.rmtree(path)
        path.write_text("x")
    box.run(allowed=(0, 1, 6))
    for path in (box.path / "runs/tiny").glob("*/"):
        if (path / "job.json").exists():
            (path / "record.json").unlink(missing_ok=True)
            place = path / "checkpoints"
            place.unlink() if place.is_file() else shutil.rmtree(place, ignore_errors=True)
            for i in range(2000):
                (place / f"{i:x}-\u202e\x1b").mkdir(parents=True)
    box.mended()


@attack("weights", "NaN in the weights of a finished run, hash and seal left", "verify 1, eval 3")
def nan_weights(box):
    weights(box, lambda data: data[:-4] + struct.pack("<f", float("nan")))


@attack("weights", "weights cut at 7, 8, 100 bytes, and by one byte", "verify 1, eval 3")
def cut_weights(box):
    for at in (7, 8, 100, -1):
        weights(box, lambda data: data[:at])


@attack("weights", "a safetensors header of 2^63 bytes, of 0, overlapping tensors, a shape of 2^40", "verify 1, eval 3, at once")
def headers(box):
    def shaped(data):
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        for entry in header.values():
            if "shape" in entry:
                entry["shape"] = [1 << 40]
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + length:]
    for change in (lambda data: struct.pack("<Q", 1 << 63) + data[8:], lambda data: struct.pack("<Q", 0) + data[8:], shaped):
        weights(box, change)


def weights(box, change):
    shutil.rmtree(box.path / "runs", ignore_errors=True)
    run = changed(box, "weights.safetensors", change)
    box.lr("verify", "runs", allowed=(1,))
    box.lr("eval", str(run), "--lengths", "6", allowed=(3,))


@attack("weights", "two runs swap their weights", "verify 1, eval 3; identical after the records are removed")
def swapped_weights(box):
    first, second = box.trained()
    os.rename(first / "weights.safetensors", box.path / "aside")
    os.rename(second / "weights.safetensors", first / "weights.safetensors")
    os.rename(box.path / "aside", second / "weights.safetensors")
    box.lr("verify", "runs", allowed=(1,))
    box.lr("eval", str(first), "--lengths", "6", allowed=(3,))
    for run in (first, second):
        (run / "record.json").unlink()
    box.mended()


@attack("records", "nested 100,000 deep, in a value and in a key's object", "refused by name, no crash")
def nested(box):
    for deep in ("[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        changed(box, "record.json", lambda text: text.rstrip()[:-1] + b', "x": ' + deep.encode() + b"}")
        read_all(box)
        shutil.rmtree(box.path / "runs")
        changed(box, "job.json", lambda text: deep.encode())
        read_all(box)


@attack("records", "every key twice, with other values the second time", "refused by name")
def twice(box):
    changed(box, "record.json", lambda text: text.rstrip()[:-1] + b', "seed": 5, "evals": []}')
    read_all(box)
    said = box.lr("verify", "runs", allowed=(1, 3))
    box.must(said.out + said.err, "nothing is said")


@attack("records", "1e999, -1e999, NaN, Infinity, 10^400 digits of a number, -0", "refused by name, no number is made up")
def numbers(box):
    for value in (b"1e999", b"-1e999", b"NaN", b"Infinity", b"1" + b"0" * 400):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        changed(box, "record.json", lambda text: text.replace(b'"value": ', b'"value": ' + value + b', "old": ', 1))
        read_all(box)
        box.lr("verify", "runs", allowed=(1, 3))


@attack("records", "with a BOM, in UTF-16, with bytes after the end, with NUL in a name", "refused by name, or read as it is")
def encodings(box):
    for change in (lambda text: b"\xef\xbb\xbf" + text, lambda text: text.decode().encode("utf-16"), lambda text: text + b"{}", lambda text: text.replace(b'"tiny"', b'"ti\\u0000ny"', 1), lambda text: text + b"\0" * 4096):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        changed(box, "record.json", change)
        read_all(box)
        box.lr("verify", "runs", allowed=(1, 3))


@attack("records", "a step log of one line repeated 10^5 times; lines swapped; NaN in a loss", "verify 1; report and status do not crash")
def logs(box):
    for change in (lambda text: text[:80].split(b"\n")[0] + b"\n" + text, lambda text: (text.split(b"\n")[0] + b"\n") * 100_000, lambda text: b"\n".join(reversed(text.split(b"\n"))), lambda text: text.replace(b'"loss_nats":', b'"loss_nats":NaN,"x":', 1)):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        changed(box, "steps.jsonl", change)
        box.lr("verify", "runs", allowed=(1, 3))
        read_all(box)


@attack("records", "the seal is empty, text, a number, missing", "verify 1 or a word about it; no crash")
def seals(box):
    key = next(key for key in json.loads((box.trained()[0] / "record.json").read_text()) if "seal" in key)
    for value in ("", "x", 5, None, {}):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        edit(box, "record.json", **{key: value})
        read_all(box)


@attack("configs", "10,000 dotted levels in a key, as a header, as an inline table, as an override", "2 at once")
def dotted(box):
    deep = ".".join(["a"] * 10_000)
    for text in (f"{deep} = 1\n{TINY}", f"{TINY}\n[{deep}]\nb = 1\n", TINY + "x = " + "{a=" * 5000 + "1" + "}" * 5000 + "\n"):
        box.config(text)
        box.lr("check", "x.toml", allowed=(2,), timeout=20)
    box.config()
    box.lr("check", "x.toml", f"{deep}=1", allowed=(2,), timeout=20)


@attack("configs", "tables defined twice, in three ways; a key of 100 kB; 1 MiB of comments less a byte", "2, or 0 for the comments")
def tables(box):
    for more in ("[model]\nd_model = 8\n", "[train]\n", "model.d_model = 8\n", '[[task]]\nkind = "copy"\n', "k" * 100_000 + " = 1\n"):
        box.config(TINY + more)
        box.lr("check", "x.toml", allowed=(2,))
    box.config(TINY + "#" * ((1 << 20) - len(TINY) - 1))
    box.lr("check", "x.toml", allowed=(0,))


@attack("configs", "surrogates, control characters and 0x7f in strings; mixed line endings; a lone CR", "0 or 2 with a message")
def characters(box):
    for old, new in (('"tiny"', '"\\ud800"'), ('"tiny"', '"\\u0000"'), ('"tiny"', '"a\x7fb"'), ('"tiny"', '"\\U00110000"'), ("\n", "\r\n"), ("[task]\n", "[task]\r"), ("seeds", "\u200bseeds"), ("seeds", "s\u0435eds")):
        box.config(TINY.replace(old, new, 1))
        box.lr("check", "x.toml", allowed=(0, 2))


@attack("configs", "dates, times, -nan, hexadecimal floats and 400 digits in every number of the file", "2 with the key")
def literals(box):
    for key, value in (("steps = 150", "steps = "), ("lr = 1e-3", "lr = "), ("d_model = 16", "d_model = "), ("test_lens = [4, 8]", "test_lens = ")):
        for literal in ("1979-05-27T07:32:00Z", "07:32:00", "-nan", "+inf", "1" + "0" * 400, "1e400", "0x1p3", "[1e400]", "[[]]"):
            box.config(TINY.replace(key, value + literal))
            box.lr("check", "x.toml", allowed=(2,))


@attack("configs", "overrides: empty, =, a=, =1, 100 kB, with a newline, 2,000 of them", "2 with a message; 0 for the 2,000")
def overrides(box):
    for text in ("=", "a=", "=1", "train.steps", "train.steps=" + "1" * 100_000, "train.steps=1\ntrain.lr=2", "train..steps=1", ".=1", "train.steps=1=1", "\u202etrain=1"):
        box.lr("check", "x.toml", text, allowed=(2,))
    box.lr("check", "x.toml", *["train.steps=7"] * 2000, allowed=(0, 2))


@attack("configs", "sizes that overflow when multiplied: d_model, layers, batches, lengths, rows near 2^31 and 2^63", "0 or 2 at once, never a panic", 200)
def overflow(box):
    for key in ("model.d_model", "model.n_layers", "model.n_heads", "train.batch_size", "train.train_len", "train.steps", "task.alphabet", "task.test_rows", "eval.batch_tokens", "seeds"):
        for value in ("2147483648", "4294967296", "9223372036854775807"):
            box.lr("check", "x.toml", f"{key}=[{value}]" if key == "seeds" else f"{key}={value}", allowed=(0, 2), timeout=20)


@attack("configs", "arguments: 1,024 jobs, 0 jobs, -1 jobs, checkpoints every 0 s, limits of 1e30, an unknown device with an escape", "2 with a message, or works")
def arguments(box):
    for more in (["--jobs", "0"], ["--jobs", "-1"], ["--jobs", "99999999999999999999"], ["--checkpoint-every", "0s"], ["--checkpoint-every", "1e9s"], ["--memory-limit", "1e30"], ["--device", "\x1b[2J"], ["--retry", ""]):
        ended = box.lr("run", "x.toml", "--runs", "runs", *more, allowed=(2,))
        box.must(b"\x1b[2J" not in ended.err, "an escape reached the terminal")
    box.lr("run", "x.toml", "--runs", "runs", "--jobs", "1024", allowed=(0,))
    box.identical()
