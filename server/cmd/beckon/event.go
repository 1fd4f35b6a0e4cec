package main

import (
	"cmp"
	"context"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func eventCommand() *urfave.Command {
	events := list[api.ListEventsRequest, api.Event]{
		usage: "list the newest events, the oldest of them first",
		flags: []urfave.Flag{
			&urfave.StringFlag{Name: "node", Usage: "only about `NODE`"},
			&urfave.StringFlag{Name: "app", Usage: "only about `APP`"},
			&urfave.StringFlag{Name: "subject", Usage: "only about the command or deployment `ID`"},
		},
		endpoint: api.ListEvents,
		request:  eventsRequest,
		head:     "TIME | EVENT | SUBJECT | MESSAGE",
		row: func(op *operator, e api.Event) []string {
			return []string{op.ago(&e.At), e.Kind, cmp.Or(e.Subject, e.NodeID, e.AppID), brief(e.Message, 100)}
		},
		none: "there are no events",
	}
	c := events.command()
	c.Description = "With --after it goes on from there, and shows the oldest first up to --limit."
	c.Action = verb(func(ctx context.Context, op *operator) error {
		if op.IsSet("after") {
			return events.run(ctx, op)
		}
		return events.newest(ctx, op)
	})
	return &urfave.Command{Name: "event", Usage: "events: what happened", Subcommands: []*urfave.Command{c}}
}

func eventsRequest(op *operator, at api.Cursor) api.ListEventsRequest {
	return api.ListEventsRequest{
		Cursor: at, Node: op.String("node"), App: op.String("app"), Subject: op.String("subject"), Newest: !op.IsSet("after"),
	}
}
