"""A schema registry, through Confluent's own client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import Any
from uuid import UUID

from kafka_tx.errors import ConfigError, RegistryDeniedError, RegistryError, SchemaError
from kafka_tx.logs import event_log
from kafka_tx.model import SchemaText

logger = event_log(__name__)

TASK_PATIENCE_S = 120.0
"""How long a task waits for a registry that is away."""

START_PATIENCE_S = 20.0
"""How long the start of a query waits: somebody looks on."""

NOBODY_PATIENCE_S = 5.0
"""The same, where the name of the registry has no address or nobody listens there: it
is wrong more often than away."""

_TIMEOUT_S = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_MOST_REFERENCES = 200
_LONGEST_ANSWER = 300
"""Characters of an answer in an error: it may be a page."""

_ABSENT = range(40_400, 40_500)
"""Codes of registries for what they do not have; a gateway's 404 has none."""

_LARGEST_ID = 2**31 - 1
"""Registries answer larger ones as if the address were wrong: it is none of theirs."""

_REFUSED = (409, 422)
"""Statuses of registries for what they do not take. Others below 500 come from what is
before a registry, such as a gateway: they tell nothing of a schema, and may pass."""

_UNKNOWN_PAUSES_S = (0.5, 2.0)
"""Before an id that the registry does not know is asked for again: a follower of a
registry learns ids late."""

_UNKNOWN_IDS_PATIENTLY = 5
_UNKNOWN_FOR_S = 60.0
_MOST_UNKNOWN = 1_000
"""Ids within ``_UNKNOWN_FOR_S``: records that hold noise may name a new one each."""


class UnknownSchemaError(SchemaError):
    """The registry has no schema of this id, subject or version."""


def has_rule(error: SchemaError) -> bool:
    """Whether the schema was refused for a rule that Confluent's clients apply."""
    return "rule" in error.fields


class NoRegistryError(ConfigError, RegistryError):
    """The settings lead to no registry: nothing is said about a schema or a record."""

    retryable = False


