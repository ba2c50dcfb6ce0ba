-- What of a change log was taken into a job's spool (strategy chain): a copy of what the entries say of themselves.

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
COMMENT ON TABLE spool IS 'One row an entry of a job''s spool: changes that were taken from the log and are not in the sink yet.';
COMMENT ON COLUMN spool.job IS 'Name of the job.';
COMMENT ON COLUMN spool.number IS 'Number of the entry, rising in the job.';
COMMENT ON COLUMN spool.attempt IS 'Which taking of it; number and attempt name its folder in the spool.';
COMMENT ON COLUMN spool.due_ms IS 'When its barrier was due, ms.';
COMMENT ON COLUMN spool.taken_ms IS 'When it was on disk, ms.';
COMMENT ON COLUMN spool.changes IS 'Changes taken, before netting by key.';
COMMENT ON COLUMN spool.size_bytes IS 'Size of its files, bytes.';
COMMENT ON COLUMN spool."position" IS 'Where in the change log it ends, as JSON.';
COMMENT ON COLUMN spool.body IS 'The whole entry as JSON, as its own entry.json has it.';

ALTER TABLE jobs ADD COLUMN pause_all BOOLEAN DEFAULT false;
COMMENT ON COLUMN jobs.pause_all IS 'Whether the pause is of the taking into the spool, too.';
COMMENT ON COLUMN commands.verb IS 'pause, pause-all, resume, throttle or stop.';
