//! Records by strangers, damaged or made up: each is read, or listed with the reason; none hides
//! another, hangs or ends the program.

use crate::common::*;
use proptest::prelude::*;
use records::record::*;
use records::store::{MAX_RECORD_BYTES, run_dir};
use records::{Found, StoreError, find_records, read_jsonl, read_record, write_jsonl};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn good() -> RunRecord {
    text_experiment().remove(3)
}

/// With scores while training: at two lengths after step 1000, at one of them also at the end.
fn scored() -> RunRecord {
    let mut record = good();
    let row = |index: usize| EvalRow {
        loss_by_position: Vec::new(),
        loss_by_block: Vec::new(),
        distinct_rows: None,
        from_len: None,
        ..record.evals[index].clone()
    };
    let [first, second] = [vec![row(0), row(1)], vec![row(0)]];
    let at = |step, rows| StepScores { step, rows };
    record.train.scores = vec![at(1000, first), at(2000, second)];
    record
}

#[test]
fn scores_while_training_are_kept_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_record(dir.path(), &scored()).unwrap();
    assert_eq!(read_record(&path).unwrap(), scored());
    // Records of trainings without them have no such key.
    let without = serde_json::to_string(&good()).unwrap();
    assert!(!without.contains("\"scores\""));
    type Change = fn(&mut Vec<StepScores>);
    let changes: [(Change, &str); 7] = [
        (|scores| scores[1].step = 500, "step 500 after step 1000"),
        (|scores| scores[1].step = 1000, "step 1000 after step 1000"),
        (|scores| scores[0].step = 0, "step 0 after step 0"),
        (
            |scores| scores[1].step = 2001,
            "step 2001 after step 1000 of 2000",
        ),
        (
            |scores| scores[0].rows[1] = scores[0].rows[0].clone(),
            "train.scores: step 1000: trained at 64 appears twice",
        ),
        (
            |scores| scores[0].rows[0].status = EvalStatus::Diverged,
            "step 1000: trained at 64: numbers, but the status is not ok",
        ),
        (
            |scores| {
                let row = scores[0].rows[0].clone();
                scores[0].rows.resize(MOST_SCORES, row);
            },
            "10001 scores while training; at most 10000",
        ),
    ];
    for (change, reason) in changes {
        let mut record = scored();
        change(&mut record.train.scores);
        refused(&serde_json::to_vec(&record).unwrap()).must_have(reason);
    }
}

fn find(root: &Path) -> Found {
    find_records(&[root.to_path_buf()]).unwrap()
}

