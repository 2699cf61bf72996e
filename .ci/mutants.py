"""`.ci/mutants`, which says what it does."""

import argparse
import fcntl
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import schemata

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target/mutants"
TREE = WORK / "tree"
LISTED, RESULTS = WORK / "listed.json", WORK / "asked.json"

# Tests that may notice a mutant. Lints and pinned counts are left out: the score is about
# changes of behaviour.
LIBRARY = ["-p", "webhook-serializer", "--lib", "--features=ingest,scheduler"]
PROTOCOL = ["-p", "webhook-serializer-protocol", "--lib", "--features=system,zstd"]
TESTS = ["-p", "tests", "--test=end_to_end", "--test=forward", "--test=logs", "--test=sources", "--test=template"]
PAGES = ["-p", "webhook-serializer-cli", "--lib"]
COMMAND = ["-p", "webhook-serializer-cli", "--test=command"]
TRACES = ["-p", "tests", "--features=otel", "--test=traces"]
NARROW = [LIBRARY, PROTOCOL, PAGES, TESTS, COMMAND, TRACES]
WIDE = [["-p", "tests", "--test=simulation"], ["-p", "model", "--test=model"]]

# Tests are not mutated.
FILES = {
    "shared/src": """
        engine/append.rs engine/drain* jobs* engine/lease_renewer.rs leases* operator* engine/sweep* engine/wake.rs
        handlers* providers* functions*
    """.split(),
    "shared/protocol/src": """
        attempt.rs delivery* entity* inbox* lease* operation.rs rate.rs state* tick* maintain*
    """.split(),
}


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


@functools.cache
def files():
    listed = run("git", "ls-files", *(f"{folder}/{one}" for folder, ours in FILES.items() for one in ours)).split()
    return [one for one in listed if one.endswith(".rs") and not re.search(r"/tests/|/tests\.rs$|/main\.rs$", one)]


@functools.cache
def environment():
    node = ROOT / "target/tools/node/bin/node"
    libraries = run("rustc", "--print", "sysroot").strip() + "/lib"
    ours = {"MODEL_COUNTS": "free", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_TARGET_DIR": str(TREE / "target"),
            "RUST_TEST_THREADS": "1", "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
            "LD_LIBRARY_PATH": libraries, "DYLD_FALLBACK_LIBRARY_PATH": libraries}
    return {**os.environ, **({"NODE": str(node)} if node.exists() else {}), **ours}


class Mutants:
    """All mutants, and the result of each: `compiles never`, what noticed it, or `nobody`."""

    def __init__(self):
        self.all = json.loads(LISTED.read_text())
        for number, mutant in enumerate(self.all):
            mutant["number"] = number
        # A copy of the current files, so that later edits do not matter.
        self.texts = {one: (ROOT / one).read_bytes() for one in files()}
        # Each file's results carry its checksum, so a changed file is tested again.
        kept, self.known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}, {}
        for one, text in self.texts.items():
            new = {"sum": hashlib.sha256(text).hexdigest(), "mutants": {}}
            self.known[one] = kept[one] if kept.get(one, {}).get("sum") == new["sum"] else new

    def result(self, mutant):
        """None: there is none yet."""
        return self.known[mutant["file"]]["mutants"].get(mutant["name"])

    def record(self, mutant, result):
        self.known[mutant["file"]]["mutants"][mutant["name"]] = result

    def keep(self):
        beside = RESULTS.with_suffix(".new")
        beside.write_text(json.dumps(self.known, indent=1))
        beside.replace(RESULTS)

    def score(self):
        total = Counter()
        for one in files():
            results = {mutant["name"]: self.result(mutant) for mutant in self.all if mutant["file"] == one}
            count = Counter(result if result in ("compiles never", "nobody", None) else "noticed" for result in results.values())
            print(f"{count['noticed']:4} of {count['noticed'] + count['nobody']:4} noticed  {one}")
            for name, result in results.items():
                if result == "nobody":
                    print(f"        {name.removeprefix(one + ':')}")
            total += count
            total["late"] += sum(str(result).endswith(" (time)") for result in results.values())
        compile_ = total["noticed"] + total["nobody"]
        print(f"{total['noticed']} of {compile_} noticed, {100 * total['noticed'] / max(compile_, 1):.1f} %; of {len(self.all)} "
              f"{total['compiles never']} do not compile, {total[None]} were not asked")
        print(f"{total['late']} of those that were noticed never ended")


