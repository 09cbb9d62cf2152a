//! The one list of tasks.

use crate::addition::AdditionConfig;
use crate::bucket_sort::BucketSortConfig;
use crate::copy::CopyConfig;
use crate::count::CountConfig;
use crate::cycle_navigation::CycleNavigationConfig;
use crate::duplicate::DuplicateConfig;
use crate::dyck::DyckConfig;
use crate::even_pairs::EvenPairsConfig;
use crate::grid::GridConfig;
use crate::induction::InductionConfig;
use crate::majority::MajorityConfig;
use crate::missing_duplicate::MissingDuplicateConfig;
use crate::modular_arithmetic::ModularArithmeticConfig;
use crate::mqar::MqarConfig;
use crate::odds_first::OddsFirstConfig;
use crate::parity::ParityConfig;
use crate::passkey::PasskeyConfig;
use crate::reverse::ReverseConfig;
use crate::selective_copy::SelectiveCopyConfig;
use crate::sort::SortConfig;
use crate::stack_manipulation::StackManipulationConfig;
use crate::summation::SummationConfig;
use crate::tagged::tagged;
use crate::text::{MaskedTextConfig, TextConfig};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::Serialize;

/// What `longreach list tasks` prints of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindInfo {
    /// The tag in a configuration.
    pub kind: &'static str,
    /// One line.
    pub summary: &'static str,
    /// A few rows.
    pub examples: Vec<String>,
}

macro_rules! tasks {
    ($($kind:literal => $variant:ident($config:ty);)+) => {
        /// The task table of a configuration. `kind` is its first key, and every other key belongs to the named task.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "kind")]
        pub enum TaskConfig {
            $(
                #[doc = concat!("`kind = \"", $kind, "\"`.")]
                #[serde(rename = $kind)]
                $variant($config),
            )+
        }

        tagged!(TaskConfig, "kind", $($kind => $variant),+);

        impl TaskConfig {
            /// Every kind, in the order of the list.
            pub const KINDS: &'static [&'static str] = &[$($kind),+];

            /// The tag of this table.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)+ }
            }

            /// The table of `kind` with every default, or `None` for a kind not in the list.
            pub fn default_of(kind: &str) -> Option<Self> {
                match kind { $($kind => Some(Self::$variant(<$config>::default())),)+ _ => None }
            }

            /// What to print about each kind.
            pub fn kinds() -> Vec<KindInfo> {
                vec![$(KindInfo { kind: $kind, summary: <$config>::SUMMARY, examples: <$config>::examples() }),+]
            }

            /// Builds the task.
            ///
            /// # Errors
            /// See [`TaskSpec::build`].
            pub fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
                match self { $(Self::$variant(config) => config.build(ctx),)+ }
            }
        }
    };
}

tasks! {
    "copy" => Copy(CopyConfig);
    "duplicate" => Duplicate(DuplicateConfig);
    "reverse" => Reverse(ReverseConfig);
    "sort" => Sort(SortConfig);
    "bucket_sort" => BucketSort(BucketSortConfig);
    "odds_first" => OddsFirst(OddsFirstConfig);
    "missing_duplicate" => MissingDuplicate(MissingDuplicateConfig);
    "parity" => Parity(ParityConfig);
    "even_pairs" => EvenPairs(EvenPairsConfig);
    "majority" => Majority(MajorityConfig);
    "count" => Count(CountConfig);
    "cycle_navigation" => CycleNavigation(CycleNavigationConfig);
    "summation" => Summation(SummationConfig);
    "modular_arithmetic" => ModularArithmetic(ModularArithmeticConfig);
    "addition" => Addition(AdditionConfig);
    "stack_manipulation" => StackManipulation(StackManipulationConfig);
    "dyck" => Dyck(DyckConfig);
    "induction" => Induction(InductionConfig);
    "mqar" => Mqar(MqarConfig);
    "selective_copy" => SelectiveCopy(SelectiveCopyConfig);
    "passkey" => Passkey(PasskeyConfig);
    "grid" => Grid(GridConfig);
    "text" => Text(TextConfig);
    "masked_text" => MaskedText(MaskedTextConfig);
}
