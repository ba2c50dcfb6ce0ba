-- Commands that redefine a job: another config, a table that joins or leaves it.

COMMENT ON COLUMN commands.payload IS
    'For refill and cancel-refill: the refill''s id. For set, add and remove: the config from then on, and the table, as JSON. Else NULL.';
ALTER TABLE commands ADD COLUMN refused VARCHAR;
COMMENT ON COLUMN commands.refused IS 'Why the barrier that took it refused it, having changed nothing, as JSON; NULL if it did not.';
COMMENT ON COLUMN commands.verb IS
    'pause, pause-all, resume, throttle, stop, refill, cancel-refill, set, add or remove; a guard''s hold or lift.';
