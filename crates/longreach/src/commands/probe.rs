//! `longreach probe`: whether processes on several nodes exclude each other in a directory.

use crate::commands::numbers::whole;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::console;
use support::exit::{Exit, Failure};
use support::program::this_program;
use support::units::count;
use sweep::cluster::allocation::{Env, environment, node_or_host};

/// Rounds in which all processes link one name at once.
const ROUNDS: usize = 100;
/// What each test writes into begins so.
const PREFIX: &str = ".probe.";
/// A test that has written nothing for so long has ended: its processes were killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Test whether the nodes of a cluster exclude each other in a directory
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A directory that the nodes share
    directory: PathBuf,
    /// Processes that take part, each started with the same command [default: those of the step of
    /// Slurm, or else two on this machine]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(2..=1024))]
    of: Option<u16>,
    /// A name for the test, the same for all of them
    #[arg(long, value_name = "NAME", hide = true)]
    session: Option<String>,
    /// Seconds to wait for the others
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole::<u64>(0..))]
    wait: u64,
}

const EXAMPLES: &str = r#"Examples:
  srun -N2 longreach probe /shared/theta  # two nodes of a cluster
  longreach probe /shared/theta --of 2    # on each of two machines, within a minute
  longreach probe /shared/theta           # two processes of this machine

Sweeps on a cluster need a directory in which only one node can create a given hard link. Working
file locks are a second safeguard."#;

/// Takes part in a test; the first of the processes prints what was found.
///
/// # Errors
///
/// [`Exit::Config`] if there is no such directory; [`Exit::Resources`] if it cannot be written, the
/// others are not seen in it, or two processes got the same lease.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    if !arguments.directory.is_dir() {
        let shown = arguments.directory.display();
        let problem = format!("{shown} is not a directory");
        let help = "name one that the nodes share, such as that of the sweep";
        return Err(Failure::config(problem).with_help(help));
    }
    let env: Env<'_> = &environment;
    let of = |name| env(name).and_then(|value| value.parse::<u16>().ok());
    let step = of("SLURM_STEP_NUM_TASKS").or_else(|| of("SLURM_NTASKS"));
    let processes = arguments.of.or(step).filter(|count| *count > 1);
    let session = arguments.session.clone().unwrap_or_else(|| {
        let job = env("SLURM_JOB_ID").zip(env("SLURM_STEP_ID"));
        job.map_or_else(
            || "by-hand".to_owned(),
            |(job, step)| format!("{job}.{step}"),
        )
    });
    rundir::system()
        .probe(&arguments.directory)
        .map_err(Failure::resources)?;
    if let Some(count) = processes {
        let here = Party::join(&arguments.directory, &session, count.into(), arguments.wait)?;
        return here.test();
    }
    // Alone: a second process of this program takes part.
    let session = format!("pair-{}", rundir::process::word());
    let twin = Command::new(this_program()?)
        .arg("probe")
        .arg(&arguments.directory)
        .args(["--of", "2", "--session", &session])
        .args(["--wait", &arguments.wait.to_string()])
        .stdout(Stdio::null())
        // It sees what this process sees.
        .stderr(Stdio::null())
        .spawn();
    let mut twin = twin.map_err(Failure::resources)?;
    let joined = Party::join(&arguments.directory, &session, 2, arguments.wait);
    let found = joined.and_then(|mut here| {
        here.first = true;
        here.test()
    });
    let _ = twin.wait();
    console::print("only this machine was tested; `srun -N2 longreach probe DIR` tests two nodes");
    found
}

/// One of the processes of a test.
struct Party {
    place: PathBuf,
    own: String,
    all: BTreeSet<String>,
    /// Whether this one prints what was found.
    first: bool,
    wait: Duration,
}

impl Party {
    /// Waits until all processes have put their names into the directory of the session.
    fn join(directory: &Path, session: &str, count: usize, wait: u64) -> Result<Self, Failure> {
        remove_abandoned(directory);
        let place = directory.join(format!("{PREFIX}{session}"));
        rundir::system()
            .create_dirs(&place)
            .map_err(Failure::resources)?;
        let env: Env<'_> = &environment;
        let own = format!("{}.{}", node_or_host(env), rundir::process::word());
        let mut here = Self {
            place,
            own,
            all: BTreeSet::new(),
            first: false,
            wait: Duration::from_secs(wait),
        };
        let met = here.say("here").and_then(|()| here.heard("here", count));
        here.all = met.inspect_err(|_| here.forget())?;
        here.first = here.all.first() == Some(&here.own);
        Ok(here)
    }

    fn file(&self, what: &str, who: &str) -> PathBuf {
        self.place.join(format!("{what}.{who}"))
    }

    /// Removes what this process wrote, after a test that failed: a later one under the same name
    /// would count it.
    fn forget(&self) {
        let ending = format!(".{}", self.own);
        let entries = std::fs::read_dir(&self.place);
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(&ending) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // Removes it only if it is empty.
        let _ = std::fs::remove_dir(&self.place);
    }

    /// Says that this process has come to a point.
    fn say(&self, what: &str) -> Result<(), Failure> {
        let path = self.file(what, &self.own);
        let made = File::create(&path).and_then(|mut file| {
            file.write_all(b"1")?;
            file.sync_all()
        });
        made.map_err(|error| {
            Failure::resources(format!("cannot write {}: {error}", path.display()))
        })
    }

