//! What an encoding that reads positions only does to a model at given positions, as tables: any
//! program can apply them without knowing the encoding.
//!
//! Shapes: `L` positions, `D` d_model, `H` heads, or 1 where all heads are alike, `E` head_dim.

use crate::subject::{SEED, host, prepared};
use burn::tensor::{Device, Tensor, TensorData, activation};
use posenc::hooks::{Bias, Prepared};
use posenc::{Encoding, Facts, ModelShape, Positions, Rotation};
use support::exit::Failure;
use tasks::Stream;

/// Numbers in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Extent of each dimension.
    pub shape: Vec<usize>,
    /// The numbers.
    pub values: Vec<f32>,
}

/// Cos and sin for queries, then for keys, `[H, L, pairs]`.
pub type Angles = [Table; 4];

/// How queries and keys are turned, before their product.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Pairs of dimensions are rotated.
    Rotation {
        /// The angles of all pairs of query and key, or of zone 0.
        near: Box<Angles>,
        /// Those of the zones from 1 on, and the zone of each query and key, `[1, L, L]`.
        zones: Option<(Vec<Angles>, Table)>,
        /// Whether pair i is `(2i, 2i + 1)` instead of `(i, i + pairs)`.
        interleaved: bool,
    },
    /// Each dimension x becomes two: `softplus(x)` times cos, after all of them times sin. Pairs
    /// are dimensions.
    Polar(Box<Angles>),
    /// Each is multiplied with the matrix of its position: for queries, then for keys,
    /// `[H, L, E, E]`; a row vector times the matrix.
    Matrices(Box<[Table; 2]>),
}

/// What happens in one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The turn of queries and keys, if there is one.
    pub turn: Option<Turn>,
    /// A factor on the product of query and key, beside the division by the root of head_dim.
    pub factor: f64,
    /// Added to the logits: `[H, L]` by how far the key lies before the query, or `[H, L, L]` by
    /// query and key.
    pub bias: Option<Table>,
}

/// The tables of an encoding.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Added to the embedded input, `[L, D]`.
    pub embed: Option<Table>,
    /// One for each layer.
    pub layers: Vec<Layer>,
}

/// The tables of an encoding at these positions, or why it has none. With `causal`, no query reads
/// a later key.
///
/// # Errors
///
/// [`Exit::Bug`](support::exit::Exit::Bug) if a position has no value or a tensor cannot be read.
pub fn tables(
    encoding: &Encoding,
    facts: &Facts,
    shape: &ModelShape,
    positions: &Positions,
    causal: bool,
    device: &Device,
) -> Result<Result<Tables, &'static str>, Failure> {
    if positions.by_row().is_some() {
        return Ok(Err("its positions differ from row to row"));
    }
    let prepared = prepared(encoding, positions, device)?;
    let probe = Probe {
        prepared: prepared.as_ref(),
        shape,
        length: positions.queries().len(),
        device,
    };
    // Alike in all layers but those of `by_layer`.
    let reads_content =
        facts.hooks.content_bias && (0..shape.n_layers).any(|layer| !probe.is_by_position(layer));
    if facts.hooks.output_bias || reads_content {
        return Ok(Err("a bias or a value term of it reads the content"));
    }
    let embed = if facts.hooks.embed {
        match probe.embed()? {
            Some(table) => Some(table),
            None => return Ok(Err("what it adds to the input depends on the input")),
        }
    } else {
        None
    };
    let mut layers = Vec::new();
    for layer in 0..shape.n_layers {
        let (turn, factor) = match facts.hooks.transform_qk {
            false => (None, 1.0),
            true => match probe.turn(layer)? {
                Some(turn) => turn,
                None => return Ok(Err("how it turns queries and keys depends on the content")),
            },
        };
        let bias = prepared.logits_bias(layer);
        let bias = bias.map(|bias| probe.bias(&bias, causal)).transpose()?;
        layers.push(Layer { turn, factor, bias });
    }
    Ok(Ok(Tables { embed, layers }))
}

