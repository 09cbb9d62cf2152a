//! Task tables, rows against oracles and laws, corpora of any origin.

mod automata;
mod bpe;
mod common;
mod config;
mod haystack;
mod hostile;
mod ids;
mod jsonl;
mod laws;
mod masked;
mod named_texts;
mod needles;
mod oracles;
mod probes;
mod published;
mod selection;
mod symbols;
mod text;
