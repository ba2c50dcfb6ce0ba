-- Jobs that are being created are seen from their first second.

CREATE TABLE starters (
    job TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    begun_ms BIGINT NOT NULL,
    renewed_ms BIGINT NOT NULL,
    doing TEXT NOT NULL,
    config TEXT NOT NULL,
    config_file TEXT NOT NULL
);
COMMENT ON TABLE starters IS 'One row per job that is being created, or whose start was killed before it existed.';
COMMENT ON COLUMN starters.job IS 'Name of the job.';
COMMENT ON COLUMN starters.owner IS 'User who starts it.';
COMMENT ON COLUMN starters.host IS 'Machine of the process that starts it.';
COMMENT ON COLUMN starters.pid IS 'That process.';
COMMENT ON COLUMN starters.begun_ms IS 'When the start began, ms.';
COMMENT ON COLUMN starters.renewed_ms IS 'When the process last showed that it was alive, ms.';
COMMENT ON COLUMN starters.doing IS 'What it is doing or waiting for.';
COMMENT ON COLUMN starters.config IS 'The job''s config as JSON; secrets are references.';
COMMENT ON COLUMN starters.config_file IS 'The file it was read from.';
