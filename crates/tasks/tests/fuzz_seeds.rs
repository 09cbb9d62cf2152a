//! The seeds of the fuzz target `corpus`, among them every input that ever crashed, without a
//! fuzzer.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;

#[test]
fn fuzz_seeds_do_not_panic() {
    let scratch = corpus::Scratch::new("corpus-seeds");
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/corpus");
    let mut used = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        used += usize::from(corpus::check(&std::fs::read(path).unwrap(), &scratch));
    }
    assert!(used >= 15, "{used} seeds of use");
}
