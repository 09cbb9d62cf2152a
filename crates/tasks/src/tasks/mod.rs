//! The one list of tasks, and one file per task in symbols.
//!
//! A new task is its file, two lines here (`mod` and the list), and its oracle under `tests/`.

mod addition;
mod automaton;
mod bucket_sort;
mod compute_sqrt;
mod copy;
mod cycle_navigation;
mod dup_key_recall;
mod duplicate;
mod even_pairs;
mod filler;
mod fixed_offset;
mod flip_flop;
mod frequent_words;
mod grid;
mod induction;
mod jsonl;
mod majority;
mod missing_duplicate;
mod modular_arithmetic;
mod mqar;
mod multiplication;
mod needles;
mod odds_first;
mod parity;
mod passkey;
mod reverse;
mod selective_copy;
mod solve_equation;
mod sort;
mod stack_manipulation;
mod summation;
mod variable_tracking;

use crate::text;
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::tagged;

/// What `longreach list tasks` prints about a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindInfo {
    /// The tag in a configuration.
    pub kind: &'static str,
    /// One line.
    pub summary: &'static str,
    /// A few rows.
    pub examples: Vec<String>,
}

/// `"kind" => Variant(module::Config, Option, ...)`: generates [`TaskConfig`] and re-exports the
/// configuration and the types of its options.
macro_rules! tasks {
    ($($kind:literal => $variant:ident($module:ident::$config:ident $(, $option:ident)*);)+) => {
        $(pub use $module::{$config $(, $option)*};)+

        tagged! {
            /// The task table of a configuration. `kind` is its first key, and every other key
            /// belongs to the named task.
            #[derive(Debug, Clone, PartialEq)]
            pub enum TaskConfig {
                $($kind => $variant($config)),+
            }
        }

        impl TaskConfig {
            /// What to print about each kind.
            pub fn kinds() -> Vec<KindInfo> {
                vec![$(KindInfo {
                    kind: $kind,
                    summary: $config::SUMMARY,
                    examples: $config::examples(),
                }),+]
            }

            /// Builds the task.
            ///
            /// # Errors
            /// See [`TaskSpec::build`].
            pub fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
                match self {
                    $(Self::$variant(config) => config.build(ctx),)+
                }
            }
        }
    };
}

tasks! {
    "copy" => Copy(copy::CopyConfig);
    "duplicate" => Duplicate(duplicate::DuplicateConfig);
    "reverse" => Reverse(reverse::ReverseConfig);
    "sort" => Sort(sort::SortConfig);
    "bucket_sort" => BucketSort(bucket_sort::BucketSortConfig);
    "odds_first" => OddsFirst(odds_first::OddsFirstConfig);
    "missing_duplicate" => MissingDuplicate(missing_duplicate::MissingDuplicateConfig);
    "parity" => Parity(parity::ParityConfig);
    "even_pairs" => EvenPairs(even_pairs::EvenPairsConfig);
    "majority" => Majority(majority::MajorityConfig, BitDraw);
    "cycle_navigation" => CycleNavigation(cycle_navigation::CycleNavigationConfig);
    "summation" => Summation(summation::SummationConfig, SumAnswer);
    "modular_arithmetic" => ModularArithmetic(modular_arithmetic::ModularArithmeticConfig);
    "solve_equation" => SolveEquation(solve_equation::SolveEquationConfig);
    "addition" => Addition(addition::AdditionConfig, DigitOrder, Operands);
    "multiplication" => Multiplication(multiplication::MultiplicationConfig);
    "compute_sqrt" => ComputeSqrt(compute_sqrt::ComputeSqrtConfig);
    "stack_manipulation" => StackManipulation(stack_manipulation::StackManipulationConfig);
    "induction" => Induction(induction::InductionConfig);
    "mqar" => Mqar(mqar::MqarConfig);
    "dup_key_recall" => DupKeyRecall(dup_key_recall::DupKeyRecallConfig);
    "fixed_offset" => FixedOffset(fixed_offset::FixedOffsetConfig);
    "selective_copy" => SelectiveCopy(selective_copy::SelectiveCopyConfig);
    "flip_flop" => FlipFlop(flip_flop::FlipFlopConfig, FlipFlopAnswer);
    "automaton" => Automaton(automaton::AutomatonConfig, AutomatonAnswer, Language);
    "passkey" => Passkey(passkey::PasskeyConfig);
    "needles" => Needles(needles::NeedlesConfig);
    "variable_tracking" => VariableTracking(variable_tracking::VariableTrackingConfig);
    "frequent_words" => FrequentWords(frequent_words::FrequentWordsConfig);
    "grid" => Grid(grid::GridConfig, GridAnswer);
    "text" => Text(text::TextConfig);
    "masked_text" => MaskedText(text::MaskedTextConfig);
    "jsonl" => Jsonl(jsonl::JsonlConfig, JsonlTokens, Overlap);
}
