//! Words of other programs, each with what stands for it here: transformers, vLLM, llama.cpp,
//! nanoGPT, x-transformers and benchmarks.

/// A key of another program.
#[derive(Clone, Copy, Debug)]
pub struct ForeignKey {
    /// The key as the other program writes it.
    pub word: &'static str,
    /// The whole key that stands for it here; empty if none does.
    pub key: &'static str,
    /// What it means, and how its value becomes one of here; empty if both keys mean the same and
    /// the names say what.
    pub means: &'static str,
    /// Whether the value stays as it is.
    pub same: bool,
}

/// A kind of another program.
#[derive(Clone, Copy, Debug)]
pub struct ForeignKind {
    /// The kind as the other program writes it.
    pub word: &'static str,
    /// What it is a kind of.
    pub of: Of,
    /// The kind that stands for it here; empty if none does.
    pub kind: &'static str,
    /// What it means.
    pub means: &'static str,
}

/// What a kind is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Positional encodings.
    Encoding,
    /// Rescalings of rotary frequencies.
    Scaling,
    /// Tasks.
    Task,
}

/// A table of keys: `same` or `other`, the word, what stands for it, what it means.
macro_rules! keys {
    ($($value:ident $word:literal is $key:literal $(, $means:expr)?;)+) => {
        /// Keys, in groups by what they set.
        pub const FOREIGN_KEYS: &[ForeignKey] = &[$(ForeignKey {
            word: $word,
            key: $key,
            means: concat_means!($($means)?),
            same: is_same!($value),
        }),+];
    };
}

/// A table of kinds: the word, what it is a kind of, the kind that stands for it, what it means.
macro_rules! kinds {
    ($($word:literal is $of:ident $kind:literal $(, $means:expr)?;)+) => {
        /// Kinds of encodings, scalings and tasks.
        pub const FOREIGN_KINDS: &[ForeignKind] = &[$(ForeignKind {
            word: $word,
            of: Of::$of,
            kind: $kind,
            means: concat_means!($($means)?),
        }),+];
    };
}

macro_rules! concat_means {
    () => {
        ""
    };
    ($means:expr) => {
        $means
    };
}

macro_rules! is_same {
    (same) => {
        true
    };
    (other) => {
        false
    };
}

const BASE: &str = "the base of the rotary frequencies";
const L: &str = "the length trained before the scaling";
const PARTIAL: &str = "rotary_dim = factor * head_dim";
const ROPE_TABLE: &str = "its `rope_theta` is `model.pe.base`, its `rope_type` the `kind` of the \
                          scaling; `longreach inspect --model-config config.json` writes it";

const ATTN_FACTOR: &str = "it multiplies 0.1 ln(factor) + 1 there and replaces it here: \
                           attention_factor = attn_factor * (0.1 ln(factor) + 1); leave out an \
                           attn_factor of 1";

