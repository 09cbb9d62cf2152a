//! The text is the one that recorded runs are named by: its identity, computed from its definition.

use longreach_corpus::rust_2026;

fn number(n: usize) -> [u8; 8] {
    (n as u64).to_le_bytes()
}

#[test]
fn its_hash_is_that_of_the_committed_records() {
    let text = rust_2026();
    let (mut at, mut parts) = (0, [Vec::new(), Vec::new()]);
    for (index, (name, len)) in text.files.iter().enumerate() {
        // Every 10th file is held out.
        let part = usize::from(index % 10 == 9);
        parts[part].push((name.as_str(), &text.bytes[at..at + len]));
        at += len;
    }
    assert_eq!(at, text.bytes.len());
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"longreach corpus v1");
    for (name, files) in ["train", "valid"].into_iter().zip(&parts) {
        hasher.update(name.as_bytes()).update(&number(files.len()));
        for (name, bytes) in files {
            hasher.update(&number(name.len())).update(name.as_bytes());
            hasher.update(&number(bytes.len())).update(bytes);
        }
    }
    // `task.corpus` of experiments/001-quickstart/results.jsonl.
    assert_eq!(
        hasher.finalize().to_hex().as_str(),
        "a5cc63fd5e03a52c6dec4ab5862b53ca48f7c5c63e9af97a01196cbf365e65c5"
    );
    let bytes = parts.map(|files| files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
    assert_eq!((text.files.len(), bytes), (728, [8_309_767, 729_314]));
    assert!(text.files.is_sorted());
}

#[test]
fn its_crates_are_named_with_their_versions() {
    let packages = rust_2026().packages;
    assert_eq!(
        (packages.len(), &*packages[0]),
        (12, "burn-autodiff 0.22.1")
    );
    assert!(packages.is_sorted());
    let files = rust_2026().files;
    for package in packages {
        let directory = format!("{}/", package.replace(' ', "-"));
        assert!(
            files.iter().any(|(name, _)| name.starts_with(&directory)),
            "{directory}"
        );
    }
}
