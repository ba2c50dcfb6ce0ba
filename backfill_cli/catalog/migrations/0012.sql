-- Why a job is in its state, and what to type, as a value.

ALTER TABLE jobs ADD COLUMN why VARCHAR;
COMMENT ON COLUMN jobs.why IS 'The reason as JSON, with what to type; NULL if its text is all.';
ALTER TABLE starters ADD COLUMN why VARCHAR;
COMMENT ON COLUMN starters.why IS 'The same as JSON, with what would end a wait; NULL if its text is all.';
UPDATE jobs SET
    reason = split_part(reason, '; to continue: ', 1),
    why = substr(reason, position('; to continue: ' IN reason) + length('; to continue: '))
WHERE position('; to continue: ' IN reason) > 0;
UPDATE starters SET doing = split_part(doing, '; to continue: ', 1);
-- what looked like the separator in a message had a backslash
UPDATE jobs SET reason = regexp_replace(reason, ';(\\*)\\ (to (?:continue|change|follow|end it): )', ';\1 \2', 'g');
UPDATE starters SET doing = regexp_replace(doing, ';(\\*)\\ (to (?:continue|change|follow|end it): )', ';\1 \2', 'g');
UPDATE jobs SET why = json_object(
    'text', reason,
    'kind', 'limited by',
    'hint', json_object(
        'parts', list_filter(
            flatten(list_transform(
                list_zip(string_split_regex(why, command), regexp_extract_all(why, command)),
                lambda part: [
                    to_json(part[1]),
                    json_object('words', list_transform(
                        regexp_extract_all(part[2], ' ((?:''[^'']*''|"[^"]*"|[^ ''"])+)', 1),
                        lambda word: regexp_replace(word, '''([^'']*)''|"([^"]*)"', '\1\2', 'g')
                    ))
                ]
            )),
            lambda part: part NOT IN ('""', '{"words":null}')
        ),
        'config', false,
        'retried', false
    ),
    'to', 'continue'
)
FROM (VALUES (
    'backfill (?:start|status|history|logs|report|pause|resume|throttle|stop|wait|plan|verify|cutover|drop|doctor)'
    || '(?: (?:''[^'']*''|"[^"]*"|[^\s;,(''"`])+)*'
)) AS old (command)
WHERE why IS NOT NULL;
