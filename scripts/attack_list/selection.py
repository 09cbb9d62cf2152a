"""Values that each method chooses, halves of runs, axes of several keys, trainings that end once they have learned."""

import json, os, re, shutil, signal, time
from box import CHOICE, TINY, attack, files_of, kill_often, same

RUN = ("run", "x.toml", "--jobs", "1", "--runs")
FILE = "chosen/selection.jsonl"


def choose(box, *more, runs="runs", allowed=(0,)):
    return box.lr(*RUN, runs, *more, allowed=allowed)


def chosen(box):
    """Finished runs with a choice, and the bytes of its file."""
    box.config(CHOICE)
    choose(box)
    return (box.path / "runs" / FILE).read_bytes()


def refused(box, *cases, more=()):
    box.config(CHOICE)
    for arguments, words in cases:
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        box.refused("check", "x.toml", *more, *arguments, words=words)


@attack("selection", "seeds of the sweep that are seeds of the result: in the file, by an argument for one of the two, twice in a list, none, -1, 2^64", "2 with the place in the file or the argument, the seed, and seeds that would do")
def seeds(box):
    box.config(CHOICE.replace("seeds = [7, 8]", "seeds = [7, 1]"))
    box.refused("check", "x.toml", words=["x.toml:10:13", "select.seeds.1", "seeds = [100, 101]"])
    refused(box, ("seeds=[8]", ["select.seeds.1", "a seed of the result"]), ("select.seeds=[0]", ["command line", "select.seeds.0"]), ("select.seeds=[9, 9]", ["listed twice"]),
            ("select.seeds=[]", ["is empty"]), ("select.seeds=[-1]", ["0 or more"]), ("select.seeds=[18446744073709551616]", ["too large"]))


@attack("selection", "the test set, its seed, the training length, the task are chosen by the score", "2: scores of other rows, lengths and tasks do not compare")
def what_is_scored(box):
    for over in ('"eval.seed" = [1, 2, 3]', '"train.train_len" = [4, 8]', '"task.alphabet" = [4, 8]', '"eval.batch_tokens" = [64, 128]'):
        refused(box, ("select.over={ " + over + " }", ["cannot be chosen"]))


@attack("selection", "`eval.rows = \"selection\"` for the result too", "2: the result would be scored on the rows that it was chosen by")
def same_rows(box):
    refused(box, ('eval.rows="selection"', ["eval.rows", "allowed"]))


@attack("selection", "name, seeds, half_seeds, max_runs, select.steps as what is chosen", "2 with what is allowed and a help")
def no_choice(box):
    for key, value in (("name", '["a", "b"]'), ("half_seeds", "[[0], [1]]"), ("max_runs", "[1, 2]"), ("select.steps", "[0.1, 0.2]")):
        refused(box, (f'select.over={{ "{key}" = {value} }}', ["cannot be chosen", "= allowed", "= help"]))


@attack("selection", "keys of [select.over] that are empty, a blank, with NUL, misspelt, a table, the same twice, within another, of another encoding", "2 with the key and its entry; no control character")
def keys(box):
    for over, words in (('"" = [1, 2]', ["dotted key"]), ('" " = [1, 2]', ["dotted key"]), ('"train.\\u0000lr" = [1, 2]', ["dotted key"]), ('"trian.lr" = [1, 2]', ["did you mean `train`"]),
                        ('"train.lr" = 1e-3', ["must be a list"]), ('"train.lr" = ["a", 1e-3]', ["must be a number"]), ('"train.lr" = []', ["no values"]),
                        ('"train.lr" = [1e-3, 0.001]', ["twice"]), ('"model.pe.base" = [10, 20]', ["model.pe.base", "value 1 of 2"]), ('"model.pe" = [{ kind = "t5" }, { kind = "rope" }]', ["is an axis"])):
        box.config(CHOICE)
        box.refused("check", "x.toml", "select.over={ " + over + " }", words=words, never=("\0",))


