//! Colours of methods: one definition for figures, pages, terminals and plots in Python.

use serde::Deserialize;
use std::sync::LazyLock;

/// Colours of a palette.
pub const COLORS: usize = 8;

/// Colours by the order of methods, as `#rrggbb`.
#[derive(Debug, Deserialize)]
pub struct Palette {
    /// On a light ground.
    pub light: [String; COLORS],
    /// On a dark one.
    pub dark: [String; COLORS],
}

/// The palette, from the file that the Python package carries.
pub fn palette() -> &'static Palette {
    static PALETTE: LazyLock<Palette> = LazyLock::new(|| {
        let text = include_str!("../../../python/longreach/palette.json");
        serde_json::from_str(text).expect("a test reads the palette")
    });
    &PALETTE
}

/// Red, green and blue of `#rrggbb`.
pub fn rgb(color: &str) -> [u8; 3] {
    let part = |at: usize| {
        let digits = color.get(1 + 2 * at..3 + 2 * at);
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    };
    [0, 1, 2].map(|at| part(at).unwrap_or_default())
}

/// The nearest of the 216 colours of a terminal's cube; none of black and white, for which the
/// terminal's own ink stands.
pub fn on_terminal(color: &str) -> Option<u8> {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let parts = rgb(color);
    let nearest = |part: u8| {
        let by_distance = (0..6u8).min_by_key(|at| LEVELS[usize::from(*at)].abs_diff(part));
        by_distance.unwrap_or_default()
    };
    let [r, g, b] = parts.map(nearest);
    let is_ink = parts.iter().all(|part| *part == 0) || parts.iter().all(|part| *part == 255);
    (!is_ink).then_some(16 + 36 * r + 6 * g + b)
}

/// The marker of a line's style in its colour, for a terminal.
pub fn marker(style: usize) -> String {
    const SHAPES: [char; COLORS] = ['●', '■', '▲', '◆', '▼', '○', '✚', '◀'];
    let shape = SHAPES[style % COLORS];
    match on_terminal(&palette().light[style % COLORS]) {
        Some(color) => format!("\x1b[38;5;{color}m{shape}\x1b[39m"),
        None => shape.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn colours_can_be_read_and_differ_on_a_terminal_too() {
        for colors in [&palette().light, &palette().dark] {
            let shown: BTreeSet<Option<u8>> = colors.iter().map(|c| on_terminal(c)).collect();
            assert_eq!(shown.len(), COLORS, "{shown:?}");
            assert!(colors.iter().all(|c| c.len() == 7 && c.starts_with('#')));
        }
        assert_eq!(rgb("#0072b2"), [0, 0x72, 0xb2]);
        assert_eq!(on_terminal("#0072b2"), Some(16 + 6 + 3));
        assert_eq!(on_terminal("#000000"), None);
    }
}
