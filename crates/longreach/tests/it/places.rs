//! Links, devices, pipes and folders that cannot be read, in the places of files and folders.
#![cfg(unix)]

use crate::common::{
    ONE, Scratch, TINY, command, exits, fails, has, lacks, longreach, one, says, shows, stderr,
    stdout,
};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gather(scratch: &Scratch, out: &Path) -> Output {
    let arguments = ["--out", out.to_str().unwrap()];
    command("gather", &scratch.runs(), &arguments)
}

/// What stands where a file or directory is to be written is an argument that cannot work: not a
/// full disk, and no command that continues.
#[test]
fn an_output_that_something_else_has_the_name_of_is_a_wrong_argument() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let root = scratch.directory.path();
    std::fs::write(root.join("file"), "mine").unwrap();
    std::fs::write(root.join("x.jsonl"), "mine").unwrap();
    let record = Path::new("runs").join(&scratch.records()[0].0);
    let run = record.parent().unwrap().to_str().unwrap();
    let logits = ["--format", "logits"];
    for (command, out, said) in [
        (&["gather", "runs"][..], "runs", "give the path of a file"),
        (&["gather", "runs"], "file/x.jsonl", "a file is where"),
        (&["gather", "runs"], "x.jsonl", "holds something other"),
        (&["report", "runs"], "file", "a file is where"),
        (&["inspect", "rope"], "file", "a file is where"),
        (
            &["export", run, logits[0], logits[1]],
            "runs",
            "give the path of a file",
        ),
        (
            &["export", run, logits[0], logits[1]],
            "file/x",
            "a file is where",
        ),
        (
            &["submit", "x.toml", "--cluster", "slurm"],
            "file",
            "a file is where",
        ),
    ] {
        let mut program = longreach();
        program.current_dir(root).args(command).args(["--out", out]);
        let output = program.output().unwrap();
        exits(&output, 2);
        let text = stderr(&output);
        has(&text, said);
        has(&text, out.split('/').next().unwrap());
        lacks(&text, "continues");
    }
    assert_eq!(std::fs::read(root.join("file")).unwrap(), b"mine");
    // As is a name that the system does not allow.
    let mut program = longreach();
    program
        .current_dir(root)
        .args(["run", "x.toml", "--runs", &"n".repeat(300)]);
    let output = program.output().unwrap();
    fails(&output, 2, "nnn");
    says(&output, "give a shorter name");
}

#[test]
fn gather_writes_into_pipes_and_devices_and_replaces_none() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let place = |name: &str| scratch.directory.path().join(name);
    let file = place("records.jsonl");
    exits(&gather(&scratch, &file), 0);
    let records = std::fs::read(&file).unwrap();

    let pipe = place("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    exits(&gather(&scratch, &pipe), 0);
    assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(reader.join().unwrap(), records);

    // The records, and nothing after them.
    let output = gather(&scratch, Path::new("/dev/stdout"));
    exits(&output, 0);
    assert_eq!(output.stdout, records);
    says(&output, "1 record read");

    // Only root can make a device; this one is /dev/null under another name.
    let device = place("device");
    let mut mknod = Command::new("mknod");
    if mknod
        .arg(&device)
        .args(["c", "1", "3"])
        .output()
        .is_ok_and(|made| made.status.success())
    {
        exits(&gather(&scratch, &device), 0);
        assert!(
            device
                .symlink_metadata()
                .unwrap()
                .file_type()
                .is_char_device()
        );
    }

    let link = place("link.jsonl");
    symlink(&file, &link).unwrap();
    let output = gather(&scratch, &link);
    fails(&output, 2, "it is a link, and only files are replaced");
    says(&output, "move it, or give another path");
    assert_eq!(std::fs::read_link(&link).unwrap(), file);
    assert_eq!(std::fs::read(&file).unwrap(), records);
    assert!(stdout(&output).is_empty(), "{}", stdout(&output));
}

