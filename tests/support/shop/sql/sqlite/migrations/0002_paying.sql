CREATE TRIGGER shop_orders_paid BEFORE UPDATE ON shop_orders WHEN old.is_paid
BEGIN
    SELECT RAISE(ABORT, 'a paid order may not change');
END;
