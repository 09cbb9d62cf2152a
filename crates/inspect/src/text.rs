//! The short form for a terminal; all of it is in the JSON.

use crate::columns::{PAIRS, columns};
use crate::defining::defining;
use crate::digits::{number, number_of};
use crate::inspection::Inspection;
use crate::numbers::{Decay, Numbers, Rotary};
use std::fmt::Write as _;

/// Rows and columns of a table of positions.
const SHOWN: usize = 8;

/// The whole answer.
pub fn render(inspection: &Inspection) -> String {
    let model = &inspection.model;
    let sizes = [
        ("d_model", model.d_model),
        ("n_heads", model.n_heads),
        ("head_dim", model.head_dim),
        ("n_layers", model.n_layers),
    ];
    let lengths = [
        ("train_len", inspection.train_len),
        ("seq_len", inspection.seq_len),
    ];
    let list = |pairs: &[(&str, usize)]| {
        pairs
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let surroundings = [("model", list(&sizes)), ("lengths", list(&lengths))];
    let mut out = String::new();
    encoding(&mut out, &inspection.numbers, inspection, &surroundings);
    if let Some(files) = &inspection.files {
        let line = if files.is_empty() {
            "wrote no picture: there is nothing to draw"
        } else {
            "wrote"
        };
        let _ = write!(out, "\n{line}\n");
        files
            .iter()
            .for_each(|file| out.push_str(&format!("  {file}\n")));
    }
    out.truncate(out.trim_end().len());
    out
}

fn encoding(
    out: &mut String,
    numbers: &Numbers,
    inspection: &Inspection,
    surroundings: &[(&str, String)],
) {
    let lines = facts(numbers, surroundings);
    let _ = writeln!(out, "{}: {}", numbers.kind, numbers.summary);
    for (name, line) in lines {
        let _ = writeln!(out, "  {name:<11} {line}");
    }
    if let Some(rotary) = &numbers.rotary {
        pairs(out, rotary, inspection);
        turns(out, rotary, &inspection.positions);
        decay(out, &rotary.decay);
        checks(out, rotary);
    }
    if let Some(slopes) = &numbers.slopes {
        heads(out, slopes);
    }
    if let Some(blind) = &numbers.blind {
        let _ = write!(out, "\n{blind}\n");
    }
    defining(out, numbers);
    tables(out, numbers, inspection);
    response(out, numbers);
    for part in &numbers.parts {
        // Model and lengths are those of the whole and stand above.
        let _ = write!(out, "\n{}: ", part.key);
        encoding(out, part, inspection, &[]);
    }
}

/// The declared facts of an encoding, a line each.
fn facts(numbers: &Numbers, surroundings: &[(&str, String)]) -> Vec<(String, String)> {
    let facts = &numbers.facts;
    let parameters = facts
        .parameters
        .iter()
        .map(|(path, shape)| format!("{path} {shape:?}"))
        .collect::<Vec<_>>()
        .join(", ");
    let reads = if facts.reads_length {
        "read by the encoding"
    } else {
        "not read"
    };
    let depends = if facts.relative {
        "on key - query alone"
    } else {
        "on absolute positions"
    };
    let limit = facts.max_position_without_axes().map_or_else(
        || "none".to_owned(),
        |limit| format!("positions 0 to {}", limit.saturating_sub(1)),
    );
    let mut lines = vec![
        ("formula", numbers.formula.to_owned()),
        ("source", numbers.source.to_owned()),
        ("config", config(numbers)),
    ];
    lines.extend(surroundings.iter().cloned());
    lines.extend([
        ("hooks", facts.hooks.to_string()),
        (
            "parameters",
            if parameters.is_empty() {
                "none".to_owned()
            } else {
                parameters
            },
        ),
        ("limit", limit),
        (
            "logits",
            format!("depend {depends}; sequence length {reads}"),
        ),
    ]);
    let owned = |(name, line): (&str, String)| (name.to_owned(), line);
    lines.into_iter().map(owned).collect()
}

/// What the encoding adds to the input, and the bias of the first head.
fn tables(out: &mut String, numbers: &Numbers, inspection: &Inspection) {
    if let Some(embedding) = &numbers.embedding {
        let drawn = numbers.facts.parameters.is_empty();
        let note = if drawn {
            ""
        } else {
            " (initial draw of seed 0; training changes it)"
        };
        let _ = writeln!(out, "\nembedding{note}");
        let rows = embedding
            .iter()
            .map(|row| row.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        matrix(
            out,
            "position",
            &inspection.positions,
            "dim",
            &(0..inspection.model.d_model)
                .map(|i| i as f64)
                .collect::<Vec<_>>(),
            rows,
        );
    }
    if let Some(first) = numbers.logits_bias.as_ref().and_then(|heads| heads.first()) {
        let _ = writeln!(
            out,
            "\nlogits_bias of head 0, query by key (keys after the query as the encoding has \
             them; a causal mask hides them)"
        );
        let rows = first
            .iter()
            .map(|row| row.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        matrix(
            out,
            "query",
            &inspection.positions,
            "key",
            &inspection.positions,
            rows,
        );
    }
}

fn pairs(out: &mut String, rotary: &Rotary, inspection: &Inspection) {
    let train_len = inspection.train_len;
    let count = rotary.inv_freq.len();
    let scaled = rotary.inv_freq != rotary.plain_inv_freq || rotary.attention_factor != 1.0;
    let mut rows = vec![vec![
        "pair".to_owned(),
        "inv_freq".into(),
        "wavelength".into(),
        format!("turns in {train_len}"),
    ]];
    if scaled {
        rows[0].push("scaled/plain".into());
    }
    // The last pair is always among them: it turns slowest.
    let step = count.div_ceil(PAIRS);
    for i in (0..count).filter(|i| i % step == 0 || i + 1 == count) {
        let (theta, wavelength) = (rotary.inv_freq[i], rotary.wavelengths[i]);
        let mut row = vec![
            i.to_string(),
            number(theta),
            number(wavelength),
            number(train_len as f64 / wavelength),
        ];
        if scaled {
            row.push(number(theta / rotary.plain_inv_freq[i]));
        }
        rows.push(row);
    }
    out.push('\n');
    columns(out, &rows);
    if step > 1 {
        let _ = writeln!(
            out,
            "(every {step}th of {count} pairs and the last; all with --json)"
        );
    }
    bounds(out, rotary, scaled, inspection);
}

/// What the wavelengths mean for the training length.
fn bounds(out: &mut String, rotary: &Rotary, scaled: bool, inspection: &Inspection) {
    let (train_len, count) = (inspection.train_len, rotary.inv_freq.len());
    let bounds = &rotary.bounds;
    let after = if scaled {
        format!(
            "; under the scaling {}",
            bounds.scaled_pairs_beyond_train_len
        )
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "attention factor {} (on cos and sin; logits carry its square)",
        number(rotary.attention_factor)
    );
    let longest = number(bounds.longest_wavelength);
    let plain = if scaled { ", before the scaling:" } else { "" };
    let beyond = bounds.pairs_beyond_train_len;
    let _ = writeln!(
        out,
        "longest wavelength{plain} {longest} tokens; longer than train_len {train_len}: {beyond} of \
         {count} pairs{after}"
    );
    let _ = writeln!(
        out,
        "critical dimension{plain} {} of {}: those before it complete a turn in training",
        bounds.critical_dimension,
        2 * count
    );
    if let Some(base) = bounds.smallest_base {
        let _ = writeln!(
            out,
            "smallest base whose longest wavelength covers {train_len} tokens: {}",
            number(base)
        );
    }
    if inspection.numbers.config.get("scaling").is_some() && !scaled {
        let seq_len = inspection.seq_len;
        let _ = writeln!(
            out,
            "note: the scaling changes nothing at seq_len = {seq_len}; give a longer --seq-len or \
             a larger factor"
        );
    }
}

fn turns(out: &mut String, rotary: &Rotary, positions: &[f64]) {
    let indices: Vec<f64> = (0..rotary.inv_freq.len()).map(|i| i as f64).collect();
    for (name, table) in [("cos", &rotary.cos), ("sin", &rotary.sin)] {
        let times = if rotary.attention_factor == 1.0 {
            ""
        } else {
            ", times the attention factor"
        };
        let _ = writeln!(out, "\n{name}{times}");
        matrix(
            out,
            "position",
            positions,
            "pair",
            &indices,
            table.iter().cloned(),
        );
    }
}

fn decay(out: &mut String, decay: &Decay) {
    let last = decay.distance.len().saturating_sub(1);
    // A long curve holds every nth distance only; those it lacks are left out.
    let mut picked: Vec<usize> = [0, 1, 2, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536]
        .into_iter()
        .filter_map(|wanted| {
            decay
                .distance
                .iter()
                .position(|distance| *distance == wanted)
        })
        .chain([last])
        .collect();
    // The last distance may be one of those listed.
    picked.dedup();
    let distances = picked.iter().map(|i| decay.distance[*i].to_string());
    let values = picked.iter().map(|i| number_of(decay.value[*i], 4));
    let rows = [row("distance", distances), row("mean |S_j|", values)];
    let _ = writeln!(
        out,
        "\nlong-range decay, mean over j of |sum over i < j of exp(i distance theta_i)|"
    );
    columns(out, &rows);
}

fn response(out: &mut String, numbers: &Numbers) {
    let response = &numbers.response;
    let last = response.distance.len() - 1;
    let mut picked: Vec<usize> = [0, 1, 2, 4, 8, 16, 32, 64, 128, 255]
        .into_iter()
        .filter(|d| *d <= last)
        .collect();
    if picked.last() != Some(&last) {
        picked.push(last);
    }
    let mut rows = vec![row("distance", picked.iter().map(ToString::to_string))];
    for (head, logits) in response.logits.iter().enumerate().take(SHOWN) {
        let cell =
            |d: &usize| logits[*d].map_or_else(|| "hidden".to_owned(), |logit| number_of(logit, 4));
        rows.push(row(&format!("head {head}"), picked.iter().map(cell)));
    }
    let _ = writeln!(
        out,
        "\nresponse: logits of the last of {} equal tokens by distance, all hooks, layer 0, mean \
         over random inputs",
        last + 1
    );
    columns(out, &rows);
}

fn checks(out: &mut String, rotary: &Rotary) {
    if !rotary.checks.is_empty() {
        out.push('\n');
    }
    for check in &rotary.checks {
        let verdict = if check.ok { "ok" } else { "FAILED" };
        let (worst, allowed) = (check.worst_relative_error, check.allowed);
        let _ = writeln!(
            out,
            "check {}: worst relative error {worst:.1e} (allowed {allowed:.0e}) {verdict}",
            check.name
        );
    }
}

fn heads(out: &mut String, slopes: &[f64]) {
    let mut rows = vec![vec![
        "head".to_owned(),
        "slope".into(),
        "= 2^".into(),
        "weight halves every".into(),
    ]];
    // exp(-slope * distance) is 1/2 at ln 2 / slope.
    let tokens = |slope: f64| format!("{} tokens", number_of(std::f64::consts::LN_2 / slope, 4));
    rows.extend(slopes.iter().enumerate().map(|(h, slope)| {
        vec![
            h.to_string(),
            number(*slope),
            number(slope.log2()),
            tokens(*slope),
        ]
    }));
    out.push('\n');
    columns(out, &rows);
}

/// A row of a table: its name, then its cells.
fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    [name.to_owned()].into_iter().chain(cells).collect()
}

/// The first rows and columns of a table, and how many there are.
fn matrix(
    out: &mut String,
    row_name: &str,
    rows: &[f64],
    column_name: &str,
    columns_of: &[f64],
    values: impl Iterator<Item = Vec<f64>>,
) {
    let header = columns_of
        .iter()
        .take(SHOWN)
        .map(|column| format!("{column_name} {column}"));
    let mut table = vec![row(row_name, header)];
    for (name, values) in rows.iter().zip(values).take(SHOWN) {
        let cells = values.iter().take(SHOWN).map(|v| number(*v));
        table.push(row(&name.to_string(), cells));
    }
    columns(out, &table);
    if rows.len() > SHOWN || columns_of.len() > SHOWN {
        let of = |n: usize, name: &str| format!("{} of {n} {name}", n.min(SHOWN));
        let (rows, columns) = (of(rows.len(), "rows"), of(columns_of.len(), "columns"));
        let _ = writeln!(out, "({rows}, {columns}; all with --json)");
    }
}

/// The resolved keys as TOML would have them, without those that stand for nothing.
pub fn config(numbers: &Numbers) -> String {
    let config = &numbers.config;
    let keys = config
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| *key != "kind" && !value.is_null());
    let shown: Vec<String> = keys
        .map(|(key, value)| format!("{key} = {}", inline(value)))
        .collect();
    if shown.is_empty() {
        "nothing to set".to_owned()
    } else {
        shown.join(", ")
    }
}

fn inline(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(map) => {
            let keys = map
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} = {}", inline(value)));
            format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
        }
        serde_json::Value::Array(items) => format!(
            "[{}]",
            items.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        serde_json::Value::Number(n) => n
            .as_f64()
            .map_or_else(|| n.to_string(), config::diagnostic::float_text),
        other => other.to_string(),
    }
}
