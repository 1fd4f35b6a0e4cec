-- One text for both databases: TEXT, BIGINT, BOOLEAN. Times are Unix
-- milliseconds in UTC, 0 where there is none yet. Ids and times are made by the
-- server, never here. Open sets have no CHECK: SQLite cannot alter one; the
-- tables in package api hold them.

CREATE TABLE nodes (
  id                     TEXT PRIMARY KEY,
  name                   TEXT NOT NULL,
  status                 TEXT NOT NULL,
  labels                 TEXT NOT NULL,
  machine_id             TEXT NOT NULL DEFAULT '',
  machine_lock           TEXT NOT NULL DEFAULT '',
  hostname               TEXT NOT NULL DEFAULT '',
  os                     TEXT NOT NULL DEFAULT '',
  arch                   TEXT NOT NULL DEFAULT '',
  agent_version          TEXT NOT NULL DEFAULT '',
  tier                   BIGINT,
  cpu_cores              BIGINT NOT NULL DEFAULT 0,
  mem_bytes              BIGINT NOT NULL DEFAULT 0,
  disk_bytes             BIGINT NOT NULL DEFAULT 0,
  online                 BOOLEAN NOT NULL DEFAULT FALSE,
  seen_at                BIGINT NOT NULL DEFAULT 0,
  created_at             BIGINT NOT NULL,
  joined_at              BIGINT NOT NULL DEFAULT 0,
  revoked_at             BIGINT NOT NULL DEFAULT 0,
  certificate_expires_at BIGINT NOT NULL DEFAULT 0,
  journal_epoch          TEXT NOT NULL DEFAULT '',
  command_seq            BIGINT NOT NULL DEFAULT 0,
  command_count          BIGINT NOT NULL DEFAULT 0
);

-- A node that is out gives its name back.
CREATE UNIQUE INDEX nodes_name ON nodes (name) WHERE status NOT IN ('revoked', 'left');

-- One active node for each machine, unless its token allows more: then the
-- lock is empty, as it is where a machine has no id.
CREATE UNIQUE INDEX nodes_machine ON nodes (machine_lock) WHERE machine_lock <> '' AND status = 'active';

CREATE TABLE join_tokens (
  id            TEXT PRIMARY KEY,
  hash          TEXT NOT NULL UNIQUE,
  node_id       TEXT NOT NULL,
  replaces      TEXT NOT NULL DEFAULT '',
  machine_reuse BOOLEAN NOT NULL DEFAULT FALSE,
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  used_at       BIGINT NOT NULL DEFAULT 0,
  used_key      TEXT NOT NULL DEFAULT '',
  revoked_at    BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX join_tokens_node ON join_tokens (node_id);

CREATE TABLE operator_tokens (
  id         TEXT PRIMARY KEY,
  hash       TEXT NOT NULL UNIQUE,
  created_at BIGINT NOT NULL
);

CREATE TABLE commands (
  id           TEXT PRIMARY KEY,
  node_id      TEXT NOT NULL REFERENCES nodes (id),
  seq          BIGINT NOT NULL,
  kind         TEXT NOT NULL,
  payload      TEXT NOT NULL,
  app_id       TEXT NOT NULL DEFAULT '',
  state        TEXT NOT NULL,
  reason       TEXT NOT NULL DEFAULT '',
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL,
  start_by     BIGINT NOT NULL DEFAULT 0,
  delivered_at BIGINT NOT NULL DEFAULT 0,
  acked_at     BIGINT NOT NULL DEFAULT 0,
  acked_by     TEXT NOT NULL DEFAULT '',
  ended_at     BIGINT NOT NULL DEFAULT 0,
  result       TEXT NOT NULL DEFAULT '',
  late_result  TEXT NOT NULL DEFAULT '',
  UNIQUE (node_id, seq)
);

CREATE INDEX commands_open ON commands (node_id, seq) WHERE state IN ('queued', 'delivered', 'acked');

CREATE INDEX commands_expiry ON commands (expires_at) WHERE state IN ('queued', 'delivered');

CREATE INDEX commands_app ON commands (app_id);

-- needed_at is when it was last seen that something needs the file.
CREATE TABLE files (
  id         TEXT PRIMARY KEY,
  sha256     TEXT NOT NULL UNIQUE,
  size_bytes BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  needed_at  BIGINT NOT NULL
);

-- file_id is that of the archive in spec.
CREATE TABLE apps (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  spec       TEXT NOT NULL,
  file_id    TEXT NOT NULL DEFAULT '',
  placement  TEXT NOT NULL,
  revision   BIGINT NOT NULL DEFAULT 0,
  removing   BOOLEAN NOT NULL DEFAULT FALSE,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE deployments (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL,
  app        TEXT NOT NULL,
  node_id    TEXT NOT NULL REFERENCES nodes (id),
  revision   BIGINT NOT NULL,
  spec       TEXT NOT NULL,
  file_id    TEXT NOT NULL DEFAULT '',
  state      TEXT NOT NULL,
  ran        BOOLEAN NOT NULL DEFAULT FALSE,
  message    TEXT NOT NULL DEFAULT '',
  command_id TEXT NOT NULL,
  instance   TEXT NOT NULL DEFAULT '',
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE INDEX deployments_app ON deployments (app_id, node_id);

CREATE INDEX deployments_node ON deployments (node_id) WHERE state IN ('waiting', 'starting', 'running', 'stopped', 'unknown');

CREATE INDEX deployments_file ON deployments (file_id) WHERE file_id <> '';

CREATE INDEX deployments_command ON deployments (command_id);

CREATE TABLE events (
  id      TEXT PRIMARY KEY,
  at      BIGINT NOT NULL,
  kind    TEXT NOT NULL,
  node_id TEXT NOT NULL DEFAULT '',
  app_id  TEXT NOT NULL DEFAULT '',
  subject TEXT NOT NULL DEFAULT '',
  message TEXT NOT NULL DEFAULT ''
);

CREATE INDEX events_node ON events (node_id, id);

CREATE TABLE idempotency_keys (
  scope      TEXT NOT NULL,
  name       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  status     BIGINT NOT NULL DEFAULT 0,
  answer     TEXT NOT NULL DEFAULT '',
  created_at BIGINT NOT NULL,
  PRIMARY KEY (scope, name)
);
