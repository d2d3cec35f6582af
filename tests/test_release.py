"""What `make release-check` writes beside wheel and sdist."""

from __future__ import annotations

import subprocess

from integration.tools.release import HASHES, about_package, hashes


def component(name, version):
    url = {"type": "distribution", "url": "file:///somewhere"}
    ref = f"{name}=={version}"
    more = {"name": name, "version": version, "externalReferences": [url]}
    return {"bom-ref": ref, "type": "library", **more}


def test_the_bill_names_the_package_what_it_needs_and_nothing_else():
    parts = [component(*p) for p in (("kafka-tx", "1"), ("a", "2"), ("b", "3"))]
    environment = {
        "metadata": {"tools": {}},
        "components": [*parts, component("pip", "9")],
        "dependencies": [
            {"ref": "kafka-tx==1", "dependsOn": ["a==2"]},
            {"ref": "a==2", "dependsOn": ["b==3", "a==2"]},
            {"ref": "b==3"},
            {"ref": "pip==9"},
        ],
    }

    found = about_package(environment)

    root = found["metadata"]["component"]
    assert (root["name"], root["version"]) == ("kafka-tx", "1")
    assert root["externalReferences"] == []
    assert [each["name"] for each in found["components"]] == ["a", "b"]
    assert [each["ref"] for each in found["dependencies"]] == [
        *("kafka-tx==1", "a==2", "b==3")
    ]


def test_the_hashes_are_those_that_sha256sum_checks(tmp_path):
    (tmp_path / "one.whl").write_bytes(b"1")
    (tmp_path / "two.tar.gz").write_bytes(b"2")

    hashes(tmp_path)
    check = ["sha256sum", "--check", "--strict", HASHES]

    assert not subprocess.run(check, cwd=tmp_path, check=False).returncode
    (tmp_path / "one.whl").write_bytes(b"3")
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode
