"""A Python that has what the package needs, and not the package."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path


def bare_python(place: Path, *, with_pip: bool = False) -> Path:
    """Make an environment that sees only the dependencies of this one; its Python."""
    venv.create(place, symlinks=True, with_pip=with_pip)
    (packages,) = place.glob("lib/python*/site-packages")
    # a .pth file there is not read, so the editable installation stays unseen
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "python"
