-- The catalog's own id, kept beside a job's markers in its sink: it distinguishes two catalogs with the same job.

CREATE TABLE catalog_identity (
    id      VARCHAR NOT NULL,
    made_ms BIGINT  NOT NULL
);
COMMENT ON TABLE catalog_identity IS 'One row: the identity of this catalog, which stays the same if its file is moved.';
COMMENT ON COLUMN catalog_identity.id IS 'A random UUID, generated once. Sinks keep it beside the markers of each job.';
COMMENT ON COLUMN catalog_identity.made_ms IS 'When the id was generated, ms.';
INSERT INTO catalog_identity VALUES (gen_random_uuid()::VARCHAR, epoch_ms(current_timestamp));