def copy():
    """A tree to write them into, and their list."""
    run(".ci/copy", str(TREE))
    # Dependencies have no mutants. Optimising them halves the time of the tests.
    (TREE / ".cargo/config.toml").write_text('[profile.dev.package."*"]\nopt-level = 2\n')
    # Also for processes that a test starts with an environment of its own.
    for one in run("git", "grep", "-l", r"\.env_clear()", "--", "*.rs").split():
        switched = '.env_clear().envs(std::env::vars().filter(|(name, _)| name.starts_with("MUTANT")))'
        (TREE / one).write_text((TREE / one).read_text().replace(".env_clear()", switched))
    LISTED.write_text(run("cargo", "mutants", "--dir", str(TREE), "--list", "--json", *(f"--file={one}" for one in files())))


def written(mutants):
    """Each file with those in it that may compile."""
    for one in files():
        here = [mutant for mutant in mutants.all if mutant["file"] == one and mutants.result(mutant) != "compiles never"]
        yield one, schemata.Woven(mutants.texts[one], here)


def weave(mutants):
    """Writes them into the tree, until it compiles; returns the numbers of those that do."""
    for folder, switch in {"shared/src": schemata.SAME_SWITCH, "shared/protocol/src": schemata.SWITCH}.items():
        root = TREE / folder / "lib.rs"
        # Code that is written for a mutant may be unused without it.
        text = re.sub(r"^(?=#!\[(cfg_attr\(\n|allow\())", "#![allow(warnings)]\n", root.read_text(), count=1, flags=re.M)
        root.write_text(text + switch)
    while True:
        at = {}
        for one, woven in written(mutants):
            at[one] = woven.at
            if (TREE / one).read_text() != woven.text:
                (TREE / one).write_text(woven.text)
            for mutant in woven.broken:
                mutants.record(mutant, "compiles never")
        errors = compiled(PROTOCOL)[1] or compiled(LIBRARY)[1]
        if not errors:
            mutants.keep()
            return [number for here in at.values() for number in here]
        broken = {schemata.compiled_never(at, error) for error in errors} - {None}
        if not broken:
            sys.exit("\n".join(error["rendered"] for error in errors[:5]))
        print(f"{len(broken)} do not compile", flush=True)
        for number in broken:
            mutants.record(mutants.all[number], "compiles never")


def compiled(arguments):
    """The test binaries, by their names, with the folders they run in; and the errors."""
    done = subprocess.run(["cargo", "test", "--locked", "--no-run", "--message-format=json", *arguments],
                          cwd=TREE, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    errors = [one["message"] for one in messages if one["reason"] == "compiler-message" and one["message"]["level"] == "error"]
    if done.returncode and not errors:
        sys.exit(done.stderr)
    return {one["target"]["name"]: (one["executable"], str(Path(one["manifest_path"]).parent)) for one in messages
            if one["reason"] == "compiler-artifact" and one.get("executable") and one["profile"]["test"]}, errors


def test(binary, arguments, patience, **more):
    """The exit code (None: it did not end within `patience` seconds) and the output."""
    executable, folder = binary
    process = subprocess.Popen([executable, *arguments], cwd=folder, env={**environment(), **more, "CARGO_MANIFEST_DIR": folder},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output = process.communicate(timeout=patience)[0].decode(errors="replace")
        return process.returncode, output
    except subprocess.TimeoutExpired:
        # Its children have process groups of their own, in the same session.
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)])
        process.wait()
        return None, ""


class Test:
    def __init__(self, target, binary, name):
        self.target, self.binary, self.name = target, binary, name
        # Some tests keep files, so a test never runs beside itself.
        self.alone = threading.Lock()

    def look(self):
        """Runs it without a mutant, and finds those that it reaches."""
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            trace, began = Path(folder) / "trace", time.monotonic()
            code, _ = test(self.binary, ["--exact", self.name], 120, MUTANT_TRACE=str(trace))
            self.took = time.monotonic() - began
            self.reaches = set(map(int, trace.read_text().split())) if trace.exists() else set()
        self.passes = code == 0
        if not self.passes:
            # Tests that read the sources, or that cargo starts; they are not run.
            print(f"left out, since it fails without a mutant: {self.target} {self.name}", flush=True)

    def notices(self, number, times=8):
        """Its name if it fails twice: no chance is to notice. With a word if it never ended."""
        with self.alone:
            for _ in range(2):
                code, _ = test(self.binary, ["--exact", self.name], 15 + times * self.took, MUTANT=str(number))
                if code in (0, None):
                    break
        return None if code == 0 else f"{self.target} {self.name}" + (" (time)" if code is None else "")


