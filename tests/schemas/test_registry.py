"""What a registry may answer, by a server that answers as it is told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka_tx.config import RecordFormat
from kafka_tx.errors import (
    ConfigError,
    RegistryDeniedError,
    RegistryError,
    SchemaError,
)
from kafka_tx.schemas.readers import reader_schema, writer_schema
from kafka_tx.schemas.registry import Registry, UnknownSchemaError
from tests.schemas.told import Told


def test_a_schema_is_fetched_once(told: Told) -> None:
    told.schema(7, '"string"')
    registry = Registry({"url": told.url})

    assert registry.by_id(7) == registry.by_id(7) == ('"string"', 7, ())
    assert told.paths() == ["/schemas/ids/7"]


def test_references_come_before_what_needs_them(told: Told) -> None:
    def needs(*names: str) -> list[dict[str, Any]]:
        return [{"name": each, "subject": each, "version": 1} for each in names]

    told.schema(7, '"b"', references=needs("b", "c"))
    told.version("b", "1", 8, "B", references=needs("c"))
    told.version("c", "1", 9, "C")

    assert Registry({"url": told.url}).by_id(7).references == ("C", "B")


def test_of_references_with_one_name_the_first_one_counts(told: Told) -> None:
    """As in Confluent's registry: a type has one definition."""

    def needs(name: str, version: int) -> dict[str, Any]:
        return {"name": name, "subject": name, "version": version}

    told.schema(7, '"b"', references=[needs("b", 1), needs("c", 2)])
    told.version("b", "1", 8, "B", references=[needs("c", 1)])
    told.version("c", "1", 9, "older C")
    told.version("c", "2", 10, "newer C")

    assert Registry({"url": told.url}).by_id(7).references == ("older C", "B")


def test_references_in_a_circle_are_refused(told: Told) -> None:
    again = [{"name": "b", "subject": "b", "version": 1}]
    told.schema(7, '"b"', references=again)
    told.version("b", "1", 8, '"b"', references=again)

    with pytest.raises(SchemaError, match="or to itself"):
        Registry({"url": told.url}).by_id(7)


def test_a_registry_that_is_away_is_waited_for(told: Told) -> None:
    told.answers["/schemas/ids/7"] = [
        (503, {}),
        (500, b"<html>"),
        (429, {}),
        (200, {"schema": '"int"'}),
    ]

    assert Registry({"url": told.url}).by_id(7).text == '"int"'


