//! The types of the keys that are read from a `config.json`.

use serde_json::{Map, Value};

/// What a value must be, whether one is, and the keys that are read so.
type Kind = (&'static str, fn(&Value) -> bool, &'static str);

const KINDS: [Kind; 8] = [
    (
        "a whole number above 0",
        |value| value.as_u64().is_some_and(|size| size > 0),
        "hidden_size n_embd d_model num_attention_heads n_head n_heads num_heads num_hidden_layers \
         n_layer n_layers num_layers head_dim",
    ),
    (
        "a whole number",
        Value::is_u64,
        "qk_rope_head_dim qk_nope_head_dim rotary_dim sliding_window max_window_layers no_rope_layer_interval \
         max_position_embeddings original_max_position_embeddings n_positions max_seq_len \
         seq_length \
         relative_attention_num_buckets relative_attention_max_distance",
    ),
    (
        "a number above 0",
        |value| value.as_f64().is_some_and(|number| number > 0.0),
        "rope_theta rotary_emb_base rope_local_base_freq partial_rotary_factor rotary_pct factor \
         alibi_bias_max",
    ),
    ("a number", Value::is_number, "mscale mscale_all_dim"),
    (
        "true or false",
        Value::is_boolean,
        "alibi use_sliding_window rope_interleave",
    ),
    ("a text", Value::is_string, "model_type rope_type type"),
    ("a list", Value::is_array, "layer_types no_rope_layers"),
    ("a table", Value::is_object, TABLES),
];

const TABLES: &str = "rope_scaling rope_parameters full_attention sliding_attention attn_config";

/// Refuses what is of another type: read as absent, it would give the numbers of another model.
pub(super) fn check(table: &Map<String, Value>) -> Result<(), String> {
    for (kind, fits, keys) in KINDS {
        for key in keys.split_whitespace() {
            match table.get(key).filter(|value| !value.is_null()) {
                Some(value) if !fits(value) => {
                    let value = value.to_string();
                    return Err(format!("has `{key}` = {value:.60}, which is not {kind}"));
                }
                _ => {}
            }
        }
    }
    let nested = TABLES.split_whitespace().filter_map(|key| table.get(key));
    nested.filter_map(Value::as_object).try_for_each(check)
}
