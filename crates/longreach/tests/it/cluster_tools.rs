//! Sweeps of an engine beside the tools of a cluster: what `squeue`, `scontrol`, `sacctmgr` and
//! `nvidia-smi` answer, played by scripts. Nothing needs them, and none can stop an answer.

use crate::cluster::{Sweep, bare, spoil};
use crate::common::{Scratch, TINY, exits, fails, has, lacks, says, shows, stderr, stdout, words};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Tools by name, each with the body of its script.
fn tools(sweep: &Sweep, scripts: &[(&str, &str)]) -> std::path::PathBuf {
    let place = sweep.scratch.directory.path().join("bin");
    std::fs::create_dir_all(&place).unwrap();
    for (name, body) in scripts {
        let path = place.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    place
}

fn status(sweep: &Sweep, tools: &Path, arguments: &[&str]) -> String {
    let mut program = bare();
    program.env("PATH", tools).arg("status").arg(&sweep.out);
    let output = program.args(arguments).output().unwrap();
    exits(&output, 0);
    stdout(&output)
}

#[test]
fn status_adds_the_queue_and_does_not_depend_on_it() {
    let sweep = Sweep::with(TINY);
    exits(&sweep.submit("slurm", &["--runs-per-task", "1"]), 0);
    let without = sweep.status();
    lacks(&without, "queue");
    let here = sweep.out.canonicalize().unwrap();
    let here = here.display();
    let lines = format!(
        "echo '12|0|RUNNING|None|n1|{here}'; echo '12|[2-3%2]|PENDING|Resources||{here}'; \
         echo '13|N/A|PENDING|Dependency||{here}'; echo '9|1|RUNNING|None|n2|/elsewhere'"
    );
    let with = status(&sweep, &tools(&sweep, &[("squeue", &lines)]), &[]);
    let added = with.strip_prefix(without.trim_end()).unwrap();
    let expected = "
Slurm's queue: task 0 of job 12 running on n1
Slurm's queue: tasks 2-3%2 of job 12 pending (Resources)
Slurm's queue: job 13 pending (Dependency)
";
    assert_eq!(added, expected);
    // No engine is asked for the states themselves.
    let json = status(&sweep, Path::new("/nowhere"), &["--json"]);
    for body in [lines.as_str(), "exit 1", "exec /bin/sleep 60"] {
        let place = tools(&sweep, &[("squeue", body)]);
        assert_eq!(status(&sweep, &place, &["--json"]), json, "{body}");
    }
    for body in ["exit 1", "exec /bin/sleep 600"] {
        let started = Instant::now();
        let text = status(&sweep, &tools(&sweep, &[("squeue", body)]), &[]);
        assert!(text.starts_with(without.trim_end()), "{text}");
        has(&text, "Slurm's queue: no answer");
        assert!(started.elapsed() < Duration::from_secs(300));
    }
}

#[test]
fn one_of_concurrent_submissions_is_written() {
    let sweep = Sweep::with(TINY);
    let start = |engine: &str| {
        let mut program = bare();
        program.arg("submit").arg(&sweep.scratch.config);
        program.args(["--cluster", engine, "--runs-per-task", "1", "--out"]);
        program.arg(&sweep.out).stderr(Stdio::piped());
        program.stdout(Stdio::null()).spawn().unwrap()
    };
    let all: Vec<_> = ["slurm", "parallel", "hq", "slurm"].map(start).into();
    let ended: Vec<Output> = all
        .into_iter()
        .map(|program| program.wait_with_output().unwrap())
        .collect();
    let is_done = |output: &&Output| output.status.success();
    let printed: Vec<String> = ended.iter().map(stderr).collect();
    assert_eq!(ended.iter().filter(is_done).count(), 1, "{printed:?}");
    for output in ended.iter().filter(|output| !is_done(output)) {
        assert!(
            matches!(output.status.code(), Some(2 | 4)),
            "{}",
            stderr(output)
        );
    }
    assert!(!sweep.out.join("lease").exists());
    for task in ["0", "1", "2", "3"] {
        exits(&sweep.worker(&["--task", task]).output().unwrap(), 0);
    }
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
    // Nothing is left to watch.
    let mut watch = bare();
    let watch = watch.args(["status", "--watch"]).arg(&sweep.out);
    shows(&watch.output().unwrap(), "4 done");
    // What a killed one on another machine left behind does not block for ever.
    let lease = r#"{"nonce":"f00d","host":"node9","process":12,"ticks":5,"kernel":"another boot",
        "since":1,"interval_ms":200,"beat":3}"#;
    std::fs::write(sweep.out.join("lease"), lease).unwrap();
    let mut again = bare();
    again.args(["submit", "--again"]).arg(&sweep.out);
    exits(&again.output().unwrap(), 0);
}

