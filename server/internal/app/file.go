package app

import (
	"encoding/json"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/file"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// resolve fills in what the file holds that an archive names.
func resolve(tx *store.Tx, s api.AppSpec) (api.AppSpec, error) {
	if s.Archive == nil {
		return s, nil
	}
	f, err := file.Need(tx, s.Archive.FileID)
	if err != nil {
		return s, err
	}
	said := *s.Archive
	if said.SHA256 != "" && said.SHA256 != f.SHA256 || said.SizeBytes != 0 && said.SizeBytes != f.SizeBytes {
		return s, api.Errorf(api.Invalid, "archive: file %s has sha256 %s and %d bytes; leave both out, they are filled in", f.ID, f.SHA256, f.SizeBytes)
	}
	s.Archive = &api.Archive{FileID: f.ID, SHA256: f.SHA256, SizeBytes: f.SizeBytes}
	return s, nil
}

// fileOf is the id of the file that a spec names, or "".
func fileOf(s api.AppSpec) string {
	if s.Archive == nil {
		return ""
	}
	return s.Archive.FileID
}

// Users names the apps that need a file: what they are now, what may run
// somewhere, and what a rollback may want back.
func Users(tx *store.Tx, id string) ([]string, error) {
	rows, err := tx.Query(`
		SELECT name FROM apps WHERE file_id = $1
		UNION
		SELECT d.app FROM deployments d LEFT JOIN apps a ON a.id = d.app_id
		WHERE d.file_id = $1 AND (`+mayRun+` OR d.revision > a.revision - $2)
		ORDER BY 1`, id, api.KeptRevisions)
	if err != nil {
		return nil, fmt.Errorf("look for users of file: %w", err)
	}
	return store.Collect(rows, store.ScanText)
}

// Serves reports whether a node is to run, or may run, something of a file.
func Serves(tx *store.Tx, node, id string) (bool, error) {
	n := 0
	err := tx.QueryRow(`SELECT COUNT(*) FROM deployments d WHERE d.node_id = $1 AND d.file_id = $2 AND `+mayRun, node, id).Scan(&n)
	if err != nil || n > 0 {
		return n > 0, err
	}
	return sentByHand(tx, node, id)
}

// sentByHand looks for an open deploy that no deployment of ours stands for.
func sentByHand(tx *store.Tx, node, id string) (bool, error) {
	rows, err := tx.Query(`
		SELECT payload FROM commands WHERE node_id = $1 AND state IN ('queued', 'delivered', 'acked') AND kind = $2`, node, api.Deploy.Name())
	if err != nil {
		return false, fmt.Errorf("look for open deploys: %w", err)
	}
	payloads, err := store.Collect(rows, store.ScanText)
	if err != nil {
		return false, err
	}
	for _, text := range payloads {
		var p api.DeployPayload
		if json.Unmarshal([]byte(text), &p) == nil && fileOf(p.AppSpec) == id {
			return true, nil
		}
	}
	return false, nil
}