@dataclass(slots=True)
class Registry:
    """A registry as one process sees it; not for several threads.

    Attributes:
        settings: Of Confluent's client, by their names without ``schema.registry.``.
        patience_s: How long a request is repeated while the registry is away.
        nobody_s: The same, while no connection can be made; 0: as long.
        writes: Whether records are written with its schemas; otherwise they are read.
    """

    settings: Mapping[str, str]
    patience_s: float = TASK_PATIENCE_S
    nobody_s: float = 0.0
    writes: bool = False
    _client: Any = None
    _known: dict[int | UUID, SchemaText] = field(default_factory=dict)
    _unknown: dict[int | UUID, tuple[str, float]] = field(default_factory=dict)
    """Why, and until when; the first one first."""

    @classmethod
    def at_start(cls, settings: Mapping[str, str]) -> Registry:
        """One for the start of a query (driver)."""
        return cls(settings, START_PATIENCE_S, NOBODY_PATIENCE_S)

    @property
    def url(self) -> str:
        """Its addresses."""
        return self.settings.get("url", "")

    def by_id(self, wanted: int | UUID) -> SchemaText:
        """The schema of an id, asked for once.

        An id that the registry does not know is asked for again before it fails, and
        then not for a minute. After many such ids within a minute, others are not
        asked for.

        Raises:
            UnknownSchemaError: The registry has no such id, or was not asked.
            SchemaError: It is no schema of Avro, or has rules that apply.
            RegistryError: The registry does not answer, or refuses; or, as ConfigError
                too, it is none.
        """
        if wanted not in self._known:
            if isinstance(wanted, int) and wanted > _LARGEST_ID:
                raise UnknownSchemaError(
                    f"no schema registry has the id {wanted}: the largest is"
                    f" {_LARGEST_ID}"
                )
            self._check_unknown(wanted)
            self._known[wanted] = self._fetched(wanted)
        return self._known[wanted]

    def _check_unknown(self, wanted: int | UUID) -> None:
        now_s = time.monotonic()
        while self._unknown:
            first = next(iter(self._unknown))
            if now_s < self._unknown[first][1]:
                break
            del self._unknown[first]
        if wanted in self._unknown:
            raise UnknownSchemaError(self._unknown[wanted][0])
        if len(self._unknown) >= _MOST_UNKNOWN:
            raise UnknownSchemaError(
                f"the schema registry at {self.url} was not asked for id {wanted}: it"
                f" had none of {_MOST_UNKNOWN} other ids within {_UNKNOWN_FOR_S:g} s"
            )

    def _fetched(self, wanted: int | UUID) -> SchemaText:
        is_patient = len(self._unknown) < _UNKNOWN_IDS_PATIENTLY
        number = wanted if isinstance(wanted, int) else None
        for pause_s in (*(_UNKNOWN_PAUSES_S if is_patient else ()), None):
            try:
                found = self._asked(partial(_by_id, wanted), f"id {wanted}")
                return self._with_references(found, number)
            except UnknownSchemaError as error:
                if pause_s is None:
                    until_s = time.monotonic() + _UNKNOWN_FOR_S
                    self._unknown[wanted] = error.message, until_s
                    raise
                time.sleep(pause_s)
        raise AssertionError

    def of_subject(self, subject: str, version: int | None) -> SchemaText:
        """A version of a subject; None: the latest one. Raises as ``by_id``."""
        what = f"subject '{subject}'" + (f", version {version}" if version else "")
        ask = methodcaller("get_latest_version", subject)
        if version is not None:
            ask = methodcaller("get_version", subject, version)
        found = self._asked(ask, what)
        return self._with_references(found.schema, found.schema_id)

    def registered(self, subject: str, text: str, *, registers: bool) -> SchemaText:
        """A text with its id; it is registered, or must be already. As ``by_id``."""
        from confluent_kafka.schema_registry import Schema

        method = "register_schema" if registers else "lookup_schema"
        ask = methodcaller(method, subject, Schema(text, "AVRO"))
        found = self._asked(ask, f"the schema in subject '{subject}'")
        number = found if registers else found.schema_id
        self.close()  # this client would answer from memory, without rules
        given = partial(_by_its_id, number, subject)
        known = self._asked(given, f"id {number} of subject '{subject}'")
        # it may have the rules of a version before
        self._with_references(known, number)
        return SchemaText(text, number)

    def _with_references(self, schema: Any, number: int | None) -> SchemaText:  # noqa: ANN401 - of the client
        kind = schema.schema_type or "AVRO"
        if kind != "AVRO":
            raise SchemaError(
                f"schema {number or ''} is of the type {kind}; legal: AVRO. To decode"
                " JSON Schema or Protobuf, read bytes and decode them in Spark"
            )
        if not isinstance(schema.schema_str, str):
            raise _no_registry(self.url, "the answer has no schema")
        self._check_rules(schema.rule_set, number)
        texts: dict[tuple[str, int], str] = {}
        self._add_references(schema, texts, set(), set())
        return SchemaText(schema.schema_str, number, tuple(texts.values()))

    def _check_rules(self, rules: Any, number: int | None) -> None:  # noqa: ANN401 - of the client
        """Refuse rules that Confluent's clients apply: none is applied here."""
        if rules is None or rules.enable_at not in (None, "ALL", "CLIENT"):
            return
        modes = ("WRITE" if self.writes else "READ", "WRITEREAD")
        for each in (*(rules.domain_rules or ()), *(rules.encoding_rules or ())):
            is_harmless = each.kind == "CONDITION" and not self.writes
            if each.disabled or each.mode not in modes or is_harmless:
                continue
            why = "values would be as they are stored, such as encrypted"
            if self.writes:
                why = (
                    "values would be unchecked, or in clear text where it encrypts"
                    " them. Name a schema without such rules, or write the bytes of"
                    " Confluent's own serializer"
                )
            raise SchemaError(
                f"schema {number or ''} has the rule '{each.name}' ({each.kind},"
                f" {each.mode}, {each.type}), and kafka_tx applies no rules: {why}",
                rule=each.name,
            )

    def _add_references(
        self,
        schema: Any,  # noqa: ANN401 - of the client
        texts: dict[tuple[str, int], str],
        names: set[str],
        above: set[tuple[str, int]],
    ) -> None:
        """Those with one name are one type: the first counts, as in the registry."""
        for each in schema.references or ():
            key = each.subject, each.version
            is_met = key in texts or each.name in names
            if is_met and key not in above:
                continue
            names.add(each.name)
            if key in above or len(texts) + len(above) > _MOST_REFERENCES:
                raise SchemaError(
                    f"the schema refers to more than {_MOST_REFERENCES} others, or to"
                    " itself"
                )
            what = f"subject '{each.subject}', version {each.version}"
            # deleted ones are read as long as a schema refers to them: ids outlive them
            found = self._asked(methodcaller("get_version", *key, True), what)
            self._add_references(found.schema, texts, names, above | {key})
            texts[key] = found.schema.schema_str

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- requests ---

    def _asked(self, ask: Callable[[Any], Any], what: str) -> Any:  # noqa: ANN401 - of the client
        began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                if self._client is None:
                    self._client = _client(self.settings)
                return ask(self._client)
            except Exception as error:  # noqa: BLE001 - the client's own are of many libraries
                why = self._judged(error, what)
                patience_s = self._patience_s(error)
            if time.monotonic() + pause_s > began_s + patience_s:
                raise RegistryError(
                    f"the schema registry at {self.url} did not give {what} within"
                    f" {patience_s:g} s: {why}. Check 'schema.registry.url', the"
                    " network, and that the registry runs; then start again. Nothing is"
                    " lost"
                )
            logger.warning("the schema registry did not give %s: %s", what, why)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _patience_s(self, error: Exception) -> float:
        # also of a name without an address; of httpx or httpx2, by Python's version
        is_nobody = type(error).__name__ == "ConnectError"
        return self.nobody_s if is_nobody and self.nobody_s else self.patience_s

    def _judged(self, error: Exception, what: str) -> str:
        """Why to ask again; raises what another try does not change."""
        status = getattr(error, "http_status_code", None)
        if status in (401, 403):
            raise RegistryDeniedError(
                f"the schema registry at {self.url} refused {what}: {error}. Check"
                " 'schema.registry.basic.auth.user.info' or"
                " 'schema.registry.bearer.auth.*', and the rights of the user"
            ) from None
        if status == 404:
            return self._absent(error, what)
        if status in _REFUSED:
            raise SchemaError(
                f"the schema registry at {self.url} refused {what}: {error}"
            ) from None
        if isinstance(error, ConfigError | SchemaError):
            raise error
        is_odd = isinstance(error, (ValueError, TypeError, KeyError, AttributeError))
        if (is_odd and status is None) or "CERTIFICATE_VERIFY" in str(error).upper():
            why = f"{type(error).__name__}: {str(error)[:_LONGEST_ANSWER]}"
            raise _no_registry(self.url, why) from None
        return f"{type(error).__name__}: {str(error)[:_LONGEST_ANSWER]}"

    def _absent(self, error: Exception, what: str) -> str:
        """What a 404 says that is none of the registry's own, which are errors."""
        if getattr(error, "error_code", 0) in _ABSENT:
            raise UnknownSchemaError(
                f"the schema registry at {self.url} has no {what}"
            ) from None
        return (
            "it answers 404 and names nothing that is absent, as other servers do. The"
            " address must be that of the registry's API, which may be below a path"
        )


