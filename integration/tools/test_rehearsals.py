"""Who sets up the tests sees what is made, and warnings only of what fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from integration.cluster import rehearsals


@pytest.mark.parametrize("fails", [False, True])
def test_the_output_of_a_rehearsal_is_shown_if_it_fails(
    tmp_path, monkeypatch, capfd, fails
):
    driver = tmp_path / "driver"
    driver.write_text(f"#!/bin/sh\necho BrokenPipeError >&2\nexit {int(fails)}\n")
    driver.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(driver))

    if fails:
        with pytest.raises(subprocess.CalledProcessError):
            rehearsals.spark()
    else:
        rehearsals.spark()

    assert ("BrokenPipeError" in capfd.readouterr().err) == fails