@attack("selection", "one value twice in other words: rope, and rope with its default base", "2: two runs are the same, both are named")
def twice(box):
    refused(box, ('select.over={ "model.pe" = [{ kind = "rope" }, { kind = "rope", base = 10000 }] }', ["the same once defaults are filled in", "rope(base=10000)"]), more=("axes={}",))


@attack("selection", "a grid of 10^18 combinations", "2 at once, with the number that is allowed")
def grid(box):
    box.config(CHOICE)
    keys = ("train.lr", "train.grad_clip", "train.final_lr", "model.dropout", "train.adamw.eps", "train.adamw.beta1", "train.adamw.beta2", "train.adamw.weight_decay", "model.embedding_std")
    over = ", ".join(f'"{key}" = [{", ".join(f"{i / 200 + 0.001:.3f}" for i in range(100))}]' for key in keys)
    started = time.monotonic()
    box.refused("check", "x.toml", "select.over={ " + over + " }", words=["max_runs"])
    box.must(time.monotonic() - started < 5, f"{time.monotonic() - started:.0f} s")


@attack("selection", "equal scores: clipping at 1e7, 1e8 and 1e9, which never happens, in both orders, and by a metric that is 0 everywhere", "the first of the list each time, by every metric; the same after the records are lost")
def ties(box):
    box.config(CHOICE)
    for i, (values, by) in enumerate((("[1e7, 1e8, 1e9]", "loss_nats"), ("[1e9, 1e8, 1e7]", "loss_nats"), ("[1e9, 1e8, 1e7]", "exact_match"))):
        more = ("axes={}", f'select.over={{ "train.grad_clip" = {values} }}', f'select.by="{by}"')
        choose(box, *more, runs=f"r{i}")
        first = float(values[1:].split(",")[0])
        made = [record for record in box.records(f"r{i}").values() if "selected" in record]
        box.must(made and all(record["spec"]["train"]["grad_clip"] == first for record in made), f"{values}: {made[0]['spec']['train']['grad_clip']}")


@attack("selection", "one rate of three diverges, for every method", "0; it is never chosen, and `everything tried` shows that it diverged")
def one_diverges(box):
    box.config(CHOICE)
    choose(box, 'select.over={ "train.lr" = [1e9, 1e-3, 1e-2] }')
    made = [record for record in box.records().values() if "selected" in record]
    box.must(made and all(record["spec"]["train"]["lr"] < 1 for record in made), "a diverged rate was chosen")
    box.must("diverged" in (box.path / "runs/chosen/report/report.md").read_text(), "the report does not say that it diverged")


@attack("selection", "all rates diverge for every method", "5; nothing is called chosen, and no result is trained at a rate that diverged", limit=240)
def all_diverge(box):
    box.config(CHOICE)
    choose(box, 'select.over={ "train.lr" = [1e9, 1e8] }', allowed=(5,))
    made = [record for record in box.records().values() if "selected" in record]
    rates = {record["spec"]["train"]["lr"] for record in made}
    box.must(not made, f"{len(made)} runs of the result are trained at {rates}")


@attack("selection", "a choice among encodings with their rates", "the report names the encoding that was chosen, and no edge: encodings have no order")
def chosen_encoding(box):
    box.config(CHOICE)
    choose(box, "axes={}", 'select.over={ "model.pe, train.lr" = [[{ kind = "rope" }, 1e-3], [{ kind = "alibi" }, 1e-2], [{ kind = "nope" }, 1e-3]] }')
    page = (box.path / "runs/chosen/report/report.md").read_text()
    box.must("unset" not in page, "the chosen encoding is called `unset`")


@attack("selection", "rates in no order: the highest in the middle of the list is chosen", "the report marks it as the edge of what was tried")
def edge(box):
    box.config(CHOICE.replace("[1e-4, 1e-3, 3e-2]", "[1e-4, 3e-2, 1e-3]"))
    choose(box)
    made = [record for record in box.records().values() if "selected" in record]
    box.must(made[0]["spec"]["train"]["lr"] == 0.03, "another rate was chosen")
    rows = [line for line in (box.path / "runs/chosen/report/report.md").read_text().splitlines() if "lr = 0.03" in line and line.startswith("|")]
    box.must(rows and "edge" in rows[0], f"no edge: {rows[:1]}")


