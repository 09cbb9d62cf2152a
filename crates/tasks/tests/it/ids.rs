//! Text that a tokenizer has turned into ids.

use crate::common::{self, MustHave, cases, corpus};
use longreach_tasks::{Task, TaskConfig, TaskError};

/// The ids 0, 3, 6, ... below 700 with `width` bytes each.
fn ids(width: usize) -> Vec<u8> {
    let ids = (0..1000u64).map(|i| i * 3 % 700);
    ids.flat_map(|id| id.to_le_bytes()[..width].to_vec())
        .collect()
}

fn build(width: usize, table: &str) -> Result<Box<dyn Task>, TaskError> {
    build_of(&ids(width), table)
}

/// The task over the file `a.bin` with these bytes.
fn build_of(bytes: &[u8], table: &str) -> Result<Box<dyn Task>, TaskError> {
    let folder = corpus(&[("a.bin", bytes)]);
    let ctx = common::ctx(folder.path(), 8, &[8, 16], 0);
    let table = format!("kind = \"text\"\nfiles = [\"a.bin\"]\n{table}");
    let config = toml::from_str::<TaskConfig>(&table).expect(&table);
    config.build(&ctx)
}

/// The error about the file `a.bin` with these bytes.
fn refused(bytes: &[u8], table: &str) -> String {
    match build_of(bytes, table) {
        Err(error) => format!("{error:?}"),
        Ok(_) => panic!("{table} is accepted"),
    }
}

