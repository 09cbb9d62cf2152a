"""What runs leave behind, read with the standard library alone: records and their scores."""

import json
import math
import os
import pathlib
from typing import List, Optional, Union

RECORD = "record.json"
# The layout of records that is read here.
SCHEMA = 1

Place = Union[str, "os.PathLike[str]"]


def records(path: Place) -> List[dict]:
    """All records at a path: a run's directory, a directory above, a record, or a .jsonl file. A run
    that is found twice is counted once; if its numbers differ, this raises ValueError."""
    found = {}
    for place, record in _placed(pathlib.Path(path)):
        numbers = _numbers(record)
        run = (record.get("run_id"), record.get("evaluation_of"))
        kept = found.setdefault(run, {})
        for other, _, known in kept.values():
            both = numbers.keys() & known.keys()
            if any(numbers[key] != known[key] for key in both):
                raise ValueError(f"run {run[0]} has other numbers in {other} than in {place}")
        # One machine may have skipped what another one had the memory for.
        experiment = record.get("experiment")
        if experiment not in kept or len(numbers) > len(kept[experiment][2]):
            kept[experiment] = (place, record, numbers)
    return [record for kept in found.values() for _, record, _ in kept.values()]


def _numbers(record):
    """What must be the same wherever a run lies."""
    numbers = {"status": record.get("status")}
    for row in record.get("evals", []):
        if row["status"] != "skipped":
            key = (row["variant"], row.get("from_len"), row["test_len"])
            numbers[key] = (row["status"], row["metrics"])
    return numbers


def _placed(path):
    """Records with the places that they were read from."""
    if path.suffix == ".jsonl" and path.is_file():
        lines = enumerate(path.read_bytes().splitlines(), 1)
        found = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
    elif path.is_file():
        found = [(path, path.read_bytes())]
    else:
        files = sorted(path.glob(f"**/{RECORD}")) + sorted(path.glob("**/evals/*.json"))
        found = [(file, file.read_bytes()) for file in files]
    if not found:
        raise FileNotFoundError(f"{path} holds no {RECORD}" if path.is_dir() else f"no records: {path}")
    return [(place, read(place, text)) for place, text in found]


def read(place, text):
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place} is not a record: {error}") from None
    if not isinstance(record, dict) or "schema" not in record:
        raise ValueError(f"{place} is not a record")
    if record["schema"] != SCHEMA:
        version = record["schema"]
        raise ValueError(f"{place} is a record of schema {version}; this package reads {SCHEMA}")
    return record


def method(record: dict) -> str:
    """The values on the axes of the experiment, named as in `results.csv`: `rope, lr = 0.001`. The
    task and the training length are among them if they are axes."""
    keys = [label["key"] for label in record["labels"]]
    last = [key.rsplit(".", 1)[-1] for key in keys]

    def shown(at: int) -> str:
        text, value = record["labels"][at]["text"], record["labels"][at]["value"]
        is_table = any(isinstance(v, dict) for v in (value if isinstance(value, list) else [value]))
        if is_table or last[at] == "kind" or keys[at] in ("model.pe", "model.positions", "task"):
            return text
        return f"{last[at] if last.count(last[at]) == 1 else keys[at]} = {text}"

    return ", ".join(map(shown, range(len(keys))))


def methods(records: List[dict]) -> List[str]:
    """The method of each record. Classes of `longreach.bench` that share a name are told apart by
    their code, as in the report."""
    named = [(method(record), record["spec"]["model"]["pe"].get("code")) for record in records]
    codes = {}
    for name, code in named:
        codes.setdefault(name, set()).add(code)
    return [
        f"{name} [model.pe.code = {code}]" if code and len(codes[name]) > 1 else name
        for name, code in named
    ]


def part(record: dict) -> str:
    """What a run is for: `result`, `half` (a result again with half the steps), or `selection` (of
    `[select]`, scored on other rows)."""
    if record["spec"]["eval"].get("rows") == "selection":
        return "selection"
    return "half" if record.get("half_of") else "result"


def test_len(evaluation: dict) -> Union[int, str]:
    """The test length: a number, or `3..7` where each row has a length in this range."""
    longest = evaluation["test_len"]
    return f"{evaluation['from_len']}..{longest}" if "from_len" in evaluation else longest


