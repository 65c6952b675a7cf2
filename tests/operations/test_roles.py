"""`hf.roles` and `holdfast roles`: install, check, repair and remove roles of the database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from holdfast import BadArguments, Check, ConfigurationError, Holdfast, NotInThisStore, Severity
from tests.conftest import SERVERS
from tests.support.command import run_command
from tests.support.examining import look
from tests.support.postgres import Databases
from tests.support.roles import (
    InstalledRoles,
    administered,
    installed_roles,
    shared_roles,
    url_as,
)
from tests.support.running import execute
from tests.support.services import everywhere

# What somebody did (`{x}` is the role x), and how it is told.
DAMAGES = {
    'ALTER ROLE "{readonly}" NOLOGIN': "role {readonly} has the wrong attributes",
    'GRANT "{worker}" TO "{delivery}"': "role {delivery} is a member of {worker}",
    'ALTER TABLE queues OWNER TO "{admin}"': "table holdfast.queues belongs to {admin}",
    'ALTER FUNCTION lot OWNER TO "{admin}"': "routine holdfast.lot(uuid) belongs to {admin}",
    'ALTER DEFAULT PRIVILEGES FOR ROLE "{owner}" GRANT EXECUTE ON FUNCTIONS TO PUBLIC': (
        "PUBLIC may execute new functions of {owner}"
    ),
    'ALTER DEFAULT PRIVILEGES FOR ROLE "{owner}" IN SCHEMA holdfast'
    ' GRANT SELECT ON TABLES TO "{api}"': "{api} gets privileges on new TABLES of {owner}",
    "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY": (
        "row-level security on holdfast.jobs is not enabled"
    ),
    "ALTER TABLE history NO FORCE ROW LEVEL SECURITY": (
        "row-level security on holdfast.history is not forced"
    ),
    "ALTER POLICY api ON jobs USING (true)": "policy api on holdfast.jobs has been changed",
    "ALTER POLICY worker ON jobs TO PUBLIC": "policy worker on holdfast.jobs has been changed",
    "DROP POLICY readonly ON jobs": "policy readonly on holdfast.jobs does not exist",
    'CREATE POLICY "Open" ON jobs TO "{api}" USING (true)': (
        "policy Open on holdfast.jobs should not exist"
    ),
    "ALTER FUNCTION deregister SECURITY INVOKER": (
        "function holdfast.deregister(text) is not SECURITY DEFINER"
    ),
    "ALTER FUNCTION in_seconds SECURITY DEFINER": (
        "function holdfast.in_seconds(double precision) must not be SECURITY DEFINER"
    ),
    "ALTER FUNCTION forget_workers RESET search_path": (
        "function holdfast.forget_workers(double precision,integer) is SECURITY DEFINER without"
        " a pinned search_path"
    ),
    "GRANT EXECUTE ON FUNCTION deregister TO PUBLIC": (
        "PUBLIC must not have EXECUTE on ROUTINE holdfast.deregister(text)"
    ),
    "ALTER VIEW dead_letters RESET (security_invoker)": (
        "view holdfast.dead_letters does not run as its caller"
    ),
    "GRANT SELECT ON api_keys TO PUBLIC": "PUBLIC must not have SELECT on holdfast.api_keys",
    'GRANT DELETE ON jobs TO "{api}"': "{api} must not have DELETE on holdfast.jobs",
    'GRANT UPDATE (name) ON jobs TO "{delivery}"': (
        "{delivery} must not have UPDATE (name) on holdfast.jobs"
    ),
    'GRANT SELECT ON jobs TO "{api}" WITH GRANT OPTION': (
        "{api} must not have GRANT OPTION for SELECT on holdfast.jobs"
    ),
    'REVOKE SELECT ON jobs FROM "{worker}"': "{worker} lacks SELECT on holdfast.jobs",
    'REVOKE USAGE ON SCHEMA holdfast FROM "{readonly}"': (
        "{readonly} lacks USAGE on SCHEMA holdfast"
    ),
}
LEASE = (
    "UPDATE holdfast.jobs SET state = 'running', fence = 1, attempt = 1, lease_owner = 'lost',"
    " lease_expires_at = now() - interval '1 hour', started_at = now() WHERE id = $1"
)
RECLAIM = (
    "SELECT * FROM holdfast.reclaim("
    "$1, $2, NULL, 10, 'lost', 'CRASHED', 'died', 3, 0, '{}', '{}', '{}')"
)
SUCCEED = "SELECT holdfast.settle_succeeded($1, '{1}', '{NULL}', 0, '{}', '{}', '{}')"
CATALOG = (
    "SELECT 'class', xmin::text, to_jsonb(pg_class) - 'relpages' - 'reltuples' - 'relallvisible'"
    " FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
    " UNION ALL SELECT 'function', xmin::text, to_jsonb(pg_proc)"
    " FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"
    " UNION ALL SELECT 'policy', xmin::text, to_jsonb(pg_policy) FROM pg_policy"
    " UNION ALL SELECT 'member', xmin::text, to_jsonb(pg_auth_members) FROM pg_auth_members"
    " UNION ALL SELECT 'default', xmin::text, to_jsonb(pg_default_acl) FROM pg_default_acl"
    " UNION ALL SELECT 'record', xmin::text, to_jsonb(made) FROM holdfast.installed_roles AS made"
    " ORDER BY 1, 3"
)


def with_webhooks(url: str) -> Holdfast:
    app = Holdfast(url)
    app.tables("webhooks", "holdfast.webhooks")
    return app


@pytest.fixture(scope="module", params=SERVERS if everywhere() else SERVERS[-1:])
def roles(
    request: pytest.FixtureRequest, postgres_databases: Callable[[str], Databases]
) -> Iterator[InstalledRoles]:
    """Every test leaves it as it found it."""
    with shared_roles(postgres_databases(request.param), with_webhooks) as made:
        yield made


@pytest.fixture
async def admin(roles: InstalledRoles) -> AsyncIterator[Holdfast]:
    app = with_webhooks(roles.admin_url)
    yield app
    assert await app.roles.check() == []
    await app.close()


def named(text: str, roles: InstalledRoles) -> str:
    for role in ("owner", "admin", "api", "worker", "delivery", "readonly"):
        text = text.replace(f"{{{role}}}", roles.name(role))
    return text


async def test_a_check_finds_all_that_differs_and_an_install_repairs_it(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    for sql in DAMAGES:
        await execute(roles.admin_url, named(sql, roles))
    found = await admin.roles.check()
    told = {named(text, roles) for text in DAMAGES.values()}
    assert sorted(each.text for each in found) == sorted(told)
    done = await admin.roles.install()
    assert {each.text for each in done.changes} == told


async def test_a_second_install_changes_nothing_at_all(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    connection = await asyncpg.connect(roles.admin_url)
    try:
        before = await connection.fetch(CATALOG)
        done = await admin.roles.install()
        assert done.changes == []
        assert await admin.migrate() == []
        assert await connection.fetch(CATALOG) == before
    finally:
        await connection.close()


async def test_a_role_that_is_gone_is_created_again(roles: InstalledRoles, admin: Holdfast) -> None:
    gone = roles.name("gone")
    await execute(roles.admin_url, f'ALTER ROLE "{roles.name("operator")}" RENAME TO "{gone}"')
    found = await admin.roles.check()
    assert found[0].text == f"role {roles.name('operator')} does not exist"
    await admin.roles.install()


async def test_doctor_reports_differences_even_to_the_readonly_role(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    reader = Holdfast(roles.url("readonly"))
    assert (await look(reader, Check.ROLES)).severity is Severity.OK
    await execute(roles.admin_url, "GRANT SELECT ON holdfast.api_keys TO PUBLIC")
    told = await look(reader, Check.ROLES)
    await admin.roles.install()
    assert told.severity is Severity.WARNING
    assert "PUBLIC must not have SELECT on holdfast.api_keys" in told.sentence
    assert told.command == "holdfast roles install --app MODULE:NAME"


async def test_a_migration_acts_for_the_owner_and_applies_what_is_decided(
    roles: InstalledRoles, admin: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "ledger_app"
    migrations = package / "sql" / "postgres" / "migrations"
    migrations.mkdir(parents=True)
    (package / "__init__.py").touch()
    (migrations / "0001_ledger.sql").write_text(
        "CREATE TABLE holdfast.ledger (id bigserial PRIMARY KEY, tenant text NOT NULL);"
        " CREATE FUNCTION holdfast.ledger_sum() RETURNS bigint LANGUAGE sql RETURN 1;"
        " DO $$ BEGIN"
        " EXECUTE format('COMMENT ON TABLE holdfast.ledger IS %L', current_user);"
        " END $$"
    )
    decisions = migrations.parent / "privileges.toml"
    decisions.write_text(
        '[tables.ledger]\ntenant = "tenant"\nworker = "select, insert"\n'
        '[functions.ledger_sum]\nexecute = ["worker"]\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = with_webhooks(roles.admin_url)
    app.tables("ledger", "ledger_app")
    steps = await app.migrate()
    assert steps[0] == "ledger 0001_ledger"
    worker = await asyncpg.connect(roles.url("worker"))
    try:
        await worker.execute("INSERT INTO holdfast.ledger (tenant) VALUES ('acme')")
        assert await worker.fetchval("SELECT holdfast.ledger_sum()") == 1
        made_by = await worker.fetchval("SELECT obj_description('holdfast.ledger'::regclass)")
        assert made_by == roles.name("owner")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.execute("DELETE FROM holdfast.ledger")
    finally:
        await worker.close()
    # An app that doesn't know these tables keeps what was decided about them.
    assert (await admin.roles.install()).changes == []
    await execute(
        roles.admin_url, "DROP TABLE holdfast.ledger; DROP FUNCTION holdfast.ledger_sum()"
    )


async def test_functions_end_jobs_only_where_their_caller_may_change_them(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    job_id = uuid4()
    worker = await asyncpg.connect(roles.url("worker"))
    await worker.execute(
        "INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)"
        " VALUES ($1, 'pay', 'default', 0, '{}', 3)",
        job_id,
    )
    await worker.execute(LEASE, job_id)
    for role in ("delivery", "orchestrator", "worker"):
        connection = await asyncpg.connect(roles.url(role))
        reclaimed = [
            *await connection.fetch(RECLAIM, None, None),
            *await connection.fetch(RECLAIM, None, "lost"),
            *await connection.fetch(RECLAIM, job_id, "lost"),
        ]
        assert len(reclaimed) == (role == "worker")
        if role == "delivery":
            assert await connection.fetchval(SUCCEED, [job_id]) == []
        await connection.close()
    await worker.fetch("SELECT holdfast.cancel($1, true, NULL, 0, '{}', '{}', '{}')", [job_id])
    await worker.close()


async def test_only_the_administrator_migrates(roles: InstalledRoles) -> None:
    told = f"{roles.name('owner')} owns its tables; use the login {roles.name('admin')}$"
    for role in ("api", "worker", "operator"):
        with pytest.raises(ConfigurationError, match=told):
            await Holdfast(roles.url(role)).migrate()


async def test_a_role_of_an_application_enqueues_only_after_it_was_allowed(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    shop = roles.name("shop")
    await execute(roles.admin_url, f'CREATE ROLE "{shop}" LOGIN')
    app = Holdfast(roles.url("api"))

    @app.job
    async def bill(order: int) -> None: ...

    connection = await asyncpg.connect(url_as(roles.admin_url, shop))
    try:
        await admin.roles.allow_enqueue(shop)
        async with connection.transaction():
            job = await bill.options(connection=connection).enqueue(17)
        assert (await app.get(job.id)).arguments == {"order": 17}
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM holdfast.jobs")
        await admin.roles.allow_enqueue(shop, revoke=True)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM holdfast.jobs")
        async with connection.transaction():
            with pytest.raises(ConfigurationError):
                await bill.options(connection=connection).enqueue(18)
    finally:
        await connection.close()
        await app.close()


async def test_only_a_role_that_exists_can_be_allowed_to_enqueue(admin: Holdfast) -> None:
    with pytest.raises(BadArguments, match="role 'nobody_here' does not exist"):
        await admin.roles.allow_enqueue("nobody_here")


async def test_no_role_of_ours_can_be_allowed_to_enqueue(
    roles: InstalledRoles, admin: Holdfast
) -> None:
    for role in ("delivery", "readonly", "owner"):
        with pytest.raises(BadArguments, match="is one of Holdfast's own roles"):
            await admin.roles.allow_enqueue(roles.name(role))


async def test_a_database_keeps_its_prefix(roles: InstalledRoles, admin: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match=f"roles with the prefix {roles.prefix}; remove"):
        await admin.roles.install(prefix="other")
    for bad in ("Shop", "pg_shop", "a" * 51, "1st", 'x"; DROP'):
        with pytest.raises(BadArguments, match="can't be a prefix"):
            await admin.roles.install(prefix=bad)


@pytest.mark.heavy
def test_the_commands_check_and_list_tell_people_and_scripts(
    roles: InstalledRoles, tmp_path: Path
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = run_command("roles", *words, folder=tmp_path, url=roles.admin_url)
        return done.returncode, done.stdout, done.stderr

    code, listed, _ = run("list")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in listed.splitlines() if line.strip()}
    assert rows["webhook_secrets"] == ["-", "-", "-", "S", "-", "-"]
    assert rows["requeue_dead_letter"][4] == "X"
    asyncio.run(execute(roles.admin_url, f'GRANT DELETE ON holdfast.jobs TO "{roles.name("api")}"'))
    code, told, said = run("check")
    assert code == 1
    assert told.splitlines() == [
        f"{roles.name('api')} must not have DELETE on holdfast.jobs",
        f"    REVOKE DELETE ON holdfast.jobs FROM {roles.name('api')}",
    ]
    assert "to fix them: holdfast roles install" in said
    code, installed, said = run("install", "--passwords", "--json")
    assert code == 0
    found = json.loads(installed)
    assert len(found["changes"]) == 1
    assert {role: url.partition(":")[2].partition(":")[0] for role, url in found["urls"].items()}
    assert "admin" not in installed


async def test_roles_are_removed_without_a_trace(postgres_url: str) -> None:
    async with administered(postgres_url) as roles:
        app = with_webhooks(roles.admin_url)
        await app.migrate()
        before = await asyncpg.connect(roles.admin_url)
        try:
            await app.roles.install(prefix=roles.prefix)
            await execute(
                roles.admin_url,
                f'GRANT CONNECT ON DATABASE "{urlsplit(postgres_url).path[1:]}"'
                f' TO "{roles.name("api")}"',
            )
            assert await app.roles.remove() == {}
            owners = await before.fetch(
                "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class"
                " WHERE relnamespace = 'holdfast'::regnamespace"
            )
            assert [tuple(row) for row in owners] == [(roles.name("admin"),)]
            left = await before.fetch(
                "SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1)", roles.prefix
            )
            assert [tuple(row) for row in left] == [(roles.name("admin"),)]
            assert await before.fetchval("SELECT count(*) FROM pg_policy") == 0
        finally:
            await before.close()
        assert await app.migrate() == []
        with pytest.raises(ConfigurationError, match="no roles; run: holdfast roles install"):
            await app.roles.check()


async def test_a_role_that_another_database_uses_stays(postgres_url: str) -> None:
    async with installed_roles(postgres_url) as roles:
        reader = roles.name("readonly")
        await execute(postgres_url, f'GRANT CONNECT ON DATABASE postgres TO "{reader}"')
        assert await Holdfast(roles.admin_url).roles.remove() == {reader: ["database postgres"]}


async def test_a_login_that_cant_create_roles_is_told_so(postgres_url: str) -> None:
    async with administered(postgres_url) as roles:
        await execute(postgres_url, f'ALTER ROLE "{roles.name("admin")}" NOCREATEROLE')
        app = Holdfast(roles.admin_url)
        with pytest.raises(ConfigurationError, match="is empty; run: holdfast migrate"):
            await app.roles.install()
        await app.migrate()
        with pytest.raises(ConfigurationError, match="can't create roles; use an administrator"):
            await app.roles.install()


async def test_a_role_that_escapes_row_security_is_found_and_needs_a_superuser(
    postgres_url: str,
) -> None:
    async with installed_roles(postgres_url) as roles:
        await execute(postgres_url, f'ALTER ROLE "{roles.name("api")}" BYPASSRLS')
        app = Holdfast(roles.admin_url)
        (found,) = await app.roles.check()
        assert found.fix == f"ALTER ROLE {roles.name('api')} NOBYPASSRLS"
        with pytest.raises(ConfigurationError, match="doesn't allow this login to do that"):
            await app.roles.install()


async def test_sqlite_has_no_roles(local_hf: Holdfast) -> None:
    with pytest.raises(NotInThisStore, match="can't have roles; they need PostgreSQL"):
        await local_hf.roles.install()
