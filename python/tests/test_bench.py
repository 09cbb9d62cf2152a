"""Tests of longreach.bench; skipped where torch or the program is missing.

    LONGREACH=target/release/longreach PYTHONPATH=python python3 -m unittest discover python/tests
"""

import errno
import importlib.util
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/quickstart.toml"
EXAMPLE = ROOT / "python/examples/slope.py"
# Learned after about a hundred steps.
COPY = """
name = "copy"
seeds = [0, 1]
task = { kind = "copy", alphabet = 4, test_rows = 64 }
model = { d_model = 32, n_layers = 1, n_heads = 2, pe = { kind = "rope" } }
eval = { test_lens = [6, 12] }

[train]
train_len = 6
steps = 400
batch_size = 16
stop = { metric = "loss_nats", at_most = 0.1, every = 50 }

[select]
by = "exact_match"
seeds = [100, 101]
steps = 0.25
over = { "train.lr" = [1e-3, 3e-3] }
"""
# The same without a choice.
FIXED = COPY.split("[select]")[0]
# Three steps of the quickstart, tested at its training length.
SHORT = ["train.steps=3", "eval.test_lens=[64]", "task.eval_tokens=2048"]
HAVE = importlib.util.find_spec("torch") and (
    os.environ.get("LONGREACH") or shutil.which("longreach")
)

if HAVE:
    import torch

    import longreach
    from longreach import bench, checks, encodings
    from longreach.choice import Choice
    from longreach.program import Program

    class Hidden(bench.Encoding):
        """Reads the next token by a matrix that starts at 0."""

        def __init__(self, shape):
            super().__init__(shape)
            self.next = torch.nn.Parameter(torch.zeros(shape.d_model, shape.d_model))

        def embed(self, x):
            return x + x.roll(-1, 1) @ self.next

    class OnlyTested(bench.Encoding):
        def embed(self, x):
            return x if self.training else x + x.roll(-1, 1)

    class NanFar(bench.Encoding):
        def logits_bias(self, layer, length):
            return torch.full((self.shape.n_heads, length, length), 0.0 if length <= 64 else -torch.inf)

    class Little(bench.Encoding):
        max_position = 10

    class Wide(bench.Encoding):
        def logits_bias(self, layer, length):
            return torch.zeros(length, length)

    class Broken(bench.Encoding):
        def embed(self, x):
            return x * float("nan")

    class Later(bench.Encoding):
        def embed(self, x):
            return x + x.mean(1, keepdim=True)

    class Dice(bench.Encoding):
        def embed(self, x):
            return x + torch.randn_like(x)

    class Frozen(bench.Encoding):
        def __init__(self, shape):
            super().__init__(shape)
            self.idle = torch.nn.Parameter(torch.ones(3))

    class Short(bench.Encoding):
        def embed(self, x):
            return x + torch.ones(64, 1)


    class Sometimes(bench.Encoding):
        """Shows every query the next key, at one length."""

        def transform_qk(self, layer, q, k, hidden):
            return (q, k.roll(-1, 2)) if k.shape[2] == 128 else (q, k)

    class Mask(bench.Encoding):
        def logits_bias(self, layer, length):
            return torch.ones(self.shape.n_heads, length, length, dtype=torch.bool)

    class Double(bench.Encoding):
        def embed(self, x):
            return x.double()

    class Raises(bench.Encoding):
        def logits_bias(self, layer, length):
            raise KeyError("mine")

    class OneIdle(bench.Encoding):
        """Trains one of its two parameters."""

        def __init__(self, shape):
            super().__init__(shape)
            self.idle = torch.nn.Parameter(torch.ones(3))
            self.used = torch.nn.Parameter(torch.ones(1))

        def embed(self, x):
            return x * self.used

    class InList(bench.Encoding):
        """PyTorch finds no parameters in a list."""

        def __init__(self, shape):
            super().__init__(shape)
            self.slopes = [torch.nn.Parameter(torch.ones(shape.n_heads))]

        def logits_bias(self, layer, length):
            return -self.slopes[0][:, None, None] * distance(length).abs()

    class Misspelt(bench.Encoding):
        def logit_bias(self, layer, length):
            return -distance(length).abs().expand(self.shape.n_heads, -1, -1)

    class NoHook(bench.Encoding):
        def bias(self, length):
            return -distance(length).abs()

    class NoInit(bench.Encoding):
        def __init__(self, shape):
            pass

        def embed(self, x):
            return x + 1.0

    class TooEarly(bench.Encoding):
        def __init__(self, shape):
            self.slope = torch.nn.Parameter(torch.ones(1))

        def embed(self, x):
            return x * self.slope

    class Rounded(bench.Encoding):
        def __init__(self, shape):
            super().__init__(shape)
            self.slope = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))

        def embed(self, x):
            return x * self.slope.float()

    class Rows(bench.Encoding):
        def embed(self, x):
            return x - x.mean(0, keepdim=True)

    class Kept(bench.Encoding):
        """Computes its bias once, with the graph of the first step."""

        def __init__(self, shape):
            super().__init__(shape)
            self.slope = torch.nn.Parameter(torch.ones(shape.n_heads))
            self.bias = {}

        def logits_bias(self, layer, length):
            if length not in self.bias:
                self.bias[length] = (self.slope**2)[:, None, None].expand(-1, length, length)
            return self.bias[length]

    def distance(length):
        at = torch.arange(length)
        return (at[:, None] - at[None, :]).float()

    class Root(bench.Encoding):
        def logits_bias(self, layer, length):
            return -distance(length).sqrt().expand(self.shape.n_heads, -1, -1)

    class Steep(bench.Encoding):
        """The derivative of a root at 0 is infinite."""

        def __init__(self, shape):
            super().__init__(shape)
            self.slope = torch.nn.Parameter(torch.ones(shape.n_heads))

        def logits_bias(self, layer, length):
            return -(distance(length).abs() * self.slope[:, None, None]).sqrt()

    class Window(bench.Encoding):
        """Hides keys further back than this."""

        size = 8

        def logits_bias(self, layer, length):
            far = (distance(length) >= self.size).expand(self.shape.n_heads, -1, -1)
            return torch.zeros(far.shape).masked_fill(far, -torch.inf)

    class Blind(Window):
        size = 0


