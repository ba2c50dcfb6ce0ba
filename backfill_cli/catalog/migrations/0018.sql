-- Tables that are set aside: the job goes on without them.

ALTER TABLE jobs ADD COLUMN aside VARCHAR;
COMMENT ON COLUMN jobs.aside IS
    'Tables that are set aside, or are being put back, each with the error, since when, and its part of the config, as JSON; NULL for none.';
COMMENT ON COLUMN commands.payload IS
    'For refill and cancel-refill: the refill''s id. For set, add, remove and put-back: the config from then on, and the table, as JSON. For a throttle of one table: the table, as JSON. Else NULL.';
COMMENT ON COLUMN commands.verb IS
    'pause, pause-all, resume, throttle, stop, refill, cancel-refill, set, add, remove or put-back; a guard''s hold or lift.';
