"""Grafana's own types of a dashboard, from 10.4 to 13, accept ours."""

import shutil
import subprocess
from pathlib import Path

import pytest

from integration.operations.observing import GRAFANA

VERSIONS = ("10.4.0", "11.0.0", "11.6.0", "12.0.0", "12.4.0", "13.1.0", "13.2.3")
OF_PROMETHEUS = {"expr", "step", "tagKeys", "titleFormat", "useValueForTime"}
"""Fields of annotations that Grafana's types leave to the data source."""

CHECK = """
import type {{ Dashboard }} from 'schema-{version}';
type Literal<T> = T extends string ? `${{T}}` : T extends (infer U)[] ? Literal<U>[]
  : T extends object ? {{ [K in keyof T]: Literal<T[K]> }} : T;
type Listed = NonNullable<NonNullable<Dashboard['annotations']>['list']>;
type Annotation = Literal<Listed[0]>;
type OfPrometheus = {{ {fields} }};
export const dashboard: Omit<Literal<Dashboard>, 'annotations'>
  & {{ annotations: {{ list: (Annotation & Partial<OfPrometheus>)[] }} }} = {dashboard};
"""


def run(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    made = tmp_path_factory.mktemp("grafana")
    schemas = [f"schema-{each}@npm:@grafana/schema@{each}" for each in VERSIONS]
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(made))
    found = run(made, "npm", "install", *options, "typescript@5", *schemas)
    assert found.returncode == 0, found.stderr
    return made


def checked(place: Path, version: str, dashboard: str) -> str:
    """What the compiler says about a dashboard."""
    fields = "; ".join(f"{name}: unknown" for name in sorted(OF_PROMETHEUS))
    given = {"version": version, "fields": fields, "dashboard": dashboard}
    (place / "check.ts").write_text(CHECK.format(**given))
    options = ("--noEmit", "--strict", "--skipLibCheck", "--target", "es2022")
    modules = ("--module", "esnext", "--moduleResolution", "bundler")
    compiler = place / "node_modules" / ".bin" / "tsc"
    return run(place, str(compiler), *options, *modules, "check.ts").stdout


@pytest.mark.all
@pytest.mark.parametrize("version", VERSIONS)
def test_grafanas_types_accept_the_dashboard_and_nothing_unknown(
    place: Path, version: str
) -> None:
    ours = (GRAFANA / "dashboard.json").read_text(encoding="utf-8")

    assert checked(place, version, ours) == ""
    spoilt = ours.replace('"multi": true', '"multi": "yes"')
    assert "'string' is not assignable to type 'boolean" in checked(
        place, version, spoilt
    )
