-- Tables that an unfinished `verify` found equal, so that the next one need not read them again.

CREATE TABLE compared (
    job           VARCHAR NOT NULL,
    table_name    VARCHAR NOT NULL,
    basis         VARCHAR NOT NULL,
    at_ms         BIGINT  NOT NULL,
    rows_upstream BIGINT  NOT NULL,
    rows_sink     BIGINT  NOT NULL
);
COMMENT ON TABLE compared IS 'One row per table that an unfinished verify found equal; deleted once it ends.';
COMMENT ON COLUMN compared.job IS 'Name of the job.';
COMMENT ON COLUMN compared.table_name IS 'The job''s name for the table.';
COMMENT ON COLUMN compared.basis IS 'Digest of everything that the comparison depends on: config, checkpoint, options, state of the sink.';
COMMENT ON COLUMN compared.at_ms IS 'When it was compared, ms.';
COMMENT ON COLUMN compared.rows_upstream IS 'Rows upstream.';
COMMENT ON COLUMN compared.rows_sink IS 'Rows in the sink.';
