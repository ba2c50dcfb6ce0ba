-- Keys that the last verify could not compare, because they changed upstream meanwhile.

ALTER TABLE verified ADD COLUMN not_compared BIGINT DEFAULT 0;
COMMENT ON COLUMN verified.not_compared IS 'Keys that changed upstream since the checkpoint and were not compared.';
ALTER TABLE verified ADD COLUMN "rows" BIGINT;
COMMENT ON COLUMN verified."rows" IS 'Rows of the sink that were compared; NULL for a verify of an older version.';
