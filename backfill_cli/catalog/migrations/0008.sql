-- The file that a job was started by, so that hints name it.

ALTER TABLE jobs ADD COLUMN config_file VARCHAR;
COMMENT ON COLUMN jobs.config_file IS 'The config file that start was given last, as an absolute path; NULL where it is not known.';
