//! Integration tests of `longreach`, in one program: every program links the tensor library anew.
//! Each module tests the program from outside or its library through public names.

mod common;

mod bad_input;
mod before;
mod byte_pairs;
mod carried;
mod cluster;
#[cfg(unix)]
mod cluster_tools;
mod config;
mod configs;
mod decoding;
mod denominators;
mod distinct_rows;
mod end_to_end;
mod endings;
mod export_rows;
mod fuzz_seeds;
mod heads;
mod inspect;
mod logging;
mod looks;
mod masked;
mod memory;
mod mixed;
mod mutations;
mod places;
mod processes;
mod published;
mod ranges;
mod recorded;
mod reevaluation;
mod resume;
mod robustness;
mod schedules;
mod segments;
mod selection;
mod side_by_side;
mod stages;
mod start;
mod start_file;
mod step_scores;
mod stop;
mod tables;
mod tampering;
mod texts;
mod together;
mod variants;
mod whole_text;