keys! {
    // Rotary encodings.
    same "theta" is "model.pe.base", BASE;
    same "rope_theta" is "model.pe.base", BASE;
    same "theta_base" is "model.pe.base", BASE;
    same "rope_base" is "model.pe.base", BASE;
    same "rotary_base" is "model.pe.base", BASE;
    same "rotary_emb_base" is "model.pe.base", BASE;
    same "rope_freq_base" is "model.pe.base", BASE;
    same "freq_base" is "model.pe.base", BASE;
    same "rotary_emb_dim" is "model.pe.rotary_dim";
    same "rot_dim" is "model.pe.rotary_dim";
    same "n_rot" is "model.pe.rotary_dim";
    other "partial_rotary_factor" is "model.pe.rotary_dim", PARTIAL;
    other "rotary_pct" is "model.pe.rotary_dim", PARTIAL;
    other "rope_pct" is "model.pe.rotary_dim", PARTIAL;
    other "rotary_percent" is "model.pe.rotary_dim", PARTIAL;
    other "is_neox_style" is "model.pe.layout", "true is \"half\", false is \"interleaved\"";
    other "rope_interleave" is "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "rotary_interleaved" is "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "interleaved" is "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "rope_scaling" is "model.pe.scaling", ROPE_TABLE;
    other "rope_parameters" is "model.pe.scaling", ROPE_TABLE;
    same "type" is "kind";
    other "rope_type" is "model.pe.scaling.kind",
        "`default` is no scaling at all, and `dynamic` is `dynamic_ntk`";
    same "scaling_factor" is "model.pe.scaling.factor", "the test length over the training length";
    same "rope_scaling_factor" is "model.pe.scaling.factor";
    other "rope_freq_scale" is "model.pe.scaling.factor", "factor is 1 over it";
    other "freq_scale" is "model.pe.scaling.factor", "factor is 1 over it";
    other "rotary_interpolation_factor" is "model.pe.scaling",
        "with its value as f: { kind = \"linear\", factor = f }";
    other "rotary_base_rescale_factor" is "model.pe.scaling",
        "with its value as f: { kind = \"ntk\", factor = f }";
    same "original_max_position" is "model.pe.scaling.original_max_position_embeddings", L;
    same "original_context_length" is "model.pe.scaling.original_max_position_embeddings", L;
    same "yarn_orig_ctx" is "model.pe.scaling.original_max_position_embeddings", L;
    same "n_ctx_orig" is "model.pe.scaling.original_max_position_embeddings", L;
    same "yarn_beta_fast" is "model.pe.scaling.beta_fast";
    same "yarn_beta_slow" is "model.pe.scaling.beta_slow";
    other "attn_factor" is "model.pe.scaling.attention_factor", ATTN_FACTOR;
    other "yarn_attn_factor" is "model.pe.scaling.attention_factor", ATTN_FACTOR;
    other "extrapolation_factor" is "", "the share of the ramp; its default 1 is what yarn does";
    other "yarn_ext_factor" is "", "the share of the ramp; 1 is what yarn does, 0 is linear";
    other "ext_factor" is "", "the share of the ramp; 1 is what yarn does, 0 is linear";
    other "short_factor" is "", "only longrope has a factor for each pair";
    other "long_factor" is "", "only longrope has a factor for each pair";
    other "mrope_section" is "model.pe", "several axes are { kind = \"axial_rope\" }";
    other "no_rope_layers" is "model.pe", "layers without rotation are { kind = \"nope_layers\" }";
    other "layer_types" is "model.pe", "an encoding for each layer is { kind = \"by_layer\" }";
    other "sliding_window" is "model.pe",
        "a window is { kind = \"window\", size = N }, stacked on another encoding";
    other "grp_attn_n" is "model.pe.group", "the group size of self_extend";
    // Other encodings.
    other "position_embedding_type" is "model.pe.kind", "`longreach list encodings` has the kinds";
    other "pos_emb" is "model.pe.kind", "`longreach list encodings` has the kinds";
    same "relative_attention_num_buckets" is "model.pe.num_buckets", "the buckets of t5";
    same "rel_pos_num_buckets" is "model.pe.num_buckets", "the buckets of t5";
    same "relative_attention_max_distance" is "model.pe.max_distance", "the last bucket of t5";
    same "rel_pos_max_distance" is "model.pe.max_distance", "the last bucket of t5";
    other "alibi_bias_max" is "model.pe.slopes",
        "one slope per head: of H heads, a power of two, head h has 2^(-alibi_bias_max h / H)";
    other "alibi" is "model.pe", "{ kind = \"alibi\" }";
    other "alibi_pos_bias" is "model.pe", "{ kind = \"alibi\" }";
    other "rotary_pos_emb" is "model.pe", "{ kind = \"rope\" }";
    other "rotary_xpos" is "model.pe", "{ kind = \"xpos\" }";
    other "rel_pos_bias" is "model.pe", "{ kind = \"t5\" }";
    other "use_abs_pos_emb" is "model.pe",
        "true is { kind = \"learned\" }, false { kind = \"nope\" }";
    other "scaled_sinu_pos_emb" is "model.pe", "{ kind = \"sinusoidal\" }";
    // The model.
    same "n_embd" is "model.d_model", "the width";
    same "dim" is "model.d_model", "the width";
    same "hidden_size" is "model.d_model", "the width";
    same "embed_dim" is "model.d_model", "the width";
    same "intermediate_size" is "model.d_ff";
    same "ffn_dim" is "model.d_ff";
    same "n_inner" is "model.d_ff";
    other "ff_mult" is "model.d_ff", "d_ff is ff_mult * d_model";
    same "num_heads" is "model.n_heads";
    same "n_head" is "model.n_heads";
    same "heads" is "model.n_heads";
    same "num_attention_heads" is "model.n_heads";
    same "num_layers" is "model.n_layers";
    same "n_layer" is "model.n_layers";
    same "depth" is "model.n_layers";
    same "num_hidden_layers" is "model.n_layers";
    same "d_head" is "model.head_dim";
    same "attn_dim_head" is "model.head_dim";
    same "dim_head" is "model.head_dim";
    same "tie_word_embeddings" is "model.tied_head";
    same "tie_embedding" is "model.tied_head";
    other "attn_qk_norm" is "model.qk_norm",
        "there is no l2 norm with a scale; \"rms_norm\" is the nearest";
    other "use_qk_norm" is "model.qk_norm", "true is \"rms_norm\", false is \"none\"";
    other "hidden_act" is "model.activation",
        "\"silu\" in a Llama is \"swiglu\", \"gelu\" is \"gelu\"";
    other "causal" is "model.mask", "true is \"causal\", false is \"bidirectional\"";
    other "num_key_value_heads" is "", "every head has its own keys and values here";
    other "n_kv_head" is "", "every head has its own keys and values here";
    other "attention_dropout" is "", "only `model.dropout` is here; attention weights have none";
    other "bias" is "model.biases", "that of the linear layers; LayerNorm always has its shift";
    other "attention_bias" is "model.biases", "one key for attention and the feed-forward half";
    other "mlp_bias" is "model.biases", "one key for attention and the feed-forward half";
    other "rms_norm_eps" is "", "it is 1e-5 here";
    other "layer_norm_eps" is "", "it is 1e-5 here";
    other "initializer_range" is "model.matrix_std",
        "that of matrices; `model.embedding_std` is that of embeddings";
    other "vocab_size" is "", "the task sets it";
    other "num_tokens" is "", "the task sets it";
    // Training.
    other "block_size" is "train.train_len",
        "the length of a row in training; not `batch_size`, which is their number";
    same "max_seq_len" is "train.train_len";
    same "max_seq_length" is "train.train_len";
    same "context_length" is "train.train_len";
    same "sequence_length" is "train.train_len";
    same "ctx_size" is "train.train_len";
    same "n_ctx" is "train.train_len";
    same "seq_len" is "train.train_len";
    same "max_length" is "train.train_len";
    other "max_position_embeddings" is "train.train_len",
        "the length trained at; the rows of a learned table are `model.pe.max_position`";
    other "n_positions" is "train.train_len",
        "the length trained at; the rows of a learned table are `model.pe.max_position`";
    other "max_model_len" is "eval.test_lens", "a list: the lengths tested at";
    same "learning_rate" is "train.lr";
    same "iters" is "train.steps";
    same "max_iters" is "train.steps";
    same "max_steps" is "train.steps";
    same "batch" is "train.batch_size";
    same "per_device_train_batch_size" is "train.batch_size", "on one device";
    other "gradient_accumulation_steps" is "train.batch_size", "multiply the batch size by it";
    other "num_train_epochs" is "train.steps", "steps = rows seen / batch_size";
    other "epochs" is "train.steps", "steps = rows seen / batch_size";
    other "optimizer" is "", "AdamW is the only optimizer; `train.adamw` has its settings";
    same "warmup" is "train.warmup_steps";
    same "warmup_iters" is "train.warmup_steps";
    other "warmup_ratio" is "train.warmup_steps", "multiply it by train.steps";
    other "min_lr" is "train.final_lr", "divide it by the highest rate: final_lr is a fraction";
    other "lr_decay_iters" is "", "the rate falls until the last step here";
    other "decay_lr" is "train.final_lr", "false is final_lr = 1";
    other "lr_scheduler_type" is "train.schedule",
        "\"cosine\" and \"linear\" fall to final_lr * lr, which is 0 there: final_lr = 0";
    same "clip" is "train.grad_clip";
    same "max_grad_norm" is "train.grad_clip";
    same "gradient_clipping" is "train.grad_clip";
    same "wd" is "train.adamw.weight_decay";
    same "adam_beta1" is "train.adamw.beta1";
    same "adam_beta2" is "train.adamw.beta2";
    same "adam_epsilon" is "train.adamw.eps";
    same "eval_interval" is "eval.every", "steps between two scores";
    same "eval_steps" is "eval.every", "steps between two scores";
    other "eval_iters" is "", "`task.eval_tokens` is how much of a text is scored";
    same "lengths" is "eval.test_lens";
    // The file.
    same "sweep" is "axes";
    same "grid" is "axes";
    same "matrix" is "axes";
    same "append" is "add";
    same "plus" is "add";
    same "with" is "add";
}

