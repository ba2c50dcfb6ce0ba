-- What guards command: holds of a job, which are not a person's pause or throttle.

ALTER TABLE commands ADD COLUMN guard VARCHAR;
COMMENT ON COLUMN commands.verb IS 'pause, pause-all, resume, throttle or stop; a guard''s hold or lift.';
COMMENT ON COLUMN commands.rate IS 'For throttle: rows per second; NULL for no limit. For hold: NULL for a pause.';
COMMENT ON COLUMN commands.guard IS 'For hold and lift: the name of the guard; else NULL.';
ALTER TABLE commands ADD COLUMN lifts VARCHAR;
COMMENT ON COLUMN commands.lifts IS 'For hold: what ends it, in words; else NULL.';
ALTER TABLE jobs ADD COLUMN holds VARCHAR;
COMMENT ON COLUMN jobs.holds IS 'What guards hold the job by, and which of them a person overrides, as JSON; NULL for neither.';
