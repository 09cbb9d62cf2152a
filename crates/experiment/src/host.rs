//! Numbers of tensors on the host.

use burn::tensor::{Element, TensorData};

/// The numbers of data that was read back, whatever type the backend computes in.
pub fn values<E: Element>(data: TensorData) -> Vec<E> {
    let data = data.convert::<E>();
    data.try_to_vec().expect("data was just converted")
}
