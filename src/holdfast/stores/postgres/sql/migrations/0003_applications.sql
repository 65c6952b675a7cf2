-- What an application's own tables have been through: see holdfast.transactions.tables.
CREATE TABLE holdfast.application_steps (
    application text NOT NULL,
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (application, version)
);

CREATE FUNCTION holdfast.in_seconds(seconds double precision) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN now() + make_interval(secs => seconds);
