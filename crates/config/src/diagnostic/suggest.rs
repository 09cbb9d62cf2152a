//! The name that was probably meant: a misspelling, a part of a name, or the name that other
//! programs use.

/// Names that other programs use, each with the name used here. The second is suggested only
/// where it is allowed.
const ALSO_KNOWN_AS: &[(&str, &str)] = &[
    ("theta", "base"),
    ("rope_theta", "base"),
    ("theta_base", "base"),
    ("type", "kind"),
    ("learning_rate", "lr"),
    ("batch", "batch_size"),
    ("n_embd", "d_model"),
    ("dim", "d_model"),
    ("hidden_size", "d_model"),
    ("intermediate_size", "d_ff"),
    ("num_heads", "n_heads"),
    ("num_layers", "n_layers"),
    ("d_head", "head_dim"),
    ("max_seq_len", "train_len"),
    ("context_length", "train_len"),
    ("seq_len", "train_len"),
    ("iters", "steps"),
    ("max_steps", "steps"),
    ("warmup", "warmup_steps"),
    ("clip", "grad_clip"),
    ("wd", "weight_decay"),
    ("sweep", "axes"),
    ("grid", "axes"),
    ("matrix", "axes"),
    ("append", "add"),
    ("plus", "add"),
    ("with", "add"),
];

/// Longest name that is compared with others: the comparison is quadratic.
const COMPARED: usize = 64;

/// The allowed name that was probably meant, if one is close enough.
pub fn closest<'a>(word: &str, allowed: &'a [String]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let word = word.to_lowercase();
    if word.chars().count() > COMPARED || word.is_empty() {
        return None;
    }
    let near = |name: &str| {
        let edits = strsim::damerau_levenshtein(&word, &name.to_lowercase());
        // At most a third of the longer name may be wrong.
        (edits * 3 <= word.chars().count().max(name.chars().count())).then_some(edits)
    };
    let spelled = allowed.iter().find(|name| plain(name) == plain(&word));
    let alias = |exact: bool| {
        let mut known = ALSO_KNOWN_AS.iter().filter(|(other, _)| {
            if exact {
                *other == word
            } else {
                near(other).is_some()
            }
        });
        known.find_map(|(_, name)| allowed.iter().find(|a| a == name))
    };
    let misspelt = || {
        allowed
            .iter()
            .filter_map(|name| Some((near(name)?, name)))
            .min_by_key(|(edits, _)| *edits)
            .map(|(_, name)| name)
    };
    let part = || {
        allowed.iter().find(|name| {
            // Shorter names are parts of many words.
            word.len() >= 4
                && (name.contains(&word) || word.contains(name.as_str()) && name.len() >= 4)
        })
    };
    // From the surest guess to the loosest.
    spelled
        .or_else(|| alias(true))
        .or_else(misspelt)
        .or_else(|| alias(false))
        .or_else(part)
        .map(String::as_str)
}

/// Sorts names by their likeness to `word`, the most alike first; ties stay as they were.
pub fn closest_first(word: &str, names: &mut [String]) {
    if !word.is_empty() && word.chars().count() <= 255 {
        names.sort_by_cached_key(|name| strsim::damerau_levenshtein(word, name));
    }
}
