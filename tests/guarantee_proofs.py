"""Which tests prove which cell of the guarantees: the columns in their order.

A path below the repository and a test's name; ``""`` where the cell says nothing of its
own: it is empty, or refers to another one.
"""

from __future__ import annotations

Proofs = dict[str, tuple[str, ...]]

_GUARANTEES = "integration/source/test_guarantees.py::"
_MATRIX = _GUARANTEES + "test_each_batch_is_counted_as_the_table_says"
_KILLS = (
    "integration/source/test_crashes.py"
    "::test_a_kill_at_every_point_loses_and_repeats_nothing"
)
_STORED = "tests/test_stored.py::"
_FAULTS = "integration/source/test_source_faults.py::"
_BATCHES = "tests/source/test_microbatches.py::"
_TRANSACTIONS = "tests/source/test_transactional.py::"
_NUMBERS = "integration/source/test_numbering.py::"
_SIMULATED = (
    "tests/properties/test_source.py"
    "::test_every_record_counts_once_or_a_documented_error_says_what_to_do"
)
_SIMULATED_SEVERAL = (
    "tests/properties/test_several.py"
    "::test_records_of_both_sources_count_once_or_an_error_says_what_to_do"
)
_SEVERAL = "integration/source/test_several_sources.py::"
_FILES = (
    "integration/source/test_sink_memories.py"
    "::test_files_get_every_record_after_the_checkpoint_was_deleted"
)
_OVERTAKEN = (
    "integration/source/test_overtaken.py"
    "::test_a_driver_that_wakes_does_not_revert_its_successor"
)
_SCHEMAS = "integration/source/test_schemas.py::"
_ANEW = "integration/source/test_source_anew.py::"
_NUMBERINGS = "tests/source/test_another_numbering.py::"
_SINK = "integration/sinks/test_sink.py::"
_SINKS = "kafka_tx/testing/sink_suite.py::"
_MARKERS = "integration/sinks/test_sink_markers.py::"
_REPLAYS = "integration/sinks/test_sink_replays.py::"
_BOLT = "integration/sinks/test_kafka_bolt.py::"
_SIMULATED_SINKS = "tests/properties/test_sinks.py::"
_COMMITS = "integration/topologies/test_topology_commits.py::"

