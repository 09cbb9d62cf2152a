"""Tests of longreach.run and longreach.frame; those that need pandas or the program are skipped
without them.

    LONGREACH=target/release/longreach PYTHONPATH=python python3 -m unittest discover python/tests
"""

import importlib.util
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import longreach
from longreach import call, recorded

PANDAS = importlib.util.find_spec("pandas")
if PANDAS:
    from longreach import frames
MATPLOTLIB = PANDAS and importlib.util.find_spec("matplotlib")
PROGRAM = os.environ.get("LONGREACH") or shutil.which("longreach")
TINY = {"steps": 4, "batch_size": 2}
# Rope chooses among two rates, and its result has a half.
CHOICE = """
name = "chosen"
seeds = [0]
half_seeds = [0]
task = { kind = "copy", alphabet = 4, test_rows = 8 }
select = { by = "loss_nats", seeds = [7], steps = 0.5, over = { "train.lr" = [1e-4, 1e-3] } }
model = { d_model = 16, n_layers = 1, n_heads = 2, pe = { kind = "rope" } }
train = { train_len = 4, steps = 4, batch_size = 2 }
eval = { test_lens = [4, 8, "3..7"] }
"""
SHORT = {"eval.test_lens": [64, 128], "task.eval_tokens": 2048}


class Names(unittest.TestCase):
    def test_methods_are_named_as_in_results_csv(self):
        def name(*labels):
            keys = ("key", "text", "value")
            return recorded.method({"labels": [dict(zip(keys, label)) for label in labels]})

        rope = ("model.pe", "rope(base=100)", {"kind": "rope", "base": 100})
        self.assertEqual(name(rope), "rope(base=100)")
        self.assertEqual(name(rope, ("train.lr", "0.001", 1e-3)), "rope(base=100), lr = 0.001")
        self.assertEqual(name(("model.pe.base", "100", 100)), "base = 100")
        two = [("model.pe.parts.0.base", "9", 9), ("model.pe.parts.1.base", "8", 8)]
        self.assertEqual(name(*two), "model.pe.parts.0.base = 9, model.pe.parts.1.base = 8")


