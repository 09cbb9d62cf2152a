"""Clock, locale, environment, namespaces, quotas, standard streams."""

import os, pathlib, resource, shutil, signal, subprocess, time
from box import Skip, Wrong, attack, tool, unshare

YEARS = 365 * 86400


@attack("clock", "every file of finished runs is dated 60 years ahead, then 1 s after 1970", "nothing is trained again; status, verify and report read them")
def dates(box):
    box.trained()
    for when in (time.time() + 60 * YEARS, 1):
        for path in (box.path / "runs").rglob("*"):
            os.utime(path, (when, when))
        said = box.run()
        box.must(b"0 to do" in said.err, str(said))
        for command in ("status", "verify", "report"):
            box.lr(command, "runs", allowed=(0,))
    box.identical()


@attack("clock", "a killed run's checkpoints and lock are dated 60 years ahead", "resumed; identical")
def future_checkpoints(box):
    killed(box)
    for path in (box.path / "runs").rglob("*"):
        os.utime(path, (time.time() + 60 * YEARS,) * 2)
    box.mended()


def killed(box):
    """A sweep killed in the middle of a training."""
    process = box.start("run", "x.toml", "train.steps=150", "--runs", "runs", "--jobs", "1", "--checkpoint-every", "50")
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/checkpoints/*")) or process.poll() is not None)
    box.kill(process)
    time.sleep(0.3)


@attack("clock", "lock files that say `since` 1970, 2200, -1, and 10^30", "status shows the run and ends with 0")
def odd_locks(box):
    run = box.trained()[0]
    (run / "record.json").unlink()
    for since in ("0", "7258118400", "-1", "1" + "0" * 30, "nan"):
        (run / "lock").write_text(f"process 1 on {os.uname().nodename}\nsince {since}\n")
        holder = subprocess.Popen([tool("flock"), str(run / "lock"), "sleep", "20"])
        time.sleep(0.1)
        try:
            box.lr("status", "runs", allowed=(0,))
            box.lr("status", "runs", "--json", allowed=(0,))
        finally:
            holder.kill()


@attack("clock", "monotonic and boot clocks that start 10 years later (time namespace)", "identical")
def time_namespace(box):
    box.run(prefix=unshare("--time", "--boottime", str(10 * YEARS), "--monotonic", str(10 * YEARS)))
    box.identical()


@attack("clock", "TZ is a device, a directory, 10,000 letters, control characters", "identical")
def zones(box):
    for zone in (":/dev/zero", ":/", "A" * 10_000, "\x1b[2J"):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        box.run(more_env={"TZ": zone})
        box.identical()


@attack("locale", "LC_ALL of Turkish, Arabic, none that exists, and bytes that are not text", "identical; the same text from list and check")
def locales(box):
    texts = set()
    for locale in (b"C", b"tr_TR.UTF-8", b"ar_EG.UTF-8", b"xx_XX", b"\xff\xfe"):
        env = {"LC_ALL": os.fsdecode(locale)}
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        texts.add(box.lr("check", "x.toml", more_env=env, allowed=(0,)).out)
        box.run(more_env=env)
        box.identical()
    box.must(len(texts) == 1, "check prints other text under another locale")


@attack("environment", "no HOME and no CARGO_HOME, for a task whose default corpus lies there", "2 or 3 with a message, or it works")
def homeless(box):
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "CARGO_HOME")}
    text = 'name = "t"\n[task]\nkind = "text"\n[model]\nd_model = 16\nn_layers = 1\nn_heads = 2\npe = { kind = "rope" }\n[train]\ntrain_len = 16\nsteps = 1\nbatch_size = 2\n[eval]\ntest_lens = [16]\n'
    box.config(text)
    box.lr("check", "x.toml", env=env, allowed=(0, 2, 3))
    box.lr("check", "x.toml", env=dict(env, HOME="/nowhere", CARGO_HOME=""), allowed=(2, 3))


@attack("environment", "an empty environment, also without PATH", "identical")
def empty(box):
    box.run(env={})
    box.identical()


@attack("environment", "every variable that is set holds bytes that are not text", "identical")
def odd_values(box):
    names = ["HOME", "TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG", "USER", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE", "SLURM_CPUS_PER_TASK", "SLURM_ARRAY_TASK_ID", "CARGO_HOME"]
    box.run(env={name: os.fsdecode(b"\xff\x1b[2J") for name in names})
    box.identical()


@attack("environment", "1 MB of variables", "identical")
def large_environment(box):
    box.run(more_env={f"JUNK{i}": "x" * 10_000 for i in range(100)})
    box.identical()


@attack("environment", "COLUMNS and LINES of 0, -1, 10^20, text", "check, status and list print something and end with 0")
def columns(box):
    box.trained()
    for width in ("0", "-1", "1" + "0" * 20, "wide", ""):
        for command in (["check", "x.toml"], ["status", "runs"], ["list", "encodings"], ["report", "runs"]):
            said = box.lr(*command, more_env={"COLUMNS": width, "LINES": width}, allowed=(0,))
            box.must(said.out.strip() or said.err.strip(), "nothing was printed")


@attack("environment", "variables of the allocator with odd values", "identical")
def allocator(box):
    for name, value in (("MIMALLOC_PURGE_DELAY", "-1"), ("MIMALLOC_PURGE_DELAY", "soon"), ("MIMALLOC_ARENA_RESERVE", "1"), ("MIMALLOC_LARGE_OS_PAGES", "1"), ("MIMALLOC_RESERVE_HUGE_OS_PAGES", "4")):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        box.run(more_env={name: value})
        box.identical()


@attack("environment", "variables of Slurm, as in a job of somebody else, around `run`", "identical")
def in_a_job(box):
    box.run(more_env={"SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "99", "SLURM_CPUS_PER_TASK": "0", "SLURM_JOB_END_TIME": "1", "SLURM_RESTART_COUNT": "-1"})
    box.identical()


@attack("environment", "TMPDIR does not exist, is a file, is not writable", "identical")
def no_tmp(box):
    for place in ("/nowhere", "/etc/passwd", "/proc"):
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        box.run(more_env={"TMPDIR": place})
        box.identical()


@attack("namespaces", "no network (--net)", "identical")
def no_network(box):
    box.run(prefix=unshare("--net"))
    box.identical()


@attack("namespaces", "/proc is empty", "1 with a word about /proc, or it works; identical afterwards")
def no_proc(box):
    box.run(prefix=[*unshare("--mount"), "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"'], allowed=(0, 1, 6))
    box.mended()


@attack("namespaces", "/sys and /dev are empty", "identical")
def no_sys(box):
    box.run(prefix=[*unshare("--mount"), "sh", "-c", 'mount -t tmpfs none /sys && mount -t tmpfs none /dev && exec "$0" "$@"'])
    box.identical()


@attack("namespaces", "process ids of a container, without its own /proc; killed, and resumed outside", "identical")
def container(box):
    prefix = unshare("--pid", "--fork", "--kill-child")
    process = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", "--checkpoint-every", "50", prefix=prefix)
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/checkpoints/*")) or process.poll() is not None)
    box.kill(process)
    box.mended()


@attack("namespaces", "another host name while a run is held, and status outside", "status ends with 0 and calls nothing dead that is alive")
def other_host(box):
    process = box.start("run", "x.toml", "train.steps=100000", "--runs", "runs", "--jobs", "1", prefix=[*unshare("--uts"), "sh", "-c", 'hostname elsewhere && exec "$0" "$@"'])
    box.wait_for(lambda: list((box.path / "runs").glob("tiny/*/steps.jsonl")) or process.poll() is not None)
    said = box.lr("status", "runs", allowed=(0,))
    box.must(process.poll() is not None or b"running" in said.out, f"status says {said.out.decode()}")
    box.kill(process)


