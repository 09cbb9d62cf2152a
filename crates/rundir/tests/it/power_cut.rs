//! The power is cut after every operation of a run, and of what was not synced everything, nothing,
//! or a part survives.
//!
//! The model of a disk is the strict one: bytes survive when their file was synced, names when
//! their directory was, each on its own.

use crate::common::{self, Quick, calm, files, resume, train};
use longreach_rundir::{Disk, Op};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// An operation with its own copy of everything, below the root of the run.
enum Owned {
    CreateDir(PathBuf),
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Cut(PathBuf, u64),
    Sync(PathBuf),
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
}

/// Applies and remembers.
struct Recorder {
    root: PathBuf,
    ops: Mutex<Vec<Owned>>,
}

impl Disk for Recorder {
    fn apply(&self, op: &Op<'_>) -> io::Result<()> {
        Quick.apply(op)?;
        let own = |path: &Path| {
            path.strip_prefix(&self.root)
                .expect("below the root")
                .to_owned()
        };
        let op = match *op {
            Op::CreateDir(path) => Owned::CreateDir(own(path)),
            Op::Write(path, bytes) => Owned::Write(own(path), bytes.to_vec()),
            Op::Append { path, bytes, .. } => Owned::Append(own(path), bytes.to_vec()),
            Op::Cut(path, length) => Owned::Cut(own(path), length),
            Op::Sync(path) => Owned::Sync(own(path)),
            Op::SyncDir(path) => Owned::SyncDir(own(path)),
            Op::Rename(from, to) => Owned::Rename(own(from), own(to)),
            Op::RemoveFile(path) => Owned::RemoveFile(own(path)),
            Op::RemoveDir(path) => Owned::RemoveDir(own(path)),
        };
        self.ops.lock().expect("one thread").push(op);
        Ok(())
    }
}

/// A file or a directory: what readers see, and what a power cut leaves.
#[derive(Clone)]
enum Node {
    File {
        seen: Vec<u8>,
        durable: Vec<u8>,
    },
    Directory {
        seen: BTreeMap<String, usize>,
        durable: BTreeMap<String, usize>,
    },
}

/// What of the unsynced survives.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Kept,
    Dropped,
    /// Half of the new bytes of each file; each name by a coin.
    Halved(u64),
}

/// A disk in memory.
struct Model {
    nodes: Vec<Node>,
}

impl Model {
    fn new() -> Self {
        Self {
            nodes: vec![Node::Directory {
                seen: BTreeMap::new(),
                durable: BTreeMap::new(),
            }],
        }
    }

    fn entries(&mut self, directory: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[directory] {
            Node::Directory { seen, .. } => seen,
            Node::File { .. } => panic!("a file where a directory belongs"),
        }
    }

    fn at(&mut self, path: &Path) -> usize {
        path.components().fold(0, |node, part| {
            self.entries(node)[&part.as_os_str().to_string_lossy().into_owned()]
        })
    }

    fn place(&mut self, path: &Path) -> (usize, String) {
        (
            self.at(path.parent().expect("below the root")),
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
        )
    }

    fn add(&mut self, path: &Path, node: Node) {
        let (directory, name) = self.place(path);
        self.nodes.push(node);
        let new = self.nodes.len() - 1;
        self.entries(directory).insert(name, new);
    }

    fn bytes(&mut self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let at = self.at(path);
        match &mut self.nodes[at] {
            Node::File { seen, .. } => change(seen),
            Node::Directory { .. } => panic!("a directory where a file belongs"),
        }
    }

    fn apply(&mut self, op: &Owned) {
        match op {
            Owned::CreateDir(path) => self.add(
                path,
                Node::Directory {
                    seen: BTreeMap::new(),
                    durable: BTreeMap::new(),
                },
            ),
            Owned::Write(path, bytes) => {
                let (directory, name) = self.place(path);
                if self.entries(directory).contains_key(&name) {
                    self.bytes(path, |seen| seen.clone_from(bytes));
                } else {
                    self.add(
                        path,
                        Node::File {
                            seen: bytes.clone(),
                            durable: Vec::new(),
                        },
                    );
                }
            }
            Owned::Append(path, bytes) => self.bytes(path, |seen| seen.extend(bytes)),
            Owned::Cut(path, length) => self.bytes(path, |seen| seen.truncate(*length as usize)),
            Owned::Sync(path) | Owned::SyncDir(path) => {
                let at = self.at(path);
                match &mut self.nodes[at] {
                    Node::File { seen, durable } => durable.clone_from(seen),
                    Node::Directory { seen, durable } => durable.clone_from(seen),
                }
            }
            Owned::Rename(from, to) => {
                let (directory, name) = self.place(from);
                let node = self.entries(directory).remove(&name).expect("it is there");
                let (directory, name) = self.place(to);
                self.entries(directory).insert(name, node);
            }
            Owned::RemoveFile(path) | Owned::RemoveDir(path) => {
                let (directory, name) = self.place(path);
                self.entries(directory).remove(&name).expect("it is there");
            }
        }
    }

