"""Errors, delays and signals put into system calls by strace."""

import os, shutil, signal, subprocess, time
from box import Skip, Wrong, attack, strace

AFTER = "the same command then gives identical runs"


def injected(box, call, what, samples, allowed=(0, 1, 6), more=()):
    """Puts a fault into occurrence 1, 2, 3, ... of a call of every thread, each time anew."""
    codes = {}
    for when in samples:
        shutil.rmtree(box.path / "runs", ignore_errors=True)
        ended = box.run(*more, prefix=strace(f"inject={call}:{what}:when={when}"), allowed=allowed, timeout=90)
        codes.setdefault(ended.code, []).append(when)
        box.run()
        box.identical()
    return "; ".join(f"exit code {code} at {', '.join(map(str, at))}" for code, at in sorted(codes.items()))


ERRORS = [
    ("write", "EIO", (1, 2, 4, 7, 11, 16)), ("write", "ENOSPC", (1, 3, 6, 10)), ("write", "EDQUOT", (2, 5, 9)), ("write", "EINTR", (1, 2, 5, 9)), ("write", "EAGAIN", (2, 4)),
    ("fsync", "EIO", (1, 2, 3, 6)), ("fsync", "ENOSPC", (1, 4)), ("rename", "EDQUOT", (1, 2, 4)), ("rename", "EXDEV", (1, 3)), ("openat", "EINTR", (40, 60, 80)), ("openat", "EMFILE", (20, 45, 70)),
    ("openat", "EACCES", (30, 50)), ("mkdir", "ENOSPC", (1, 2, 3)), ("flock", "EINTR", (1, 2)), ("flock", "ENOLCK", (1, 2)), ("flock", "EDEADLK", (1, 2)), ("getdents64", "EIO", (1, 2)), ("unlink", "EACCES", (1, 2)),
    ("ftruncate", "EIO", (1, 2)), ("statx", "EIO", (5, 12, 20)), ("statx", "ESTALE", (8, 15)), ("read", "EINTR", (3, 9, 20)), ("read", "EIO", (4, 10, 18)), ("getrandom", "ENOSYS", (1, 2)), ("lseek", "EINVAL", (1, 2)), ("fdatasync", "EIO", (1, 2)), ("link", "EPERM", (1, 2)),
    ("clone3", "EAGAIN", (1, 2, 3)), ("mmap", "ENOMEM", (30, 60)), ("sched_getaffinity", "ENOSYS", (1,)), ("pipe2", "EMFILE", (1, 2)), ("poll", "EINTR", (1, 2)), ("fcntl", "EPERM", (1, 2)),
]


def error(call, name, samples):
    @attack("errors", f"{call} fails with {name}, in call {', '.join(map(str, samples))} of every thread", f"0, 1, 2, 3 or 6, 127 where the loader of the system gives up; {AFTER}", 300)
    def one(box):
        return injected(box, call, f"error={name}", samples, allowed=(0, 1, 2, 3, 6, 127))


for _one in ERRORS:
    error(*_one)


def signals(call, name, codes, samples):
    @attack("signals", f"{name} at system call {call}, in call {', '.join(map(str, samples))} of every thread", f"{', '.join(map(str, codes))}; {AFTER}", 300)
    def one(box):
        return injected(box, call, f"signal={name}", samples, allowed=codes)


# 138 and 129: the first calls of a process come before it listens.
for _name, _codes in (("TERM", (0, 1, 143)), ("INT", (0, 1, 130)), ("USR1", (0, 1, 75, 138)), ("HUP", (0, 1, 143, 129))):
    signals("write", _name, _codes[:3], (1, 2, 4, 8))
    signals("openat", _name, _codes, (5, 30, 60))
for _call, _samples in (("rename", (1, 2, 4)), ("fsync", (1, 3, 5)), ("futex", (1, 3)), ("execve", (1,)), ("clone3", (1, 2)), ("flock", (1, 2)), ("wait4", (1,)), ("read", (5, 20, 40)), ("mmap", (20, 60)), ("exit_group", (1,))):
    signals(_call, "TERM", (0, 1, 143), _samples)
    signals(_call, "KILL", (0, 1, 6, 137), _samples)


@attack("slow disks", "every fsync takes 300 ms, every rename 100 ms", "identical")
def slow(box):
    box.run(prefix=strace("inject=fsync:delay_enter=300000", "inject=rename:delay_exit=100000"), timeout=100)
    box.identical()


@attack("slow disks", "every write takes 20 ms, and a second sweep starts meanwhile", "0 for both; identical")
def slow_writes(box):
    first = box.start("run", "x.toml", "--runs", "runs", "--jobs", "1", prefix=strace("inject=write:delay_enter=20000"))
    box.run(timeout=100)
    box.must(first.wait(100) == 0, f"the first sweep ended with {first.returncode}")
    box.identical()


@attack("slow disks", "TERM while every fsync takes 2 s", "143 or 0 within 30 s; identical afterwards")
def slow_term(box):
    process = box.start("run", "x.toml", "train.steps=150", "--runs", "runs", "--jobs", "1", "--checkpoint-every", "50", prefix=strace("inject=fsync:delay_enter=2000000"))
    time.sleep(3)
    subprocess.run(["pkill", "-TERM", "-P", str(process.pid)])
    code = process.wait(60)
    box.must(code in (0, 143, -15), f"exit code {code}")
    box.mended()