@attack("namespaces", "another user without rights over recorded runs (--user)", "status, verify and report elsewhere end with 0")
def other_user(box):
    box.trained()
    prefix = unshare("--user")
    os.chmod(box.path, 0o755)
    box.lr("status", "runs", prefix=prefix, allowed=(0,))
    box.lr("verify", "runs", prefix=prefix, allowed=(0,))


@attack("namespaces", "runs are a read-only bind mount", "status, verify and a finished run read them; a new run ends with 6")
def read_only(box):
    box.trained()
    prefix = [*unshare("--mount"), "sh", "-c", f'mount --bind "{box.path}/runs" "{box.path}/runs" && mount -o remount,ro,bind "{box.path}/runs" && exec "$0" "$@"']
    box.lr("status", "runs", prefix=prefix, allowed=(0,))
    box.lr("verify", "runs", prefix=prefix, allowed=(0,))
    box.run(prefix=prefix, allowed=(0, 6))
    box.run("train.steps=7", prefix=prefix, allowed=(6,))
    box.identical()


@attack("namespaces", "one directory of runs mounted at two places, a sweep in each", "each run is trained once; identical")
def two_mounts(box):
    for name in ("runs", "other"):
        (box.path / name).mkdir()
    prefix = [*unshare("--mount"), "sh", "-c", f'mount --bind "{box.path}/runs" "{box.path}/other" && exec "$0" "$@"']
    first = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1")
    box.run(runs="other", prefix=prefix)
    box.must(first.wait(60) == 0, f"the first sweep ended with {first.returncode}")
    box.identical()


@attack("namespaces", "runs on an overlay file system", "identical")
def overlay(box):
    for name in ("low", "up", "work", "runs"):
        (box.path / name).mkdir()
    options = f"lowerdir={box.path}/low,upperdir={box.path}/up,workdir={box.path}/work"
    prefix = [*unshare("--mount"), "sh", "-c", f'mount -t overlay overlay -o "{options}" "{box.path}/runs" || exit 99; exec "$0" "$@"']
    ended = box.run(prefix=prefix, allowed=(0, 99))
    if ended.code == 99:
        raise Skip("no overlay here")
    box.identical("up")


def limited(which, soft):
    return lambda: resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))


@attack("quotas", "4, 5, 6, 7, 9, 11, 14, 17 open files", "0, 1, 2 or 6, with the words of the system; afterwards identical", 180)
def descriptors(box):
    for most in (4, 5, 6, 7, 9, 11, 14, 17):
        box.run(preexec_fn=limited(resource.RLIMIT_NOFILE, most), allowed=(0, 1, 2, 6))
    box.mended()


@attack("quotas", "files of at most 0, 1, 100, 2,000, 30,000 bytes", "0 or 6; afterwards identical")
def file_sizes(box):
    for most in (0, 1, 100, 2_000, 30_000):
        box.run(preexec_fn=limited(resource.RLIMIT_FSIZE, most), allowed=(0, 6))
    box.mended()


@attack("quotas", "a stack of 1 MiB; no locked memory, no queued signals, no core", "0 or 6; afterwards identical")
def small_limits(box):
    for which, soft in ((resource.RLIMIT_STACK, 1 << 20), (resource.RLIMIT_MEMLOCK, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_SIGPENDING, 0)):
        box.run(preexec_fn=limited(which, soft), allowed=(0, 6))
    box.mended()


@attack("quotas", "the lowest priority and the idle class of the disk", "identical")
def idle(box):
    box.run(prefix=[tool("nice"), "-n", "19", tool("ionice"), "-c", "3"])
    box.identical()


@attack("quotas", "a file system of 64 KiB to 1 MiB that other files fill while the sweep runs", "0 or 6; afterwards identical")
def filling(box):
    prefix = [*unshare("--mount"), "sh", "-c"]
    for size in (64, 256, 1024):
        script = f'mkdir -p "{box.path}/small" && mount -t tmpfs -o size={size}k none "{box.path}/small" && (dd if=/dev/zero of="{box.path}/small/junk" bs=1k 2>/dev/null &) ; exec "$0" "$@"'
        box.run(runs="small", prefix=[*prefix, script], allowed=(6,))
    box.mended()


@attack("streams", "standard input, output and error are all closed", "identical: nothing is printed into a file of a run")
def all_closed(box):
    script = 'exec 0<&- 1>&- 2>&-; exec "$0" "$@"'
    box.run(prefix=["sh", "-c", script], allowed=(0, 6))
    box.mended()


@attack("streams", "standard input is a directory, a full device, a pipe without a writer, closed", "identical")
def inputs(box):
    os.mkfifo(box.path / "pipe")
    places = [os.open("/", os.O_RDONLY), os.open("/dev/full", os.O_RDWR), os.open(box.path / "pipe", os.O_RDWR)]
    for place in places:
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        box.run(stdin=place)
        box.identical()
        os.close(place)


@attack("streams", "every reading command prints to /dev/full", "ends by itself, with no panic")
def full(box):
    box.trained()
    with open("/dev/full", "w") as device:
        for command in READERS:
            box.lr(*command, stdout=device, allowed=(0, 6))


READERS = (["status", "runs"], ["status", "runs", "--json"], ["verify", "runs"], ["report", "runs"], ["check", "x.toml"], ["check", "x.toml", "--json"], ["config", "show", "x.toml"], ["list", "encodings"], ["list", "tasks", "--json"], ["inspect", "rope"], ["gather", "runs", "--out", "-"], ["compare", "runs", "runs"], ["completions", "bash"], ["--help"], ["export-rows", "copy"])


@attack("streams", "every reading command prints into a pipe that is closed at once", "ends by itself, with no panic")
def broken(box):
    box.trained()
    for command in READERS:
        reading, writing = os.pipe()
        os.close(reading)
        box.lr(*command, stdout=writing, allowed=None)
        os.close(writing)


@attack("streams", "standard error is a pipe that is closed at once, for a whole sweep", "0; identical")
def broken_error(box):
    reading, writing = os.pipe()
    os.close(reading)
    box.run(stderr=writing)
    os.close(writing)
    box.identical()


@attack("streams", "all signals are blocked and ignored in the parent", "identical; TERM still ends a sweep, or is ignored as inherited, with KILL as the last resort")
def blocked(box):
    def silence():
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    box.run(preexec_fn=silence)
    box.identical()


@attack("streams", "the working directory is deleted before the start", "2, 3 or 6 with a message, or it works by absolute paths")
def no_directory(box):
    gone = box.path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$0" "$@"'
    for command in (["status"], ["run", "x.toml"], ["check", "x.toml"], ["list", "encodings"], ["report", "runs"]):
        gone.mkdir(exist_ok=True)
        box.lr(*command, cwd=gone, prefix=["sh", "-c", script], allowed=(0, 2, 3, 6))
    gone.mkdir(exist_ok=True)
    box.lr("run", str(box.path / "x.toml"), "--runs", str(box.path / "runs"), cwd=gone, prefix=["sh", "-c", script], allowed=(0,))
