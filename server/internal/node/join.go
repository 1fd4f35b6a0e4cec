package node

import (
	"context"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/pki"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// Trust is api.Trust: signed for the caller where there is one.
func (s *Service) Trust(ctx context.Context, req api.TrustRequest) (api.Envelope, error) {
	return s.trust(auth.From(ctx).Node, req.Nonce)
}

func (s *Service) trust(node, nonce string) (e api.Envelope, err error) {
	data, err := json.Marshal(s.Authority.TrustDocument(nonce))
	if err != nil {
		return e, fmt.Errorf("encode trust document: %w", err)
	}
	return s.Authority.Signer().Sign(seal.TagTrust, node, s.Clock().UnixMilli(), data), nil
}

// Join is api.Join. Token, node and certificate are one transaction: of racing
// joins one wins, and a join that is refused spends nothing.
func (s *Service) Join(ctx context.Context, req api.JoinRequest) (res api.JoinResponse, err error) {
	key, err := pki.PublicKey(req.CSR)
	if err != nil {
		return res, err
	}
	j := joining{Service: s, req: req, key: auth.KeyHash(key)}
	// A conflict is another join, of this machine or by this hostname, that was
	// faster. The next try sees it, and refuses the one and renames the other.
	for tries := 0; tries == 0 || s.Store.Conflict(err) && tries < 3; tries++ {
		err = s.Store.Update(ctx, func(tx *store.Tx) error {
			j.tx = tx
			res, err = j.join()
			return err
		})
	}
	if errors.Is(err, api.MachineEnrolled) {
		s.tellOfDuplicate(ctx, j.token.node, err)
	}
	return res, err
}

// joining is one join in one transaction.
type joining struct {
	*Service
	tx    *store.Tx
	req   api.JoinRequest
	key   string // hash of the public key
	token joinToken
}

type joinToken struct {
	id, node, replaces, usedKey  string
	reuse                        bool
	expiresAt, usedAt, revokedAt int64
}

func (j *joining) join() (res api.JoinResponse, err error) {
	repeat, err := j.spend()
	if err != nil {
		return res, err
	}
	if !repeat {
		if err := j.admit(); err != nil {
			return res, err
		}
	}
	return j.answer(repeat)
}

// spend takes the token. The repeat of a join (same token, same key, within
// ten minutes) is recognised first: its answer was lost.
func (j *joining) spend() (repeat bool, err error) {
	t := &j.token
	err = j.tx.QueryRow(`
		SELECT id, node_id, replaces, machine_reuse, expires_at, used_at, used_key, revoked_at
		FROM join_tokens WHERE hash = $1`, auth.TokenHash(j.req.Token)).
		Scan(&t.id, &t.node, &t.replaces, &t.reuse, &t.expiresAt, &t.usedAt, &t.usedKey, &t.revokedAt)
	now := j.tx.Now.UnixMilli()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, api.Errorf(api.TokenInvalid, "this join token is not known here; make one with `beckon token create`")
	case err != nil:
		return false, fmt.Errorf("find join token: %w", err)
	case t.usedAt != 0 && t.usedKey == j.key && now-t.usedAt <= api.JoinRepeat.Milliseconds():
		return true, check(j.tx, t.node)
	case t.usedAt != 0:
		return false, api.Errorf(api.TokenUsed, "this join token was used at %s; make a new one with `beckon token create`", time.UnixMilli(t.usedAt).UTC().Format(time.RFC3339))
	case t.revokedAt != 0:
		return false, api.Errorf(api.TokenInvalid, "this join token was revoked; make a new one with `beckon token create`")
	case now >= t.expiresAt:
		return false, api.Errorf(api.TokenExpired, "this join token expired at %s; make a new one with `beckon token create`", time.UnixMilli(t.expiresAt).UTC().Format(time.RFC3339))
	}
	won, err := j.tx.Changed(`UPDATE join_tokens SET used_at = $2, used_key = $3 WHERE id = $1 AND used_at = 0`, t.id, now, j.key)
	if err != nil {
		return false, fmt.Errorf("spend join token: %w", err)
	}
	if !won {
		return false, api.Errorf(api.TokenUsed, "this join token has just been used; make a new one with `beckon token create`")
	}
	return false, nil
}

// admit makes the pending node of the token an active one.
func (j *joining) admit() error {
	if j.token.replaces != "" {
		if err := j.revoke(j.tx, j.token.replaces, "node_replaced"); err != nil {
			return err
		}
	}
	if err := j.refuseDuplicate(); err != nil {
		return err
	}
	name, labels, err := j.describe()
	if err != nil {
		return err
	}
	lock := j.req.MachineID
	if j.token.reuse {
		lock = ""
	}
	admitted, err := j.tx.Changed(`
		UPDATE nodes SET status = 'active', name = $2, labels = $3, machine_id = $4, machine_lock = $5, hostname = $6,
			os = $7, arch = $8, agent_version = $9, tier = $10, joined_at = $11 WHERE id = $1`,
		j.token.node, name, labels, j.req.MachineID, lock, j.req.Hostname,
		j.req.OS, j.req.Arch, j.req.AgentVersion, j.req.Tier, j.tx.Now.UnixMilli())
	if err != nil {
		return fmt.Errorf("admit node: %w", err)
	}
	if !admitted {
		return api.Errorf(api.TokenInvalid, "the node of this join token is gone; make a new one with `beckon token create`")
	}
	return event.Record(j.tx, api.Event{Kind: "node_joined", NodeID: j.token.node, Message: name + " joined"})
}

