"""The Python package: runs and frames of a notebook, tables in PyTorch, encodings that are trained by longreach.bench."""

import json, os, pathlib, shutil, signal, subprocess, time
from box import CHOICE, SHORT, TINY, Skip, Wrong, attack, plain, same

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
TEXT = SHORT.replace('kind = "copy"\nalphabet = 4\ntest_rows = 8', 'kind = "text"\nfiles = ["c.txt"]\neval_tokens = 64').replace("train_len = 4", "train_len = 8").replace("[4, 8]", "[8, 16]")
FOUND = {}


def interpreter(*modules):
    """A Python that has these modules: one of ATTACK_PYTHONS, a list as PATH is, or `python3`."""
    if modules not in FOUND:
        tried = [*os.environ.get("ATTACK_PYTHONS", "").split(":"), "python3"]
        test = "import " + ", ".join(modules)
        able = (one for one in tried if one and subprocess.run([one, "-c", test], capture_output=True).returncode == 0)
        FOUND[modules] = next(able, None)
    if FOUND[modules] is None:
        raise Skip(f"no Python with {', '.join(modules)} (ATTACK_PYTHONS)")
    return FOUND[modules]


def begin(box, code, *modules, program=None, **env):
    env = dict(os.environ, PYTHONPATH=str(PACKAGE), LONGREACH=program or box.binary, OMP_NUM_THREADS="1", MPLBACKEND="Agg", PYTHONDONTWRITEBYTECODE="1", **env)
    process = subprocess.Popen([interpreter(*modules), "-c", code], cwd=box.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    box.started.append(process)
    return process


def python(box, code, *modules, says=(), timeout=100, **more):
    """Runs Python with the package. It must end well and print all of `says`."""
    process = begin(box, code, *modules, **more)
    out, err = process.communicate(timeout=timeout)
    # The last line of a traceback, and what an error has below it.
    lines = err.strip().splitlines()
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].startswith("  File ")), -2)
    box.must(process.returncode == 0, plain(" ".join(line for line in lines[last + 2 :] if line.strip(" ^~")))[:400])
    for word in says:
        box.must(word in out, f"{word!r} is not in: {plain(out)[:400]}")
    return out


def raises(box, code, kind, *says, modules=("pandas",), never=(), **more):
    """The last line of the code must raise this error with these words."""
    *lines, last = code.strip().splitlines()
    wrapped = "\n".join(["import longreach", *lines, "try:", f"    {last}", "except Exception as error:", "    print(type(error).__name__, error)"])
    out = python(box, wrapped, *modules, **more)
    box.must(out.startswith(kind), f"{kind} was expected: {plain(out)[:300] or 'nothing was raised'}")
    for word in says:
        box.must(word in out, f"{word!r} is not in: {plain(out)[:300]}")
    for word in never:
        box.must(word not in out, f"{word!r} is in: {plain(out)[:300]}")


@attack("notebooks", "`run` of a config with [select], then the frame", "rows of the result alone, or a column that tells those of the sweep apart; `plot` draws the two methods")
def select_frame(box):
    box.config(CHOICE)
    code = "import longreach\nf = longreach.run('x.toml', progress=False)\nown = f[f.part == 'result']\nprint(sorted(set(own.method)), len(f.plot('loss_nats').get_lines()))"
    out = python(box, code, "pandas", "matplotlib")
    box.must("['alibi', 'rope']" in out, f"methods: {plain(out)}")


@attack("notebooks", "`frame` of a directory in which the same run lies twice, as a copy", "each score once, or an error that names both")
def copied(box):
    box.trained()
    shutil.copytree(box.path / "runs/tiny", box.path / "runs/copy")
    out = python(box, "import longreach\nf = longreach.frame('runs')\nprint(len(f), len(f.drop_duplicates(['run_id', 'variant', 'test_len', 'metric'])))", "pandas").split()
    box.must(out[0] == out[1], f"{out[0]} rows for {out[1]} scores")


@attack("notebooks", "`frame` of a record that is cut, empty, text", "an error that names the file")
def damaged(box):
    path = box.trained()[0] / "record.json"
    whole = path.read_text()
    for content in (whole[:300], "", "hello"):
        path.write_text(content)
        raises(box, "longreach.frame('runs')", "", "record.json")


