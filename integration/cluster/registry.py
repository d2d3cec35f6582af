"""A schema registry with the API of Confluent's: Apicurio, from Maven, in memory."""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.jars import jar_directory, only_one
from integration.cluster.java import java
from integration.cluster.versions import REGISTRY_JARS
from integration.cluster.waiting import HOST, free_port, wait_until
from kafka_tx.testing import QUICK_JAVA

PATH = "/apis/ccompat/v7"


class SchemaRegistry:
    """One server. Its schemas are gone when it ends."""

    def __init__(self) -> None:
        self.port = free_port()
        self._program = _unpacked()
        self._work = WorkDirectory("registry")
        self._child: Child | None = None
        self._client: SchemaRegistryClient | None = None

    @property
    def url(self) -> str:
        """The address of the API, the same for ever."""
        return f"http://{HOST}:{self.port}{PATH}"

    @property
    def client(self) -> SchemaRegistryClient:
        """A client of it, without faults between."""
        if self._client is None:
            self._client = SchemaRegistryClient({"url": self.url, "timeout": 30})
        return self._client

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """Add a version of a subject, whatever was before; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number: int = self.client.register_schema(subject, Schema(text, kind))
        return number

    def start(self) -> None:
        child = Child(
            [
                java(),
                *QUICK_JAVA,
                *("-Xms64m", "-Xmx384m"),
                f"-Dquarkus.http.port={self.port}",
                f"-Dquarkus.http.host={HOST}",
                "-jar",
                self._program,
            ],
            self._work.path / "output.log",
            directory=self._work.path,
        )
        self._child = child
        wait_until(
            "the schema registry answers",
            lambda: urlopen(f"{self.url}/subjects", timeout=5).close() or True,
            complain=lambda: None if child.is_running else child.tail(),
        )

    def pause(self) -> None:
        """Freeze it; connections stay open."""
        assert self._child is not None
        self._child.pause()

    def unpause(self) -> None:
        assert self._child is not None
        self._child.unpause()

    def stop(self) -> None:
        """End it. Harmless when repeated."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._child is not None:
            self._child.kill()
            self._child = None
        self._work.delete()


def _unpacked() -> Path:
    """The program, unpacked beside its archive once."""
    place = jar_directory(REGISTRY_JARS)
    folder = place / "unpacked"
    with only_one(place.parent / "registry-unpacked.lock"):
        if not folder.is_dir():
            (archive,) = place.glob("*.tar.gz")
            work = Path(tempfile.mkdtemp(dir=place, prefix=".unpack-"))
            with tarfile.open(archive) as packed:
                packed.extractall(work, filter="data")
            work.rename(folder)
    (program,) = folder.rglob("apicurio-registry-app-*-runner.jar")
    return program
