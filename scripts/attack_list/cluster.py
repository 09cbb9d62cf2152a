"""Submitted sweeps: manifests, tasks, events and leases that somebody changed."""

import json, os, shutil, time
from box import Skip, attack


def submitted(box):
    out = box.path / "sweep"
    shutil.rmtree(out, ignore_errors=True)
    box.lr("submit", "x.toml", "--cluster", "parallel", "--out", "sweep", allowed=(0,))
    return out


def worker(box, index, *more, **options):
    return box.lr("worker", "--manifest", "sweep/manifest.jsonl", "--task", str(index), *more, **options)


def events(out):
    return sorted(path for path in out.rglob("*.jsonl") if "events" in str(path))


@attack("clusters", "a task's index is past the end, negative, text, 2^64, empty", "2 or 3 with a message")
def index(box):
    submitted(box)
    for value in ("2", "-1", "x", "18446744073709551616", "", "1e3", "\u0661"):
        worker(box, value, allowed=(2, 3))


@attack("clusters", "every task twice at the same time", "each run is trained once; identical")
def doubled(box):
    submitted(box)
    started = [box.start("worker", "--manifest", "sweep/manifest.jsonl", "--task", str(i)) for i in (0, 1, 0, 1)]
    codes = [process.wait(90) for process in started]
    box.must(all(code in (0, 75) for code in codes), f"exit codes {codes}")
    box.identical("sweep/runs")
    return f"exit codes {codes}"


@attack("clusters", "a line of the manifest names another run, has another spec, is cut, is repeated, is `{}`", "the task refuses it (2 or 3), status shows it or refuses the file")
def manifest(box):
    def other_id(line):
        return line.replace('"run_id":"', '"run_id":"ffff', 1)

    def other_spec(line):
        return line.replace('"steps":150', '"steps":151')

    for change in (other_id, other_spec, lambda line: line[:200], lambda line: "{}", lambda line: "\0" * 200, lambda line: line + "\n" + line):
        out = submitted(box)
        path = out / "manifest.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([change(lines[0]), *lines[1:]]) + "\n")
        worker(box, 0, allowed=(1, 2, 3) if len(lines[0]) != len(change(lines[0])) // 2 else (0, 1, 2, 3))
        box.lr("status", "sweep", allowed=(0, 1, 2, 3))


@attack("clusters", "submit.json names another program, a newer version, an unknown key, 2^70 tasks", "2 or 3 with a message, or a note")
def submission(box):
    for key, value in (("program_blake3", "0" * 64), ("version", "99.0.0"), ("from_the_future", 1), ("runs", 2**70), ("format", 99)):
        out = submitted(box)
        path = out / "submit.json"
        document = json.loads(path.read_text())
        document[key] = value
        path.write_text(json.dumps(document))
        worker(box, 0, allowed=(0, 1, 2, 3))
        box.lr("status", "sweep", allowed=(0, 1, 2, 3))


@attack("clusters", "events are cut in the middle of a line, hold text, NUL, 10 MB on a line, dates of the future", "status and logs read the rest")
def torn(box):
    out = submitted(box)
    worker(box, 0, allowed=(0,))
    found = events(out)
    if not found:
        raise Skip("no events were found")
    whole = found[0].read_bytes()
    future = whole.replace(b":17", b":97")
    for content in (whole[:-20], b"text\n" + whole, whole + b"\0" * 4096, whole + b"x" * 10_000_000, future, b""):
        found[0].write_bytes(content)
        box.lr("status", "sweep", allowed=(0,))
        box.lr("status", "sweep", "--json", allowed=(0,))
        box.lr("logs", "sweep", allowed=(0, 1, 3))


@attack("clusters", "a task is killed with KILL and its run taken up by the same task again", "identical")
def taken_up(box):
    submitted(box)
    process = box.start("worker", "--manifest", "sweep/manifest.jsonl", "--task", "0")
    box.wait_for(lambda: list((box.path / "sweep").rglob("steps.jsonl")) or process.poll() is not None)
    box.kill(process)
    time.sleep(0.3)
    for i in (0, 1):
        worker(box, i, allowed=(0,), timeout=100)
    box.identical("sweep/runs")


@attack("clusters", "the lease of a run is of the future, of 1970, text, a folder, a link", "the task waits or takes it, and never trains beside another; identical")
def leases(box):
    out = submitted(box)
    process = box.start("worker", "--manifest", "sweep/manifest.jsonl", "--task", "0")
    lease = lambda: [path for path in (out / "runs").rglob("*") if "lease" in path.name]
    box.wait_for(lambda: lease() or process.poll() is not None)
    found = lease()
    box.kill(process)
    if not found:
        raise Skip("the task holds no file named as a lease")
    for path in found:
        if path.is_file():
            path.write_text("nonsense")
            os.utime(path, (time.time() - 10**9,) * 2)
    for i in (0, 1):
        worker(box, i, allowed=(0,), timeout=100)
    box.identical("sweep/runs")


@attack("clusters", "the directory of a sweep is read only, is moved, has no runs directory", "6, or it works from the new place")
def moved(box):
    out = submitted(box)
    os.rename(out, box.path / "moved")
    box.lr("status", "moved", allowed=(0,))
    box.lr("worker", "--manifest", "moved/manifest.jsonl", "--task", "0", allowed=(0, 2, 3, 6))
    shutil.rmtree(box.path / "moved/runs", ignore_errors=True)
    box.lr("worker", "--manifest", "moved/manifest.jsonl", "--task", "1", allowed=(0, 2, 3, 6))
    box.lr("status", "moved", allowed=(0,))


@attack("clusters", "the manifest is a pipe, a folder, a device, a link", "2 or 3 at once")
def places(box):
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        path = submitted(box) / "manifest.jsonl"
        path.unlink()
        make(path)
        worker(box, 0, allowed=(2, 3), timeout=20)
        box.lr("status", "sweep", allowed=(0, 2, 3), timeout=20)
