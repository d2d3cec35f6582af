"""The image of the page on Kubernetes has what the package needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_it_installs_every_dependency_but_pyspark():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {*project["dependencies"], *project["optional-dependencies"]["postgresql"]}
    text = (REPOSITORY / "docs/platforms/Dockerfile").read_text()
    _, _, command = text.partition("/tmp/wheels/*.whl")
    installed = set(re.findall(r'"([^"]+)"', command))
    assert installed == {each for each in needed if not each.startswith("pyspark")}
