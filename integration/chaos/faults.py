"""Each fault by name: how it is caused, how it is seen to have hit, how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from integration.chaos import job_faults, network_faults, server_faults
from integration.chaos.scene import Fault, Scene

FAULTS: Mapping[str, Callable[[Scene, str], Fault]] = {
    "broker-kill": server_faults.broker_kill,
    "broker-pause": server_faults.broker_pause,
    "leader-move": server_faults.leader_move,
    "controller-kill": server_faults.controller_kill,
    "cut": network_faults.cut,
    "half-open": network_faults.half_open,
    "postgresql-kill": server_faults.postgresql_kill,
    "postgresql-pause": server_faults.postgresql_pause,
    "postgresql-away": server_faults.postgresql_kill,
    "zookeeper-kill": server_faults.zookeeper_kill,
    "zookeeper-pause": server_faults.zookeeper_pause,
    "worker-kill": job_faults.worker_kill,
    "daemon-kill": job_faults.daemon_kill,
    "planner-kill": job_faults.planner_kill,
    "driver-kill": job_faults.driver_kill,
    "driver-freeze": job_faults.driver_freeze,
    "commit-entry-lost": job_faults.commit_entry_lost,
    "table-append": server_faults.table_append,
    "table-compact": server_faults.table_compact,
    "table-expire": server_faults.table_expire,
}
