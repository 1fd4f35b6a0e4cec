package main

import (
	"context"
	"fmt"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func statusCommand() *urfave.Command {
	return &urfave.Command{Name: "status", Usage: "say what the server is, and how its fleet is", Action: verb(showStatus)}
}

func showStatus(ctx context.Context, op *operator) error {
	res, err := call(ctx, op, api.GetStatus, api.StatusRequest{})
	if err != nil {
		return err
	}
	s := res.Value
	return op.print(res, func() error {
		return op.fields(
			field{"server", op.client.Base},
			field{"version", s.Version},
			field{"protocol", protocols(s)},
			field{"started", op.moment(&s.StartedAt)},
			field{"agents call", s.AgentURL},
			field{"pin", s.CASHA256},
			field{"active nodes", counts(s.Nodes)},
			field{"deployments", counts(s.Deployments)},
			field{"open commands", counts(s.Commands)},
		)
	})
}

func protocols(s api.Status) string {
	if s.ProtocolMin == s.ProtocolMax {
		return number(s.ProtocolMax)
	}
	return fmt.Sprintf("%d to %d", s.ProtocolMin, s.ProtocolMax)
}
