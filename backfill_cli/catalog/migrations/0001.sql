-- The catalog's first version. Times are milliseconds since 1970 (UTC): make_timestamp_ms(committed_ms) shows one.
-- No indexes: every table is small and read whole or by job, under the file lock; plain DDL is the most robust.

CREATE TABLE catalog_version (
    version    INTEGER NOT NULL,
    applied_ms BIGINT  NOT NULL
);
COMMENT ON TABLE catalog_version IS 'One row per migration that was applied to this file.';
COMMENT ON COLUMN catalog_version.version IS 'Number of the migration; the largest is the version of the schema.';
COMMENT ON COLUMN catalog_version.applied_ms IS 'When it was applied, ms.';

CREATE TABLE jobs (
    name            VARCHAR NOT NULL,
    state           VARCHAR NOT NULL,
    reason          VARCHAR NOT NULL,
    strategy        VARCHAR NOT NULL,
    until           VARCHAR NOT NULL,
    config          VARCHAR NOT NULL,
    fingerprint     VARCHAR NOT NULL,
    pin             VARCHAR NOT NULL,
    sink_tables     VARCHAR NOT NULL,
    created_ms      BIGINT  NOT NULL,
    phase           VARCHAR NOT NULL,
    epoch           BIGINT  NOT NULL,
    promised_epoch  BIGINT  NOT NULL,
    last_epoch      BIGINT  NOT NULL,
    paused_by       VARCHAR,
    paused_since_ms BIGINT,
    rate            DOUBLE,
    stop_asked      BOOLEAN NOT NULL,
    progress        VARCHAR,
    caught_up_ms    BIGINT
);
COMMENT ON TABLE jobs IS 'One row per job: its definition, its control state, its progress.';
COMMENT ON COLUMN jobs.name IS 'Name of the job, [a-z0-9_-]{1,63}.';
COMMENT ON COLUMN jobs.state IS 'starting, running, pausing, paused, stopping, stopped, failed or done.';
COMMENT ON COLUMN jobs.reason IS 'Why the job is in this state.';
COMMENT ON COLUMN jobs.strategy IS 'How the job fills its sink: snapshot, source, arrangement or chain.';
COMMENT ON COLUMN jobs.until IS 'When a run ends: caught-up or forever.';
COMMENT ON COLUMN jobs.config IS 'The resolved config as JSON, with references to secrets, never their values.';
COMMENT ON COLUMN jobs.fingerprint IS 'What must not change during the job''s life, as a JSON object.';
COMMENT ON COLUMN jobs.pin IS 'The pinned snapshot as JSON; its splits are in the table splits.';
COMMENT ON COLUMN jobs.sink_tables IS 'The job''s tables as the sink saw them at the start, a JSON array.';
COMMENT ON COLUMN jobs.created_ms IS 'When the job was created, ms.';
COMMENT ON COLUMN jobs.phase IS 'snapshot, log-store or upstream, as of the committed epoch.';
COMMENT ON COLUMN jobs.epoch IS 'The last committed epoch; 0 if there is none.';
COMMENT ON COLUMN jobs.promised_epoch IS 'The largest epoch that was ever promised rows, including dropped ones.';
COMMENT ON COLUMN jobs.last_epoch IS 'The largest epoch number ever used, by rows or by a command; the next one is greater.';
COMMENT ON COLUMN jobs.paused_by IS 'Who paused the job; NULL if it is not paused.';
COMMENT ON COLUMN jobs.paused_since_ms IS 'When the job was paused, ms.';
COMMENT ON COLUMN jobs.rate IS 'Limit on snapshot reads, rows per second; NULL for no limit, 0 for no reads.';
COMMENT ON COLUMN jobs.stop_asked IS 'A stop was taken; cleared when a runner claims the job again.';
COMMENT ON COLUMN jobs.progress IS 'The numbers that status shows, as JSON; NULL before the first epoch.';
COMMENT ON COLUMN jobs.caught_up_ms IS 'When the job first caught up with its upstream, ms; NULL before.';

CREATE TABLE leases (
    job        VARCHAR NOT NULL,
    token      BIGINT  NOT NULL,
    owner      VARCHAR,
    host       VARCHAR,
    pid        BIGINT,
    claimed_ms BIGINT,
    renewed_ms BIGINT
);
COMMENT ON TABLE leases IS 'Who runs each job. Kept when a job is dropped, so that tokens never go back.';
COMMENT ON COLUMN leases.job IS 'Name of the job.';
COMMENT ON COLUMN leases.token IS 'Grows with every claim; a sink refuses commits with an older one.';
COMMENT ON COLUMN leases.owner IS 'Who claimed the job; NULL once it is released.';
COMMENT ON COLUMN leases.host IS 'The runner''s machine.';
COMMENT ON COLUMN leases.pid IS 'The runner''s process there.';
COMMENT ON COLUMN leases.claimed_ms IS 'When the job was claimed, ms.';
COMMENT ON COLUMN leases.renewed_ms IS 'When the lease was last renewed, ms; other machines honour it for 30 s.';

