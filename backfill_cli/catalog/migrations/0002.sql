-- An id of the catalog's own, kept beside a job's markers in its sink: two catalogs with one job are told apart by it.

CREATE TABLE catalog_identity (
    id      VARCHAR NOT NULL,
    made_ms BIGINT  NOT NULL
);
COMMENT ON TABLE catalog_identity IS 'One row: which catalog this is, wherever its file is moved to.';
COMMENT ON COLUMN catalog_identity.id IS 'A random UUID, made once. Sinks keep it beside the markers of each job.';
COMMENT ON COLUMN catalog_identity.made_ms IS 'When it was made, ms.';
INSERT INTO catalog_identity VALUES (gen_random_uuid()::VARCHAR, epoch_ms(current_timestamp));
