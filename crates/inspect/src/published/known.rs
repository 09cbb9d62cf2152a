//! What is known of published models beside their files.

/// Models with interleaved pairs, `(2i, 2i + 1)`; all others use halves.
pub(super) const INTERLEAVED: [&str; 11] = [
    "cohere",
    "cohere2",
    "glm",
    "glm4",
    "llama4_text",
    "gptj",
    "codegen",
    "ernie4_5",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
];

/// Models with T5's bias.
pub(super) const BUCKETED: [&str; 2] = ["t5", "mt5"];

/// What such a file may hold that no encoding stands for.
pub(super) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "global_head_dim",
        "layers of full attention have heads of this size; here all layers have those of head_dim",
    ),
    (
        "llama_4_scaling_beta",
        "the logits grow with the position beyond training: stack \
        { kind = \"log_scaling\", form = \"llama4\" } on the encoding",
    ),
    (
        "attention_chunk_size",
        "layers with chunks see their chunk alone; here they see everything",
    ),
    (
        "attn_temperature_tuning",
        "the logits of layers without rotation grow with the position; \
        `log_scaling` with form = \"llama4\" is that factor",
    ),
];

/// Models that turn queries and keys although their file may not have a key of a rotation.
pub(super) const TURNING: [&str; 10] = [
    "llama",
    "mistral",
    "mixtral",
    "gemma",
    "olmo",
    "phi",
    "stablelm",
    "internlm",
    "falcon",
    "RefinedWeb",
];

/// Keys of a rotation, whatever their value.
pub(super) const ROTATION: [&str; 10] = [
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_interleave",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_dim",
    "rotary_emb_base",
    "qk_rope_head_dim",
    "no_rope_layers",
];