@attack("selection", "a run with [select] is killed at 30 random instants and continued", "records, weights, logs and selection.jsonl have the bytes of an undisturbed run", limit=400)
def soak(box):
    box.config(CHOICE.replace("steps = 12", "steps = 400"))
    choose(box, runs="calm")
    killed = kill_often(box, [*RUN, "runs", "--checkpoint-every", "20"], 30, 0.5)
    choose(box, "--checkpoint-every", "20")
    same(box, "runs", "calm")
    box.must((box.path / "runs" / FILE).read_bytes() == (box.path / "calm" / FILE).read_bytes(), "another selection.jsonl")
    scratch = [path.name for path in (box.path / "runs").rglob("*") if ".tmp" in path.name]
    box.must(not scratch, f"scratch files: {scratch[:3]}")
    box.lr("verify", "runs", allowed=(0,))
    return f"{killed} kills"


@attack("selection", "three runs side by side in groups (--runs-per-worker 3), killed at 15 random instants", "the choice and the records of runs one by one, byte for byte", limit=400)
def groups(box):
    box.config(CHOICE.replace("steps = 12", "steps = 400"))
    choose(box, runs="calm")
    killed = kill_often(box, [*RUN, "runs", "--runs-per-worker", "3", "--checkpoint-every", "20"], 15, 0.6)
    box.lr(*RUN, "runs", "--runs-per-worker", "3", "--checkpoint-every", "20", allowed=(0,))
    same(box, "runs", "calm")
    box.must((box.path / "runs" / FILE).read_bytes() == (box.path / "calm" / FILE).read_bytes(), "another selection.jsonl")
    return f"{killed} kills"


@attack("selection", "INT, TERM and USR1 while the sweep is at work, then again while the result is", "130, 143, 75; continued, all is as undisturbed", limit=300)
def asked(box):
    box.config(CHOICE.replace("steps = 12", "steps = 6000"))
    choose(box, runs="calm")
    codes = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75)):
        process = box.start(*RUN, "runs")
        before = len(box.records()) if (box.path / "runs").is_dir() else 0
        box.wait_for(lambda: process.poll() is not None or (box.path / "runs").is_dir() and len(list((box.path / "runs").glob("*/*/record.json"))) > before + 2, 60)
        if process.poll() is None:
            os.kill(process.pid, number)
            codes.append(process.wait(30))
            box.must(codes[-1] in (code, 0), f"{codes[-1]} for {number}")
    choose(box)
    same(box, "runs", "calm")
    return f"codes {codes}"


@attack("selection", "two commands over one directory at once, three times", "each run is trained once; as undisturbed")
def two(box):
    box.config(CHOICE.replace("steps = 12", "steps = 200"))
    choose(box, runs="calm")
    for _ in range(3):
        both = [box.start(*RUN, "runs") for _ in range(2)]
        box.must([process.wait(100) for process in both] == [0, 0], "a command failed")
        same(box, "runs", "calm")
        shutil.rmtree(box.path / "runs")


