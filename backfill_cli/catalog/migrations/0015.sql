-- Tables or parts of them that are read again beside the loop; and what a command says beside its rate.

ALTER TABLE commands ADD COLUMN payload VARCHAR;
COMMENT ON COLUMN commands.payload IS 'For refill and cancel-refill: the refill''s id; else NULL.';
COMMENT ON COLUMN commands.verb IS
    'pause, pause-all, resume, throttle, stop, refill or cancel-refill; a guard''s hold or lift.';

CREATE TABLE refills (
    id         BIGINT  NOT NULL,
    job        VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    condition  VARCHAR,
    first_key  VARCHAR,
    last_key   VARCHAR,
    "by"       VARCHAR NOT NULL,
    asked_ms   BIGINT  NOT NULL,
    state      VARCHAR NOT NULL,
    since      BIGINT,
    began_ms   BIGINT,
    ended_ms   BIGINT,
    epoch      BIGINT,
    inserted   BIGINT  NOT NULL,
    replaced   BIGINT  NOT NULL,
    removed    BIGINT  NOT NULL,
    reason     VARCHAR,
    why        VARCHAR
);
COMMENT ON TABLE refills IS 'One row per table, or part of one, that was asked to be read again; the newest 1,000.';
COMMENT ON COLUMN refills.id IS 'Grows with every refill of this catalog.';
COMMENT ON COLUMN refills.job IS 'Name of the job.';
COMMENT ON COLUMN refills.table_name IS 'The table, as named in the config.';
COMMENT ON COLUMN refills.condition IS 'SQL that a row''s columns in the sink have to fulfil; NULL for every row.';
COMMENT ON COLUMN refills.first_key IS 'Least value of the first key column; NULL for no bound.';
COMMENT ON COLUMN refills.last_key IS 'Greatest value of the first key column; NULL for no bound.';
COMMENT ON COLUMN refills."by" IS 'Who asked for it, for display.';
COMMENT ON COLUMN refills.asked_ms IS 'When it was asked for, ms.';
COMMENT ON COLUMN refills.state IS 'waiting, comparing, applying, done, failed or cancelled.';
COMMENT ON COLUMN refills.since IS 'The barrier at which it was taken, ms; NULL before that.';
COMMENT ON COLUMN refills.began_ms IS 'When its last comparison began, ms; NULL before that.';
COMMENT ON COLUMN refills.ended_ms IS 'When it was done, failed or cancelled, ms; NULL before that.';
COMMENT ON COLUMN refills.epoch IS 'The last commit that applied rows of it; NULL if none has, as where no row differed.';
COMMENT ON COLUMN refills.inserted IS 'Rows that the sink lacked and that were inserted.';
COMMENT ON COLUMN refills.replaced IS 'Rows that differed and were replaced.';
COMMENT ON COLUMN refills.removed IS 'Rows that only the sink had and that were removed.';
COMMENT ON COLUMN refills.reason IS 'Why it waits or failed, in words; NULL for neither.';
COMMENT ON COLUMN refills.why IS 'That as JSON, with what to type; NULL if the words are all.';
