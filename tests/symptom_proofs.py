"""Which test proves an entry of ``docs/runbook.md``: that it happens as it says.

A path below the repository and a test's name.
"""

from __future__ import annotations

_FAULTS = "integration/source/test_source_faults.py::"
_ALERTS = "integration/operations/test_alerts.py::"
_DISCOVERED = "integration/operations/test_discovered_targets.py::"

SYMPTOMS = {
    "a driver died": "integration/source/test_crashes.py"
    "::test_a_kill_at_every_point_loses_and_repeats_nothing",
    "a driver froze and wakes up": "integration/source/test_overtaken.py"
    "::test_a_driver_that_wakes_does_not_revert_its_successor",
    "a second driver starts with the same id": "integration/topologies/test_spout.py"
    "::test_of_two_topologies_with_the_same_id_the_later_one_goes_on",
    "a task or an executor dies": "integration/topologies/test_topology_kinds.py"
    "::test_committers_on_executors_count_nothing_twice",
    "the checkpoint was deleted": f"{_FAULTS}"
    "test_a_new_checkpoint_goes_on_where_the_store_says",
    "the store does not answer": "integration/stores/test_silent_servers.py"
    "::test_a_read_only_database_is_waited_for_and_then_given_up",
    "the store went back to an earlier time": "integration/stores/test_failover.py"
    "::test_a_failover_to_a_standby_that_is_behind_stops_the_job_and_loses_nothing",
    "a topic was deleted, or created again": f"{_FAULTS}"
    "test_a_topic_made_anew_stops_the_query_even_if_it_is_longer",
    "Kafka deleted records that were not read": f"{_FAULTS}"
    "test_records_trimmed_before_they_were_read_stop_the_query",
    "records are damaged on a broker's disk": "integration/source"
    "/test_damaged_records.py"
    "::test_an_at_least_once_topology_reads_the_other_partitions_and_ends",
    "a broker lost the end of a log": "integration/topologies/test_topology_faults.py"
    "::test_records_that_take_the_offsets_of_lost_ones_are_read_and_nothing_twice",
    "brokers do not answer": "tests/source/test_microbatches.py"
    "::test_a_partition_without_leader_contributes_nothing",
    "one record makes your code fail": "integration/topologies/test_topology_faults.py"
    "::test_whatever_a_record_makes_a_bolt_raise_or_emit_only_that_record_fails",
    "a sink refuses a batch": "integration/sinks/test_sink.py"
    "::test_a_replay_with_other_rows_is_refused",
    "the lag of a consumer group is wrong": "integration/operations/"
    "test_command_line.py::test_lag_from_postgresql_and_real_brokers",
}

ALERTS = {
    "KafkaTxDown": f"{_DISCOVERED}"
    "test_a_job_that_nobody_exports_is_down_wherever_it_was",
    "KafkaTxCommitStalled": f"{_ALERTS}"
    "test_a_job_that_hangs_in_its_very_first_batch_raises_an_alert_behind_each_door",
    "KafkaTxLagGrowing": f"{_ALERTS}"
    "test_a_job_whose_group_is_taken_waits_hangs_and_falls_behind",
    "KafkaTxHeadroomSmall": f"{_ALERTS}test_old_records_raise_an_alert_only_if_the_job"
    "_does_not_get_away_from_retention",
    "KafkaTxDataLoss": f"{_ALERTS}test_offsets_that_are_skipped_raise_an_alert",
    "KafkaTxRecordsLost": f"{_ALERTS}test_records_out_of_tries_raise_an_alert",
    "KafkaTxDeadLetters": f"{_ALERTS}test_records_out_of_tries_raise_an_alert",
    "KafkaTxPendingTooLong": f"{_ALERTS}"
    "test_a_job_that_hangs_in_its_very_first_batch_raises_an_alert_behind_each_door",
    "KafkaTxReplayStorm": f"{_ALERTS}"
    "test_batches_that_fail_again_and_again_raise_an_alert",
    "KafkaTxTakeovers": f"{_ALERTS}"
    "test_owners_that_take_turns_raise_an_alert_and_one_takeover_does_not",
    "KafkaTxTwoOwners": f"{_DISCOVERED}"
    "test_two_processes_that_run_one_id_are_two_owners",
    "KafkaTxStopped": f"{_ALERTS}"
    "test_an_error_that_stops_a_query_raises_alerts_until_it_runs_again",
    "KafkaTxMirrorFailing": f"{_ALERTS}"
    "test_a_job_whose_group_is_taken_waits_hangs_and_falls_behind",
    "KafkaTxLagUnknown": f"{_DISCOVERED}"
    "test_an_exporter_without_figures_is_noticed_and_so_is_its_end",
    "KafkaTxNotMeasured": f"{_ALERTS}"
    "test_a_job_whose_group_is_taken_waits_hangs_and_falls_behind",
}
"""The tests on a real Prometheus. Some are marked ``all``; ``grafana/alerts_test.yml``
tests each rule in every run."""
