from __future__ import annotations

import json


def test_status_shows_owner_committed_offsets_and_open_ranges(run, store, url):
    result = run("status", "--store", url)

    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "epoch        1" in result.stdout
    assert "txid 41" in result.stdout
    assert '{"orders": {"0": 250}}' in result.stdout
    assert 'unfinished   txid 42 {"orders": {"0": [250, 300]}}' in result.stdout


def test_status_as_json_has_every_id(run, store, url):
    result = run("status", "--store", url, "--json")

    assert json.loads(result.stdout) == [
        {
            "id": "orders",
            "epoch": 1,
            "committed_txid": 41,
            "committed_ms": 1_700_000_000_000,
            "offsets": {"orders": {"0": 250}},
            "unfinished": [{"txid": 42, "ranges": {"orders": {"0": [250, 300]}}}],
        }
    ]


def test_an_id_that_is_not_a_ledger_shows_its_records(run, store, url):
    store.write(1, {"coordinator/currtx": "x"}, ["currtx", "committed"])

    (found,) = json.loads(run("status", "--store", url, "--json").stdout)

    assert "coordinator/currtx" in found["records"]


def test_an_unknown_id_is_one_line_with_the_known_ones(run, store, url):
    result = run("status", "--store", url, "--id", "order")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "'order'" in result.stderr
    assert "ids it has: orders" in result.stderr


def test_a_missing_file_is_told_and_not_made(run, tmp_path):
    missing = tmp_path / "none.db"

    result = run("status", "--store", f"sqlite:///{missing}")

    assert result.exit_code == 1
    assert "the file does not exist" in result.stderr
    assert not missing.exists()


def test_a_store_in_memory_cannot_be_looked_into(run):
    result = run("status", "--store", "memory:")

    assert result.exit_code == 1
    assert "its own process only" in result.stderr


def test_a_url_copied_from_a_message_lacks_its_password(run):
    result = run("status", "--store", "postgresql://me:***@db/state")

    assert result.exit_code == 1
    assert "put the password back in" in result.stderr


def test_an_unreadable_record_names_the_command_that_repairs_it(run, store, url):
    store.write(1, {"committed": "garbage"})

    result = run("status", "--store", url)

    assert result.exit_code == 1
    assert "unreadable   committed" in result.stdout
    assert f"kafka-tx offsets repair --store '{url}' --id orders" in result.stderr


def test_a_file_that_is_no_database_is_one_line(run, tmp_path):
    file = tmp_path / "state.db"
    file.write_bytes(b"no database at all" * 100)

    result = run("status", "--store", f"sqlite:///{file}")

    assert result.exit_code == 1
    assert "KAFKA_TX_STATE" in result.stderr
    assert "Traceback" not in result.stderr
