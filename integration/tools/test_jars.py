"""Jars come from where the machine says, completely or not at all."""

from __future__ import annotations

import pytest

from integration.cluster import jars, provider
from integration.cluster.java import JavaMissingError, java
from integration.cluster.versions import SPARK_CONNECTOR_JARS

MIRROR = """
<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <mirrors>
    <mirror><mirrorOf>other</mirrorOf><url>http://127.0.0.1/other</url></mirror>
    <mirror><mirrorOf>x, central</mirrorOf><url>http://127.0.0.1/mine</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    (tmp_path / ".m2").mkdir()
    return tmp_path


@pytest.fixture
def fresh_java():
    java.cache_clear()
    yield
    java.cache_clear()


def test_a_mirror_of_the_central_repository_in_maven_settings_is_used(home):
    (home / ".m2" / "settings.xml").write_text(MIRROR)

    assert jars.repository_address() == "http://127.0.0.1/mine"


def test_spark_own_variable_goes_over_maven_settings(home, monkeypatch):
    (home / ".m2" / "settings.xml").write_text(MIRROR)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1/spark")

    assert jars.repository_address() == "http://127.0.0.1/spark"


@pytest.mark.all
def test_a_failed_fetch_says_what_to_do_and_leaves_no_half_set(home, monkeypatch):
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/none")
    monkeypatch.setenv("KAFKA_TX_CACHE", str(home / "cache"))

    with pytest.raises(jars.JarsUnavailableError, match="DEFAULT_ARTIFACT_REPOSITORY"):
        jars.jar_directory(SPARK_CONNECTOR_JARS)

    left = [path.name for path in (home / "cache" / "jars").iterdir()]
    assert left == ["spark-connector.lock"]


def test_a_missing_java_names_the_package_to_install(home, monkeypatch, fresh_java):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(home))

    with pytest.raises(JavaMissingError, match="openjdk-17-jre-headless"):
        java()


def test_a_java_that_is_too_old_is_refused_by_its_version(
    home, monkeypatch, fresh_java
):
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_1\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))

    with pytest.raises(JavaMissingError, match="Java 8, too old"):
        java()


def test_an_unknown_provider_is_refused_with_the_legal_ones(monkeypatch):
    monkeypatch.setenv("KAFKA_TX_CLUSTER", "cloud")

    with pytest.raises(ValueError, match="legal: processes, containers"):
        provider.chosen()
