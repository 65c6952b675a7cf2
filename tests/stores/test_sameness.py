"""Both stores read alike: whoever knows one finds everything in the other."""

from __future__ import annotations

import ast
from pathlib import Path

from holdfast.stores import postgres, protocol, sqlite
from holdfast.stores.postgres.rows import SQL as POSTGRES_SQL
from holdfast.stores.sqlite.rows import SQL as SQLITE_SQL

SQLITE, POSTGRES = (Path(package.__path__[0]) for package in (sqlite, postgres))
ONLY_SQLITE = {"threads", "forks", "place", "move", "transaction"}
ONLY_POSTGRES = {
    "pool", "poolers", "types", "server_limits", "failures", "caps", "lanes", "vacuum", "roles",
    "row_security",
}  # fmt: skip
VERBS = {name for name in dir(protocol.FullStore) if not name.startswith("_")}
ENROLLED = {name for name in vars(protocol.Enrolled) if not name.startswith("_")}
OF_THE_STORE_ITSELF = {
    "open", "close", "abandon", "connection", "enrol", "writing", "listen", "now",
}  # fmt: skip
# In SQLite, one statement finds what the next ones write, by row number.
SQLITE_BLOCKS = """
    live_id queues_of lanes
    lease leased keep_attempts put_back end remove count
    expired requeued_before note_requeue
    forget_queue running
    struck forget_unparked unparkable next_probe unpark_probes plan_probes
    page_live page_leftovers page_history page_unsuccessful page_tenant page_correlation
    page_parent page_edge page_edge_tenant page_matching counts_tenant
    outlived forget_empty_counts
    ahead vital_lanes vital_leftovers vital_outlived
    create_versions file
"""
# In PostgreSQL, one statement does it all, in variants for speed; and the server has locks,
# partitions and statistics.
POSTGRES_BLOCKS = """
    enqueue_one enqueue_plain notify notify_queues
    may_enqueue call_enqueue call_keep_keys call_kept_keys call_ended_id call_keyed_job
    claim_with_caps claim_onwards claim_onwards_with_caps claim_named claim_named_with_caps
    claim_suspect_with_caps claim_by_id_with_caps claim_probes_with_caps pass_over
    scan_lanes note_lanes noted_lanes first_lease
    standing standing_ended settle settle_completing limit_commit
    reclaim_one reclaimable
    lock_unparking
    get_json page now standby
    history_days add_history_day drop_history_day fold_history_counts move_leftover
    dead_rows vacuum
    vital_time vital_server vital_connections vital_holders vital_hidden vital_jobs_table
    vital_history
    lock_migrations call_version row_security
    role_differences member_differences owner_differences default_differences
    row_security_differences policy_differences unsealed_policies view_differences
    function_differences privilege_differences undecided_objects roles_installed recorded_roles
    prepare_record_of_roles record_roles installer join_owner acting_owner password_change
    known_roles return_to_login removable_roles
"""


def modules(package: Path) -> set[str]:
    return {file.stem for file in package.glob("*.py")}


def functions(file: Path) -> list[str]:
    """The verbs of the protocol that a file defines, in their order."""
    nodes = [
        part
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        for part in (node.body if isinstance(node, ast.ClassDef) else [node])
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [name for name in dict.fromkeys(node.name for node in nodes) if name in VERBS]


def places(package: Path) -> dict[str, list[str]]:
    """The modules that define each verb."""
    shared = sorted(modules(SQLITE) & modules(POSTGRES) - {"store"})
    found = {module: functions(package / f"{module}.py") for module in shared}
    return {
        verb: [module for module in shared if verb in found[module]]
        for verb in VERBS
        if verb not in OF_THE_STORE_ITSELF
    }


def test_both_stores_have_the_same_modules() -> None:
    assert modules(SQLITE) - ONLY_SQLITE == modules(POSTGRES) - ONLY_POSTGRES


def test_a_verb_lives_in_the_same_module_of_both_stores() -> None:
    assert places(SQLITE) == places(POSTGRES)
    assert all(places(SQLITE).values())


def test_both_stores_have_the_verbs_in_the_order_of_the_protocol() -> None:
    # `Enrolled` has some of them, too, and comes first.
    wanted = [name for name in functions(Path(protocol.__file__)) if name not in ENROLLED]
    for package in (SQLITE, POSTGRES):
        found = functions(package / "store.py")
        assert [name for name in found if name not in ENROLLED] == wanted


def test_both_stores_have_the_same_files_of_sql() -> None:
    sqlite_files, postgres_files = (
        {file.name for file in (package / "sql").glob("*.sql")} for package in (SQLITE, POSTGRES)
    )
    assert sqlite_files == postgres_files - {"roles.sql", "role_differences.sql"}


def test_both_stores_have_the_same_names_for_blocks_of_sql() -> None:
    assert set(SQLITE_SQL) - set(SQLITE_BLOCKS.split()) == set(POSTGRES_SQL) - set(
        POSTGRES_BLOCKS.split()
    )
    assert set(SQLITE_BLOCKS.split()) <= set(SQLITE_SQL)
    assert set(POSTGRES_BLOCKS.split()) <= set(POSTGRES_SQL)


def test_a_block_is_in_the_same_file_of_both_stores() -> None:
    sqlite_files, postgres_files = (
        {
            line.removeprefix("-- name: "): file.name
            for file in (package / "sql").glob("*.sql")
            for line in file.read_text(encoding="utf-8").splitlines()
            if line.startswith("-- name: ")
        }
        for package in (SQLITE, POSTGRES)
    )
    shared = sqlite_files.keys() & postgres_files.keys()
    assert {name: sqlite_files[name] for name in shared} == {
        name: postgres_files[name] for name in shared
    }