def _no_registry(url: str, why: str) -> NoRegistryError:
    return NoRegistryError(
        f"{url} does not answer as a schema registry does ({why}). Give the address of"
        " the registry's API, and for TLS 'schema.registry.ssl.ca.location'",
        option="schema.registry.url",
        value=url,
    )


def _by_id(wanted: int | UUID, client: Any) -> Any:  # noqa: ANN401 - of the client
    if not isinstance(wanted, UUID):
        return client.get_schema(wanted)
    try:
        return client.get_schema_by_guid(str(wanted))
    except Exception as error:
        if getattr(error, "http_status_code", None) == 404:
            client.get_schema_types()  # raises where it is no registry that answers
            why = f"the schema registry has no id {wanted}, or no such ids at all"
            raise UnknownSchemaError(why) from None
        raise


def _by_its_id(number: int, subject: str, client: Any) -> Any:  # noqa: ANN401 - of the client
    """By an id that the registry has just given; in each of its contexts ids differ."""
    try:
        return client.get_schema(number, subject)
    except Exception as error:
        if getattr(error, "error_code", 0) in _ABSENT:
            why = "it has named this id, and answers that it does not know it yet"
            raise LookupError(why) from None
        raise


_NUMBERS = {
    "timeout": _TIMEOUT_S,
    "max.retries": 0,  # repeated here
    "cache.capacity": 1_000,
    "cache.latest.ttl.sec": 0,
    "retries.wait.ms": 1_000,
    "retries.max.wait.ms": 20_000,
}
_OF_JAVA = {
    "basic.auth.credentials.source": ("USER_INFO", "URL"),
    "ssl.endpoint.identification.algorithm": ("https",),
}
"""Settings of Java's client that say what is always so here."""


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse what no registry can be asked with (driver); raises ConfigError.

    Also where the client is not installed.
    """
    _client(settings).close()


def _client(settings: Mapping[str, str]) -> Any:  # noqa: ANN401 - of the client
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise NoRegistryError(
            f"the client of schema registries is not installed ({error}): pip install"
            " 'kafka-tx[registry]', on executors, too",
            option="schema.registry.url",
        ) from None
    given: dict[str, Any] = {
        name: value
        for name, value in settings.items()
        if value.strip() not in _OF_JAVA.get(name, ())
    }
    if "@" in given.get("url", ""):
        raise ConfigError(
            "'schema.registry.url' has a user in it, which plans of Spark would show."
            " Give it as 'schema.registry.basic.auth.user.info'",
            option="schema.registry.url",
        )
    legal = ("http://", "https://")
    if not all(url.strip().startswith(legal) for url in settings["url"].split(",")):
        raise ConfigError.illegal(
            "schema.registry.url",
            settings["url"],
            "addresses that begin with http:// or https://, separated by commas",
        )
    for name, default in _NUMBERS.items():
        given[name] = _number(name, given[name]) if name in given else default
    try:
        return SchemaRegistryClient(given)
    except (ValueError, TypeError, OSError) as error:
        raise NoRegistryError(
            f"the client of the schema registry refuses 'schema.registry.*': {error}."
            " The names are those of confluent-kafka's SchemaRegistryClient",
            option="schema.registry",
        ) from None


def _number(name: str, value: str) -> int:
    if not value.strip().isdecimal():
        raise ConfigError.illegal(f"schema.registry.{name}", value, "a whole number")
    return int(value)


_of_process: dict[frozenset[tuple[str, str]], Registry] = {}


def close_registries() -> None:
    """Close the connections of this process's registries."""
    for each in _of_process.values():
        each.close()


def registry_of(settings: Mapping[str, str]) -> Registry:
    """The registry of this process: schemas are fetched once (executor)."""
    key = frozenset(settings.items())
    if key not in _of_process:
        _of_process[key] = Registry(dict(settings))
    return _of_process[key]
