-- Starts that are creating their jobs: what they hold upstream can be found if they are killed meanwhile.

CREATE TABLE starts (
    job      VARCHAR NOT NULL,
    mark     VARCHAR NOT NULL,
    config   VARCHAR NOT NULL,
    pin      VARCHAR NOT NULL,
    begun_ms BIGINT  NOT NULL
);
COMMENT ON TABLE starts IS 'One row per start that is in progress, or was interrupted, between holding something upstream and creating its job.';
COMMENT ON COLUMN starts.job IS 'Name of the job.';
COMMENT ON COLUMN starts.mark IS 'Identifies what this start made upstream: part of a name that nobody else can have chosen.';
COMMENT ON COLUMN starts.config IS 'The job''s config as JSON; secrets are references.';
COMMENT ON COLUMN starts.pin IS 'Which upstream it is, as JSON.';
COMMENT ON COLUMN starts.begun_ms IS 'When the start began, ms.';
