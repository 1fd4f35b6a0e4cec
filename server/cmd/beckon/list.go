package main

import (
	"context"
	"slices"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

// list is a verb that shows many of one thing.
type list[Req, T any] struct {
	usage    string
	flags    []urfave.Flag
	endpoint api.Endpoint[Req, api.Page[T]]
	request  func(op *operator, at api.Cursor) Req
	head     string // of the table, the columns apart by " | "
	row      func(op *operator, item T) []string
	none     string // what to say when there are none
}

// command is the verb.
func (l list[Req, T]) command() *urfave.Command {
	return &urfave.Command{
		Name:  "list",
		Usage: l.usage,
		Flags: append(l.flags,
			&urfave.IntFlag{Name: "limit", Value: 100, Usage: "show at most `N`"},
			&urfave.StringFlag{Name: "after", Usage: "go on after `ID`, the next of an earlier answer"},
		),
		Action: verb(l.run),
	}
}

func (l list[Req, T]) run(ctx context.Context, op *operator) error {
	limit, err := op.limit()
	if err != nil {
		return err
	}
	page, err := l.collect(ctx, op, op.String("after"), limit)
	if err != nil {
		return err
	}
	return l.print(op, page)
}

// newest shows the end of a list whose newest items can be asked for first: in
// the order of time, the newest at the bottom where the eye is.
func (l list[Req, T]) newest(ctx context.Context, op *operator) error {
	limit, err := op.limit()
	if err != nil {
		return err
	}
	page, err := l.collect(ctx, op, "", limit)
	if err != nil {
		return err
	}
	slices.Reverse(page.Items)
	page.Next = ""
	return l.print(op, page)
}

func (l list[Req, T]) collect(ctx context.Context, op *operator, after string, limit int) (api.Page[document[T]], error) {
	return collect(ctx, op, l.endpoint, func(at api.Cursor) Req { return l.request(op, at) }, after, limit)
}

func (l list[Req, T]) print(op *operator, page api.Page[document[T]]) error {
	return op.print(page, func() error { return l.table(op, page) })
}

// emptiness says that there are none, or none of those asked for.
func (l list[Req, T]) emptiness(op *operator) string {
	for _, f := range l.flags {
		if op.IsSet(f.Names()[0]) {
			return "nothing matches"
		}
	}
	return l.none
}

func (op *operator) limit() (int, error) {
	n := op.Int("limit")
	if n < 1 {
		return 0, cli.Usagef("--limit: %d is not a number above 0", n)
	}
	return n, nil
}

// collect goes through the pages of a list, from after on, until it has limit
// items.
func collect[Req, T any](ctx context.Context, op *operator, e api.Endpoint[Req, api.Page[T]], request func(api.Cursor) Req,
	after string, limit int,
) (api.Page[document[T]], error) {
	kept := api.Endpoint[Req, api.Page[document[T]]](e)
	all := api.Page[document[T]]{Items: []document[T]{}, Next: after}
	for len(all.Items) < limit {
		at := api.Cursor{Limit: min(api.MaxPage, limit-len(all.Items)), After: all.Next}
		page, err := call(ctx, op, kept, request(at))
		if err != nil {
			return all, err
		}
		all.Items = append(all.Items, page.Value.Items...)
		if all.Next = page.Value.Next; all.Next == "" || all.Next == at.After {
			all.Next = "" // the last one; one that names itself would never end
			break
		}
	}
	return all, nil
}

func (l list[Req, T]) table(op *operator, page api.Page[document[T]]) error {
	if len(page.Items) == 0 {
		op.tell("%s", l.emptiness(op))
		return nil
	}
	var rows [][]string
	for _, item := range page.Items {
		rows = append(rows, l.row(op, item.Value))
	}
	if err := op.table(l.head, rows); err != nil {
		return err
	}
	if page.Next != "" {
		op.tell("there are more: --limit N shows more of them, --after %s goes on", page.Next)
	}
	return nil
}