DRIVER: Proofs = {
    "task or executor dies": (
        *(
            "integration/operations/test_standalone.py"
            "::test_a_worker_that_dies_takes_nothing_with_it",
        )
        * 4,
    ),
    "driver dies before the sink's commit": (_MATRIX,) * 4,
    "driver dies after the sink's commit, before Spark's commit log": (_MATRIX,) * 4,
    "driver dies after Spark's commit log": (_MATRIX,) * 4,
    "checkpoint deleted": (_MATRIX, _KILLS, _MATRIX, _FILES),
    "checkpoint deleted, several sources with `tx.id`": (
        "",
        _SIMULATED_SEVERAL,
        _SEVERAL + "test_a_new_checkpoint_counts_records_of_both_sources_once",
        _FILES,
    ),
    "checkpoint deleted, beside a source without `tx.id`": (
        "",
        *[
            _SEVERAL + "test_beside_a_source_without_tx_id_a_new_checkpoint_waits"
            "_for_the_unfinished_batch"
        ]
        * 3,
    ),
    "newest entry of the commit log lost": (_MATRIX,) * 4,
    "second query with the same `tx.id`": (
        "",
        _FAULTS + "test_a_second_query_with_the_same_id_takes_over",
        _OVERTAKEN,
        _FAULTS + "test_a_second_query_with_the_same_id_takes_over",
    ),
    "driver freezes in a batch, and continues overtaken": (
        "",
        _SIMULATED,
        _OVERTAKEN,
        "",
    ),
    "batch without new records (late state, or another source's)": (
        "",
        _NUMBERS + "test_windows_come_with_a_transaction_of_their_own",
        _NUMBERS + "test_windows_come_with_a_transaction_of_their_own",
        "",
    ),
    "a partition without leader": (
        _BATCHES + "test_a_partition_without_leader_contributes_nothing",
        _TRANSACTIONS + "test_a_replay_waits_for_a_partition_without_leader",
        _BATCHES + "test_a_partition_without_leader_contributes_nothing",
        "",
    ),
    "retention removed records not yet planned": (
        _FAULTS + "test_trimmed_records_are_skipped_if_losses_are_allowed",
        _FAULTS + "test_records_trimmed_before_they_were_read_stop_the_query",
        _SIMULATED,
        "",
    ),
    "retention removed records of an unfinished batch": (
        _BATCHES
        + "test_records_removed_by_retention_are_counted_if_losses_are_allowed",
        _FAULTS + "test_a_replay_whose_records_are_gone_stops_in_transactional_mode",
        _FAULTS + "test_a_replay_in_opaque_mode_reads_what_is_left",
        "",
    ),
    "topic deleted": (
        _FAULTS + "test_a_deleted_topic_stops_the_query_by_name",
        _SIMULATED,
        _SIMULATED,
        "",
    ),
    "topic recreated, with fewer, as many or more records": (
        _FAULTS + "test_a_topic_made_anew_while_a_query_without_tx_id_is_down_stops_it",
        _SIMULATED,
        _ANEW + "test_a_topic_made_anew_is_read_once_from_its_start",
        "",
    ),
    "topic recreated between planning and reading": (
        "tests/properties/test_plain_source.py"
        "::test_every_record_counts_once_or_is_a_documented_loss",
        *(_ANEW + "test_a_topic_made_anew_between_planning_and_reading_is_read_once",)
        * 2,
        "",
    ),
    "topic id unknown for a while (no controller answers)": (
        _BATCHES + "test_a_log_of_which_nobody_tells_whose_it_is_contributes_nothing",
        _TRANSACTIONS + "test_a_replay_waits_while_nobody_tells_whose_the_log_is",
        _BATCHES + "test_a_log_of_which_nobody_tells_whose_it_is_contributes_nothing",
        "",
    ),
    "topic recreated, and brokers give no topic id": (
        *(
            _BATCHES
            + "test_where_brokers_tell_no_ids_a_topic_made_anew_is_taken_for_the_same",
        )
        * 3,
        "",
    ),
    "topic not visible for a while": (
        _BATCHES + "test_a_topic_out_of_sight_goes_on_where_it_was",
        _ANEW + "test_a_topic_out_of_sight_for_a_run_goes_on_where_it_was",
        _SIMULATED,
        "",
    ),
    "end of a log lost": (
        _BATCHES + "test_a_log_that_lost_its_end_is_not_read_again",
        _SIMULATED,
        _SIMULATED,
        "",
    ),
    "end of a log lost, and other records have its offsets (unclean leader election)": (
        _BATCHES + "test_records_that_took_the_offsets_of_lost_ones_stop_the_query",
        _TRANSACTIONS
        + "test_the_store_keeps_leader_epochs_and_a_restart_compares_them",
        "integration/topologies/test_topology_faults.py"
        "::test_records_that_take_the_offsets_of_lost_ones_are_read_and_nothing_twice",
        "",
    ),
    "the same with records of an unfinished batch": (
        _BATCHES + "test_a_batch_that_was_logged_is_read_as_far_as_its_log_goes",
        *(
            _TRANSACTIONS
            + "test_a_replay_reads_no_records_that_took_the_offsets_of_lost_ones",
        )
        * 2,
        "",
    ),
    "other records have the offsets of lost ones, and the leader epoch is unknown": (
        *(_BATCHES + "test_where_leader_epochs_mean_nothing_offsets_decide",) * 3,
        "",
    ),
    "a former leader answers, or the brokers were restored from older disks: the"
    " leader epoch is below the stored one": (
        *(
            "tests/offsets/test_position_checks.py"
            "::test_a_new_leader_says_where_the_log_of_a_position_ends",
        )
        * 3,
        "",
    ),
    "the schema's `latest` changes between two tries of a batch": (
        "",
        _SCHEMAS + "test_a_replay_is_decoded_as_it_was_planned",
        _SCHEMAS + "test_an_opaque_replay_is_decoded_as_it_was_planned",
        "",
    ),
    "copy of the checkpoint put back": (
        "",
        _ANEW + "test_a_checkpoint_that_was_put_back_is_refused_and_the_advice_is_safe",
        _SIMULATED,
        "",
    ),
    "copy of the store put back, newest checkpoint kept": (
        "",
        _SIMULATED,
        _ANEW + "test_a_store_that_was_put_back_is_refused_and_the_advice_is_safe",
        "",
    ),
    "database of store and sink goes back under a running query (failover to a standby"
    " that is behind, crash with `synchronous_commit=off`)": (
        "",
        *(
            "integration/stores/test_failover.py"
            "::test_a_failover_to_a_standby_that_is_behind_stops_the_job_and_loses"
            "_nothing",
            "tests/source/test_sinks_beside.py"
            "::test_what_went_back_as_a_whole_goes_on_where_the_store_is",
        ),
        "",
    ),
    "copy of the store put back, new checkpoint": (
        "",
        _ANEW + "test_a_store_that_is_one_txid_behind_its_sinks_is_found_out_by_them",
        _SINKS + "test_a_replay_with_other_records_is_refused_or_takes_their_place",
        "",
    ),
    "copies of checkpoint and store put back that were made together, without the"
    " sink": (
        "",
        *(
            "tests/properties/test_people.py::test_checkpoint_and_store_of_one_time"
            "_beside_a_newer_sink_double_nothing",
        )
        * 2,
        "",
    ),
    "another store, or one that starts again; checkpoint kept": (
        "",
        *[
            _NUMBERINGS
            + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering"
        ]
        * 2,
        "",
    ),
    "another store, or one that starts again; new checkpoint": (
        "",
        *(_SINKS + "test_the_txid_of_another_numbering_is_refused",) * 2,
        "",
    ),
    "`tx.id` renamed, or omitted for some runs": (
        "",
        _NUMBERINGS + "test_a_renamed_tx_id_is_refused_and_set_back",
        _NUMBERINGS
        + "test_a_tx_id_taken_away_and_given_again_goes_on_at_the_checkpoint",
        "",
    ),
    "`opaque` source, sink for transactional batches": (
        "",
        "",
        _REPLAYS + "test_an_opaque_batch_is_refused_where_it_is_not_said",
        "",
    ),
}
"""The first table: no tx.id, transactional, opaque, a sink that ignores the txid."""

