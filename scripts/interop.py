"""The comparisons of scripts/interop: logits, tables and event files against records and logs."""

import json
import math
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import longreach  # noqa: E402
import pandas  # noqa: E402
import polars  # noqa: E402
import tensorboard  # noqa: E402
import torch  # noqa: E402
from longreach import encodings  # noqa: E402
from longreach.trained import check  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

# Largest difference of a logit: sums of f32 in another order. Logits here are of the order of 1.
TOLERANCE = 2e-5


def main(work):
    runs = sorted(path.parent for path in work.glob("runs/*/*/record.json"))
    failed = check_logits(runs) + check_tables(work, runs) + check_events(work, runs)
    if failed:
        sys.exit("\n".join(f"FAILED: {line}" for line in failed))


def check_logits(runs):
    print(f"PyTorch {torch.__version__.split('+')[0]}: logits of python/longreach and of Longreach")
    print(f"{'experiment':11} {'method':62} {'variant':10} {'length':>6} {'max logit':>9} {'difference':>10}")
    failed, compared = [], 0
    for run in sorted(runs, key=lambda run: (run.parent.name, name(run))):
        expected = load_file(str(run / "logits.safetensors"))
        for key in sorted(key for key in expected if key.endswith(".logits")):
            variant, length = key.removesuffix(".logits").rsplit(".", 1)
            model = longreach.load(run, variant, int(length))
            tokens = expected[f"{variant}.{length}.tokens"].long()
            with torch.no_grad():
                logits = model(tokens)
            assert logits.shape == expected[key].shape
            difference = (logits - expected[key]).abs().max().item()
            largest = expected[key].abs().max().item()
            print(
                f"{run.parent.name:11} {name(run)[:62]:62} {variant:10} {length:>6}"
                f" {largest:9.2f} {difference:10.1e}"
            )
            compared += 1
            if not difference <= TOLERANCE:
                failed.append(f"{run.parent.name}, {name(run)}, {variant} at {length}: {difference}")
    print(f"{compared} comparisons, all within {TOLERANCE:g}: {not failed}\n")
    # The comparison tells a wrong model from a right one.
    run = next(run for run in runs if name(run) == "rope")
    model = longreach.load(run)
    model.encoding.pe["layout"] = "interleaved"
    expected = load_file(str(run / "logits.safetensors"))
    with torch.no_grad():
        wrong = model(expected["trained.48.tokens"].long()) - expected["trained.48.logits"]
    print(f"rope with the other layout of pairs: {wrong.abs().max().item():.1e}")
    if wrong.abs().max().item() <= 100 * TOLERANCE:
        failed.append("the comparison does not notice another layout")
    # What it does not know is refused by name.
    config = json.loads((runs[0] / "record.json").read_text())["spec"]["model"]
    refusals = {"an encoding": lambda: encodings.of({"kind": "cope"})}
    for change in ({"attention": "linear"}, {"novelty": 1}):
        refusals[str(change)] = lambda change=change: check({**config, **change})
    for change, refuse in refusals.items():
        try:
            refuse()
            failed.append(f"accepted {change}")
        except longreach.Unsupported as refused:
            print(f"refused: {refused}")
    print()
    return failed


