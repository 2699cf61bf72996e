"""The paths that `.ci/first-hour` types by the clock: what a new user does from
nothing until a webhook is applied, how long each took, and the section of
docs/first-hour.md about them.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TRANSCRIPT = ROOT / "docs/first-hour.md"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# The same place each time, so that what was built there is replaced.
WORK = TARGET / "first-hour"
CLONE = WORK / "webhook-serializer"
# As `.ci/dist` makes it, but for the functions.
DIST = WORK / "dist"
# Where a project of one's own is made, what cargo downloads for it, and where it builds with the clock running.
HOME, CARGO_HOME, EMPTY = WORK / "home", WORK / "cargo", WORK / "empty"
MEASURED = {"CARGO_HOME": str(CARGO_HOME), "CARGO_TARGET_DIR": str(EMPTY)}


def stop(reason):
    sys.exit(f"first-hour: {reason}")


def pattern(line):
    """A line in which `…` stands for anything."""
    return ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))


SECRET = "SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080"
APPLIED = "… applied orders/create …"
# As Python says it, and as Node does.
SAYS = {"py": '{"outcome": "applied", …', "ts": '{"outcome":"applied",…'}


class Way(NamedTuple):
    """One of `PATHS`."""

    what: str
    page: str
    begins: str
    folder: Path
    commands: list
    promised: list
    # Whether it asks the registry, and builds what nobody else needs.
    only_by_clock: bool = False
    # Whether it goes on with what was built for the one before.
    goes_on: bool = False


def behind_dist(what, needs, receiver, sources, first=()):
    """Without Rust."""
    return Way(what, "docs/without-rust.md", f"`dist`, {needs}", DIST, [
        *first,
        receiver,
        f"./serializer local --sources receivers/{sources}",
        f"./serializer send --sources receivers/{sources} --provider shopify",
        "./serializer inspect --local shopify/order/450789469",
    ], [APPLIED, SAYS[receiver[-2:]]])


def behind_clone(what, page, begins, receiver, sources, goes_on=False):
    """In a clone of this repository."""
    sources = f"shared/examples/receivers/{sources}"
    return Way(what, page, begins, CLONE, [
        receiver,
        f"cargo run -- local --sources {sources}",
        f"cargo run -- send --sources {sources} events/shopify-orders-create.json",
        "cargo run -- inspect --local shopify/order/450789469",
    ], [APPLIED, SAYS[receiver[-2:]]], goes_on=goes_on)


TYPESCRIPT = f"{SECRET} node --experimental-strip-types"

# What a new user does from nothing until a webhook is applied.
PATHS = [
    Way("A project of your own, in Rust", "docs/your-own-project.md",
        "a clone, Rust, cargo-lambda, the crates; nothing built", HOME, [
            f"cargo lambda new my-orders --template {CLONE}/templates/rust "
            f"--no-interactive --render-var from=git --render-var library=file://{CLONE}",
            "cd my-orders",
            "cargo run -- local --demo",
        ], ["verdict: 4 webhooks of 2 orders, each sent twice: each applied once, in order"],
        only_by_clock=True),
    behind_dist("A function in Python, behind `invoke`", "Python 3.11", "PORT=3001 python3 receivers/invoke_handler.py", "invoke.toml",
        first=["shasum -a 256 --check SHA256SUMS"]),
    behind_dist("A receiver in TypeScript, behind `forward`", "Node 22.6", f"{TYPESCRIPT} receivers/receiver.ts", "sources.toml"),
    behind_clone("The function in Python, with Rust", "docs/invoke.md", "a clone, Rust, the crates, Python 3.11; nothing built",
        "PORT=3001 python3 shared/examples/receivers/invoke_handler.py", "invoke.toml"),
    behind_clone("The receiver in TypeScript, with Rust", "docs/forward.md", "the same clone, built by now; Node 22.6",
        f"{TYPESCRIPT} shared/examples/receivers/receiver.ts", "sources.toml", goes_on=True),
]


BY_THE_CLOCK = "## By the clock"


def in_short(command):
    return command.replace(str(CLONE), "…/webhook-serializer")


def demand_of(way, written):
    """Its page has to have each command that is typed, among those that are `written` there."""
    for command in way.commands:
        # What the page leaves to the reader, and options, are filled in here.
        if not any(re.match(pattern(line), command) for line in written):
            stop(f"{way.page} does not have what is typed by the clock:\n{command}")


class Clock:
    """How long each path took, where, and what was seen; by its name."""

    def __init__(self, page):
        self.where = next(iter(re.findall(r"^Measured .*$", page, re.MULTILINE)), None)
        self.shown = dict(re.findall(r"^### (.+?)\n\n(.*?)\n\n(?=##)", page, re.MULTILINE | re.DOTALL))
        self.took = dict(re.findall(r"^\| \[(.+?)\]\(.+?\) \| .+ \| (.+?) \|$", page, re.MULTILINE))
        # What was measured before the network of its own was entered.
        vars(self).update(json.loads(os.environ.get("FIRST_HOUR_MEASURED", "{}")))

    def set(self, load):
        """Downloads what cargo will ask for, with nothing there before."""
        began = time.monotonic()
        downloads = {**os.environ, "CARGO_HOME": str(CARGO_HOME)}
        subprocess.run(["cargo", "fetch", "--locked", "--quiet"], cwd=CLONE, env=downloads, check=True)
        fetched = time.monotonic() - began
        size = sum(file.stat().st_size for file in CARGO_HOME.rglob("*.crate")) / 1e6
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        busy = f", which other work used too (load {load:.1f})" if load > 0.3 else ""
        self.where = (
            f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}, with {os.cpu_count()} processors{busy}, "
            f"{platform.machine()}, {memory:.0f} GB. Not in it: the download of the crates, {size:.0f} MB, here in {spoken(fetched)}. "
            "The project of your own has no Cargo.lock yet: what cargo asks the registry for then, and newer crates, are in its time."
        )

    def check(self):
        """What is not typed with every change is what was typed when it was measured."""
        for way in PATHS:
            if not self.where or way.what not in self.took:
                stop("docs/first-hour.md has no times of these paths; .ci/first-hour --clock measures them")
            typed = re.findall(r"^\$ (.*)$", self.shown.get(way.what, ""), re.MULTILINE)
            if way.only_by_clock and typed != [in_short(command) for command in way.commands]:
                stop(f"docs/first-hour.md shows others than are typed now, of: {way.what}; .ci/first-hour --clock measures anew")

    def section(self):
        """The page's section of the paths."""
        self.check()
        lines = [
            f"{BY_THE_CLOCK}\n",
            "From nothing until a webhook is applied, each path typed without a pause, in folders of its own; two of them begin "
            "with a [`dist`](without-rust.md#what-is-in-dist) that somebody has made. The path's page tells it in full. The first "
            "one is typed only when the times are measured; with every change, `.ci/package` makes such a project and plays its "
            "demonstration.\n",
            self.where,
            "",
            "| path | begins with | took |\n|---|---|---|",
            *(f"| [{way.what}]({os.path.relpath(way.page, 'docs')}) | {way.begins} | {self.took[way.what]} |" for way in PATHS),
            "",
            *(line for way in PATHS for line in (f"### {way.what}\n", self.shown[way.what] + "\n")),
        ]
        return plain(lines)


def spoken(seconds):
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def plain(lines):
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def with_section(page, section):
    """The page with this section in place of the one that it has."""
    begin = page.find(f"{BY_THE_CLOCK}\n")
    end = page.index("\n## From ", max(begin, 0)) + 1
    return page[: begin if begin >= 0 else end] + section.rstrip("\n") + "\n\n" + page[end:]
