//! Greedy decoding: a model answers token by token, reading its own answers.

use crate::run::model::greedy_tokens;
use crate::spec::MAX_LOGITS;
use burn::tensor::{Device, Int, Tensor, TensorData};
use posenc::Positions;
use support::signals;
use tasks::Batch;
use tiny_transformer::{Cache, Pass, Transformer};

/// The most likely token at every counted position of a batch, row by row, 0 elsewhere; `None` if a
/// signal asked to stop.
///
/// A row is read up to its first counted position. With `reads_its_answers` the model's answers
/// then replace the following inputs. `positions` returns the positions of a sequence of a length.
/// With `cached` every token is read once, which is exact if later tokens do not change a token's
/// logits; without it every answer takes a forward pass over the whole prefix.
pub fn greedy(
    model: &Transformer,
    batch: &Batch,
    reads_its_answers: bool,
    positions: &mut dyn FnMut(usize) -> Positions,
    cached: bool,
    device: &Device,
) -> Option<Vec<i64>> {
    let (rows, seq_len) = (batch.rows, batch.seq_len);
    let pass = Pass {
        max_logits: MAX_LOGITS,
        ..Pass::default()
    };
    let mut inputs = batch.inputs.clone();
    let mut guesses = vec![0; rows * seq_len];
    let mut cache = Cache::default();
    // Places where no row answers are read, but not scored: the next pass includes them.
    for place in
        (0..seq_len).filter(|place| (0..rows).any(|row| batch.counted[row * seq_len + place]))
    {
        if signals::asked().is_some() {
            return None;
        }
        let from = if cached { cache.len() } else { 0 };
        // Tokens that the cache does not hold yet, [rows, place + 1 - from].
        let read: Vec<i32> = inputs
            .chunks(seq_len)
            .flat_map(|row| row[from..=place].to_vec())
            .collect();
        let read: Tensor<2, Int> =
            Tensor::from_data(TensorData::new(read, [rows, place + 1 - from]), device);
        let logits = if cached {
            model.extend(read, &positions(place + 1), &mut cache, &pass)
        } else {
            model.forward(read, &positions(place + 1), &pass)
        };
        // The logits of the last token only, [rows, 1, vocab_size].
        let tokens = greedy_tokens(logits.slice_dim(1, place - from..place - from + 1));
        for (row, token) in tokens
            .into_iter()
            .enumerate()
            .filter(|(row, _)| batch.counted[row * seq_len + place])
        {
            let at = row * seq_len + place;
            guesses[at] = token;
            // The answer at a place is the input of the next.
            if reads_its_answers && place + 1 < seq_len {
                inputs[at + 1] = token as i32;
            }
        }
    }
    Some(guesses)
}
