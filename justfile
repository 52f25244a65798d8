# The menu; `just` lists it.
_default:
    @just --list --unsorted

# The main job: an operator at work
demo *args:
    cargo run -- demo {{args}}

# All tests
test:
    cargo test --workspace

# What main must pass
ci:
    .ci/run

# Play recordings whose name matches
recordings regex='':
    FLYBALL_SCENARIO='{{regex}}' cargo test -p flyball-cluster --test it recorded; tail -1 target/tmp/conformance.txt

# Add what passes by now to the list of recordings that must
bless:
    FLYBALL_BLESS=1 cargo test -p flyball-cluster --test it recorded

# Go on with fuzzing one target, or all: `just fuzz cel 600`
fuzz target='' seconds='600':
    FLYBALL_FUZZ_SECONDS={{seconds}} FLYBALL_FUZZ_SEED=$(date +%s) FLYBALL_FUZZ_KEEP=1 \
        cargo test -p flyball-server -p flyball-chart -p flyball-helm -p flyball-ansible --no-fail-fast --test fuzz -- \
        --nocapture --test-threads 2 {{target}}

# Drive the control plane with every kubectl, and with clients in Python
clients:
    cargo build
    .ci/kubectl target/debug/flyball
    .ci/clients/run target/debug/flyball

# Measure, beside the cluster of a kubeconfig if one is given
bench peer='':
    cargo build --release
    cargo run --release --manifest-path benches/Cargo.toml -- server target/release/flyball {{peer}}
    cargo run --release --manifest-path benches/Cargo.toml -- cold-start
    cargo run --release --manifest-path benches/Cargo.toml -- writes

# Build the program as it is handed out: target/dist/flyball
dist:
    .ci/dist

# Licenses, sources, bans, duplicate versions, advisories
deny:
    .ci/deny