def test_a_404_of_another_server_is_no_word_about_a_schema(told: Told) -> None:
    """A gateway whose registry is away: records of the id are not broken."""
    told.answers["/schemas/ids/7"] = [
        (404, b"<html>default backend"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (200, {"schema": '"int"'}),
    ]

    assert Registry({"url": told.url}).by_id(7).text == '"int"'


@pytest.mark.parametrize("status", [302, 308, 400, 407, 421, 425])
def test_what_is_before_a_registry_tells_nothing_of_a_schema(
    told: Told, status: int
) -> None:
    """A gateway that redirects to its login, or wants TLS: records are not broken."""
    told.answers["/schemas/ids/7"] = [(status, b"<html>"), (200, {"schema": '"int"'})]
    assert Registry({"url": told.url}).by_id(7).text == '"int"'

    told.answers["/schemas/ids/8"] = [(status, b"<html>")]
    with pytest.raises(RegistryError, match=f"{status}"):
        Registry({"url": told.url}, patience_s=0.05).by_id(8)


def test_a_registry_says_itself_what_it_does_not_take(told: Told) -> None:
    told.answers["/subjects/t-value/versions/-7"] = [
        (422, {"error_code": 42202, "message": "no such version"})
    ]

    with pytest.raises(SchemaError, match="refused subject 't-value'.*no such version"):
        Registry({"url": told.url}).of_subject("t-value", -7)


def test_references_are_read_though_they_were_deleted(told: Told) -> None:
    """Softly, as the version that refers to them: ids are read for ever."""
    told.schema(7, '"b"', references=[{"name": "b", "subject": "b", "version": 1}])
    told.version("b", "1", 8, "B")

    Registry({"url": told.url}).by_id(7)

    assert "deleted=true" in told.queries[-1].lower()


def test_a_registry_without_uuids_knows_none(told: Told) -> None:
    """Noise may begin as a UUID does. Where nothing answers, the registry is away."""
    guid = UUID(int=7)
    told.answers[f"/schemas/guids/{guid}"] = [(404, b"<html>")]
    registry = Registry({"url": told.url}, patience_s=0.05)

    told.answers["/schemas/types"] = [(404, b"<html>")]
    with pytest.raises(RegistryError, match="it answers 404"):
        registry.by_id(guid)
    told.answers["/schemas/types"] = [(200, ["AVRO"])]
    with pytest.raises(UnknownSchemaError, match=f"has no id {guid}"):
        registry.by_id(guid)


def test_an_address_that_is_no_registrys_is_named(told: Told) -> None:
    told.answers["/subjects/t-value/versions/latest"] = [(404, b"<html>")]

    with pytest.raises(RegistryError, match="which may be below a path"):
        Registry({"url": told.url}, patience_s=0.05).of_subject("t-value", None)


def test_a_registry_that_is_frozen_is_asked_again(told: Told) -> None:
    """Its connections stay open, and nothing comes."""
    told.schema(7, '"int"')
    told.frozen.set()

    assert Registry({"url": told.url, "timeout": "1"}).by_id(7).text == '"int"'
    assert len(told.asked) == 2


def test_a_registry_that_stays_away_is_an_error_that_may_pass(told: Told) -> None:
    told.answers["/schemas/ids/7"] = [(503, {"message": "later"})]

    with pytest.raises(RegistryError, match="within 0.05 s.*later") as raised:
        Registry({"url": told.url}, patience_s=0.05).by_id(7)

    assert raised.value.retryable


def test_nobody_at_the_address_is_an_error_that_may_pass(told: Told) -> None:
    told.server.server_close()

    with pytest.raises(RegistryError, match="Check 'schema.registry.url'"):
        Registry({"url": told.url}, patience_s=0.05).by_id(7)


@pytest.mark.parametrize("url", [None, "http://no-such-registry.invalid:8081"])
def test_a_start_tells_soon_that_nobody_is_at_the_address(
    told: Told, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    """A registry that answers something is waited for longer; and tasks wait longer."""
    monkeypatch.setattr("kafka_tx.schemas.registry.NOBODY_PATIENCE_S", 0.1)
    told.answers["/schemas/ids/7"] = [(503, {}), (503, {}), (200, {"schema": '"int"'})]
    asked = reading(told, "id:7")
    assert reader_schema(asked).id == 7
    told.server.server_close()
    if url is not None:
        asked = reading(told, "id:7", registry={"url": url})

    with pytest.raises(RegistryError, match=r"did not give id 7 within 0\.1 s"):
        reader_schema(asked)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_the_client_is_not_tried_again(told: Told, status: int) -> None:
    told.answers["/schemas/ids/7"] = [(status, {"message": "no"})]

    with pytest.raises(RegistryDeniedError, match=r"basic\.auth\.user\.info") as raised:
        Registry({"url": told.url}).by_id(7)

    assert not raised.value.retryable
    assert len(told.asked) == 1


def test_an_unknown_id_is_asked_for_again_but_not_for_ever(told: Told) -> None:
    registry = Registry({"url": told.url})

    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="has no id 7"):
            registry.by_id(7)

    assert len(told.asked) == 3


def test_an_id_that_the_registry_learns_late_is_found(told: Told) -> None:
    unknown = 404, {"error_code": 40403, "message": "none"}
    told.answers["/schemas/ids/7"] = [unknown, unknown, (200, {"schema": '"int"'})]

    assert Registry({"url": told.url}).by_id(7).text == '"int"'


def test_many_unknown_ids_are_not_waited_for(told: Told) -> None:
    registry = Registry({"url": told.url})

    for number in range(20):
        with pytest.raises(UnknownSchemaError):
            registry.by_id(number)

    assert len(told.asked) == 3 * 5 + 15


def test_invented_ids_cost_a_bounded_number_of_requests(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of noise name a new id each. Ids that are known still count."""
    monkeypatch.setattr("kafka_tx.schemas.registry._UNKNOWN_PAUSES_S", ())
    monkeypatch.setattr("kafka_tx.schemas.registry._MOST_UNKNOWN", 10)
    told.schema(1_000, '"int"')
    registry = Registry({"url": told.url})
    registry.by_id(1_000)

    for number in range(10):
        with pytest.raises(UnknownSchemaError, match=f"has no id {number}"):
            registry.by_id(number)
    for number in range(10, 30):
        said = f"was not asked for id {number}: it had none of 10 other ids"
        with pytest.raises(UnknownSchemaError, match=said):
            registry.by_id(number)

    assert len(told.asked) == 1 + 10
    assert registry.by_id(1_000).text == '"int"'


def test_a_number_that_can_be_no_id_is_not_asked_for(told: Told) -> None:
    """Registries answer as if the address were wrong, for as long as one waits."""
    told.answers[f"/schemas/ids/{2**31}"] = [(404, {"error_code": 404})]
    told.schema(2**31 - 1, '"int"')
    registry = Registry({"url": told.url})

    for number in (2**31, 2**32 - 1):
        with pytest.raises(UnknownSchemaError, match=f"has the id {number}"):
            registry.by_id(number)
    assert told.asked == []
    assert registry.by_id(2**31 - 1).text == '"int"'


def test_ids_are_asked_for_again_after_a_while(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_tx.schemas.registry._UNKNOWN_PAUSES_S", ())
    monkeypatch.setattr("kafka_tx.schemas.registry._MOST_UNKNOWN", 2)
    monkeypatch.setattr("kafka_tx.schemas.registry._UNKNOWN_FOR_S", 0.0)
    registry = Registry({"url": told.url})

    for number in (1, 2, 3, 1):
        with pytest.raises(UnknownSchemaError, match=f"has no id {number}"):
            registry.by_id(number)

    assert len(told.asked) == 4


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_a_schema_of_another_kind_is_refused_by_name(told: Told, kind: str) -> None:
    told.schema(7, "{}", schemaType=kind)

    with pytest.raises(
        SchemaError, match=f"schema 7 is of the type {kind}; legal: AVRO"
    ):
        Registry({"url": told.url}).by_id(7)


def test_credentials_are_sent(told: Told) -> None:
    told.schema(7, '"int"')
    settings = {
        "url": told.url,
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "me:secret",
    }

    Registry(settings).by_id(7)

    assert told.asked[0][1] == "Basic bWU6c2VjcmV0"


def test_a_bearer_token_is_sent(told: Told) -> None:
    told.schema(7, '"int"')
    settings = {
        "url": told.url,
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": "token",
        "bearer.auth.logical.cluster": "lsrc-1",
        "bearer.auth.identity.pool.id": "pool-1",
    }

    Registry(settings).by_id(7)

    assert told.asked[0][1] == "Bearer token"


def test_the_next_address_is_asked_where_one_is_away(told: Told) -> None:
    told.schema(7, '"int"')
    away = "http://127.0.0.1:9"

    assert Registry({"url": f"{away},{told.url}"}).by_id(7).text == '"int"'


# --- the reader's schema --------------------------------------------------------------


def reading(told: Told, schema: str = "latest", **more: Any) -> RecordFormat:
    registry = {"url": told.url}
    return RecordFormat(
        **{
            "side": "value",
            "schema": schema,
            "subject": "t-value",
            "registry": registry,
        }
        | more
    )


def test_the_latest_schema_is_asked_for_at_each_start(told: Told) -> None:
    for number in (1, 2):
        told.version("t-value", "latest", number, '"int"')
        assert reader_schema(reading(told)).id == number


def test_a_version_and_an_id_are_schemas(told: Told) -> None:
    told.version("t-value", "3", 30, '"int"')
    told.schema(40, '"long"')

    assert reader_schema(reading(told, "3")) == ('"int"', 30, ())
    assert reader_schema(reading(told, "id:40")) == ('"long"', 40, ())


def test_a_file_is_a_schema(told: Told, tmp_path: Any) -> None:
    path = tmp_path / "order.avsc"
    path.write_text('"int"')

    assert reader_schema(reading(told, f"@{path}")) == ('"int"', None, ())


def test_an_absent_file_is_refused(told: Told, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="the file of option 'value.schema'"):
        reader_schema(reading(told, f"@{tmp_path}/none.avsc"))


_NOT_FOUND = {"error_code": 40401, "message": "Subject not found"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, _NOT_FOUND), "has no subject 't-value'.*'value.subject.name.strategy'"),
        ((200, b"<html>"), "does not answer as a schema registry does"),
        ((200, {"id": 1, "schema": "{}", "schemaType": "JSON"}), "is of the type JSON"),
        ((200, {"id": 1, "schema": '["int", "string"]'}), "a union of int, string"),
        ((200, {"id": 1, "schema": " " * 2_000_000}), "has 2000000 characters"),
        ((200, {"hello": "world"}), "does not answer as a schema registry does"),
    ],
)
def test_what_gives_no_column_is_refused_at_the_start(
    told: Told, answer: tuple[int, Any], said: str
) -> None:
    told.answers["/subjects/t-value/versions/latest"] = [answer]

    with pytest.raises(ConfigError, match=f"(?s){said}"):
        reader_schema(reading(told))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "registry:8081"}, "begin with http:// or https://"),
        ({"url": "http://me:secret@registry"}, "has a user in it"),
        ({"url": "http://registry", "timeot": "3"}, "Unrecognized properties: timeot"),
        ({"url": "http://registry", "timeout": "soon"}, "a whole number"),
        (
            {"url": "https://registry", "ssl.ca.location": "/no/such.pem"},
            "No such file",
        ),
    ],
)
def test_settings_that_no_client_takes_are_refused(
    settings: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        reader_schema(RecordFormat(side="value", subject="s", registry=settings))

    assert "secret" not in str(raised.value).replace("user in it", "")


# --- rules of a schema ----------------------------------------------------------------


def rules(kind: str, mode: str, where: str = "domainRules", **more: Any) -> Any:
    rule = {"name": "protect", "kind": kind, "mode": mode, "type": "ENCRYPT", **more}
    return {where: [rule]}


TRANSFORMED = (
    rules("TRANSFORM", "WRITEREAD"),
    rules("TRANSFORM", "WRITEREAD", "encodingRules"),
)


@pytest.mark.parametrize("given", [*TRANSFORMED, rules("TRANSFORM", "READ")])
def test_records_that_a_rule_changes_are_not_read(told: Told, given: Any) -> None:
    """Encrypted fields would be taken for values."""
    told.schema(7, '"string"', ruleSet=given)

    with pytest.raises(SchemaError, match=r"schema 7 has the rule 'protect' \(TRANSF"):
        Registry({"url": told.url}).by_id(7)


@pytest.mark.parametrize("schema", ["latest", "id:7"])
def test_a_start_under_a_rule_names_a_way_that_it_takes(
    told: Told, schema: str
) -> None:
    """Not another refusal: records of that schema become dead letters."""
    told.schema(7, '"string"', ruleSet=TRANSFORMED[0])
    told.version("t-value", "latest", 7, '"string"', ruleSet=TRANSFORMED[0])
    told.schema(6, '"string"')

    with pytest.raises(ConfigError, match="the rule 'protect'.*Nothing was read") as e:
        reader_schema(reading(told, schema))

    text = str(e.value)
    assert "value.schema=id:N, where N is the id of a version without such a" in text
    assert "and value.mode=PERMISSIVE" in text
    assert "a schema that the records can be" not in text
    asked = reading(told, "id:6", is_permissive=True)
    assert reader_schema(asked).id == 6


@pytest.mark.parametrize("given", [*TRANSFORMED, rules("CONDITION", "WRITE")])
@pytest.mark.parametrize(
    ("schema", "registers"),
    [
        ("latest", False),
        ("1", False),
        ("id:7", False),
        ('"string"', False),
        ('"string"', True),
    ],
)
def test_nothing_is_written_past_a_rule(
    told: Told, given: Any, schema: str, registers: bool
) -> None:
    """Not what should be encrypted in clear text; a new version inherits rules."""
    told.schema(7, '"string"', ruleSet=given)
    for which in ("1", "latest"):
        told.version("t-value", which, 7, '"string"', ruleSet=given)
    registered = {"subject": "t-value", "id": 7, "version": 1, "schema": '"string"'}
    for path in ("/subjects/t-value", "/subjects/t-value/versions"):
        told.answers[path] = [(200, registered)]

    with pytest.raises(
        ConfigError, match="the rule 'protect'.*Nothing was written"
    ) as e:
        writer_schema(reading(told, schema), registers=registers, is_running=False)

    assert "auto.register.schemas" not in str(e.value)


def registered(told: Told, subject: str) -> str:
    """A registry that gives a text the id 7 in a subject; where it asks for rules."""
    named = subject.replace(":", "%3A")
    body = {"subject": subject, "id": 7, "version": 1, "schema": '"string"'}
    for path in (f"/subjects/{named}", f"/subjects/{named}/versions"):
        told.answers[path] = [(200, body)]
    return f"/schemas/ids/7?subject={named}"


@pytest.mark.parametrize("registers", [True, False])
def test_rules_are_asked_for_in_the_context_of_the_subject(
    told: Told, registers: bool
) -> None:
    """Ids count anew in each: the same id is another schema in another one."""
    subject = ":.team:t-value"
    place = registered(told, subject)
    ruled = rules("TRANSFORM", "WRITEREAD")
    asked = reading(told, '"string"', subject=subject)

    told.answers[place] = [(200, {"schema": '"string"', "ruleSet": ruled})]
    told.schema(7, '"string"')
    with pytest.raises(ConfigError, match="the rule 'protect'.*Nothing was written"):
        writer_schema(asked, registers=registers, is_running=False)

    told.answers[place] = [(200, {"schema": '"string"'})]
    told.schema(7, '"string"', ruleSet=ruled)
    found = writer_schema(asked, registers=registers, is_running=False)
    assert found == ('"string"', 7, ())


def test_an_id_that_was_just_registered_is_waited_for(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node of the registry may answer, which learns it late."""
    monkeypatch.setattr("kafka_tx.schemas.registry.START_PATIENCE_S", 0.05)
    unknown = 404, {"error_code": 40403, "message": "none"}
    place = registered(told, "t-value")
    told.answers[place] = [*[unknown] * 3, (200, {"schema": '"string"'})]
    asked = reading(told, '"string"')

    assert writer_schema(asked, registers=True, is_running=True).id == 7

    told.answers[place] = [unknown]
    with pytest.raises(RegistryError, match="id 7 of subject 't-value'.*not know it"):
        writer_schema(asked, registers=True, is_running=False)


@pytest.mark.parametrize(
    "given",
    [
        None,
        rules("CONDITION", "READ"),
        rules("TRANSFORM", "WRITEREAD", disabled=True),
        rules("TRANSFORM", "WRITEREAD") | {"enableAt": "GATEWAY"},
        rules("TRANSFORM", "UPGRADE", "migrationRules"),
    ],
)
def test_rules_that_no_client_applies_change_nothing(told: Told, given: Any) -> None:
    told.schema(7, '"string"', ruleSet=given)

    asked = reading(told, "id:7")
    assert reader_schema(asked).id == 7
    assert writer_schema(asked, registers=False, is_running=False).id == 7


def test_a_rule_of_writers_is_none_of_readers(told: Told) -> None:
    told.schema(7, '"string"', ruleSet=rules("TRANSFORM", "WRITE"))
    told.schema(8, '"string"', ruleSet=rules("CONDITION", "WRITEREAD"))

    assert [Registry({"url": told.url}).by_id(n).id for n in (7, 8)] == [7, 8]