def metrics(evaluation: dict, task: Optional[dict] = None) -> dict:
    """Value and count by metric. Where there is a loss, perplexity is among them, and bits per byte
    if the record's `task` says how many bytes a token is."""
    found = dict(evaluation["metrics"])
    if "loss_nats" in found:
        loss = found["loss_nats"]["value"]
        value = math.exp(loss) if loss < 709 else math.inf
        found["perplexity"] = {**found["loss_nats"], "value": value}
        if task and task.get("bytes_per_token"):
            value = loss / math.log(2) / task["bytes_per_token"]
            found["bits_per_byte"] = {**found["loss_nats"], "value": value}
    return found


# Keys of `eval` that leave the scores of a row as they are.
ADDING = ["test_lens", "variants", "last_tokens", "attention_distance"]


def evaluations(records: List[dict]) -> List[List[dict]]:
    """The evaluations of each record, each number once: what a later one repeats is left out.
    Encodings of one method under one name are told apart: `yarn [scaling.factor = 4.0]`, where the
    encoding that the runs themselves were evaluated under keeps its name."""
    names = methods(records)
    named: dict = {}
    for record, name in zip(records, names):
        for row in record["evals"]:
            group = named.setdefault(_group(record, name, row), {})
            own = "evaluation_of" not in record
            encoding = _encoding_of(record, row)
            group[encoding] = group.get(encoding, False) or own
    found: List[List[dict]] = [[] for _ in records]
    seen: dict = {}
    # A run before its later evaluations.
    for at in sorted(range(len(records)), key=lambda at: "evaluation_of" in records[at]):
        record = records[at]
        spec = record["spec"]["eval"]
        how = {key: value for key, value in spec.items() if key not in ADDING}
        run_id = record.get("evaluation_of") or record["run_id"]
        run = (record["experiment"], run_id, json.dumps(how, sort_keys=True))
        for row in record["evals"]:
            encoding = _encoding_of(record, row)
            group = named[_group(record, names[at], row)]
            key = (run, row["variant"], test_len(row), encoding)
            known = seen.setdefault(key, set())
            new = {key: value for key, value in row["metrics"].items() if key not in known}
            if not new and (known or row["status"] in known):
                continue
            known.update(new or [row["status"]])
            name = _told(row["variant"], encoding, group)
            found[at].append({**row, "variant": name, "metrics": new})
    return found


def _group(record: dict, name: str, row: dict) -> tuple:
    return (record["experiment"], part(record), name, row["variant"], test_len(row))


def _encoding_of(record: dict, row: dict) -> str:
    return json.dumps(_leaves_of(record["spec"]["eval"], row), sort_keys=True)


def _told(name: str, encoding: str, group: dict) -> str:
    """The name of a variant: with the keys that differ among the encodings of this name, unless it
    is the only one or that of the runs themselves."""
    if len(group) == 1 or group[encoding]:
        return name
    own = json.loads(encoding)
    others = [json.loads(other) for other in group]
    keys = sorted({key for other in others for key in other})
    differ = [key for key in keys if any(other.get(key) != own.get(key) for other in others)]
    values = [f"{key} = {own.get(key, 'not set')}" for key in differ]
    return f"{name} [{', '.join(values)}]"


def _leaves_of(spec: dict, row: dict) -> dict:
    """Dotted keys and values of the encoding of a row, and of its positions."""
    lengths = [str(length) for length in spec["test_lens"]]
    of = next((each for each in spec["variants"] if each["name"] == row["variant"]), {})
    leaves = {}

    def flatten(path, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{path}.{key}" if path else key, inner)
        else:
            leaves[path] = json.dumps(value)

    if str(test_len(row)) in lengths:
        place = lengths.index(str(test_len(row)))
        for above, values in (("", of.get("pe", [])), ("positions", of.get("positions", []))):
            if place < len(values):
                flatten(above, values[place])
    return leaves


def scores(records: List[dict]) -> List[dict]:
    """One dictionary for each score: run, part, variant, test length, metric and value. Perplexity
    and bits per byte are derived from the loss."""
    rows = []
    for record, name, found in zip(records, methods(records), evaluations(records)):
        for evaluation in found:
            for key, metric in metrics(evaluation, record["task"]).items():
                rows.append(
                    {
                        "run_id": record["run_id"],
                        "experiment": record["experiment"],
                        "method": name,
                        "seed": record["seed"],
                        "part": part(record),
                        "train_len": record["task"]["train_len"],
                        "variant": evaluation["variant"],
                        "test_len": test_len(evaluation),
                        "metric": key,
                        "value": metric["value"],
                    }
                )
    return rows
