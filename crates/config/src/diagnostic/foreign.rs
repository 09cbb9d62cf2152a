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
    ($($value:ident $word:literal => $key:literal $(, $means:expr)?;)+) => {
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
                           attention_factor = attn_factor * (0.1 ln(factor) + 1), and leave \
                           attn_factor = 1 out";

keys! {
    // Rotary encodings.
    same "theta" => "model.pe.base", BASE;
    same "rope_theta" => "model.pe.base", BASE;
    same "theta_base" => "model.pe.base", BASE;
    same "rope_base" => "model.pe.base", BASE;
    same "rotary_base" => "model.pe.base", BASE;
    same "rotary_emb_base" => "model.pe.base", BASE;
    same "rope_freq_base" => "model.pe.base", BASE;
    same "freq_base" => "model.pe.base", BASE;
    same "rotary_emb_dim" => "model.pe.rotary_dim";
    same "rot_dim" => "model.pe.rotary_dim";
    same "n_rot" => "model.pe.rotary_dim";
    other "partial_rotary_factor" => "model.pe.rotary_dim", PARTIAL;
    other "rotary_pct" => "model.pe.rotary_dim", PARTIAL;
    other "rope_pct" => "model.pe.rotary_dim", PARTIAL;
    other "rotary_percent" => "model.pe.rotary_dim", PARTIAL;
    other "is_neox_style" => "model.pe.layout", "true is \"half\", false is \"interleaved\"";
    other "rope_interleave" => "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "rotary_interleaved" => "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "interleaved" => "model.pe.layout", "true is \"interleaved\", false is \"half\"";
    other "rope_scaling" => "model.pe.scaling", ROPE_TABLE;
    other "rope_parameters" => "model.pe.scaling", ROPE_TABLE;
    same "type" => "kind";
    other "rope_type" => "model.pe.scaling.kind",
        "its kinds `default` and `dynamic` are no scaling and `dynamic_ntk` here";
    same "scaling_factor" => "model.pe.scaling.factor", "the test length over the training length";
    same "rope_scaling_factor" => "model.pe.scaling.factor";
    other "rope_freq_scale" => "model.pe.scaling.factor", "factor is 1 over it";
    other "freq_scale" => "model.pe.scaling.factor", "factor is 1 over it";
    other "rotary_interpolation_factor" => "model.pe.scaling",
        "with its value as f: { kind = \"linear\", factor = f }";
    other "rotary_base_rescale_factor" => "model.pe.scaling",
        "with its value as f: { kind = \"ntk\", factor = f }";
    same "original_max_position" => "model.pe.scaling.original_max_position_embeddings", L;
    same "original_context_length" => "model.pe.scaling.original_max_position_embeddings", L;
    same "yarn_orig_ctx" => "model.pe.scaling.original_max_position_embeddings", L;
    same "n_ctx_orig" => "model.pe.scaling.original_max_position_embeddings", L;
    same "yarn_beta_fast" => "model.pe.scaling.beta_fast";
    same "yarn_beta_slow" => "model.pe.scaling.beta_slow";
    other "attn_factor" => "model.pe.scaling.attention_factor", ATTN_FACTOR;
    other "yarn_attn_factor" => "model.pe.scaling.attention_factor", ATTN_FACTOR;
    other "extrapolation_factor" => "", "the share of the ramp; its default 1 is what yarn does";
    other "yarn_ext_factor" => "", "the share of the ramp; 1 is what yarn does, 0 is linear";
    other "mrope_section" => "model.pe", "several axes are { kind = \"axial_rope\" }";
    other "no_rope_layers" => "model.pe", "layers without rotation are { kind = \"nope_layers\" }";
    other "layer_types" => "model.pe", "an encoding for each layer is { kind = \"by_layer\" }";
    other "sliding_window" => "model.pe",
        "a window is { kind = \"window\", size = N }, stacked on another encoding";
    other "grp_attn_n" => "model.pe.group", "the group size of self_extend";
    // Other encodings.
    other "position_embedding_type" => "model.pe.kind", "`longreach list encodings` has the kinds";
    other "pos_emb" => "model.pe.kind", "`longreach list encodings` has the kinds";
    same "relative_attention_num_buckets" => "model.pe.num_buckets", "the buckets of t5";
    same "rel_pos_num_buckets" => "model.pe.num_buckets", "the buckets of t5";
    same "relative_attention_max_distance" => "model.pe.max_distance", "the last bucket of t5";
    same "rel_pos_max_distance" => "model.pe.max_distance", "the last bucket of t5";
    other "alibi_bias_max" => "model.pe.slopes",
        "one slope per head: of H heads, a power of two, head h has 2^(-alibi_bias_max h / H)";
    other "alibi" => "model.pe", "{ kind = \"alibi\" }";
    other "alibi_pos_bias" => "model.pe", "{ kind = \"alibi\" }";
    other "rotary_pos_emb" => "model.pe", "{ kind = \"rope\" }";
    other "rotary_xpos" => "model.pe", "{ kind = \"xpos\" }";
    other "rel_pos_bias" => "model.pe", "{ kind = \"t5\" }";
    other "use_abs_pos_emb" => "model.pe",
        "true is { kind = \"learned\" }, false { kind = \"nope\" }";
    other "scaled_sinu_pos_emb" => "model.pe", "{ kind = \"sinusoidal\" }";
    // The model.
    same "n_embd" => "model.d_model", "the width";
    same "dim" => "model.d_model", "the width";
    same "hidden_size" => "model.d_model", "the width";
    same "embed_dim" => "model.d_model", "the width";
    same "intermediate_size" => "model.d_ff";
    same "ffn_dim" => "model.d_ff";
    same "n_inner" => "model.d_ff";
    other "ff_mult" => "model.d_ff", "d_ff is ff_mult * d_model";
    same "num_heads" => "model.n_heads";
    same "n_head" => "model.n_heads";
    same "heads" => "model.n_heads";
    same "num_attention_heads" => "model.n_heads";
    same "num_layers" => "model.n_layers";
    same "n_layer" => "model.n_layers";
    same "depth" => "model.n_layers";
    same "num_hidden_layers" => "model.n_layers";
    same "d_head" => "model.head_dim";
    same "attn_dim_head" => "model.head_dim";
    same "tie_word_embeddings" => "model.tied_head";
    same "tie_embedding" => "model.tied_head";
    other "attn_qk_norm" => "model.qk_norm",
        "its l2 norm with a scale is not here; \"rms_norm\" is the nearest";
    other "use_qk_norm" => "model.qk_norm", "true is \"rms_norm\", false is \"none\"";
    other "hidden_act" => "model.activation",
        "\"silu\" in a Llama is \"swiglu\", \"gelu\" is \"gelu\"";
    other "causal" => "model.mask", "true is \"causal\", false is \"bidirectional\"";
    other "num_key_value_heads" => "", "every head has its own keys and values here";
    other "n_kv_head" => "", "every head has its own keys and values here";
    other "attention_dropout" => "", "only `model.dropout` is here, which leaves attention alone";
    other "bias" => "", "no layer has biases here";
    other "vocab_size" => "", "the task sets it";
    // Training.
    other "block_size" => "train.train_len",
        "the length of a row in training; not `batch_size`, which is their number";
    same "max_seq_len" => "train.train_len";
    same "max_seq_length" => "train.train_len";
    same "context_length" => "train.train_len";
    same "n_ctx" => "train.train_len";
    same "seq_len" => "train.train_len";
    same "max_length" => "train.train_len";
    other "max_position_embeddings" => "train.train_len",
        "the length trained at; the rows of a learned table are `model.pe.max_position`";
    other "n_positions" => "train.train_len",
        "the length trained at; the rows of a learned table are `model.pe.max_position`";
    other "max_model_len" => "eval.test_lens", "a list: the lengths tested at";
    same "learning_rate" => "train.lr";
    same "iters" => "train.steps";
    same "max_iters" => "train.steps";
    same "max_steps" => "train.steps";
    same "batch" => "train.batch_size";
    same "per_device_train_batch_size" => "train.batch_size", "on one device";
    other "gradient_accumulation_steps" => "train.batch_size", "multiply the batch size by it";
    other "num_train_epochs" => "train.steps", "steps are rows seen over batch_size";
    same "warmup" => "train.warmup_steps";
    same "warmup_iters" => "train.warmup_steps";
    other "warmup_ratio" => "train.warmup_steps", "multiply it by train.steps";
    other "min_lr" => "train.final_lr", "divide it by the highest rate: final_lr is a fraction";
    other "lr_decay_iters" => "", "the rate falls until the last step here";
    other "decay_lr" => "train.final_lr", "false is final_lr = 1";
    other "lr_scheduler_type" => "train.schedule",
        "\"cosine\" and \"linear\" fall to final_lr * lr, which is 0 there: final_lr = 0";
    same "clip" => "train.grad_clip";
    same "max_grad_norm" => "train.grad_clip";
    same "wd" => "train.adamw.weight_decay";
    same "adam_beta1" => "train.adamw.beta1";
    same "adam_beta2" => "train.adamw.beta2";
    same "adam_epsilon" => "train.adamw.eps";
    same "eval_interval" => "eval.every", "steps between two scores";
    same "eval_steps" => "eval.every", "steps between two scores";
    same "lengths" => "eval.test_lens";
    // The file.
    same "sweep" => "axes";
    same "grid" => "axes";
    same "matrix" => "axes";
    same "append" => "add";
    same "plus" => "add";
    same "with" => "add";
}

kinds! {
    "rotary" is Encoding "rope";
    "rotary_pos_emb" is Encoding "rope";
    "roformer" is Encoding "rope", "with layout = \"interleaved\"";
    "llama" is Encoding "rope";
    "none" is Encoding "nope";
    "no_pos" is Encoding "nope";
    "absolute" is Encoding "learned";
    "abs" is Encoding "learned";
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
    "default" is Scaling "", "no scaling: leave `scaling` out";
    "none" is Scaling "", "no scaling: leave `scaling` out";
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
