//! Figures as data, drawn the same way everywhere: lines over seeds and heat maps, as SVG.
//!
//! The layout (axes, ticks at the tested lengths, legend) and the SVG are ours; why no plotting
//! crate draws them: `docs/design/own-code.md`.
//!
//! ```text
//! line.rs     drawing of lines and references
//! bands.rs    bands around lines, and where an axis cuts them
//! series.rs   LinePlot, and Series: one of its lines
//! heatmap.rs  Heatmap: a matrix as colours
//! dots.rs     Dots: a number of each method with its interval
//! grids.rs    Grids: small matrices with their numbers, side by side
//! axis.rs     ranges, ticks, labels that have room
//! ends.rs     names at the ends of lines
//! ranges.rs   what the axes of lines hold
//! frame.rs    titles and legend
//! pen.rs      drawing as SVG, for a file or a page
//! panels.rs   two figures beside each other
//! page.rs     legends, and what all figures of a page share
//! style.rs    colours, markers, dashes, text sizes
//! ```

mod axis;
mod bands;
mod dots;
mod ends;
mod frame;
mod grids;
mod heatmap;
mod line;
mod page;
mod panels;
mod pen;
mod ranges;
mod series;
mod style;

pub use dots::{Dot, Dots};
pub(crate) use frame::{LEGEND_CHARS, described};
pub use grids::{Grid, Grids};
pub use heatmap::Heatmap;
pub(crate) use page::{PageFigure, definitions};
pub use panels::{PANEL, side_by_side};
pub use series::{LinePlot, Series};