#[test]
fn what_ended_probes_left_does_not_disturb_later_ones() {
    let scratch = Scratch::with(TINY);
    let place = scratch.directory.path();
    let probe = |arguments: &[&str]| {
        let mut program = bare();
        program.arg("probe").arg(place).args(arguments);
        program.output().unwrap()
    };
    let left = || {
        let entries = std::fs::read_dir(place).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".probe.")).count()
    };
    // Nobody else comes: what it wrote goes with it.
    exits(&probe(&["--of", "2", "--wait", "0"]), 6);
    assert_eq!(left(), 0);
    // Those of killed ones go after an hour.
    let [old, young] = ["by-hand", "12.0"].map(|session| {
        let session = place.join(format!(".probe.{session}"));
        std::fs::create_dir(&session).unwrap();
        std::fs::write(session.join("here.node9.abcd"), "1").unwrap();
        session
    });
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    std::fs::File::open(&old)
        .unwrap()
        .set_modified(then)
        .unwrap();
    exits(&probe(&[]), 0);
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_probe_writes_to_no_directory_of_a_wrong_name() {
    let scratch = Scratch::with(TINY);
    let place = scratch.directory.path().join("shraed");
    let mut program = bare();
    let refused = program.arg("probe").arg(&place).output().unwrap();
    fails(&refused, 2, "shraed is not a directory");
    assert!(!place.exists());
}

#[test]
fn an_array_fits_into_the_limits_of_the_cluster_and_of_the_account() {
    let config = "echo 'MaxArraySize            = 1001'; echo 'MaxJobCount             = 10000'";
    let accounts = "case $* in *associations*) echo 'a|3|'; echo 'b|400|';; \
                    *qos*) echo 'normal||'; echo 'short|2|';; esac";
    let submit = |sweep: &Sweep, tools: &Path, arguments: &[&str]| -> Output {
        let mut program = bare();
        program.env("PATH", tools).env("USER", "somebody");
        program.arg("submit").arg(&sweep.scratch.config);
        program
            .args(["--cluster", "slurm", "--out"])
            .arg(&sweep.out);
        program.args(arguments).output().unwrap()
    };
    for (scontrol, sacctmgr, options, allowed) in [
        (
            config,
            accounts,
            &["-A", "a"][..],
            "2 tasks (MaxSubmitJobs = 3 of account a, with",
        ),
        (
            config,
            accounts,
            &["-A", "b", "--qos=short"],
            "1 tasks (MaxSubmitJobs = 2 of qos short",
        ),
        (
            "echo 'MaxArraySize = 3'",
            "exit 1",
            &[],
            "3 tasks (MaxArraySize = 3 of this cluster",
        ),
        (
            "echo 'MaxArraySize = 9'; echo 'MaxJobCount = 5'",
            "exit 1",
            &[],
            "3 tasks (MaxJobCount = 5 of this cluster, with the report)",
        ),
    ] {
        let sweep = Sweep::with(TINY);
        let place = tools(&sweep, &[("scontrol", scontrol), ("sacctmgr", sacctmgr)]);
        let given = [&["--runs-per-task", "1", "--"], options].concat();
        fails(&submit(&sweep, &place, &given), 2, allowed);
        assert!(!sweep.out.exists());
        let auto = [&["--"], options].concat();
        exits(&submit(&sweep, &place, &auto), 0);
    }
    // The largest account is large enough, and which of them Slurm takes is not known.
    let sweep = Sweep::with(TINY);
    let place = tools(&sweep, &[("scontrol", config), ("sacctmgr", accounts)]);
    exits(&submit(&sweep, &place, &["--runs-per-task", "1"]), 0);
}

#[test]
fn a_gpu_that_others_fill_is_refused_before_a_run_starts() {
    let sweep = Sweep::with(TINY);
    let arguments = words("--gpus-per-task 1 --runs-per-gpu 2 --runs-per-task 4");
    exits(&sweep.submit("slurm", &arguments), 0);
    let task = |body: &str| -> Command {
        let mut worker = sweep.worker(&["--task", "0"]);
        worker.env("CUDA_VISIBLE_DEVICES", "3");
        worker.env("SLURMD_NODENAME", "n7");
        worker.env("PATH", tools(&sweep, &[("nvidia-smi", body)]));
        worker
    };
    let full = "case $* in *--id=3*memory.free*) echo '700, 81559';; \
                *--id=3*compute-apps*) echo '4242, /usr/bin/python, 80000';; *) exit 1;; esac";
    let refused = task(full).output().unwrap();
    exits(&refused, 7);
    let printed = stderr(&refused);
    for part in [
        "GPU 3 on n7 has 700 of 81559 MiB free, and 2 runs at a time need ",
        "processes on it: 4242 (python, 80000 MiB)",
        "--exclude",
    ] {
        has(&printed, part);
    }
    has(&sweep.counts(), "4 planned");
    // One that is too small for what was submitted: waiting would not help.
    let refused = task("echo '700, 900'").output().unwrap();
    fails(&refused, 7, "--runs-per-gpu");
    // A driver that does not say is not a reason to refuse.
    let unknown = task("echo '[N/A], [N/A]'").output().unwrap();
    exits(&unknown, 0);
    says(&unknown, "free memory of GPU 3 was not checked");
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
}