CREATE TABLE checkpoints (
    job        VARCHAR NOT NULL,
    kind       VARCHAR NOT NULL,
    epoch      BIGINT  NOT NULL,
    phase      VARCHAR NOT NULL,
    token      BIGINT  NOT NULL,
    attempt    VARCHAR NOT NULL,
    "position" VARCHAR NOT NULL,
    body       VARCHAR NOT NULL
);
COMMENT ON TABLE checkpoints IS 'At most two rows per job: the epoch that the sink holds and the one promised next.';
COMMENT ON COLUMN checkpoints.job IS 'Name of the job.';
COMMENT ON COLUMN checkpoints.kind IS 'committed: the sink holds the epoch; prepared: it is promised, and the sink may or may not hold it.';
COMMENT ON COLUMN checkpoints.epoch IS 'Number of the epoch: the barrier''s physical time, ms; 0 before the first.';
COMMENT ON COLUMN checkpoints.phase IS 'Phase after the epoch.';
COMMENT ON COLUMN checkpoints.token IS 'Token of the runner that promised the epoch.';
COMMENT ON COLUMN checkpoints.attempt IS 'Which attempt at staging it: part of the staging folder''s name.';
COMMENT ON COLUMN checkpoints."position" IS 'The sink''s position in the change log after the epoch, as JSON.';
COMMENT ON COLUMN checkpoints.body IS
    'The whole checkpoint as JSON; a prepared one includes its plan, its staged files and the splits it changes.';

CREATE TABLE splits (
    job        VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    split_id   VARCHAR NOT NULL,
    ordinal    BIGINT  NOT NULL,
    rows_total BIGINT,
    size_bytes BIGINT  NOT NULL,
    cuttable   BOOLEAN NOT NULL,
    detail     VARCHAR NOT NULL,
    first_row  BIGINT  NOT NULL
);
COMMENT ON TABLE splits IS 'The splits of each pinned snapshot; written once.';
COMMENT ON COLUMN splits.job IS 'Name of the job.';
COMMENT ON COLUMN splits.table_name IS 'Name of the table.';
COMMENT ON COLUMN splits.split_id IS 'Name of the split: a file, a key range or a partition.';
COMMENT ON COLUMN splits.ordinal IS 'Its place in the pin, counted from 0.';
COMMENT ON COLUMN splits.rows_total IS 'Its rows; NULL if not known before reading. For a partition, the offsets in its history.';
COMMENT ON COLUMN splits.size_bytes IS 'Its size, bytes.';
COMMENT ON COLUMN splits.cuttable IS 'Whether a slice of it can be read; if not, it is read whole.';
COMMENT ON COLUMN splits.detail IS 'What its upstream needs to read it and to recognise it later, as JSON.';
COMMENT ON COLUMN splits.first_row IS 'Index of its first row: 0, or the offset that a partition''s history begins at.';

CREATE TABLE split_progress (
    job        VARCHAR NOT NULL,
    table_name VARCHAR NOT NULL,
    split_id   VARCHAR NOT NULL,
    status     VARCHAR NOT NULL,
    next_row   BIGINT  NOT NULL,
    rows_read  BIGINT  NOT NULL,
    epoch      BIGINT  NOT NULL,
    target     BIGINT
);
COMMENT ON TABLE split_progress IS
    'Progress of each split as of the committed epoch; no row if it has not started. Also partitions newer than the pin.';
COMMENT ON COLUMN split_progress.job IS 'Name of the job.';
COMMENT ON COLUMN split_progress.table_name IS 'Name of the table.';
COMMENT ON COLUMN split_progress.split_id IS 'Name of the split.';
COMMENT ON COLUMN split_progress.status IS 'not started, consuming, consumed; for a partition: not started, backfilling, awaiting live, finished.';
COMMENT ON COLUMN split_progress.next_row IS 'Index of the row to continue with; for a partition, its next offset.';
COMMENT ON COLUMN split_progress.rows_read IS 'Rows read so far, before the transform.';
COMMENT ON COLUMN split_progress.epoch IS 'The epoch that last advanced it.';
COMMENT ON COLUMN split_progress.target IS
    'The offset at which history ends and the live log continues; NULL if the split is not a partition.';

CREATE TABLE commands (
    id          BIGINT  NOT NULL,
    job         VARCHAR NOT NULL,
    verb        VARCHAR NOT NULL,
    rate        DOUBLE,
    "by"        VARCHAR NOT NULL,
    at_ms       BIGINT  NOT NULL,
    taken_epoch BIGINT,
    taken_ms    BIGINT
);
COMMENT ON TABLE commands IS 'The inbox: commands given to a job. Taken ones are kept, the newest 1,000 per job.';
COMMENT ON COLUMN commands.id IS 'Number of the command, increasing across all jobs.';
COMMENT ON COLUMN commands.job IS 'Name of the job.';
COMMENT ON COLUMN commands.verb IS 'pause, resume, throttle or stop.';
COMMENT ON COLUMN commands.rate IS 'For throttle: rows per second; NULL for no limit.';
COMMENT ON COLUMN commands."by" IS 'Who gave the command.';
COMMENT ON COLUMN commands.at_ms IS 'When it was given, ms.';
COMMENT ON COLUMN commands.taken_epoch IS
    'The barrier that took it; the last committed epoch if no runner was live; NULL while it waits.';
