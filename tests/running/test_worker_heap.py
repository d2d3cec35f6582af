"""Run in processes of their own: freezing concerns a whole process."""

from __future__ import annotations

import subprocess
import sys

HEADER = "import gc; from kafka_tx.running.worker_python import task_done\n"


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", HEADER + script],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_after_the_first_tasks_collections_skip_what_stays():
    before, after, again = run(
        "print(len(gc.get_objects()))\n"
        "task_done(); print(len(gc.get_objects()))\n"
        "kept = [[n] for n in range(5000)]\n"
        "task_done(); print(len(gc.get_objects()))"
    )

    assert int(after) < int(before) / 10
    assert int(again) < 5000


def test_garbage_of_the_first_task_is_not_kept_for_ever():
    (gone,) = run(
        "import weakref\n"
        "class Knot: pass\n"
        "knot = Knot(); knot.self = knot; seen = weakref.ref(knot); del knot\n"
        "task_done(); print(seen() is None)"
    )

    assert gone == "True"