@attack("notebooks", "`frame` of a record of a newer version", "an error that names the file and the version, not scores that may mean something else")
def newer(box):
    path = box.trained()[0] / "record.json"
    whole = path.read_text()
    path.write_text(whole.replace('"schema":1', '"schema":99').replace('"schema": 1', '"schema": 99'))
    raises(box, "longreach.frame('runs')", "", "record.json", "99")


@attack("notebooks", "`frame` of nothing: a missing path, an empty directory, a config, a file of no records", "an error that names the path")
def nothing(box):
    (box.path / "empty").mkdir()
    (box.path / "e.jsonl").write_text("")
    for place in ("nowhere", "empty", "x.toml"):
        raises(box, f"longreach.frame('{place}')", "", place)
    raises(box, "longreach.frame('e.jsonl')", "", "e.jsonl")


@attack("notebooks", "texts as overrides: a smile, quotes, backslashes, a new line, DEL, a right-to-left sign, NUL", "the title arrives as it is, or RunError 2 that names the key; never an error of TOML about an escape")
def texts(box):
    box.config(SHORT)
    for text in ("😀 and 𝔏", 'a "quoted" \\ path', "𐏿", "é"):
        python(box, f"import longreach\nlongreach.run('x.toml', progress=False, title={text!r})\nprint('ran')", "pandas", says=["ran"])
    for text in ("two\nlines", "\x7f", "\u202e", "\0"):
        raises(box, f"longreach.run('x.toml', progress=False, title={text!r})", "RunError", "title")


@attack("notebooks", "values as overrides: nan, 10^400, a set, a complex number, bytes, a function, numpy's, an array of two axes, True", "a TypeError or RunError 2 that names the key or the value; numpy's arrive")
def values(box):
    box.config(SHORT)
    for value in ("{1, 2}", "1j", "b'x'", "len"):
        raises(box, f"longreach.run('x.toml', progress=False, train={{'lr': {value}}})", "TypeError", "not a value of a config")
    for value in ("float('nan')", "float('inf')", "10**400", "True", "'fast'"):
        raises(box, f"longreach.run('x.toml', progress=False, train={{'lr': {value}}})", "RunError", "train.lr")
    python(box, "import longreach, numpy\nf = longreach.run('x.toml', progress=False, seeds=numpy.array([3, 4]), train={'lr': numpy.float32(0.5)})\nprint(sorted(set(f.seed)), set(f['train.lr']))", "pandas", says=["[3, 4]", "{0.5}"])


@attack("notebooks", "names of configs that are options, overrides or directories: --help, -, seeds=[9], a directory, an empty text", "RunError that names it; no help page, no traceback of JSON")
def config_names(box):
    (box.path / "d").mkdir()
    for name in ("--help", "--version", "-", "seeds=[9]", "d", "", "nowhere"):
        raises(box, f"longreach.run({name!r}, progress=False)", "RunError", never=("Expecting value", "JSON"))


@attack("notebooks", "LONGREACH is a missing file, a directory, a file that cannot be run, a program of something else, empty", "RunError that names LONGREACH or the path")
def programs(box):
    (box.path / "d").mkdir()
    (box.path / "text").write_text("hello")
    (box.path / "other").write_text("#!/bin/sh\necho hello\n")
    (box.path / "other").chmod(0o755)
    for name in ("nowhere", "d", "text", "other"):
        raises(box, "longreach.run('x.toml', progress=False)", "RunError", name, program=str(box.path / name))


@attack("notebooks", "a program of another version than the package", "RunError or a warning with both versions, or the same frame")
def other_version(box):
    box.config(SHORT)
    (box.path / "newer").write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo longreach 9.9.9; exit; fi\nexec {box.binary} "$@"\n')
    (box.path / "newer").chmod(0o755)
    python(box, "import longreach\nprint(len(longreach.run('x.toml', progress=False)))", "pandas", program=str(box.path / "newer"))