def define(source):
    """The class `Slope` of this source, which lies in no file, as in a notebook."""
    module = {"__name__": "notebook"}
    exec(source, module)
    return module["Slope"]


SLOPE = """
import torch
from longreach import bench
POWER = 1.0
def distance(length):
    at = torch.arange(length)
    return (at[:, None] - at[None, :]).abs().float() ** POWER
def make(slope):
    class Slope(bench.Encoding):
        factor = 1.0
        def logits_bias(self, layer, length):
            bias = [-slope * self.factor * distance(length) for _ in range(self.shape.n_heads)]
            return torch.stack(bias)
    return Slope
Slope = make(0.1)
"""


class WithoutTorch(unittest.TestCase):
    def test_a_missing_pytorch_is_named_with_the_way_to_get_it(self):
        none = "import sys; sys.modules['torch'] = None; from longreach import bench"
        done = subprocess.run([sys.executable, "-c", none], text=True, capture_output=True)
        last = done.stderr.strip().splitlines()[-1]
        words = "ImportError: longreach.bench needs PyTorch 2.0 or newer: pip install torch"
        self.assertEqual(last, words)


    def test_the_page_shows_the_example_in_25_lines(self):
        text = EXAMPLE.read_text(encoding="utf-8")
        self.assertIn(text, (ROOT / "docs/from-pytorch.md").read_text(encoding="utf-8"))
        self.assertLessEqual(len(text.splitlines()), 25)