    /// Waits until `count` processes have come to a point; returns their names.
    fn heard(&self, what: &str, count: usize) -> Result<BTreeSet<String>, Failure> {
        let started = Instant::now();
        loop {
            let entries = std::fs::read_dir(&self.place)
                .into_iter()
                .flatten()
                .flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let there: BTreeSet<String> = names
                .filter_map(|name| Some(name.strip_prefix(&format!("{what}."))?.to_owned()))
                .collect();
            if there.len() >= count {
                return Ok(there);
            }
            if started.elapsed() > self.wait {
                return Err(Failure::resources(format!(
                    "{} of {} were seen in {} within {} s: {}",
                    there.len(),
                    self::count(count, "process"),
                    self.place.display(),
                    self.wait.as_secs(),
                    there.into_iter().collect::<Vec<_>>().join(", ")
                ))
                .with_help(
                    "the others see another directory, or were not started; a sweep needs a \
                     directory that nodes share. Names of processes that were killed count for an \
                     hour, or until the directory is removed",
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All processes wait for each other.
    fn meet(&self, what: &str) -> Result<(), Failure> {
        self.say(what)?;
        self.heard(what, self.all.len()).map(drop)
    }

    fn test(&self) -> Result<Exit, Failure> {
        self.tested().inspect_err(|_| self.forget())
    }

    fn tested(&self) -> Result<Exit, Failure> {
        let locks = self.locks()?;
        let wins = self.links()?;
        for (round, won) in wins.iter().enumerate() {
            if *won {
                self.say(&format!("won-{round}"))?;
            }
        }
        self.meet("tried")?;
        let winners = |round: &usize| {
            let won = |who: &&String| self.file(&format!("won-{round}"), who).exists();
            self.all.iter().filter(won).count()
        };
        let wrong = (0..ROUNDS).filter(|round| winners(round) != 1).count();
        // Nothing is removed before everybody has counted.
        self.meet("counted")?;
        if !self.first {
            return Ok(Exit::Done);
        }
        let nodes: BTreeSet<&str> = self
            .all
            .iter()
            .filter_map(|who| Some(who.rsplit_once('.')?.0))
            .collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let links = match wrong {
            0 => format!("exclude: one winner in each of {ROUNDS} rounds"),
            n => format!("DO NOT exclude: {n} of {ROUNDS} rounds had no winner, or several"),
        };
        console::print(&format!(
            "{} on {}\nfile locks: {locks}\nhard links: {links}",
            count(self.all.len(), "process"),
            nodes.join(", ")
        ));
        std::thread::sleep(Duration::from_millis(500));
        let _ = rundir::system().remove_tree(&self.place);
        if wrong == 0 {
            console::print("sweeps are safe here");
            return Ok(Exit::Done);
        }
        Err(
            Failure::resources("two processes could get the same run here").with_help(
                "use another file system for --out; longreach needs hard links that only one \
                 process can make",
            ),
        )
    }

    /// One process locks a file; the others try to.
    fn locks(&self) -> Result<String, Failure> {
        let path = self.place.join("lock");
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(&path);
        let file = opened.map_err(Failure::resources)?;
        let is_holder = self.all.first() == Some(&self.own);
        let held = is_holder.then(|| file.try_lock());
        self.meet("locked")?;
        if !is_holder && file.try_lock().is_ok() {
            self.say("both")?;
        }
        self.meet("asked")?;
        let both = self.all.iter().any(|who| self.file("both", who).exists());
        Ok(match held {
            Some(Err(std::fs::TryLockError::Error(error))) => {
                format!("none ({error}); leases by hard links stand in for them")
            }
            _ if both => {
                "DO NOT exclude processes of two nodes; leases by hard links stand in for them"
                    .to_owned()
            }
            _ => "exclude".to_owned(),
        })
    }

    /// In every round all processes link their own file under one name; whether this one got it.
    fn links(&self) -> Result<Vec<bool>, Failure> {
        let own = self.place.join(format!("own.{}", self.own));
        File::create(&own).map_err(Failure::resources)?;
        self.meet("ready")?;
        let mut wins = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            // A link whose answer is lost shows in the number of links.
            let name = self.place.join(format!("round-{round}"));
            let before = links_of(&own);
            let won = std::fs::hard_link(&own, &name).is_ok() || links_of(&own) > before;
            wins.push(won);
            // Now and then all begin at the same moment again.
            if round % 20 == 0 {
                self.meet(&format!("round-{round}-over"))?;
            }
        }
        Ok(wins)
    }
}

/// Removes what tests left whose processes were killed.
fn remove_abandoned(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        // Writing a file into a directory changes its time.
        let written = entry.metadata().and_then(|found| found.modified());
        let age = written.map(|written| written.elapsed().unwrap_or_default());
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && age.is_ok_and(|age| age > ABANDONED_AFTER)
        {
            let _ = rundir::system().remove_tree(&entry.path());
        }
    }
}

fn links_of(path: &Path) -> u64 {
    #[cfg(unix)]
    let links = path
        .metadata()
        .map_or(1, |found| std::os::unix::fs::MetadataExt::nlink(&found));
    #[cfg(not(unix))]
    let links = path.metadata().map_or(1, |_| 1);
    links
}
