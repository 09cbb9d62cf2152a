//! `[model]`: its keys as written, and what they make: sizes, the encoding, and where tokens stand.

use super::before::TrainedBefore;
use super::coordinates::{check_coordinates, check_shift};
use super::ranges::refused;
use crate::spec::Coordinates;
use crate::spec::{ModelSpec, TrainSpec};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::{ConfigError, EncodingConfig, Facts, Lengths, PositionsConfig};
use tasks::Task;
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, Mask, Matmul, MlpKind, NormKind, Normalizer, QkNorm,
    TransformerConfig,
};

/// Most trainable numbers: with gradients and the optimizer's moments 16 GiB.
const MAX_PARAMETERS: u64 = 1 << 30;

config::options! {
/// `[model]`. [`transformer`] turns it into a `TransformerConfig`; it is not one, because a reader
/// that flattens a struct into another loses the list of allowed keys for its errors.
["model."] pub(crate) struct ModelSection {
    d_model: usize
        => Whole(1, 1 << 16), "64", "Width of the residual stream.", "this suite is for small models";
    n_layers: usize
        => Whole(1, 1024), "2", "Number of blocks.", "2 is usual for a small model";
    n_heads: usize
        => Whole(1, 1024), "4", "Attention heads per block; divides `d_model` unless `head_dim` is given.", "set it to at least 1";
    head_dim: Option<usize> = or("d_model / n_heads")
        => Whole(1, 1 << 14), "16", "Width of one head.";
    d_ff: Option<usize> = or("4 * d_model")
        => Whole(0, 1 << 18), "256", "Inner width of the feed-forward half.";
    mlp: MlpKind = unset(r#""dense""#)
        => Name(&["dense", "none"]), r#""none""#, "The feed-forward half of a block; with `none` blocks are attention alone.";
    norm: NormKind = unset(r#""layer_norm""#)
        => Name(&["layer_norm", "rms_norm"]), r#""rms_norm""#, "Normalisation before each half of a block and before the head.";
    activation: Activation = unset(r#""gelu""#)
        => Name(&["gelu", "swiglu"]), r#""swiglu""#, "Non-linearity of the feed-forward half.";
    tied_head: bool = false
        => Truth, "true", "Whether the head is the transposed embedding.";
    biases: bool = false
        => Truth, "true", "Whether the linear layers of blocks have biases, as GPT-2's.";
    dropout: f64 = 0.0
        => Number(0.0, 0.99), "0.1", "Probability of zeroing an element after the embedding and after each half of a block, in training.";
    embedding_std: f64 = 0.02
        => Number(1e-6, 10.0), "1.0", "Standard deviation of the initial embedding.";
    matrix_std: Option<f64> = or("1 / sqrt(3 fan_in)")
        => Number(1e-6, 10.0), "0.02", "Standard deviation of initial matrices, as GPT-2's 0.02; those that write to the residual stream are divided by the root of the number of residual sums.";
    qk_norm: QkNorm = unset(r#""none""#)
        => Name(&["none", "layer_norm", "rms_norm"]), r#""rms_norm""#, "Normalisation of every head's queries and keys, before the encoding.";
    attention: AttentionKind = unset(r#""softmax""#)
        => Name(&["softmax", "linear"]), r#""linear""#, "How a query weighs the keys.";
    mask: Mask = unset(r#""causal""#)
        => Name(&["causal", "bidirectional"]), r#""bidirectional""#, "Which keys a query may see; with `bidirectional` the input of a task in symbols has a blank for each token of the answer.";
    feature_map: FeatureMap = unset(r#""elu""#)
        => Name(&["elu", "relu"]), r#""relu""#, "Features phi of linear attention: `elu` is elu(x) + 1, `relu` max(x, 0).";
    normalizer: Normalizer = unset(r#""unrotated""#)
        => Name(&["rotated", "unrotated", "cosine"]), r#""rotated""#, "What linear attention divides by: sums of features before (`unrotated`) or after (`rotated`) the encoding; `cosine` has weights 1 + cosine and no feature map.";
    matmul: Matmul = unset(r#""f32""#)
        => Name(&["f32", "tf32", "bf16"]), r#""tf32""#, "The format that factors of matrix products are rounded to; affects only rounding and speed.";
    positions: PositionsConfig = unset(r#"{ kind = "contiguous" }"#)
        => Positions, r#"{ kind = "randomized" }"#, "Where training and tests put their tokens.";
    coordinates: Coordinates = unset(r#""positions""#)
        => Name(&["positions", "task"]), r#""task""#, "Where `axial_rope` and `on_axis` take the coordinates of tokens from.";
    coordinate_shift: usize = 0
        => Whole(0, 1_000_000), "99", "Training moves all coordinates of the task but 0 by a number up to this, drawn per batch.", "Abacus is trained with 99; 0 moves nothing";
    pe: EncodingConfig
        => Encoding, r#"{ kind = "rope" }"#, "The positional encoding.";
}
}

/// The lengths that defaults of an encoding depend on, in tokens. `before`: the length trained on
/// before the encoding came in.
pub(super) fn lengths(
    train: &TrainSpec,
    task: &dyn Task,
    test_len: usize,
    before: usize,
) -> Lengths {
    Lengths {
        train_len: train.seq_len,
        trained_len: before,
        test_len: task.seq_len(test_len),
    }
}

/// Longest test, in tokens.
pub(super) fn longest_test(task: &dyn Task, test_lens: &[usize]) -> usize {
    let tokens = test_lens.iter().map(|length| task.seq_len(*length));
    tokens.max().unwrap_or(0)
}

/// The transformer with its encoding and positions, all defaults that depend on lengths resolved.
pub(super) fn resolve(
    cell: &Cell,
    written: &ModelSection,
    (pe_key, pe): &(String, EncodingConfig),
    transformer: TransformerConfig,
    (train, before): (&TrainSpec, &TrainedBefore<'_>),
    task: &dyn Task,
    test_lens: &[usize],
) -> Result<ModelSpec, Diagnostic> {
    let lengths = |before: usize| lengths(train, task, train.train_len, before);
    let mut pe = pe.clone();
    pe.resolve(&lengths(before.encoding(&pe)));
    let shape = transformer.shape();
    pe.check(&shape)
        .map_err(|error| refused(cell, pe_key, &error))?;
    let facts = pe.facts(&shape);
    transformer
        .check_encoding(&facts)
        .map_err(|error| refused(cell, "model", &error))?;
    let mut positions = written.positions.clone();
    let since = before.positions(&positions);
    positions.resolve(&lengths(since), longest_test(task, test_lens));
    check_positions(&positions, &facts, &transformer, train.seq_len)
        .map_err(|error| refused(cell, "model.positions", &error))?;
    check_coordinates(written.coordinates, &positions, &facts, task)
        .map_err(|error| refused(cell, "model", &error))?;
    let rows = positions.rows(train.seq_len);
    check_reach(cell, pe_key, &facts, rows, train.seq_len)?;
    let (coordinates, shift) = (written.coordinates, written.coordinate_shift);
    let read = (pe_key.as_str(), &facts);
    check_shift(cell, coordinates, shift, read, task, train.train_len)?;
    Ok(ModelSpec {
        transformer,
        positions,
        coordinates: written.coordinates,
        coordinate_shift: written.coordinate_shift,
        pe,
    })
}

/// Refuses a table of positions that ends before the training sequences do.
pub(super) fn check_reach(
    cell: &Cell,
    pe_key: &str,
    facts: &Facts,
    rows: usize,
    seq_len: usize,
) -> Result<(), Diagnostic> {
    let Some(limit) = facts.max_position.filter(|limit| *limit < rows) else {
        return Ok(());
    };
    let reach = if rows == seq_len {
        String::new()
    } else {
        format!(" at positions up to {}", rows - 1)
    };
    let problem = format!("is shorter than the training sequences of {seq_len} tokens{reach}");
    let allowed = format!("{rows} or more");
    let key = format!("{pe_key}.max_position");
    let help = format!("set {key} to at least {rows}");
    let error = cell.error(&key, &problem, &allowed, &help);
    Err(error.with_value(limit))
}

/// Refuses a model that is too large to train here; returns its size.
pub(super) fn check_parameters(cell: &Cell, model: &ModelSpec) -> Result<u64, Diagnostic> {
    let facts = model.pe.facts(&model.transformer.shape());
    let parameters = model.transformer.num_params(&facts);
    if parameters <= MAX_PARAMETERS {
        return Ok(parameters);
    }
    let allowed = format!("at most {MAX_PARAMETERS} of them");
    let help = "lower d_model, d_ff, n_layers, head_dim or the size of a table of model.pe";
    let error = cell.error("model", "has too many parameters", &allowed, help);
    Err(error.with_value(format!("{parameters} parameters")))
}

/// Sizes and variants of the transformer, defaults filled in.
pub(super) fn transformer(
    cell: &Cell,
    written: &ModelSection,
    vocab_size: usize,
) -> Result<TransformerConfig, Diagnostic> {
    written.check_ranges(cell)?;
    let head_dim = head_dim(cell, written)?;
    let config = TransformerConfig::new(vocab_size)
        .with_d_model(written.d_model)
        .with_heads(written.n_heads)
        .with_layers(written.n_layers)
        .with_head_dim(head_dim)
        .with_mlp(written.mlp)
        .with_norm(written.norm)
        .with_activation(written.activation)
        .with_tied_head(written.tied_head)
        .with_biases(written.biases)
        .with_dropout(written.dropout)
        .with_embedding_std(written.embedding_std)
        .with_matrix_std(written.matrix_std)
        .with_attention(written.attention)
        .with_mask(written.mask)
        .with_feature_map(written.feature_map)
        .with_normalizer(written.normalizer)
        .with_qk_norm(written.qk_norm)
        .with_matmul(written.matmul);
    let config = match written.d_ff {
        Some(d_ff) => config.with_d_ff(d_ff),
        None => config,
    };
    config
        .check()
        .map_err(|error| refused(cell, "model", &error))?;
    Ok(config)
}

/// The width of a head as written, or that of equal parts of the model's width.
fn head_dim(cell: &Cell, written: &ModelSection) -> Result<usize, Diagnostic> {
    let (d_model, n_heads) = (written.d_model, written.n_heads);
    if let Some(head_dim) = written.head_dim {
        return Ok(head_dim);
    }
    if d_model.is_multiple_of(n_heads) {
        return Ok(d_model / n_heads);
    }
    let divisors: Vec<usize> = (1..=d_model.min(1024))
        .filter(|n| d_model.is_multiple_of(*n))
        .collect();
    let distance = |n: &&usize| n.abs_diff(n_heads);
    let nearest = divisors.iter().min_by_key(distance).copied().unwrap_or(1);
    let allowed: Vec<String> = divisors.iter().map(ToString::to_string).collect();
    let problem = format!("must divide d_model = {d_model}");
    let help = format!("set model.n_heads to {nearest}, or give model.head_dim");
    let error = cell.error("model.n_heads", &problem, &allowed.join(", "), &help);
    Err(error.with_value(n_heads))
}

/// Refuses a model that sees what comes after a token with a task whose answers stand there.
pub(super) fn check_sees_no_answer(
    cell: &Cell,
    model: &TransformerConfig,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    if model.mask == Mask::Causal || task.hides_answers() {
        return Ok(());
    }
    let problem = format!(
        "lets the model read the answers of task `{}`, each of which is the next token",
        task.kind()
    );
    let help = "remove it, or use masked_text, whose answers are hidden, or a task in symbols, \
                where they are blanks";
    Err(cell
        .error("model.mask", &problem, "causal", help)
        .with_value("bidirectional"))
}

/// Refuses positions that the encoding cannot see, or that sequences of a length do not fit into.
/// Keys are those of the table of positions.
pub(super) fn check_positions(
    positions: &PositionsConfig,
    facts: &Facts,
    model: &TransformerConfig,
    seq_len: usize,
) -> Result<(), ConfigError> {
    positions.check(facts)?;
    let replaced = matches!(positions, PositionsConfig::RandomizedDistances(_));
    if replaced && facts.hooks.logits_bias && model.attention == AttentionKind::Linear {
        let problem = "turns the bias into something that is not a decay, and linear attention \
                       only supports decays";
        let help = "use kind = \"randomized\", or attention = \"softmax\"";
        let (kind, allowed) = (positions.kind(), "other positions");
        return Err(ConfigError::new("kind", kind, problem, allowed, help));
    }
    let Some(longest) = positions
        .max_train_len()
        .filter(|longest| *longest < seq_len)
    else {
        return Ok(());
    };
    let key = if replaced {
        "max_distance"
    } else {
        "max_position"
    };
    let problem = format!("leaves no room for the training sequences of {seq_len} tokens");
    let allowed = format!("{seq_len} or more");
    let help = "leave it out for four times the training length";
    Err(ConfigError::new(key, longest, problem, allowed, help))
}
