"""Mutants: small breaks of the engine, each with the test of the promise that must catch it.

A break is a text that occurs exactly once in its file, and its replacement.
"""

from __future__ import annotations

from typing import NamedTuple

POSTGRES_CLAIM = "stores/postgres/sql/claim.sql"
POSTGRES_SETTLE = "stores/postgres/sql/settle.sql"
POSTGRES_SCHEMA = "stores/postgres/sql/migrations/0001_jobs.sql"
POSTGRES_HISTORY = "stores/postgres/sql/migrations/0002_history.sql"
POSTGRES_PROBES = "stores/postgres/sql/migrations/0009_probes.sql"
POSTGRES_FUNCTIONS = "stores/postgres/sql/migrations/0011_functions.sql"
POSTGRES_SHORTEST = "stores/postgres/sql/migrations/0015_shortest_leases.sql"
SQLITE_CLAIM = "stores/sqlite/sql/claim.sql"
SQLITE_SETTLE = "stores/sqlite/sql/settle.sql"
SQLITE_BREAKERS = "stores/sqlite/sql/breakers.sql"
SQLITE_SCHEMA = "stores/sqlite/sql/migrations/0001_jobs.sql"
SQLITE_HISTORY = "stores/sqlite/sql/migrations/0002_history.sql"

ONE = "test_01_acknowledged_enqueue_is_never_lost.py"
ONE_FORKS = "test_01_forks.py"
TWO = "test_02_one_live_lease_and_a_rising_fence.py"
THREE = "test_03_an_old_fence_changes_nothing.py"
FOUR = "test_04_completing_writes_happen_exactly_once.py"
FIVE = "test_05_a_dead_workers_job_starts_again.py"
SIX = "test_06_a_job_starts_at_most_max_attempts_times.py"
SIX_LOST_CLAIMS = "test_06_lost_claims.py"
SIX_CHILDREN = "test_06_poison_children.py"
SIX_POISON = "test_06_poison.py"
SEVEN = "test_07_ended_rows_never_change.py"
EIGHT = "test_08_nothing_starts_before_it_is_due.py"
NINE = "test_09_wake_ups_cost_latency_only.py"
TEN = "test_10_same_key_same_job.py"
TWELVE = "test_12_one_bad_record_harms_no_other.py"
TWELVE_LARGE = "test_12_large_records.py"
TWELVE_REFUSED = "test_12_a_refused_end.py"
THIRTEEN = "test_13_no_silent_death.py"
THIRTEEN_HANGS = "test_13_hangs.py"
THIRTEEN_STARTING = "test_13_starting.py"
THIRTEEN_STRAIN = "test_13_database_strain.py"
THIRTEEN_FROZEN = "test_13_frozen.py"
THIRTEEN_BLOCKED = "test_13_blocked.py"
THIRTEEN_STILL = "test_13_one_that_stands_still.py"
FOURTEEN = "test_14_a_signal_ends_a_worker_cleanly.py"
FOURTEEN_BLOCKED = "test_a_worker_whose_loop_is_blocked_releases_its_jobs_and_ends_in_time[sqlite]"
FIFTEEN = "test_15_both_stores_behave_the_same.py"
BLOCKS = "../transactions/test_blocks.py"
CANCEL = "test_cancel_reaches_a_running_handler.py"
DEPENDENCY = "test_a_dependency_that_is_down.py"
DEPLOY = "test_a_deploy_that_changes_arguments.py"
HOLDS = "../stores/postgres/test_caps_and_breakers.py"
HORIZON = "../stores/postgres/test_horizon.py"
INPUTS = "../worker/test_inputs_that_fail.py"
HOLD_UP_NOBODY = "test_inputs_that_fail_end_as_dead_and_hold_up_nobody"
OVERVIEW = "../operations/test_overview.py"
PREFETCH = "../worker/test_prefetch.py"
PRESETS = "../webhooks/test_presets.py"
SNAPSHOTS = "../transactions/test_snapshots.py"
STRAYS = "../worker/test_strays.py"
SWEEPER = "../worker/test_reclaimer.py"
TENANTS = "../operations/test_tenant.py"


class Mutant(NamedTuple):
    name: str
    file: str
    text: str
    replacement: str
    test_file: str
    test: str
    wait_seconds: float = 4


