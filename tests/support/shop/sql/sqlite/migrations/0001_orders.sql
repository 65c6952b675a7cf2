CREATE TABLE shop_orders (
    id TEXT PRIMARY KEY,
    price TEXT NOT NULL,
    is_paid INTEGER NOT NULL DEFAULT 0,
    seal BLOB NOT NULL,
    due_at TEXT NOT NULL,
    made_at TEXT NOT NULL
) STRICT;
