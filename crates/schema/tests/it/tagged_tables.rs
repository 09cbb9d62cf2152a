//! Tables tagged by their first key: paths of errors, round trips, defaults.

use longreach_schema::{is_default, tagged};
use serde::{Deserialize, Serialize};

tagged! {
    /// A shape.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Shape {
        "circle" => Circle(Circle),
        /// Two sides.
        "box" => Rectangle(Rectangle),
    }
}

tagged! {
    /// A split, tagged by another key.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Split by "by" {
        "all" => All(Circle),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Circle {
    #[serde(skip_serializing_if = "is_default")]
    radius: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rectangle {
    sides: [u32; 2],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drawing {
    shapes: Vec<Shape>,
}

fn error(shape: &str) -> (String, String) {
    let text = format!(r#"{{"shapes": [{{"kind": "circle"}}, {shape}]}}"#);
    let mut json = serde_json::Deserializer::from_str(&text);
    let error = serde_path_to_error::deserialize::<_, Drawing>(&mut json)
        .map(|drawing| drawing.shapes)
        .expect_err(shape);
    (error.path().to_string(), error.inner().to_string())
}

#[test]
fn errors_keep_the_path_of_their_key() {
    let cases = [
        (
            r#"{"radius": 1, "kind": "circle"}"#,
            "shapes[1]",
            "missing field `kind`",
        ),
        ("{}", "shapes[1]", "missing field `kind`"),
        ("3", "shapes[1]", "expected a table with `kind`"),
        (
            r#"{"kind": 3}"#,
            "shapes[1].kind",
            "expected one of `circle`, `box`",
        ),
        (
            r#"{"kind": "bx"}"#,
            "shapes[1].kind",
            "unknown variant `bx`, expected `circle` or `box`",
        ),
        (
            r#"{"kind": "circle", "radus": 1}"#,
            "shapes[1].radus",
            "expected `radius`",
        ),
        (
            r#"{"kind": "box", "sides": [1, "2"]}"#,
            "shapes[1].sides[1]",
            "invalid type: string",
        ),
        (r#"{"kind": "box"}"#, "shapes[1]", "missing field `sides`"),
    ];
    for (shape, path, message) in cases {
        let (found_path, found) = error(shape);
        assert_eq!(found_path, path, "{shape}: {found}");
        assert!(found.contains(message), "{shape}: {found}");
    }
}

#[test]
fn tables_round_trip_with_their_tag_first() {
    let texts = [
        r#"{"kind":"circle"}"#,
        r#"{"kind":"circle","radius":3}"#,
        r#"{"kind":"box","sides":[1,2]}"#,
    ];
    for text in texts {
        let shape: Shape = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&shape).unwrap(), text);
    }
    let split: Split = serde_json::from_str(r#"{"by":"all","radius":1}"#).unwrap();
    assert_eq!(split, Split::All(Circle { radius: 1 }));
    assert_eq!(
        serde_json::to_string(&split).unwrap(),
        r#"{"by":"all","radius":1}"#
    );
}

#[test]
fn kinds_know_their_names_and_defaults() {
    assert_eq!(Shape::KINDS, ["circle", "box"]);
    assert_eq!(
        Shape::default_of("circle"),
        Some(Shape::Circle(Circle::default()))
    );
    assert_eq!(Shape::default_of("box"), None, "`sides` has no default");
    assert_eq!(Shape::default_of("bx"), None);
    assert_eq!(
        Split::default_of("all").map(|split| split.kind()),
        Some("all")
    );
}
