"""Run the native reader and writer under AddressSanitizer, UBSan and valgrind.

``python -m tests.native.sanitize`` builds into a temporary directory, needs gcc and
valgrind, takes about two minutes, and ends with an error where anything is found:

1. every test of ``tests/native`` and ``tests/schemas``, with an extension built
   with the sanitizers;
2. drivers without Python that read ranges and release arrays in parts, ask for offsets,
   write columns, close clients that end late or never, and write what a real broker
   refuses record by record, with the leak check on: once with sanitizers, once in
   valgrind;
3. what only a real broker answers: refusals of records, descriptions of topics;
4. drivers that fill and export columns, and that decode noise as records of Avro, while
   each single allocation fails in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaError, cimpl
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from integration.cluster import provider
from integration.cluster.rights import grant
from integration.cluster.running import running
from kafka_tx.testing.mock import MockCluster

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = ROOT / "kafka_tx/native/src"
MODULE = (
    "module",
    "avro_call",
    "client_type",
    "client_offsets",
    "client_topics",
    "range_type",
    "producer_type",
)
PYTHON = {SOURCES / f"{n}.c" for n in MODULE}
CORE = sorted(set(SOURCES.glob("*.c")) - PYTHON)
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMMON = ["-std=c11", "-g", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
INCLUDE = [f"-I{SOURCES}"]
FAILING_PARTS = {
    "columns": ("columns", "var_column", "export", "utf8"),
    "avro": ("avro_slots", "avro_program", "avro_decode", "utf8"),
}
FAILING = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")]
VALGRIND = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"]
VALGRIND += ["--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes"]


def run(*command: str | Path, **environment: str) -> str:
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        env=os.environ | environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def compiled(name: str, *arguments: str | Path, into: Path) -> Path:
    run("gcc", *COMMON, *INCLUDE, *arguments, "-o", into / name, "-ldl")
    return into / name


def sanitized_extension(build: Path) -> dict[str, str]:
    """The environment in which ``tests/native`` uses an extension with sanitizers."""
    extension = compiled(
        "_reader.abi3.so",
        *("-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", *SANITIZERS),
        f"-I{sysconfig.get_paths()['include']}",
        *SOURCES.glob("*.c"),
        into=build,
    )
    libraries = [
        run("gcc", f"-print-file-name=lib{name}.so").strip()
        for name in ("asan", "ubsan", "stdc++")
    ]
    return {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own; the drivers look for leaks
        "KAFKA_TX_NATIVE_READER": str(extension),
    }


def tests_with_sanitizers(environment: dict[str, str]) -> None:
    run(
        *(
            sys.executable,
            "-m",
            "pytest",
            "tests/native",
            "tests/schemas",
            "-q",
            "-p",
            "no:cacheprovider",
        ),
        *("-o", "timeout=120"),
        **environment,
    )


def drivers(build: Path) -> None:
    sources = [HERE / "range_driver.c", *CORE]
    plain = compiled("plain", *sources, into=build)
    sanitized = compiled("sanitized", *sources, *SANITIZERS, into=build)
    with MockCluster() as cluster:
        fill(cluster)
        for start, end, batch_bytes in [
            ("0", "2000", "4000"),
            ("5", "1999", "1"),
            ("0", "2000", "9999999"),
            ("0", "2500", "50000"),  # beyond the end
            ("9000", "9001", "50000"),
        ]:
            asked = (cimpl_library(), cluster.bootstrap_servers, "orders")
            arguments = (*asked, start, end, batch_bytes)
            found = run(sanitized, *arguments)
            same = run(*VALGRIND, plain, *arguments)
            print("rows, bytes, batches, state:", found, end="")
            assert found == same, (found, same)
        offsets(build)
        writing(build, cluster)
    closing(build)


def offsets(build: Path) -> None:
    sources = [HERE / "offsets_driver.c", *CORE]
    plain = compiled("offsets", *sources, into=build)
    sanitized = compiled("offsets-s", *sources, *SANITIZERS, into=build)
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic("wide", 40)
        for number in range(40):  # so many records has the partition of that number
            for _ in range(number):
                cluster.produce("wide", b"v", partition=number)
        cluster.flush()
        for program in ([sanitized], [*VALGRIND, plain]):
            asked = (cimpl_library(), cluster.bootstrap_servers, "wide", "40")
            found = run(*program, *asked)
            print("right ends, of no such partition, of nobody:", found, end="")
            right, unknown, away = map(int, found.split())
            assert right == 40, found
            assert unknown, found
            assert away, found


def writing(build: Path, cluster: MockCluster) -> None:
    sources = [HERE / "writer_driver.c", *CORE]
    plain = compiled("writer", *sources, into=build)
    sanitized = compiled("writer-s", *sources, *SANITIZERS, into=build)
    for program in ([sanitized], [*VALGRIND, plain]):
        asked = (cimpl_library(), cluster.bootstrap_servers, "orders", "3000")
        found = run(*program, *asked)
        print("handed over, code of the refused one, left:", found, end="")
        assert found == "3000 10 0\n", found


def closing(build: Path) -> None:
    sources = [HERE / "closing_driver.c", *CORE]
    plain = compiled("closing", *sources, into=build)
    sanitized = compiled("closing-s", *sources, *SANITIZERS, into=build)
    for program in ([sanitized], [*VALGRIND, plain]):
        found = run(*program)
        print("ended, in place, threads left, longest wait in s:", found, end="")
        assert found.startswith("147 3 0 "), found


def real_broker(build: Path, environment: dict[str, str]) -> None:
    """It names single records in its answers, and describes topics: the mock cannot."""
    sources = [HERE / "refusals_driver.c", *CORE]
    plain = compiled("refusals", *sources, into=build)
    sanitized = compiled("refusals-s", *sources, *SANITIZERS, into=build)
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {
        "authorizer.class.name": authorizer,
        "allow.everyone.if.no.acl.found": "true",
    }
    with running(provider.chosen().kafka(settings=settings)) as kafka:
        kafka.create_topic("compacted", config={"cleanup.policy": "compact"})
        kafka.create_topic("small", config={"max.message.bytes": "200"})
        kafka.create_topic("plain")
        kafka.create_topic("denied")
        grant(kafka, "alice", (ResourceType.TOPIC, "denied", AclOperation.WRITE))
        ahead_ms = str(int(time.time() * 1000) + 7_200_000)
        records = [
            ("compacted", 0, KafkaError.INVALID_RECORD, "", "0", "10"),
            ("plain", 0, KafkaError.INVALID_TIMESTAMP, "k", ahead_ms, "10"),
            ("small", 0, KafkaError.MSG_SIZE_TOO_LARGE, "k", "0", "5000"),
            ("denied", 0, KafkaError.TOPIC_AUTHORIZATION_FAILED, "k", "0", "10"),
            ("plain", 7, KafkaError._UNKNOWN_PARTITION, "k", "0", "10"),
        ]
        asked: list[str | Path] = [cimpl_library(), kafka.bootstrap_servers]
        asked += [str(part) for record in records for part in record]
        for program in ([sanitized], [*VALGRIND, plain]):
            found = run(*program, *asked)
            print("refused:", found, end="")
            assert found == f"{2 * len(records)}\n", found
        kafka.create_topic("wide", 700)
        names = ("wide", "plain", "absent")
        found = run(
            *(sys.executable, "-m", "tests.native.describing"),
            *(kafka.bootstrap_servers, *names),
            **environment,
        )
        print("described:", found, end="")
        assert found == "700 1 -1\n", found


def fill(cluster: MockCluster) -> None:
    cluster.create_topic("orders")
    for number in range(2_000):
        headers: list[tuple[str, bytes | None]] = [("ü", b"1"), ("", None)]
        cluster.produce(
            "orders",
            b"v" * (number % 97) if number % 7 else None,
            key=b"k%d" % number if number % 3 else None,
            headers=headers if number % 2 else None,
        )
    cluster.flush()


def cimpl_library() -> Path:
    folder = Path(cimpl.__file__).parent.parent / "confluent_kafka.libs"
    (found,) = folder.glob("librdkafka*.so*")
    return found


def failing_allocations(build: Path) -> None:
    for name, parts in FAILING_PARTS.items():
        sources = [HERE / f"{name}_driver.c", *(SOURCES / f"{n}.c" for n in parts)]
        plain = compiled(name, *sources, *FAILING, into=build)
        sanitized = compiled(f"{name}-s", *sources, *FAILING, *SANITIZERS, into=build)
        print("allocations that failed:", run(sanitized))
        run(*VALGRIND, plain)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        build = Path(name)
        failing_allocations(build)
        drivers(build)
        environment = sanitized_extension(build)
        real_broker(build, environment)
        tests_with_sanitizers(environment)
    print("nothing was found")


if __name__ == "__main__":
    main()
