package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/event"
	"github.com/beckon-fleet/beckon/server/internal/store"
)

// The prefixes make a leaked token easy to find and to name.
const (
	OperatorPrefix = "bkn_op_"
	JoinPrefix     = "bkn_join_"
)

// NewToken makes a token of 32 random bytes, and the hash that is all that is
// kept of it.
func NewToken(prefix string) (token, hash string) {
	token = prefix + strings.ToLower(rand.Text()+rand.Text())
	return token, TokenHash(token)
}

// TokenHash is how a token is looked up. It is a plain hash because the token
// is as random as a key: there is nothing to guess.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Operators knows the operators' tokens.
type Operators struct{ Store *store.Store }

// Mint makes an operator token.
func (o *Operators) Mint(ctx context.Context) (token string, err error) {
	token, hash := NewToken(OperatorPrefix)
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		id := tx.NewID("opt")
		_, err := tx.Exec(`INSERT INTO operator_tokens (id, hash, created_at) VALUES ($1, $2, $3)`, id, hash, tx.Now.UnixMilli())
		if err != nil {
			return fmt.Errorf("store operator token: %w", err)
		}
		return event.Record(tx, api.Event{Kind: "operator_token_created", Subject: id})
	})
	return token, err
}

// Any reports whether there is an operator token at all.
func (o *Operators) Any(ctx context.Context) (any bool, err error) {
	err = o.Store.View(ctx, func(tx *store.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) > 0 FROM operator_tokens`).Scan(&any)
	})
	return any, err
}

// Check says which operator token a request carries, by its id.
func (o *Operators) Check(r *http.Request) (id string, err error) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") { // RFC 9110 section 11.1
		return "", api.Errorf(api.OperatorTokenMissing, "send an operator token as Authorization: Bearer bkn_op_…")
	}
	err = o.Store.View(r.Context(), func(tx *store.Tx) error {
		err := tx.QueryRow(`SELECT id FROM operator_tokens WHERE hash = $1`, TokenHash(strings.TrimSpace(token))).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return api.Errorf(api.OperatorTokenInvalid, "this operator token is not known here; mint one with `beckon server token --data DIR`")
		}
		return err
	})
	return id, err
}

type operatorKey struct{}

// WithOperator returns the context of a call by the holder of a token.
func WithOperator(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, operatorKey{}, id)
}

// Operator is the id of the token that a request carries, "" for none.
func Operator(r *http.Request) string {
	id, _ := r.Context().Value(operatorKey{}).(string)
	return id
}
