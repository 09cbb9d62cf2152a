//! The name that was probably meant: a misspelling, a part of a name, or the name that other
//! programs use.

use super::foreign::{FOREIGN_KEYS, ForeignKey, key};

/// Longest name that is compared with others: the comparison is quadratic.
const COMPARED: usize = 64;

/// The allowed name that was probably meant, if one is close enough.
pub fn closest<'a>(word: &str, allowed: &'a [String]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let word = word.to_lowercase();
    if word.chars().count() > COMPARED || word.is_empty() {
        return None;
    }
    let near = |name: &str| {
        let edits = strsim::damerau_levenshtein(&word, &name.to_lowercase());
        // At most a third of the longer name may be wrong.
        (edits * 3 <= word.chars().count().max(name.chars().count())).then_some(edits)
    };
    let spelled = allowed.iter().find(|name| plain(name) == plain(&word));
    let here = |foreign: &ForeignKey| {
        let name = foreign.key.rsplit('.').next()?;
        allowed.iter().find(|allowed| *allowed == name)
    };
    // Words that other programs give a meaning are not compared by their letters.
    if let (None, Some(foreign)) = (spelled, key(&word)) {
        return here(foreign).filter(|_| foreign.same).map(String::as_str);
    }
    let alias = || {
        let mut same = FOREIGN_KEYS.iter().filter(|foreign| foreign.same);
        same.find_map(|foreign| here(foreign).filter(|_| near(foreign.word).is_some()))
    };
    let misspelt = || {
        allowed
            .iter()
            .filter_map(|name| Some((near(name)?, name)))
            .min_by_key(|(edits, _)| *edits)
            .map(|(_, name)| name)
    };
    let part = || {
        allowed.iter().find(|name| {
            // Shorter names are parts of many words.
            word.len() >= 4
                && (name.contains(&word) || word.contains(name.as_str()) && name.len() >= 4)
        })
    };
    // From the surest guess to the loosest.
    spelled
        .or_else(misspelt)
        .or_else(alias)
        .or_else(part)
        .map(String::as_str)
}

/// Sorts names by their likeness to `word`, the most alike first; ties stay as they were.
pub fn closest_first(word: &str, names: &mut [String]) {
    if !word.is_empty() && word.chars().count() <= 255 {
        names.sort_by_cached_key(|name| strsim::damerau_levenshtein(word, name));
    }
}
