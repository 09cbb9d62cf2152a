//! Every key of a configuration: type, range, default, example and meaning. Checks read their
//! ranges here, `docs/config.md` and the JSON schema are written from here, and a test compares the
//! list with what the reader accepts.

pub use super::key::{Key, Kind};

use super::key::key;
use Kind::{Name, Number, Text, Truth, Whole, Wholes};

/// The range of a key of whole numbers.
///
/// # Panics
///
/// If there is no such key, which a test rules out for every key that is checked.
pub(super) fn whole(path: &str) -> (u64, u64) {
    match find(path).map(|key| key.kind) {
        Some(Kind::Whole(low, high) | Kind::Wholes(low, high)) => (low, high),
        _ => panic!("{path} is no key with a range of whole numbers"),
    }
}

/// The range of a key of numbers.
///
/// # Panics
///
/// As [`whole`].
pub(super) fn number(path: &str) -> (f64, f64) {
    match find(path).map(|key| key.kind) {
        Some(Kind::Number(low, high)) => (low, high),
        _ => panic!("{path} is no key with a range of numbers"),
    }
}

fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Longest length that may be asked for, in the task's unit: a row of a task has at most four
/// tokens for each, and positions are exact in f32 up to 2^24.
const LONGEST: u64 = 1 << 22;

