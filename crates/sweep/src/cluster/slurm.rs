//! What Slurm's commands answer. Each answer is optional: the commands may be missing, their
//! controller may be down, and a cluster may keep no accounts.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a command may take: one that cannot reach its controller tries for much longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for the queue, which decorates an answer that needs none.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// Why a command of the system gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// It is not installed.
    Missing,
    /// It failed, or took too long.
    Failed,
}

/// What a command prints, if it ends with 0 within a time.
pub fn ask(program: &str, arguments: &[&str], patience: Duration) -> Result<String, Silent> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| Silent::Missing)?;
    let (sender, receiver) = mpsc::channel();
    let mut pipe = child.stdout.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = &mut pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    let Ok(text) = receiver.recv_timeout(patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Silent::Failed);
    };
    match child.wait() {
        Ok(status) if status.success() => Ok(text),
        _ => Err(Silent::Failed),
    }
}

/// A setting of Slurm's configuration.
pub fn setting(name: &str) -> Option<String> {
    let text = ask("scontrol", &["show", "config"], PATIENCE).ok()?;
    setting_in(&text, name)
}

fn setting_in(text: &str, name: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix('='));
    line.map(|value| value.trim().to_owned())
}

/// What Slurm calls the kind of a node.
pub fn features(node: &str) -> Vec<String> {
    if node.is_empty() {
        return Vec::new();
    }
    let answer = ask("scontrol", &["show", "node", node, "--oneliner"], PATIENCE);
    let text = answer.unwrap_or_default();
    let mut words = text.split_whitespace();
    let found = words.find_map(|word| word.strip_prefix("AvailableFeatures="));
    let found = found.filter(|found| *found != "(null)").unwrap_or_default();
    let names = found.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// How long a job may still run, as Slurm writes it.
pub fn time_left(job: &str) -> Option<String> {
    let arguments = ["--noheader", "--format=%L", "--jobs", job];
    let answer = ask("squeue", &arguments, PATIENCE).ok()?;
    Some(answer.trim().to_owned())
}

/// Whether the queue says that a job is running.
pub fn is_running(job: &str) -> bool {
    let arguments = [
        "--noheader",
        "--states=RUNNING",
        "--format=%i",
        "--jobs",
        job,
    ];
    ask("squeue", &arguments, PATIENCE).is_ok_and(|jobs| !jobs.trim().is_empty())
}

/// Array indices that Slurm allows if its configuration says nothing: 0 to 1000.
pub const DEFAULT_MAX_ARRAY: usize = 1001;

/// Tasks that an array may have, and who says so: the least of `MaxArraySize`, of `MaxJobCount`,
/// and of `MaxSubmitJobs` of the user's account and quality of service, where those are kept. Each
/// task counts as a job, and the report is one more.
pub fn most_tasks(options: &[String]) -> (usize, String) {
    let config = ask("scontrol", &["show", "config"], PATIENCE).unwrap_or_default();
    let number = |name| setting_in(&config, name).and_then(|text| text.parse::<usize>().ok());
    let mut limits = vec![match number("MaxArraySize") {
        Some(size) => (size, format!("MaxArraySize = {size} of this cluster")),
        None => (
            DEFAULT_MAX_ARRAY,
            format!("MaxArraySize = {DEFAULT_MAX_ARRAY}, Slurm's default (no scontrol here)"),
        ),
    }];
    let beside_report = |limit: usize| limit.saturating_sub(1).max(1);
    limits.extend(number("MaxJobCount").map(|most| {
        // One below it is the last that Slurm takes.
        let who = format!("MaxJobCount = {most} of this cluster, with the report");
        (beside_report(beside_report(most)), who)
    }));
    limits.extend(submit_limits(options).into_iter().map(|(most, of)| {
        let who = format!("MaxSubmitJobs = {most} of {of}, with the report");
        (beside_report(most), who)
    }));
    limits.into_iter().min().unwrap_or_default()
}

/// Jobs that a user may have in the queue: a number, and whose limit it is.
fn submit_limits(options: &[String]) -> Vec<(usize, String)> {
    let Some(user) = user() else {
        return Vec::new();
    };
    let table = |arguments: &[&str]| {
        let all = [&["--noheader", "--parsable2", "show"], arguments].concat();
        ask("sacctmgr", &all, PATIENCE).unwrap_or_default()
    };
    let of_user = format!("user={user}");
    let format = "format=account,maxsubmitjobs,grpsubmitjobs";
    let accounts = table(&["associations", &of_user, format]);
    let account = option(options, "-A", "--account");
    let mut found: Vec<_> = of_accounts(&accounts, account).into_iter().collect();
    if let Some(name) = option(options, "-q", "--qos") {
        let format = "format=name,maxsubmitjobsperuser,grpsubmitjobs";
        let rows = table(&["qos", format]);
        let row = rows.lines().find_map(|row| limit_of(row, Some(name)));
        found.extend(row.flatten().map(|most| (most, format!("qos {name}"))));
    }
    found
}

/// The limit of the account that was asked for, or the largest of all accounts of the user: which
/// of them Slurm takes is not known here.
fn of_accounts(table: &str, account: Option<&str>) -> Option<(usize, String)> {
    let limits: Option<Vec<usize>> = table
        .lines()
        .filter_map(|row| limit_of(row, account))
        .collect();
    let most = limits?.into_iter().max()?;
    let of = account.map_or_else(
        || "your accounts".to_owned(),
        |name| format!("account {name}"),
    );
    Some((most, of))
}

/// The limit in a row `NAME|LIMIT|LIMIT OF ALL` of a name: none, or the smaller.
fn limit_of(row: &str, name: Option<&str>) -> Option<Option<usize>> {
    let mut cells = row.split('|');
    let own = cells.next()?;
    let is_it = name.is_none_or(|name| name == own);
    is_it.then(|| cells.filter_map(|cell| cell.trim().parse().ok()).min())
}

/// The value of an option for `sbatch`: `-A x`, `-Ax`, `--account x`, `--account=x`; the last one.
fn option<'a>(options: &'a [String], short: &str, long: &str) -> Option<&'a str> {
    let mut found = None;
    let mut words = options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == short || word == long {
            found = words.next();
        } else if let Some(value) = word.strip_prefix(long).and_then(|v| v.strip_prefix('=')) {
            found = Some(value);
        } else if let Some(value) = word.strip_prefix(short).filter(|_| !word.starts_with("--")) {
            found = Some(value);
        }
    }
    found
}