/// A new file each time: some file systems flush one that is cut and written again, which takes
/// milliseconds.
fn write_anew(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Why a document is not a record.
fn refused(text: &[u8]) -> String {
    thread_local!(static DIR: tempfile::TempDir = tempfile::tempdir().unwrap());
    let path = DIR.with(|dir| dir.path().join("record.json"));
    write_anew(&path, text);
    match read_record(&path) {
        Err(StoreError::Invalid {
            path: named,
            reason,
        }) if named == path => reason,
        other => panic!(
            "{other:?}: {}",
            String::from_utf8_lossy(&text[..text.len().min(200)])
        ),
    }
}

/// Changes of a record's text after which it is none: `from -> to | reason`.
const CHANGES: &str = r#"
"seed":1 -> "seed":1,"seed":1 | duplicate field `seed`
"loss_nats":{ -> "loss_nats":{"value":0.5,"n":1},"loss_nats":{ | duplicate key "loss_nats"
"d_model":64 -> "d_model":64,"d_model":65 | duplicate key "d_model"
"d_model":64 -> "d_model":64,"d\u005fmodel":65 | duplicate key "d_model"
"seed":1 -> "sead":1 | unknown field `sead`
"seed":1 -> "seed":-1 | invalid value
"seed":1 -> "seed":1.5 | invalid type
"seed":1 -> "seed":99999999999999999999 | invalid type
"seed":1 -> "seed":NaN | expected
"final_loss_nats": -> "final_loss_nats":1e999,"x": | number out of range
"final_loss_nats": -> "final_loss_nats":Infinity,"x": | expected value
"status":"ok" -> "status":"fine" | unknown variant `fine`
length-text -> \ud800 | hex escape
# What the types would let through.
"run_id":" -> "run_id":"../../ | not lower-case hex
"train_len":64,"unit" -> "train_len":0,"unit" | train_len is 0
"status":"ok" -> "status":"ok","diverged":{"step":1,"what":"loss"} | `diverged` is given
"encoding_parameters":0 -> "encoding_parameters":999999999 | more parameters than the model
"bytes_per_token":1.0 -> "bytes_per_token":0.0 | not above 0
"test_len":96 -> "test_len":64 | trained at 64 appears twice
"test_len":96 -> "test_len":0 | a length of 0
"status":"ok","metrics" -> "status":"skipped","metrics" | numbers, but the status is not ok
"from":0,"to":2 -> "from":2,"to":0 | do not ascend
"step":33 -> "step":13 | the steps do not ascend
"#;

#[test]
fn documents_that_are_no_records() {
    let json = serde_json::to_string(&good()).unwrap();
    let with = |from: &str, to: &str| {
        assert!(json.contains(from), "{from}");
        json.replacen(from, to, 1).into_bytes()
    };
    let deep = |open: &str, close: &str| {
        format!(
            "{{\"schema\":1,\"spec\":{{\"a\":{}1{}}}}}",
            open.repeat(100_000),
            close.repeat(100_000)
        )
    };
    let mut cases = vec![
        (Vec::new(), "EOF"),
        (b"\0\0\0\0".to_vec(), "expected value"),
        (b"\xef\xbb\xbf{}".to_vec(), "missing field `schema`"),
        (b"null".to_vec(), "invalid type: null"),
        (b"[]".to_vec(), "is a JSON array"),
        (b"{\"schema\":-1}".to_vec(), "invalid value: integer `-1`"),
        (b"{\"schema\":1e400}".to_vec(), "number out of range"),
        (b"{\"schema\":1}".to_vec(), "missing field `run_id`"),
        (deep("[", "]").into_bytes(), "recursion limit"),
        (deep("{\"a\":", "}").into_bytes(), "recursion limit"),
        ("[".repeat(1_000_000).into_bytes(), "is a JSON array"),
        (with("length-text", "\u{1}"), "control character"),
        ([json.as_bytes(), b"{}"].concat(), "trailing characters"),
        (
            [&json.as_bytes()[..json.len() - 1], b"\0"].concat(),
            "expected `,` or `}`",
        ),
    ];
    let is_change = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in CHANGES.lines().filter(is_change) {
        let (change, reason) = line.split_once(" | ").unwrap();
        let (from, to) = change.split_once(" -> ").unwrap();
        cases.push((with(from, to), reason));
    }
    for (text, reason) in cases {
        refused(&text).must_have(reason);
    }
    let mut invalid = json.clone().into_bytes();
    let at = json.find("length-text").unwrap();
    invalid[at] = 0xff;
    assert!(refused(&invalid).contains("invalid unicode"));
}

#[test]
fn every_prefix_is_refused() {
    let mut record = good();
    record.evals.truncate(1);
    let json = serde_json::to_string(&record).unwrap();
    for end in (0..json.len()).step_by(13).chain([json.len() - 1]) {
        refused(&json.as_bytes()[..end]);
    }
}

#[test]
fn strange_strings_are_kept_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = good();
    record.experiment = "a\0b\u{1b}[2J\u{202e}\u{200b}\n\"\\é".into();
    record.labels[0].text = "x".repeat(100_000);
    let path = write_record(dir.path(), &record).unwrap();
    assert_eq!(read_record(&path).unwrap(), record);
    let lines = dir.path().join("results.jsonl");
    write_jsonl(&lines, &[record.clone()]).unwrap();
    assert_eq!(fs::read_to_string(&lines).unwrap().lines().count(), 1);
    assert_eq!(read_jsonl(&lines).unwrap().records, [record]);
}

#[test]
fn too_much_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write_record(&dir.path().join("a/good"), &good()).unwrap();
    for (name, bytes) in [
        ("b/record.json", MAX_RECORD_BYTES + 1),
        ("c/record.json", 1 << 40),
        ("d/results.jsonl", 1 << 40),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A hole: no byte of it is on the disk.
        fs::File::create(path).unwrap().set_len(bytes).unwrap();
    }
    let start = Instant::now();
    let found = find(dir.path());
    // To read a hole of a TiB takes minutes.
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!((found.records.len(), found.excluded.len()), (1, 3));
    assert!(
        found
            .excluded
            .iter()
            .all(|e| e.reason.contains("bytes; at most")),
        "{:?}",
        found.excluded
    );

    let mut record = good();
    let row = record.evals[0].clone();
    record.evals = (1..=10_001)
        .map(|test_len| EvalRow {
            test_len,
            loss_by_position: vec![],
            loss_by_block: Vec::new(),
            distinct_rows: None,
            from_len: None,
            ..row.clone()
        })
        .collect();
    assert!(refused(&serde_json::to_vec(&record).unwrap()).contains("at most 10000"));
}

#[test]
fn a_bad_line_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.jsonl");
    let all = copy_experiment(1);
    let line = |r: &RunRecord| serde_json::to_vec(r).unwrap();
    let mut file = fs::File::create(&path).unwrap();
    let long = vec![b'x'; MAX_RECORD_BYTES as usize + 1000];
    let parts: [&[u8]; 9] = [
        &line(&all[0]),
        b"\n{\"schema\":1,\"run_",
        b"\n\xff\xfe\0\n\r\n",
        &line(&all[1]),
        b"\r\n",
        &long,
        b"\n",
        &line(&all[2]),
        b"\nx",
    ];
    parts.iter().for_each(|part| file.write_all(part).unwrap());
    let found = read_jsonl(&path).unwrap();
    assert_eq!(found.records.len(), 3);
    let lines: Vec<_> = found
        .excluded
        .iter()
        .map(|e| (e.path == path, e.line))
        .collect();
    assert_eq!(
        lines,
        [
            (true, Some(2)),
            (true, Some(3)),
            (true, Some(6)),
            (true, Some(8))
        ]
    );
    assert!(found.excluded[2].reason.contains("the line has more than"));
    assert_eq!(find(dir.path()), found);

    fs::write(
        &path,
        "x\n".repeat(5000) + std::str::from_utf8(&line(&all[0])).unwrap(),
    )
    .unwrap();
    let found = read_jsonl(&path).unwrap();
    assert_eq!((found.records.len(), found.excluded.len()), (1, 101));
    assert!(found.excluded[0].reason.contains("4900 more lines"));
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_opened() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (runs, outside) = (dir.path().join("runs"), dir.path().join("outside"));
    write_record(&runs.join("x/good"), &good()).unwrap();
    let elsewhere = write_record(&outside, &copy_experiment(1).remove(0)).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fs::create_dir_all(runs.join(name)).unwrap();
    }
    symlink(&elsewhere, runs.join("a/record.json")).unwrap();
    symlink("record.json", runs.join("b/record.json")).unwrap();
    symlink("/dev/zero", runs.join("c/record.json")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(runs.join("d/results.jsonl"))
            .status()
            .unwrap()
            .success()
    );
    fs::create_dir(runs.join("e/record.json")).unwrap();
    symlink(&outside, runs.join("linked")).unwrap();
    symlink(&runs, runs.join("loop")).unwrap();
    let found = find(&runs);
    assert_eq!(found.records, [good()]);
    let paths: Vec<PathBuf> = found
        .excluded
        .iter()
        .map(|e| e.path.strip_prefix(&runs).unwrap().into())
        .collect();
    assert_eq!(
        paths,
        [
            "a/record.json",
            "b/record.json",
            "c/record.json",
            "d/results.jsonl",
            "linked",
            "loop"
        ]
        .map(PathBuf::from)
    );
    let reasons: Vec<&str> = found.excluded.iter().map(|e| e.reason.as_str()).collect();
    let (files, directories) = reasons.split_at(4);
    assert!(
        files
            .iter()
            .all(|reason| reason.contains("not a regular file"))
    );
    assert_eq!(directories, [records::store::LINK; 2]);

    // A link that the user names is the user's choice; a pipe or a device is not read even so.
    assert_eq!(find(&runs.join("linked")).records.len(), 1);
    assert_eq!(find(&runs.join("a/record.json")).records.len(), 1);
    for name in [
        runs.join("d/results.jsonl"),
        "/dev/zero".into(),
        "/dev/null".into(),
    ] {
        let found = find(&name);
        assert_eq!(
            (found.records.len(), &*found.excluded[0].reason),
            (0, "not a regular file"),
            "{}",
            name.display()
        );
        read_record(&name)
            .unwrap_err()
            .to_string()
            .must_have("not a regular file");
        read_jsonl(&name)
            .unwrap_err()
            .to_string()
            .must_have("not a regular file");
    }
    assert!(
        find_records(&[runs.join("b/record.json")]).is_err(),
        "a link to itself"
    );
    assert!(read_record(&runs.join("e/record.json")).is_err());
}

