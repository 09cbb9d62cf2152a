//! Counts, sizes and durations as people read them.

/// `1 run`, `2 runs`, `2 processes`.
pub fn count(n: usize, noun: &str) -> String {
    let plural = if noun.ends_with('s') { "es" } else { "s" };
    format!("{n} {noun}{}", if n == 1 { "" } else { plural })
}

/// `117 k`, `4.1 M`.
pub fn short(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e9 => (n / 1e9, " G"),
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => return format!("{n:.0}"),
    };
    if value < 10.0 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// `100 bytes`, `64 KiB`, `512 MiB`, `1.5 GiB`.
pub fn bytes(n: f64) -> String {
    let kib = n / 1024.0;
    match kib {
        _ if n > 0.0 && n < 1024.0 => count(n as usize, "byte"),
        _ if kib >= 1_048_576.0 => format!("{:.1} GiB", kib / 1_048_576.0),
        _ if kib >= 1024.0 || kib == 0.0 => format!("{:.0} MiB", kib / 1024.0),
        _ => format!("{kib:.0} KiB"),
    }
}

/// `8 s`, `2 min`, `1.5 h`.
pub fn duration(secs: f64) -> String {
    match secs {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// The first `most` names with commas between them, and how many more there are.
pub fn first_of(names: &[String], most: usize) -> String {
    let mut shown: Vec<String> = names.iter().take(most).cloned().collect();
    if names.len() > most {
        shown.push(format!("{} more", names.len() - most));
    }
    shown.join(", ")
}

/// A word for a shell, quoted if it has to be.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