/// The name of the user, as Slurm knows it.
fn user() -> Option<String> {
    let names = ["SLURM_JOB_USER", "USER", "LOGNAME"].iter();
    names
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())
}

/// A job in the queue, or those of an array that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The id of the job, or of its array.
    pub job: String,
    /// The indices of an array; none of another job.
    pub tasks: Option<String>,
    /// `RUNNING`, `PENDING`, ...
    pub state: String,
    /// Why it waits.
    pub reason: String,
    /// Where it runs.
    pub nodes: String,
}

/// The user's jobs that were submitted inside a directory.
///
/// # Errors
///
/// Why there is no answer.
pub fn queue(directory: &Path) -> Result<Vec<Queued>, Silent> {
    let arguments = ["--me", "--noheader", "--format=%F|%K|%T|%r|%N|%Z"];
    let text = ask("squeue", &arguments, QUEUE_PATIENCE)?;
    let place = directory.canonicalize();
    let place = place.unwrap_or_else(|_| directory.to_owned());
    Ok(text
        .lines()
        .filter_map(|line| queued(line, &place))
        .collect())
}

/// A job from its line, if it was submitted inside a directory.
fn queued(line: &str, directory: &Path) -> Option<Queued> {
    let cells: Vec<&str> = line.splitn(6, '|').collect();
    let [job, tasks, state, reason, nodes, place] = cells.try_into().ok()?;
    let place = Path::new(place.trim());
    let is_here = place == directory || place.canonicalize().is_ok_and(|place| place == directory);
    is_here.then(|| Queued {
        job: job.trim().to_owned(),
        tasks: Some(tasks.trim_matches(['[', ']', ' ']).to_owned()).filter(|text| text != "N/A"),
        state: state.to_owned(),
        reason: reason.to_owned(),
        nodes: nodes.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_of_sbatch_are_read_in_all_their_forms() {
        for given in [
            "-A x",
            "-Ax",
            "--account x",
            "--account=x",
            "-A y -p z -A x",
        ] {
            assert_eq!(
                option(&words(given), "-A", "--account"),
                Some("x"),
                "{given}"
            );
        }
        for given in ["-p x", "--accounts=x", "--array=x"] {
            assert_eq!(option(&words(given), "-A", "--account"), None, "{given}");
        }
    }

    #[test]
    fn the_limit_is_that_of_the_account_or_the_largest() {
        let table = "a|100|\nb|300|200\nc||\n";
        let of = |account| of_accounts(table, account).map(|(most, _)| most);
        assert_eq!(of(Some("a")), Some(100));
        assert_eq!(of(Some("b")), Some(200));
        assert_eq!(of(Some("c")), None);
        assert_eq!(of(Some("d")), None);
        // One account is without a limit.
        assert_eq!(of(None), None);
        assert_eq!(of_accounts("a|100|\nb|300|200\n", None).unwrap().0, 200);
        assert_eq!(of_accounts("", None), None);
    }

    #[test]
    fn jobs_of_other_directories_are_not_shown() {
        let here = Path::new("/shared/a|b");
        let found = queued("12|[3-7%2]|PENDING|Resources||/shared/a|b", here).unwrap();
        assert_eq!(found.tasks.as_deref(), Some("3-7%2"));
        assert_eq!(found.reason, "Resources");
        let report = queued("13|N/A|PENDING|Dependency||/shared/a|b", here).unwrap();
        assert_eq!(report.tasks, None);
        assert_eq!(queued("12|3|RUNNING|None|n1|/shared/a", here), None);
        assert_eq!(queued("slurm_load_jobs error", here), None);
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let started = std::time::Instant::now();
        let answer = ask("sleep", &["600"], Duration::from_millis(100));
        assert_eq!(answer, Err(Silent::Failed));
        assert!(started.elapsed() < Duration::from_secs(300));
        let missing = ask("no-such-command-here", &[], PATIENCE);
        assert_eq!(missing, Err(Silent::Missing));
        assert_eq!(ask("false", &[], PATIENCE), Err(Silent::Failed));
        assert_eq!(ask("echo", &["a"], PATIENCE), Ok("a\n".to_owned()));
    }
}
