"""What the attacks of scripts/attacks share: a scratch directory, the program in it, and undisturbed runs to compare with."""

import json, os, pathlib, random, shutil, signal, struct, subprocess, tempfile, time

TINY = """name = "tiny"
seeds = [0, 1]
[task]
kind = "copy"
alphabet = 4
test_rows = 8
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 4
steps = 150
batch_size = 4
lr = 1e-3
[eval]
test_lens = [4, 8]
"""
# One run of six steps.
SHORT = TINY.replace("steps = 150", "steps = 6").replace("seeds = [0, 1]", "seeds = [0]")
# Two methods that each choose among three rates, two results of each, and a half.
CHOICE = """name = "chosen"
seeds = [0, 1]
half_seeds = [1]
[task]
kind = "copy"
alphabet = 4
test_rows = 8
[select]
by = "loss_nats"
seeds = [7, 8]
steps = 0.5
[select.over]
"train.lr" = [1e-4, 1e-3, 3e-2]
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 4
steps = 12
batch_size = 4
warmup_steps = 2
[eval]
test_lens = [4, 8]
[axes]
"model.pe" = [{ kind = "rope" }, { kind = "alibi" }]
"""
FILES = ["record.json", "weights.safetensors", "steps.jsonl"]
ATTACKS = []


class Wrong(Exception):
    """The outcome is not what it must be."""


class Skip(Exception):
    """A tool or permission is missing."""


class Attack:
    def __init__(self, group, what, must, limit, do):
        self.group, self.what, self.must, self.limit, self.do = group, what, must, limit, do


def attack(group, what, must, limit=120):
    def add(do):
        ATTACKS.append(Attack(group, what, must, limit, do))
        return do
    return add


class Ended:
    """A command that has ended."""

    def __init__(self, code, out, err):
        self.code = 128 - code if code < 0 else code
        self.out, self.err = out, err

    def __str__(self):
        words = self.err.decode(errors="replace").strip().splitlines()
        said = [line for line in words if "rror" in line or "panick" in line or "help" in line] or words
        return f"exit code {self.code}: {plain(' '.join(said))[:300]}"


class Box:
    """A scratch directory, with a config of two tiny runs in it."""

    reference = {}

    def __init__(self, path, binary):
        self.path, self.binary, self.started = path, binary, []
        self.config()

    def config(self, text=TINY, name="x.toml"):
        (self.path / name).write_text(text)

    def start(self, *arguments, prefix=(), env=None, more_env=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=None, **more):
        env = dict(os.environ if env is None else env, **(more_env or {}))
        command = [*prefix, self.binary, *arguments]
        process = subprocess.Popen(command, cwd=cwd or self.path, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, **more)
        self.started.append(process)
        return process

    def lr(self, *arguments, timeout=60, allowed=None, **more):
        """Runs the program. A panic or code 70 or an abort is always wrong."""
        process = self.start(*arguments, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise Wrong(f"`{' '.join(map(str, arguments))}` did not end within {timeout} s")
        ended = Ended(process.returncode, out or b"", err or b"")
        if b"panicked" in ended.err or ended.code in (70, 101, 134, 139):
            raise Wrong(f"`{' '.join(map(str, arguments))[:80]}`: {ended}")
        if allowed is not None and ended.code not in allowed:
            raise Wrong(f"`{' '.join(map(str, arguments))[:80]}`: {ended}, allowed {allowed}")
        return ended

    def run(self, *more, allowed=(0,), runs="runs", **options):
        return self.lr("run", "x.toml", "--runs", runs, "--jobs", "1", "--checkpoint-every", "50", *more, allowed=allowed, **options)

    def trained(self):
        """Finished runs, copied from the undisturbed ones."""
        shutil.copytree(self.original, self.path / "runs", symlinks=True)
        return sorted(path.parent for path in (self.path / "runs/tiny").glob("*/record.json"))

    def identical(self, runs="runs"):
        """Wrong, unless the runs have the bytes of the undisturbed ones."""
        found = files_of(self.path / runs)
        for name, content in self.reference.items():
            if name not in found:
                raise Wrong(f"{name} is missing")
            if found[name] != content:
                raise Wrong(f"{name} differs from an undisturbed run")

    def mended(self):
        """The same command again, without the fault; then everything is as if there had been none."""
        self.run()
        self.identical()
        self.lr("verify", "runs", allowed=(0,))

    def refused(self, *arguments, words, code=2, never=()):
        """Runs the program, which must end with the code and name all of the words and none of the others."""
        ended = self.lr(*arguments, allowed=(code,))
        said = (ended.err + ended.out).decode(errors="replace")
        for word in words:
            self.must(word in said, f"{word!r} is not in: {plain(said)[:400]}")
        for word in never:
            self.must(word not in said, f"{word!r} is in: {plain(said)[:400]}")
        return ended

    def records(self, runs="runs"):
        """The records below a directory, by run id."""
        return {path.parent.name: json.loads(path.read_bytes()) for path in sorted((self.path / runs).glob("*/*/record.json"))}

    def must(self, condition, text):
        if not condition:
            raise Wrong(text)

    def wait_for(self, what, seconds=20):
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise Wrong("nothing happened that could be attacked")
            time.sleep(0.005)

    def kill(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def end(self):
        for process in self.started:
            if process.poll() is None:
                self.kill(process)
            else:
                # Workers that a killed sweep left are in its session.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass


def files_of(runs):
    found = {}
    for path in pathlib.Path(runs).rglob("*"):
        if path.name in FILES and path.is_file() and "checkpoints" not in path.parts:
            found[str(path.relative_to(runs))] = path.read_bytes()
    return found


def tensor(path, name):
    """A tensor of f32 in a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    begin, end = header[name]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin : 8 + size + end])


def kill_often(box, command, times, longest=0.6):
    """Starts a command and kills it and its workers after random times. Returns how often it was at work."""
    chance, killed = random.Random(7), 0
    for _ in range(times):
        process = box.start(*command)
        time.sleep(chance.uniform(0.03, longest))
        if process.poll() is None:
            killed += 1
        box.kill(process)
    return killed


def same(box, runs, calm):
    found, wanted = files_of(box.path / runs), files_of(box.path / calm)
    box.must(set(found) == set(wanted), f"runs that differ: {sorted(set(found) ^ set(wanted))[:3]}")
    differing = [name for name in wanted if found[name] != wanted[name]]
    box.must(not differing, f"differ from undisturbed ones: {differing[:3]}")


def reference(binary):
    """The files of undisturbed runs."""
    keep = tempfile.mkdtemp(prefix="attack-calm-")
    box = Box(pathlib.Path(keep), binary)
    box.run()
    Box.original = box.path / "runs"
    import atexit
    atexit.register(shutil.rmtree, keep, ignore_errors=True)
    return files_of(box.path / "runs")


def tool(name):
    if not shutil.which(name):
        raise Skip(f"no {name} here")
    return name


def strace(*injections, trace=None):
    calls = trace or ",".join(one.split("=")[1].split(":")[0] for one in injections)
    prefix = [tool("strace"), "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    for one in injections:
        prefix += ["-e", one]
    return prefix


def unshare(*flags):
    prefix = [tool("unshare"), *flags]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        raise Skip(f"`unshare {' '.join(flags)}` is not permitted here")
    return prefix


def plain(text):
    text = "".join(c if c.isprintable() else " " for c in str(text))
    return text.replace("|", "\\|").replace("<", "&lt;")
