//! Damaged and hostile checkpoints, each a function of its number.
//!
//! Half of them keep the hashes of the manifest (bit rot, torn files). The other half are sealed
//! again, as an attacker would do it, so that only the checks behind the hashes are left.

use super::{EVERY, Quick, resume, save, step, weights};
use longreach_rundir::checkpoint::{CHECKPOINTS_DIR, MANIFEST, MODEL, OPTIMIZER, SCORES, State};
use longreach_rundir::steplog::{LOG_FILE, StepLog};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Passed over with a reason.
    Refused,
    /// It still says what the checkpoint said: loading it is right.
    Same,
    /// It was loaded although it says something else.
    SilentLoad,
    Panic,
}

/// A generator with a state of one number (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }
}

/// A directory with one good checkpoint, and its files.
pub struct Target {
    directory: tempfile::TempDir,
    good: Vec<(&'static str, Vec<u8>)>,
    log: Vec<u8>,
    state: State,
}

impl Target {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = StepLog::create(&Quick, directory.path()).expect("a log");
        (1..=EVERY).for_each(|done| log.append(&step(done)).expect("appended"));
        let state = save(&Quick, directory.path(), &mut log, EVERY).expect("saved");
        let place = directory
            .path()
            .join(CHECKPOINTS_DIR)
            .join(format!("step-{EVERY:09}"));
        let good = [MODEL, OPTIMIZER, MANIFEST, SCORES]
            .map(|name| (name, std::fs::read(place.join(name)).expect("written")));
        let log = std::fs::read(directory.path().join(LOG_FILE)).expect("written");
        Self {
            directory,
            good: good.into(),
            log,
            state,
        }
    }

    fn place(&self) -> PathBuf {
        self.directory
            .path()
            .join(CHECKPOINTS_DIR)
            .join(format!("step-{EVERY:09}"))
    }

    /// Tries the mutant with this number; its name and what became of it.
    pub fn attempt(&self, number: u64) -> (&'static str, Outcome) {
        let mut dice = Dice(number);
        let mut files = self.good.clone();
        let name = mutate(&mut files, &mut dice);
        let place = self.place();
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).expect("a directory");
        for (name, bytes) in &files {
            std::fs::write(place.join(name), bytes).expect("writable");
        }
        std::fs::write(self.directory.path().join(LOG_FILE), &self.log).expect("writable");
        let found = std::panic::catch_unwind(|| load(self.directory.path()));
        let outcome = match found {
            Err(_) => Outcome::Panic,
            Ok(None) => Outcome::Refused,
            Ok(Some(found)) if found == self.state => Outcome::Same,
            Ok(Some(_)) => Outcome::SilentLoad,
        };
        (name, outcome)
    }
}

fn load(directory: &Path) -> Option<State> {
    let found = resume(&Quick, directory);
    assert!(
        found.state.is_some() || !found.notes.is_empty(),
        "a skipped checkpoint has a note"
    );
    found.state.map(|(state, _)| state)
}

type Files = Vec<(&'static str, Vec<u8>)>;

#[expect(clippy::too_many_lines, reason = "one arm per mutation")]
fn mutate(files: &mut Files, dice: &mut Dice) -> &'static str {
    let which = dice.roll(4);
    match dice.roll(14) {
        0 => damage(
            &mut files[which].1,
            dice,
            "bit flipped",
            |bytes, at, dice| bytes[at] ^= 1 << dice.roll(8),
        ),
        1 => damage(&mut files[which].1, dice, "cut short", |bytes, at, _| {
            bytes.truncate(at)
        }),
        2 => damage(
            &mut files[which].1,
            dice,
            "bytes overwritten",
            |bytes, at, dice| {
                for byte in bytes.iter_mut().skip(at).take(8) {
                    *byte = dice.roll(256) as u8;
                }
            },
        ),
        3 => damage(
            &mut files[which].1,
            dice,
            "bytes inserted",
            |bytes, at, dice| {
                let more = vec![dice.roll(256) as u8; 1 + dice.roll(64)];
                bytes.splice(at..at, more);
            },
        ),
        4 => {
            let (_, bytes) = files.remove(which);
            drop(bytes);
            "file missing"
        }
        5 => {
            let other = dice.roll(4);
            let (a, b) = (files[which].1.clone(), files[other].1.clone());
            files[which].1 = b;
            files[other].1 = a;
            "files swapped"
        }
        6 => {
            // As of another step, whole in itself.
            let part = dice.roll(2);
            files[part].1 = if part == 0 {
                weights(EVERY + 1).to_bytes()
            } else {
                weights(EVERY).to_bytes()
            }
            .expect("bytes");
            "file of another step"
        }
        7 => {
            let mut manifest: Value = serde_json::from_slice(&files[2].1).expect("a manifest");
            let hostile = hostile_value(dice);
            let key = dice.pick(&[
                "schema",
                "run_id",
                "step",
                "tokens",
                "log_bytes",
                "log_blake3",
                "files",
                "origin",
                "seal",
            ]);
            manifest[key] = hostile;
            if dice.roll(2) == 0 {
                manifest["unknown"] = json!(1);
            }
            seal(&mut manifest);
            files[2].1 = serde_json::to_vec(&manifest).expect("JSON");
            "manifest changed and sealed"
        }
        8 => {
            let depth = 1 + dice.roll(100_000);
            files[2].1 = [b"[".repeat(depth), b"{\"a\":".repeat(dice.roll(1000))].concat();
            "manifest nested"
        }
        _ => {
            let part = dice.roll(2);
            files[part].1 = hostile_tensors(&files[part].1, dice);
            reseal(files);
            "tensors of a stranger, sealed"
        }
    }
}