// refuseDuplicate keeps one machine from being two nodes. Where the machine has
// no id, the node that its state folder was before stands for it.
func (j *joining) refuseDuplicate() error {
	if j.token.reuse || j.req.MachineID == "" && j.req.PriorNodeID == "" {
		return nil
	}
	var id, name string
	err := j.tx.QueryRow(`
		SELECT id, name FROM nodes WHERE status = 'active' AND (($1 <> '' AND machine_lock = $1) OR ($1 = '' AND id = $2)) LIMIT 1`,
		j.req.MachineID, j.req.PriorNodeID).Scan(&id, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the machine: %w", err)
	}
	return api.Errorf(api.MachineEnrolled, "this machine is node %s (%s) already: revoke that one (beckon node revoke %s), "+
		"or make a token with --replaces %s; two machines that were cloned need a machine-id each", name, id, name, name)
}

// describe is the name and the labels that the node gets: the token's words
// win over the machine's.
func (j *joining) describe() (name, labels string, err error) {
	var text string
	if err := j.tx.QueryRow(`SELECT name, labels FROM nodes WHERE id = $1`, j.token.node).Scan(&name, &text); err != nil {
		return "", "", fmt.Errorf("read pending node: %w", err)
	}
	var said api.Labels
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return "", "", fmt.Errorf("read labels: %w", err)
	}
	all := maps.Clone(j.req.Labels)
	if all == nil {
		all = api.Labels{}
	}
	maps.Copy(all, said)
	if err := all.Validate(); err != nil {
		return "", "", err
	}
	merged, err := json.Marshal(all)
	if err != nil {
		return "", "", fmt.Errorf("encode labels: %w", err)
	}
	if name == placeholder(j.token.node) {
		name, err = j.freeName()
	}
	return name, string(merged), err
}

// freeName is the replaced node's name, else one after the hostname, with the
// end of the node's id where that is taken.
func (j *joining) freeName() (string, error) {
	tail := tailOf(j.token.node)
	base := nameAfter(j.req.Hostname)
	if j.token.replaces != "" {
		if err := j.tx.QueryRow(`SELECT name FROM nodes WHERE id = $1`, j.token.replaces).Scan(&base); err != nil {
			return "", fmt.Errorf("read replaced node: %w", err)
		}
	}
	if base == "" {
		return "node-" + tail, nil
	}
	var taken bool
	err := j.tx.QueryRow(`SELECT COUNT(*) > 0 FROM nodes WHERE name = $1 AND status NOT IN ('revoked', 'left') AND id <> $2`, base, j.token.node).Scan(&taken)
	if taken {
		base = strings.Trim(base[:min(len(base), 31)], "-") + "-" + tail
	}
	return base, err
}

func (j *joining) answer(repeat bool) (res api.JoinResponse, err error) {
	pem, c, err := j.Authority.NodeCertificate(j.token.node, j.req.CSR)
	if err != nil {
		return res, err
	}
	if err := keepExpiry(j.tx, j.token.node, c); err != nil {
		return res, err
	}
	trust, err := j.trust(j.token.node, "")
	if err != nil {
		return res, err
	}
	res = api.JoinResponse{
		NodeID: j.token.node, Status: api.StatusActive, Certificate: pem, Trust: trust,
		ServerTime: j.tx.Now, NextS: int(j.Pace.Seconds()),
	}
	err = j.tx.QueryRow(`SELECT name FROM nodes WHERE id = $1`, j.token.node).Scan(&res.Name)
	if err == nil && repeat {
		err = event.Record(j.tx, api.Event{Kind: "node_join_repeated", NodeID: j.token.node, Message: "the answer to the join was lost and given again"})
	}
	return res, err
}

func keepExpiry(tx *store.Tx, node string, c *x509.Certificate) error {
	_, err := tx.Exec(`UPDATE nodes SET certificate_expires_at = $2 WHERE id = $1`, node, c.NotAfter.UnixMilli())
	if err != nil {
		return fmt.Errorf("keep certificate's end: %w", err)
	}
	return nil
}

// tellOfDuplicate lets operators see what the joiner was told. It is a
// transaction of its own: the join's was undone.
func (s *Service) tellOfDuplicate(ctx context.Context, pending string, cause error) {
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		return event.Record(tx, api.Event{Kind: "machine_already_enrolled", NodeID: pending, Message: api.AsError(cause).Detail})
	})
	if err != nil {
		s.Log.WarnContext(ctx, "duplicate not recorded", "node", pending, "err", err)
	}
}

// Renew is api.Renew.
func (s *Service) Renew(ctx context.Context, req api.RenewRequest) (res api.RenewResponse, err error) {
	node := auth.From(ctx).Node
	pem, c, err := s.Authority.NodeCertificate(node, req.CSR)
	if err != nil {
		return res, err
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		res = api.RenewResponse{Certificate: pem, ServerTime: tx.Now}
		if err := check(tx, node); err != nil {
			return err
		}
		return keepExpiry(tx, node, c)
	})
	return res, err
}
