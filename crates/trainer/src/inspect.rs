//! placeholder
use crate::cli::InspectArgs;
use crate::exit::Failure;
/// placeholder
pub fn run(_: &InspectArgs) -> Result<String, Failure> {
    Ok(String::new())
}