@attack("notebooks", "Ctrl-C at 6 instants of `run`, then the call again", "KeyboardInterrupt, no worker left; the frame and the bytes of an undisturbed call", limit=240)
def interrupted(box):
    box.config(TINY.replace("steps = 150", "steps = 3000"))
    box.lr("run", "x.toml", "--runs", "calm", "--jobs", "1", allowed=(0,))
    for wait in (0.3, 0.8, 1.2, 1.6, 2.0, 2.4):
        process = begin(box, "import longreach\nlongreach.run('x.toml', progress=False, jobs=1)", "pandas")
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    python(box, "import longreach\nlongreach.run('x.toml', progress=False, jobs=1)", "pandas")
    same(box, "runs", "calm")


@attack("notebooks", "the Python process is killed at 6 instants of `run`, then the call again", "the bytes of an undisturbed call; nothing waits without end", limit=240)
def killed(box):
    box.config(TINY.replace("steps = 150", "steps = 3000"))
    box.lr("run", "x.toml", "--runs", "calm", "--jobs", "1", allowed=(0,))
    for wait in (0.3, 0.8, 1.2, 1.6, 2.0, 2.4):
        process = begin(box, "import longreach\nlongreach.run('x.toml', progress=False, jobs=1)", "pandas")
        time.sleep(wait)
        process.kill()
        process.wait()
    python(box, "import longreach\nlongreach.run('x.toml', progress=False, jobs=1)", "pandas")
    same(box, "runs", "calm")


@attack("notebooks", "four threads call `run` of one config into one directory at once", "four equal frames; each run is trained once")
def threads(box):
    box.config(SHORT)
    code = "import longreach, concurrent.futures as c\nwith c.ThreadPoolExecutor(4) as p:\n    f = [x.result() for x in [p.submit(longreach.run, 'x.toml', progress=False) for _ in range(4)]]\nprint(all(one.equals(f[0]) for one in f), len(f[0]))"
    python(box, code, "pandas", says=["True"])


@attack("notebooks", "`run` twice with other steps into one directory", "the second frame has the runs of the second call, or `method` tells them apart: no mean over both")
def two_calls(box):
    box.config(SHORT)
    code = "import longreach\nlongreach.run('x.toml', progress=False)\nf = longreach.run('x.toml', progress=False, train={'steps': 12})\nprint(f.groupby('method')['train.steps'].nunique().max())"
    box.must(python(box, code, "pandas").strip() == "1", "one method has runs of 6 and of 12 steps")


@attack("notebooks", "axes, an axis of two keys, and [select] as overrides", "as in a file: dotted keys stay keys")
def tables_as_overrides(box):
    box.config(SHORT)
    python(box, "import longreach\nf = longreach.run('x.toml', progress=False, axes={'model.pe, train.lr': [[{'kind': 'rope'}, 1e-3], [{'kind': 'alibi'}, 2e-3]]})\nprint(sorted(set(f.method)))", "pandas", says=["['alibi', 'rope']"])
    python(box, "import longreach\nlongreach.run('x.toml', progress=False, select={'over': {'train.lr': [1e-3, 2e-3]}, 'seeds': [5]})\nprint('ran')", "pandas", says=["ran"])


@attack("notebooks", "`plot` of ranges of lengths beside a length, of a metric that is not there, of a frame without scores, of one row", "a picture, or ValueError with the metrics that there are")
def plots(box):
    box.config(SHORT)
    box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", 'eval.test_lens=[4, 8, "3..7"]', allowed=(0,))
    out = python(box, "import longreach\nf = longreach.frame('r')\nprint(sorted(set(map(str, f.test_len))))\nf.plot()", "pandas", "matplotlib")
    box.must("3..7" in out, f"the range is called {plain(out)}")
    raises(box, "longreach.frame('r').plot('nonsense')", "ValueError", "loss_nats", modules=("pandas", "matplotlib"))
    raises(box, "longreach.frame('r').iloc[:0].plot()", "ValueError", "status", modules=("pandas", "matplotlib"))


@attack("notebooks", "`run` of a config in which every run diverges, and one in which one of two does", "RunError 5; for the other a frame with `diverged` and a reason, which `plot` draws")
def diverged(box):
    box.config(SHORT + '[axes]\n"train.lr" = [1e-3, 1e9]\n')
    python(box, "import longreach\nf = longreach.run('x.toml', progress=False, train={'steps': 30})\nprint(sorted(set(f.status)))\nf.plot('loss_nats')", "pandas", "matplotlib", says=["diverged", "ok"])
    raises(box, "longreach.run('x.toml', progress=False, train={'steps': 30}, axes={'train.lr': [1e9, 9e8]})", "RunError", "diverged")