def check_tables(work, runs):
    records = [json.loads((run / "record.json").read_text()) for run in runs]
    stored = {
        (record["run_id"], row["variant"], row["test_len"], metric): value["value"]
        for record in records
        for row in record["evals"]
        for metric, value in row["metrics"].items()
    }
    absent = sum(row["status"] != "ok" for record in records for row in record["evals"])
    readers = [
        (pandas, lambda path: pandas.read_csv(path, float_precision="round_trip"), read_lines),
        (polars, lambda path: polars.read_csv(path, infer_schema_length=None), polars.read_ndjson),
    ]
    failed = []
    for module, read, read_json in readers:
        program = module.__name__
        scores = rows(read(work / "tables" / "results.csv"))
        lines = rows(read_json(work / "results.jsonl"))
        print(f"{program} {module.__version__}: {len(scores)} scores, {len(lines)} records")
        read_back = {
            (row["run_id"], row["variant"], row["test_len"], row["metric"]): row["value"]
            for row in scores
            if row["value"] is not None
        }
        derived = {key: value for key, value in read_back.items() if key[3] in ("perplexity", "bits_per_byte")}
        by_id = {record["run_id"]: record for record in records}
        checks = {
            "every stored score, bit for bit": all(read_back.get(k) == v for k, v in stored.items()),
            "nothing else but derived scores": len(read_back) == len(stored) + len(derived),
            "perplexity is exp of the loss": all(
                math.isclose(value, math.exp(stored[key[:3] + ("loss_nats",)]), rel_tol=1e-12)
                for key, value in derived.items()
                if key[3] == "perplexity"
            ),
            "evaluations without numbers": sum(row["value"] is None for row in scores) == absent > 0,
            "points of loss curves": all(
                len(line["train"]["loss_curve"]) == len(by_id[line["run_id"]]["train"]["loss_curve"])
                for line in lines
            ),
            "every record": sorted(line["run_id"] for line in lines) == sorted(by_id),
        }
        for what, holds in checks.items():
            print(f"  {what}: {'yes' if holds else 'NO'}")
            if not holds:
                failed.append(f"{program}: {what}")
    print()
    return failed


def read_lines(path):
    return pandas.read_json(path, lines=True)


def during_of(records):
    return sorted(
        (record["run_id"], scores["step"], row["test_len"], metric, value["value"])
        for record in records
        for scores in record["train"].get("scores", [])
        for row in scores["rows"]
        for metric, value in row["metrics"].items()
    )


def rows(table):
    """Rows as dictionaries, with None where there is no value."""
    if isinstance(table, polars.DataFrame):
        return table.to_dicts()
    found = table.astype(object).where(table.notna(), None).to_dict("records")
    return found


def check_events(work, runs):
    written = {
        "exported": sorted(work.glob("logs/*/*/events.out.tfevents.*")),
        "written while training": sorted(work.glob("runs/*/tensorboard/*/events.out.tfevents.*")),
    }
    failed = []
    for how, files in written.items():
        print(f"TensorBoard {tensorboard.__version__}: {len(files)} event files, {how}, of {len(runs)} runs")
        failed += [f"{how}: {problem}" for problem in check_files(files, runs, has_text=how == "exported")]
    return failed


def check_files(files, runs, has_text):
    failed = [] if len(files) == len(runs) else ["not one event file for each run"]
    points = texts = 0
    for run in runs:
        record = json.loads((run / "record.json").read_text())
        (file,) = [file for file in files if file.parent.name.endswith(record["run_id"])]
        reader = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
        expected = {
            f"train/{name}": [(step["step"], step[name]) for step in steps]
            for name in ("loss_nats", "lr", "grad_norm")
        }
        for _, step, length, metric, value in during_of([record]):
            expected.setdefault(f"by_step/{metric}/at_{length}", []).append((step, value))
        for row in record["evals"]:
            for metric, value in row["metrics"].items():
                tag = f"by_test_length/{metric}/{row['variant']}"
                expected.setdefault(tag, []).append((row["test_len"], value["value"]))
        for tag, values in expected.items():
            found = [(event.step, event.value) for event in reader.Scalars(tag)]
            as_f32 = torch.tensor([value for _, value in values], dtype=torch.float32).tolist()
            if found != list(zip([step for step, _ in values], as_f32)):
                failed.append(f"{file.parent.name}: {tag}")
            points += len(found)
        if has_text:
            tensor = reader.Tensors("config")[0].tensor_proto
            texts += record["run_id"] in tensor.string_val[0].decode()
    print(f"{points} points equal to the step log and the records, rounded to f32: {not failed}")
    if has_text:
        print(f"{texts} texts with the spec of their run")
        if texts != len(runs):
            failed.append("texts")
    return failed


def name(run):
    return longreach.method(longreach.records(run)[0])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