TOPOLOGY: Proofs = {
    "time-out, lost task or executor, cancelled job in a commit phase": (
        *(
            "integration/topologies/test_topology_kinds.py"
            "::test_committers_on_executors_count_nothing_twice",
        )
        * 2,
        _COMMITS
        + "test_what_outlives_its_time_out_writes_nothing_after_the_replay_began",
    ),
    "Spark runs a finished task again, and its bolts emit other rows": (
        *(_COMMITS + "test_a_batch_holds_no_rows_of_two_runs_of_one_task",) * 3,
    ),
    "driver freezes or is cut off before a commit phase, and continues overtaken": (
        *(_COMMITS + "test_a_former_owner_runs_no_commit_phase",) * 3,
    ),
    "the store goes back, is emptied or replaced while the topology runs": (
        *(
            "tests/spark/test_transactional_runner.py"
            "::test_a_database_that_went_back_stops_the_topology_and_a_restart_loses"
            "_nothing",
        )
        * 2,
        "",
    ),
    "driver freezes inside `finish_batch`, and continues overtaken": (
        _SINKS + "test_an_older_owner_is_refused_whatever_txid_it_brings",
        "tests/properties/test_maps.py"
        "::test_a_map_is_the_dict_whatever_is_replayed_refused_or_lost",
        "",
    ),
}
"""Topologies: a sink that keeps txid and epoch, the txid, nothing."""