LOAD = "import torch, longreach, glob\nrun = glob.glob('r/tiny/*/record.json')[0][:-12]\n"


def trained(box, pe, *more):
    box.config(SHORT)
    box.lr("run", "x.toml", "--runs", "r", "--jobs", "1", f"model.pe={pe}", *more, allowed=(0,))
    run = next((box.path / "r/tiny").glob("*/record.json")).parent
    return run


@attack("tables in PyTorch", "a formula with a trained number, by_head and a stack, in models with biases, with tables and beside the logits of the program", "the same logits to 1e-4")
def same_logits(box):
    for pe in ('{ kind = "formula", bias = "-m*log(1+d)", train = { m = 0.5 } }', '{ kind = "by_head", parts = [{ kind = "rope" }, { kind = "alibi" }] }', '{ kind = "stack", parts = [{ kind = "rope" }, { kind = "window", size = 3 }] }'):
        shutil.rmtree(box.path / "r", ignore_errors=True)
        run = trained(box, pe, "model.biases=true")
        box.lr("export", str(run), "--format", "logits", "--out", "l.safetensors", "--rows", "2", allowed=(0,))
        code = LOAD + ("from safetensors.torch import load_file\nlogits = load_file('l.safetensors')\nfor n in (4, 8):\n    model = longreach.load(run, 'trained', n)\n"
                       "    key = [k for k in logits if f'.{n}.' in k or k.endswith(f'.{n}')]\n    tokens = next(logits[k] for k in key if not logits[k].is_floating_point())\n    theirs = next(logits[k] for k in key if logits[k].dim() == 3)\n"
                       "    worst = (model(tokens.long()) - theirs).abs().max().item()\n    assert worst < 1e-4, worst\nprint('same')")
        python(box, code, "torch", "numpy", "safetensors", says=["same"])


@attack("tables in PyTorch", "more tokens than the tables have, a length and a variant that they lack, tables of another run, a file that is cut, empty, not there, of weights", "TableError or an error that names the file; never logits", limit=240)
def wrong_tables(box):
    run = trained(box, '{ kind = "kerple" }')
    box.lr("export", str(run), "--format", "tables", "--out", "t.safetensors", "--lengths", "8", allowed=(0,))
    shutil.copytree(box.path / "r", box.path / "first")
    modules = ("torch", "numpy", "safetensors")
    raises(box, LOAD + "longreach.load(run, test_len=8, tables='t.safetensors')(torch.zeros(1, 400, dtype=torch.long))", "TableError", "400 tokens", "test_len", modules=modules)
    raises(box, LOAD + "longreach.load(run, test_len=4, tables='t.safetensors')", "TableError", "t.safetensors", "trained.8", modules=modules)
    raises(box, LOAD + "longreach.load(run, variant='yarn', test_len=8)", "Unsupported", "yarn", modules=modules)
    whole = (box.path / "t.safetensors").read_bytes()
    for name, content in (("cut.safetensors", whole[:-9]), ("empty.safetensors", b""), ("w.safetensors", (run / "weights.safetensors").read_bytes())):
        (box.path / name).write_bytes(content)
        raises(box, LOAD + f"longreach.load(run, test_len=8, tables='{name}')", "", name, modules=modules)
    shutil.rmtree(box.path / "r")
    trained(box, '{ kind = "kerple" }', "seeds=[5]")
    raises(box, LOAD + "longreach.load(run, test_len=8, tables='t.safetensors')", "TableError", "of run", modules=modules)


@attack("tables in PyTorch", "`load` of an encoding that reads content, of linear attention, of a run without weights, of a directory without a run", "an error by name; no model with other positions")
def not_loaded(box):
    modules = ("torch", "numpy", "safetensors")
    trained(box, '{ kind = "cope" }')
    raises(box, LOAD + "longreach.load(run)", "TableError", "cope", modules=modules)
    shutil.rmtree(box.path / "r")
    trained(box, '{ kind = "rope" }', 'model.attention="linear"')
    raises(box, LOAD + "longreach.load(run)", "Unsupported", "linear", modules=modules)
    next((box.path / "r/tiny").glob("*/weights.safetensors")).unlink()
    raises(box, LOAD + "longreach.load(run)", "", "weights.safetensors", modules=modules)
    raises(box, "longreach.load('r')", "", "record.json", modules=modules)


