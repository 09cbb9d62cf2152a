//! Text that a tokenizer has turned into ids.

use crate::common;
use longreach_tasks::{Task, TaskConfig, TaskError};

/// A temporary directory with `a.bin`, the ids 0, 3, 6, ... below 700 with `width` bytes each.
fn build(name: &str, width: usize, table: &str) -> Result<Box<dyn Task>, TaskError> {
    let folder = std::env::temp_dir().join(format!("longreach-ids-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch directory");
    let ids = (0..1000u32).map(|i| i * 3 % 700);
    let bytes: Vec<u8> = ids
        .flat_map(|id| id.to_le_bytes()[..width].to_vec())
        .collect();
    std::fs::write(folder.join("a.bin"), bytes).expect("a file");
    let mut ctx = common::ctx("", 8, &[8, 16], 0);
    ctx.config_dir.clone_from(&folder);
    let table = format!("kind = \"text\"\nfiles = [\"a.bin\"]\n{table}");
    let built = toml::from_str::<TaskConfig>(&table)
        .expect(&table)
        .build(&ctx);
    std::fs::remove_dir_all(folder).expect("a scratch directory");
    built
}

#[test]
fn ids_are_read_whole_on_both_sides_of_the_split() {
    for (width, level) in [(2, "u16"), (4, "u32")] {
        // A tenth is 100 ids; 0.10075 cuts the id before them in two, which belongs to neither.
        for share in [0.1, 0.10075] {
            let table = format!(
                "level = \"{level}\"\nvocab = 700\neval_tokens = 64\nbytes_per_token = 4.0\n\
                 split = {{ by = \"range\", valid_fraction = {share} }}"
            );
            let name = format!("{level}-{share}");
            let task = build(&name, width, &table).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((task.vocab_size(), task.unit()), (700, "tokens"));
            let batch = task.test_batch(8, 0, 2);
            let expected: Vec<i32> = (900..916).map(|i| i * 3 % 700).collect();
            assert_eq!(batch.inputs, expected, "{level} {share}");
            assert_eq!(batch.targets[..15], batch.inputs[1..]);
            let trained = task.train_batch(8, 50, 0, 0);
            let steps = trained.inputs.chunks(8).flat_map(|row| {
                row.windows(2)
                    .map(|pair| (pair[1] - pair[0]).rem_euclid(700))
                    .collect::<Vec<_>>()
            });
            assert!(steps.into_iter().all(|step| step == 3), "every id is whole");
            assert_eq!(task.bytes_per_token(), Some(4.0));
            assert!(task.chance().contains_key("bits_per_byte"));
            assert!(task.definitions("")["bits_per_byte"].contains("4.0000 bytes"));
        }
    }
}

#[test]
fn without_bytes_per_token_there_are_no_bits_per_byte() {
    let task = build("plain", 2, "level = \"u16\"\nvocab = 700").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(task.bytes_per_token(), None);
    let (chance, definitions) = (task.chance(), task.definitions(""));
    assert_eq!(
        chance.keys().collect::<Vec<_>>(),
        ["loss_nats", "perplexity"]
    );
    assert_eq!(
        definitions.keys().collect::<Vec<_>>(),
        ["loss_nats", "perplexity"]
    );
}

#[test]
fn mistakes_with_ids_are_named() {
    for (name, width, table, said) in [
        ("missing", 2, "level = \"u16\"", "vocab"),
        ("small", 2, "level = \"u16\"\nvocab = 1", "vocab"),
        (
            "beyond",
            2,
            "level = \"u16\"\nvocab = 300",
            "`task.vocab` = 300",
        ),
        ("bytes", 2, "vocab = 300", "is for files of token ids"),
        (
            "share",
            2,
            "level = \"u16\"\nvocab = 700\nbytes_per_token = 0.0",
            "bytes_per_token",
        ),
        (
            "chars",
            2,
            "level = \"chars\"\nbytes_per_token = 4.0",
            "bytes_per_token",
        ),
    ] {
        let built = build(name, width, table);
        let error = built.err().unwrap_or_else(|| panic!("{name} is refused"));
        let text = format!("{error:?}");
        assert!(text.contains(said), "{name}: {text}");
    }
    let odd = std::env::temp_dir().join(format!("longreach-odd-{}", std::process::id()));
    std::fs::create_dir_all(&odd).expect("a scratch directory");
    std::fs::write(odd.join("a.bin"), [1u8; 101]).expect("a file");
    let mut ctx = common::ctx("", 8, &[8], 0);
    ctx.config_dir.clone_from(&odd);
    let table = "kind = \"text\"\nfiles = [\"a.bin\"]\nlevel = \"u16\"\nvocab = 700";
    let error = toml::from_str::<TaskConfig>(table)
        .expect(table)
        .build(&ctx)
        .err();
    std::fs::remove_dir_all(odd).expect("a scratch directory");
    let text = format!("{:?}", error.expect("refused"));
    assert!(text.contains("no whole number of ids of 16 bits"), "{text}");
}
