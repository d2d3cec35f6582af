"""Gets a machine ready for containers: ``python -m integration.containers.prepare``.

Where no engine answers, Podman is installed (Debian and Ubuntu, as root) and the images
are built. Ends with ``NOT_HERE`` where containers cannot run at all, saying why.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from integration.cluster.containers.engine import DEBIAN_PACKAGES, answers
from integration.cluster.debian import ProgramMissingError, install
from integration.containers.build_images import JAVA_IMAGE, ImageBuilder, build_missing

NOT_HERE = 3


def main() -> None:
    """Prepare, and prove that a container starts."""
    if answers():
        print("a container engine answers", file=sys.stderr)
        return
    if shutil.which("podman") is None or shutil.which("busybox") is None:
        try:
            install(*DEBIAN_PACKAGES)
        except ProgramMissingError as missing:
            _give_up(str(missing))
    build_missing()
    with tempfile.TemporaryDirectory(prefix="kafka-tx-probe-") as work:
        reason = ImageBuilder(Path(work)).runs(JAVA_IMAGE)
    if reason is not None:
        _give_up(f"Podman cannot start a container here: {reason}")


def _give_up(reason: str) -> None:
    print(reason, file=sys.stderr)
    raise SystemExit(NOT_HERE)


if __name__ == "__main__":
    main()
