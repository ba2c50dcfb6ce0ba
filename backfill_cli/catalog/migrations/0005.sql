-- What `verify` found last, so that `status` can show it.

CREATE TABLE verified (
    job        VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    epoch      BIGINT  NOT NULL,
    at_ms      BIGINT  NOT NULL,
    share      DOUBLE,
    missing    BIGINT  NOT NULL,
    extra      BIGINT  NOT NULL,
    changed    BIGINT  NOT NULL,
    verdict    VARCHAR NOT NULL
);
COMMENT ON TABLE verified IS 'One row per verified table of a job: what the last verify found.';
COMMENT ON COLUMN verified.job IS 'Name of the job.';
COMMENT ON COLUMN verified.table_name IS 'The job''s name for the table.';
COMMENT ON COLUMN verified.epoch IS 'Epoch of the checkpoint at which upstream and sink were compared.';
COMMENT ON COLUMN verified.at_ms IS 'When it was verified, ms.';
COMMENT ON COLUMN verified.share IS 'Share of the keys that was compared, 0 to 1; NULL for all.';
COMMENT ON COLUMN verified.missing IS 'Rows that the sink lacked.';
COMMENT ON COLUMN verified.extra IS 'Rows that the sink had and the upstream did not.';
COMMENT ON COLUMN verified.changed IS 'Rows with different values.';
COMMENT ON COLUMN verified.verdict IS 'equal or different.';