@attack("selection", "selection.jsonl is edited, halved, cut in a line, emptied, doubled, removed; then the same command", "0, nothing is trained, the file has its bytes again")
def restored(box):
    whole = chosen(box)
    path = box.path / "runs" / FILE
    for broken in (whole.replace(b"7", b"8", 3), whole[: len(whole) // 2], whole[:-10], b"", whole + whole, None):
        path.unlink() if broken is None else path.write_bytes(broken)
        said = choose(box)
        box.must(b"0 to do" in said.err, str(said))
        box.must(path.read_bytes() == whole, "not restored")


@attack("selection", "selection.jsonl is a directory, a link to a file elsewhere, a link to nothing, a pipe", "3 or 6 with its name, or it is replaced; nothing elsewhere is written; no wait without end")
def places(box):
    chosen(box)
    path, mine = box.path / "runs" / FILE, box.path / "mine.txt"
    mine.write_text("mine")
    for make in (lambda: path.mkdir(), lambda: path.symlink_to(mine), lambda: path.symlink_to(box.path / "nowhere"), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        for command in (["status", "runs"], ["verify", "runs"], ["report", "runs"]):
            box.lr(*command, allowed=(0, 1, 3), timeout=30)
        ended = choose(box, allowed=(0, 3, 6))
        box.must(ended.code == 0 or b"selection.jsonl" in ended.err, str(ended))
        box.must(mine.read_text() == "mine" and not (box.path / "nowhere").exists(), "written elsewhere")
        path.rmdir() if path.is_dir() else path.unlink()
        path.touch()


@attack("selection", "selection.jsonl is edited, cut, doubled with other numbers; then verify", "1: it is what the choice is a function of")
def verified(box):
    whole = chosen(box)
    path = box.path / "runs" / FILE
    at = whole.index(b'"loss_nats":{"value":') + 22
    for name, broken in (("a digit", whole[:at] + (b"1" if whole[at : at + 1] != b"1" else b"2") + whole[at + 1 :]), ("cut", whole[:-10])):
        path.write_bytes(broken)
        said = box.lr("verify", "runs")
        box.must(said.code == 1, f"{name}: verify ended with {said.code}")


def forge(record):
    """A sweep's record with a better score at the lowest rate, its seal left."""
    if record["spec"]["train"]["lr"] == 1e-4 and record["spec"]["eval"].get("rows") == "selection":
        record["evals"][0]["metrics"]["loss_nats"]["value"] = 0.01
        return True
    return False


@attack("selection", "scores of the lowest rate are edited in the sweep's records, seals left; then the same command", "3, or they are trained again, with a word: no choice by records that were changed")
def forged(box):
    chosen(box)
    for path in (box.path / "runs/chosen").glob("*/record.json"):
        record = json.loads(path.read_text())
        if forge(record):
            path.write_text(json.dumps(record))
    ended = choose(box, allowed=(0, 1, 3))
    trained = [record for record in box.records().values() if "selected" in record and record["spec"]["train"]["lr"] == 1e-4]
    box.must(not trained, f"exit code {ended.code}, {len(trained)} runs were trained at the rate of the edited scores" + ("" if b"seal" in ended.err else ", without a word"))


def submitted(box, content, *words, code=3):
    path = box.path / "by.jsonl"
    path.write_bytes(content)
    box.refused("submit", "x.toml", "--cluster", "parallel", "--out", "out", "--chosen-by", "by.jsonl", words=["by.jsonl", *words], code=code)


@attack("selection", "`submit --chosen-by` a file whose scores were edited, seals left", "3 with the file; nothing is submitted")
def submit_forged(box):
    lines = [json.loads(line) for line in chosen(box).splitlines()]
    [forge(record) for record in lines]
    submitted(box, b"".join(json.dumps(record).encode() + b"\n" for record in lines), "seal")


@attack("selection", "`submit --chosen-by` a file that is empty, text, cut in its last line, of a newer version", "3 with the file and the line: it is damaged, not the sweep unfinished")
def submit_damaged(box):
    whole = chosen(box)
    for content, word in ((whole[:-10], "12"), (whole.replace(b'"schema":1', b'"schema":99', 1), "99"), (b"", "by.jsonl"), (b"mine\n", "1")):
        submitted(box, content, word)


@attack("selection", "`submit --chosen-by` the sweep of other steps, of half of the methods, a directory of the result alone, a path that is not there", "2 or 3; how many methods cannot choose; nothing is written")
def submit_foreign(box):
    whole = chosen(box)
    lines = whole.splitlines(keepends=True)
    submitted(box, b"".join(line for line in lines if b'"alibi"' not in line), "1 of 2 methods", code=2)
    box.refused("submit", "x.toml", "train.steps=14", "--cluster", "parallel", "--out", "out", "--chosen-by", "runs/" + FILE, words=["2 of 2 methods"], code=2)
    box.refused("submit", "x.toml", "--cluster", "parallel", "--out", "out", "--chosen-by", "nowhere", words=["nowhere"], code=3)
    box.must(not (box.path / "out").exists(), "something was written")


@attack("selection", "other seeds for the result, another order of the methods, another title", "nothing of the sweep is trained again; the same values are chosen")
def other_seeds(box):
    whole = chosen(box)
    said = choose(box, "seeds=[5]", "half_seeds=[]")
    box.must(b"comes first" not in said.err, "the sweep ran again")
    box.config(CHOICE.replace('{ kind = "rope" }, { kind = "alibi" }]', '{ kind = "alibi" }, { kind = "rope" }]'))
    said = choose(box)
    box.must(b"comes first" not in said.err and b"0 to do" in said.err, str(said))
    box.must(sorted((box.path / "runs" / FILE).read_bytes().splitlines()) == sorted(whole.splitlines()), "other records of the sweep")


@attack("selection", "all directories of the sweep are gone, selection.jsonl is given as --recorded", "nothing of the sweep is trained again; the result is the same, byte for byte")
def from_file(box):
    whole = chosen(box)
    before = {name: record for name, record in box.records().items() if "selected" in record}
    (box.path / "kept.jsonl").write_bytes(whole)
    shutil.rmtree(box.path / "runs")
    said = choose(box, "--recorded", "kept.jsonl")
    box.must(b"12 of 12 runs count as done" in said.err, str(said))
    after = {name: record for name, record in box.records().items() if "selected" in record}
    box.must(after == before, "another result")


@attack("selection", "results.jsonl and selection.jsonl of `gather` as --recorded", "all runs count; none is called one of another config")
def from_both(box):
    chosen(box)
    box.lr("gather", "runs/chosen", "--out", "g/results.jsonl", allowed=(0,))
    shutil.rmtree(box.path / "runs")
    said = choose(box, "--recorded", "g/results.jsonl", "g/selection.jsonl")
    box.must(b"6 of 6 runs count as done" in said.err, str(said))
    box.must(b"not of this config" not in said.err, "runs of this config are called runs of another")


@attack("selection", "`gather` into a directory where selection.jsonl is a file of the user's, or the sweep of another experiment", "6, 2 or 3 by name, or another file: neither is replaced")
def gathered_over(box):
    chosen(box)
    (box.path / "g").mkdir()
    (box.path / "g/selection.jsonl").write_text("mine")
    box.lr("gather", "runs/chosen", "--out", "g/results.jsonl")
    box.must((box.path / "g/selection.jsonl").read_text() == "mine", "the file was replaced, without a word")


@attack("selection", "two experiments with a choice are gathered into two files of one directory", "the records of both sweeps are there, or the second is refused by name and the first is whole")
def gathered_beside(box):
    chosen(box)
    choose(box, 'name="other"')
    box.lr("gather", "runs/chosen", "--out", "g/chosen.jsonl", allowed=(0,))
    said = box.lr("gather", "runs/other", "--out", "g/other.jsonl", allowed=(0, 2))
    box.must(said.code == 0 or b"g/selection.jsonl" in said.err, str(said))
    text = "".join(path.read_text() for path in (box.path / "g").iterdir())
    there = ("chosen", "other") if said.code == 0 else ("chosen",)
    wrong = [name for name in there if text.count(f'"experiment":"{name}"') < 18]
    box.must(not wrong, f"records are missing of: {', '.join(wrong)}")


@attack("selection", "`gather --out selection.jsonl`, and into a pipe", "2, or all 18 records; the count of what is left out is right")
def gathered_itself(box):
    chosen(box)
    said = box.lr("gather", "runs/chosen", "--out", "g/selection.jsonl", allowed=(0, 2))
    if said.code == 0:
        there = len((box.path / "g/selection.jsonl").read_text().splitlines())
        box.must(there == 18, f"{there} of 18 records are there")
    said = box.lr("gather", "runs/chosen", "--out", "/dev/stdout", allowed=(0,))
    box.must(said.out.count(b'"run_id"') == 18 or b"12" in said.err, "12 records are left out, and 0 are said to be")


@attack("selection", "an experiment with a choice is moved, renamed and evaluated there", "eval, verify, report, status end with 0, the report has the chosen values")
def moved(box):
    chosen(box)
    os.rename(box.path / "runs/chosen", box.path / "elsewhere")
    for command in (["verify", "elsewhere"], ["status", "elsewhere"], ["report", "elsewhere"]):
        box.lr(*command, allowed=(0,))
    box.must("lr = " in (box.path / "elsewhere/report/report.md").read_text(), "the report has no chosen value")


@attack("selection", "the smallest share of the steps, all of them, 1.0001, nan, -1, text", "one step or more; 2 with the range for the others")
def share(box):
    box.config(CHOICE)
    plan = json.loads(box.lr("check", "x.toml", "select.steps=0.001", "--json", allowed=(0,)).out)
    box.must(any(run["part"] == "selection" for run in plan["runs"]), "no sweep")
    choose(box, "select.steps=0.001", runs="r")
    box.must(all(record["train"]["steps"] == 1 for record in box.records("r").values() if record["spec"]["eval"].get("rows")), "not one step")
    refused(box, ("select.steps=1.0001", ["from 0.001 to 1"]), ("select.steps=nan", ["finite"]), ("select.steps=-1", ["from 0.001 to 1"]), ('select.steps="half"', ["number"]), ("select.steps=0.0001", ["from 0.001 to 1"]))


@attack("halves", "half_seeds of 3 steps, of 1, of a seed that the result lacks, given twice, as text", "3 steps: a half of 1 step; 2 with the place for the others")
def halves(box):
    box.config(CHOICE)
    choose(box, "train.steps=3", "train.lr=1e-3", "axes={}", runs="r")
    box.must(sorted(record["train"]["steps"] for record in box.records("r").values()) == [1, 3, 3], "other steps")
    refused(box, (("train.steps=1", "train.warmup_steps=0", "half_seeds=[1]"), ["has no half"]), ("half_seeds=[7]", ["is not a seed of the result"]), ("half_seeds=[1, 1]", ["listed twice"]), ('half_seeds=["1"]', ["half_seeds.0"]))


@attack("halves", "the record of the whole run is removed, its half stays; then the half's", "report and status end with 0 and say what is missing; run makes both again, byte for byte")
def lost_half(box):
    chosen(box)
    before = files_of(box.path / "runs")
    for half in (False, True):
        path = next(path for path in (box.path / "runs/chosen").glob("*/record.json") if "selected" in (record := json.loads(path.read_text())) and bool(record.get("half_of")) == half and record["seed"] == 1)
        path.unlink()
        box.lr("report", "runs", allowed=(0,))
        box.lr("status", "runs", allowed=(0,))
        choose(box)
        box.must(files_of(box.path / "runs") == before, "other bytes")


@attack("halves", "later evaluations of an experiment with halves, then its report", "the column `half to all steps` says what it said before")
def evaluated(box):
    chosen(box)
    column = lambda: [line.split("|")[-2].strip() for line in (box.path / "runs/chosen/report/report.md").read_text().split("half to all steps", 1)[1].split("\n\n")[0].splitlines() if line.startswith("| RoPE") or line.startswith("| ALiBi")]
    box.lr("report", "runs/chosen", allowed=(0,))
    before = column()
    box.must(len(before) == 2, f"column: {before}")
    box.lr("eval", "runs/chosen", "--lengths", "16", allowed=(0,))
    box.lr("report", "runs/chosen", allowed=(0,))
    box.must(column() == before, f"{before} became {column()}")


@attack("halves", "`eval` of an experiment with a choice and halves", "the 4 runs of the result are evaluated, with a word about the others")
def evaluated_runs(box):
    chosen(box)
    said = box.lr("eval", "runs/chosen", "--lengths", "16", allowed=(0,))
    made = len(list((box.path / "runs/chosen").glob("*/evals/*.json")))
    box.must(made == 4, f"{made} evaluations: " + said.out.decode().strip().splitlines()[-1])


@attack("axes", "keys of an axis with nothing between commas, a comma alone, one key twice, a key before the table it is in", "2; the message names the mistake, not the axis as its own double")
def axis_keys(box):
    more = ("half_seeds=[]",)
    refused(box, ('axes={ "model.pe," = [[{ kind = "rope" }]] }', ["dotted key"]), ('axes={ "," = [[1, 2]] }', ["dotted key"]), ('axes={ "train.batch_size,,model.d_ff" = [[4, 8]] }', ["dotted key"]),
            ('axes={ "model.pe.base, model.pe" = [[8, { kind = "rope" }]] }', ["put `model.pe` before"]), ('axes={ "train.batch_size, train.batch_size" = [[4, 8]] }', ["twice"]), more=more)


@attack("axes", "entries with a value too few, too many, a bare value, the same twice, name and seeds among the keys", "2 with the entry, and what one looks like")
def axis_entries(box):
    refused(box, ('axes={ "model.pe, train.batch_size" = [[{ kind = "rope" }]] }', ["a list of 2 values"]), ('axes={ "model.pe, train.batch_size" = [[{ kind = "rope" }, 4, 8]] }', ["a list of 2 values"]),
            ('axes={ "model.pe, train.batch_size" = [{ kind = "rope" }, 4] }', ["a list of 2 values"]), ('axes={ "model.pe, train.batch_size" = [[{ kind = "rope" }, 8], [{ kind = "rope" }, 8]] }', ["twice"]),
            ('axes={ "model.pe, seeds" = [[{ kind = "rope" }, [1]]] }', ["cannot be an axis"]), ('axes={ "model.pe, name" = [[{ kind = "rope" }, "a"]] }', ["cannot be an axis"]))


@attack("axes", "two entries of an axis of two keys that differ in the second alone", "0; two rows of the report, told apart")
def axis_rows(box):
    box.config(TINY.replace("steps = 150", "steps = 6").replace("seeds = [0, 1]", "seeds = [0]") + '[axes]\n"model.pe, train.batch_size" = [[{ kind = "rope" }, 4], [{ kind = "rope" }, 8]]\n')
    choose(box)
    rows = [line for line in (box.path / "runs/tiny/report/report.md").read_text().splitlines() if line.startswith("| RoPE")]
    names = [row.split("|")[1] for row in rows[:2]]
    box.must(len(set(names)) == 2 and "4" in names[0] and "8" in names[1], f"rows: {names}")


@attack("axes", "a key of an axis of two keys is fixed by an argument, and chosen by [select]", "2; the axis is named, and what to do")
def axis_fixed(box):
    pair = 'axes={ "model.pe, train.batch_size" = [[{ kind = "rope" }, 4], [{ kind = "alibi" }, 8]] }'
    refused(box, ((pair, "train.batch_size=2"), ["varies several keys together", "= help"]), ((pair, 'select.over={ "train.batch_size" = [2, 4] }'), ["is an axis", "= help"]))


STOP = TINY.replace("seeds = [0, 1]", "seeds = [0]").replace("steps = 150", "steps = 60")


def stopped(box, stop, *more, runs="runs"):
    box.config(STOP)
    choose(box, f"train.stop={stop}", *more, runs=runs)
    return next(iter(box.records(runs).values()))


@attack("stop", "a stop that is never met, beside the run without one", "the weights and the losses of every step are the same")
def never_met(box):
    box.config(STOP)
    choose(box, runs="plain")
    plain = next(iter(box.records("plain").values()))
    record = stopped(box, '{ metric = "loss_nats", at_most = 1e-9, every = 7 }')
    box.must(record["train"]["steps"] == 60 and record["train"]["loss_curve"] == plain["train"]["loss_curve"], "other losses")
    weights = [next((box.path / runs / "tiny").glob("*/weights.safetensors")).read_bytes() for runs in ("plain", "runs")]
    box.must(tensors(weights[0]) == tensors(weights[1]), "other weights")


def tensors(data):
    import struct
    (size,) = struct.unpack("<Q", data[:8])
    return data[8 + size :]


@attack("stop", "a stop that the first score meets, after one step, and in the last step", "the steps that were taken are in record and log; weights are those of a run that is killed there; verify 0")
def met_at_once(box):
    for every, steps in ((1, 1), (60, 60), (59, 59)):
        record = stopped(box, f'{{ metric = "loss_nats", at_most = 1e9, every = {every} }}', runs=f"r{every}")
        box.must(record["train"]["steps"] == steps and len(record["train"]["loss_curve"]) == steps, f"{record['train']['steps']} steps")
        box.lr("verify", f"r{every}", allowed=(0,))
        box.lr("verify", f"r{every}", "--retrain", allowed=(0,))


@attack("stop", "bounds that no score meets, or every score does: a share of 1.5 and 0, a loss of at least 1, both bounds, none, nan, -1, every 0 and 61 steps", "2 with the bound that would do")
def bounds(box):
    box.config(STOP)
    for stop, word in (('metric = "exact_match", at_least = 1.5, every = 2', "at most 1"), ('metric = "loss_nats", at_least = 1, every = 2', "less is better"), ('metric = "loss_nats", at_least = 1, at_most = 2, every = 2', "two bounds"),
                       ('metric = "loss_nats", every = 2', "no bound"), ('metric = "loss_nats", at_most = nan, every = 2', "finite"), ('metric = "loss_nats", at_most = -1, every = 2', "from 0"),
                       ('metric = "loss_nats", at_most = 1, every = 0', "every"), ('metric = "loss_nats", at_most = 1, every = 61', "from 1 to 60"), ('metric = "perplexity", at_most = 1, every = 2', "exact_match"),
                       ('metric = "exact_match", at_least = 0, every = 2', "at_least")):
        box.refused("check", "x.toml", "train.stop={ " + stop + " }", words=["train.stop", word])


@attack("stop", "a stop under half_seeds and [select]", "each half and each run of the sweep is ended by its own score; a half never has more steps than half of all")
def halves_stop(box):
    box.config(CHOICE)
    choose(box, 'train.stop={ metric = "loss_nats", at_most = 1e9, every = 8 }')
    for record in box.records().values():
        most = 6 if record.get("half_of") or record["spec"]["eval"].get("rows") else 8
        box.must(record["train"]["steps"] == most, f"{record['train']['steps']} steps, not {most}")
    box.lr("verify", "runs", allowed=(0,))


@attack("stop", "a run that ends early is killed at 12 random instants, in front of and behind its last score", "identical to an undisturbed one", limit=300)
def stop_killed(box):
    box.config(STOP.replace("steps = 60", "steps = 4000"))
    stop = 'train.stop={ metric = "loss_nats", at_most = 1.0, every = 50 }'
    choose(box, stop, "train.lr=1e-2", runs="calm")
    killed = kill_often(box, [*RUN, "runs", stop, "train.lr=1e-2", "--checkpoint-every", "30"], 12, 0.5)
    choose(box, stop, "train.lr=1e-2")
    same(box, "runs", "calm")
    return f"{killed} kills, {next(iter(box.records().values()))['train']['steps']} steps"


@attack("stop", "the steps, the last score and the reason of a stopped run are edited in its record and log", "verify 1 each time")
def stop_edited(box):
    stopped(box, '{ metric = "loss_nats", at_most = 1e9, every = 20 }')
    path = next((box.path / "runs/tiny").glob("*/record.json"))
    whole = json.loads(path.read_text())
    for change in (lambda train: train.update(steps=60), lambda train: train["stop_scores"][0].update(value=2e9), lambda train: train["stop_scores"][0].update(step=10), lambda train: train.pop("stop_scores")):
        record = json.loads(json.dumps(whole))
        change(record["train"])
        record.pop("seal")
        path.write_text(json.dumps(record))
        box.lr("verify", "runs", allowed=(1,))
