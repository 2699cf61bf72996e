"""Reads commands from standard input, one JSON object a line, and prints what came of each.

With the argument `asyncio`, it uses `AsyncLeases`.
"""

import asyncio
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from webhook_serializer import AsyncLeases, LeaseError, LeaseRefused, Leases

IS_ASYNC = sys.argv[1:] == ["asyncio"]
leases = (AsyncLeases if IS_ASYNC else Leases).from_env()
held = {}
pool = ThreadPoolExecutor(1)


async def value_of(result):
    return await result if inspect.isawaitable(result) else result


def work_of(work):
    """Returns `work`, an asynchronous function, as these leases take it."""
    # A thread without an event loop of its own can run another.
    return work if IS_ASYNC else lambda lease: pool.submit(asyncio.run, work(lease)).result()


def freeze(seconds):
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


async def crowd(keys, times, folder):
    """Holds the leases of `keys` in turn. Files in `folder` show who is inside, and the last token."""
    overlaps = inversions = 0

    async def enter(lease):
        nonlocal overlaps, inversions
        inside, last = f"{folder}/inside-{number}", f"{folder}/token-{number}"
        try:
            open(inside, "x").close()
        except FileExistsError:
            overlaps += 1
        if os.path.exists(last):
            with open(last) as file:
                inversions += int(file.read()) >= lease.token
        with open(last, "w") as file:
            file.write(str(lease.token))
        await asyncio.sleep(0.001)
        os.unlink(inside)

    for _ in range(times):
        number = random.randrange(len(keys))
        await value_of(leases.run(keys[number], work_of(enter), wait=120))
    return {"holds": times, "overlaps": overlaps, "inversions": inversions}


async def run(command, terms):
    async def work(lease):
        if "block" in command:
            freeze(command["block"] / 1000)
        await asyncio.sleep(command["work"] / 1000)
        return lease.token

    return {"token": await value_of(leases.run(command["key"], work_of(work), **terms))}


async def once(command):
    """Calls a job. Prints a line once its work has begun, if it takes long."""

    async def work(run):
        if "writes" in command:
            run.commit(command["writes"])
        if "error" in command:
            raise ValueError(command["error"])
        if command.get("work"):
            print(json.dumps({"begun": run.token}), flush=True)
        await asyncio.sleep(command.get("work", 0) / 1000)
        return {"tick": int(run.tick.timestamp() * 1000), "token": run.token}

    terms = {"schedule": command["schedule"], "zone": command.get("zone"), "on_crash": command.get("onCrash", "again")}
    call = leases.once(command["key"], **terms)(work_of(work))
    return {"ran": await value_of(call())}


async def answer(command):
    operation, key = command["op"], command.get("key")
    terms = {name: command[name] / 1000 for name in ("length", "wait") if name in command}
    if operation == "acquire":
        held[key] = await value_of(leases.acquire(key, renew=False, **terms))
        return {"token": held[key].token}
    if operation == "once":
        return await once(command)
    if operation == "run":
        return await run(command, terms)
    if operation == "lookup":
        return (await value_of(leases.lookup(key)))._asdict()
    if operation == "crowd":
        return await crowd(command["keys"], command["times"], command["folder"])
    if operation == "commit":
        await value_of(held[key].commit(command["writes"]))
    else:
        await value_of(getattr(held[key], operation)())
    return {}


def failure(error):
    if isinstance(error, LeaseRefused):
        return {"error": error.reason, "message": str(error)}
    words = type(error).__name__.removeprefix("Lease")
    return {"error": re.sub("(?<!^)([A-Z])", r"_\1", words).lower(), "message": str(error)}


async def main():
    for line in sys.stdin:
        try:
            answered = await answer(json.loads(line))
        except LeaseError as error:
            answered = failure(error)
        except ValueError as error:
            answered = {"error": str(error)}
        print(json.dumps(answered, default=datetime.isoformat), flush=True)


asyncio.run(main())