kinds! {
    "rotary" is Encoding "rope";
    "rotary_pos_emb" is Encoding "rope";
    "rotary_embedding" is Encoding "rope";
    "roformer" is Encoding "rope", "with layout = \"interleaved\"";
    "llama" is Encoding "rope";
    "none" is Encoding "nope";
    "no_pos" is Encoding "nope";
    "absolute" is Encoding "learned";
    "abs" is Encoding "learned";
    "abs_pos_emb" is Encoding "learned";
    "wpe" is Encoding "learned", "nanoGPT's table";
    "gpt2" is Encoding "learned";
    "sin" is Encoding "sinusoidal";
    "sine" is Encoding "sinusoidal";
    "scaled_sinu_pos_emb" is Encoding "sinusoidal";
    "relative_key" is Encoding "shaw", "with values = false";
    "relative" is Encoding "shaw";
    "rel_pos_bias" is Encoding "t5";
    "relative_bias" is Encoding "t5";
    "t5_bias" is Encoding "t5";
    "alibi_pos_bias" is Encoding "alibi";
    "linear_bias" is Encoding "alibi";
    "forgetting" is Encoding "fox";
    "data_dependent_alibi" is Encoding "fox";
    "polar_pos_emb" is Encoding "pope";
    "rotary_xpos" is Encoding "xpos";
    "mrope" is Encoding "axial_rope";
    "sliding_window" is Encoding "window", "on top of another encoding in a `stack`";
    "streaming_llm" is Encoding "window", "with sinks = 4, on top of rope in a `stack`";
    "irope" is Encoding "nope_layers";
    "nape" is Encoding "by_head", "parts = [nope, alibi]";
    "default" is Scaling "", "no scaling: leave `scaling` out";
    "none" is Scaling "", "no scaling: leave `scaling` out";
    "mrope" is Scaling "", "no scaling: several axes are pe = { kind = \"axial_rope\" }";
    "dynamic" is Scaling "dynamic_ntk";
    "su" is Scaling "longrope";
    "su_rope" is Scaling "longrope";
    "deepseek_yarn" is Scaling "yarn", "its mscale and mscale_all_dim are keys of yarn";
    "pi" is Scaling "linear", "position interpolation";
    "position_interpolation" is Scaling "linear";
    "ntk_aware" is Scaling "ntk";
    "p_rope" is Scaling "proportional";
    "char_lm" is Task "text";
    "lm" is Task "text";
    "shakespeare_char" is Task "text", "with corpus = \"tinyshakespeare\"";
    "openwebtext" is Task "text", "with the path of your files as `corpus`";
    "associative_recall" is Task "mqar";
    "multi_query_ar" is Task "mqar";
    "niah" is Task "needles";
    "needle_in_a_haystack" is Task "needles";
    "niah_single" is Task "needles";
    "niah_multikey" is Task "needles";
    "vt" is Task "variable_tracking";
    "pass_key" is Task "passkey";
    "induction_heads" is Task "induction";
    "mod_arith" is Task "modular_arithmetic";
    "parity_check" is Task "parity";
    "flipflop" is Task "flip_flop";
    "dfa" is Task "automaton";
    "regular" is Task "automaton", "with a `language`";
    "tomita" is Task "automaton", "with language = \"tomita_1\" to \"tomita_7\"";
    "jsonlines" is Task "jsonl";
    "mlm" is Task "masked_text";
}

