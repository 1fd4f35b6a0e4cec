package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// placeholder is the name of a pending node that nobody has named.
func placeholder(id string) string { return "pending-" + tailOf(id) }

// tailOf is the random end of an id, which keeps two names apart.
func tailOf(id string) string { return id[len(id)-8:] }

// nameAfter makes a name of a hostname, "" when nothing of it can be one.
func nameAfter(hostname string) string {
	short, _, _ := strings.Cut(strings.ToLower(hostname), ".")
	plain := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLower(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, short)
	return strings.Trim(plain[:min(len(plain), 40)], "-")
}

// CreateToken is api.CreateJoinToken. The node exists from then, pending.
func (s *Service) CreateToken(ctx context.Context, req api.CreateJoinTokenRequest) (res api.CreatedJoinToken, err error) {
	token, hash := auth.NewToken(auth.JoinPrefix)
	life := api.TokenLife
	if req.ExpiresInS > 0 {
		life = time.Duration(req.ExpiresInS) * time.Second
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		id := tx.NewID("node")
		name := req.Name
		if name == "" {
			name = placeholder(id)
		}
		replaces, err := replaced(tx, req.Replaces)
		if err != nil {
			return err
		}
		if err := insertPending(tx, id, name, req.Labels); err != nil {
			return err
		}
		t := api.JoinToken{
			ID: tx.NewID("jtk"), NodeID: id, Node: name, State: api.TokenStateUnused,
			CreatedAt: tx.Now, ExpiresAt: tx.Now.Add(life),
		}
		_, err = tx.Exec(`
			INSERT INTO join_tokens (id, hash, node_id, replaces, machine_reuse, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			t.ID, hash, id, replaces, req.AllowMachineReuse, t.CreatedAt.UnixMilli(), t.ExpiresAt.UnixMilli())
		if err != nil {
			return fmt.Errorf("store join token: %w", err)
		}
		res = s.created(t, token)
		return event.Record(tx, api.Event{Kind: "join_token_created", NodeID: id, Subject: t.ID})
	})
	if s.Store.Conflict(err) && req.Name != "" {
		err = api.Errorf(api.NameTaken, "a node is named %q already; choose another name, or revoke that node first", req.Name).Because(err)
	}
	return res, err
}

// CreateTokenAgain answers the repeat of a CreateToken: the answer may have been
// lost with its secret, so the token is replaced, under the same id, unless it
// was used.
func (s *Service) CreateTokenAgain(ctx context.Context, first api.CreatedJoinToken) (res api.CreatedJoinToken, err error) {
	token, hash := auth.NewToken(auth.JoinPrefix)
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		won, err := tx.Changed(`UPDATE join_tokens SET hash = $2 WHERE id = $1 AND used_at = 0 AND revoked_at = 0 AND expires_at > $3`,
			first.ID, hash, tx.Now.UnixMilli())
		if err != nil {
			return fmt.Errorf("replace join token: %w", err)
		}
		if !won {
			return api.Errorf(api.TokenUsed, "the token that this key made was used or revoked, or has expired; it is not shown again")
		}
		res = s.created(first.JoinToken, token)
		return event.Record(tx, api.Event{Kind: "join_token_replaced", NodeID: first.NodeID, Subject: first.ID})
	})
	return res, err
}

func (s *Service) created(t api.JoinToken, token string) api.CreatedJoinToken {
	pin := string(s.Authority.Pin())
	return api.CreatedJoinToken{
		JoinToken: t, Token: token, CASHA256: pin, URL: s.AgentURL,
		Command: fmt.Sprintf("beckon-agent join --url %s --token %s --ca-sha256 %s", s.AgentURL, token, pin),
	}
}

func replaced(tx *store.Tx, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	row, err := Find(tx, ref)
	if err == nil && row.Status != api.StatusActive {
		err = api.Errorf(api.NodeInactive, "node %s is %s; only an active node can be replaced", row.Name, row.Status)
	}
	return row.ID, err
}

func insertPending(tx *store.Tx, id, name string, labels api.Labels) error {
	if labels == nil {
		labels = api.Labels{}
	}
	text, err := json.Marshal(labels)
	if err != nil {
		return fmt.Errorf("encode labels: %w", err)
	}
	_, err = tx.Exec(`INSERT INTO nodes (id, name, status, labels, created_at) VALUES ($1, $2, 'pending', $3, $4)`,
		id, name, string(text), tx.Now.UnixMilli())
	if err != nil {
		return fmt.Errorf("store pending node: %w", err)
	}
	return nil
}

const selectTokens = `
	SELECT t.id, t.node_id, COALESCE(n.name, ''), t.created_at, t.expires_at, t.used_at, t.revoked_at
	FROM join_tokens t LEFT JOIN nodes n ON n.id = t.node_id `

// ListTokens is api.ListJoinTokens.
func (s *Service) ListTokens(ctx context.Context, req api.ListJoinTokensRequest) (page api.Page[api.JoinToken], err error) {
	err = s.Store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Query(selectTokens+`WHERE ($1 = '' OR t.id < $1) ORDER BY t.id DESC LIMIT $2`, req.After, req.PageLimit()+1)
		if err != nil {
			return fmt.Errorf("list join tokens: %w", err)
		}
		page, err = store.Page(rows, req.PageLimit(), scanToken(tx.Now), func(t api.JoinToken) string { return t.ID })
		return err
	})
	return page, err
}

func scanToken(now time.Time) func(store.Scanner) (api.JoinToken, error) {
	return func(row store.Scanner) (t api.JoinToken, err error) {
		var created, expires, used, revoked int64
		if err := row.Scan(&t.ID, &t.NodeID, &t.Node, &created, &expires, &used, &revoked); err != nil {
			return t, err
		}
		t.CreatedAt, t.ExpiresAt, t.UsedAt = *store.Time(created), *store.Time(expires), store.Time(used)
		switch {
		case used != 0:
			t.State = api.TokenStateUsed
		case revoked != 0:
			t.State = api.TokenStateRevoked
		case !now.Before(t.ExpiresAt):
			t.State = api.TokenStateExpired
		default:
			t.State = api.TokenStateUnused
		}
		return t, nil
	}
}

// RevokeToken is api.RevokeJoinToken.
func (s *Service) RevokeToken(ctx context.Context, req api.RevokeJoinTokenRequest) (t api.JoinToken, err error) {
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		won, err := tx.Changed(`UPDATE join_tokens SET revoked_at = $2 WHERE id = $1 AND used_at = 0 AND revoked_at = 0`, req.ID, tx.Now.UnixMilli())
		if err != nil {
			return fmt.Errorf("revoke join token: %w", err)
		}
		t, err = scanToken(tx.Now)(tx.QueryRow(selectTokens+`WHERE t.id = $1`, req.ID))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return api.Errorf(api.NotFound, "there is no join token %q", req.ID)
		case err != nil:
			return fmt.Errorf("read join token: %w", err)
		case t.State == api.TokenStateUsed:
			return api.Errorf(api.TokenUsed, "this token was used; revoke node %s instead", t.Node)
		case !won:
			return nil // it was revoked before
		}
		return dropPending(tx)
	})
	return t, err
}

// spentTokens selects the nodes whose token can no longer be used; $2 is now.
const spentTokens = `SELECT node_id FROM join_tokens WHERE used_at = 0 AND (revoked_at <> 0 OR expires_at <= $2)`

// dropPending removes those of them that are pending still.
func dropPending(tx *store.Tx) error {
	_, err := tx.Exec(`DELETE FROM nodes WHERE status = $1 AND id IN (`+spentTokens+`)`, api.StatusPending, tx.Now.UnixMilli())
	if err != nil {
		return fmt.Errorf("drop pending nodes: %w", err)
	}
	return nil
}
