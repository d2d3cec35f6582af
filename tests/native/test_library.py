"""Which reader a process uses, for which settings, and how it says so."""

from __future__ import annotations

import _ssl
import logging
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from confluent_kafka import cimpl

import kafka_tx
from kafka_tx.errors import ConfigError
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native import library, refusal, status, supports
from kafka_tx.native.library import load
from kafka_tx.native.reader import NativeRangeReader

PLAIN = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def not_built(monkeypatch):
    """A process of an installation that had no compiler."""
    monkeypatch.setitem(sys.modules, "kafka_tx.native._reader", None)
    load.cache_clear()
    yield
    load.cache_clear()


def test_it_uses_the_library_that_confluent_kafka_uses():
    found = status()

    assert found.is_native
    assert f"librdkafka {cimpl.libversion()[0]}" in found.reason
    assert str(found).startswith("native reader: ")
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "librdkafka" in line}
    assert len(loaded) == 1


def test_without_the_extension_it_says_why_and_says_it_once(not_built, caplog):
    with caplog.at_level(logging.WARNING):
        found = status()
        assert not supports(PLAIN)

    assert not found.is_native
    assert "install a C compiler" in found.reason
    assert str(found).startswith("Python reader: ")
    assert refusal(PLAIN) == found.reason
    assert len(caplog.records) == 1
    assert found.reason in caplog.text


ASK_THE_ZIP = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "import kafka_tx.native as n; print(n.__file__); print(n.status())"
)


@pytest.mark.parametrize("holds_extension", [True, False])
def test_the_extension_is_found_in_a_zip_that_spark_ships(tmp_path, holds_extension):
    shipped = tmp_path / "kafka_tx.zip"
    package = Path(kafka_tx.__file__).parent
    with zipfile.ZipFile(shipped, "w") as archive:
        for file in package.rglob("*.*"):
            if file.suffix == ".py" or (holds_extension and file.suffix == ".so"):
                archive.write(file, file.relative_to(package.parent))

    asked = subprocess.run(
        [sys.executable, "-c", ASK_THE_ZIP, shipped],
        env={"PATH": "", "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    place, reason = asked.stdout.splitlines()
    assert place.startswith(f"{shipped}/")
    if holds_extension:
        assert reason.startswith("native reader: ")
        assert asked.stderr == ""
    else:
        assert reason.startswith("Python reader: ")
        assert "use a wheel renamed to .zip" in asked.stderr
        assert asked.stderr.count("reading in Python") == 1
    assert list(tmp_path.iterdir()) == [shipped]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nowhere/cimpl.so", "/nowhere/cimpl.so cannot be loaded"),
        (_ssl.__file__, "librdkafka has no function rd_kafka_"),
    ],
)
def test_a_librdkafka_that_cannot_be_had_leaves_the_work_to_python(
    monkeypatch, path, why
):
    monkeypatch.setattr(library, "client_library", lambda: path)
    load.cache_clear()
    try:
        found = status()
    finally:
        load.cache_clear()

    assert not found.is_native
    assert why in found.reason


def test_an_extension_of_other_sources_leaves_the_work_to_python(monkeypatch):
    extension, _ = load()
    monkeypatch.setattr(extension, "REVISION", 1)
    load.cache_clear()
    try:
        found = status()
    finally:
        load.cache_clear()

    assert not found.is_native
    assert "built from other sources: revision 1" in found.reason
    assert "reinstall" in found.reason


def test_it_finds_the_file_that_python_would_import():
    assert library.client_library() == cimpl.__file__


def test_a_missing_confluent_kafka_is_named(monkeypatch):
    monkeypatch.setattr(library, "find_spec", lambda name: None)

    with pytest.raises(OSError, match="confluent-kafka is not installed"):
        library.client_library()


def test_it_reads_without_importing_confluent_kafka():
    script = (
        "import sys, kafka_tx.native as n;"
        "assert n.status().is_native;"
        "assert not [m for m in sys.modules if m.startswith('confluent_kafka')];"
        "import confluent_kafka;"
        "maps = {line.split()[-1] for line in open('/proc/self/maps')};"
        "assert len([m for m in maps if 'librdkafka' in m]) == 1"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        {**PLAIN, "enable.ssl.certificate.verification": True, "fetch.wait.max.ms": 5},
        {**PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
    ],
)
def test_settings_of_text_and_numbers_are_supported(settings):
    assert supports(settings)
    assert refusal(settings) is None


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("oauth_cb", lambda config: ("token", 0.0), "'oauth_cb' is no text"),
        ("default.topic.config", {}, "'default.topic.config' is no text"),
        ("debug", "broker,fetch", "the client's log"),
        ("sasl.oauthbearer.metadata.authentication.type", "aws_iam", "AWS tokens"),
    ],
)
def test_settings_that_need_python_are_refused(name, value, why):
    settings = {**PLAIN, name: value}

    assert not supports(settings)
    assert why in (refusal(settings) or "")
    with pytest.raises(ConfigError, match="native reader cannot be used"):
        list(
            NativeRangeReader(settings).read(OffsetRange(TopicPartition("t", 0), 0, 1))
        )


@pytest.mark.parametrize("batch_bytes", [0, -1, (1 << 30) + 1])
def test_a_batch_size_that_columns_cannot_hold_is_refused(batch_bytes):
    with pytest.raises(ConfigError, match="batch_bytes"):
        NativeRangeReader(PLAIN, batch_bytes=batch_bytes)


def test_a_setting_with_a_nul_character_is_refused():
    settings = {**PLAIN, "client.id": "a\0b"}

    with pytest.raises(ConfigError, match=r"client\.id"):
        list(
            NativeRangeReader(settings).read(OffsetRange(TopicPartition("t", 0), 0, 1))
        )