SLOPE = """import torch
from longreach import bench
class Slope(bench.Encoding):
    slope = 0.1
    def logits_bias(self, layer, length):
        at = torch.arange(length)
        return -self.slope * (at[:, None] - at[None, :]).abs().float().expand(self.shape.n_heads, length, length)
"""


def text(box):
    box.config(TEXT)
    (box.path / "c.txt").write_text("some words of a text, again and again. " * 300)


def bench(box, *lines, code=SLOPE, **more):
    text(box)
    return python(box, code + "\n".join(lines), "torch", "numpy", "safetensors", **more)


def refused(box, code, *says, call="bench.run('x.toml', Slope)", never=()):
    text(box)
    raises(box, code + call, "BenchError", *says, modules=("torch", "numpy", "safetensors"), never=never)
    box.must(not list(box.path.glob("runs/*/*/record.json")), "a record was written")


@attack("bench", "a class is changed between two seeds, and trained again under the seed that it had", "other run ids, or another method: results of two codes are never one row", limit=240)
def changed_class(box):
    bench(box, "bench.run('x.toml', Slope, seeds=[0])")
    first = box.records()
    bench(box, "bench.run('x.toml', Slope, seeds=[0, 1])", code=SLOPE.replace("0.1", "5.0"))
    now = box.records()
    box.must(all(now.get(name) == record for name, record in first.items()), "the record of the other code was replaced, without a word")


@attack("bench", "verify, status, eval, gather, compare, report, export of what bench wrote", "nothing is called WRONG that is not; no advice that cannot help (`run` cannot write its job.json)", limit=200)
def commands(box):
    bench(box, "bench.run('x.toml', Slope)")
    box.lr("report", "runs", allowed=(0,))
    box.lr("gather", "runs", "--out", "g.jsonl", allowed=(0,))
    box.lr("compare", "g.jsonl", "runs", allowed=(0,))
    box.lr("export", "runs", "--format", "tensorboard", "--out", "logs", allowed=(0,))
    said = box.lr("verify", "runs")
    box.must(said.code == 0, f"verify: {plain(said.out.decode())[:200]}")
    said = box.lr("status", "runs", allowed=(0,))
    box.must(b"stale" not in said.out, "status calls it stale")


@attack("bench", "the record of bench is edited: a score, the method, its self-check; self-check.json is removed", "verify or report says that there is no seal and that nothing vouches for it; no crash", limit=200)
def edited(box):
    bench(box, "bench.run('x.toml', Slope)")
    path = next(box.path.glob("runs/tiny/*/record.json"))
    record = json.loads(path.read_text())
    record["evals"][0]["metrics"]["loss_nats"]["value"] = 0.001
    del record["spec"]["model"]["pe"]["self_check"]
    path.write_text(json.dumps(record))
    (path.parent / "self-check.json").unlink()
    said = box.lr("report", "runs", allowed=(0, 1, 3))
    box.must(b"without a seal" in said.err, str(said))
    said = box.lr("verify", "runs")
    box.must(b"seal" in said.out + said.err or said.code, "verify vouches for it")
    record["evals"][0]["metrics"]["loss_nats"]["value"] = -3.0
    path.write_text(json.dumps(record))
    box.refused("report", "runs", words=["loss_nats is -3"], code=3)


@attack("bench", "records of bench as `run --recorded`, and as a source of start_from", "not runs of the config; 2 or 3 for the source, which has no weights", limit=200)
def foreign(box):
    bench(box, "bench.run('x.toml', Slope)")
    box.lr("gather", "runs", "--out", "g.jsonl", allowed=(0,))
    said = box.lr("run", "x.toml", "--runs", "other", "--jobs", "1", "--recorded", "g.jsonl", allowed=(0, 3))
    box.must(said.code or b"0 of 1 run count as done" in said.err, str(said))
    said = box.lr("check", "x.toml", 'train.start_from="runs/tiny"', allowed=(2, 3))
    box.must(b"start_from" in said.err, str(said))


