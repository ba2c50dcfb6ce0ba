-- What was taken from a change log into a job's spool (strategy chain): a copy of the entries' own descriptions.

CREATE TABLE spool (
    job        VARCHAR NOT NULL,
    number     BIGINT  NOT NULL,
    attempt    VARCHAR NOT NULL,
    due_ms     BIGINT  NOT NULL,
    taken_ms   BIGINT  NOT NULL,
    changes    BIGINT  NOT NULL,
    size_bytes BIGINT  NOT NULL,
    "position" VARCHAR NOT NULL,
    body       VARCHAR NOT NULL
);
COMMENT ON TABLE spool IS 'One row per entry of a job''s spool: changes that were taken from the log and are not in the sink yet.';
COMMENT ON COLUMN spool.job IS 'Name of the job.';
COMMENT ON COLUMN spool.number IS 'Number of the entry, increasing within the job.';
COMMENT ON COLUMN spool.attempt IS 'Which attempt at taking it; number and attempt name its folder in the spool.';
COMMENT ON COLUMN spool.due_ms IS 'When its barrier was due, ms.';
COMMENT ON COLUMN spool.taken_ms IS 'When it was durable on disk, ms.';
COMMENT ON COLUMN spool.changes IS 'Changes taken, before they are netted by key.';
COMMENT ON COLUMN spool.size_bytes IS 'Size of its files, bytes.';
COMMENT ON COLUMN spool."position" IS 'The position in the change log at which it ends, as JSON.';
COMMENT ON COLUMN spool.body IS 'The whole entry as JSON, as in its entry.json.';

ALTER TABLE jobs ADD COLUMN pause_all BOOLEAN DEFAULT false;
COMMENT ON COLUMN jobs.pause_all IS 'Whether the pause also stops taking into the spool.';
COMMENT ON COLUMN commands.verb IS 'pause, pause-all, resume, throttle or stop.';