_COPIED = _SINK + "test_a_stream_is_written_at_least_once"
_STREAM = _SINK + "test_a_stream_with_an_id_repeats_no_batch_that_spark_forgot"
_WRITTEN = _SINK + "test_a_transaction_that_spark_forgot_is_written_once"
_CUT_ANEW = (
    _REPLAYS
    + "test_a_half_written_batch_cut_in_another_way_is_refused"
    + "_and_the_old_cut_finishes_it"
)
_DIFFERS = _SINK + "test_a_replay_with_other_rows_is_refused"
_ONCE = _BOLT + "test_batches_that_are_replayed_are_written_once"

_LETTERS = "integration/sinks/test_dead_letters.py::"

INTO_KAFKA: Proofs = {
    "`df.write`, `writeStream`": ("", _COPIED, _COPIED, _COPIED),
    "`writeStream` with `tx.id`": (_CUT_ANEW, _STREAM, "", _CUT_ANEW),
    "`write_transaction`, one part": (
        "",
        _WRITTEN,
        _WRITTEN,
        _SINK + "test_one_part_may_be_replayed_by_a_plan_that_is_not_deterministic",
    ),
    "`write_transaction`, several parts": (_DIFFERS, _WRITTEN, _WRITTEN, _DIFFERS),
    "`with_dead_letters`": (
        _LETTERS
        + "test_rejected_records_are_written_once_where_their_batch_comes_again",
        _LETTERS
        + "test_rejected_records_are_written_once_where_their_batch_comes_again",
        _LETTERS
        + "test_rejected_records_are_written_once_where_their_batch_comes_again",
        _LETTERS + "test_other_rejected_rows_of_a_replay",
    ),
    "`KafkaBolt`": (
        "",
        _BOLT + "test_batches_are_written_at_least_once_without_an_id",
        "",
        _BOLT + "test_batches_are_written_at_least_once_without_an_id",
    ),
    "`KafkaBolt` with `tx.id`": (_ONCE, _ONCE, "", _DIFFERS),
}
"""Into Kafka: what it needs, a batch again, checkpoint deleted, other rows."""

MARKERS: Proofs = {
    "brokers forgot the groups' offsets (`offsets.retention.minutes`)": (
        _REPLAYS + "test_a_batch_is_not_repeated_after_the_brokers_forgot_the_offsets",
    ),
    "the marker topic was deleted": (
        _REPLAYS + "test_a_marker_topic_that_lost_the_sink_is_refused",
    ),
    "the marker topic has another `cleanup.policy` than `compact`": (
        _MARKERS
        + "test_a_topic_that_forgets_is_refused_until_it_is_set_as_the_text_says",
    ),
    "another sink's writer is dead, or its transaction hangs, in the marker topic": (
        _MARKERS + "test_another_sinks_open_transaction_stops_nobody",
    ),
    "the number of parts or tasks was changed": (
        _SIMULATED_SINKS + "test_each_row_is_written_once_whatever_dies",
    ),
    "a frozen driver continues after another one took over": (
        _REPLAYS + "test_an_overtaken_owner_is_refused_with_any_txid",
    ),
    "two sources, topologies or queries with one `tx.id` of the sink": (
        _REPLAYS + "test_a_sink_belongs_to_one_source",
    ),
    "two writes of one batch": (
        _REPLAYS + "test_two_writes_of_one_batch_are_refused_by_name",
    ),
    "`kafka-tx dead-letters send` is killed between any two steps, or runs twice": (
        _LETTERS + "test_a_sender_that_dies_at_any_step_sends_each_letter_once",
    ),
    "`spark.speculation=true`": (
        "integration/sinks/test_sink.py"
        "::test_speculation_is_refused_where_a_part_is_written_once",
    ),
}
"""Into Kafka with ``tx.id``: what happens."""

