//! Links, devices, pipes and folders that cannot be read, in the places of files and folders.
#![cfg(unix)]

use crate::common::{Scratch, TINY, exits, longreach, stderr, stdout};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

const ONE: [&str; 2] = ["seeds=[0]", "axes.\"model.pe\"=[{kind=\"rope\"}]"];

fn gather(scratch: &Scratch, out: &Path) -> Output {
    let mut program = longreach();
    program.arg("gather").arg(scratch.runs());
    program.arg("--out").arg(out).output().unwrap()
}

#[test]
fn gather_writes_into_pipes_and_devices_and_replaces_none() {
    let scratch = Scratch::with(TINY);
    exits(&scratch.longreach("run", &ONE), 0);
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
    assert!(
        stderr(&output).contains("1 record read"),
        "{}",
        stderr(&output)
    );

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
    exits(&output, 6);
    let said = stderr(&output);
    assert!(
        said.contains("it is a link, and only files are replaced")
            && said.contains("remove it, or give another path"),
        "{said}"
    );
    assert_eq!(std::fs::read_link(&link).unwrap(), file);
    assert_eq!(std::fs::read(&file).unwrap(), records);
    assert!(stdout(&output).is_empty(), "{}", stdout(&output));
}
