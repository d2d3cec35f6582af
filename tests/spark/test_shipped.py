"""What was shipped with --py-files is laid where Spark lets streams look for it."""

import os
import shutil
import zipfile

import pytest
from pyspark import SparkFiles

from kafka_tx.spark.versions import workers
from kafka_tx.spark.versions.workers import SessionFolder, show_to_streams


@pytest.fixture
def root(tmp_path):
    """Spark's directory of an application, with a package in it."""
    with zipfile.ZipFile(tmp_path / "some_package.zip", "w") as archive:
        archive.writestr("some_package/__init__.py", "")
    return tmp_path


def module_file(root):
    return str(root / "some_package.zip" / "some_package" / "__init__.py")


def test_streams_find_all_that_was_shipped(root):
    (root / "of_the_user.py").touch()

    for _ in range(2):
        show_to_streams(module_file(root), str(root))

    assert (root / "streaming_job" / "some_package.zip").is_file()
    assert (root / "streaming_job" / "of_the_user.py").is_file()


def test_a_directory_that_is_there_already_gets_the_package(root):
    (root / "streaming_job").mkdir()

    for _ in range(2):
        show_to_streams(module_file(root), str(root))

    assert os.listdir(root / "streaming_job") == ["some_package.zip"]


def test_an_installed_package_leaves_nothing(root):
    show_to_streams(str(root / "site-packages" / "kafka_tx" / "__init__.py"))
    show_to_streams()

    assert os.listdir(root) == ["some_package.zip"]


def test_a_zip_file_of_the_users_own_gets_no_company(root, tmp_path_factory):
    show_to_streams(module_file(root), str(tmp_path_factory.mktemp("of-spark")))
    show_to_streams(module_file(root))

    assert os.listdir(root) == ["some_package.zip"]


def test_a_directory_that_cannot_be_written_is_logged(root, caplog):
    (root / "streaming_job").write_text("a file")

    show_to_streams(module_file(root), str(root))

    assert "some_package.zip" in caplog.text


@pytest.mark.parametrize("below", ["", "streaming_job"])
def test_a_session_is_over_once_spark_has_removed_its_folder(root, monkeypatch, below):
    monkeypatch.setattr(SparkFiles, "_root_directory", str(root / below))
    folder = SessionFolder()
    alive = folder.is_gone()
    shutil.rmtree(root)

    assert (alive, folder.is_gone()) == (False, True)


@pytest.mark.parametrize("given", [None, "/no/such/folder"])
def test_a_folder_that_never_was_says_nothing(monkeypatch, given):
    monkeypatch.setattr(SparkFiles, "_root_directory", given)

    assert not SessionFolder().is_gone()


def test_a_session_s_folder_stays_fresh_for_those_who_clean_up(root, monkeypatch):
    monkeypatch.setattr(SparkFiles, "_root_directory", str(root))
    monkeypatch.setattr(workers, "_TOUCHED_S", 0.0)
    os.utime(root, (0, 0))

    assert not SessionFolder().is_gone()
    assert root.stat().st_mtime > 0
