package store

import "context"

type preludeKey struct{}

type prelude struct {
	do   func(*Tx) error
	done bool // a transaction with it has been committed
}

// WithPrelude has the first Update of the returned context run do before its
// own work, in the same transaction: both stand or fall together. The context
// is one request's, whose updates follow one another.
func WithPrelude(ctx context.Context, do func(*Tx) error) context.Context {
	return context.WithValue(ctx, preludeKey{}, &prelude{do: do})
}

// preceded is do after the prelude of ctx, where there is one still to come.
func preceded(ctx context.Context, do func(*Tx) error) func(*Tx) error {
	p, ok := ctx.Value(preludeKey{}).(*prelude)
	if !ok || p.done {
		return do
	}
	return func(tx *Tx) error {
		if err := p.do(tx); err != nil {
			return err
		}
		tx.After(func() { p.done = true })
		return do(tx)
	}
}
