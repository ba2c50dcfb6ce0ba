-- Starts that are making their jobs: what they hold upstream is known again if they are killed on the way.

CREATE TABLE starts (
    job      VARCHAR NOT NULL,
    mark     VARCHAR NOT NULL,
    config   VARCHAR NOT NULL,
    pin      VARCHAR NOT NULL,
    begun_ms BIGINT  NOT NULL
);
COMMENT ON TABLE starts IS 'One row a start that is under way, or was cut off, between holding something upstream and making its job.';
COMMENT ON COLUMN starts.job IS 'Name of the job.';
COMMENT ON COLUMN starts.mark IS 'By what its own is told from others'' there: part of a name that nobody else can have chosen.';
COMMENT ON COLUMN starts.config IS 'The job''s config as JSON; secrets are references.';
COMMENT ON COLUMN starts.pin IS 'Which upstream it is, as JSON.';
COMMENT ON COLUMN starts.begun_ms IS 'When, milliseconds since 1970.';
