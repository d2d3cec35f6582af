"""Which tests do what an error says, to the letter, for each place that says something.

A place is named as ``advice_places`` finds it; a test by its path below the repository
and its name.
"""

from __future__ import annotations

_ADVICE = "integration/test_advice.py::"
_ANEW = "integration/test_source_anew.py::"
_BATCHES = "tests/spark/test_microbatches.py::"
_CLI = "tests/cli/test_offsets.py::"
_FAULTS = "integration/test_source_faults.py::"
_FORGOTTEN = (
    "tests/spark/test_forgotten_store.py"
    "::test_a_store_that_forgot_is_told_and_both_are_put_back"
)
_NUMBERS = "integration/test_numbering.py::"
_RECORD_LOSSES = "tests/offsets/test_manager_losses.py::"
_REPLAYS = "integration/test_sink_replays.py::"
_SIMULATED = (
    "tests/properties/test_source.py"
    "::test_every_record_counts_once_or_a_documented_error_says_what_to_do"
)
_STARTS = "tests/topology/test_kafka_starts.py::"
_TRANSACTIONS = "tests/spark/test_transactional.py::"
_PUT_BACK = _ANEW + "test_a_store_that_was_put_back_is_refused_and_the_advice_is_safe"
_CHECKPOINT_PUT_BACK = (
    _ANEW + "test_a_checkpoint_that_was_put_back_is_refused_and_the_advice_is_safe"
)
_ONE_BEHIND = (
    _ANEW + "test_a_store_that_is_one_txid_behind_its_sinks_is_found_out_by_them"
)
_IMPOSSIBLE = _ADVICE + "test_a_batch_that_cannot_be_replayed_is_left_as_the_error_says"
_LOST_MARKERS = (
    _REPLAYS + "test_a_marker_topic_that_lost_the_sink_is_refused",
    _REPLAYS + "test_another_marker_topic_is_refused_until_the_former_one_is_given",
)

