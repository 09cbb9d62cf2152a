//! Mutations that leave a valid config, each with its reason. Everything else has to be refused.

use super::mutators::{Form, Target, Type};
use super::schema;
use toml::Value;

/// Keys (names of the schema, `*` at an end for any; or a type), mutators, the reason.
const VALID: &[(&[&str], &[&str], &str)] = &[
    (&["<truth>"], &["true"], "both truth values are allowed"),
    (
        &["title"],
        &[
            "a text",
            "../..",
            "an absolute path",
            "a name of a device",
            "a name that ends in a dot",
            "a value in capitals",
        ],
        "a heading is any line of text",
    ),
    (&["name", "variant.name"], &["a text"], "it is a name"),
    (
        &["seeds[]", "eval.seed"],
        &["zero", "2^40", "largest whole number"],
        "any whole number names a stream of draws",
    ),
    (
        &["select.seeds[]"],
        &["2^40", "largest whole number"],
        "as other seeds, but 0 is a seed of the result",
    ),
    (&["train.warmup_steps"], &["zero"], "no warm-up"),
    (&["pe:window.sinks"], &["zero"], "no sinks"),
    (
        &["pe:alibi.slopes[]"],
        &["zero", "1e-320"],
        "a head without a penalty",
    ),
    (
        &["pe:alibi.slopes"],
        &["a value twice"],
        "heads may have one slope",
    ),
    (
        &["pe:by_head.heads"],
        &["a value twice"],
        "two parts may have as many heads",
    ),
    (&["pe:path.kernel"], &["zero"], "no convolution"),
    (&["pe:on_axis.axis"], &["zero"], "axes count from 0"),
    (&["pe:by_layer.pattern[]"], &["zero"], "parts count from 0"),
    (&["model.coordinate_shift"], &["zero"], "nothing moves"),
    (&["task:addition.hints"], &["zero"], "no hints"),
    (
        &[
            "train.final_lr",
            "train.adamw.weight_decay",
            "model.dropout",
        ],
        &["zero", "1e-320"],
        "0 turns it off",
    ),
    (
        &["train.grad_clip"],
        &["zero", "1e-320"],
        "0 turns clipping off",
    ),
    (
        &["train.adamw.beta1", "train.adamw.beta2"],
        &["zero", "1e-320"],
        "moments without a memory",
    ),
    (
        &["*.init_std"],
        &["zero", "1e-320"],
        "tables may start from zeros",
    ),
    (
        &["pe:log_scaling.strength"],
        &["zero", "1e-320"],
        "0 turns it off",
    ),
    (
        &["scaling:yarn.mscale", "scaling:yarn.mscale_all_dim"],
        &["zero", "1e-320"],
        "0 is the plain factor, as in DeepSeek's code",
    ),
    (
        &["pe:mobius.fraction"],
        &["1e-320"],
        "one head at least has it",
    ),
    (
        &["scaling:proportional.fraction"],
        &["zero", "1e-320"],
        "no pair turns",
    ),
    (
        &["task:flip_flop.ignore"],
        &["zero", "1e-320"],
        "nothing is ignored",
    ),
    (
        &["task:mqar.power"],
        &["zero", "1e-320"],
        "an exponent of 0 weighs all gaps alike",
    ),
    (
        &[
            "pe:fox.init_bias",
            "pe:cable.init_bias",
            "pe:wall.init_bias",
        ],
        &["zero", "1e-320", "negated", "-1"],
        "a bias of either sign",
    ),
    (&["pe:*.base"], &["2^40"], "bases go up to 1e15"),
    (
        &[
            "pe:formula.values.s",
            "pe:formula.values.s[]",
            "pe:formula.train.m",
        ],
        &[
            "zero",
            "1e-320",
            "negated",
            "-1",
            "a fraction",
            "2^40",
            "largest whole number",
            "least whole number",
        ],
        "a number of a formula that is defined for all",
    ),
    (
        &["scaling:evq_cosh.tau"],
        &["zero", "1e-320"],
        "the geometric table",
    ),
    (
        &["when.base"],
        &[
            "zero",
            "1e-320",
            "negated",
            "-1",
            "2^40",
            "largest whole number",
            "least whole number",
        ],
        "a filter compares numbers and does not judge them",
    ),
    (
        &["axes", "train.adamw", "report"],
        &["an empty table"],
        "nothing varies, or every default",
    ),
    (&["eval.variants"], &["an empty list"], "no variants"),
    (&["half_seeds"], &["an empty list"], "no halves"),
    (&["half_seeds[]"], &["zero"], "the seed of the base"),
    (
        &["task:jsonl.select"],
        &["an empty list"],
        "nothing to choose values on",
    ),
    (
        &["task:text.bytes_per_token"],
        &["1e-320"],
        "any number above 0",
    ),
    (
        &["task:masked_text.mask", "task:masked_text.random"],
        &["zero", "1e-320"],
        "none is read so",
    ),
    (
        &[
            "task:text.files",
            "task:masked_text.files",
            "haystack.files",
            "task:jsonl.train",
            "task:jsonl.test",
            "task:jsonl.select",
            "split:files.valid",
        ],
        &["a value twice"],
        "a file found twice is taken once",
    ),
    (
        &["positions:grid.sizes", "pe:axial_rope.sections"],
        &["a value twice"],
        "sizes may be equal",
    ),
    (
        &["pe:stack.parts", "variant.add"],
        &["a value twice"],
        "two parts of one kind add up",
    ),
    (&["variant.add"], &["the value in a list"], "a list of one"),
    (
        &["pe:by_layer.parts"],
        &["a value twice"],
        "layers may have the same encoding",
    ),
    (
        &["task:text.segment_ends", "task:text.segment_end_ids"],
        &["a value twice"],
        "an end listed twice is one end",
    ),
    (
        &["task:text.segment_ends[]"],
        &["a value in capitals"],
        "any byte may end a segment",
    ),
    (
        &["pe:string.window", "pe:dual_chunk.local_window"],
        &["zero"],
        "0 is in the range",
    ),
    (
        &["train.stop.at_most"],
        &["zero"],
        "a bound that no loss meets",
    ),
    (
        &["train.stop.at_least", "train.stop.at_most"],
        &["1e-320"],
        "a bound that any score but 0 meets, or no loss",
    ),
    (
        &["pe:log_scaling.init_scale", "pe:fope.gain"],
        &["zero", "1e-320"],
        "0 is in the range",
    ),
];

