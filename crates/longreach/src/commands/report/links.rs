//! Relative paths from the directory of a report, which hold wherever the directory is moved together
//! with its runs.

use std::path::Path;

/// The path of `to` from the directory `from`: up to the directory that both share, then down. None
/// where a name is no text.
pub fn relative(from: &Path, to: &Path) -> Option<String> {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let (from, to) = (absolute(from)?, absolute(to)?);
    let both = from.components().zip(to.components());
    let shared = both.take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Some("..".into()));
    let down = to.components().skip(shared);
    let down = down.map(|part| part.as_os_str().to_str().map(str::to_owned));
    let parts: Vec<String> = up.chain(down).collect::<Option<_>>()?;
    Some(parts.join("/"))
}
