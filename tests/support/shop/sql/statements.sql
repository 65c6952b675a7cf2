-- name: insert_order
INSERT INTO holdfast.shop_orders (id, price, seal, due_at, made_at)
VALUES (:id, :price, :seal, :due_at, now())

-- name: order
SELECT * FROM holdfast.shop_orders WHERE id = :id

-- name: orders
SELECT * FROM holdfast.shop_orders ORDER BY price

-- name: due_orders
SELECT count(*) FROM holdfast.shop_orders WHERE due_at < holdfast.in_seconds(:seconds)

-- name: pay
UPDATE holdfast.shop_orders SET is_paid = true WHERE id = :id

-- name: dialect
SELECT 'either'
