//! The page of records, for looking at it: `page OUT ROOT...` writes OUT/report.html and the rest.

use longreach_report::{ReportSpec, report};
use records::find_records;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [out, roots @ ..] = paths.as_slice() else {
        eprintln!("usage: page OUT ROOT...");
        return ExitCode::from(2);
    };
    let spec = ReportSpec {
        title: std::env::var("TITLE").unwrap_or_else(|_| "Which encoding lasts?".into()),
        assertions: std::env::var_os("ASSERTIONS").is_some(),
        ..ReportSpec::default()
    };
    let written = find_records(roots)
        .map_err(|e| e.to_string())
        .and_then(|found| report(&found.records, &[], &spec).map_err(|e| e.to_string()))
        .and_then(|report| report.write(out).map_err(|e| e.to_string()));
    match written {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
