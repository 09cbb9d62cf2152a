//! What a sweep hands to others: event files written while it trains, the commands of its page that
//! train a run again, and comparisons as pages.

use crate::common::{Scratch, TINY, command, exits, longreach, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The event files of an experiment.
fn event_files(experiment: &Path) -> Vec<PathBuf> {
    let runs = std::fs::read_dir(experiment.join("tensorboard")).unwrap();
    let mut files: Vec<PathBuf> = runs
        .flat_map(|run| std::fs::read_dir(run.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Tag and step of every number of an event file, read by its framing alone.
fn tags(bytes: &[u8]) -> Vec<String> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        let message = &rest[12..12 + length];
        rest = &rest[16 + length..];
        let text = String::from_utf8_lossy(message);
        for tag in [
            "train/loss_nats",
            "train/lr",
            "by_test_length/exact_match/trained",
        ] {
            if text.contains(tag) {
                found.push(tag.to_owned());
            }
        }
    }
    found
}

#[test]
fn event_files_hold_every_step_and_the_scores() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["--log", "tensorboard"]);
    let experiment = scratch.runs().join("tiny");
    let files = event_files(&experiment);
    assert_eq!(files.len(), 4, "{files:?}");
    for file in &files {
        let tags = tags(&std::fs::read(file).unwrap());
        let count = |tag: &str| tags.iter().filter(|other| *other == tag).count();
        assert_eq!((count("train/loss_nats"), count("train/lr")), (6, 6));
        // A learned table has no score past its end.
        let is_learned = file.to_string_lossy().contains("learned-seed");
        let scores = if is_learned { 1 } else { 2 };
        assert_eq!(count("by_test_length/exact_match/trained"), scores);
    }
    // What is finished stays as it is, and the files are not an experiment of their own.
    scratch.trains(&["--log", "tensorboard"]);
    assert_eq!(event_files(&experiment), files);
    // A run that is continued has one file, which takes the place of the older one.
    let of_run = files[0].parent().unwrap();
    let older = of_run.join("events.out.tfevents.1.longreach");
    let foreign = of_run.join("events.out.tfevents.1.elsewhere");
    std::fs::rename(&files[0], &older).unwrap();
    std::fs::copy(&older, &foreign).unwrap();
    let name = of_run.file_name().unwrap().to_string_lossy();
    let records = scratch.records();
    let its_own = |(path, _): &&(PathBuf, Vec<u8>)| {
        let run = path.parent().unwrap().file_name().unwrap();
        name.ends_with(&*run.to_string_lossy())
    };
    let (record, _) = records.iter().find(its_own).unwrap();
    std::fs::remove_file(scratch.runs().join(record)).unwrap();
    scratch.trains(&["--log", "tensorboard"]);
    let again = event_files(&experiment);
    assert_eq!(again.len(), 5, "{again:?}");
    assert!(
        again.contains(&foreign) && !again.contains(&older),
        "{again:?}"
    );
    let newer = again
        .iter()
        .find(|file| file.parent() == Some(of_run) && **file != foreign);
    let newer = tags(&std::fs::read(newer.unwrap()).unwrap());
    assert_eq!(newer, tags(&std::fs::read(&foreign).unwrap()));
    std::fs::remove_file(&foreign).unwrap();
    exits(&command("report", &experiment, &[]), 0);
    let refused = scratch.longreach("run", &["--log", "wandb"]);
    assert_ne!(refused.status.code(), Some(0));
}

/// The commands of a page that train its runs again.
fn commands(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for data in page.split("class=\"data\">").skip(1) {
        let data = data.split("</script>").next().unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let text = |of: &serde_json::Value| match of.as_u64() {
            Some(at) => data["texts"][at as usize].as_str().unwrap().to_owned(),
            None => of.as_str().unwrap().to_owned(),
        };
        for run in data["runs"].as_array().unwrap() {
            let parts = run["command"].as_array().unwrap();
            let id = run["id"].as_str().unwrap().trim_start_matches("run-");
            found.push((id.to_owned(), parts.iter().map(text).collect()));
        }
    }
    found
}

fn whole(record: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap()
}

/// Runs the command of a page in a shell, in the directory of the page, and returns the record it
/// makes.
fn again(command: &str, id: &str, place: &Path) -> serde_json::Value {
    let runs = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_longreach"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", path)
        .env("TMPDIR", runs.path())
        .current_dir(place)
        .output()
        .unwrap();
    exits(&output, 0);
    let made = std::fs::read_dir(runs.path()).unwrap().next().unwrap();
    let run = made.unwrap().path().join("tiny").join(id);
    whole(&run.join("record.json"))
}

#[cfg(unix)]
#[test]
fn the_command_of_a_run_trains_it_again() {
    // The label of the second value is longer because of the third.
    let two = "[{ kind = \"rope\" }, { kind = \"learned\" }]";
    let three =
        "[{ kind = \"learned\" }, { kind = \"rope\", base = 1e2 }, { kind = \"rope\", base = 9 }]";
    let config = TINY.replace(two, three) + "\"train.lr\" = [0.001, 0.01]\n";
    assert!(config.contains("1e2"));
    let scratch = Scratch::with(&config);
    let place = scratch.directory.path();
    let first = longreach()
        .args(["run", "x.toml"])
        .current_dir(place)
        .output()
        .unwrap();
    exits(&first, 0);
    let page = std::fs::read_to_string(place.join("runs/tiny/report/report.html")).unwrap();
    let commands = commands(&page);
    assert_eq!(commands.len(), 12);
    let (id, command) = &commands[5];
    assert!(command.contains("base"), "{command}");
    let config = "longreach run ../configs/";
    assert!(command.starts_with(config), "{command}");
    let record = whole(&place.join("runs/tiny").join(id).join("record.json"));
    assert_eq!(record["labels"][0]["text"], "rope(base=100)");
    let report = place.join("runs/tiny/report");
    assert_eq!(again(command, id, &report), record, "{command}");
    // Beside a file of records: from its config.
    std::fs::create_dir(place.join("kept")).unwrap();
    std::fs::copy(place.join("x.toml"), place.join("kept/experiment.toml")).unwrap();
    for line in [
        "gather runs/tiny --out kept/results.jsonl",
        "report kept/results.jsonl --format html --out page",
    ] {
        let mut program = longreach();
        program.args(crate::common::words(line)).current_dir(place);
        exits(&program.output().unwrap(), 0);
    }
    let page = std::fs::read_to_string(place.join("page/report.html")).unwrap();
    let (id, command) = &self::commands(&page)[2];
    let config = "longreach run ../kept/experiment.toml ";
    assert!(command.starts_with(config), "{command}");
    let record = whole(&place.join("runs/tiny").join(id).join("record.json"));
    assert_eq!(again(command, id, &place.join("page")), record, "{command}");
}

#[test]
fn lists_in_a_pipe_have_a_width() {
    let width = |columns: Option<&str>| {
        let mut program = longreach();
        program.args(["list", "encodings"]).env_remove("COLUMNS");
        if let Some(columns) = columns {
            program.env("COLUMNS", columns);
        }
        let output = program.output().unwrap();
        exits(&output, 0);
        let text = stdout(&output);
        let table = text
            .lines()
            .filter(|line| !line.starts_with(['s', 'p', '(']));
        table.map(|line| line.chars().count()).max().unwrap()
    };
    assert!((80..=100).contains(&width(None)), "{}", width(None));
    assert!((101..=140).contains(&width(Some("140"))));
}