fn damage(
    bytes: &mut Vec<u8>,
    dice: &mut Dice,
    name: &'static str,
    how: impl FnOnce(&mut Vec<u8>, usize, &mut Dice),
) -> &'static str {
    let at = dice.roll(bytes.len());
    how(bytes, at, dice);
    name
}

fn hostile_value(dice: &mut Dice) -> Value {
    dice.pick(&[
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("../../outside"),
        json!("\u{0}\u{202e}x"),
        json!([]),
        json!({}),
        json!([[[[]]]]),
        json!({ "model.safetensors": { "bytes": u64::MAX, "blake3": "" } }),
        json!({ "../../../etc/passwd": { "bytes": 1, "blake3": "" } }),
        json!("x".repeat(70_000)),
    ])
}

/// A safetensors file that a stranger wrote: header and data that do not belong together, or a
/// model that is not ours.
#[expect(clippy::too_many_lines, reason = "one arm per mutation")]
fn hostile_tensors(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let length = u64::from_le_bytes(good[..8].try_into().expect("eight")) as usize;
    let header: Value = serde_json::from_slice(&good[8..8 + length]).expect("a header");
    let mut data = good[8 + length..].to_vec();
    let mut tensors = header.as_object().expect("an object").clone();
    let names: Vec<String> = tensors.keys().cloned().collect();
    let name = dice.pick(&names);
    let mut declared = None;
    match dice.roll(16) {
        0 => {
            declared = Some(dice.pick(&[
                u64::MAX,
                u64::MAX / 2,
                1 << 40,
                1 << 27,
                0,
                1,
                data.len() as u64,
            ]))
        }
        1 => {
            tensors[&name]["dtype"] = json!(dice.pick(&[
                "F64", "F16", "BF16", "I32", "U8", "BOOL", "F8_E4M3", "", "f32", "\u{0}"
            ]))
        }
        2 => {
            tensors[&name]["shape"] = dice.pick(&[
                json!([]),
                json!([0]),
                json!([u64::MAX, 2]),
                json!([1_u64 << 32, 1_u64 << 32]),
                json!([-1]),
                json!("x"),
                json!([1, 1, 1, 1]),
            ])
        }
        3 => {
            tensors[&name]["data_offsets"] = dice.pick(&[
                json!([0, 0]),
                json!([8, 0]),
                json!([0, u64::MAX]),
                json!([1, 5]),
                json!([0]),
                json!(null),
            ])
        }
        4 => {
            let other = dice.pick(&names);
            let offsets = tensors[&other]["data_offsets"].clone();
            tensors[&name]["data_offsets"] = offsets;
        }
        5 => {
            tensors.remove(&name);
        }
        6 => {
            let tensor = tensors[&name].clone();
            tensors.insert(
                dice.pick(&["d", "../x", "first.zzz", "", "\u{0}", "a.b.c.d.e"])
                    .to_owned(),
                tensor,
            );
        }
        7 => {
            let tensor = tensors.remove(&name).expect("there");
            tensors.insert(
                format!("{name}{}", dice.pick(&["x", " ", "\u{200b}", ".0"])),
                tensor,
            );
        }
        8 => {
            // A number that is not finite, at a place that is one.
            let at = 4 * dice.roll(data.len() / 4);
            let bad = dice.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN]);
            data[at..at + 4].copy_from_slice(&bad.to_le_bytes());
        }
        9 => data.truncate(dice.roll(data.len())),
        10 => data.extend(vec![0; 1 + dice.roll(1 << 16)]),
        11 => {
            tensors.insert(
                "__metadata__".to_owned(),
                dice.pick(&[
                    json!({ "format": "pt" }),
                    json!({ "a": 1 }),
                    json!([]),
                    json!("x".repeat(1 << 12)),
                ]),
            );
        }
        12 => {
            let count = 1 + dice.roll(3000);
            tensors = (0..count)
                .map(|i| {
                    (
                        format!("t{i}"),
                        json!({ "dtype": "F32", "shape": [0], "data_offsets": [0, 0] }),
                    )
                })
                .collect();
        }
        13 => {
            let text = format!(
                "{}{}",
                "[".repeat(1 + dice.roll(100_000)),
                "]".repeat(dice.roll(10))
            );
            return [
                &(text.len() as u64).to_le_bytes()[..],
                text.as_bytes(),
                &data,
            ]
            .concat();
        }
        14 => {
            // One name, twice.
            let text = serde_json::to_string(&tensors).expect("JSON");
            let again = format!("{},{}", &text[..text.len() - 1], &text[1..]);
            return [
                &(again.len() as u64).to_le_bytes()[..],
                again.as_bytes(),
                &data,
            ]
            .concat();
        }
        _ => return (0..dice.roll(4096)).map(|_| dice.roll(256) as u8).collect(),
    }
    let text = serde_json::to_vec(&tensors).expect("JSON");
    let declared = declared.unwrap_or(text.len() as u64);
    [&declared.to_le_bytes()[..], &text, &data].concat()
}

/// Gives the manifest the sizes and hashes of the files as they are, and a fitting seal.
fn reseal(files: &mut Files) {
    let mut manifest: Value = serde_json::from_slice(&files[2].1).expect("a manifest");
    for (name, bytes) in &files[..2] {
        manifest["files"][name] =
            json!({ "bytes": bytes.len(), "blake3": blake3::hash(bytes).to_hex().to_string() });
    }
    seal(&mut manifest);
    files[2].1 = serde_json::to_vec_pretty(&manifest).expect("JSON");
}

/// Gives a manifest whose keys are in their order a seal that fits.
pub fn seal(manifest: &mut Value) {
    manifest["seal"] = json!("");
    manifest["seal"] = json!(
        blake3::hash(&serde_json::to_vec(manifest).expect("JSON"))
            .to_hex()
            .to_string()
    );
}