def all_tests(suites):
    found = []
    for arguments in suites:
        binaries, errors = compiled(arguments)
        if errors:
            sys.exit(errors[0]["rendered"])
        for target, binary in binaries.items():
            names = re.findall(r"^(.*): test$", test(binary, ["--list"], 60)[1], re.M)
            found += [Test(target, binary, name) for name in names]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(Test.look, found))
    print(f"{len(found)} tests, {sum(one.took for one in found):.0f} s together", flush=True)
    return [one for one in found if one.passes]


def ask(mutants, chosen, suites):
    """Runs the tests that reach a mutant, for each mutant that nobody has noticed."""
    reached = defaultdict(list)
    # The quickest first; among equals, the test that reaches the fewest mutants.
    for one in sorted(all_tests(suites), key=lambda one: one.took * (100 + len(one.reaches))):
        for number in one.reaches:
            reached[number].append(one)

    def first(mutant, tests, *times):
        return next(filter(None, (one.notices(mutant["number"], *times) for one in tests)), "nobody")

    missed, late = 0, []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda mutant: first(mutant, reached[mutant["number"]]), chosen)
        for done, (mutant, by) in enumerate(zip(chosen, found), 1):
            missed += by == "nobody"
            if by.endswith(" (time)"):
                late.append((mutant, by))
            else:
                mutants.record(mutant, by)
            if done % 25 == 0 or done == len(chosen):
                print(f"{done} of {len(chosen)} asked, {missed} noticed by nobody", flush=True)
                mutants.keep()
    # On a busy machine, a slow test seems never to end. Repeat it, one at a time.
    for mutant, by in late:
        print(f"once more, alone: {mutant['name']}", flush=True)
        tests = sorted(reached[mutant["number"]], key=lambda one: f"{one.target} {one.name} (time)" != by)
        mutants.record(mutant, first(mutant, tests, 20))
    mutants.keep()


def fails():
    """Which test target notices what is in the tree."""
    for arguments in NARROW:
        binaries, errors = compiled(arguments)
        if errors:
            return "compiles never"
        for target, binary in binaries.items():
            # Without the tests that read the sources.
            for_all = ["--test-threads", str(os.cpu_count()), "--skip", "layout::"]
            # Twice: no chance is to notice.
            if test(binary, for_all, 600)[0] != 0 and test(binary, for_all, 600)[0] != 0:
                return target
    return None


def with_builds(mutants, chosen):
    if by := fails():
        sys.exit(f"it fails without a mutant: {by}")
    for mutant in chosen:
        place, text = TREE / mutant["file"], mutants.texts[mutant["file"]].decode()
        place.write_text(schemata.alone(text, mutant))
        mutants.record(mutant, fails() or "nobody")
        place.write_text(text)
        print(f"{mutant['name']}: {mutants.result(mutant)}", flush=True)
        mutants.keep()


def main():
    what = "Changes the code in thousands of places, one at a time, and runs the tests, which should notice."
    parser = argparse.ArgumentParser(prog=".ci/mutants", description=what)
    parser.add_argument("files", nargs="*", help="only the mutants of these files")
    parser.add_argument("--score", action="store_true", help="progress and survivors")
    parser.add_argument("--alone", action="store_true", help="mutants that need a build of their own: constants")
    parser.add_argument("--wide", action="store_true", help="runs simulation and model on the survivors")
    options = parser.parse_args()
    if options.score:
        return Mutants().score() if LISTED.exists() else print("nothing yet")
    TREE.mkdir(parents=True, exist_ok=True)
    # Two runs would change the same copy.
    only = (WORK / "lock").open("w")
    try:
        fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("another run is at it: target/mutants/lock")
    if unknown := set(options.files) - set(files()):
        sys.exit(f"not among those that are changed: {', '.join(sorted(unknown))}")
    chosen = options.files or files()
    copy()
    mutants = Mutants()
    is_left = lambda mutant: mutant["file"] in chosen and mutants.result(mutant) in (None, "nobody")
    if options.alone:
        with_builds(mutants, [mutant for _, woven in written(mutants) for mutant in woven.alone if is_left(mutant)])
    else:
        woven = [mutants.all[number] for number in weave(mutants)]
        ask(mutants, list(filter(is_left, woven)), WIDE if options.wide else NARROW)
    mutants.score()


if __name__ == "__main__":
    main()