MUTANTS = [
    Mutant(
        "01 SQLite acknowledges before it commits",
        "stores/sqlite/threads.py",
        """\
        connection.execute("COMMIT")
        opened.check()
        _answer_all(zip(calls, answers, strict=True))
""",
        """\
        _answer_all(zip(calls, answers, strict=True))
        connection.execute("COMMIT")
""",
        ONE,
        "test_a_client_killed_with_the_acknowledgment_has_enqueued[sqlite]",
    ),
    Mutant(
        "01 SQLite does not sync its commits",
        "stores/sqlite/connections.py",
        '"FULL": "PRAGMA synchronous = FULL"',
        '"FULL": "PRAGMA synchronous = NORMAL"',
        ONE,
        "test_sqlite_syncs_every_commit_to_the_disk",
    ),
    Mutant(
        "01 PostgreSQL does not sync its commits",
        "stores/postgres/connections.py",
        '    "SET jit = off;',
        '    "SET synchronous_commit = off; SET jit = off;',
        ONE,
        "test_a_crash_of_postgresql_loses_nothing_acknowledged",
    ),
    Mutant(
        "01 a forked process inherits connections to SQLite",
        "stores/sqlite/forks.py",
        "if not (stopped and usage.disconnect()):",
        "if not stopped:",
        ONE_FORKS,
        "test_a_copy_continues_when_its_parent_closes[sqlite]",
    ),
    Mutant(
        "13 a signal to a forked process reaches its parent",
        "worker/signals.py",
        "signal.set_wakeup_fd(-1)\n        for number, handler in _before.items():",
        "for number, handler in {}.items():",
        ONE_FORKS,
        "test_a_handler_starts_processes_and_ends_one_without_ending_its_worker[sqlite]",
    ),
    Mutant(
        "01 SQLite acknowledges what is in a deleted file",
        "stores/sqlite/threads.py",
        """\
        connection.execute("COMMIT")
        opened.check()
""",
        """\
        connection.execute("COMMIT")
""",
        "../stores/sqlite/test_place.py",
        "test_nothing_is_acknowledged_while_the_file_is_gone[delete]",
    ),
    Mutant(
        "02 a claim does not lock what it takes",
        POSTGRES_CLAIM,
        """\
        SELECT id FROM holdfast.jobs WHERE {due}
        ORDER BY run_at, id LIMIT :limit
        FOR UPDATE SKIP LOCKED
""",
        """\
        SELECT id FROM holdfast.jobs WHERE {due}
        ORDER BY run_at, id LIMIT :limit
""",
        TWO,
        "test_claims_at_the_same_time_never_lease_a_job_twice[pg15]",
    ),
    Mutant(
        "02 a cancel resets the fence",
        SQLITE_SETTLE,
        "crashes + json_extract(value, '$.crashed'), lease_owner, fence + 1,",
        "crashes + json_extract(value, '$.crashed'), lease_owner, 0,",
        TWO,
        "test_no_retry_snooze_release_crash_cancel_or_requeue_resets_a_fence[sqlite]",
    ),
    Mutant(
        "02 SQLite lets a fence fall",
        SQLITE_SCHEMA,
        "WHEN new.fence < old.fence\n    OR (",
        "WHEN (",
        TWO,
        "test_the_database_itself_refuses_a_lower_fence[sqlite]",
    ),
    Mutant(
        "02 PostgreSQL lets a fence fall",
        POSTGRES_SCHEMA,
        "    NEW.fence < OLD.fence\n    OR OLD.state",
        "    OLD.state",
        TWO,
        "test_the_database_itself_refuses_a_lower_fence[pg15]",
    ),
    Mutant(
        "03 SQLite records any success of a running job",
        "stores/sqlite/settle.py",
        "if one.fence != place.fence or place.number in settled:",
        "if place.number in settled:",
        THREE,
        "test_a_ghost_that_finishes_leaves_no_trace[sqlite]",
    ),
    Mutant(
        "03 PostgreSQL records any success of a running job",
        POSTGRES_FUNCTIONS,
        "AND fence = fences[width_bucket(id, ids)]\n        RETURNING *",
        "AND fence >= fences[width_bucket(id, ids)]\n        RETURNING *",
        THREE,
        "test_a_ghost_that_finishes_leaves_no_trace[pg15]",
    ),
    Mutant(
        "03 anybody may report progress of a running job",
        SQLITE_SETTLE,
        "progress = :progress WHERE id = :id AND fence = :fence AND",
        "progress = :progress WHERE id = :id AND",
        THREE,
        "test_renew_progress_and_settle_with_an_old_fence_change_nothing[sqlite]",
    ),
    Mutant(
        "03 a reclaim keeps the fence",
        SQLITE_SETTLE,
        "state = 'queued', fence = jobs.fence + 1,",
        "state = 'queued', fence = jobs.fence,",
        THREE,
        "test_renew_progress_and_settle_with_an_old_fence_change_nothing[sqlite]",
    ),
    Mutant(
        "03 a handler that lost its lease goes on",
        "worker/runner.py",
        """\
            self._report_lost(run, gone[run.lease])
            run.request_stop(Stop.LOST)
""",
        """\
            self._report_lost(run, gone[run.lease])
""",
        THREE,
        "test_a_ghosts_handlers_are_stopped_within_a_second[sqlite]",
    ),
    Mutant(
        "03 the keeper renews nothing",
        "worker/lease_keeper.py",
        "wait_seconds = await self._renew(store)",
        "wait_seconds = self._settings.renewal_seconds",
        THREE,
        "test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_job[sqlite]",
    ),
    Mutant(
        "13 what ran out while nobody could renew is taken back at once",
        "worker/reclaimer.py",
        "        return self._looked_at >= self._reclaim_at\n",
        "        return True\n",
        SWEEPER,  # in virtual time: with real processes it depends on who connects first
        "test_after_an_outage_even_a_short_lease_is_left_to_one_who_has_yet_to_connect[0]",
    ),
    Mutant(
        "04 SQLite commits what a ghost wrote",
        "stores/sqlite/enrolled.py",
        "            return not settle.settle(transaction, [settlement])\n",
        "            settle.settle(transaction, [settlement])\n            return True\n",
        FOUR,
        "test_a_ghost_pays_nothing[sqlite]",
    ),
    Mutant(
        "04 PostgreSQL commits what a ghost wrote",
        "stores/postgres/enrolled.py",
        "            return await self._settler.settle_in_transaction(connection, settlement)\n",
        "            await self._settler.settle_in_transaction(connection, settlement)\n"
        "            return True\n",
        FOUR,
        "test_a_ghost_pays_nothing[pg15]",
    ),
    Mutant(
        "04 a handler's own connection commits without the end of the job",
        "transactions/completion.py",
        "            return await self._store.enrol(driver, hooks.add_wake).settle(settlement)\n",
        "            return True\n",
        FOUR,
        "test_a_kill_before_or_after_the_commit_pays_once[-1-pg15]",
    ),
    Mutant(
        "05 nobody takes back what a dead worker held",
        "worker/reclaimer.py",
        "                        await self._reclaim(store)\n",
        "                        pass\n",
        FIVE,
        "test_a_job_of_a_killed_worker_starts_again_within_lease_and_6_seconds[sqlite]",
        wait_seconds=8,
    ),
    Mutant(
        "05 a database that is always slow is taken for one that was away",
        "worker/reclaimer.py",
        "self._patient_seconds >= PATIENCES_MAX * self._patience_seconds",
        "False",
        SWEEPER,
        "test_a_database_that_is_always_slow_keeps_nobody_from_taking_back[0]",
    ),
    Mutant(
        "06 a claim uses up no attempt",
        SQLITE_CLAIM,
        "state = 'running', attempt = attempt + 1, fence",
        "state = 'running', fence",
        SIX,
        "test_a_job_that_kills_its_worker_ends_dead_after_max_attempts[sqlite]",
    ),
    Mutant(
        "06 suspects run where everybody runs",
        "worker/worker.py",
        "lambda count: self._quarantine.found(count)",
        "lambda count: self._claimer.run_suspects()",
        SIX,
        "test_a_worker_outlives_a_job_that_kills_every_process[sqlite]",
    ),
    Mutant(
        "06 SQLite lets a job die of a crash in company",
        "stores/sqlite/reclaim.py",
        "State.DEAD if last and job.alone else",
        "State.DEAD if last else",
        SIX_POISON,
        "test_200_jobs_survive_the_poison_among_them[1-sqlite]",
        wait_seconds=20,
    ),
    Mutant(
        "06 more is claimed than can start",
        "worker/claimer.py",
        "yield self._request(limit, queues",
        "yield self._request(CLAIM_BATCH_MAX, queues",
        SIX,
        "test_jobs_behind_the_one_that_was_killed_lose_nothing[sqlite]",
    ),
    Mutant(
        "06 a job that was claimed ahead and did not start pays for it",
        "domain/outcomes.py",
        "delay_seconds=-due_seconds, attempt_back=True)",
        "delay_seconds=-due_seconds)",
        PREFETCH,
        "test_jobs_that_cannot_start_soon_are_released_and_lose_nothing",
    ),
    Mutant(
        "06 jobs that were claimed ahead wait for as long as it takes",
        "worker/prefetch.py",
        "        if left <= 0:\n",
        "        if left <= -60:\n",
        PREFETCH,
        "test_jobs_that_cannot_start_soon_are_released_and_lose_nothing",
    ),
    Mutant(
        "06 a job is claimed ahead that counts on running alone",
        "worker/prefetch.py",
        "slots.concurrency > 1 and not slots.caps",
        "not slots.caps",
        PREFETCH,
        "test_without_room_for_others_nothing_is_claimed_ahead[options0]",
    ),
    Mutant(
        "06 jobs of a capped queue are hoarded",
        "worker/prefetch.py",
        "return job.capped or job.probe or",
        "return job.probe or",
        PREFETCH,
        "test_a_capped_queue_is_not_hoarded",
    ),
    Mutant(
        "06 jobs of an open breaker start because they were claimed before",
        "worker/runner.py",
        "        if any(found_open):\n",
        "        if False:\n",
        PREFETCH,
        "test_jobs_of_a_breaker_that_has_opened_do_not_start",
    ),
    Mutant(
        "13 jobs wait behind a handler that blocks the loop",
        "worker/prefetch.py",
        "return self._take_all() if self._seconds_waited() > seconds else []",
        "return []",
        PREFETCH,
        "test_jobs_that_wait_behind_a_handler_that_blocks_the_loop_are_released",
        wait_seconds=10,
    ),
    Mutant(
        "14 a worker that stops starts what it had claimed ahead",
        "worker/runner.py",
        "        self._closing = True\n        self._prefetch.release_all()\n",
        "        self._closing = True\n",
        PREFETCH,
        "test_a_worker_that_stops_starts_nothing_more_and_releases_the_rest",
    ),
    Mutant(
        "06 the death of a child process costs no attempt",
        "worker/processes/pool.py",
        "return Crashed(code, text, reused=child.jobs_done > 0)",
        "return Released()",
        SIX_CHILDREN,
        "test_a_poison_in_a_child_process_ends_as_dead_and_harms_no_other[sqlite]",
    ),
    Mutant(
        "06 a job dies of what another left in its child process",
        "domain/outcomes.py",
        "settlement.state is State.DEAD and crashed.reused and job.releases == 0",
        "False",
        SIX_CHILDREN,
        "test_no_job_is_dead_because_of_what_an_earlier_one_left_in_its_child_process[sqlite]",
    ),
    Mutant(
        "07 SQLite lets a row that ended in place change",
        SQLITE_SCHEMA,
        "    OR (old.state <> 'queued' AND old.state <> 'running')\n",
        "",
        SEVEN,
        "test_the_database_itself_refuses_to_change_a_row_that_ended_in_place[sqlite]",
    ),
    Mutant(
        "07 PostgreSQL lets a row that ended in place change",
        POSTGRES_SCHEMA,
        "    OR OLD.state NOT IN ('queued', 'running')\n",
        "",
        SEVEN,
        "test_the_database_itself_refuses_to_change_a_row_that_ended_in_place[pg15]",
    ),
    Mutant(
        "07 SQLite lets the history change",
        SQLITE_HISTORY,
        "BEFORE UPDATE ON history\n",
        "BEFORE UPDATE ON history\nWHEN 0\n",
        SEVEN,
        "test_the_database_itself_refuses_to_change_an_ended_row[sqlite]",
    ),
    Mutant(
        "07 PostgreSQL lets the history change",
        POSTGRES_HISTORY,
        "BEFORE UPDATE ON holdfast.history FOR EACH ROW\n",
        "BEFORE UPDATE ON holdfast.history FOR EACH ROW WHEN (false)\n",
        SEVEN,
        "test_the_database_itself_refuses_to_change_an_ended_row[pg15]",
    ),
    Mutant(
        "07 a requeue does not name the old job",
        POSTGRES_FUNCTIONS,
        "next_id, id, coalesce",
        "next_id, NULL, coalesce",
        SEVEN,
        "test_a_requeue_is_a_new_job_that_names_the_old_one_and_has_no_key[pg15]",
    ),
    Mutant(
        "08 SQLite takes what is not due along",
        SQLITE_CLAIM,
        "AND priority = :priority AND run_at <= :now",
        "AND priority = :priority",
        EIGHT,
        "test_a_worker_that_is_woken_all_the_time_starts_nothing_early[sqlite]",
    ),
    Mutant(
        "08 PostgreSQL takes what is not due along",
        "stores/postgres/sql/parts/due.sql",
        "AND run_at <= now() AND name",
        "AND name",
        EIGHT,
        "test_a_worker_that_is_woken_all_the_time_starts_nothing_early[pg15]",
    ),
    Mutant(
        "09 a worker waits for wake-ups only",
        "worker/claimer.py",
        "await self._rest(min(self._poll.next_seconds(), self._strays.seconds_left))",
        "await self._awake.wait()",
        NINE,
        "test_every_job_runs_though_every_wake_up_is_lost[sqlite]",
    ),
    Mutant(
        "09 a false cancel is believed",
        "worker/runner.py",
        "self.lost(await self._store.renew(leases, self._settings.lease_seconds))",
        "self.lost([Lost(*lease, None) for lease in leases])",
        NINE,
        "test_doubled_reordered_false_and_unreadable_wake_ups_change_nothing[sqlite]",
    ),
    Mutant(
        "10 a key with another body gives the old job",
        "stores/sqlite/enqueue.py",
        "if not job.has_body(holder[1]):",
        "if not holder:",
        TEN,
        "test_a_key_with_another_body_is_refused_and_nothing_is_enqueued[sqlite]",
    ),
    Mutant(
        "10 all tenants share their keys",
        "stores/sqlite/enqueue.py",
        '"tenant": text(job.named_tenant) or "",',
        '"tenant": "",',
        TEN,
        "test_a_key_belongs_to_its_tenant[sqlite]",
    ),
    Mutant(
        "10 the last of a race takes the key over",
        "stores/postgres/sql/enqueue.sql",
        "WHERE idempotency_keys.expires_at <= now()\nRETURNING",
        "RETURNING",
        TEN,
        "test_processes_that_race_for_a_key_get_the_same_job[pg15]",
    ),
    Mutant(
        "12 an error that can't be read gets past the worker",
        "worker/classify.py",
        """\
    except BaseException as another:
        if run.stop is Stop.SHUTDOWN:""",
        """\
    except Exception as another:
        if run.stop is Stop.SHUTDOWN:""",
        TWELVE,
        "test_odd_results_and_errors_end_their_own_job_only[odd-sqlite]",
    ),
    Mutant(
        "12 error texts are stored as they come",
        "domain/texts.py",
        'return UNSTORABLE.sub("\\ufffd", cut)',
        "return cut",
        TWELVE,
        "test_odd_results_and_errors_end_their_own_job_only[odd-sqlite]",
    ),
    Mutant(
        "12 a result that can't be stored counts as a success",
        "domain/codec.py",
        "lenient=self.replaces",
        "lenient=True",
        "../worker/test_handlers.py",
        "test_a_result_that_cannot_be_stored_fails_its_job_at_once_and_says_where",
    ),
    Mutant(
        "13 a client that reads nothing keeps its connection",
        "worker/metrics_export.py",
        "            writer.transport.abort()  #",
        "            pass  #",
        "../observability/test_metrics_attacked.py",
        "test_13_a_client_that_reads_nothing_keeps_no_connection",
    ),
    Mutant(
        "12 a long line is searched again from each of its characters",
        "domain/secrets.py",
        r'r"(://(?:[^\s:/][^\s:]*+)?):(\S*)"',
        r'r"([a-z][a-z0-9+.-]*://[^\s:/?#]*):(\S*)"',
        "../project/test_patterns.py",
        "test_the_time_of_a_pattern_grows_no_faster_than_its_text"
        "[holdfast.domain.secrets._USERINFO]",
    ),
    Mutant(
        "12 half of a secret is shown",
        "domain/secrets.py",
        "    if is_cut:\n",
        "    if False:\n",
        "../observability/test_logs.py",
        "test_a_secret_that_is_cut_off_with_its_line_stays_hidden",
    ),
    Mutant(
        "12 a batch that fails stays as large as it is",
        "worker/settler.py",
        "        self._rows_max = max(1, len(batch) // SHRINK)\n",
        "",
        TWELVE_LARGE,
        "test_a_settlement_that_can_not_be_written_now_does_not_delay_others[pg15]",
    ),
    Mutant(
        "12 results of any size go into one statement",
        "worker/settler.py",
        "        if sum(map(len, results)) <= SETTLE_BYTES_MAX:\n",
        "        if results is not None:\n",
        TWELVE_LARGE,
        "test_large_results_are_settled_in_several_statements[pg15]",
    ),
    Mutant(
        "12 the ends of time are accepted",
        "job_function.py",
        '            check_time("run_at", self.run_at)\n',
        "            pass\n",
        "../domain/test_times.py",
        "test_the_ends_of_time_are_refused_where_they_are_given[sqlite-0-min]",
    ),
    Mutant(
        "12 a refused batch is not split",
        "worker/settler.py",
        "            if len(batch) > 1:\n",
        "            if len(batch) > 1_000_000:\n",
        TWELVE,
        "test_a_result_that_the_database_refuses_fails_its_own_job_only[sqlite]",
    ),
    Mutant(
        "13 a worker ends when its database is away for a moment",
        "worker/claimer.py",
        "            except StoreUnavailable as error:\n                logs.event(",
        "            except ZeroDivisionError as error:\n                logs.event(",
        THIRTEEN,
        "test_a_worker_resumes_after_a_restart_of_postgresql",
    ),
    Mutant(
        "13 a blocked process lives on",
        "worker/watchdog.py",
        "                    self._seam.exit(BLOCKED_CODE)\n",
        "                    pass\n",
        THIRTEEN_BLOCKED,
        "test_a_blocked_process_settles_its_jobs_and_ends[sqlite]",
    ),
    Mutant(
        "13 a frozen process is left alone",
        "worker/processes/warden.py",
        "now - still_since >= self._frozen_seconds",
        "False",
        THIRTEEN_FROZEN,
        "test_a_frozen_process_is_ended_with_a_traceback_and_the_names_of_its_jobs[pg15]",
        wait_seconds=12,
    ),
    Mutant(
        "13 a frozen process may keep a database locked",
        "worker/processes/warden.py",
        "now - locked_since >= self._locked_seconds",
        "False",
        THIRTEEN_FROZEN,
        "test_a_frozen_process_keeps_no_database_locked[sqlite]",
        wait_seconds=12,
    ),
    Mutant(
        "13 the neighbors of a blocked handler are left to their leases",
        "worker/watchdog.py",
        "[run for run in ours if run not in guilty]",
        "[]",
        THIRTEEN_BLOCKED,
        "test_a_blocked_process_settles_its_jobs_and_ends[sqlite]",
    ),
    Mutant(
        "13 one refused release of a blocked process loses all",
        "worker/watchdog.py",
        "any(found) and len(batch) > 1",
        "False",
        THIRTEEN_BLOCKED,
        "test_a_blocked_process_releases_other_jobs_when_one_release_is_refused[sqlite]",
    ),
    Mutant(
        "13 a worker without a slot lives on",
        "worker/runner.py",
        "hung == self._slots.concurrency",
        "hung > self._slots.concurrency",
        THIRTEEN_BLOCKED,
        "test_a_worker_whose_slots_are_all_hung_ends_with_an_error[sqlite]",
    ),
    Mutant(
        "13 a failure looks like a success",
        "cli/session.py",
        "FAILED_CODE = 1",
        "FAILED_CODE = 0",
        THIRTEEN,
        "test_a_resource_that_fails_to_start_ends_the_worker_with_an_error[sqlite]",
    ),
    Mutant(
        "14 a release keeps the attempt",
        "domain/outcomes.py",
        "State.QUEUED, attempt_back=True, released=True",
        "State.QUEUED, released=True",
        FOURTEEN,
        "test_a_worker_that_is_stopped_finishes_what_it_can_and_releases_the_rest[sqlite]",
    ),
    Mutant(
        "14 a worker that stops still claims",
        "worker/worker.py",
        "        self._claimer.stop()\n",
        "",
        FOURTEEN,
        "test_a_worker_that_is_stopped_finishes_what_it_can_and_releases_the_rest[sqlite]",
    ),
    Mutant(
        "14 a second signal does not hurry",
        "worker/stop.py",
        "            self.hurried.set()\n",
        "            pass\n",
        FOURTEEN,
        "test_a_second_signal_hurries[sqlite-INT]",
    ),
    Mutant(
        "12 a job that can't end keeps others from being taken back",
        "stores/postgres/reclaim.py",
        "            return await self._one_by_one(values)\n",
        "            raise\n",
        TWELVE_REFUSED,
        "test_a_job_that_the_database_refuses_to_end_does_not_keep_others_from_ending[pg15]",
    ),
    Mutant(
        "13 a renewal that had to wait counts from when it was asked for",
        POSTGRES_SETTLE,
        "SET lease_expires_at = clock_timestamp() +",
        "SET lease_expires_at = now() +",
        THIRTEEN_STRAIN,
        "test_a_renewal_that_had_to_wait_counts_from_its_end[pg15]",
    ),
    Mutant(
        "13 a handler on the loop that does not stop is waited for",
        "worker/executor.py",
        "loop.call_later(self._grace_seconds, self._end_grace, run)",
        "pass",
        THIRTEEN_HANGS,
        "test_a_handler_that_hangs_past_its_timeout_loses_its_lease[sqlite-in_loop]",
    ),
    Mutant(
        "13 a child process that does not stop is waited for",
        "worker/processes/pool.py",
        """\
                    hung, seconds = True, None
                    child.kill()
""",
        """\
                    hung, seconds = True, None
""",
        THIRTEEN_HANGS,
        "test_a_handler_that_hangs_past_its_timeout_loses_its_lease[sqlite-in_child]",
    ),
    Mutant(
        "13 a handler that does not stop keeps its program from ending",
        "worker/runner.py",
        "                asyncio.tasks._unregister_task(run.task)\n",
        "                pass\n",
        THIRTEEN_HANGS,
        "test_a_handler_that_swallows_its_cancellation_can_not_keep_a_program_from_ending[2]",
    ),
    Mutant(
        "14 a handler that does not listen keeps its job",
        "worker/runner.py",
        """\
            elif run.settlement is None:
                self._settle(run, Released())
""",
        """\
            elif run.settlement is None:
""",
        FOURTEEN,
        "test_a_job_whose_handler_ignores_the_stop_is_released[sqlite]",
    ),
    Mutant(
        "14 a blocked loop hears of no signal",
        "worker/watchdog.py",
        "return self._deadline.is_overdue or bool(self._overdue())",
        "return bool(self._overdue())",
        FOURTEEN,
        FOURTEEN_BLOCKED,
        wait_seconds=12,
    ),
    Mutant(
        "14 a generator may take as long as it likes to close",
        "cli/loop.py",
        " and _close_generators(runner.get_loop())",
        "",
        FOURTEEN,
        "test_a_generator_that_can_not_be_closed_does_not_keep_the_worker_from_ending[sqlite]",
        wait_seconds=12,
    ),
    Mutant(
        "15 the stores use other words",
        "stores/sqlite/jobs.py",
        "while it {'ran' if running else 'waited'}",
        "while it {'ran' if running else 'slept'}",
        FIFTEEN,
        "test_one_scenario_leaves_the_same_record_on_every_store[pg15]",
    ),
    Mutant(
        "a cancel is not told to the worker that runs the job",
        "stores/sqlite/jobs.py",
        "    transaction.wakeups += [Wakeup(canceled=job.job_id) for job in canceled"
        " if job.was_running]\n",
        "",
        CANCEL,
        "test_a_cancel_stops_a_running_handler_within_2_seconds[gated-sqlite]",
    ),
    Mutant(
        "a failure costs its attempt although the breaker is open",
        "worker/settler.py",
        "each.parked if found_open else settlement",
        "settlement",
        DEPENDENCY,
        "test_an_outage_costs_a_few_attempts_however_many_jobs_fail_in_however_many_workers"
        "[sqlite]",
        wait_seconds=8,
    ),
    Mutant(
        "a dependency that works again is not noticed",
        "worker/runner.py",
        "            self._parker.close(key)\n",
        "            pass\n",
        DEPENDENCY,
        "test_an_outage_costs_a_few_attempts_however_many_jobs_fail_in_however_many_workers"
        "[sqlite]",
        wait_seconds=8,
    ),
    Mutant(
        "who was sent ahead is waited for without end",
        SQLITE_BREAKERS,
        "next_probe_at = :now + CAST(probe_seconds * 1e6 AS INTEGER), probes",
        "next_probe_at = NULL, probes",
        DEPENDENCY,
        "test_a_worker_that_dies_while_it_runs_a_probe_stops_nothing[sqlite]",
        wait_seconds=10,
    ),
    Mutant(
        "a job that fails every probe never pays for one",
        "domain/outcomes.py",
        " or job.probes > PROBES_FREE_MAX",
        "",
        INPUTS,
        "test_inputs_that_fail_end_although_nothing_else_runs",
    ),
    Mutant(
        "successes of other jobs do not count for a breaker",
        "worker/successes.py",
        "worked_seconds_ago=None if worked is None else now - worked",
        "worked_seconds_ago=None",
        INPUTS,
        f"{HOLD_UP_NOBODY}[mixed-3]",
    ),
    Mutant(
        "a success ends all doubt in a breaker that opens after it",
        SQLITE_BREAKERS,
        "failures = CASE WHEN :by_hand THEN '[]' ELSE failures END",
        "failures = '[]'",
        INPUTS,
        f"{HOLD_UP_NOBODY}[first-1]",
    ),
    Mutant(
        "the newest job waits for its lot among many that fail",
        SQLITE_CLAIM,
        "WHERE drawn.probes % 2 = 0",
        "WHERE false",
        INPUTS,
        f"{HOLD_UP_NOBODY}[last-1]",
    ),
    Mutant(
        "the job that failed last is sent ahead again",
        SQLITE_CLAIM,
        "ORDER BY parked.fence, substr(parked.id, 29), parked.id LIMIT 1",
        "ORDER BY parked.fence DESC, substr(parked.id, 29), parked.id LIMIT 1",
        INPUTS,
        f"{HOLD_UP_NOBODY}[first-1]",
    ),
    Mutant(
        "two claims count the same spare slots of a capped queue",
        POSTGRES_SHORTEST,
        "        ORDER BY name\n        FOR UPDATE SKIP LOCKED\n",
        "        ORDER BY name\n",
        HOLDS,
        "test_a_cap_is_never_exceeded_however_many_claim_at_once[pg15]",
    ),
    Mutant(
        "a job is held by a breaker that closes meanwhile",
        "stores/postgres/sql/breakers.sql",
        "    FOR SHARE SKIP LOCKED\n",
        "",
        HOLDS,
        "test_a_breaker_closes_when_those_who_hold_its_jobs_are_done[pg15]",
    ),
    Mutant(
        "failures at the same moment do not know of each other",
        POSTGRES_PROBES,
        """\
        ON CONFLICT (key) DO UPDATE
        SET window_seconds = excluded.window_seconds, probe_seconds = excluded.probe_seconds
        RETURNING breaker.* INTO known;
""",
        """\
        ON CONFLICT (key) DO NOTHING;
        SELECT * INTO known FROM holdfast.breakers WHERE key = struck;
""",
        HOLDS,
        "test_of_failures_at_the_same_moment_exactly_so_many_cost_an_attempt[pg15]",
    ),
    Mutant(
        "06 a claim whose answer was lost is not looked for",
        "worker/claimer.py",
        "            self._strays.doubt()\n",
        "",
        SIX_LOST_CLAIMS,
        "test_a_worker_that_stops_leaves_no_stray_behind[pg15]",
    ),
    Mutant(
        "06 a claim whose answer was lost costs an attempt",
        POSTGRES_SETTLE,
        "attempt = attempt - 1, lease_owner = NULL,",
        "lease_owner = NULL,",
        SIX_LOST_CLAIMS,
        "test_a_lost_claim_from_a_queue_with_a_cap_costs_no_attempt[pg15]",
    ),
    Mutant(
        "06 strays are looked for once only",
        "worker/strays.py",
        "if now < self._until else inf",
        "if now < 0 else inf",
        STRAYS,
        "test_a_claim_that_is_carried_out_when_nobody_waits_for_it_costs_nothing",
    ),
    Mutant(
        "06 a job that ran is taken for a stray",
        "worker/lease_keeper.py",
        ", *self._unsettled]",
        "]",
        STRAYS,
        "test_a_job_that_ran_is_no_stray_though_its_end_was_refused",
    ),
    Mutant(
        "02 a chosen id is looked for by an old snapshot",
        "stores/postgres/enqueue.py",
        'if found["isolation"] in ONE_SNAPSHOT:',
        "if False:",
        SNAPSHOTS,
        "test_a_chosen_id_can_not_run_twice_by_an_old_snapshot[repeatable_read-pg15]",
    ),
    Mutant(
        "02 the engine takes the isolation level of the database",
        "stores/postgres/connections.py",
        """\
    "SET jit = off; SET plan_cache_mode = force_generic_plan;"
    " SET default_transaction_isolation = 'read committed'"
""",
        """\
    "SET jit = off; SET plan_cache_mode = force_generic_plan"
""",
        SNAPSHOTS,
        "test_the_default_isolation_of_a_database_is_not_the_engines[pg15]",
    ),
    Mutant(
        "05 a transaction that has ended a job may wait for its commit for ever",
        POSTGRES_SETTLE,
        "AS ended,\n    {in_block} AS in_block,\n"
        "    set_config('idle_in_transaction_session_timeout', :commit_milliseconds, true)",
        "AS ended, {in_block} AS in_block, :commit_milliseconds::text",
        THIRTEEN_STILL,
        "test_a_job_of_a_host_that_vanishes_before_its_commit_starts_again_in_time[pay-pg15]",
        wait_seconds=10,
    ),
    Mutant(
        "13 a transaction of the engine's may stand still",
        "stores/postgres/server_limits.py",
        '            "idle_in_transaction_session_timeout": _milliseconds(self.idle_seconds),\n',
        "",
        THIRTEEN_STILL,
        "test_a_settlement_that_was_ended_half_way_is_written_again[pg15]",
        wait_seconds=8,
    ),
    Mutant(
        "13 the server waits for a client that takes nothing",
        "stores/postgres/server_limits.py",
        '            "tcp_user_timeout": _milliseconds(self.silent_seconds),\n',
        "",
        THIRTEEN_STILL,
        "test_a_worker_frozen_while_a_large_answer_arrives_hides_no_job[pg15]",
        wait_seconds=20,
    ),
    Mutant(
        "13 a failure waits for a breaker as long as somebody has that locked",
        POSTGRES_PROBES,
        "set_config('lock_timeout', greatest(left_seconds * 1000, 1)::integer::text, true)",
        "set_config('lock_timeout', '0', true)",
        THIRTEEN_STILL,
        "test_a_locked_breaker_does_not_keep_failures_from_being_settled[pg15]",
    ),
    Mutant(
        "13 all that ends waits for a failure to be counted",
        "worker/settler.py",
        "            await self._ready.wait()\n",
        """\
            await self._ready.wait()
            while self._failures:
                await self._backoff.wait()
""",
        THIRTEEN_STILL,
        "test_a_failure_that_waits_to_be_counted_does_not_delay_other_settlements[pg15]",
    ),
    Mutant(
        "04 a COMMIT inside of a block goes unnoticed on PostgreSQL",
        "transactions/drivers/sql/postgres/in_block.sql",
        "OR current_setting('transaction_deferrable')::boolean",
        "OR true",
        BLOCKS,
        "test_a_transaction_that_is_ended_inside_of_its_block_is_told[COMMIT_BEGIN-own_on_pg15]",
    ),
    Mutant(
        "04 a COMMIT inside of a block goes unnoticed on SQLite",
        "stores/sqlite/enrolled.py",
        "            await check_mark(self._driver)\n",
        "",
        BLOCKS,
        "test_a_transaction_that_is_ended_inside_of_its_block_is_told[COMMIT_BEGIN-own_on_sqlite]",
    ),
    Mutant(
        "04 a block takes the isolation level of the database",
        "transactions/drivers/postgres.py",
        'isolation="read_committed", deferrable=True',
        "deferrable=True",
        BLOCKS,
        "test_the_default_isolation_of_a_database_is_not_that_of_a_block[pg15]",
    ),
    Mutant(
        "06 an argument that a worker doesn't know fails the job for good",
        "worker/classify.py",
        "return HandedBack(_cut(texts.error_text(error)))",
        "return Failed(_code(error), _cut(texts.error_text(error)), permanent=True)",
        DEPLOY,
        "test_a_job_that_no_worker_can_run_is_handed_back_a_limited_number_of_times[sqlite]",
    ),
    Mutant(
        "06 a job that no worker can run is handed back for ever",
        "domain/outcomes.py",
        """    if job.releases >= RELEASES_MAX:
        text = f"no worker""",
        """    if False:
        text = f"no worker""",
        DEPLOY,
        "test_a_job_that_no_worker_can_run_fails_after_an_hour_and_a_half",
    ),
    Mutant(
        "13 a worker that is starting does not hear that it is to stop",
        "worker/stop.py",
        "self._limit.reschedule(asyncio.get_running_loop().time())",
        "pass",
        THIRTEEN_STARTING,
        "test_a_worker_stopped_while_its_start_waits_for_an_answer_exits_cleanly[pg15-first]",
        wait_seconds=12,
    ),
    Mutant(
        "13 a worker does not work before it can listen",
        "worker/worker.py",
        "        settling = asyncio.create_task(self._runner.settler.run())\n",
        "        await asyncio.wait({listening}, timeout=60)\n"
        "        settling = asyncio.create_task(self._runner.settler.run())\n",
        THIRTEEN_STARTING,
        "test_a_worker_that_can_not_listen_yet_still_runs_jobs[pg15]",
        wait_seconds=12,
    ),
    Mutant(
        "what failed and what was canceled counts as done",
        "domain/overview.py",
        "_DONE = (State.SUCCEEDED,)",
        "_DONE = tuple(State)",
        OVERVIEW,
        "test_done_counts_neither_what_failed_nor_what_was_canceled[sqlite]",
    ),
    Mutant(
        "a worker that lacks a webhook's preset fails the delivery for good",
        "webhooks/delivery.py",
        "raise OtherArguments(\n",
        "raise Permanent(\n",
        PRESETS,
        "test_a_worker_that_lacks_the_preset_hands_the_delivery_back[sqlite]",
    ),
    Mutant(
        "a worker that lacks the key of a webhook's secret fails the delivery for good",
        "webhooks/delivery.py",
        "raise OtherArguments(str(error))",
        "raise Permanent(str(error))",
        "../webhooks/test_secrets.py",
        "test_a_worker_without_the_key_leaves_the_delivery_to_another[sqlite]",
    ),
    Mutant(
        "the attempt log keeps a secret that the receiver repeats",
        "webhooks/echoes.py",
        "data = data.replace(form, HIDDEN)",
        "pass",
        "../webhooks/test_dump.py",
        "test_a_copy_of_the_database_contains_no_secret[sqlite]",
    ),
    Mutant(
        "a tenant changes a job of another",
        "operations/jobs.py",
        "if self._tenant is not None:\n            await self.get(job_id)",
        "pass",
        TENANTS,
        "test_a_job_of_another_tenant_is_as_one_that_does_not_exist[sqlite-jobs.cancel]",
    ),
    Mutant(
        "a tenant sees the id of another tenant's job",
        "job_function.py",
        "context.job_id if context and context.tenant == tenant else None",
        "context.job_id if context else None",
        TENANTS,
        "test_in_a_handler_the_tenant_wins_over_that_of_the_handlers_job[sqlite]",
    ),
    Mutant(
        "what a scan finds behind a claim is forgotten",
        "stores/postgres/lanes.py",
        "self.left_behind = scan.late_ids()",
        "pass",
        HORIZON,
        "test_what_came_in_behind_is_found_by_the_next_scan[pg15]",
    ),
    Mutant(
        "a job that was committed a moment late waits for a scan",
        "stores/postgres/lanes.py",
        "now - self.looked_at + LOOK_BACK_SECONDS",
        "now - self.looked_at",
        HORIZON,
        "test_a_job_that_was_committed_a_moment_late_needs_no_scan[pg15]",
    ),
    Mutant(
        "a cap leaves out what runs on an expired lease",
        POSTGRES_SHORTEST,
        "first_lease, looked_at + make_interval(",
        "looked_at + make_interval(",
        HORIZON,
        "test_a_cap_counts_a_lease_that_has_expired_among_what_is_dead[pg15]",
    ),
    Mutant(
        "a cap misses leases that are shorter than earlier ones",
        POSTGRES_SHORTEST,
        " OR shortest_lease_seconds >= lease_seconds",
        "",
        HORIZON,
        "test_a_cap_counts_leases_that_are_shorter_than_earlier_ones[pg15-True]",
    ),
    Mutant(
        "a cap misses what a claim in progress takes",
        POSTGRES_SHORTEST,
        "IF claiming <> '{}' THEN",
        "IF false THEN",
        HORIZON,
        "test_a_look_that_a_claim_delays_leaves_the_last_one_in_use[pg15]",
    ),
    Mutant(
        "a restored cap trusts lengths recorded before it was lifted",
        POSTGRES_SHORTEST,
        "FOR EACH ROW WHEN (old.running_max IS NULL OR new.running_max IS NULL)",
        "FOR EACH ROW WHEN (false)",
        HORIZON,
        "test_a_restored_cap_counts_what_was_claimed_while_it_was_lifted[pg15]",
    ),
    Mutant(
        "a new worker ignores where others are",
        "stores/postgres/lanes.py",
        "self.is_far = bool(noted)",
        "noted = {}; self.is_far = False",
        HORIZON,
        "test_a_new_worker_begins_where_others_are[pg15]",
    ),
]
