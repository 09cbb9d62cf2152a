//! Which tables are folded away, so that a reader meets the answers first.

use super::document::{Chapter, Section};

/// Tables of a report that are open.
const MOST_OPEN: usize = 12;

/// Folds the tables of settings that an overview shows too, and more until [`MOST_OPEN`] are open:
/// all but the leading ones, then the leading ones of the last settings. Chapters stay as they are.
pub(super) fn fold(sections: &mut [Section], chapters: &[Chapter], has_overview: bool) {
    let of_chapters = chapters.iter().flat_map(|chapter| &chapter.tables);
    let room = MOST_OPEN.saturating_sub(of_chapters.filter(|table| !table.is_folded).count());
    for table in sections.iter_mut().flat_map(|section| &mut section.tables) {
        table.is_folded |= has_overview && table.is_in_overview;
    }
    let tables = sections.iter().flat_map(|section| &section.tables);
    let open = tables.filter(|table| !table.is_folded && !table.is_for_page);
    if sections.len() + open.count() > room {
        for table in sections.iter_mut().flat_map(|section| &mut section.tables) {
            table.is_folded = true;
        }
    }
    for section in sections.iter_mut().skip(room) {
        section.lead.is_folded = true;
    }
}