class Values(unittest.TestCase):
    def test_values_are_written_as_toml(self):
        for value, text in [
            (True, "true"),
            ([0, 1], "[0, 1]"),
            ((1e-3,), "[0.001]"),
            ({"kind": "rope", "base": None}, '{ kind = "rope" }'),
            ({"model.pe": [{"kind": "nope"}]}, '{ "model.pe" = [{ kind = "nope" }] }'),
            (pathlib.Path("a b"), '"a b"'),
            ("\U0001f600 é\n\x7f", '"\U0001f600 é\\n\\u007f"'),
            ({"\U0001f600": 1}, '{ "\U0001f600" = 1 }'),
            (math.inf, "inf"),
        ]:
            self.assertEqual(call.toml(value), text)
        with self.assertRaisesRegex(TypeError, "not a value of a config"):
            call.toml(object())

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "needs numpy")
    def test_arrays_are_lists_and_their_numbers_numbers(self):
        import numpy

        self.assertEqual(call.toml(numpy.array([3, 4])), "[3, 4]")
        self.assertEqual(call.toml([numpy.float32(0.5), numpy.array([[1], [2]])]), "[0.5, [[1], [2]]]")

    @unittest.skipUnless(PANDAS, "needs pandas")
    def test_tables_replace_keys_unless_they_have_a_kind(self):
        given = {"train": {"adamw": {"beta2": 0.9}, "lr": 1}, "model.pe": {"kind": "rope"}}
        expected = [("train.adamw.beta2", 0.9), ("train.lr", 1), ("model.pe", {"kind": "rope"})]
        self.assertEqual(list(frames._dotted(given)), expected)
        dotted = {"axes": {"model.pe": [1]}, "select": {"over": {"train.lr": [1]}, "steps": 0.5}}
        expected = [("axes", {"model.pe": [1]}), ("select.over", {"train.lr": [1]})]
        self.assertEqual(list(frames._dotted(dotted)), [*expected, ("select.steps", 0.5)])

    def test_unknown_attributes_raise(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'plots'"):
            longreach.plots


class Records(unittest.TestCase):
    """Files that are read; what is in them does not matter here."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def test_a_run_that_lies_twice_is_taken_once(self):
        def write(name, *losses, **more):
            rows = [
                {
                    "variant": "trained",
                    "test_len": length,
                    "status": "skipped" if loss is None else "ok",
                    "metrics": {} if loss is None else {"loss_nats": {"value": loss, "n": 1}},
                }
                for length, loss in zip((4, 8), losses)
            ]
            record = {"schema": 1, "run_id": "0a", "status": "ok", "evals": rows, **more}
            (self.place / name).mkdir()
            (self.place / name / "record.json").write_text(json.dumps(record))

        write("a", 1.0, None)
        write("b", 1.0, 2.0)
        write("c", 1.0, 2.0)
        write("d", 3.0, evaluation_of="0b")
        write("e", 1.0, 2.0, experiment="another")
        found = longreach.records(self.place)
        self.assertEqual([len(record["evals"]) for record in found], [2, 2, 1])
        self.assertEqual([row["status"] for row in found[0]["evals"]], ["ok", "ok"])
        self.assertEqual(found[1]["experiment"], "another")
        write("f", 1.0, 2.5)
        with self.assertRaisesRegex(ValueError, "0a has other numbers in .*b/.* than in .*f/record"):
            longreach.records(self.place)

    def test_evaluations_are_counted_once_and_told_apart_by_their_encoding(self):
        def record(factor, metrics, later=True):
            pe = {"kind": "rope", "scaling": {"kind": "yarn", "factor": factor}}
            variants = [{"name": "trained", "pe": [{"kind": "rope"}]}, {"name": "yarn", "pe": [pe]}]
            rows = [
                {"variant": each["name"], "test_len": 20, "status": "ok", "metrics": metrics}
                for each in variants
            ]
            about = {"evaluation_of": "a"} if later else {}
            spec = {"model": {"pe": {"kind": "rope"}}, "eval": {"test_lens": [20]}}
            spec["eval"]["variants"] = variants
            task = {"train_len": 10, "bytes_per_token": 2.0}
            found = {"run_id": "a", "experiment": "x", "seed": 0, "labels": [], "task": task}
            return {**found, **about, "spec": spec, "evals": rows}

        loss = {"loss_nats": {"value": 1.0, "n": 2}}
        more = {**loss, "attention_distance_1_1": {"value": 3.0, "n": 2}}
        records = [record(4.0, loss), record(2.0, loss, later=False), record(2.0, more)]
        scores = longreach.scores(records)
        told = [(score["variant"], score["metric"]) for score in scores]
        other = "yarn [scaling.factor = 4.0]"
        derived = ("loss_nats", "perplexity", "bits_per_byte")
        for at, variant in enumerate((other, "trained", "yarn")):
            self.assertEqual(told[3 * at : 3 * at + 3], [(variant, name) for name in derived])
        new = "attention_distance_1_1"
        self.assertEqual(told[9:], [("trained", new), ("yarn", new)])
        self.assertAlmostEqual(scores[2]["value"], 0.5 / math.log(2), places=15)

    def test_invalid_records_are_refused_by_place(self):
        file = self.place / "record.json"
        for text, words in [
            ('{"schema": 1, "run', "record.json is not a record: Unterminated"),
            ("", "record.json is not a record"),
            ("\xff", "record.json is not a record"),
            ("[]", "record.json is not a record"),
            ('{"schema": 99}', "record.json is a record of schema 99; this package reads 1"),
        ]:
            file.write_text(text, encoding="latin-1")
            with self.assertRaisesRegex(ValueError, words):
                longreach.records(self.place)
        lines = self.place / "all.jsonl"
        lines.write_text('\n{"schema": 1}\nhello\n', encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "all.jsonl:3 is not a record"):
            longreach.records(lines)
        lines.write_text("")
        for place in (lines, self.place / "nowhere", self.place / "nowhere.jsonl"):
            with self.assertRaisesRegex(FileNotFoundError, place.name):
                longreach.records(place)


@unittest.skipUnless(PANDAS and PROGRAM, "needs pandas and the program")
class Notebook(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def run_tiny(self, **more):
        values = {"seeds": [0, 1], "train": TINY, **SHORT, **more}
        return longreach.run("quickstart", runs=self.place.name, progress=False, **values)

    def test_a_run_gives_the_scores_of_its_records(self):
        frame = self.run_tiny()
        records = longreach.records(self.place.name)
        self.assertEqual(set(frame.run_id), {record["run_id"] for record in records})
        self.assertEqual(len(frame), len(longreach.scores(records)))
        self.assertEqual(set(frame["train.steps"]), {4})
        self.assertEqual(set(frame.status), {"ok"})
        loss = frame[frame.metric == "loss_nats"].value.map(math.exp)
        perplexity = frame[frame.metric == "perplexity"].value
        self.assertEqual(list(loss), list(perplexity))
        # A second time nothing is trained, and the scores are the same.
        self.assertEqual(list(self.run_tiny().value), list(frame.value))

    def test_a_call_gives_the_runs_of_its_own_values(self):
        first = self.run_tiny()
        second = self.run_tiny(train={**TINY, "steps": 5})
        self.assertEqual(set(second["train.steps"]), {5})
        self.assertFalse(set(first.run_id) & set(second.run_id))
        whole = longreach.frame(self.place.name)
        self.assertEqual(set(whole.run_id), {*first.run_id, *second.run_id})
        # Another sweep, and the result at what it chose.
        self.run_choice()
        other = self.run_choice(select={"over": {"train.lr": [2e-3, 3e-3]}})
        self.assertEqual(set(other[other.part == "selection"]["train.lr"]), {2e-3, 3e-3})
        self.assertLess(set(other[other.part == "result"]["train.lr"]), {2e-3, 3e-3})
        self.assertEqual(other[other.part != "selection"].run_id.nunique(), 2)

    def test_what_has_no_number_is_a_row_that_says_why(self):
        axes = {"model.pe": [{"kind": "learned", "max_position": 64}]}
        frame = self.run_tiny(axes=axes, **{"eval.variants": []})
        none = frame[frame.test_len == 128]
        self.assertEqual(set(none.status), {"unsupported"})
        self.assertTrue(none.value.isna().all() and (none.n == 0).all())
        self.assertIn("64", none.reason.iloc[0])

    def test_mistakes_are_told_in_the_words_of_the_program(self):
        with self.assertRaisesRegex(longreach.RunError, "did you mean `steps`") as mistake:
            self.run_tiny(train={"stepz": 4})
        self.assertEqual(mistake.exception.code, 2)
        with self.assertRaisesRegex(longreach.RunError, "no such file"):
            longreach.run("nothing.toml", runs=self.place.name)
        for name in ("--help", "-", "seeds=[9]"):
            with self.assertRaisesRegex(longreach.RunError, "no such file"):
                longreach.run(name, runs=self.place.name)

    def test_an_unusable_program_is_named(self):
        from unittest import mock

        for path in ("no-such", self.place.name, __file__, sys.executable):
            with mock.patch.dict(os.environ, {"LONGREACH": path}):
                with self.assertRaisesRegex(longreach.RunError, "LONGREACH = /"):
                    longreach.run("quickstart", runs=self.place.name)

    def run_choice(self, **more):
        config = pathlib.Path(self.place.name, "choice.toml")
        config.write_text(CHOICE)
        return longreach.run(config, runs=self.place.name, progress=False, **more)

    def test_parts_and_ranges_of_lengths_are_told_apart(self):
        frame = self.run_choice()
        parts = frame.groupby("part").method.agg(set).to_dict()
        sweep = {"rope, lr = 0.0001", "rope, lr = 0.001"}
        self.assertEqual(parts, {"result": {"rope"}, "half": {"rope"}, "selection": sweep})
        lengths = list(frame[(frame.part == "result") & (frame.metric == "loss_nats")].test_len)
        self.assertEqual(lengths, [4, 8, "3..7"])
        rows = longreach.scores(longreach.records(self.place.name))
        self.assertEqual({row["part"] for row in rows}, set(parts))
        self.assertEqual({row["test_len"] for row in rows}, {*lengths})

    @unittest.skipUnless(MATPLOTLIB, "needs matplotlib")
    def test_a_figure_has_the_results_at_single_lengths(self):
        import matplotlib
        import pandas

        matplotlib.use("agg")
        frame = self.run_choice()
        ax = frame.plot("loss_nats")
        drawn, at_training_length = ax.get_lines()
        self.assertEqual((drawn.get_label(), list(drawn.get_xdata())), ("rope", [4, 8]))
        result = frame[(frame.part == "result") & (frame.metric == "loss_nats")]
        self.assertEqual(list(drawn.get_ydata()), list(result.value)[:2])
        with self.assertRaisesRegex(ValueError, "of a result at a single length"):
            frame[frame.part == "selection"].plot()
        # The legend is whole in a file.
        renamed = frame.replace({"method": {"rope": "RoPE with a long name, as of a sweep"}})
        ax = renamed.plot("loss_nats")
        ax.figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        self.assertLess(legend.x1, ax.figure.bbox.x1)
        # Other settings under the same name are other lines.
        other = frame.assign(run_id="other", value=9.0, **{"train.steps": 7})
        both = type(frame)(pandas.concat([frame, other]))
        first, second, _ = both.plot("loss_nats").get_lines()
        steps = result["train.steps"].iloc[0]
        names = {f"rope [train.steps = {each}]" for each in (steps, 7)}
        self.assertEqual({first.get_label(), second.get_label()}, names)
        again = frame.assign(experiment="again")
        both = type(frame)(pandas.concat([frame, again]))
        self.assertEqual(len(both.plot("loss_nats").get_lines()), 2)

    @unittest.skipUnless(MATPLOTLIB, "needs matplotlib")
    def test_a_figure_has_a_line_for_each_method_and_variant(self):
        import matplotlib

        matplotlib.use("agg")
        frame = self.run_tiny()
        ax = frame[frame.variant == "trained"].plot()
        names = [text.get_text() for text in ax.get_legend().get_texts()]
        self.assertEqual(set(names), set(frame.method))
        line = next(line for line in ax.get_lines() if line.get_label() == "alibi")
        rows = frame[(frame.method == "alibi") & (frame.test_len == 64)]
        loss = rows[rows.metric == "loss_nats"].value
        self.assertAlmostEqual(line.get_ydata()[0], math.exp(loss.mean()), places=9)
        self.assertTrue(callable(frame.plot.scatter))
        with self.assertRaisesRegex(ValueError, "perplexity"):
            frame.plot("bleu")


if __name__ == "__main__":
    unittest.main()
