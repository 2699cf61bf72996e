# What a developer does here. `just --list`

# A whole deployment on this machine, shown
demo:
    cargo run -- local --demo

# The deterministic tests, and which of them did not run
test:
    .ci/test

# The tests with real processes, a browser, other languages or long searches; or those named
prove *what:
    .ci/prove {{what}}

# All of `cargo test`, several times beside busy processes: none may fail for want of time
under-load *times:
    .ci/under-load {{times}}

# The pages and the schema that are made from the code
generate:
    .ci/generate

# The gate, as it is run on every change
ci:
    .ci/run

# Every command of README and docs, typed into terminals
pages *page:
    .ci/pages {{page}}

# Each mistake of the ledger put back, and noticed
ledger:
    .ci/ledger

# The code changed in thousands of places, one at a time: do the tests notice?
mutants *what:
    .ci/mutants {{what}}

# Real function binaries under cargo lambda watch, a signed webhook, an applied order
loop:
    .ci/local-loop

# The template linted, the functions built for arm64
deployable:
    .ci/deployable

# Advisories, licences, sources and duplicates of what is depended on
supply-chain:
    .ci/supply-chain

# The functions as zips for arm64, the same bytes everywhere, with their parts and checksums
release *what:
    .ci/release {{what}}

# What is deployed without Rust: zips for both processors, templates, checksums, the command
dist:
    .ci/dist

# The command as npm packages and a wheel, for this machine
command-packages *how:
    .ci/command-packages {{how}}

# The command as a container image, for this machine
image *how:
    .ci/image {{how}}

# dist as SAM, the CDK and Terraform take it
without-rust:
    .ci/without-rust

# A stack of its own in AWS: deployed, tried, removed
on-aws:
    .ci/on-aws
