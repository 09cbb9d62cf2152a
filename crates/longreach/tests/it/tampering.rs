//! Files that were edited after a run, or that are not those of their run: what `verify`, `eval`,
//! `worker` and `compare` believe.
#![cfg(unix)]
