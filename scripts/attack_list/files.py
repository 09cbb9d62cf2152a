"""Files that change while they are read, links, mounts, names, and the program itself being replaced."""

import os, pathlib, shutil, signal, subprocess, threading, time
from box import TINY, Skip, Wrong, attack, tool

LONG = ("train.steps=100000", "--checkpoint-every", "1000")


def meanwhile(box, change, *commands, times=12, allowed=(0,)):
    """Runs commands again and again while `change` is called in a loop."""
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            change()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(times):
            for command in commands:
                box.lr(*command, allowed=allowed)
    finally:
        stop.set()
        thread.join()


@attack("partial reads", "a config is written anew, half by half, while check reads it", "0 or 2 every time")
def config(box):
    def change():
        with open(box.path / "x.toml", "w") as file:
            file.write(TINY[:200])
            file.flush()
            file.write(TINY[200:])
    meanwhile(box, change, ["check", "x.toml"], times=40, allowed=(0, 2))


@attack("partial reads", "record.json is cut and written anew while report, status, verify and gather read it", "0, 1 or 3 every time; the final record is read")
def record(box):
    path = box.trained()[0] / "record.json"
    whole = path.read_bytes()

    def change():
        path.write_bytes(whole[:300])
        path.write_bytes(whole)
    meanwhile(box, change, ["report", "runs"], ["status", "runs"], ["verify", "runs"], ["gather", "runs", "--out", "r.jsonl"], times=8, allowed=(0, 1, 3))
    path.write_bytes(whole)
    box.lr("verify", "runs", allowed=(0,))


TEXT = TINY.replace('kind = "copy"\nalphabet = 4\ntest_rows = 8', 'kind = "text"\nfiles = ["c.txt"]\neval_tokens = 64')


@attack("partial reads", "a corpus grows by a line all the time while it is checked and trained on", "0, 1, 2 or 3; no panic")
def growing(box):
    box.config(TEXT)
    (box.path / "c.txt").write_text("some text\n" * 300)

    def change():
        with open(box.path / "c.txt", "a") as file:
            file.write("more\n")
        time.sleep(0.01)
    meanwhile(box, change, ["check", "x.toml"], ["run", "x.toml", "--runs", "r", "--jobs", "1"], times=4, allowed=(0, 1, 2, 3))


@attack("partial reads", "a corpus is cut to nothing and written anew all the time", "0, 1, 2 or 3; no panic")
def shrinking(box):
    box.config(TEXT)
    text = "some text\n" * 3000

    def change():
        (box.path / "c.txt").write_text(text)
        time.sleep(0.01)
        (box.path / "c.txt").write_text("")
    change()
    meanwhile(box, change, ["check", "x.toml"], ["run", "x.toml", "--runs", "r", "--jobs", "1"], times=4, allowed=(0, 1, 2, 3))


@attack("partial reads", "the log of a running training is emptied", "the run does not end as recorded and sound; the same command fixes it")
def log(box):
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", "train.steps=20000", "seeds=[0]")
    logs = lambda: [path for path in (box.path / "runs").glob("tiny/*/steps.jsonl") if path.stat().st_size > 0]
    box.wait_for(lambda: logs() or process.poll() is not None)
    os.truncate(logs()[0], 0)
    code = process.wait(100)
    checked = box.lr("verify", "runs")
    box.must(code != 0 or checked.code == 1, f"run ended with {code} and verify with {checked.code}")
    return f"run ended with {code}, verify with {checked.code}"


def removed(box, what, again=True):
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", *LONG)
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/steps.jsonl")) or process.poll() is not None)
    what()
    time.sleep(0.5)
    box.kill(process) if process.poll() is None and not again else None
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        code = process.wait(30)
    except subprocess.TimeoutExpired:
        raise Wrong("TERM did not end the sweep within 30 s")
    box.must(code not in (70, 101, 134), f"exit code {code}: {process.stderr.read().decode()[:300]}")
    box.mended()
    return f"the sweep ended with {code}"


@attack("partial reads", "the directory of a running run is removed, then TERM", "ends by itself; the same command gives identical runs")
def run_removed(box):
    return removed(box, lambda: [shutil.rmtree(path, ignore_errors=True) for path in (box.path / "runs/tiny").glob("*")])


@attack("partial reads", "the directory of all runs is renamed during a sweep, then TERM", "ends by itself; the same command gives identical runs")
def runs_renamed(box):
    return removed(box, lambda: os.rename(box.path / "runs", box.path / "moved"))


@attack("partial reads", "the directory of all runs is replaced by a link to another place during a sweep, then TERM", "ends by itself; no file but a run's is written there")
def runs_linked(box):
    (box.path / "elsewhere").mkdir()
    (box.path / "elsewhere/mine.txt").write_text("mine")

    def change():
        os.rename(box.path / "runs", box.path / "moved")
        os.symlink(box.path / "elsewhere", box.path / "runs")
    said = removed(box, change)
    box.must((box.path / "elsewhere/mine.txt").read_text() == "mine", "a file was overwritten")
    return said


@attack("links", "a record is a hard link to a file elsewhere, and its run gets other labels", "the file elsewhere keeps its bytes")
def hard_link(box):
    run = box.trained()[0]
    outside = box.path / "outside.json"
    os.link(run / "record.json", outside)
    before = outside.read_bytes()
    box.config(TINY + '[axes]\n"model.pe" = [{ label = "another name", kind = "rope" }]\n')
    box.run(allowed=(0, 2))
    (run / "record.json").write_bytes(before[:100])
    box.config()
    outside.unlink()
    os.link(run / "weights.safetensors", outside)
    before = outside.read_bytes()
    (run / "record.json").unlink()
    box.run()
    box.must(outside.read_bytes() == before, "a file outside was changed through a hard link")


