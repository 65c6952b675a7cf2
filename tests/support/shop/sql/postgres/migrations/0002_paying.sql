CREATE FUNCTION holdfast.shop_order_is_paid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'a paid order may not change';
END;
$$;

CREATE TRIGGER shop_orders_paid BEFORE UPDATE ON holdfast.shop_orders
FOR EACH ROW WHEN (old.is_paid) EXECUTE FUNCTION holdfast.shop_order_is_paid();