AROUND: Proofs = {
    "another cluster answers at the same address": (
        # at least once, tests/properties/test_pollers.py makes topics anew
        "tests/properties/test_people.py"
        "::test_whatever_people_do_nothing_is_lost_or_doubled",
    ),
    "a person resets or deletes the group of `tx.commitGroupId`": (
        _FAULTS + "test_a_group_that_was_reset_is_never_read_and_is_written_again",
    ),
    "another owner takes over while the former one still copies offsets to the group of"
    " `tx.commitGroupId`": (
        "integration/source/test_mirror_outage.py"
        "::test_a_fenced_owner_never_sets_the_group_back",
    ),
    "an unclean election loses records that the group of `startingOffsets=committed`"
    " had read": (
        "integration/topologies/test_topology_faults.py"
        "::test_records_that_take_the_offsets_of_lost_ones_are_read_and_nothing_twice",
    ),
    'a person resets the group that is the store (`store="kafka:"`)': (
        "integration/topologies/test_spout_groups.py"
        "::test_a_group_that_is_reset_stops_it_and_a_restart_goes_on_there",
    ),
    "a topic is switched to compaction while a batch is unfinished": (
        _FAULTS + "test_a_replay_of_a_topic_that_was_compacted_holds_what_is_left",
    ),
    "tiered storage: the broker has moved records to its tier": (
        "integration/source/test_other_brokers.py"
        "::test_ranges_in_the_tier_and_across_its_end_are_read",
    ),
    "quotas delay answers": (
        "integration/source/test_reader.py"
        "::test_a_quota_that_lets_brokers_wait_for_seconds_is_no_time_out",
    ),
    "files of certificates, keys and authorities are replaced": (
        "integration/operations/test_secured.py"
        "::test_authorities_that_were_replaced_on_disk_are_read_by_who_lives",
    ),
    "all brokers move to other addresses": (
        "integration/source/test_mirror_outage.py"
        "::test_brokers_that_move_are_found_through_the_address_that_was_given",
    ),
    "the clock of a broker or a producer is ahead": (
        "tests/metrics/test_registry.py::test_a_record_from_the_future_hides_no_later_one",
    ),
    "drivers of two versions that write the same [formats](stored.md) take turns": (
        _STORED + "test_drivers_of_two_versions_take_turns_and_die",
    ),
    "a version that this one does not read has written a store, checkpoint or sink": (
        "integration/source/test_another_store.py"
        "::test_store_map_and_checkpoint_of_another_version_are_named_and_left",
    ),
    "driver and tasks have different versions of kafka_tx": (
        "integration/topologies/test_topology.py"
        "::test_tasks_of_another_version_than_the_driver_read_nothing_and_say_so",
    ),
}
"""Around the brokers: what happens."""

_LAKE = "integration/sinks/test_lakehouse.py::"
_TABLES = "integration/sinks/table_suite.py::"
_SIMULATED_TABLES = (
    "tests/properties/test_lake.py"
    "::test_every_batch_is_there_once_or_is_a_documented_loss"
)
_BETWEEN_TRIES = _LAKE + "test_whatever_happens_between_two_tries_a_batch_is_there_once"
_LOST = _LAKE + "test_a_table_that_lost_its_batches_is_not_taken_for_the_former_one"
_FORGETFUL = (
    _LAKE + "test_a_table_that_forgets_transactions_is_refused_until_it_forgets_no_more"
)

