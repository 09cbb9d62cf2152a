//! Text that a tokenizer has turned into ids.

use crate::common;
use longreach_tasks::{Task, TaskConfig, TaskError};

/// The ids 0, 3, 6, ... below 700 with `width` bytes each.
fn ids(width: usize) -> Vec<u8> {
    let ids = (0..1000u64).map(|i| i * 3 % 700);
    ids.flat_map(|id| id.to_le_bytes()[..width].to_vec())
        .collect()
}

fn build(name: &str, width: usize, table: &str) -> Result<Box<dyn Task>, TaskError> {
    build_of(name, &ids(width), table)
}

/// The task over the file `a.bin` with these bytes.
fn build_of(name: &str, bytes: &[u8], table: &str) -> Result<Box<dyn Task>, TaskError> {
    let folder = std::env::temp_dir().join(format!("longreach-ids-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch directory");
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
    for (width, level) in [(2, "u16"), (4, "u32"), (8, "u64")] {
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
    assert!(
        text.contains("not a whole number of ids of 16 bits"),
        "{text}"
    );
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
    let plain = build("bare", 2, &table("u16")).unwrap_or_else(|e| panic!("{e}"));
    let batches = |task: &dyn Task| (task.train_batch(8, 9, 0, 0), task.test_batch(8, 0, 4));
    for (name, file, level, format) in [
        (
            "npy1",
            numpy(1, "<u2", "(1000,)", "False", &ids(2)),
            "u16",
            "NumPy arrays",
        ),
        (
            "npy2",
            numpy(2, "<u2", "(20, 50)", "False", &ids(2)),
            "u16",
            "NumPy arrays",
        ),
        (
            "columns",
            numpy(1, "<i4", "(1000,)", "True", &ids(4)),
            "u32",
            "NumPy arrays",
        ),
        (
            "wide",
            numpy(3, "<i8", "(1000,)", "False", &ids(8)),
            "u64",
            "NumPy arrays",
        ),
        (
            "gpt2",
            shard(20_240_520, 1000, &ids(2)),
            "u16",
            "shards of llm.c",
        ),
        (
            "llama3",
            shard(20_240_801, 1000, &ids(4)),
            "u32",
            "shards of llm.c",
        ),
    ] {
        let task = build_of(name, &file, &table(level)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(batches(task.as_ref()), batches(plain.as_ref()), "{name}");
        let said = format!("the files are {format}, read past their headers");
        let definition = &task.definitions("")["perplexity"];
        assert!(definition.contains(&said), "{name}: {definition}");
    }
    // The definitions of files without a header are what they were.
    assert!(!plain.definitions("")["perplexity"].contains("headers"));
}

#[test]
fn files_of_another_format_are_refused_with_the_mend() {
    let u16_as_vocab = |vocab: usize| format!("level = \"u16\"\nvocab = {vocab}");
    let large: Vec<u8> = (0..4000u32)
        .flat_map(|i| (i * i % 90_000).to_le_bytes())
        .collect();
    for (name, file, table, said) in [
        (
            "raw32",
            ids(4),
            u16_as_vocab(65_536),
            "looks like ids of 32 bits: nearly all of its numbers are 0",
        ),
        (
            "raw64",
            ids(8),
            u16_as_vocab(65_536),
            "write level = \\\"u64\\\"",
        ),
        (
            "large",
            large,
            u16_as_vocab(65_536),
            "looks like ids of 32 bits",
        ),
        (
            "64as32",
            ids(8),
            "level = \"u32\"\nvocab = 65536".into(),
            "looks like ids of 64 bits",
        ),
        (
            "16as32",
            ids(2),
            "level = \"u32\"\nvocab = 65536".into(),
            "looks like ids of 16 bits: as such all are below",
        ),
        (
            "32as64",
            ids(4),
            "level = \"u64\"\nvocab = 65536".into(),
            "write level = \\\"u32\\\"",
        ),
        (
            "npy9",
            numpy(9, "<u2", "(1000,)", "False", &ids(2)),
            u16_as_vocab(700),
            "is a NumPy array of version 9; known: 1 to 3",
        ),
        (
            "shard9",
            {
                let mut file = shard(20_240_520, 1000, &ids(2));
                file[4] = 9;
                file
            },
            u16_as_vocab(700),
            "is a shard of llm.c of version 9; known: 1 and 7",
        ),
        (
            "npy",
            numpy(1, "<i8", "(1000,)", "False", &ids(8)),
            u16_as_vocab(700),
            "says ids of 64 bits",
        ),
        (
            "npy8",
            numpy(1, "|u1", "(1000,)", "False", &ids(1)),
            u16_as_vocab(700),
            "says ids of 8 bits",
        ),
        (
            "big",
            numpy(1, ">u2", "(1000,)", "False", &ids(2)),
            u16_as_vocab(700),
            "a NumPy array of `>u2`, not of ids",
        ),
        (
            "float",
            numpy(1, "<f4", "(1000,)", "False", &ids(4)),
            u16_as_vocab(700),
            "ravel()",
        ),
        (
            "columns2",
            numpy(1, "<u2", "(20, 50)", "True", &ids(2)),
            u16_as_vocab(700),
            "stored by columns",
        ),
        (
            "short",
            numpy(1, "<u2", "(1001,)", "False", &ids(2)),
            u16_as_vocab(700),
            "2002 bytes, and 2000 bytes follow",
        ),
        (
            "cut",
            b"\x93NUMPY\x01\0\xff\0{".to_vec(),
            u16_as_vocab(700),
            "header is not whole",
        ),
        (
            "shard",
            shard(20_240_801, 1000, &ids(4)),
            u16_as_vocab(65_536),
            "says ids of 32 bits",
        ),
        (
            "cut shard",
            shard(20_240_520, 2000, &ids(2)),
            u16_as_vocab(700),
            "4000 bytes, and 2000 bytes follow",
        ),
        (
            "gzip",
            [b"\x1f\x8b\x08\0".to_vec(), ids(2)].concat(),
            u16_as_vocab(65_536),
            "a gzip file, not as token ids",
        ),
        (
            "text",
            "汉字 and letters\n".repeat(64).into_bytes(),
            u16_as_vocab(65_536),
            "begins as text, not as token ids",
        ),
    ] {
        let error = build_of(name, &file, &table)
            .err()
            .unwrap_or_else(|| panic!("{name} is refused"));
        let text = format!("{error:?}");
        assert!(text.contains(said), "{name}: {text}");
    }
    // Streams that hold what they say, whatever they look like.
    let constant: Vec<u8> = vec![0; 2000];
    let few: Vec<u8> = (0..1000u16).flat_map(|i| (i % 4).to_le_bytes()).collect();
    let pairs: Vec<u8> = (0..1000u16)
        .flat_map(|i| (if i % 2 == 0 { i } else { 1 + i % 5 }).to_le_bytes())
        .collect();
    for (name, file) in [("constant", constant), ("few", few), ("pairs", pairs)] {
        build_of(name, &file, &u16_as_vocab(65_536)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
