#!/usr/bin/env node
// Starts the `serializer` command for this machine, which is in a package of its own.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const platform = `${process.platform}-${process.arch}`;

function binary() {
  try {
    return createRequire(import.meta.url).resolve(`webhook-serializer-cli-${platform}/serializer`);
  } catch {
    console.error(
      `error: the package webhook-serializer-cli-${platform} is not installed. Install again without ` +
        "`--omit=optional`. There are packages for Linux (x64 and arm64, with glibc) and macOS (arm64).",
    );
    process.exit(1);
  }
}

// With `npx`, the command is not on the PATH.
const typed = process.env.npm_command === "exec" ? { SERIALIZER_COMMAND: "npx webhook-serializer-cli" } : {};
const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit", env: { ...typed, ...process.env } });

// A terminal sends Ctrl-C to the command too, which then ends in its own time.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + constants.signals[signal]);
});