/// On the command line a word that is no TOML value is a text.
const WORDS: &[(&str, &[&str])] = &[
    ("title", &["a word without quotes", "True", "two values"]),
    ("name", &["a word without quotes"]),
    ("variant.name", &["a word without quotes"]),
];

/// Keys that cannot be left out; all others can.
const REQUIRED: &[&str] = &[
    "name",
    "task",
    "model",
    "train",
    "eval",
    "model.d_model",
    "model.n_layers",
    "model.n_heads",
    "model.pe",
    "train.train_len",
    "train.steps",
    // The steps of the stages sum up to those of training.
    "train.stages",
    "train.stages[]",
    "stage.steps",
    "stage.train_len",
    "train.stop.metric",
    "train.stop.at_least",
    "train.stop.at_most",
    "train.stop.every",
    "eval.test_lens",
    "variant.name",
    // Each variant of the bases has one of the three.
    "variant.set",
    "variant.add",
    "variant.positions",
    // The bases use what only linear attention has.
    "model.attention",
    // The defaults need longer sequences than the bases have.
    "task:mqar.pairs",
    "task:selective_copy.data",
    "windows:sliding.stride",
    "pe:*.kind",
    "task:*.kind",
    "positions:*.kind",
    "scaling:*.kind",
    "windows:*.kind",
    "split:*.by",
    "pe:stack.parts",
    "pe:nope_layers.part",
    "pe:on_axis.part",
    "pe:dape.part",
    "pe:by_head.parts",
    // Each has a number of heads.
    "pe:by_head.parts[]",
    "pe:by_head.heads[]",
    "pe:by_layer.parts",
    "pe:by_layer.pattern",
    // The pattern names each.
    "pe:by_layer.parts[]",
    // Nothing is chosen without it.
    "select.over",
    // The config has lengths to score while training.
    "eval.every",
    // The base has a strength, which one form reads.
    "pe:log_scaling.form",
    // The default files are not there.
    "task:jsonl.train",
    "task:jsonl.test",
    // The base has a length that only "auto" reads.
    "scaling:evq_cosh.tau",
    // The automaton of a base is its table's own, and total.
    "task:automaton.language",
    "task:automaton.symbols",
    "task:automaton.symbols[]",
    "task:automaton.states",
    "task:automaton.states[]",
    "task:automaton.start",
    "task:automaton.accepting",
    "task:automaton.accepting[]",
    "task:automaton.transitions",
    "task:automaton.transitions.even",
    "task:automaton.transitions.even.a",
    "task:automaton.transitions.even.b",
    "task:automaton.transitions.odd",
    "task:automaton.transitions.odd.a",
    "task:automaton.transitions.odd.b",
    // Hints need operands of equal length.
    "task:addition.operands",
    // Files of ids do not say how many there are, and byte pairs have no usual number.
    "task:text.vocab",
    "positions:grid.sizes",
    "split:files.valid",
    "scaling:longrope.short_factor",
    "scaling:longrope.long_factor",
    // Together or not at all.
    "scaling:yarn.mscale",
    "scaling:yarn.mscale_all_dim",
    // One per head, one per axis, one per pair.
    "pe:alibi.slopes[]",
    "pe:axial_rope.sections[]",
    "scaling:longrope.short_factor[]",
    "scaling:longrope.long_factor[]",
];