@attack("links", "two runs share one lock file by a hard link, with two workers", "no deadlock; identical")
def shared_lock(box):
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", *LONG)
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/steps.jsonl")) or process.poll() is not None)
    box.kill(process)
    time.sleep(0.3)
    shutil.rmtree(box.path / "runs")
    box.trained()
    runs = sorted((box.path / "runs/tiny").glob("*/job.json"))
    for path in runs:
        (path.parent / "record.json").unlink()
        (path.parent / "lock").unlink()
    (runs[0].parent / "lock").touch()
    os.link(runs[0].parent / "lock", runs[1].parent / "lock")
    box.lr("run", "x.toml", "--runs", "runs", "--jobs", "2", allowed=(0,), timeout=90)
    box.identical()


@attack("links", "a run's directory and a link to elsewhere change places all the time during sweeps", "nothing is written elsewhere")
def race(box):
    run = box.trained()[0]
    aside, outside = run.with_name("aside"), box.path / "outside"
    outside.mkdir()
    (run / "record.json").unlink()

    def change():
        try:
            os.rename(run, aside)
            os.symlink(outside, run)
            time.sleep(0.002)
            run.unlink()
            os.rename(aside, run)
            time.sleep(0.004)
        except OSError:
            time.sleep(0.01)
    meanwhile(box, change, ["run", "x.toml", "--runs", "runs", "--jobs", "1"], times=6, allowed=(0, 1, 3, 4, 6))
    found = [path.name for path in outside.iterdir()]
    box.must("weights.safetensors" not in found and "record.json" not in found, f"written elsewhere: {found}")
    return f"elsewhere: {', '.join(found) or 'nothing'}"


@attack("links", "a config, a corpus and a directory of runs by 39 links, and by a loop of links", "works; 2, 3 or 6 for the loop")
def chain(box):
    previous = box.path / "x.toml"
    for i in range(39):
        link = box.path / f"l{i}.toml"
        link.symlink_to(previous)
        previous = link
    box.lr("check", previous.name, allowed=(0, 2))
    (box.path / "loop.toml").symlink_to("loop.toml")
    (box.path / "loop").symlink_to("loop")
    box.lr("check", "loop.toml", allowed=(2, 3))
    box.run(runs="loop", allowed=(6,))
    box.lr("status", "loop", allowed=(3,))


@attack("names", "two methods whose labels differ in case only, on a file system that tells case apart", "two methods in the report, no file lost")
def case(box):
    box.config(TINY + '[axes]\n"model.pe" = [{ label = "A", kind = "rope" }, { label = "a", kind = "nope" }]\n')
    ended = box.run(allowed=(0, 2))
    if ended.code == 0:
        names = [path.name for path in (box.path / "runs/tiny/report").rglob("*")]
        box.must(len({name.lower() for name in names}) == len(names), f"names that differ in case only: {names}")


@attack("names", "experiments and labels in composed and decomposed Unicode", "2 with a message, or both are kept apart")
def unicode(box):
    for form in ("\u00e9", "e\u0301"):
        box.config(TINY.replace('"tiny"', f'"caf{form}"'))
        box.run(allowed=(0, 2))
    box.config(TINY + '[axes]\n"model.pe" = [{ label = "\u00e9", kind = "rope" }, { label = "e\u0301", kind = "nope" }]\n')
    box.run(allowed=(0, 2))


@attack("names", "runs directories named -x, --help, a blank, and with //, /./ and /../ in them", "works")
def places(box):
    for place in ("./-x", "./--help", " ", "a//b/./c/../d/"):
        box.lr("run", "x.toml", f"--runs={place}", "--jobs", "1", allowed=(0,))
        box.identical(place)
        box.lr("status", "--", place, allowed=(0,))


@attack("names", "a directory of runs with 3,000 other files and folders beside the experiment", "status, report and verify end with 0")
def crowd(box):
    box.trained()
    for i in range(1500):
        (box.path / f"runs/f{i}").write_text("x")
        (box.path / f"runs/tiny/d{i}").mkdir()
    for command in ("status", "verify", "report"):
        box.lr(command, "runs/tiny", allowed=(0, 1, 2))


@attack("versions", "the program's file is replaced by another while its sweep runs", "ends by itself; the same command gives identical runs")
def replaced(box):
    return program(box, lambda copy: (shutil.copy("/bin/true", copy.with_suffix(".new")), os.rename(copy.with_suffix(".new"), copy)))


@attack("versions", "the program's file is removed while its sweep runs", "ends by itself; the same command gives identical runs")
def deleted(box):
    return program(box, lambda copy: copy.unlink())


def program(box, change):
    real, copy = box.binary, box.path / "copy"
    shutil.copy(real, copy)
    box.binary = str(copy)
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", "--checkpoint-every", "10")
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/steps.jsonl")) or process.poll() is not None)
    change(copy)
    code = process.wait(60)
    box.must(code in (0, 1, 6), f"exit code {code}: {process.stderr.read().decode()[:300]}")
    box.binary = real
    box.mended()
    return f"the sweep ended with {code}"


@attack("versions", "two copies of the program share a directory, a sweep each", "each run is trained once; identical")
def copies(box):
    real, copy = box.binary, box.path / "copy"
    shutil.copy(real, copy)
    box.binary = str(copy)
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "2")
    box.binary = real
    box.run()
    box.must(process.wait(60) == 0, f"the other ended with {process.returncode}")
    box.identical()