/// An encoding at `length` positions, which is shown inputs.
struct Probe<'a> {
    prepared: &'a dyn Prepared,
    shape: &'a ModelShape,
    length: usize,
    device: &'a Device,
}

impl Probe<'_> {
    /// Whether a layer has no content bias, or one that only rotates by zone.
    fn is_by_position(&self, layer: usize) -> bool {
        let hidden = || Tensor::zeros([1, self.length, self.shape.d_model], self.device);
        let is_fused = self.prepared.fused_qk(layer).is_some();
        let is_rotation = is_fused && self.prepared.decays(layer, &hidden).is_none();
        is_rotation || self.prepared.zones(layer).is_some()
    }

    fn random<const N: usize>(&self, name: &str, shape: [usize; N]) -> Tensor<N> {
        let mut stream = Stream::new(SEED, name, 0);
        let draws = (0..shape.iter().product()).map(|_| stream.normal() as f32);
        Tensor::from_data(TensorData::new(draws.collect(), shape), self.device)
    }

    /// What is added to the input; `None` if it depends on it.
    fn embed(&self) -> Result<Option<Table>, Failure> {
        let (length, width) = (self.length, self.shape.d_model);
        let added = self
            .prepared
            .embed(Tensor::zeros([1, length, width], self.device));
        let input = self.random("input", [1, length, width]);
        let same = self.prepared.embed(input.clone()) - input;
        if !alike(&host(same)?, &host(added.clone())?) {
            return Ok(None);
        }
        Ok(Some(Table {
            shape: vec![length, width],
            values: host(added)?,
        }))
    }

    /// The turn of a layer and the factor on its logits, if they depend on positions only.
    fn turn(&self, layer: usize) -> Result<Option<(Option<Turn>, f64)>, Failure> {
        if let Some(fused) = self.prepared.fused_qk(layer) {
            let turn = fused.rotation.map(|rotation| rotated(rotation, None));
            return Ok(Some((turn.transpose()?, fused.factor)));
        }
        if let Some(zones) = self.prepared.zones(layer) {
            let mut rotations = zones.rotations.into_iter();
            let near = rotations.next().expect("zone 0");
            let far = rotations.map(angles).collect::<Result<_, _>>()?;
            let of = Table {
                shape: vec![1, self.length, self.length],
                values: zones.of.iter().map(|zone| *zone as f32).collect(),
            };
            return Ok(Some((Some(rotated(near, Some((far, of)))?), 1.0)));
        }
        if let Some(polar) = self.polar(layer)? {
            return Ok(Some((Some(polar), 1.0)));
        }
        let ModelShape {
            n_heads,
            head_dim,
            d_model,
            ..
        } = *self.shape;
        let length = self.length;
        // Row e of the batch is the unit vector e at every position of every head.
        let units = Tensor::<2>::eye(head_dim, self.device)
            .reshape([head_dim, 1, 1, head_dim])
            .expand([head_dim, n_heads, length, head_dim]);
        let hidden = Tensor::zeros([head_dim, length, d_model], self.device);
        let (q, k) = self
            .prepared
            .transform_qk(layer, units.clone(), units, &hidden);
        let rows = ["q", "k"].map(|name| self.random(name, [1, n_heads, length, head_dim]));
        let [q_rows, k_rows] = rows.clone();
        let other = self.random("hidden", [1, length, d_model]);
        let (q_turned, k_turned) = self.prepared.transform_qk(layer, q_rows, k_rows, &other);
        let mut matrices = Vec::new();
        for ((images, row), turned) in [q, k].into_iter().zip(rows).zip([q_turned, k_turned]) {
            // [E, H, L, width] to a matrix for each head and position.
            let width = images.dims()[3];
            let maps = images.permute([1, 2, 0, 3]);
            let row = row.reshape([n_heads, length, 1, head_dim]);
            let product = row.matmul(maps.clone());
            if width != head_dim || !alike(&host(turned)?, &host(product)?) {
                return Ok(None);
            }
            matrices.push(by_head(host(maps)?, [n_heads, length, head_dim, width]));
        }
        let [q, k]: [Table; 2] = matrices.try_into().expect("a pair");
        Ok(Some((Some(Turn::Matrices(Box::new([q, k]))), 1.0)))
    }

    /// The turn of a layer if it is by polar coordinates: what it makes of zeros has the angles.
    fn polar(&self, layer: usize) -> Result<Option<Turn>, Failure> {
        let ModelShape {
            n_heads,
            head_dim,
            d_model,
            ..
        } = *self.shape;
        let hidden = Tensor::zeros([1, self.length, d_model], self.device);
        let shape = [1, n_heads, self.length, head_dim];
        let zeros = Tensor::<4>::zeros(shape, self.device);
        let (q, k) = self
            .prepared
            .transform_qk(layer, zeros.clone(), zeros, &hidden);
        if [&q, &k].iter().any(|x| x.dims()[3] != 2 * head_dim) {
            return Ok(None);
        }
        let rows = ["q", "k"].map(|name| self.random(name, shape));
        let [q_row, k_row] = rows.clone();
        let (q_turned, k_turned) = self.prepared.transform_qk(layer, q_row, k_row, &hidden);
        let mut angles = Vec::new();
        for ((zeros, row), turned) in [q, k].into_iter().zip(rows).zip([q_turned, k_turned]) {
            let tables = zeros / std::f64::consts::LN_2;
            let lengths = activation::softplus(row, 1.0).repeat_dim(3, 2);
            if !alike(&host(turned)?, &host(lengths * tables.clone())?) {
                return Ok(None);
            }
            for half in [0..head_dim, head_dim..2 * head_dim] {
                let table = host(tables.clone().slice_dim(3, half))?;
                angles.push(by_head(table, [n_heads, self.length, head_dim]));
            }
        }
        let angles: Angles = angles.try_into().expect("four tables");
        Ok(Some(Turn::Polar(Box::new(angles))))
    }

    fn bias(&self, bias: &Bias<'_>, causal: bool) -> Result<Table, Failure> {
        let length = self.length;
        if let (true, Some(by_distance)) = (causal, bias.by_distance(length)) {
            let [_, heads, _] = by_distance.dims();
            return Ok(by_head(host(by_distance)?, [heads, length]));
        }
        let block = bias.block(0..length, 0..length);
        let [_, heads, ..] = block.dims();
        Ok(by_head(host(block)?, [heads, length, length]))
    }
}

