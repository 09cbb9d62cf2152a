//! The positions of a published model: from the `config.json` of transformers to an encoding.

mod known;
mod types;

use known::{BUCKETED, INTERLEAVED, LEFT_OUT, ROTATION, TURNING};
use posenc::encodings::AlibiConfig;
use posenc::{EncodingConfig, ModelShape};
use serde_json::{Map, Value, json};

/// What a `config.json` says about positions, as keys of `longreach inspect`.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The encoding, as `model.pe` would hold it.
    pub pe: Value,
    /// Sizes of the model: d_model, n_heads, head_dim, n_layers.
    pub sizes: [(&'static str, usize); 4],
    /// The length trained before any scaling, if the file says it.
    pub train_len: Option<usize>,
    /// Remarks, such as keys that were left out.
    pub notes: Vec<String>,
}

impl Published {
    /// The encoding's kind, and its other keys with the sizes as arguments `KEY=VALUE`.
    pub fn arguments(&self) -> (String, Vec<String>) {
        let table = self.pe.as_object().cloned().unwrap_or_default();
        let kind = table.get("kind").and_then(Value::as_str);
        let own = table.iter().filter(|(key, _)| *key != "kind");
        let own = own.map(|(key, value)| format!("{key}={}", inline(value)));
        let sizes = self.sizes.iter().map(|(key, size)| format!("{key}={size}"));
        (
            kind.unwrap_or("nope").to_owned(),
            own.chain(sizes).collect(),
        )
    }

    /// The encoding as a line of a config.
    pub fn line(&self) -> String {
        format!("pe = {}", inline(&self.pe))
    }
}

/// A value as TOML in one line.
fn inline(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

fn unknown_rotation(kind: &str) -> String {
    format!(
        "has the rotation `{kind}`, which is not supported\n   = allowed: default, mrope, linear, \
         dynamic, yarn, deepseek_yarn, longrope, su, llama3, proportional"
    )
}

/// Reads a `config.json`.
///
/// # Errors
///
/// A message: a key is missing or has the wrong type, or a kind is not supported.
pub fn read(file: &Value) -> Result<Published, String> {
    // Models of text and images have a separate table for text.
    let text = file.get("text_config").filter(|text| text.is_object());
    let config = text.unwrap_or(file).as_object();
    let model = Model(config.ok_or("is not a JSON object")?);
    types::check(model.0)?;
    let shape = model.shape()?;
    model.check_absolute()?;
    let mut notes = Vec::new();
    let pe = match model.without_rotation(&shape, &mut notes) {
        Some(pe) => pe,
        None => {
            model.check_turns(&shape)?;
            model.by_layer(&shape, &mut notes)?
        }
    };
    let named = |key: &str| {
        let in_rope = model
            .0
            .get("rope_parameters")
            .and_then(|rope| rope.get(key));
        model
            .0
            .get(key)
            .or(in_rope)
            .is_some_and(|value| !value.is_null())
    };
    let left_out = LEFT_OUT.iter().filter(|(key, _)| named(key));
    notes.extend(left_out.map(|(key, what)| format!("`{key}` is left out: {what}")));
    if model
        .layer_types()
        .iter()
        .any(|kind| kind.contains("linear"))
    {
        notes.push("layers of linear attention have no positions in the model".to_owned());
    }
    Ok(Published {
        pe,
        sizes: [
            ("d_model", shape.d_model),
            ("n_heads", shape.n_heads),
            ("head_dim", shape.head_dim),
            ("n_layers", shape.n_layers),
        ],
        train_len: model.trained_len(),
        notes,
    })
}

/// The `alibi_bias_max` with which MPT has the paper's slopes, `2^(-8h/H)`.
const PAPERS_BIAS_MAX: f64 = 8.0;

/// MPT's slopes, `2^(-alibi_bias_max h/H)`: powers of the paper's, in the paper's order.
fn slopes_of_mpt(bias_max: f64, shape: &ModelShape) -> Vec<f64> {
    let papers = EncodingConfig::from(AlibiConfig::default()).slopes(shape);
    let power = bias_max / PAPERS_BIAS_MAX;
    let papers = papers.into_iter().flatten();
    papers.map(|slope| (power * slope.log2()).exp2()).collect()
}

/// The keys of one model of text.
struct Model<'a>(&'a Map<String, Value>);

impl Model<'_> {
    fn size(&self, key: &str) -> Option<usize> {
        self.0.get(key)?.as_u64()?.try_into().ok()
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or("")
    }

    fn required(&self, names: &[&str]) -> Result<usize, String> {
        let found = names.iter().find_map(|name| self.size(name));
        found.ok_or_else(|| format!("has no whole number `{}`", names[0]))
    }

    fn shape(&self) -> Result<ModelShape, String> {
        let d_model = self.required(&["hidden_size", "n_embd", "d_model"])?;
        let n_heads = self.required(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
        let rotated = self.size("qk_rope_head_dim");
        let head_dim = match (
            rotated,
            self.size("qk_nope_head_dim"),
            self.size("head_dim"),
        ) {
            (Some(rotated), Some(rest), _) => rotated + rest,
            (_, _, Some(head_dim)) => head_dim,
            _ => d_model / n_heads.max(1),
        };
        Ok(ModelShape {
            d_model,
            n_heads,
            head_dim,
            n_layers: self.required(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"])?,
        })
    }

    /// The first of these keys that is a number, beside the rotation's table or in it.
    fn number(&self, rope: &Value, names: &[&str]) -> Option<f64> {
        let beside = |name: &&str| rope.get(name).or(self.0.get(*name))?.as_f64();
        names.iter().find_map(beside)
    }

    /// Refuses a model of which nothing says that it turns queries and keys.
    fn check_turns(&self, shape: &ModelShape) -> Result<(), String> {
        let model = self.text("model_type");
        let says_so = ROTATION.iter().any(|key| self.0.contains_key(*key));
        if model.is_empty() || says_so || TURNING.contains(&model) {
            return Ok(());
        }
        Err(format!(
            "has model_type `{model}`, which is not known here, and has no key of a rotation, such as \
             `rope_theta`; name its encoding: longreach inspect KIND d_model={} n_heads={}",
            shape.d_model, shape.n_heads
        ))
    }

    /// Refuses encodings of distances in models that are read as having learned positions.
    fn check_absolute(&self) -> Result<(), String> {
        let kind = self.text("position_embedding_type");
        match kind.starts_with("relative") {
            false => Ok(()),
            true => Err(format!(
                "has position_embedding_type `{kind}`: not supported; the nearest encoding is that \
                 of Shaw et al.: longreach inspect shaw"
            )),
        }
    }

    /// Encodings that rotate nothing.
    fn without_rotation(&self, shape: &ModelShape, notes: &mut Vec<String>) -> Option<Value> {
        let is_true = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
        let attention = self.0.get("attn_config");
        let rows = self
            .size("n_positions")
            .or(self.size("max_position_embeddings"));
        match self.text("model_type") {
            model if BUCKETED.contains(&model) => {
                let of = |key: &str, default| self.size(key).unwrap_or(default);
                let num_buckets = of("relative_attention_num_buckets", 32);
                let max_distance = of("relative_attention_max_distance", 128);
                notes.push("this is the decoder; the encoder has bidirectional = true".to_owned());
                // T5 does not divide its logits by sqrt(head_dim).
                Some(json!({"kind": "t5", "num_buckets": num_buckets,
                            "max_distance": max_distance, "scaled": false}))
            }
            "bloom" => Some(json!({"kind": "alibi"})),
            "mpt" if is_true(attention.and_then(|table| table.get("alibi"))) => {
                let most = attention.and_then(|table| table.get("alibi_bias_max")?.as_f64());
                Some(match most.filter(|most| *most != PAPERS_BIAS_MAX) {
                    None => json!({"kind": "alibi"}),
                    Some(most) => json!({"kind": "alibi", "slopes": slopes_of_mpt(most, shape)}),
                })
            }
            // Falcon divides the sum of logits and bias by sqrt(head_dim), others the logits alone.
            "falcon" if is_true(self.0.get("alibi")) => {
                let scale = 1.0 / (shape.head_dim as f64).sqrt();
                Some(json!({"kind": "alibi", "slope_scale": scale}))
            }
            "gpt2" | "gpt_neo" | "gpt_bigcode" | "opt" | "bert" => {
                Some(json!({"kind": "learned", "max_position": rows?}))
            }
            _ => None,
        }
    }

    /// The table of the rotation of layers of one type.
    fn rope_of(&self, kind: &str) -> Value {
        let parameters = self
            .0
            .get("rope_parameters")
            .filter(|rope| rope.is_object());
        if let Some(parameters) = parameters {
            return parameters.get(kind).unwrap_or(parameters).clone();
        }
        // Gemma 3 and Olmo 3 scale the layers that see everything alone.
        let local = kind == "sliding_attention";
        let model = self.text("model_type");
        let scaling = self
            .0
            .get("rope_scaling")
            .filter(|scaling| scaling.is_object());
        let plain = local && (model.starts_with("gemma3") || model == "olmo3");
        let mut rope = scaling
            .filter(|_| !plain)
            .cloned()
            .unwrap_or_else(|| json!({}));
        let base = self.0.get("rope_local_base_freq").filter(|_| local);
        if let Some(base) = base {
            rope["rope_theta"] = base.clone();
        }
        rope
    }

    /// What each layer sees, as transformers names it; nothing where the file does not say.
    fn layer_types(&self) -> Vec<&str> {
        let types = self.0.get("layer_types").and_then(Value::as_array);
        types
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// One encoding, or one for each layer where they differ.
    fn by_layer(&self, shape: &ModelShape, notes: &mut Vec<String>) -> Result<Value, String> {
        let types = self.layer_types();
        let model = self.text("model_type");
        let every = match model {
            "gemma3_text" | "gemma3" => Some(self.size("sliding_window_pattern").unwrap_or(6)),
            "cohere2" => Some(self.size("sliding_window_pattern").unwrap_or(4)),
            "gemma2" => Some(2),
            _ => None,
        };
        let window = self
            .size("sliding_window")
            .filter(|_| self.0.get("use_sliding_window").and_then(Value::as_bool) != Some(false));
        let first_windowed = self.size("max_window_layers").unwrap_or(0);
        let rotated = self.0.get("no_rope_layers").and_then(Value::as_array);
        let interval = self.size("no_rope_layer_interval");
        let interval = interval.or(matches!(model, "smollm3" | "llama4_text").then_some(4));
        let (mut parts, mut pattern) = (Vec::new(), Vec::new());
        for layer in 0..shape.n_layers {
            let is_last_of = |period: usize| (layer + 1).is_multiple_of(period.max(1));
            let kind = match (types.get(layer), every) {
                (Some(kind), _) => *kind,
                (None, Some(every)) if is_last_of(every) => "full_attention",
                (None, Some(_)) => "sliding_attention",
                // Mistral's window is that of all layers, Qwen's begins at a layer.
                (None, None) if window.is_some() && layer >= first_windowed => "sliding_attention",
                (None, None) => "full_attention",
            };
            let turns = match (rotated.and_then(|list| list.get(layer)), interval) {
                // transformers counts layers with a rotation by 1 there.
                (Some(turns), _) => turns.as_u64() != Some(0),
                (None, Some(interval)) => !is_last_of(interval),
                // Command R7B and A turn in layers with a window only.
                (None, None) => !(model == "cohere2" && kind == "full_attention"),
            };
            let rotation = match turns {
                true => self.rope(&self.rope_of(kind), shape.head_dim, notes)?,
                false => json!({"kind": "nope"}),
            };
            let part = match (kind, window) {
                ("sliding_attention", Some(size)) => {
                    let window = json!({"kind": "window", "size": size});
                    json!({"kind": "stack", "parts": [rotation, window]})
                }
                _ => rotation,
            };
            let known = parts.iter().position(|known| *known == part);
            pattern.push(known.unwrap_or(parts.len()));
            if known.is_none() {
                parts.push(part);
            }
        }
        notes.dedup();
        if let [part] = parts.as_slice() {
            return Ok(part.clone());
        }
        let repeats = |n: &usize| (*n..pattern.len()).all(|i| pattern[i] == pattern[i - n]);
        let period = (1..=pattern.len()).find(repeats).unwrap_or(pattern.len());
        Ok(json!({"kind": "by_layer", "parts": parts, "pattern": pattern[..period]}))
    }

    /// One rotation.
    fn rope(
        &self,
        rope: &Value,
        head_dim: usize,
        notes: &mut Vec<String>,
    ) -> Result<Value, String> {
        let mut out = json!({"kind": "rope"});
        match self.number(rope, &["rope_theta", "rotary_emb_base"]) {
            Some(base) => out["base"] = json!(base),
            None => {
                let note =
                    "the file has no `rope_theta`: 10000, unless the model's class has another";
                if !notes.iter().any(|known| known == note) {
                    notes.push(note.to_owned());
                }
            }
        }
        let is_interleaved = match self.0.get("rope_interleave").and_then(Value::as_bool) {
            Some(interleaved) => interleaved,
            None => INTERLEAVED.contains(&self.text("model_type")),
        };
        if is_interleaved {
            out["layout"] = json!("interleaved");
        }
        let part = self.number(rope, &["partial_rotary_factor", "rotary_pct"]);
        let kind = ["rope_type", "type"]
            .iter()
            .find_map(|key| rope.get(key)?.as_str());
        let kind = kind.unwrap_or("default");
        let is_proportional = kind == "proportional";
        let by_part = part.filter(|_| !is_proportional);
        let by_part = by_part.map(|part| (part * head_dim as f64) as usize);
        let rotary = self
            .size("qk_rope_head_dim")
            .or(self.size("rotary_dim"))
            .or(by_part);
        if let Some(rotary) = rotary.filter(|rotary| *rotary != head_dim) {
            out["rotary_dim"] = json!(rotary);
        }
        let scaling = self.scaling(kind, rope, part)?;
        if !scaling.is_null() {
            out["scaling"] = scaling;
        }
        Ok(out)
    }

    /// The scaling of a rotation; null without one.
    fn scaling(&self, kind: &str, rope: &Value, part: Option<f64>) -> Result<Value, String> {
        let most = self.size("max_position_embeddings");
        let original = rope
            .get("original_max_position_embeddings")
            .and_then(Value::as_u64);
        let original = original.map(|original| original as usize);
        let original = original.or(self.size("original_max_position_embeddings"));
        let factor = rope.get("factor").and_then(Value::as_f64);
        let ratio = most
            .zip(original)
            .map(|(most, original)| most as f64 / original as f64);
        let factor = factor.or(ratio);
        let original = original.or(most);
        let (here, keys): (&str, &[&str]) = match kind {
            "default" | "mrope" => return Ok(Value::Null),
            "linear" => ("linear", &[]),
            "dynamic" => ("dynamic_ntk", &[]),
            "yarn" | "deepseek_yarn" => (
                "yarn",
                &["beta_fast", "beta_slow", "attention_factor", "truncate"],
            ),
            "longrope" | "su" => (
                "longrope",
                &["short_factor", "long_factor", "attention_factor"],
            ),
            "llama3" => ("llama3", &["low_freq_factor", "high_freq_factor"]),
            "proportional" => match rope.get("factor").and_then(Value::as_f64) {
                None | Some(1.0) => {
                    return Ok(json!({"kind": "proportional", "fraction": part.unwrap_or(1.0)}));
                }
                Some(_) => return Err("has a proportional scaling with a factor".to_owned()),
            },
            other => return Err(unknown_rotation(other)),
        };
        let mut out = json!({"kind": here, "factor": factor.ok_or("has no `factor`")?});
        if here != "linear" {
            let original = original.ok_or("has no `original_max_position_embeddings`")?;
            out["original_max_position_embeddings"] = json!(original);
        }
        for key in keys {
            // The formula's own value is left out where the file has none.
            if let Some(value) = rope.get(key).filter(|value| !value.is_null()) {
                out[*key] = value.clone();
            }
        }
        let mscale = ["mscale", "mscale_all_dim"].map(|key| rope.get(key).and_then(Value::as_f64));
        if let (true, [Some(m), Some(all)]) = (here == "yarn", mscale)
            && m != 0.0
            && all != 0.0
            && out.get("attention_factor").is_none()
        {
            out["mscale"] = json!(m);
            out["mscale_all_dim"] = json!(all);
            // The attention of DeepSeek's models has the factor on all of the head.
            if self.0.contains_key("qk_rope_head_dim") {
                out["scale_logits"] = json!(true);
            }
        }
        Ok(out)
    }

    fn trained_len(&self) -> Option<usize> {
        let nested = ["rope_scaling", "rope_parameters"]
            .iter()
            .find_map(|table| {
                let original = self
                    .0
                    .get(*table)?
                    .get("original_max_position_embeddings")?;
                original.as_u64()?.try_into().ok()
            });
        let own = [
            "original_max_position_embeddings",
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
        ];
        nested.or_else(|| own.iter().find_map(|key| self.size(key)))
    }
}