#[test]
fn a_gpu_that_fills_up_later_ends_the_task_and_no_run_fails() {
    let sweep = Sweep::with(TINY);
    let arguments = ["--gpus-per-task", "1", "--runs-per-task", "4"];
    exits(&sweep.submit("slurm", &arguments), 0);
    // The third look, that before the second run, finds it full.
    let count = sweep.scratch.directory.path().join("looks");
    let count = count.display();
    let body = format!(
        "echo x >> {count}; n=0; while read -r _; do n=$((n+1)); done < {count}; \
         if [ $n -le 2 ]; then echo '80000, 81559'; else echo '10, 81559'; fi"
    );
    let place = tools(&sweep, &[("nvidia-smi", &body)]);
    let mut worker = sweep.worker(&["--task", "0"]);
    worker.env("CUDA_VISIBLE_DEVICES", "0").env("PATH", &place);
    fails(&worker.output().unwrap(), 7, "10 of 81559 MiB free");
    has(&sweep.counts(), "1 done");
    lacks(&sweep.counts(), "failed");
    // The task is not over: started where there is room, it does the rest.
    let mut worker = sweep.worker(&["--task", "0"]);
    worker.env("CUDA_VISIBLE_DEVICES", "0");
    exits(&worker.env("PATH", "/nowhere").output().unwrap(), 0);
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
}

/// A script of a sweep, as a person starts it beside some tools.
fn bash(sweep: &Sweep, script: &str, tools: &Path) -> Output {
    let mut bash = Command::new("bash");
    bash.arg(script).current_dir(&sweep.out);
    bash.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
    bash.env_remove("SLURM_JOB_ID").output().unwrap()
}

#[test]
fn scripts_end_with_what_became_of_the_runs() {
    let sweep = Sweep::with(TINY);
    exits(&sweep.submit("parallel", &[]), 0);
    let none = bash(&sweep, "parallel.sh", &tools(&sweep, &[]));
    fails(&none, 2, "GNU parallel is not on the PATH");
    let ends = |body: &str, script: &str, code: i32, counts: &str| {
        let ended = bash(&sweep, script, &tools(&sweep, &[("parallel", body)]));
        exits(&ended, code);
        shows(&ended, counts);
    };
    // As GNU parallel: the last word is the command of a task.
    let each = "for last; do :; done; while read -r task; do \
                eval \"$(echo \"$last\" | sed \"s/{}/$task/g\") < /dev/null\"; done";
    ends("cat > /dev/null", "parallel.sh", 75, "4 planned");
    let run = &sweep.runs()[0];
    spoil(run);
    ends(each, "parallel.sh", 1, "3 done, 1 failed");
    assert!(sweep.out.join("runs/tiny/report/report.md").exists());
    std::fs::remove_file(run.join("checkpoints")).unwrap();
    exits(&sweep.again(&[]), 0);
    ends(each, "again/1.sh", 0, "4 done");
    let mut submit = bare();
    submit.args(["submit", "--go", "--again"]).arg(&sweep.out);
    let place = tools(&sweep, &[("parallel", "cat > /dev/null")]);
    submit.env("PATH", format!("{}:/usr/bin:/bin", place.display()));
    std::fs::remove_dir_all(run).unwrap();
    exits(&submit.output().unwrap(), 75);
}

#[test]
fn a_server_of_hyperqueue_that_does_not_start_ends_its_script() {
    let sweep = Sweep::with(TINY);
    exits(&sweep.submit("hq", &[]), 0);
    let none = bash(&sweep, "hq.sh", &tools(&sweep, &[]));
    fails(&none, 6, "the server of HyperQueue did not start");
    says(&none, "not found");
    let refused = tools(&sweep, &[("hq", "echo 'no port is free' >&2; exit 1")]);
    let refused = bash(&sweep, "hq.sh", &refused);
    fails(&refused, 6, "no port is free");
    // One that answers and starts no task.
    let body = "case \"$1 $2\" in 'server start') exec /bin/sleep 3;; esac";
    let idle = bash(&sweep, "hq.sh", &tools(&sweep, &[("hq", body)]));
    exits(&idle, 75);
    shows(&idle, "4 planned");
    // One that refuses the tasks: the same script would be refused again.
    let body = "case \"$1 $2\" in 'server start') exec /bin/sleep 3;; submit*) exit 2;; esac";
    let refusing = bash(&sweep, "hq.sh", &tools(&sweep, &[("hq", body)]));
    fails(&refusing, 1, "HyperQueue started no task");
}
