package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
)

// migration is a numbered file, which never changes once a database has it.
type migration struct{ name, text, checksum string }

// migrate applies the files that the database has not seen, each in its own
// transaction together with its row. Several servers may do so at once.
func (s *Store) migrate(ctx context.Context, files fs.FS) error {
	known, err := migrations(files)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	applied, err := s.applied(ctx)
	if err != nil {
		return err
	}
	if err := compare(known, applied); err != nil {
		return err
	}
	for _, m := range known {
		if applied[m.name] != "" {
			continue
		}
		if err := s.alone(ctx, m.apply); err != nil {
			return fmt.Errorf("apply migration %s: %w", m.name, err)
		}
	}
	return nil
}

func migrations(files fs.FS) (all []migration, err error) {
	paths, err := fs.Glob(files, "sql/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		text, err := fs.ReadFile(files, p)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = append(all, migration{path.Base(p), string(text), hex.EncodeToString(sum[:])})
	}
	return all, nil
}

// applied are the checksums of what the database has, by name.
func (s *Store) applied(ctx context.Context) (checksums map[string]string, err error) {
	err = s.alone(ctx, func(tx *Tx) error {
		if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS migrations (
			name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)`); err != nil {
			return err
		}
		rows, err := tx.Query(`SELECT name, checksum FROM migrations`)
		if err != nil {
			return err
		}
		defer rows.Close()
		checksums = map[string]string{}
		for rows.Next() {
			var name, checksum string
			if err := rows.Scan(&name, &checksum); err != nil {
				return err
			}
			checksums[name] = checksum
		}
		return rows.Err()
	})
	return checksums, err
}

// compare keeps a binary off a database that is not of its line.
func compare(known []migration, applied map[string]string) error {
	unknown := len(applied)
	for _, m := range known {
		checksum, ok := applied[m.name]
		if !ok {
			continue
		}
		unknown--
		if checksum != m.checksum {
			return fmt.Errorf("migration %s is not the one that made this database: run the version that made it, or a release that follows that version", m.name)
		}
	}
	if unknown > 0 {
		return fmt.Errorf("a newer version has used this database: %d of its %d migrations are unknown to this one: run the newer version, or restore a backup from before the upgrade", unknown, len(applied))
	}
	return nil
}

// apply does nothing where another server was quicker.
func (m migration) apply(tx *Tx) error {
	first, err := tx.Changed(`INSERT INTO migrations (name, checksum, applied_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		m.name, m.checksum, tx.Now.UnixMilli())
	if err != nil || !first {
		return err
	}
	_, err = tx.Exec(m.text)
	return err
}

// alone runs do in a transaction that no other server's migration runs beside.
func (s *Store) alone(ctx context.Context, do func(*Tx) error) error {
	_, err := s.run(ctx, s.write, nil, func(tx *Tx) error {
		if err := s.dialect.lock(tx); err != nil {
			return err
		}
		return do(tx)
	})
	return err
}
