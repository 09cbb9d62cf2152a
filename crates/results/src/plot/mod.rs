//! Figures as data, drawn the same way everywhere: lines over seeds and heat maps, to SVG and PNG.
//!
//! The layout (axes, ticks at the tested lengths, legend) is ours; kuva holds the scene and writes
//! both formats from it, the PNG with its bundled font, so a machine without fonts draws the same
//! picture. What kuva's own axes and legends lack for these figures: `docs/plots-upstream.md`.
//!
//! ```text
//! line.rs     drawing of lines, bands, references
//! series.rs   LinePlot, and Series: one of its lines
//! heatmap.rs  Heatmap: a matrix as colours
//! grids.rs    Grids: small matrices with their numbers, side by side
//! axis.rs     ranges, ticks, labels that have room
//! ranges.rs   what the axes of lines hold
//! frame.rs    titles and legend
//! pen.rs      primitives on a scene; SVG and PNG
//! compact.rs  the same as short SVG inside a page
//! page.rs     legends and small curves of a page
//! style.rs    colours, markers, dashes, text sizes
//! ```

mod axis;
mod compact;
mod frame;
mod grids;
mod heatmap;
mod line;
mod page;
mod pen;
mod ranges;
mod series;
mod style;

pub(crate) use compact::definitions;
pub(crate) use frame::described;
pub use grids::{Grid, Grids};
pub use heatmap::Heatmap;
pub(crate) use page::PageFigure;
pub use pen::PlotError;
pub use series::{LinePlot, Series};