@attack("bench", "a class that reads later tokens only in sequences longer than the training's", "BenchError: reads later tokens; nothing is recorded")
def peeks_later(box):
    refused(box, SLOPE + "    def transform_qk(self, layer, q, k, hidden):\n        return (q, k.roll(-1, 2)) if k.shape[2] > 8 else (q, k)\n", "later tokens")


@attack("bench", "a class whose outputs are random, NaN at the longest length, of a wrong shape, of integers, on no tensor; whose hook raises", "BenchError that names the class, the hook and what is expected")
def bad_hooks(box):
    for body, word in (("return torch.rand(2, length, length)", "not deterministic"), ("return torch.full((2, length, length), float('nan') if length > 8 else 0.0)", "NaN"), ("return torch.zeros(length, length)", "shape"),
                       ("return 'x'", "str"), ("return torch.zeros(2, length, length, dtype=torch.bool)", "Slope"), ("raise KeyError('mine')", "mine")):
        code = f"import torch\nfrom longreach import bench\nclass Slope(bench.Encoding):\n    def logits_bias(self, layer, length):\n        {body}\n"
        try:
            refused(box, code, word)
        except Wrong as what:
            raise Wrong(f"{body}: {what}")


@attack("bench", "a class that is none, an object, a function, without the argument shape, with parameters that nothing trains", "BenchError that says what a class must be")
def no_class(box):
    for call, word in (("bench.run('x.toml', len)", "class"), ("bench.run('x.toml', torch.nn.Linear)", "class"), ("bench.run('x.toml', None)", "class")):
        text(box)
        raises(box, SLOPE + call, "BenchError", word, modules=("torch", "numpy", "safetensors"))
    refused(box, SLOPE.replace("    slope = 0.1\n", "    slope = 0.1\n    def __init__(self):\n        pass\n"), "Slope")
    refused(box, SLOPE.replace("    slope = 0.1\n", "    slope = 0.1\n    def __init__(self, shape):\n        super().__init__(shape)\n        self.own = torch.nn.Parameter(torch.ones(3))\n"), "own")


@attack("bench", "seeds: none, twice, -1, 2^63, text, a number; a config that is not there; overrides that are mistakes", "BenchError that names the value; nothing is trained")
def bad_calls(box):
    for call, word in (("bench.run('x.toml', Slope, seeds=[])", "seeds"), ("bench.run('x.toml', Slope, seeds=[0, 0])", "seeds"), ("bench.run('x.toml', Slope, seeds=[-1])", "seeds"), ("bench.run('x.toml', Slope, seeds=[2**63])", "seeds"),
                       ("bench.run('x.toml', Slope, seeds=['a'])", "seeds"), ("bench.run('x.toml', Slope, seeds=3)", "seeds"), ("bench.run('nowhere.toml', Slope)", "nowhere.toml"), ("bench.run('x.toml', Slope, overrides=['train.lrr=1'])", "lrr")):
        refused(box, SLOPE, word, call=call)


@attack("bench", "a config with ranges of lengths", "BenchError that names the key")
def bad_configs(box):
    refused(box, SLOPE, "range", call="bench.run('x.toml', Slope, overrides=['eval.test_lens=[\"8..16\"]'])")


@attack("bench", "a class named with HTML-like, accented and 300 letters; a loss that becomes NaN in step 3", "0; escaped in the report; `diverged` with its step, as another run", limit=240)
def names(box):
    bench(box, "A = type('Ünï_' + 'x' * 300, (Slope,), {})", "bench.run('x.toml', A)", "B = type('<b>|x', (Slope,), {})", "bench.run('x.toml', B)")
    box.lr("report", "runs", allowed=(0,))
    page = next((box.path / "runs").rglob("report.html")).read_text()
    box.must("<b>|x" not in page, "HTML is not escaped")
    code = SLOPE.replace("    slope = 0.1\n", "    slope, calls = 0.1, 0\n    def embed(self, x):\n        type(self).calls += 1\n        return x * (float('nan') if self.training and type(self).calls > 80 else 1.0)\n")
    bench(box, "print(bench.run('x.toml', Slope, runs='nan', overrides=['train.steps=200'])[0]['status'])", code=code, says=["diverged"])
    box.lr("report", "nan", allowed=(0, 3))
