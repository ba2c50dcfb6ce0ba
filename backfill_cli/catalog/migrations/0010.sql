-- The rows of an epoch by what the sink did with them.

ALTER TABLE ledger ADD COLUMN rows_inserted BIGINT;
ALTER TABLE ledger ADD COLUMN rows_upserted BIGINT;
ALTER TABLE ledger ADD COLUMN rows_deleted BIGINT;
COMMENT ON COLUMN ledger.rows_inserted IS 'Rows of a snapshot, or events, inserted. This and the next two are NULL for epochs of versions that did not count them.';
COMMENT ON COLUMN ledger.rows_upserted IS 'Rows that replaced what the sink had under their keys, or were inserted where it had nothing: the net changes of an epoch do not tell which.';
COMMENT ON COLUMN ledger.rows_deleted IS 'Keys deleted; the rows that a truncate removes are not counted.';
ALTER TABLE ledger_hours ADD COLUMN rows_inserted BIGINT;
ALTER TABLE ledger_hours ADD COLUMN rows_upserted BIGINT;
ALTER TABLE ledger_hours ADD COLUMN rows_deleted BIGINT;
COMMENT ON COLUMN ledger_hours.rows_inserted IS 'Sum of the rows inserted; NULL, as the next two, if some epochs did not count them.';
COMMENT ON COLUMN ledger_hours.rows_upserted IS 'Sum of the rows inserted or replaced by their keys.';
COMMENT ON COLUMN ledger_hours.rows_deleted IS 'Sum of the keys deleted.';
UPDATE ledger SET rows_inserted = 0, rows_upserted = 0, rows_deleted = 0 WHERE rows_written = 0;
UPDATE ledger_hours SET rows_inserted = 0, rows_upserted = 0, rows_deleted = 0 WHERE rows_written = 0;
