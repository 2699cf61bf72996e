# What a developer does here. `just --list`

# A whole deployment on this machine, shown
demo:
    cargo run -- local --demo

# All tests, and which of them could not run here
test:
    .ci/test

# The gate, as it is run on every change
ci:
    .ci/run

# Real function binaries under cargo lambda watch, a signed webhook, an applied order
loop:
    .ci/local-loop

# The template linted, the functions built for arm64
deployable:
    .ci/deployable

# A stack of its own in AWS: deployed, tried, removed
on-aws:
    .ci/on-aws
