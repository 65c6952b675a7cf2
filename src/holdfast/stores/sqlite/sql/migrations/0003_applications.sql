-- What an application's own tables have been through: see holdfast.transactions.tables.
CREATE TABLE application_steps (
    application TEXT NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (application, version)
) STRICT;