FOLLOWED: dict[str, tuple[str, ...]] = {
    "cli/offsets.py::_repair_of": (
        _CLI + "test_what_no_record_tells_is_not_made_up_and_resetting_begins_anew",
    ),
    "cli/positions.py::only_of_a_source": (
        _CLI + "test_set_refuses_a_transactional_topology_by_name",
    ),
    "kafka/group_offsets.py::KafkaGroupOffsetStore._corrupted": (
        "integration/test_spout_groups.py"
        "::test_metadata_that_cannot_be_read_is_mended_by_resetting_the_offset",
    ),
    "kafka/marker_log.py::MarkerLog._corrupted": (
        _REPLAYS + "test_a_marker_topic_that_is_not_ours_is_named_and_another_works",
    ),
    "kafka/marker_log.py::MarkerLog._forbidden": (
        "integration/test_sink_rights.py::test_a_missing_right_is_named_with_what_it_is_for",
        "integration/test_sink_rights.py::test_the_rights_of_the_readme_are_enough",
    ),
    "kafka/mirror.py::GroupMirror.store_positions": (
        "integration/test_cluster_view.py"
        "::test_a_group_with_members_refuses_the_mirror",
    ),
    "kafka/part_transaction.py::PartTransaction._lost_markers": _LOST_MARKERS,
    "kafka/plan_keeper.py::PlanKeeper._check_new": _LOST_MARKERS,
    "offsets/loss.py::out_of_range": (
        _RECORD_LOSSES + "test_what_was_completed_of_a_cut_log_is_not_read_again",
    ),
    "offsets/owners.py::Owners.check": (
        "tests/spark/test_record_spout.py"
        "::test_a_former_owner_of_the_same_id_stores_nothing_more",
    ),
    "spark/queries/jvm.py::_streams": (
        _NUMBERS + "test_a_source_that_is_joined_with_itself_is_refused_by_name",
    ),
    "spark/records/managers.py::SpoutManagers._check_vanished": (
        "integration/test_spout_groups.py"
        "::test_offsets_that_expired_in_part_are_no_fresh_start",
    ),
    "spark/sinks/transaction.py::write_transaction": (
        _REPLAYS + "test_two_writes_of_one_batch_are_refused_by_name",
    ),
    "spark/source/agreement.py::_ADVICE[FOREIGN]": (
        _TRANSACTIONS
        + "test_the_checkpoint_of_another_id_is_refused_and_both_ways_out_are_safe",
    ),
    "spark/source/agreement.py::_ADVICE[EMPTY]": (_PUT_BACK, _SIMULATED),
    "spark/source/agreement.py::_ADVICE[AHEAD]": (_PUT_BACK, _SIMULATED),
    "spark/source/agreement.py::_ADVICE[BEHIND]": (_CHECKPOINT_PUT_BACK, _SIMULATED),
    "spark/source/agreement.py::_ADVICE[APART]": (
        _TRANSACTIONS + "test_offsets_set_by_hand_are_where_both_ways_out_go_on",
        _SIMULATED,
    ),
    "spark/source/logged_batches.py::first_begins": (
        _BATCHES + "test_a_first_batch_of_another_source_does_not_begin_at_a_guess",
    ),
    "spark/source/losses.py::Losses.added_late": (
        _BATCHES + "test_a_partition_that_appears_late_and_trimmed_is_a_loss",
    ),
    "spark/source/losses.py::Losses.cut": (
        _BATCHES + "test_a_log_that_lost_its_end_is_not_read_again",
    ),
    "spark/source/losses.py::Losses.deleted": (
        _FAULTS + "test_a_deleted_topic_is_left_out_if_losses_are_allowed",
    ),
    "spark/source/losses.py::Losses.recreated": (
        _ANEW + "test_a_topic_made_anew_is_read_once_from_its_start",
    ),
    "spark/source/losses.py::Losses.trimmed": (
        _FAULTS + "test_trimmed_records_are_skipped_if_losses_are_allowed",
    ),
    "spark/source/positions.py::_otherwise_of": (
        _BATCHES + "test_committed_takes_the_groups_offsets_and_the_rule_for_the_rest",
    ),
    "spark/source/replays.py::_advice": (_IMPOSSIBLE, _SIMULATED),
    "spark/source/replays.py::readable_batch": (_SIMULATED,),
    "sql/progress.py::Writings.compare": (
        "tests/sql/test_maps.py"
        "::test_a_second_update_of_a_batch_is_no_replay_and_is_told",
    ),
    "topology/kafka_reading.py::replay_impossible": (
        "integration/test_topology.py"
        "::test_records_that_are_gone_stop_a_transactional_replay_and_say_which",
    ),
    "topology/kafka_starts.py::_refused": (
        _STARTS + "test_a_log_that_lost_its_end_fails_or_goes_on_at_the_new_end",
    ),
    "transactions/patience.py::Patience._given_up": (
        "integration/test_silent_servers.py"
        "::test_a_read_only_database_is_waited_for_and_then_given_up",
    ),
    "transactions/records.py::REPAIR_COMMAND": (
        _CLI + "test_the_command_an_error_prints_repairs_what_it_names",
    ),
    "transactions/records.py::corrupted": (
        _CLI + "test_the_command_an_error_prints_repairs_what_it_names",
    ),
    "transactions/refusals.py::PUT_BACK": (_FORGOTTEN,),
    "transactions/refusals.py::check_plan": (_ONE_BEHIND, _FORGOTTEN),
    "transactions/refusals.py::fenced": (
        _FAULTS + "test_a_second_query_with_the_same_id_takes_over",
        _NUMBERS + "test_a_source_that_is_joined_with_itself_is_refused_by_name",
    ),
    "transactions/sink_parts.py::_differs": (
        "integration/test_sink.py::test_a_replay_with_other_rows_is_refused",
        _REPLAYS + "test_a_half_written_batch_cut_in_another_way_is_refused"
        "_and_the_old_cut_finishes_it",
    ),
    "transactions/sink_parts.py::_out_of_order": (
        _REPLAYS + "test_a_half_written_batch_is_finished_in_its_old_parts"
        "_and_the_next_in_new_ones",
    ),
    "transactions/sink_parts.py::check_lives": (
        _REPLAYS + "test_a_query_that_another_took_over_from_is_refused",
    ),
    "transactions/sink_parts.py::check_owner": (
        _REPLAYS + "test_a_sink_belongs_to_one_source",
    ),
    "zookeeper/offsets.py::ZooKeeperOffsetStore._corrupted": (
        "tests/zookeeper/test_offsets.py"
        "::test_a_record_that_cannot_be_read_is_deleted_or_written_by_hand",
    ),
}
"""Where following could lose or repeat records, if the text were wrong."""

_AGAIN = "it is tried again by itself, and nothing was changed"
_MEANT = "names legal values, or what exists: nothing was begun"
_OUTSIDE = "names rights, addresses or settings to look at: nothing was written"
_TOLD = "says what happened, and what stops; there is nothing to choose"
_CALLER = "for who calls the parts of the package wrongly: nothing was changed"

