"""From a client's reports to the errors of the tree.

Refused credentials and failed TLS handshakes reach a client's error callback only,
while its calls run into their time-outs; hints at a wrong listener reach only its log.
``ErrorWatch`` takes both. Code that waits for a client asks the watch in between.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaError,
    UnknownTopicError,
)

_client_log = logging.getLogger("kafka_tx.kafka.librdkafka")

_REFUSED = {
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
    ClientError.GROUP_AUTHORIZATION_FAILED,
    ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ClientError.SASL_AUTHENTICATION_FAILED,
    ClientError.UNSUPPORTED_SASL_MECHANISM,
    ClientError.ILLEGAL_SASL_STATE,
    ClientError._AUTHENTICATION,
    ClientError._SSL,
}
_ABSENT = {
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.UNKNOWN_TOPIC_ID,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
}
_UNREACHABLE = {
    ClientError._TIMED_OUT,
    ClientError._TIMED_OUT_QUEUE,
    ClientError._TRANSPORT,
    ClientError._ALL_BROKERS_DOWN,
    ClientError._RESOLVE,
    ClientError._NOENT,
    ClientError._DESTROY_BROKER,
    ClientError.REQUEST_TIMED_OUT,
    ClientError.NETWORK_EXCEPTION,
    ClientError.BROKER_NOT_AVAILABLE,
}
_ADDRESS = re.compile(r"\S+:\d\S*")
_DOUBTFUL_BEFORE_GIVING_UP = 3
"""A broker that goes down can break one handshake; a wrong set-up breaks them all."""


class ErrorWatch:
    """Stores the reports of one client to its error callback and its log.

    The client calls it inside its own calls (``poll``, ``consume``).
    """

    def __init__(self, addresses: str) -> None:
        self.addresses = addresses
        self._last = ""
        self._last_log = ""
        self._refusal = ""
        self._doubtful = 0

    def __call__(self, error: ClientError) -> None:
        """Take one report; only ``raise_refusal`` raises."""
        text = error.str()
        if error.code() != ClientError._ALL_BROKERS_DOWN:
            self._last = text
        if _is_certain_refusal(error.code(), text):
            self._refusal = text
        elif error.code() in (ClientError._AUTHENTICATION, ClientError._SSL):
            self._doubtful += 1
            if self._doubtful >= _DOUBTFUL_BEFORE_GIVING_UP:
                self._refusal = text

    def log(self, level: int, text: str, *values: object) -> None:
        """Take one line of the client's log, as a logger would, and pass it on.

        At most as information: important lines reach the user as an error with the same
        text, and a broker that is away would fill the logs of the executors.
        """
        if values and values[0] == "FAIL":
            self._last_log = str(values[-1]).rpartition("]: ")[2]
        _client_log.log(min(level, logging.INFO), text, *values)

    def failed(self, report: str) -> None:
        """Take the last report of another client of the same brokers; empty: none."""
        self._last = report or self._last

    def raise_refusal(self) -> None:
        """Raise AuthenticationError if a broker refused the client, or TLS failed."""
        if self._refusal:
            raise refused(self._refusal, self.addresses)

    def answered(self) -> None:
        """A broker answered: what was reported before is over."""
        self._last = self._last_log = self._refusal = ""
        self._doubtful = 0

    def reason(self) -> str:
        """The last report, for the text of an error."""
        last = self._last or self._last_log
        return f" Last report of the client: {last}." if last else ""


def _is_certain_refusal(code: int, text: str) -> bool:
    lowered = _ADDRESS.sub("", text.lower())  # a host may be called what it likes
    if "certificate" in lowered or "ssl/tls alert" in lowered:
        return True
    # A connection that ended during the handshake is reported with the same code; so is
    # a new token that comes within a second of the one before.
    is_passing = "local: " in lowered or "current sasl state" in lowered
    return code == ClientError._AUTHENTICATION and not is_passing


def refused(detail: str, addresses: str) -> AuthenticationError:
    """A broker refused the client, or the TLS handshake failed."""
    return AuthenticationError(
        f"the brokers at {addresses} refused this client: {detail}. Check"
        " 'kafka.security.protocol', 'kafka.sasl.*' and 'kafka.ssl.*', and the"
        " permissions (ACLs) of the user.",
        addresses=addresses,
    )


def unreachable(
    what: str, timeout_ms: int, watch: ErrorWatch
) -> BrokerUnavailableError:
    """No broker answered ``what`` in time."""
    return BrokerUnavailableError(
        f"no broker at {watch.addresses} answered {what} within {timeout_ms} ms."
        f"{watch.reason()} Check 'kafka.bootstrap.servers', that the brokers run and"
        " that 'kafka.security.protocol' is the listener's.",
        addresses=watch.addresses,
    )


def translated(error: ClientError, what: str, watch: ErrorWatch) -> KafkaError:
    """The error of the tree for a client's error code, about ``what`` was asked for."""
    code, detail = error.code(), error.str()
    if code in _REFUSED:
        return refused(f"{what}: {detail}", watch.addresses)
    if code in _ABSENT:
        return UnknownTopicError(
            f"{what}: {detail}. It does not exist at {watch.addresses}."
        )
    if code in _UNREACHABLE:
        return BrokerUnavailableError(
            f"{what}: {detail} (brokers at {watch.addresses}).{watch.reason()}",
            addresses=watch.addresses,
        )
    return KafkaError(
        f"{what}: {detail} ({error.name()}, brokers at {watch.addresses})"
    )


def is_unreachable(error: ClientError) -> bool:
    """Whether the request may work once the brokers answer again."""
    return error.code() in _UNREACHABLE


def is_absent(error: ClientError) -> bool:
    """Whether the topic or partition does not exist."""
    return error.code() in _ABSENT


def is_refused(error: ClientError) -> bool:
    """Whether the client lacks the permission or was not authenticated."""
    return error.code() in _REFUSED


def client_error(exception: KafkaException) -> ClientError:
    """The error inside a client's exception."""
    error = exception.args[0]
    if isinstance(error, ClientError):
        return error
    return ClientError(ClientError._FAIL, str(error))


def without_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """``text`` with every value of ``secrets`` blotted out."""
    for value in secrets.values():
        if value:
            text = text.replace(value, "***")
    return text
