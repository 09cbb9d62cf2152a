//! Which key of the schema a path of a config means: `axes."model.pe".3.base` is the `base` of an
//! encoding.

use config::diagnostic::quoted;
use toml::{Table, Value};

/// The parts of a dotted key that has no quotes inside.
pub fn split(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// A path as people write it, with quotes around parts that hold dots.
pub fn dotted(path: &[String]) -> String {
    let bare = |part: &String| {
        part.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            && !part.is_empty()
    };
    path.iter()
        .map(|part| {
            if bare(part) {
                part.clone()
            } else {
                quoted(part)
            }
        })
        .collect::<Vec<_>>()
        .join(".")
}

/// The path without its axis: where the value stands when it is read.
pub fn live(path: &[String]) -> Vec<String> {
    match in_axes(path) {
        Some([key, _, rest @ ..]) => split(key).into_iter().chain(rest.iter().cloned()).collect(),
        Some([key]) => split(key),
        _ => path.to_vec(),
    }
}

/// The rest of a path below a table of axes: `axes`, or `select.over`.
fn in_axes(path: &[String]) -> Option<&[String]> {
    match path {
        [axes, rest @ ..] if axes == "axes" => Some(rest),
        [select, over, rest @ ..] if select == "select" && over == "over" => Some(rest),
        _ => None,
    }
}

/// The value at a path.
pub fn find<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(table.get(first)?, |value, part| match value {
            Value::Table(table) => table.get(part),
            Value::Array(array) => array.get(part.parse::<usize>().ok()?),
            _ => None,
        })
}

/// Replaces or adds a value.
pub fn set(table: &mut Table, path: &[String], value: Value) {
    if let Some(slot) = parent(table, path).zip(path.last()) {
        match slot {
            (Parent::Table(table), last) => drop(table.insert(last.clone(), value)),
            (Parent::Array(array), last) => {
                if let Some(element) = last
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| array.get_mut(index))
                {
                    *element = value;
                }
            }
        }
    }
}

/// What holds a value.
pub enum Parent<'a> {
    /// By key.
    Table(&'a mut Table),
    /// By number.
    Array(&'a mut Vec<Value>),
}

/// What holds the value at a path.
pub fn parent<'a>(table: &'a mut Table, path: &[String]) -> Option<Parent<'a>> {
    let mut slot = Parent::Table(table);
    for part in path.split_last()?.1 {
        let value = match slot {
            Parent::Table(table) => table.get_mut(part)?,
            Parent::Array(array) => array.get_mut(part.parse::<usize>().ok()?)?,
        };
        slot = match value {
            Value::Table(table) => Parent::Table(table),
            Value::Array(array) => Parent::Array(array),
            _ => return None,
        };
    }
    Some(slot)
}

/// The key of the schema: `train.lr`, `pe:rope.base`, `scaling:yarn.factor`, `task:text.files[]`,
/// `variant.name`, `axis`.
pub fn id(table: &Table, path: &[String]) -> String {
    let below = in_axes(path);
    if below.is_some_and(|below| below.len() == 1) {
        return "axis".to_owned();
    }
    // The value of an axis, without what stands below it.
    let axis = below.filter(|below| below.len() >= 2);
    let axis = axis.and_then(|below| path.get(..path.len() - below.len() + 2));
    // The value of the axis stands in the place that it is read from.
    let mut placed = table.clone();
    if let (Some(axis), Some(value)) = (axis, axis.and_then(|axis| find(table, axis))) {
        set(&mut placed, &live(axis), value.clone());
    }
    let path = live(path);
    let Some((last, above)) = path.split_last() else {
        return String::new();
    };
    let mut context = String::new();
    for end in 1..=above.len() {
        let here = above.get(..end).unwrap_or_default();
        let value = find(&placed, here);
        context = step(&placed, &context, here, value);
    }
    match last.parse::<usize>() {
        Ok(_) if context.ends_with("variants") => "variants[]".to_owned(),
        Ok(_) => format!("{context}[]"),
        Err(_) if context.is_empty() => last.clone(),
        Err(_) => format!("{context}.{last}"),
    }
}

fn step(table: &Table, context: &str, path: &[String], value: Option<&Value>) -> String {
    let name = path.last().map_or("", String::as_str);
    let text = |key: &str| {
        value
            .and_then(|value| value.get(key))
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    let variant = path
        .split_last()
        .map(|(_, above)| above)
        .unwrap_or_default();
    let when = || {
        let kind: Vec<String> = variant
            .iter()
            .cloned()
            .chain(["when".to_owned(), "kind".to_owned()])
            .collect();
        find(table, &kind)
            .and_then(Value::as_str)
            .unwrap_or("rope")
            .to_owned()
    };
    match name {
        "set" if text("kind").is_empty() => format!("pe:{}", when()),
        "add" if value.is_some_and(Value::is_array) => "variant.add".to_owned(),
        "pe" | "part" | "set" | "add" => format!("pe:{}", text("kind")),
        "when" => "when".to_owned(),
        "scaling" | "positions" | "task" | "windows" => format!("{name}:{}", text("kind")),
        "split" => format!("split:{}", text("by")),
        // The text that needles stand in, whatever the task.
        "text" => "haystack".to_owned(),
        "variants" => "variants".to_owned(),
        _ if context == "variants" => "variant".to_owned(),
        _ if context == "train.stages" => "stage".to_owned(),
        // An element of `parts` or `add` is an encoding.
        _ if (context.ends_with(".parts") || context == "variant.add")
            && name.parse::<usize>().is_ok() =>
        {
            format!("pe:{}", text("kind"))
        }
        _ if context.is_empty() => name.to_owned(),
        _ => format!("{context}.{name}"),
    }
}
