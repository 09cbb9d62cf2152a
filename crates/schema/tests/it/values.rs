//! Checks of values, their messages, and text of unknown origin.

use longreach_schema::text::{escaped, is_hidden, lines, one_line, replaced, shorten};
use longreach_schema::{Invalid, allowed, in_range, one_of};
use proptest::prelude::*;
use std::ops::Bound::{Excluded, Included};

#[test]
fn errors_show_what_they_hold() {
    let full = Invalid::new(
        "factor",
        0.5,
        "is out of range",
        "1 or more",
        "use \"auto\"",
    );
    assert_eq!(
        full.clone().within("scaling").within("").to_string(),
        "`scaling.factor` = 0.5: is out of range; allowed: 1 or more; use \"auto\""
    );
    assert_eq!(full.within("pe").key, "pe.factor");
    let bare = Invalid::new("", "", "is missing", "", "").within("claim.3");
    assert_eq!(bare.to_string(), "`claim.3`: is missing");
}

#[test]
fn ranges_are_checked_and_worded() {
    let problem = |result: Result<(), Invalid>| result.map_err(|error| error.problem);
    assert_eq!(problem(in_range("k", 1e6, 1.0..=1e6, "")), Ok(()));
    for outside in [0.0, -1.0, 1e7] {
        let error = in_range("k", outside, 1.0..=1e6, "").unwrap_err();
        assert_eq!(error.problem, "is out of range");
        assert_eq!(error.allowed, "a number from 1 to 1000000");
    }
    for endless in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = in_range("k", endless, 1.0.., "").unwrap_err();
        assert_eq!(error.problem, "is not a finite number");
    }
    let above_one = (Excluded(1.0), Included(1e15));
    assert!(in_range("k", 1.0, above_one, "").is_err());
    assert_eq!(allowed(&above_one), "a number above 1 and at most 1e15");
    assert_eq!(allowed(&(2_u64..=64)), "a whole number from 2 to 64");
    assert_eq!(allowed(&(2_usize..)), "a whole number of at least 2");
    assert_eq!(allowed(&(0.0..1.0)), "a number of at least 0 and below 1");
    assert_eq!(allowed(&(3_u32..=3)), "a whole number, 3");
}

#[test]
fn names_outside_a_list_are_refused_with_the_list() {
    assert_eq!(one_of("by", "file", &["file", "range"], ""), Ok(()));
    let error = one_of("by", "line", &["file", "range"], "").unwrap_err();
    assert_eq!(
        (error.value.as_str(), error.allowed.as_str()),
        ("line", "file, range")
    );
}

#[test]
fn hidden_characters_are_replaced_or_spelled_out() {
    let hostile = "\u{1b}[2J\0a\nb\tc\u{9b}";
    assert_eq!(escaped(hostile), "\\u{1b}[2J\\u{0}a b c\\u{9b}");
    assert_eq!(one_line(hostile, 99), "\u{fffd}[2J\u{fffd}a b c\u{fffd}");
    assert_eq!(lines(hostile), "\u{fffd}[2J\u{fffd}a\nb\tc\u{fffd}");
    assert_eq!(
        escaped("ro\u{200b}pe \u{202e}evil"),
        "ro\\u{200b}pe \\u{202e}evil"
    );
    assert_eq!(lines("d\u{202e}e\u{2066}ü"), "d\u{fffd}e\u{fffd}ü");
    assert_eq!(escaped("π ± ≥ 4,6x é שלום 中"), "π ± ≥ 4,6x é שלום 中");
}

#[test]
fn long_texts_are_cut() {
    assert_eq!(one_line("abcdef", 6), "abcdef");
    assert_eq!(one_line("abcdefg", 6), "abcdef…");
    assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
    assert_eq!(shorten("abcdefghijk", 10), "abcdef…ijk");
    assert_eq!(shorten("ééééé", 5), "ééééé");
}

proptest! {
    #[test]
    fn any_text_is_harmless(text in any::<String>(), longest in 1_usize..50) {
        prop_assert!(!escaped(&text).chars().any(is_hidden));
        prop_assert!(!one_line(&text, longest).chars().any(is_hidden));
        prop_assert!(one_line(&text, longest).chars().count() <= longest + 1);
        prop_assert!(shorten(&text, longest).chars().count() <= longest);
        prop_assert!(!lines(&text).replace(['\n', '\t'], "").chars().any(is_hidden));
        prop_assert!(!text.chars().map(replaced).any(is_hidden));
    }
}
