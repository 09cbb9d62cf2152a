//! Fused attention, causal or bidirectional, with an optional bias.

mod backward;
mod bias;
mod call;
mod forward;
mod lanes;
mod mask;
mod network_bias;
mod network_grads;
mod op;
mod qkv_layout;
mod row_ops;

pub(crate) use backward::{attention_backward, grads_by_head};
pub(crate) use bias::BlockBias;
pub(crate) use call::AttentionCall;
pub(crate) use forward::attention_forward;
pub(crate) use network_bias::NetworkBias;
pub(crate) use op::Attention;
pub(crate) use qkv_layout::{PartView, QkvLayout, TILE};
pub(crate) use row_ops::{RotateTile, RotationTables, RowRotation};