#[cfg(unix)]
#[test]
fn names_that_are_not_text_are_searched() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let odd = dir
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\xff\xfe\x1b[2J"));
    write_record(&odd.join("1"), &good()).unwrap();
    fs::create_dir_all(odd.join("2")).unwrap();
    fs::write(odd.join("2/record.json"), "{}").unwrap();
    let found = find(dir.path());
    assert_eq!((found.records.len(), found.excluded.len()), (1, 1));
    let shown = read_record(&odd.join("2/record.json"))
        .unwrap_err()
        .to_string();
    shown.must_have("\\u{1b}[2J");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn runs_are_gathered_into_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = [text_experiment(), copy_experiment(2)].concat();
    all.reverse();
    for r in &all {
        write_record(&run_dir(dir.path(), &r.experiment, &r.run_id), r).unwrap();
    }
    let (whole, thin) = (
        dir.path().join("whole.jsonl"),
        dir.path().join("results.jsonl"),
    );
    let roots = [dir.path().to_path_buf()];
    let gathered = gather_records(&roots, &whole, None).unwrap();
    assert_eq!(gathered.records, find(dir.path()).records);
    assert_eq!(read_jsonl(&whole).unwrap().records, gathered.records);
    assert_eq!(
        fs::read_to_string(&whole).unwrap().lines().count(),
        all.len()
    );

    let thinned = gather_records(&roots, &thin, Some(5)).unwrap();
    let bytes = fs::read(&thin).unwrap();
    assert_eq!(read_jsonl(&thin).unwrap().records, thinned.records);
    assert!(
        thinned
            .records
            .iter()
            .flat_map(|r| &r.evals)
            .all(|row| row.loss_by_position.len() <= 5)
    );
    assert!((bytes.len() as u64) < fs::metadata(&whole).unwrap().len());
    // The file lies among the runs now: the same runs, and those with all their bins.
    assert_eq!(find(dir.path()), gathered);
    gather_records(&roots, &thin, Some(5)).unwrap();
    assert_eq!(fs::read(&thin).unwrap(), bytes);
    // From either side, in either order.
    assert_eq!(
        find_records(&[thin.clone(), whole.clone()]).unwrap(),
        find_records(&[whole, thin]).unwrap()
    );

    let nothing = tempfile::tempdir().unwrap();
    let error = gather_records(
        &[nothing.path().into()],
        &nothing.path().join("r.jsonl"),
        None,
    )
    .unwrap_err()
    .to_string();
    error.must_have("no records to gather");
    assert_eq!(fs::read_dir(nothing.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn thinning_keeps_span_and_mean(widths in proptest::collection::vec((1usize..50, 0usize..3, -9.0..9.0f64), 1..80), most in 0usize..70) {
        let mut row = ok_row("trained", 9, &[]);
        let mut from = 0;
        for (width, gap, loss_nats) in widths {
            row.loss_by_position.push(PositionBin { from, to: from + width, loss_nats });
            from += width + gap;
        }
        let before = row.loss_by_position.clone();
        row.thin_positions(most);
        let after = &row.loss_by_position;
        prop_assert!(after.len() <= most.max(1) && (before.len() > most.max(1) || *after == before));
        prop_assert_eq!((before[0].from, before[before.len() - 1].to), (after[0].from, after[after.len() - 1].to));
        prop_assert!(after.windows(2).all(|b| b[0].to <= b[1].from));
        for bin in after {
            let parts = before.iter().filter(|b| b.from >= bin.from && b.to <= bin.to);
            let (sum, width) = parts.fold((0.0, 0.0), |(s, w), b| (s + b.loss_nats * (b.to - b.from) as f64, w + (b.to - b.from) as f64));
            prop_assert!((bin.loss_nats - sum / width).abs() < 1e-9);
        }
    }
}

/// What a stranger, a bad disk or a cut-off copy does to a file.
fn mutate(bytes: &mut Vec<u8>, (kind, at, value): (u8, usize, u8)) {
    if bytes.is_empty() {
        return;
    }
    let at = at % bytes.len();
    let end = (at + 1 + usize::from(value) / 8).min(bytes.len());
    match kind % 6 {
        0 => bytes[at] ^= 1 << (value % 8),
        1 => bytes[at] = value,
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => bytes.insert(
            at,
            b"0129.-+eE\"\\{}[]:,ntu \0\xff"[usize::from(value) % 23],
        ),
        _ => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

fn mutations() -> impl Strategy<Value = Vec<(u8, usize, u8)>> {
    proptest::collection::vec(any::<(u8, usize, u8)>(), 1..5)
}

/// Whether a record stands: it reads back as what was read, and keeps what its documentation says.
fn stands(record: &RunRecord) -> bool {
    let rows: std::collections::BTreeSet<_> = record
        .evals
        .iter()
        .map(|row| (&row.variant, row.test_len))
        .collect();
    let text = serde_json::to_vec(record).unwrap();
    record.schema == SCHEMA
        && rows.len() == record.evals.len()
        && record.run_id.bytes().all(|b| b.is_ascii_hexdigit())
        && serde_json::from_slice::<RunRecord>(&text).unwrap() == *record
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn mutated_records_are_refused_or_stand(changes in mutations()) {
        thread_local! {
            static SMALL: (tempfile::TempDir, Vec<u8>) = {
                let mut record = good();
                record.evals.truncate(1);
                record.train.loss_curve.truncate(2);
                record.evals.iter_mut().for_each(|row| row.loss_by_position.truncate(2));
                (tempfile::tempdir().unwrap(), serde_json::to_vec(&record).unwrap())
            };
        }
        SMALL.with(|(dir, whole)| {
            let mut bytes = whole.clone();
            changes.iter().for_each(|change| mutate(&mut bytes, *change));
            let path = dir.path().join("record.json");
            write_anew(&path, &bytes);
            if let Ok(record) = read_record(&path) {
                assert!(stands(&record));
                // The bytes say what the record says: nothing was dropped or read twice.
                let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                let kept = serde_json::to_value(&record).unwrap();
                assert!(covers(&kept, &said), "{}", String::from_utf8_lossy(&bytes));
            }
        });
    }
}

/// Every key and value of `said` is in `kept`: absent and null options apart, a record drops
/// nothing that its text holds.
fn covers(kept: &serde_json::Value, said: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (kept, said) {
        (Object(kept), Object(said)) => said.iter().all(|(key, value)| match kept.get(key) {
            Some(there) => covers(there, value),
            None => value.is_null() || *value == json!({}) || *value == json!([]),
        }),
        (Array(kept), Array(said)) => {
            kept.len() == said.len() && kept.iter().zip(said).all(|(k, s)| covers(k, s))
        }
        _ => kept == said || kept.as_f64().is_some_and(|k| said.as_f64() == Some(k)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn mutated_lines_leave_the_others(changes in mutations()) {
        thread_local! {
            static LINES: (tempfile::TempDir, Vec<RunRecord>) = {
                let mut all = copy_experiment(1);
                all.iter_mut().for_each(|r| { r.train.loss_curve.truncate(2); r.evals.truncate(1); });
                (tempfile::tempdir().unwrap(), all)
            };
        }
        LINES.with(|(dir, all)| {
            let line = |r: &RunRecord| [serde_json::to_vec(r).unwrap(), b"\n".to_vec()].concat();
            let mut middle = line(&all[1]);
            changes.iter().for_each(|change| mutate(&mut middle, *change));
            let blank = middle.trim_ascii().is_empty();
            let path = dir.path().join("results.jsonl");
            // The end of the middle may be gone: the next record still starts a new line.
            write_anew(&path, &[line(&all[0]), middle, b"\n".to_vec(), line(&all[2])].concat());
            let found = read_jsonl(&path).unwrap();
            assert!(found.records.contains(&all[0]) && found.records.contains(&all[2]));
            assert!(found.records.iter().all(stands));
            assert!(found.records.len() == 3 || !found.excluded.is_empty() || blank, "what is not a record is listed");
        });
    }
}
