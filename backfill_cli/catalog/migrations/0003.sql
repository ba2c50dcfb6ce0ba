-- A split continues at a cursor of its upstream: a row's index, an offset or a key, as JSON. Rows are counted apart.

ALTER TABLE splits RENAME first_row TO first_offset;
ALTER TABLE splits ALTER first_offset DROP NOT NULL;
COMMENT ON COLUMN splits.first_offset IS 'The offset at which a partition''s history begins; without meaning for files.';

ALTER TABLE split_progress RENAME next_row TO "cursor";
ALTER TABLE split_progress ALTER "cursor" DROP NOT NULL;
ALTER TABLE split_progress ALTER "cursor" TYPE VARCHAR;
COMMENT ON COLUMN split_progress."cursor" IS
    'Where to continue, as JSON: a row''s index, an offset or a key. NULL before the first read and once consumed.';

-- A promised epoch contains the splits that it advances.
UPDATE checkpoints SET body = regexp_replace(body, '("status": "[a-z ]+", )"after":', '\1"cursor":', 'g');
