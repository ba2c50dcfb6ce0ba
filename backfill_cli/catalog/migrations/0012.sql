-- Why a job is in its state, and what to type, as a value.

ALTER TABLE jobs ADD COLUMN why VARCHAR;
COMMENT ON COLUMN jobs.why IS 'The reason as JSON, with what to type; NULL if its text is all.';
ALTER TABLE starters ADD COLUMN why VARCHAR;
COMMENT ON COLUMN starters.why IS 'The same as JSON, with what would end a wait; NULL if its text is all.';
UPDATE jobs SET
    reason = left(reason, position('; to continue: ' IN reason) - 1),
    why = json_object(
        'text', left(reason, position('; to continue: ' IN reason) - 1),
        'kind', 'limited by',
        'hint', json_object(
            'parts', json_array(substr(reason, position('; to continue: ' IN reason) + length('; to continue: '))),
            'config', false,
            'retried', false
        ),
        'to', 'continue'
    )
WHERE position('; to continue: ' IN reason) > 0;