#[test]
fn ids_are_read_whole_on_both_sides_of_the_split() {
    for (width, level) in [(2, "u16"), (4, "u32"), (8, "u64")] {
        // A tenth is 100 ids; 0.10075 cuts the id before them in two, which belongs to neither.
        for share in [0.1, 0.10075] {
            let table = format!(
                "level = \"{level}\"\nvocab = 700\neval_tokens = 64\nbytes_per_token = 4.0\n\
                 split = {{ by = \"range\", valid_fraction = {share} }}"
            );
            let task = build(width, &table).unwrap_or_else(|error| panic!("{error}"));
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
    let task = build(2, "level = \"u16\"\nvocab = 700").unwrap_or_else(|e| panic!("{e}"));
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

/// Tables, `; ` for a line break, and a part of the error about ids of 16 bits.
const MISTAKES: &str = r#"
level = "u16" | vocab
level = "u16"; vocab = 1 | vocab
level = "u16"; vocab = 300 | `task.vocab` = 300
vocab = 300 | is for files of token ids
level = "u16"; vocab = 700; bytes_per_token = 0.0 | bytes_per_token
level = "chars"; bytes_per_token = 4.0 | bytes_per_token
"#;

#[test]
fn mistakes_with_ids_are_named() {
    for row in common::lines(MISTAKES) {
        let [table, said] = common::cells(row);
        refused(&ids(2), &common::by_lines(table)).must_have(said);
    }
    let odd = refused(&[1u8; 2001], "level = \"u16\"\nvocab = 700");
    odd.must_have("not a whole number of ids of 16 bits");
}

/// A NumPy array as numpy.save writes it.
fn numpy(version: u8, kind: &str, shape: &str, by_columns: &str, ids: &[u8]) -> Vec<u8> {
    let dictionary =
        format!("{{'descr': '{kind}', 'fortran_order': {by_columns}, 'shape': {shape}, }}    \n");
    let size = dictionary.len() as u32;
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    file.extend(&size.to_le_bytes()[..if version == 1 { 2 } else { 4 }]);
    file.extend(dictionary.as_bytes());
    file.extend(ids);
    file
}

/// A shard of llm.c.
fn shard(magic: u32, count: u32, ids: &[u8]) -> Vec<u8> {
    let mut header = [0u32; 256];
    header[..3].copy_from_slice(&[magic, 1, count]);
    let header = header.into_iter().flat_map(u32::to_le_bytes);
    header.chain(ids.iter().copied()).collect()
}

#[test]
fn headers_are_recognised_and_read_past() {
    let table = |level: &str| format!("level = \"{level}\"\nvocab = 700\neval_tokens = 64");
    let plain = build(2, &table("u16")).unwrap_or_else(|e| panic!("{e}"));
    let batches = |task: &dyn Task| (task.train_batch(8, 9, 0, 0), task.test_batch(8, 0, 4));
    let (numpys, shards) = ("NumPy arrays", "shards of llm.c");
    let files = cases! {
        numpy(1, "<u2", "(1000,)", "False", &ids(2)), "u16", numpys;
        numpy(2, "<u2", "(20, 50)", "False", &ids(2)), "u16", numpys;
        numpy(1, "<i4", "(1000,)", "True", &ids(4)), "u32", numpys;
        numpy(3, "<i8", "(1000,)", "False", &ids(8)), "u64", numpys;
        shard(20_240_520, 1000, &ids(2)), "u16", shards;
        shard(20_240_801, 1000, &ids(4)), "u32", shards;
    };
    for (file, level, format) in files {
        let task = build_of(&file, &table(level)).unwrap_or_else(|e| panic!("{format}: {e}"));
        assert_eq!(batches(task.as_ref()), batches(plain.as_ref()), "{format}");
        let said = format!("the files are {format}, read past their headers");
        task.definitions("")["perplexity"].must_have(&said);
    }
    // The definitions of files without a header are what they were.
    assert!(!plain.definitions("")["perplexity"].contains("headers"));
}

#[test]
fn files_of_another_format_are_refused_with_a_fix() {
    let large: Vec<u8> = (0..4000u32)
        .flat_map(|i| (i * i % 90_000).to_le_bytes())
        .collect();
    let (full, few) = (
        "level = \"u16\"\nvocab = 65536",
        "level = \"u16\"\nvocab = 700",
    );
    let [u32s, u64s] = [
        "level = \"u32\"\nvocab = 65536",
        "level = \"u64\"\nvocab = 65536",
    ];
    let mut ninth = shard(20_240_520, 1000, &ids(2));
    ninth[4] = 9;
    let files = cases! {
        ids(4), full, "looks like ids of 32 bits: nearly all of its numbers are 0";
        ids(8), full, "write level = \\\"u64\\\"";
        large, full, "looks like ids of 32 bits";
        ids(8), u32s, "looks like ids of 64 bits";
        ids(2), u32s, "looks like ids of 16 bits: as such all are below";
        ids(4), u64s, "write level = \\\"u32\\\"";
        numpy(9, "<u2", "(1000,)", "False", &ids(2)), few,
            "is a NumPy array of version 9; known: 1 to 3";
        ninth, few, "is a shard of llm.c of version 9; known: 1 and 7";
        numpy(1, "<i8", "(1000,)", "False", &ids(8)), few, "says ids of 64 bits";
        numpy(1, "|u1", "(1000,)", "False", &ids(1)), few, "says ids of 8 bits";
        numpy(1, ">u2", "(1000,)", "False", &ids(2)), few, "a NumPy array of `>u2`, not of ids";
        numpy(1, "<f4", "(1000,)", "False", &ids(4)), few, "ravel()";
        numpy(1, "<u2", "(20, 50)", "True", &ids(2)), few, "stored by columns";
        numpy(1, "<u2", "(1001,)", "False", &ids(2)), few, "2002 bytes, and 2000 bytes follow";
        b"\x93NUMPY\x01\0\xff\0{".to_vec(), few, "header is not whole";
        shard(20_240_801, 1000, &ids(4)), full, "says ids of 32 bits";
        shard(20_240_520, 2000, &ids(2)), few, "4000 bytes, and 2000 bytes follow";
        [b"\x1f\x8b\x08\0".to_vec(), ids(2)].concat(), full, "a gzip file, not as token ids";
        "汉字 and letters\n".repeat(64).into_bytes(), full, "begins as text, not as token ids";
    };
    for (file, table, said) in files {
        refused(&file, table).must_have(said);
    }
    // Streams that hold what they say, whatever they look like.
    let constant: Vec<u8> = vec![0; 2000];
    let few: Vec<u8> = (0..1000u16).flat_map(|i| (i % 4).to_le_bytes()).collect();
    let pairs: Vec<u8> = (0..1000u16)
        .flat_map(|i| (if i % 2 == 0 { i } else { 1 + i % 5 }).to_le_bytes())
        .collect();
    for (name, file) in [("constant", constant), ("few", few), ("pairs", pairs)] {
        build_of(&file, full).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
