-- When the job had a runner, and how each of them ended.

CREATE TABLE runs (
    job        VARCHAR NOT NULL,
    token      BIGINT  NOT NULL,
    host       VARCHAR NOT NULL,
    pid        BIGINT  NOT NULL,
    claimed_ms BIGINT  NOT NULL,
    ended_ms   BIGINT,
    died       BOOLEAN NOT NULL
);
COMMENT ON TABLE runs IS 'One row per runner that had the job, the newest 1,000 per job.';
COMMENT ON COLUMN runs.job IS 'Name of the job.';
COMMENT ON COLUMN runs.token IS 'The token of its claim, which grows.';
COMMENT ON COLUMN runs.host IS 'The runner''s machine.';
COMMENT ON COLUMN runs.pid IS 'The runner''s process there.';
COMMENT ON COLUMN runs.claimed_ms IS 'When it claimed the job, ms.';
COMMENT ON COLUMN runs.ended_ms IS 'When it released the job or, if it died, was last seen, ms; NULL while it has not.';
COMMENT ON COLUMN runs.died IS 'Whether it ended without releasing the job, as the next runner found.';
INSERT INTO runs SELECT job, token, host, pid, claimed_ms, NULL, false FROM leases
WHERE pid IS NOT NULL AND job IN (SELECT name FROM jobs);
