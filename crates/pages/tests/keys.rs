//! The tables of keys name every key that the program reads, and only names that it accepts.

use config::diagnostic::known_keys;
use longreach_pages::keys_of_kinds::KeysOfKinds;
use longreach_pages::sources::Sources;
use posenc::{EncodingConfig, PositionsConfig, RopeScaling};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use tasks::TaskConfig;

fn check<T: Serialize + DeserializeOwned + Debug>(
    crate_name: &str,
    list: &'static str,
    kinds: &[&str],
    example: impl Fn(&str) -> Option<T>,
) {
    let sources = Sources::of(crate_name).unwrap();
    let keys = KeysOfKinds::new(&sources, list);
    for kind in kinds {
        let value = example(kind).or_else(|| keys.example(kind).unwrap());
        let value = value.unwrap_or_else(|| panic!("{list} has no example of {kind}"));
        let rows = keys.rows::<T>(kind, None).unwrap();
        // Keys of tables within are dotted.
        let own = rows.iter().filter(|row| !row.key.contains('.'));
        let listed: BTreeSet<String> = own.map(|row| row.key.clone()).collect();
        let known: BTreeSet<String> = known_keys::<T>(kind).into_iter().collect();
        assert_eq!(listed, known, "{list} {kind}");
        for row in rows {
            for name in &row.names {
                let mut table = serde_json::to_value(&value).unwrap();
                table[&row.key] = name.as_str().into();
                let read = serde_json::from_value::<T>(table);
                assert!(read.is_ok(), "{kind}.{} = {name}: {read:?}", row.key);
            }
        }
    }
}

#[test]
fn every_key_of_a_kind_is_listed_with_names_that_it_takes() {
    check(
        "tasks",
        "TaskConfig",
        TaskConfig::KINDS,
        TaskConfig::default_of,
    );
    check(
        "posenc",
        "EncodingConfig",
        EncodingConfig::KINDS,
        EncodingConfig::example,
    );
    check(
        "posenc",
        "RopeScaling",
        RopeScaling::KINDS,
        RopeScaling::default_of,
    );
    check(
        "posenc",
        "PositionsConfig",
        PositionsConfig::KINDS,
        PositionsConfig::default_of,
    );
}

/// What a page says of the one kind of a list in these sources.
fn page_of(sources: &str, kind: &str) -> Result<String, String> {
    let mut read = Sources::default();
    read.read(sources, "").unwrap();
    let keys = KeysOfKinds::new(&read, "List");
    let made = keys.markdown::<()>(kind, None);
    made.map_err(|error| error.to_string())
}

const LIST: &str = "tagged! { pub enum List { \"a\" => A(AConfig) } }";

#[test]
fn a_field_without_a_doc_comment_is_an_error() {
    let of = |doc: &str| {
        let fields = format!("{doc} #[serde(default)] size: u64");
        page_of(
            &format!("{LIST} #[derive(Deserialize)] struct AConfig {{ {fields} }}"),
            "a",
        )
    };
    let row = "| `size` | not set | Tokens. |";
    assert!(of("/// Tokens.\n").unwrap().contains(row));
    assert!(
        of("")
            .unwrap_err()
            .contains("`AConfig::size` has no doc comment")
    );
}

#[test]
fn a_kind_without_a_struct_is_an_error() {
    // The other one is not read from a config.
    for sources in [LIST.to_owned(), format!("{LIST} struct AConfig {{}}")] {
        let error = page_of(&sources, "a").unwrap_err();
        assert!(error.contains("`List` has no struct for `a`"), "{error}");
    }
    let sources = format!("{LIST} #[derive(Deserialize)] struct AConfig {{}}");
    assert!(page_of(&sources, "b").is_err());
    assert_eq!(page_of(&sources, "a").unwrap(), "No keys.\n");
}
