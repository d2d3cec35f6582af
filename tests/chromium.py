"""The machine's own Chromium, without a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from integration.cluster.debian import ProgramMissingError, browser_program

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright; the test is skipped where there is none."""
    try:
        program = browser_program()
    except ProgramMissingError as missing:
        pytest.skip(str(missing))
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=[*FLAGS])
        try:
            yield browser
        finally:
            browser.close()