#[test]
fn links_out_of_a_runs_directory_are_not_followed() {
    let (scratch, run) = one();
    let experiment = scratch.runs().join("tiny");
    let outside = scratch.directory.path().join("outside");
    let is_empty = || std::fs::read_dir(&outside).unwrap().next().is_none();
    std::fs::create_dir(&outside).unwrap();
    // The report: the sweep prints its table, and writes nothing.
    std::fs::remove_dir_all(experiment.join("report")).unwrap();
    symlink(&outside, experiment.join("report")).unwrap();
    for output in [
        scratch.longreach("run", &ONE),
        command("report", &experiment, &[]),
    ] {
        fails(&output, 3, "report is a link");
        shows(&output, "exact_match by test length");
    }
    assert!(is_empty());
    // Whoever names the link means it.
    let named = experiment.join("report");
    let ended = command("report", &experiment, &["--out", named.to_str().unwrap()]);
    exits(&ended, 0);
    std::fs::remove_dir_all(&outside).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_file(named).unwrap();
    // Later evaluations.
    symlink(&outside, run.join("evals")).unwrap();
    let output = command("eval", &run, &["--lengths", "6"]);
    fails(&output, 3, "evals is a link");
    assert!(is_empty());
    std::fs::remove_file(run.join("evals")).unwrap();
    // The run itself, recorded.
    let elsewhere = scratch.directory.path().join("elsewhere");
    std::fs::rename(&run, &elsewhere).unwrap();
    symlink(&elsewhere, &run).unwrap();
    for output in [
        scratch.longreach("run", &ONE),
        command("eval", &run, &["--lengths", "6"]),
    ] {
        fails(&output, 3, "is a link");
    }
    assert!(!elsewhere.join("evals").exists());
}

#[test]
fn an_experiment_without_records_says_how_many_runs_it_has() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[]);
    for (path, _) in scratch.records() {
        std::fs::remove_file(scratch.runs().join(path)).unwrap();
    }
    let output = command("report", &scratch.runs().join("tiny"), &[]);
    fails(&output, 3, "tiny: none of its 4 runs is recorded");
    says(&output, "`longreach run` with its config finishes them");
}

#[test]
fn runs_behind_links_are_named_wherever_they_are_left_out() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[]);
    let place = scratch.directory.path();
    let run = scratch.first_run();
    let (far, experiment) = (place.join("far"), scratch.runs().join("tiny"));
    std::fs::rename(&run, &far).unwrap();
    symlink(&far, &run).unwrap();
    let answers = |name: &str, place: &Path, code: i32, said: &str| {
        let output = command(name, place, &[]);
        exits(&output, code);
        let all = stdout(&output) + &stderr(&output);
        assert!(
            all.contains("a link, which is not followed"),
            "{name}: {all}"
        );
        assert!(all.contains(said), "{name}: {all}");
    };
    answers("report", &experiment, 0, "1 left out");
    answers(
        "verify",
        &experiment,
        1,
        "4 runs verified: 1 with something wrong",
    );
    let status = command("status", &experiment, &["--json"]);
    exits(&status, 0);
    shows(&status, "a link, which is not followed");
    // The whole experiment.
    let moved = place.join("moved");
    std::fs::rename(&experiment, &moved).unwrap();
    symlink(&moved, &experiment).unwrap();
    answers("report", scratch.runs().as_path(), 3, "tiny");
    answers("verify", scratch.runs().as_path(), 1, "tiny");
}

#[test]
fn a_folder_that_cannot_be_read_hides_no_other() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::with(TINY);
    scratch.trains(&["seeds=[0]"]);
    let first = scratch.first_run();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(scratch.directory.path(), 0o755);
    mode(&first, 0o000);
    // Root reads everything, so it becomes nobody; that user needs a program it can reach.
    let program = scratch.directory.path().join("longreach");
    std::fs::copy(crate::common::program(), &program).unwrap();
    let is_root = std::fs::read_dir(&first).is_ok();
    for (name, code) in [("status", 0), ("verify", 1)] {
        let mut command = Command::new(&program);
        command.arg(name).arg(scratch.runs());
        if is_root {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        exits(&output, code);
        let said = stdout(&output);
        assert!(
            said.contains("Permission denied") || said.contains("1 unreadable"),
            "{said}"
        );
        has(&said, "2 runs");
    }
    mode(&first, 0o755);
}

