-- Tables with a rate of their own.

ALTER TABLE jobs ADD COLUMN table_rates VARCHAR;
COMMENT ON COLUMN jobs.table_rates IS 'Snapshot rows per second of each table that has a limit of its own, as JSON; NULL for none.';
COMMENT ON COLUMN commands.payload IS
    'For refill and cancel-refill: the refill''s id. For set, add and remove: the config from then on, and the table, as JSON. For a throttle of one table: the table, as JSON. Else NULL.';
