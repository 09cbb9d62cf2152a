//! The keys of `[eval]` and `[report]`.

use super::LONGEST;
use crate::plan::key::{Key, Kind, key};
use Kind::{Lengths, Name, Text, Truth, Whole};

/// In the order of a file.
pub(super) const KEYS: &[Key] = &[
    key(
        "eval.test_lens",
        Lengths(1, LONGEST),
        None,
        "[64, 128, \"129..256\"]",
        "1 to 1000 lengths to test at, in the task's unit; `\"51..100\"`: every row draws its own.",
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
        Lengths(1, LONGEST),
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