DELTA: Proofs = {
    "the driver dies before or after the table's commit": (
        _TABLES + "test_a_query_writes_each_record_once_also_with_a_new_checkpoint",
    ),
    "the checkpoint is deleted": (
        _TABLES + "test_a_query_writes_each_record_once_also_with_a_new_checkpoint",
    ),
    "two drivers write one batch at the same time": (
        "tests/sinks/test_table_writes.py"
        "::test_who_is_overtaken_reads_before_it_writes_again",
    ),
    "a frozen driver continues after another one took over": (
        _TABLES + "test_a_driver_that_was_frozen_before_its_commit_writes_nothing",
    ),
    "the batch comes again with other records, or the source is opaque": (
        _BETWEEN_TRIES,
    ),
    "the function of `write_to_table` uses another session than `df.sparkSession`": (
        _LAKE + "test_a_statement_in_another_session_is_noticed_and_the_advice_is_safe",
    ),
    "two queries, or two writes of one batch, with one name of the sink": (
        _BETWEEN_TRIES,
    ),
    "a batch has no rows": (_BETWEEN_TRIES,),
    "columns or properties of the table are changed between two tries": (
        _BETWEEN_TRIES,
    ),
    "other programs write to the table, or compact it": (
        _LAKE + "test_a_batch_is_written_again_where_another_program_was_faster",
    ),
    "other programs delete the rows of a batch before it comes again": (
        _BETWEEN_TRIES,
    ),
    "Delta deleted the log of the last batch (after 30 days)": (_BETWEEN_TRIES,),
    "`RESTORE` to a version before the unfinished batch": (_LOST,),
    "`RESTORE` to a version before finished batches, then a restart": (_LOST,),
    "the table is dropped, or created again, under a running query": (_LOST,),
    "`CREATE OR REPLACE TABLE` before an unfinished batch comes again": (_LOST,),
    "the job's table is replaced by a clone or copy": (_SIMULATED_TABLES,),
    "`delta.setTransactionRetentionDuration` is set": (_FORGETFUL,),
    "the same, and it is unset again before the batch comes again": (_FORGETFUL,),
}
"""Into a Delta table: what happens."""

_FILES = "integration/sinks/test_files.py::"
_SIMULATED_FILES = (
    "tests/properties/test_files.py::test_readers_find_each_batch_once_at_every_step"
)


def _both(test: str) -> tuple[str, str]:
    return test, test


FILES: Proofs = {
    "the driver dies at any step of a write": _both(_SIMULATED_FILES),
    "the checkpoint is deleted, or an older one is put back": _both(
        _FILES + "test_a_query_writes_each_record_once_also_with_another_checkpoint"
    ),
    "two drivers write one batch at the same time": _both(_SIMULATED_FILES),
    "a frozen driver continues after another one took over": (
        _FILES + "test_a_driver_that_was_frozen_while_it_wrote_publishes_nothing",
        _SIMULATED_FILES,
    ),
    "the same, between its last check and its publication": _both(_SIMULATED_FILES),
    "the answer of the file system is lost": _both(_SIMULATED_FILES),
    "the batch comes again with other records": _both(
        _SINKS + "test_a_replay_with_other_records_is_refused_or_takes_their_place"
    ),
    "the store begins anew, or is another one": _both(
        _SINKS + "test_the_txid_of_another_numbering_is_refused"
    ),
    "the source is opaque, and `opaque=True` is missing": (
        _SINKS + "test_an_opaque_attempt_is_written_where_it_can_be_taken_back",
        "",
    ),
    "publications are merged, or expire": _both(_SIMULATED_FILES),
    "a clean-up runs at any moment, or is killed": _both(_SIMULATED_FILES),
    "a publication is changed by hand": _both(
        _FILES
        + "test_a_publication_that_somebody_has_changed_stops_readers_and_writers"
    ),
    "a publication is removed by hand": _both(
        _FILES + "test_a_publication_that_somebody_has_removed_is_missed"
    ),
    "two queries begin in one path at the same time": _both(
        "tests/properties/test_files.py"
        "::test_of_two_numberings_that_publish_at_once_none_hides_the_other"
    ),
    "the path is emptied or replaced under a running query": _both(
        _FILES + "test_a_path_that_was_emptied_under_a_program_stops_it"
    ),
}
"""Into files: transactional, and opaque."""

_ICE = "integration/sinks/test_iceberg.py::"
_MERGES = "integration/sinks/test_iceberg_statements.py::"

