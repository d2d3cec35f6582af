"""Make the set of this version, or let its jobs go on and die somewhere.

::

    python -m integration.stored                    the set of the release
    python -m integration.stored make FOLDER        the set in another folder
    python -m integration.stored play FOLDER SEED   jobs on the store in the folder
    python -m integration.stored -                  each line that it reads, likewise
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import kafka_tx
from integration.stored import sets
from integration.stored.jobs import JOBS, StoredJob


def main() -> None:
    words = sys.argv[1:] or ["make", str(sets.RELEASE)]
    for told in map(str.split, sys.stdin) if words == ["-"] else [words]:
        do(told)


def do(words: list[str]) -> None:
    command, folder = words[0], Path(words[1])
    if command == "make":
        sets.make(folder)
    else:
        play(folder, random.Random(words[2]))
    place = Path(kafka_tx.__file__).parent
    print(f"{command}: {folder}, by {place}", flush=True)


def play(folder: Path, chance: random.Random) -> None:
    """Let a driver of each job read more, and die after any of its steps."""
    url, file = f"sqlite:///{folder}/store.db", folder / "jobs.json"
    jobs = {name: StoredJob(name, url, url) for name in JOBS}
    if file.exists():
        saved = json.loads(file.read_text())
        jobs = {name: job.load(saved[name]) for name, job in jobs.items()}
    for job in jobs.values():
        job.produce(chance.randint(3, 9))
        for _ in range(chance.randint(5, 25)):
            assert job.run.step(), job.run.error
        job.check_doubled()
        job.close()
    file.write_text(json.dumps({name: job.saved() for name, job in jobs.items()}))


if __name__ == "__main__":
    main()
