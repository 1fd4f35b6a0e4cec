// Package schema embeds what outlives a binary.
package schema

import "embed"

// Files holds the migrations, sql/NNNN_*.sql, one text for both databases, and
// the schema that each database must have after them: sql.golden for SQLite,
// sql.postgres.golden for PostgreSQL. A migration that was released never
// changes; the golden files are written by
//
//	go test ./server/internal/store -run Golden -update
//
//go:embed sql/*.sql sql.golden sql.postgres.golden
var Files embed.FS
