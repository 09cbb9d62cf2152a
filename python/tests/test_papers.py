"""Tests of python/examples/papers.py; skipped where torch or the program is missing.

    LONGREACH=target/release/longreach PYTHONPATH=python python3 -m unittest discover python/tests
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
HAVE = importlib.util.find_spec("torch") and (
    os.environ.get("LONGREACH") or shutil.which("longreach")
)

if HAVE:
    sys.path.insert(0, str(ROOT / "python/examples"))
    import papers
    import torch

    from longreach import bench, checks
    from longreach.program import Program

    # What a reader of the papers could take for the right constant, or leave out.
    class WrongFire(papers.Fire):
        threshold = 64.0

    class WrongCope(papers.Cope):
        def content_bias(self, layer, content):
            return super().content_bias(layer, content) / self.shape.head_dim**0.5

    class WrongSelectiveRope(papers.SelectiveRope):
        base = 10_000.0

    WRONG = {"fire": WrongFire, "cope": WrongCope, "selective_rope": WrongSelectiveRope}


@unittest.skipUnless(HAVE, "needs torch and the program")
class Papers(unittest.TestCase):
    def setUp(self):
        # Rounding gives 1.2e-7; the wrong classes below give 2e-5 and more.
        patch = unittest.mock.patch.object(bench, "TOLERANCE", 1e-6)
        patch.start()
        self.addCleanup(patch.stop)
        short = ["eval.test_lens=[64, 96]", "task.eval_tokens=4096"]
        self.program = Program(ROOT / "configs/quickstart.toml", short)

    def test_losses_and_scores_are_those_of_the_program(self):
        for kind, encoding in papers.PAPERS.items():
            with self.subTest(kind):
                bench.self_check(self.program, {"kind": kind}, 5, encoding)

    def test_a_wrong_constant_is_seen(self):
        for kind, encoding in WRONG.items():
            with self.subTest(kind), self.assertRaises(bench.BenchError) as caught:
                bench.self_check(self.program, {"kind": kind}, 5, encoding)
            self.assertIn(f"self-check with {kind}", str(caught.exception))

    def test_no_parameter_of_the_program_is_left_aside(self):
        with self.assertRaises(RuntimeError) as caught:
            bench.self_check(self.program, {"kind": "fire"}, 5, bench.Encoding)
        self.assertIn("encoding.functions.0.b1", str(caught.exception))

    def test_the_classes_pass_what_run_checks(self):
        nope = {"kind": "nope"}
        spec = self.program.jobs(nope, [0])[0]["job"]["spec"]
        _, weights = self.program.initial(nope, self.program.jobs(nope, [0])[0])
        sizes = {key: spec["model"][key] for key in ("d_model", "n_layers", "n_heads", "head_dim")}
        shape = bench.Shape(**sizes, train_len=64)
        tokens = torch.arange(128).reshape(2, 64) % spec["model"]["vocab_size"]
        for kind, encoding in papers.PAPERS.items():
            with self.subTest(kind):
                checks.check_encoding(encoding, shape, spec["model"], weights, tokens, [64, 96])


if __name__ == "__main__":
    unittest.main()