/// Every key, in the order of a file.
pub const KEYS: &[Key] = &[
    key(
        "name",
        Text,
        None,
        r#""theta-base""#,
        "Names the experiment: its directory below `runs/`. 1 to 100 of `a-z`, `0-9`, `.`, `_`, `-`.",
    ),
    key(
        "title",
        Text,
        Some("the name"),
        r#""RoPE by base""#,
        "Headline of the report, at most 200 characters.",
    ),
    key(
        "seeds",
        Wholes(0, u64::MAX >> 1),
        Some("[0]"),
        "[0, 1, 2]",
        "Seeds of weights, batches, lengths, positions and dropout; each is a run.",
    ),
    key(
        "max_runs",
        Whole(1, 100_000),
        Some("1000"),
        "5000",
        "Most runs that `[axes]` and `seeds` may make together.",
    ),
    key(
        "axes",
        Kind::Axes,
        Some("none"),
        r#"{ "train.lr" = [1e-3, 3e-4] }"#,
        "Lists of values by quoted dotted key; every combination is a run for each seed.",
    ),
    key(
        "task",
        Kind::Task,
        None,
        r#"{ kind = "copy" }"#,
        "What the model learns; the keys of every kind are in [tasks](tasks.md).",
    ),
    key(
        "model.d_model",
        Whole(1, 1 << 16),
        None,
        "64",
        "Width of the residual stream.",
    ),
    key(
        "model.n_layers",
        Whole(1, 1024),
        None,
        "2",
        "Number of blocks.",
    ),
    key(
        "model.n_heads",
        Whole(1, 1024),
        None,
        "4",
        "Attention heads per block; divides `d_model` unless `head_dim` is given.",
    ),
    key(
        "model.head_dim",
        Whole(1, 1 << 14),
        Some("d_model / n_heads"),
        "16",
        "Width of one head.",
    ),
    key(
        "model.d_ff",
        Whole(1, 1 << 18),
        Some("4 * d_model"),
        "256",
        "Inner width of the feed-forward half.",
    ),
    key(
        "model.norm",
        Name(&["layer_norm", "rms_norm"]),
        Some(r#""layer_norm""#),
        r#""rms_norm""#,
        "Normalisation before each half of a block and before the head.",
    ),
    key(
        "model.activation",
        Name(&["gelu", "swiglu"]),
        Some(r#""gelu""#),
        r#""swiglu""#,
        "Non-linearity of the feed-forward half.",
    ),
    key(
        "model.tied_head",
        Truth,
        Some("false"),
        "true",
        "Whether the head is the transposed embedding.",
    ),
    key(
        "model.dropout",
        Number(0.0, 0.99),
        Some("0"),
        "0.1",
        "Probability of zeroing an element after the embedding and after each half of a block, in training.",
    ),
    key(
        "model.embedding_std",
        Number(1e-6, 10.0),
        Some("0.02"),
        "1.0",
        "Standard deviation of the initial embedding.",
    ),
    key(
        "model.qk_norm",
        Name(&["none", "layer_norm", "rms_norm"]),
        Some(r#""none""#),
        r#""rms_norm""#,
        "Normalisation of every head's queries and keys, before the encoding.",
    ),
    key(
        "model.attention",
        Name(&["softmax", "linear"]),
        Some(r#""softmax""#),
        r#""linear""#,
        "How a query weighs the keys.",
    ),
    key(
        "model.mask",
        Name(&["causal", "bidirectional"]),
        Some(r#""causal""#),
        r#""bidirectional""#,
        "Which keys a query may see; `bidirectional` is for tasks that hide their answers.",
    ),
    key(
        "model.feature_map",
        Name(&["elu", "relu"]),
        Some(r#""elu""#),
        r#""relu""#,
        "Features of linear attention.",
    ),
    key(
        "model.normalizer",
        Name(&["rotated", "unrotated", "cosine"]),
        Some(r#""unrotated""#),
        r#""rotated""#,
        "What linear attention divides by.",
    ),
    key(
        "model.matmul",
        Name(&["f32", "tf32", "bf16", "bf16_x6", "bf16_x3"]),
        Some(r#""f32""#),
        r#""tf32""#,
        "The format that factors of matrix products are rounded to; a matter of rounding and speed.",
    ),
    key(
        "model.positions",
        Kind::Positions,
        Some(r#"{ kind = "contiguous" }"#),
        r#"{ kind = "randomized" }"#,
        "Where training and tests put their tokens.",
    ),
    key(
        "model.coordinates",
        Name(&["positions", "task"]),
        Some(r#""positions""#),
        r#""task""#,
        "Where the coordinates of encodings of several axes come from.",
    ),
    key(
        "model.coordinate_shift",
        Whole(0, 1_000_000),
        Some("0"),
        "99",
        "Training moves all coordinates of the task but 0 by a number up to this, drawn per batch.",
    ),
    key(
        "model.pe",
        Kind::Encoding,
        None,
        r#"{ kind = "rope" }"#,
        "The positional encoding.",
    ),
    key(
        "train.train_len",
        Whole(1, LONGEST),
        None,
        "64",
        "Longest length trained on, in the task's unit: bytes, symbols.",
    ),
    key(
        "train.steps",
        Whole(1, 100_000_000),
        None,
        "2000",
        "Optimizer steps.",
    ),
    key(
        "train.batch_size",
        Whole(1, 1 << 16),
        Some("32"),
        "16",
        "Rows per batch.",
    ),
    key(
        "train.length",
        Name(&["fixed", "uniform", "staged"]),
        Some(r#""fixed""#),
        r#""uniform""#,
        "Which lengths the batches have: `train_len`, drawn from `min_len` to `train_len`, or as `stages` say.",
    ),
    key(
        "train.min_len",
        Whole(1, LONGEST),
        Some("1"),
        "8",
        "Shortest length of `length = \"uniform\"`; at most `train_len`.",
    ),
    key(
        "train.stages.N.steps",
        Whole(1, 100_000_000),
        None,
        "900",
        "Steps of a stage of `length = \"staged\"`; together all the steps.",
    ),
    key(
        "train.stages.N.train_len",
        Whole(1, LONGEST),
        None,
        "32",
        "Length of every row of a stage; the longest is `train.train_len`.",
    ),
    key(
        "train.stages.N.batch_size",
        Whole(1, 1 << 16),
        Some("train.batch_size"),
        "8",
        "Rows per batch of a stage.",
    ),
    key(
        "train.stages.N.positions",
        Kind::Positions,
        Some("model.positions"),
        r#"{ kind = "randomized" }"#,
        "Where a stage puts its tokens.",
    ),
    key(
        "train.stages.N.pe",
        Kind::Encoding,
        Some("model.pe"),
        r#"{ kind = "nope" }"#,
        "The encoding of a stage; that of the last stage is evaluated.",
    ),
    key(
        "train.start_from",
        Text,
        Some("drawn weights"),
        r#""../runs/base""#,
        "Directory with one recorded run of every seed, whose weights training starts from.",
    ),
    key(
        "train.lr",
        Number(1e-12, 1e9),
        Some("0.001"),
        "3e-4",
        "Highest learning rate.",
    ),
    key(
        "train.warmup_steps",
        Whole(0, 100_000_000),
        Some("steps / 20"),
        "100",
        "Steps of linear warm-up; at most `steps`.",
    ),
    key(
        "train.final_lr",
        Number(0.0, 1.0),
        Some("0.1"),
        "0",
        "Where the cosine ends, as a fraction of `lr`.",
    ),
    key(
        "train.grad_clip",
        Number(0.0, 1e9),
        Some("1"),
        "0.5",
        "Largest global norm of the gradient; 0 turns clipping off.",
    ),
    key(
        "train.adamw.beta1",
        Number(0.0, 0.999_999),
        Some("0.9"),
        "0.95",
        "AdamW's decay of the first moment.",
    ),
    key(
        "train.adamw.beta2",
        Number(0.0, 0.999_999_9),
        Some("0.999"),
        "0.98",
        "AdamW's decay of the second moment.",
    ),
    key(
        "train.adamw.eps",
        Number(1e-16, 1.0),
        Some("1e-8"),
        "1e-6",
        "Added to the root of AdamW's second moment.",
    ),
    key(
        "train.adamw.weight_decay",
        Number(0.0, 1e3),
        Some("0.01"),
        "0.1",
        "AdamW's decoupled weight decay, times the learning rate of the step.",
    ),
    key(
        "eval.test_lens",
        Wholes(1, LONGEST),
        None,
        "[64, 128, 256]",
        "1 to 1000 lengths to test at, in the task's unit.",
    ),
    key(
        "eval.seed",
        Whole(0, u64::MAX >> 1),
        Some("0"),
        "1",
        "Names the test sets.",
    ),
    key(
        "eval.rows",
        Name(&["test", "selection"]),
        Some(r#""test""#),
        r#""selection""#,
        "Which rows are scored: those of results, or those that `[select]` chooses by.",
    ),
    key(
        "eval.batch_tokens",
        Whole(1, 1 << 24),
        Some("4096"),
        "16384",
        "Tokens per batch of evaluation; a longer sequence is a batch by itself.",
    ),
    key(
        "eval.decode",
        Name(&["teacher_forced", "greedy", "auto"]),
        Some(r#""teacher_forced""#),
        r#""greedy""#,
        "How answers are read off the model; `auto` decodes greedily where the result differs.",
    ),
    key(
        "eval.last_tokens",
        Whole(1, LONGEST),
        Some("none"),
        "16",
        "Also report the loss over the last predictions of every window of text; at most the shortest test length.",
    ),
    key(
        "eval.attention_distance",
        Truth,
        Some("false"),
        "true",
        "Whether the mean attention distance of every head is recorded.",
    ),
    key(
        "eval.every",
        Whole(1, 100_000_000),
        Some("none"),
        "200",
        "Steps between two scores taken while training; at most `train.steps`.",
    ),
    key(
        "eval.during",
        Wholes(1, LONGEST),
        Some("eval.test_lens"),
        "[64, 256]",
        "The test lengths scored while training, under the trained encoding; some of `test_lens`.",
    ),
    key(
        "eval.variants.N.name",
        Text,
        None,
        r#""yarn""#,
        "Names the variant in tables and plots.",
    ),
    key(
        "eval.variants.N.when",
        Kind::EncodingKeys,
        Some("every encoding"),
        r#"{ kind = "rope" }"#,
        "Keys and values the trained encoding must have for the variant to apply.",
    ),
    key(
        "eval.variants.N.set",
        Kind::EncodingKeys,
        Some("{}"),
        r#"{ scaling = { kind = "yarn" } }"#,
        "Keys to change in the trained encoding; with `kind`, another encoding.",
    ),
    key(
        "eval.variants.N.add",
        Kind::Encodings,
        Some("none"),
        r#"{ kind = "window" }"#,
        "Encodings to stack on the trained one, after `set`.",
    ),
    key(
        "eval.variants.N.positions",
        Kind::Positions,
        Some("model.positions"),
        r#"{ kind = "interpolated" }"#,
        "Where tests put their tokens under this variant.",
    ),
    key(
        "report.claims",
        Text,
        Some("none"),
        r#""claims.toml""#,
        "A file of a source's claims that the report checks the records against.",
    ),
    key(
        "report.assertions",
        Truth,
        Some("false"),
        "true",
        "Whether the report checks published findings that every correct suite shows.",
    ),
];
