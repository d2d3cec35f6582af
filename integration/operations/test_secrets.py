"""Nothing that Spark shows or keeps has a secret of an option in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from integration.cluster.jars import REPOSITORY
from integration.operations.secrets_job import PLANTED


@pytest.mark.all
def test_no_plan_event_log_page_checkpoint_error_or_log_has_a_secret(
    kafka, topic, produce, tmp_path, python
):
    source, target = topic(1), topic(1)
    produce(source, ["a", "b"])
    arguments = [str(tmp_path), kafka.bootstrap_servers, source, target]
    ended = subprocess.run(
        [sys.executable, "-m", "integration.operations.secrets_job", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"PYSPARK_PYTHON": python},
        capture_output=True,
        timeout=250,
        check=False,
    )
    (tmp_path / "log").write_bytes(ended.stdout + ended.stderr)
    assert (tmp_path / "done").exists(), (tmp_path / "log").read_text()[-4000:]

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"shown", "log", "metadata"} <= {path.name for path in files}
    assert any(path.is_relative_to(tmp_path / "events") for path in files)
    found = []
    for path in files:
        text = path.read_bytes().decode(errors="replace")
        place = text.find(PLANTED)
        if place >= 0:
            found.append((path.name, text[max(0, place - 200) : place + 20]))
    assert not found
    shown = (tmp_path / "shown").read_text()
    assert "tx.store=*********(redacted)" in shown
    assert "as it was told to" in shown
    assert "SQL/execution/?id=0" in shown