#[test]
fn no_command_prints_what_a_terminal_obeys() {
    let (scratch, run) = one();
    let hostile = "\u{1b}[2J\u{7}\u{9b}1m\u{202e}";
    let here = scratch.directory.path().join(format!("runs{hostile}"));
    let named = here.join("tiny").join(hostile);
    std::fs::create_dir_all(here.join("tiny")).unwrap();
    std::fs::rename(&run, &named).unwrap();
    let clean = |output: &Output, what: &str| {
        let said = stdout(output) + &stderr(output);
        let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!said.contains(obeyed), "{what}: {said:?}");
        assert!(!said.is_empty(), "{what}");
    };
    let out = here.join("all.jsonl");
    let all = || {
        for (name, place, more) in [
            ("status", &here, &[][..]),
            ("status", &here, &["--json"]),
            ("verify", &here, &[]),
            ("eval", &named, &["--lengths", "6"]),
            ("eval", &named, &["--lengths", "6", "--json"]),
            ("report", &here, &[]),
            ("gather", &here, &["--out", out.to_str().unwrap()]),
            ("compare", &here, &[here.to_str().unwrap()]),
            ("check", &named, &[]),
            ("inspect", &named, &[]),
        ] {
            clean(&command(name, place, more), name);
        }
    };
    all();
    // The same in the files.
    for name in ["job.json", "record.json"] {
        let path = named.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let escaped = serde_json::to_string(hostile).unwrap();
        let text = text
            .replace("\"tiny\"", &escaped)
            .replace("\"text\": \"rope\"", &format!("\"text\": {escaped}"));
        std::fs::write(path, text).unwrap();
    }
    std::fs::write(named.join("error.txt"), hostile).unwrap();
    all();
    std::fs::remove_file(named.join("record.json")).unwrap();
    all();
}

#[test]
fn reports_into_one_directory_follow_each_other_and_name_what_is_not_theirs() {
    let (scratch, _run) = one();
    let experiment = scratch.runs().join("tiny");
    let out = experiment.join("report");
    // Another report holds the directory.
    let held = std::fs::File::open(&out).unwrap();
    held.lock().unwrap();
    std::fs::remove_file(out.join("report.md")).unwrap();
    let mut program = longreach();
    let mut waiting = program.arg("report").arg(&experiment).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(waiting.try_wait().unwrap().is_none(), "it did not wait");
    assert!(!out.join("report.md").exists());
    drop(held);
    assert!(waiting.wait().unwrap().success());
    assert!(out.join("report.md").exists());
    std::fs::write(out.join("old-figure.svg"), "<svg/>").unwrap();
    let output = command("report", &experiment, &[]);
    exits(&output, 0);
    let part = "also holds 1 file of an older report, or yours: old-figure.svg";
    says(&output, part);
}

/// Ends a command that hangs, so that the test fails and does not hang with it.
fn within(seconds: &str, arguments: &[&std::ffi::OsStr], at: &Path) -> Output {
    let mut program = Command::new("timeout");
    program.arg("-s").arg("KILL").arg(seconds);
    program.arg(crate::common::program()).args(arguments);
    program.current_dir(at).output().unwrap()
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "mkfifo {}", path.display());
}

#[test]
fn pipes_that_nobody_writes_to_make_no_command_wait() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let root = scratch.directory.path();
    let record = scratch.runs().join(&scratch.records()[0].0);
    let run = record.parent().unwrap();
    let call = |arguments: &[&str]| {
        let arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        within("300", &arguments, root)
    };
    let run = run.to_str().unwrap();
    // A config, and a variant in a file.
    pipe(&root.join("pipe.toml"));
    for command in ["check", "run"] {
        fails(&call(&[command, "pipe.toml"]), 2, "not a regular file");
    }
    exits(&call(&["eval", run, "--variant", "pipe.toml"]), 2);
    // A config that a shell pipes in is read.
    let mut shell = Command::new("bash");
    shell.current_dir(root).arg("-c");
    let longreach = crate::common::program();
    let piped = shell.arg(format!("'{}' check <(cat x.toml)", longreach.display()));
    exits(&piped.output().unwrap(), 0);
    // The files of a run without a record, which `status` looks into.
    for name in ["record.json", "lock", "steps.jsonl"] {
        let path = Path::new(run).join(name);
        std::fs::remove_file(&path).unwrap();
        pipe(&path);
    }
    exits(&call(&["status", "runs"]), 0);
    exits(&call(&["verify", "runs"]), 1);
    let refused = call(&[&["run", "x.toml"], &ONE[..]].concat());
    fails(&refused, 6, "not a file");
}

