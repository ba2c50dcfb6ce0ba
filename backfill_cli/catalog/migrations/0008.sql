-- The config file that a job was started with, so that hints name it.

ALTER TABLE jobs ADD COLUMN config_file VARCHAR;
COMMENT ON COLUMN jobs.config_file IS 'The config file of the last start, as an absolute path; NULL if not known.';