NOTHING_AT_RISK: dict[str, str] = {
    "assembly.py::open_store": _MEANT,
    "assembly.py::stored_ids": _MEANT,
    "cli/positions.py::committed_of": _MEANT,
    "cli/process_tree.py::ProcessTree.kill": _TOLD,
    "cli/stores.py::StoreOption": _MEANT,
    "cli/stores.py::opened": _MEANT,
    "kafka/errors.py::refused": _OUTSIDE,
    "kafka/errors.py::translated": _TOLD,
    "kafka/errors.py::unreachable": _OUTSIDE,
    "kafka/feed.py::Feed._check": _TOLD,
    "kafka/feed.py::Feed.flush": _TOLD,
    "kafka/group_offsets.py::KafkaGroupOffsetStore._reachable": _AGAIN,
    "kafka/marker_log.py::MarkerLog._silent": _AGAIN,
    "kafka/range_fetch.py::RangeFetch._fetch_error": _AGAIN,
    "kafka/range_fetch.py::RangeFetch._out_of_range": _TOLD,
    "kafka/refusals.py::REFUSED_FOR_READING[auto.offset.reset]": _MEANT,
    "kafka/tokens.py::_asked": _OUTSIDE,
    "kafka/transaction.py::Transaction._lost": _OUTSIDE,
    "native/failures.py::translated": _OUTSIDE,
    "offsets/manager.py::PartitionManager.emitted": _CALLER,
    "spark/batches/runner.py::_hanging": _OUTSIDE,
    "spark/batches/spouts.py::_policy": _MEANT,
    "spark/queries/jvm.py::_unasked": _TOLD,
    "spark/queries/jvm.py::error_of": _TOLD,
    "spark/records/answers.py::Answers.fail": _TOLD,
    "spark/records/managers.py::SpoutManagers._check_settled": _AGAIN,
    "spark/records/managers.py::SpoutManagers.open": _AGAIN,
    "spark/records/offset_keeper.py::OffsetKeeper.__init__": "names a thread",
    "spark/records/offset_keeper.py::OffsetKeeper._wait": _AGAIN,
    "spark/records/spout.py::KafkaSpout._servers": _OUTSIDE,
    "spark/sinks/kafka_bolt.py::_asking_for_replay": _AGAIN,
    "spark/sinks/option_table.py::SINK_OPTIONS": _MEANT,
    "spark/sinks/options.py::_marker_topic": _MEANT,
    "spark/source/agreement.py::contradiction": "its advice is in _ADVICE",
    "spark/source/microbatches.py::MicroBatches.ranges_from_log": _AGAIN,
    "spark/source/option_table.py::OPTIONS": _MEANT,
    "spark/source/options.py::_check_batch": _MEANT,
    "spark/source/positions.py::_check_match": _MEANT,
    "spark/source/positions.py::_unanswered": _AGAIN,
    "spark/source/positions.py::assigned_partitions": _MEANT,
    "spark/source/positions.py::check_given": _MEANT,
    "spark/source/positions.py::positions_of": _MEANT,
    "spark/source/positions.py::ranges_between": _MEANT,
    "spark/source/ranges.py::_lost": "the replay that follows says what to do",
    "spark/source/replays.py::_impossible": "its advice is in _advice",
    "spark/topologies/engine.py::SparkEngine._to_table": _AGAIN,
    "spark/topologies/failures.py::job_failure": _OUTSIDE,
    "spark/topologies/permit.py::_connect": _OUTSIDE,
    "spark/topologies/permit.py::permit": _AGAIN,
    "spark/topologies/running.py::RunningTopology._end": _TOLD,
    "spark/topologies/settings.py::_OURS": _MEANT,
    "sql/failures.py::_of_sqlite": _OUTSIDE,
    "sql/failures.py::_of_statement": _OUTSIDE,
    "sql/failures.py::translate": _OUTSIDE,
    "sql/listing.py::_must_exist": _MEANT,
    "sql/values.py::_overtaken": "its advice is in PUT_BACK",
    "sql/values.py::is_counted": "its advice is in PUT_BACK",
    "topology/failures.py::component_error": _TOLD,
    "topology/kafka_reading.py::KafkaEmitter._gone": _AGAIN,
    "topology/kafka_starts.py::_reachable": _AGAIN,
    "topology/memory_spouts.py::MemoryEmitter.read": _AGAIN,
    "topology/spout_table.py::ABOUT[store]": _MEANT,
    "transactions/ledger.py::Ledger._out_of_order": _CALLER,
    "transactions/ledger.py::Ledger._plan": _CALLER,
    "transactions/refusals.py::conflict": _AGAIN,
    "transactions/refusals.py::unpicklable": _CALLER,
    "transactions/rotating.py::RotatingState._check_follows": _CALLER,
    "transactions/rotating.py::RotatingState._txid": _CALLER,
    "transactions/rotating.py::RotatingState.state": _CALLER,
    "transactions/sink_parts.py::_check_is_newest": _TOLD,
    "transactions/sink_plan.py::planned": _TOLD,
    "transactions/window.py::Window._endless": _OUTSIDE,
    "zookeeper/brokers.py::ZooKeeperTopics._translated": _OUTSIDE,
    "zookeeper/client.py::ZooKeeperClient._check_tls": _OUTSIDE,
    "zookeeper/client.py::ZooKeeperClient._refused": _OUTSIDE,
    "zookeeper/client.py::ZooKeeperClient.silent": _AGAIN,
    "zookeeper/listing.py::_offset": _TOLD,
    "zookeeper/store.py::ZooKeeperStore._restless": _AGAIN,
}
"""Where there is nothing to follow, or following cannot touch what is stored; why."""