#[test]
fn names_that_are_not_text_are_refused_or_shown_as_far_as_they_are() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let root = scratch.directory.path();
    let odd = OsStr::from_bytes(b"odd\xff");
    std::fs::create_dir(root.join(odd)).unwrap();
    let config = Path::new(odd).join("x.toml");
    std::fs::copy(root.join("x.toml"), root.join(&config)).unwrap();
    let call = |arguments: &[&OsStr]| within("300", arguments, root);
    for command in ["check", "run"] {
        let refused = call(&[command.as_ref(), config.as_os_str()]);
        fails(&refused, 2, "not UTF-8");
    }
    let submit = ["submit", "x.toml", "--cluster", "slurm", "--out"].map(OsStr::new);
    exits(&call(&[&submit[..], &[odd]].concat()), 2);
    // A directory of runs may have any name.
    let runs = Path::new(odd).join("runs");
    std::fs::rename(scratch.runs(), root.join(&runs)).unwrap();
    let listed = call(&["status".as_ref(), runs.as_os_str(), "--json".as_ref()]);
    exits(&listed, 0);
    let lines: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(
        lines[0]["directory"]
            .as_str()
            .unwrap()
            .starts_with("odd\u{fffd}")
    );
}

/// A file that has nothing to give and never ends: a plain one by its type.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_never_ends_is_refused() {
    let endless = Path::new("/proc/kmsg");
    if std::fs::File::open(endless).is_err() {
        // Only the administrator may open it.
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let text = "name = \"x\"\ntask = { kind = \"text\", files = [\"/proc/kmsg\"] }\nmodel = { d_model \
                = 16, n_layers = 1, n_heads = 2, pe = { kind = \"rope\" } }\ntrain = { train_len = 8, \
                steps = 2 }\neval = { test_lens = [8] }\n";
    std::fs::write(scratch.path().join("x.toml"), text).unwrap();
    for arguments in [
        &["check", "/proc/kmsg"][..],
        &["run", "x.toml"],
        &["inspect", "--model-config", "/proc/kmsg"],
        &["report", "/proc/kmsg"],
        &["report", "x.toml", "--order", "/proc/kmsg"],
    ] {
        let mut program = Command::new("timeout");
        program.arg("20").arg(longreach().get_program());
        let output = program
            .args(arguments)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let code = output.status.code();
        assert!(matches!(code, Some(2 | 3)), "{arguments:?}: {code:?}");
    }
}

#[test]
fn what_a_killed_export_left_goes_with_the_next() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let out = scratch.directory.path().join("pictures");
    std::fs::create_dir(&out).unwrap();
    // The name that this process gives, as if it had started at another time: its owner has ended.
    let name = rundir::scratch::beside(&out.join("rope.svg"));
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    let mut parts: Vec<String> = name.split('-').map(str::to_owned).collect();
    let ticks: u64 = parts[3].parse().unwrap();
    parts[3] = (ticks + 1).to_string();
    let left = parts.join("-");
    for (arguments, out) in [
        (vec!["inspect", "rope"], out.clone()),
        (
            vec!["report", "RUNS"],
            scratch.directory.path().join("report"),
        ),
        (
            vec!["export", "RUNS", "--format", "tensorboard"],
            scratch.directory.path().join("events"),
        ),
    ] {
        let runs = scratch.runs();
        let run = || {
            let mut program = longreach();
            for argument in &arguments {
                match *argument {
                    "RUNS" => program.arg(&runs),
                    other => program.arg(other),
                };
            }
            exits(&program.arg("--out").arg(&out).output().unwrap(), 0);
        };
        run();
        // Beside a file that is written again.
        let file = first_file(&out);
        let left = file.with_file_name(&left);
        std::fs::write(&left, "half").unwrap();
        run();
        assert!(!left.exists(), "{arguments:?}");
    }
}

/// A file at any level of a directory.
fn first_file(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    match paths.iter().find(|path| path.is_file()) {
        Some(file) => file.clone(),
        None => first_file(&paths[0]),
    }
}
