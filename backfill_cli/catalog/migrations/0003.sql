-- Where a split goes on is a cursor of its upstream's: a row's index, an offset, a key; JSON. Rows are counted apart.

ALTER TABLE splits RENAME first_row TO first_offset;
ALTER TABLE splits ALTER first_offset DROP NOT NULL;
COMMENT ON COLUMN splits.first_offset IS 'The offset that a partition''s history begins at; no meaning for files.';

ALTER TABLE split_progress RENAME next_row TO "cursor";
ALTER TABLE split_progress ALTER "cursor" DROP NOT NULL;
ALTER TABLE split_progress ALTER "cursor" TYPE VARCHAR;
COMMENT ON COLUMN split_progress."cursor" IS
    'Where to go on, JSON: a row''s index, an offset, a key. NULL before the first read and once it is consumed.';

-- An epoch that is promised holds the splits that it moves.
UPDATE checkpoints SET body = regexp_replace(body, '("status": "[a-z ]+", )"after":', '\1"cursor":', 'g');
