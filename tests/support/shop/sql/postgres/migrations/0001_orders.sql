CREATE TABLE holdfast.shop_orders (
    id uuid PRIMARY KEY,
    price numeric NOT NULL,
    is_paid boolean NOT NULL DEFAULT false,
    seal bytea NOT NULL,
    due_at timestamptz NOT NULL,
    made_at timestamptz NOT NULL
);