COMMENT ON COLUMN commands.taken_ms IS 'When it was taken, ms; NULL while it waits.';

CREATE TABLE ledger (
    job             VARCHAR NOT NULL,
    epoch           BIGINT  NOT NULL,
    prev_ms         BIGINT  NOT NULL,
    phase           VARCHAR NOT NULL,
    committed_ms    BIGINT  NOT NULL,
    snapshot_rows   BIGINT  NOT NULL,
    changes_read    BIGINT  NOT NULL,
    rows_written    BIGINT  NOT NULL,
    upstream_epochs BIGINT  NOT NULL,
    stage_ms        BIGINT  NOT NULL,
    commit_ms       BIGINT  NOT NULL,
    lag_ms          BIGINT,
    pending_epochs  BIGINT  NOT NULL,
    mutations       VARCHAR NOT NULL
);
COMMENT ON TABLE ledger IS 'One row per committed epoch or barrier with a command, the newest 10,000 per job.';
COMMENT ON COLUMN ledger.job IS 'Name of the job.';
COMMENT ON COLUMN ledger.epoch IS 'Number of the epoch: the barrier''s physical time, ms.';
COMMENT ON COLUMN ledger.prev_ms IS 'The preceding barrier, ms: the epoch is the span between the two.';
COMMENT ON COLUMN ledger.phase IS 'Phase in which the epoch was read.';
COMMENT ON COLUMN ledger.committed_ms IS 'When the sink committed it, ms.';
COMMENT ON COLUMN ledger.snapshot_rows IS 'Snapshot rows read, before the transform.';
COMMENT ON COLUMN ledger.changes_read IS 'Changes read, before they are netted by key.';
COMMENT ON COLUMN ledger.rows_written IS 'Rows inserted, changed or deleted in the sink.';
COMMENT ON COLUMN ledger.upstream_epochs IS 'Upstream epochs folded into it.';
COMMENT ON COLUMN ledger.stage_ms IS 'How long staging took, ms.';
COMMENT ON COLUMN ledger.commit_ms IS 'How long the sink''s commit took, ms.';
COMMENT ON COLUMN ledger.lag_ms IS 'How far the sink was behind the upstream after it, ms; NULL before the log is followed.';
COMMENT ON COLUMN ledger.pending_epochs IS 'Upstream epochs pending after it.';
COMMENT ON COLUMN ledger.mutations IS 'Commands that its barrier took, separated by commas; empty for none.';

CREATE TABLE ledger_hours (
    job                VARCHAR NOT NULL,
    hour_ms            BIGINT  NOT NULL,
    epochs             BIGINT  NOT NULL,
    snapshot_rows      BIGINT  NOT NULL,
    changes_read       BIGINT  NOT NULL,
    rows_written       BIGINT  NOT NULL,
    upstream_epochs    BIGINT  NOT NULL,
    stage_ms           BIGINT  NOT NULL,
    commit_ms          BIGINT  NOT NULL,
    max_lag_ms         BIGINT,
    max_pending_epochs BIGINT  NOT NULL,
    commands           BIGINT  NOT NULL
);
COMMENT ON TABLE ledger_hours IS 'Epochs older than the newest 10,000 of a job, summed by hour.';
COMMENT ON COLUMN ledger_hours.job IS 'Name of the job.';
COMMENT ON COLUMN ledger_hours.hour_ms IS 'Start of the hour that committed_ms is in, ms.';
COMMENT ON COLUMN ledger_hours.epochs IS 'Number of epochs.';
COMMENT ON COLUMN ledger_hours.snapshot_rows IS 'Sum of the snapshot rows read.';
COMMENT ON COLUMN ledger_hours.changes_read IS 'Sum of the changes read.';
COMMENT ON COLUMN ledger_hours.rows_written IS 'Sum of the rows written.';
COMMENT ON COLUMN ledger_hours.upstream_epochs IS 'Sum of the upstream epochs.';
COMMENT ON COLUMN ledger_hours.stage_ms IS 'Sum of the staging times, ms.';
COMMENT ON COLUMN ledger_hours.commit_ms IS 'Sum of the commit times, ms.';
COMMENT ON COLUMN ledger_hours.max_lag_ms IS 'Largest lag, ms; NULL if none was known.';
COMMENT ON COLUMN ledger_hours.max_pending_epochs IS 'Largest number of pending upstream epochs.';
COMMENT ON COLUMN ledger_hours.commands IS 'Number of epochs that took a command.';
