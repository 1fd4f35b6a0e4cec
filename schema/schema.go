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
// It holds the OpenAPI documents of both surfaces too, openapi/agent.yaml and
// openapi/operator.yaml, which `make generate` writes from package api.
//
//go:embed sql/*.sql sql.golden sql.postgres.golden openapi/*.yaml
var Files embed.FS