/// Why this mutation is valid, if it is.
pub fn reason(target: &Target<'_>, mutator: &str, form: Form) -> Option<&'static str> {
    let id = target.id;
    let listed = VALID.iter().find(|(keys, mutators, _)| {
        mutators.contains(&mutator) && keys.iter().any(|key| fits(key, id, target.kind))
    });
    let word = form == Form::Argument
        && WORDS
            .iter()
            .any(|(key, mutators)| *key == id && mutators.contains(&mutator));
    match mutator {
        // Only tau = "auto" reads a length.
        "zero" | "1e-320" if id == "scaling:evq_cosh.tau" && has_length(target) => None,
        // An argument that replaces a seed leaves out its half.
        "2^40" | "largest whole number"
            if form == Form::File && id == "seeds[]" && has_half(target) =>
        {
            None
        }
        "zero" if id == "seeds[]" && others(target).contains(&&Value::Integer(0)) => None,
        _ if listed.is_some() => listed.map(|(.., reason)| *reason),
        _ if word => Some("a plain word is a text"),
        "deleted" => left_out(target),
        // Without a filter a variant applies to every encoding.
        "an empty table" if id == "variant.when" => applies_to_all(target),
        _ => None,
    }
}

/// Whether a run of half the steps is compared with that of this seed.
fn has_half(target: &Target<'_>) -> bool {
    let half = target.table.get("half_seeds").and_then(Value::as_array);
    half.is_some_and(|half| half.contains(target.value))
}

/// Whether the scaling has a length.
fn has_length(target: &Target<'_>) -> bool {
    let length = "model.pe.scaling.original_max_position_embeddings";
    schema::find(target.table, &schema::split(length)).is_some()
}

fn left_out(target: &Target<'_>) -> Option<&'static str> {
    let id = target.id;
    let element = target
        .path
        .last()
        .is_some_and(|part| part.parse::<usize>().is_ok());
    let text = |key: &str| {
        schema::find(target.table, &schema::split(key))
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    match id {
        "variants[]" => Some("no variants"),
        "variant.when" | "when.kind" | "when.base" => applies_to_all(target),
        // Without files the text is that of the crates, where the split by files finds none of its
        // own.
        "task:text.files" if text("task.split.by") == "files" => None,
        // It is all that the variant changes.
        "pe:rope.scaling" if target.path.iter().any(|part| part == "set") => None,
        // The factor that is trained belongs to one of the forms.
        "pe:log_scaling.form"
            if schema::find(target.table, &schema::split("model.pe.init_scale")).is_some() =>
        {
            None
        }
        // The bases choose one value, and without it there is nothing to choose.
        _ if target.path.len() == 3 && target.path[..2] == ["select", "over"] => None,
        // Positions drawn from 0..256 need a table of 256 rows.
        "pe:learned.max_position" if text("name") == "randomized" => None,
        // Drawn positions would go past the table of the stage's encoding.
        "positions:randomized.max_position" if target.path[0] == "train" => None,
        _ if element && !(fits_any(id) && id.ends_with("[]")) => {
            (!others(target).is_empty()).then_some("a shorter list")
        }
        _ if fits_any(id) => None,
        _ => Some("it has a default"),
    }
}

/// The other elements of a list.
fn others<'a>(target: &Target<'a>) -> Vec<&'a Value> {
    let list = target
        .path
        .split_last()
        .and_then(|(_, list)| schema::find(target.table, list)?.as_array());
    list.into_iter()
        .flatten()
        .filter(|value| !std::ptr::eq(*value, target.value))
        .collect()
}

/// A variant may do without its filter where what it changes fits every encoding that is trained.
fn applies_to_all(target: &Target<'_>) -> Option<&'static str> {
    let many = target
        .table
        .get("axes")
        .and_then(|axes| axes.get("model.pe"))
        .is_some();
    let variant = target
        .path
        .get(..3)
        .and_then(|variant| schema::find(target.table, variant))?;
    if !many || variant.get("set").is_none() {
        return Some("what the variant changes fits every encoding here");
    }
    let distinguished_by_base = target.id == "when.kind"
        && variant
            .get("when")
            .is_some_and(|when| when.get("base").is_some());
    distinguished_by_base
        .then_some("only encodings that the variant fits have the base written out")
}

fn fits_any(id: &str) -> bool {
    REQUIRED.iter().any(|key| fits(key, id, Type::Table))
}

fn fits(pattern: &str, id: &str, kind: Type) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => id.starts_with(start) && id.ends_with(end),
        None => id == pattern || kind.name() == pattern,
    }
}
