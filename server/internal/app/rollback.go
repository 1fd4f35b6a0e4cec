package app

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/file"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Rollback is api.RollbackApp: a deploy of what an earlier revision was.
func (s *Service) Rollback(ctx context.Context, req api.RollbackAppRequest) (api.DeployAppResponse, error) {
	back := func(tx *store.Tx, ref string) (api.App, error) {
		a, err := find(tx, ref)
		if err != nil {
			return a, err
		}
		err = goBack(tx, &a, req.Revision)
		return a, err
	}
	return s.rollOut(ctx, api.ChangeAppRequest{Write: req.Write, App: req.App}, back)
}

// goBack makes a what it was in a revision.
func goBack(tx *store.Tx, a *api.App, revision int64) error {
	revision, spec, err := ranAs(tx, *a, revision)
	if err != nil {
		return err
	}
	if spec.Archive != nil {
		_, err := file.Need(tx, spec.Archive.FileID)
		if errors.Is(err, api.NotFound) {
			return api.Errorf(api.FileMissing, "revision %d of %s ran the file %s, which was removed since; upload it again and put the app anew",
				revision, a.Name, spec.Archive.FileID)
		}
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	a.Spec = spec
	_, err = tx.Exec(`UPDATE apps SET spec = $2, file_id = $3, updated_at = $4 WHERE id = $1`, a.ID, string(text), fileOf(spec), tx.Now.UnixMilli())
	if err != nil {
		return fmt.Errorf("store app: %w", err)
	}
	return event.Record(tx, api.Event{Kind: "app_rolled_back", AppID: a.ID, Message: fmt.Sprintf("%s is again what it was in revision %d", a.Name, revision)})
}

// ranAs finds a revision that has run: the one asked for, or the newest before
// that of the app.
func ranAs(tx *store.Tx, a api.App, asked int64) (revision int64, spec api.AppSpec, err error) {
	var text string
	err = tx.QueryRow(`
		SELECT revision, spec FROM deployments
		WHERE app_id = $1 AND ran AND (revision = $2 OR $2 = 0 AND revision < $3) ORDER BY revision DESC LIMIT 1`, a.ID, asked, a.Revision).
		Scan(&revision, &text)
	switch {
	case errors.Is(err, sql.ErrNoRows) && asked > 0:
		return 0, spec, api.Errorf(api.NoEarlierRevision, "revision %d of %s has never run; `beckon app history %[2]s` shows those that have", asked, a.Name)
	case errors.Is(err, sql.ErrNoRows):
		return 0, spec, api.Errorf(api.NoEarlierRevision, "no revision of %s before %d has ever run", a.Name, a.Revision)
	case err != nil:
		return 0, spec, fmt.Errorf("find revision: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return 0, spec, fmt.Errorf("read spec: %w", err)
	}
	return revision, spec, nil
}