@unittest.skipUnless(HAVE, "needs torch and the program")
class Bench(unittest.TestCase):
    def test_the_python_model_trains_as_the_program_does(self):
        for pe in ({"kind": "rope"}, {"kind": "kerple"}, {"kind": "learned", "max_position": 128}):
            with self.subTest(pe["kind"]):
                found = bench.self_check(Program(CONFIG, ["eval.test_lens=[64, 96]"]), pe, 5)
                self.assertLess(max(found["losses"], found["scores"]), 1e-5)

    def test_classes_that_cannot_be_compared_are_refused(self):
        wrong = {
            Wide: "returned shape [64, 64]",
            Broken: "NaN",
            Later: "later tokens",
            Dice: "not deterministic",
            Frozen: "nothing trains: idle",
            Short: "set max_position = 64",
            Sometimes: "later tokens: of 128 tokens",
            Mask: "Mask.logits_bias returned torch.bool; expected torch.float32",
            Double: "Double.embed returned torch.float64",
            Raises: "Raises fails at 64 tokens: KeyError: 'mine'",
            OneIdle: "nothing trains: idle got no gradient",
            Rows: "reads other rows of the batch",
            Kept: "cannot be trained",
            Root: "first at [0, 0, 1] of [H, L, L]. Later keys are computed too",
            Steep: "the gradient of slope is NaN",
            Blind: "a query sees no key",
            Hidden: "later tokens",
            OnlyTested: "later tokens",
            NanFar: "NanFar gives NaN",
            InList: "reads tensors that need a gradient and are not in parameters()",
            Misspelt: "Misspelt.logit_bias is not a hook and is never called; did you mean logits_bias?",
            NoHook: "NoHook overrides none of the hooks",
            NoInit: "NoInit.__init__ does not call super().__init__(shape)",
            TooEarly: "TooEarly(shape) failed: cannot assign parameters before Module.__init__() call",
            Rounded: "Rounded has a parameter slope of torch.bfloat16; expected torch.float32",
            Little: "max_position = 10 is less than the training length of 64 tokens",
            dict: "is not a class derived",
            None: "None is not a class derived",
        }
        for encoding, words in wrong.items():
            with self.subTest(encoding), self.assertRaises(bench.BenchError) as caught:
                bench.run(CONFIG, encoding)
            self.assertIn(words, str(caught.exception))

    def test_a_bias_that_hides_keys_is_trained(self):
        with tempfile.TemporaryDirectory() as runs:
            [record] = bench.run(CONFIG, Window, [0], runs, SHORT)
        self.assertEqual([row["status"] for row in record["evals"]], ["ok"])

    def test_the_example_is_trained_without_numpy(self):
        code = (
            "import runpy, sys\nsys.modules['numpy'] = None\n"
            f"encoding = runpy.run_path({str(EXAMPLE)!r})['Slope']\n"
            "encoding.table = __import__('torch').ones(3)\n"
            "from longreach import bench\n"
            f"bench.run({str(CONFIG)!r}, encoding, [0], sys.argv[1], {SHORT!r})"
        )
        with tempfile.TemporaryDirectory() as runs:
            command = [sys.executable, "-c", code, runs]
            done = subprocess.run(command, text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            [record] = longreach.records(runs)
        self.assertEqual([row["status"] for row in record["evals"]], ["ok"])

    def test_an_old_pytorch_is_refused_by_its_version(self):
        with unittest.mock.patch.object(torch, "__version__", "1.13.1+cpu"):
            with self.assertRaisesRegex(bench.BenchError, "PyTorch 1.13.1.cpu is too old; 2.0"):
                bench.run(CONFIG, bench.Encoding)

    def test_invalid_seeds_are_refused(self):
        for seeds, words in ((3, "seeds = 3"), ([0, 0], "once"), ([], "once")):
            with self.subTest(seeds), self.assertRaises(bench.BenchError) as caught:
                bench.run(CONFIG, bench.Encoding, seeds)
            self.assertIn(words, str(caught.exception))

    def test_configs_with_more_than_the_python_model_has_are_refused(self):
        wrong = {
            "model.dropout=0.1": "model.dropout = 0.1",
            'model.attention="linear"': "model.attention = 'linear'",
            'eval.test_lens=["3..7"]': "eval.test_lens",
            "eval.every=100": "eval.every = 100",
        }
        for override, words in wrong.items():
            with self.subTest(override), self.assertRaises(bench.BenchError) as caught:
                bench.run(CONFIG, bench.Encoding, overrides=[override])
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(bench.BenchError):
            bench.run("no-such.toml", bench.Encoding)
        pairs = 'select.over={ "train.lr, train.batch_size" = [[1e-3, 16], [3e-3, 8]] }'
        with tempfile.TemporaryDirectory() as place:
            config = pathlib.Path(place, "copy.toml")
            config.write_text(COPY, encoding="utf-8")
            tried = Choice(Program(config, [pairs]), [0]).tried
        keys = [{each["key"] for each in candidate["values"]} for candidate in tried]
        self.assertEqual(keys, [{"train.lr", "train.batch_size"}] * 2)
        for task in ("accuracy_of_the_first", "bits_per_byte"):
            with self.assertRaises(bench.BenchError) as caught:
                checks.check_task({"kind": "mine", "primary_metric": task})
            self.assertIn(f"task.kind = 'mine' is scored by {task}", str(caught.exception))

    def close(self, ours, theirs):
        """Single precision drifts apart over a training: one row of 64 may be answered otherwise."""
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs):
            self.assertAlmostEqual(a, b, delta=1.5 / 64)

    def both(self, text, seeds, *values):
        """Records of the program and of bench under a config of the copy task."""
        rope = encodings.of({"kind": "rope"})
        with tempfile.TemporaryDirectory() as place:
            config = pathlib.Path(place, "copy.toml")
            config.write_text(text, encoding="utf-8")
            runs = pathlib.Path(place, "runs")
            given = [f"seeds={seeds}", *values]
            Program(config)._call("run", str(config), *given, "--runs", str(runs))
            files = [json.loads(file.read_text()) for file in runs.glob("*/*/record.json")]
            theirs = {(file["seed"], longreach.part(file)): file for file in files}
            own = bench.run(config, rope, seeds, pathlib.Path(place, "own"), values)
        ours = {(record["seed"], longreach.part(record)): record for record in own}
        self.assertEqual(set(ours), {each for each in theirs if each[1] != "selection"})
        return [(record, theirs[which]) for which, record in ours.items()]

    def same(self, record, theirs):
        """The same end, answers and stop, within single precision."""
        self.assertEqual(record["train"]["steps"], theirs["train"]["steps"])
        self.assertEqual(record["train"]["tokens"], theirs["train"]["tokens"])
        stops = [which["train"].get("stop_scores", []) for which in (record, theirs)]
        self.close(*([score["value"] for score in scores] for scores in stops))
        for row, other in zip(record["evals"], theirs["evals"]):
            self.assertEqual(set(row["metrics"]), {"loss_nats", "token_accuracy", "exact_match"})
            self.assertNotIn("loss_by_position", row)
            for name, metric in row["metrics"].items():
                self.assertEqual(metric["n"], other["metrics"][name]["n"])
                self.close([metric["value"]], [other["metrics"][name]["value"]])

    def test_choice_stop_and_answers_are_those_of_the_program(self):
        for record, theirs in self.both(COPY, [0, 1]):
            for key in ("by", "steps", "seeds", "test_len", "chosen"):
                self.assertEqual(record["selected"][key], theirs["selected"][key])
            tried = zip(record["selected"]["candidates"], theirs["selected"]["candidates"])
            for mine, other in tried:
                self.assertEqual(mine["values"], other["values"])
                self.close(mine["scores"], other["scores"])
            self.same(record, theirs)
            self.assertLess(record["train"]["steps"], 400, "train.stop did nothing")

    def test_lengths_stages_and_halves_are_those_of_the_program(self):
        stop = 'train.stop={ metric = "loss_nats", at_most = 0.6, every = 20, min_len = 2 }'
        stages = (
            "train.stages=[{ steps = 30, train_len = 3, batch_size = 8 }, "
            "{ steps = 30, train_len = 6 }]"
        )
        short = ["train.lr=3e-3", "train.steps=60"]
        cases = {
            "uniform": ['train.length="uniform"', "train.min_len=2", stop],
            "mixed": ['train.length="mixed"', "train.min_len=2", stop, "half_seeds=[0]"],
            "staged": ['train.length="staged"', stages, stop],
        }
        for length, values in cases.items():
            with self.subTest(length):
                pairs = self.both(FIXED, [0], *short, *values)
                for record, theirs in pairs:
                    self.same(record, theirs)
                    ours = {each["run_id"] for each, _ in pairs} | {None}
                    self.assertIn(record.get("half_of"), ours)
                    self.assertEqual("half_of" in record, "half_of" in theirs)
                halves = [record for record, _ in pairs if "half_of" in record]
                self.assertEqual(len(halves), int(length == "mixed"))
                self.assertTrue(any(record["train"].get("stop_scores") for record, _ in pairs))

    def test_stages_with_an_encoding_of_their_own_are_refused(self):
        stage = "{ steps = 1, train_len = 6 }"
        other = '{ steps = 1, train_len = 6, pe = { kind = "KIND" } }'
        more = ["train.steps=2", "train.stop.every=2", 'train.length="staged"']
        for kind, stages in (("alibi", [other, stage]), ("nope", [stage, other])):
            stages = f"train.stages=[{', '.join(stages)}]".replace("KIND", kind)
            with tempfile.TemporaryDirectory() as place, self.assertRaises(bench.BenchError) as caught:
                config = pathlib.Path(place, "copy.toml")
                config.write_text(FIXED, encoding="utf-8")
                bench.run(config, bench.Encoding, runs=place, overrides=[*more, stages])
            self.assertRegex(str(caught.exception), "train.stages.[01].pe")

    def test_changed_code_changes_hash(self):
        from longreach.fingerprint import code_of

        first = define(SLOPE)
        code = code_of(first)
        self.assertRegex(code, "^[0-9a-f]{12}$")
        for same in (SLOPE, SLOPE.replace("class", "# why\n\n    class"), "A = 1\n" + SLOPE):
            self.assertEqual(code_of(define(same)), code)
        changes = {
            "make(0.1)": "make(0.2)",
            "factor = 1.0": "factor = 2.0",
            "POWER = 1.0": "POWER = 0.5",
            ".abs()": ".sqrt()",
            "-slope": "slope",
        }
        codes = {code_of(define(SLOPE.replace(*pair))) for pair in changes.items()}
        self.assertEqual(len(codes - {code}), len(changes))
        # What a method reads through an object, a function with arguments or a list counts.
        reads = """
import dataclasses, enum, functools, types
from longreach import bench

@dataclasses.dataclass
class Config:
    slope: float

class Kind(enum.Enum):
    FIRST = 1.0

CONFIG, NAMES = Config(0.1), types.SimpleNamespace(slope=0.2)
PART, ALL = functools.partial(min, 0.3), [lambda: 0.4]

class Slope(bench.Encoding):
    @functools.cached_property
    def kept(self):
        return 0.5

    def embed(self, x):
        return x * (CONFIG.slope + NAMES.slope + PART(1.0) + ALL[0]() + self.kept + Kind.FIRST.value)
"""
        codes = {code_of(define(reads.replace(f"0.{n}", f"1.{n}"))) for n in range(1, 6)}
        codes.add(code_of(define(reads.replace("FIRST = 1.0", "FIRST = 2.0"))))
        self.assertEqual(len(codes | {code_of(define(reads))}), 7)
        self.assertEqual(code_of(define(reads)), code_of(define(reads)))
        # What is set later counts.
        first.factor = 3.0
        self.assertNotIn(code_of(first), {code, *codes})
        of = [encodings.of({"kind": "rope", "base": base}) for base in (10000.0, 500.0)]
        self.assertNotEqual(*map(code_of, of))

    def test_a_changed_class_replaces_nothing_and_is_another_method(self):
        short = ["train.steps=3", "eval.test_lens=[64]", "task.eval_tokens=2048", "eval.variants=[]"]
        with tempfile.TemporaryDirectory() as runs:
            for slope, seeds in ((0.1, [0]), (5.0, [0, 1])):
                code = define(SLOPE.replace("make(0.1)", f"make({slope})"))
                bench.run(CONFIG, code, seeds, runs, short)
            self.assertEqual(len(longreach.records(runs)), 3)
            table = Program(CONFIG)._call("report", runs, "--out", f"{runs}/report")
            names = {row["method"] for row in longreach.scores(longreach.records(runs))}
        self.assertEqual(len(names), 2, names)
        self.assertRegex(names.pop(), r"^Slope \(pytorch .*\) \[model.pe.code = \w+\]$")
        rows = re.findall(r"Slope \(pytorch .*\) \[model.pe.code = (\w+)\]", table)
        self.assertEqual(len(set(rows)), 2, table)

    def test_seeds_are_those_of_the_config_and_records_are_written_whole(self):
        with tempfile.TemporaryDirectory() as runs:
            values = [*SHORT, "seeds=[3, 4]"]
            records = bench.run(CONFIG, bench.Encoding, runs=runs, overrides=values)
            self.assertEqual([record["seed"] for record in records], [3, 4])
            place = pathlib.Path(runs, records[0]["experiment"], records[0]["run_id"])
            before = (place / "record.json").read_text()

            def full(path, text, **_):
                path.write_bytes(text[:10].encode())
                raise OSError(errno.ENOSPC, "No space left on device")

            writing = unittest.mock.patch.object(pathlib.Path, "write_text", full)
            with writing, self.assertRaisesRegex(OSError, "No space .*record.json"):
                bench._write(place / "record.json", {"schema": 1})
            self.assertEqual((place / "record.json").read_text(), before)
            names = sorted(file.name for file in place.iterdir())
            self.assertEqual(names, ["record.json", "self-check.json"])

    def test_seeds_are_runs_of_one_method(self):
        short = ["train.steps=3", "eval.test_lens=[64, 96]", "task.eval_tokens=2048"]
        with tempfile.TemporaryDirectory() as runs:
            records = bench.run(CONFIG, bench.Encoding, [0, 1], runs, short)
        for record in records:
            self.assertNotIn("seal", record)
            pe = record["spec"]["model"]["pe"]
            self.assertEqual(pe["source"], f"pytorch {torch.__version__}")
            self.assertIn("passed", pe["self_check"])
            self.assertIn("(pytorch", record["labels"][0]["text"])
            # 2048 bytes, less what does not fill a window of every length.
            self.assertEqual([row["metrics"]["loss_nats"]["n"] for row in record["evals"]], [1920] * 2)
        specs = [{**record["spec"], "seed": None} for record in records]
        self.assertEqual(specs[0], specs[1])
        self.assertNotEqual(records[0]["run_id"], records[1]["run_id"])


if __name__ == "__main__":
    unittest.main()
