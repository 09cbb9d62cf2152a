# Shortcuts; every recipe is one command of the README or of CI.

quickstart:
    cargo run --release --locked -- run configs/quickstart.toml

test:
    ./scripts/test

ci:
    ./.ci/run
