"""Every encoding that reads positions only gives the program's logits in PyTorch, from its tables.
Skipped where torch, safetensors or the program is missing.

    LONGREACH=target/release/longreach PYTHONPATH=python python3 -m unittest discover python/tests
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("LONGREACH") or shutil.which("longreach")
HAVE = PROGRAM and all(map(importlib.util.find_spec, ("torch", "safetensors")))
ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime")))

CONFIG = """
name = "tables"
seeds = [0]
[task]
kind = "text"
eval_tokens = 64
[model]
d_model = 16
n_layers = 3
n_heads = 2
pe = { kind = "nope" }
[train]
train_len = 16
steps = 3
batch_size = 2
[eval]
test_lens = [16, 24]
"""
YARN = 'eval.variants=[{name="yarn",set={scaling={kind="yarn"}}}]'
ROPE = '{ kind = "rope" }'
# Beside one of every kind: what the defaults do not show.
MORE = [
    f'{{ kind = "by_head", parts = [{ROPE}, {{ kind = "alibi" }}] }}',
    '{ kind = "rope", layout = "interleaved", rotary_dim = 4 }',
    '{ kind = "rope", learnable = true }',
    '{ kind = "pope", learnable = false, base = 100 }',
    '{ kind = "rerope", window = 3, leak = 2.5, layout = "interleaved", rotary_dim = 4 }',
    '{ kind = "self_extend", window = 4, group = 3 }',
    '{ kind = "dual_chunk", chunk_size = 7, local_window = 1 }',
    '{ kind = "string", shift = 6, window = 1 }',
    f'{{ kind = "by_layer", pattern = [0, 1, 1], parts = [{ROPE}, {{ kind = "rerope" }}] }}',
    '{ kind = "t5", scaled = false }',
    '{ kind = "alibi", slope_scale = 0.5 }',
    '{ kind = "alibi", log_distance = true }',
    '{ kind = "kerple", form = "power" }',
    f'{{ kind = "stack", parts = [{ROPE}, {{ kind = "alibi" }}, {{ kind = "sinusoidal" }}] }}',
    f'{{ kind = "by_layer", pattern = [0, 1, 1], parts = [{ROPE}, {{ kind = "fire" }}] }}',
    f'{{ kind = "nope_layers", every = 2, part = {ROPE} }}',
]
# Encodings whose content bias rotates far pairs otherwise, which tables hold.
ZONES = {"rerope", "self_extend", "dual_chunk", "string"}
SIZES = {"formula": "bias = '-log(1 + d)'", "learned": "max_position = 32", "learned_bias": "max_distance = 32", "window": "size = 5"}
# Kinds without a config in one line, or that need coordinates.
HELD = {"stack", "by_head", "by_layer", "nope_layers", "on_axis", "axial_rope", "dape"}


def listed() -> list:
    return json.loads(subprocess.check_output([PROGRAM, "list", "encodings", "--json"], text=True))


def kinds() -> list:
    """Encodings by the hooks that they use: those that tables can hold, and the others."""
    rows = [row for row in listed() if row["kind"] not in HELD]
    hooks = [row["hooks"] for row in rows]
    reads = [hook["content_bias"] or hook["output_bias"] for hook in hooks]
    reads = [read and row["kind"] not in ZONES for read, row in zip(reads, rows)]
    named = [f'{{ kind = "{row["kind"]}", {SIZES.get(row["kind"], "")} }}' for row in rows]
    return [
        [pe for pe, content in zip(named, reads) if content is wanted] for wanted in (False, True)
    ]


@unittest.skipUnless(HAVE, "needs torch, safetensors and the program")
class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        cls.config = pathlib.Path(cls.place.name) / "tables.toml"
        cls.config.write_text(CONFIG)

    def train(self, name: str, pes: list, *more: str) -> list:
        """Directories of runs."""
        place = pathlib.Path(self.place.name) / name
        axes = f'axes={{"model.pe" = [{", ".join(pes)}]}}'
        command = [PROGRAM, "run", str(self.config), axes, "--runs", str(place), *more]
        done = subprocess.run(command, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [file.parent for file in sorted(place.glob("*/*/record.json"))]

    def logits(self, run) -> dict:
        from safetensors.torch import load_file

        file = run / "logits.safetensors"
        command = [PROGRAM, "export", str(run), "--format", "logits", "--out", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        return load_file(str(file))

    def check(self, run) -> set:
        """Compares all test sets of a run, and returns their names."""
        import longreach
        import torch

        tensors = self.logits(run)
        names = {name.rsplit(".", 1)[0] for name in tensors}
        file = run / "tables.safetensors"
        command = [PROGRAM, "export", str(run), "--format", "tables", "--out", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        for name in names:
            variant, length = name.rsplit(".", 1)
            model = longreach.load(run, variant, int(length), tables=file)
            with torch.no_grad():
                ours = model(tensors[f"{name}.tokens"].long())
            far = (ours - tensors[f"{name}.logits"]).abs().max().item()
            self.assertLess(far, 5e-6, f"{run} {name}: {model.config['pe']}")
        return names

    def test_every_encoding_by_position_gives_the_programs_logits(self):
        by_position, _ = kinds()
        # Turns by content are told apart by what they do.
        told = ('"selective_rope"', '"darope"', '"repo"')
        rest = [pe for pe in by_position if not any(kind in pe for kind in told)]
        self.assertGreater(len(rest), 19)
        for run in self.train("all", rest + MORE):
            self.assertEqual(self.check(run), {"trained.16", "trained.24"})

    def test_a_run_of_bench_is_refused_by_name(self):
        import longreach

        [run] = self.train("bench", ['{ kind = "nope" }'])
        record = json.loads((run / "record.json").read_text())
        record["environment"]["burn"] = "none: pytorch 2.0"
        (run / "record.json").write_text(json.dumps(record))
        (run / "weights.safetensors").unlink()
        with self.assertRaisesRegex(longreach.Unsupported, "longreach.bench, which keeps no weights"):
            longreach.load(run)

    def test_all_scalings_agree(self):
        [run] = self.train("variant", [ROPE], YARN)
        self.assertIn("yarn.24", self.check(run))
        scalings = next(row["scalings"] for row in listed() if row["kind"] == "rope")
        self.assertGreater(len(scalings), 10)
        own = {
            "longrope": "short_factor = [1, 1, 1, 1], long_factor = [1, 1.5, 2, 3]",
            "llama3": "factor = 2",
        }
        tables = [f'{{ kind = "{kind}", {own.get(kind, "")} }}' for kind in scalings]
        pes = [f'{{ kind = "rope", scaling = {table} }}' for table in tables]
        for run in self.train("scalings", pes):
            self.check(run)

    def test_a_variant_of_a_later_evaluation_is_loaded(self):
        import longreach
        import torch

        [planned] = self.train("planned", [ROPE], YARN)
        [later] = self.train("later", [ROPE])
        command = [PROGRAM, "eval", str(later), "--lengths", "24", "--variant"]
        yarn = ['name="yarn"\nscaling={kind="yarn"}', 'name="yarn"\nscaling={kind="yarn",factor=8}']
        subprocess.run([*command, yarn[0]], check=True, capture_output=True)
        tokens = torch.randint(256, (2, 24))
        logits = [longreach.load(run, "yarn", 24)(tokens) for run in (planned, later)]
        self.assertTrue(torch.equal(*logits))
        with self.assertRaisesRegex(longreach.Unsupported, "no variant 'ntk'"):
            longreach.load(later, "ntk", 24)
        subprocess.run([*command, yarn[1]], check=True, capture_output=True)
        with self.assertRaisesRegex(longreach.Unsupported, "2 evaluations named 'yarn' at 24 differ"):
            longreach.load(later, "yarn", 24)

    def test_models_compute_on_another_device(self):
        import longreach
        import torch

        own = [ROPE, '{ kind = "rope", learnable = true }', '{ kind = "alibi" }', '{ kind = "t5" }']
        own += ['{ kind = "learned", max_position = 8, interpolate = true }', '{ kind = "sinusoidal" }']
        tokens = torch.zeros(1, 12, dtype=torch.long, device="meta")
        for run in self.train("moved", own + ['{ kind = "kerple" }', '{ kind = "pope" }']):
            model = longreach.load(run).to("meta")
            self.assertEqual(model(tokens).device.type, "meta", model.config["pe"])

    def test_a_clamped_table_is_loaded(self):
        import longreach
        import torch

        [run] = self.train("clamped", ['{ kind = "learned", max_position = 20, clamp = true }'])
        tensors = self.logits(run)
        model = longreach.load(run, "trained", 24)
        with torch.no_grad():
            far = model(tensors["trained.24.tokens"].long()) - tensors["trained.24.logits"]
        self.assertLess(far.abs().max().item(), 5e-6)

    def test_shifts_and_both_directions_agree(self):
        shifted = 'model.positions={kind="random_offset",max_position=64}'
        for run in self.train("shifted", [ROPE, '{ kind = "alibi" }'], shifted):
            self.check(run)
        both = ['model.mask="bidirectional"', "task.kind=\"masked_text\""]
        for run in self.train("both", ['{ kind = "t5", bidirectional = true }', ROPE], *both):
            self.check(run)

    def test_what_reads_content_is_refused_by_name(self):
        import longreach
        from longreach.tables import TableError

        _, by_content = kinds()
        self.assertGreater(len(by_content), 10)
        pes = by_content + ['{ kind = "selective_rope" }', '{ kind = "darope" }', '{ kind = "repo" }']
        for run in self.train("content", pes):
            with self.assertRaisesRegex(TableError, "read positions only"):
                longreach.load(run, "trained", 16)

    def test_a_state_dict_of_pytorch_starts_a_training(self):
        import longreach
        import torch
        from safetensors.torch import save_file

        [run] = self.train("from", ['{ kind = "t5" }'])
        model = longreach.load(run)
        with torch.no_grad():
            model.head.mul_(2.0)
        file = run / "mine.safetensors"
        save_file(model.state_dict(), str(file))
        still = ["train.lr=1e-12", "train.adamw.weight_decay=0.0", f"train.start_from='{file}'"]
        [after] = self.train("after", ['{ kind = "t5" }'], *still)
        tokens = torch.randint(256, (2, 16))
        far = (longreach.load(after)(tokens) - model(tokens)).abs().max().item()
        self.assertLess(far, 1e-6)

    @unittest.skipUnless(ONNX, "needs onnx, onnxscript and onnxruntime")
    def test_models_leave_as_onnx(self):
        import longreach
        import onnxruntime
        import torch

        for run in self.train("onnx", [ROPE, '{ kind = "kerple" }', '{ kind = "rerope" }']):
            model = longreach.load(run, "trained", 24)
            tokens = torch.randint(256, (2, 24))
            file = str(run / "model.onnx")
            torch.onnx.export(model, (tokens,), file, verbose=False)
            session = onnxruntime.InferenceSession(file)
            [logits] = session.run(None, {session.get_inputs()[0].name: tokens.numpy()})
            far = (torch.from_numpy(logits) - model(tokens)).abs().max().item()
            self.assertLess(far, 1e-5, model.config["pe"])

    def test_tables_that_do_not_fit_are_refused(self):
        import longreach
        import torch
        from longreach.tables import TableError

        first, second = self.train("two", ['{ kind = "sandwich" }', '{ kind = "fire" }'])
        model = longreach.load(first)
        with self.assertRaisesRegex(TableError, "17 tokens, but the tables have 16"):
            model(torch.zeros(1, 17, dtype=torch.long))
        # Fewer tokens are a prefix.
        tokens = torch.randint(256, (2, 12))
        whole = longreach.load(first, "trained", 24)
        self.assertLess((whole(tokens) - model(tokens)).abs().max().item(), 1e-6)
        self.check(first)
        # Positions of the row as a whole are not; a range is named by its upper end.
        drawn = 'model.positions={kind="randomized",max_position=64}'
        copy = ['task={kind="copy",alphabet=4,test_rows=4}', "train.train_len=4"]
        lengths = 'eval.test_lens=["4..8",12]'
        [run] = self.train("drawn", ['{ kind = "alibi" }'], drawn, *copy, lengths)
        self.assertEqual(self.check(run), {"trained.8", "trained.12"})
        longreach.load(run)
        with self.assertRaisesRegex(TableError, "12 tokens, but the positions are those of rows of"):
            longreach.load(run, "trained", 12)(tokens % 4)
        with self.assertRaisesRegex(TableError, "belongs to run"):
            longreach.load(second, tables=first / "tables.safetensors")
        with self.assertRaisesRegex(TableError, "trained.16, trained.24"):
            longreach.tables.Tables(first / "tables.safetensors", "trained", 99)
        cut = first / "cut.safetensors"
        cut.write_bytes((first / "tables.safetensors").read_bytes()[:-9])
        with self.assertRaisesRegex(TableError, "cut.safetensors: "):
            longreach.load(first, tables=cut)


if __name__ == "__main__":
    unittest.main()