/// A rotation as tables, with the zones beside it.
fn rotated(near: Rotation, zones: Option<(Vec<Angles>, Table)>) -> Result<Turn, Failure> {
    Ok(Turn::Rotation {
        interleaved: near.interleaved,
        near: Box::new(angles(near)?),
        zones,
    })
}

fn angles(rotation: Rotation) -> Result<Angles, Failure> {
    let table = |table: Tensor<4>| {
        let [_, heads, length, pairs] = table.dims();
        Ok::<_, Failure>(by_head(host(table)?, [heads, length, pairs]))
    };
    let ([q_cos, q_sin], [k_cos, k_sin]) = (rotation.queries, rotation.keys);
    Ok([table(q_cos)?, table(q_sin)?, table(k_cos)?, table(k_sin)?])
}

/// A table whose first dimension is heads; one of them where all are alike.
fn by_head<const N: usize>(mut values: Vec<f32>, shape: [usize; N]) -> Table {
    let mut shape = shape.to_vec();
    let each = values.len() / shape[0];
    let first = &values[..each];
    let bits = |head: &[f32]| head.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    if values.chunks(each).all(|head| bits(head) == bits(first)) {
        values.truncate(each);
        shape[0] = 1;
    }
    Table { shape, values }
}

/// Whether two results are the same except for rounding.
fn alike(a: &[f32], b: &[f32]) -> bool {
    let largest = b.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| (a - b).abs() <= 1e-5 * largest)
}