/// A word with small letters and underscores alone.
fn plain(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// The key of another program, if `word` is one.
pub(super) fn key(word: &str) -> Option<&'static ForeignKey> {
    let word = plain(word);
    FOREIGN_KEYS.iter().find(|foreign| foreign.word == word)
}

/// What to write for a key of another program in a table with the keys `known`.
pub fn key_help(word: &str, known: &[String]) -> Option<String> {
    let foreign = key(word)?;
    let ForeignKey { key, means, .. } = foreign;
    if key.is_empty() {
        return Some(format!("`{word}` has no key here: {means}"));
    }
    let last = key.rsplit('.').next().unwrap_or(key);
    let here = if known.iter().any(|name| name == last) {
        last
    } else {
        key
    };
    // A name without a place is no help in a table that does not have it.
    if !here.contains('.') && !known.iter().any(|name| name == here) {
        return None;
    }
    Some(match *means {
        "" => format!("`{word}` is `{here}` here"),
        means => format!("`{word}` is `{here}` here: {means}"),
    })
}

/// What to write for a kind of another program where the kinds `known` are allowed.
pub fn kind_help(word: &str, known: &[String], of_scaling: bool) -> Option<String> {
    let plain = plain(word);
    let is_known = |name: &str| known.iter().any(|known| known == name);
    let mut named = FOREIGN_KINDS.iter().filter(|foreign| foreign.word == plain);
    named.find_map(
        |ForeignKind {
             of, kind, means, ..
         }| {
            let means_also = if means.is_empty() {
                String::new()
            } else {
                format!(", {means}")
            };
            match (of, *kind) {
                (Of::Scaling, "") if of_scaling => Some(format!("`{word}` is {means}")),
                (_, "") => None,
                (_, kind) if is_known(kind) => {
                    Some(format!("`{word}` is `{kind}` here{means_also}"))
                }
                (Of::Scaling, kind) if is_known("rope") => Some(format!(
                    "`{word}` is a scaling of rope here: {{ kind = \"rope\", scaling = {{ kind = \
                 \"{kind}\" }} }}"
                )),
                _ => None,
            }
        },
    )
}
