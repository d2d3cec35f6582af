"""The optional native reader; all metadata is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("kafka_tx/native/src")

reader = Extension(
    "kafka_tx.native._reader",
    sources=sorted(path.as_posix() for path in SOURCES.glob("*.c")),
    depends=sorted(path.as_posix() for path in SOURCES.glob("*.h")),
    define_macros=[("Py_LIMITED_API", "0x030B0000"), ("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra"],
    libraries=["dl", "pthread"],  # parts of libc since glibc 2.34
    py_limited_api=True,
    optional=True,  # without a C compiler the Python reader does the work
)

setup(
    ext_modules=[reader],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