    /// Writes what survives below a real directory.
    fn survive(&self, fate: Fate, into: &Path) {
        let coin = RefCell::new(match fate {
            Fate::Halved(seed) => seed,
            _ => 0,
        });
        self.write(0, fate, into, &mut || {
            let mut coin = coin.borrow_mut();
            *coin = coin
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *coin >> 63 == 1
        });
    }

    fn write(&self, node: usize, fate: Fate, into: &Path, coin: &mut dyn FnMut() -> bool) {
        match &self.nodes[node] {
            Node::File { seen, durable } => {
                let bytes = match fate {
                    Fate::Kept => seen.clone(),
                    Fate::Dropped => durable.clone(),
                    // Old bytes up to the middle of the new ones' room, as a file is written out
                    // page by page.
                    Fate::Halved(_) => {
                        let half = seen.len().max(durable.len()) / 2;
                        let (front, back) = if coin() {
                            (seen, durable)
                        } else {
                            (durable, seen)
                        };
                        front
                            .iter()
                            .take(half)
                            .chain(back.iter().skip(half.min(front.len())))
                            .copied()
                            .collect()
                    }
                };
                let synced = seen == durable;
                std::fs::write(into, if synced { seen } else { &bytes }).expect("writable");
            }
            Node::Directory { seen, durable } => {
                if !into.exists() {
                    std::fs::create_dir(into).expect("a directory");
                }
                let mut entries = match fate {
                    Fate::Kept => seen.clone(),
                    Fate::Dropped => durable.clone(),
                    Fate::Halved(_) => {
                        let names: std::collections::BTreeSet<&String> =
                            seen.keys().chain(durable.keys()).collect();
                        names
                            .into_iter()
                            .filter_map(|name| {
                                let (now, before) = (seen.get(name), durable.get(name));
                                let chosen = if now == before || coin() { now } else { before };
                                chosen.map(|node| (name.clone(), *node))
                            })
                            .collect()
                    }
                };
                // A renaming that survived in part would give one thing two names.
                let mut taken = std::collections::BTreeSet::new();
                entries.retain(|_, node| taken.insert(*node));
                for (name, node) in entries {
                    self.write(node, fate, &into.join(name), coin);
                }
            }
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one scenario in order")]
#[test]
fn a_power_cut_after_any_operation_loses_nothing_that_was_committed() {
    let calm = calm();
    let directory = tempfile::tempdir().expect("a directory");
    let recorder = Recorder {
        root: directory.path().to_owned(),
        ops: Mutex::default(),
    };
    // The operations after which a commit had returned.
    let mut commits = Vec::new();
    train(&recorder, &directory.path().join("run"), &mut |step| {
        commits.push((recorder.ops.lock().expect("one thread").len(), step))
    })
    .expect("a calm run");
    let ops = recorder.ops.into_inner().expect("one thread");
    assert!(
        ops.len() > 60 && commits.len() == 4,
        "{} operations, {} commits",
        ops.len(),
        commits.len()
    );
    let fates = [Fate::Kept, Fate::Dropped]
        .into_iter()
        .chain((1..=8).map(Fate::Halved));
    let mut cuts = 0;
    for fate in fates {
        let mut model = Model::new();
        for cut in 0..=ops.len() {
            if cut > 0 {
                model.apply(&ops[cut - 1]);
            }
            cuts += 1;
            let survivor = tempfile::tempdir().expect("a directory");
            model.survive(fate, survivor.path());
            let run = survivor.path().join("run");
            let committed = commits
                .iter()
                .rev()
                .find(|(after, _)| *after <= cut)
                .map_or(0, |(_, step)| *step);
            if committed == u64::MAX {
                assert!(
                    run.join(common::RECORD).exists(),
                    "{fate:?} at {cut}: the record is gone"
                );
            } else if committed > 0 {
                let found = resume(&Quick, &run).state;
                assert!(
                    found.is_some_and(|(state, _)| state.step >= committed),
                    "{fate:?} at {cut}: step {committed} is gone"
                );
            }
            if let Ok(record) = std::fs::read(run.join(common::RECORD)) {
                assert_eq!(record, b"the numbers", "{fate:?} at {cut}: a torn record");
            }
            let from = train(&Quick, &run, &mut |_| ())
                .unwrap_or_else(|error| panic!("{fate:?} at {cut}: {error:#}"));
            assert!(
                from >= committed.min(common::STEPS),
                "{fate:?} at {cut}: went on from {from}, not from {committed}"
            );
            assert!(
                files(&run) == calm,
                "{fate:?} at {cut}: other files than a calm run's"
            );
        }
    }
    println!("{cuts} power cuts over {} operations", ops.len());
}