ICEBERG: Proofs = {
    "the driver dies at any step of a write": (
        _ICE + "test_appends_that_die_at_any_step_leave_the_batch_to_the_next",
        _MERGES + "test_merges_that_die_at_any_step_leave_the_batch_to_the_next",
    ),
    "the checkpoint is deleted": (
        _TABLES + "test_a_query_writes_each_record_once_also_with_a_new_checkpoint",
        _TABLES + "test_a_merge_counts_a_batch_once",
    ),
    "two drivers write one batch at the same time": (
        _TABLES + "test_commits_of_one_txid_at_the_same_time_are_one",
        _MERGES + "test_merges_of_one_txid_at_the_same_time_are_one",
    ),
    "a frozen driver continues after another one took over": (
        _TABLES + "test_a_driver_that_was_frozen_before_its_commit_writes_nothing",
        _MERGES + "test_a_driver_that_was_frozen_before_it_publishes_publishes_nothing",
    ),
    "the batch comes again with other records, or the source is opaque": (
        _TABLES + "test_each_sink_of_a_table_counts_for_itself",
        _TABLES + "test_an_opaque_source_is_refused_and_leaves_nothing",
    ),
    "two queries, or two writes of one batch, with one name of the sink": (
        _TABLES + "test_each_sink_of_a_table_counts_for_itself",
        _TABLES + "test_each_sink_of_a_table_counts_for_itself",
    ),
    "the catalog's answer to a commit is lost, or the commit arrives late": (
        _ICE + "test_a_commit_that_arrives_before_its_batch_comes_again_is_the_batch",
        _ICE + "test_a_branch_of_unknown_state_is_published_once",
    ),
    "a batch has no rows": (
        _TABLES + "test_a_batch_without_rows_is_no_commit",
        _MERGES + "test_statements_without_effect_count_and_leave_no_branch",
    ),
    "columns or properties of the table are changed between two tries": (
        _TABLES + "test_a_table_that_was_altered_between_two_tries_has_the_batch_once",
        _TABLES + "test_a_table_that_was_altered_between_two_tries_counts_it_once",
    ),
    "another program commits in between": (
        _ICE + "test_a_commit_in_between_is_read_and_the_rows_are_computed_once",
        _MERGES + "test_a_merge_is_made_again_where_another_writer_was_faster",
    ),
    "files are compacted, or snapshots expire": (
        _ICE + "test_an_append_is_known_after_its_snapshot_has_expired_at_once",
        _MERGES
        + "test_a_merge_is_known_after_expiry_and_counted_again_after_a_rollback",
    ),
    "the same, while a driver is frozen that another one has replaced": (
        _ICE + "test_a_frozen_driver_is_refused_although_nothing_tells_of_the_append",
        _MERGES + "test_a_driver_that_was_frozen_before_it_publishes_publishes_nothing",
    ),
    "other programs delete the rows of a batch before it comes again": (
        _TABLES + "test_rows_that_others_delete_stay_out",
        _TABLES + "test_counts_that_others_delete_stay_out",
    ),
    "`rollback_to_snapshot` to a version before the unfinished batch": (
        _ICE + "test_a_batch_that_was_rolled_back_is_written_again",
        _MERGES
        + "test_a_merge_is_known_after_expiry_and_counted_again_after_a_rollback",
    ),
    "`rollback_to_snapshot` to a version before finished batches, then a restart": (
        _ICE
        + "test_a_rollback_past_committed_batches_is_told_and_later_ones_are_written",
        "",
    ),
    "the table is dropped, or created again, under a running query": (
        _TABLES + "test_a_table_that_was_made_anew_under_a_program_stops_it",
        _TABLES + "test_a_table_that_was_made_anew_under_a_program_stops_it",
    ),
    "`write` raises an error": (
        "",
        _MERGES + "test_an_error_of_the_statement_leaves_nothing",
    ),
}
"""Into an Iceberg table: what happens."""
