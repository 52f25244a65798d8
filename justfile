# `just` lists the recipes.
_default:
    @just --list --unsorted

# Run the demo operator without a cluster
demo *args:
    cargo run -- demo {{args}}

# Run all tests
test:
    cargo test --workspace

# Format all code, including modules that a macro declares
fmt:
    cargo fmt --all
    find crates/flyball-server/src/kinds -name '*.rs' -exec rustfmt --edition 2024 {} +

# Run all checks that main must pass
ci:
    .ci/run

# Replay recorded API server scenarios whose name matches a regular expression
recordings regex='':
    FLYBALL_SCENARIO='{{regex}}' cargo test -p flyball-cluster --test it recorded; tail -1 target/tmp/conformance.txt

# Add passing recordings to the list of those that must pass
bless:
    FLYBALL_BLESS=1 cargo test -p flyball-cluster --test it recorded

# Fuzz one target or all with a new seed: `just fuzz cel 600`
fuzz target='' seconds='600':
    FLYBALL_FUZZ_SECONDS={{seconds}} FLYBALL_FUZZ_SEED=$(date +%s) FLYBALL_FUZZ_KEEP=1 \
        cargo test -p flyball -p flyball-server -p flyball-chart -p flyball-helm -p flyball-ansible -p flyball-lifecycle \
        --no-fail-fast --test fuzz -- --nocapture --test-threads 2 {{target}}

# Fetch public charts into a folder, install them, and validate their samples
public-charts folder='/tmp/public-charts':
    .ci/public-charts {{folder}}
    FLYBALL_TEST_PUBLIC_CHARTS={{folder}} cargo test -p flyball-cli --test it public_charts
    cat target/tmp/public-charts.md

# Test the control plane with all installed kubectl versions and with Python clients
clients:
    cargo build
    .ci/kubectl target/debug/flyball
    .ci/clients/run target/debug/flyball

# Run the benchmarks, and also against the cluster of a kubeconfig if given
bench peer='':
    cargo build --release
    cargo run --release --manifest-path benches/Cargo.toml -- server target/release/flyball {{peer}}
    cargo run --release --manifest-path benches/Cargo.toml -- cold-start
    cargo run --release --manifest-path benches/Cargo.toml -- writes

# Build the release binary: target/dist/flyball
dist:
    .ci/dist

# Check licenses, sources, bans, duplicate versions and advisories
deny:
    .ci/deny
