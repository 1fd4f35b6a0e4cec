package main

import (
	"cmp"
	"context"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func tokenCommand() *urfave.Command {
	tokens := list[api.ListJoinTokensRequest, api.JoinToken]{
		usage:    "list the join tokens, the newest first",
		endpoint: api.ListJoinTokens,
		request: func(_ *operator, at api.Cursor) api.ListJoinTokensRequest {
			return api.ListJoinTokensRequest{Cursor: at}
		},
		head: "TOKEN | NODE | STATE | CREATED | EXPIRES | USED",
		row: func(op *operator, t api.JoinToken) []string {
			expires := op.ago(&t.ExpiresAt)
			if t.State == api.TokenStateUsed || t.State == api.TokenStateRevoked {
				expires = nothing
			}
			return []string{t.ID, cmp.Or(t.Node, t.NodeID), string(t.State), op.ago(&t.CreatedAt), expires, op.ago(t.UsedAt)}
		},
		none: "there are no join tokens; make one with: beckon token create --name NODE",
	}
	return &urfave.Command{
		Name:  "token",
		Usage: "join tokens: with each, one machine may become a node",
		Subcommands: []*urfave.Command{
			{
				Name:  "create",
				Usage: "make a join token, and print the command that uses it",
				Description: "The command to run on the machine is all that goes to stdout. The token in it works\n" +
					"once, and is never shown again.",
				Flags: []urfave.Flag{
					&urfave.StringFlag{Name: "name", Usage: "call the node `NAME`; else it is named after its host"},
					&urfave.StringSliceFlag{Name: "label", Usage: "give the node the label `K=V`; repeatable"},
					&urfave.DurationFlag{Name: "expires", Usage: "the token works for `TIME`", DefaultText: "1h"},
					&urfave.StringFlag{Name: "replaces", Usage: "the join revokes `NODE`, for a machine that was installed anew"},
					&urfave.BoolFlag{Name: "allow-machine-reuse", Usage: "join though the machine is an active node already"},
				},
				Action: verb(createToken),
			},
			tokens.command(),
			{Name: "revoke", Usage: "make an unused token useless; its pending node goes", ArgsUsage: "TOKEN-ID", Action: verb(revokeToken)},
		},
	}
}

func createToken(ctx context.Context, op *operator) error {
	labels, err := op.keyValues("label")
	if err != nil {
		return err
	}
	expires, err := op.seconds("expires")
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.CreateJoinToken, api.CreateJoinTokenRequest{
		Write:             write(0),
		Name:              op.String("name"),
		Labels:            labels,
		ExpiresInS:        expires,
		Replaces:          op.String("replaces"),
		AllowMachineReuse: op.Bool("allow-machine-reuse"),
	})
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		t := res.Value
		op.tell("Run this on the machine. It works once, and expires %s.", op.ago(&t.ExpiresAt))
		if err := op.say("%s", t.Command); err != nil {
			return err
		}
		op.tell("The node will be %s; `beckon node list` shows when it is online.", named(t.Node, t.NodeID))
		return nil
	})
}

func revokeToken(ctx context.Context, op *operator) error {
	id, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.RevokeJoinToken, api.RevokeJoinTokenRequest{Write: write(0), ID: id})
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		return op.say("token %s is revoked; nothing will join as %s with it", res.Value.ID, cmp.Or(res.Value.Node, res.Value.NodeID))
	})
}

// named is a name and the id it stands for.
func named(name, id string) string {
	if name == "" || name == id {
		return id
	}
	return name + " (" + id + ")"
}
