"""Rights in a cluster with access control, through Kafka's own admin requests."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from integration.cluster.interface import KafkaCluster, Provider
from integration.cluster.settings import STEADY
from integration.cluster.topics import ANSWER_WITHIN_S, ask
from integration.cluster.waiting import wait_until

Right = tuple[ResourceType, str, AclOperation]
"""On what, its name, and what may be done there; a name with a dot at its end stands
for all that begin so."""


_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def guarded_kafka(servers: Provider, users: Iterable[str]) -> KafkaCluster:
    """Brokers whose second listener knows users by name, none of whom may anything."""
    known = " ".join(f'user_{user}="sesame"' for user in users)
    return servers.kafka(
        settings={
            **STEADY,
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            "super.users": "User:ANONYMOUS",
        },
        login={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f"{_MODULE} {known};",
        },
    )


def login_of(
    cluster: KafkaCluster, user: str, password: str = "sesame"
) -> dict[str, str]:
    """A client's settings with which a user of ``guarded_kafka`` logs in."""
    return {
        "bootstrap.servers": cluster.login_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_MODULE} username="{user}" password="{password}";',
    }


def grant(cluster: KafkaCluster, user: str, *rights: Right) -> None:
    """Allow a user that; returns when the broker, the only one, goes by it."""
    wanted = {_binding(user, *right) for right in rights}
    admin = ask([cluster.bootstrap_servers])
    for done in admin.create_acls(list(wanted)).values():
        done.result(ANSWER_WITHIN_S)
    wait_until(
        f"user {user} has the rights",
        lambda: wanted <= set(admin.describe_acls(_all()).result(ANSWER_WITHIN_S)),
    )


def _binding(
    user: str, kind: ResourceType, name: str, operation: AclOperation
) -> AclBinding:
    pattern = ResourcePatternType.LITERAL
    if name.endswith("."):
        pattern = ResourcePatternType.PREFIXED
    return AclBinding(
        *(kind, name, pattern, f"User:{user}", "*"),
        *(operation, AclPermissionType.ALLOW),
    )


def _all() -> AclBindingFilter:
    return AclBindingFilter(
        # the client's hints do not know that None is any
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),  # type: ignore[arg-type]
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
