package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func statusCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "status",
		Usage: "show who this node is and how its agent gets on",
		Flags: []urfave.Flag{stateFlag()},
		Action: func(c *urfave.Context) error {
			status, err := agent.ReadStatus(agent.Config{State: c.String("state")})
			if err != nil {
				return err
			}
			if cli.JSON(c) {
				return json.NewEncoder(c.App.Writer).Encode(status)
			}
			return printStatus(c, status)
		},
	}
}

func printStatus(c *urfave.Context, s agent.Status) error {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(w, "%s\t%s\n", name, value)
	}
	row("node", s.Name)
	row("id", s.NodeID)
	row("server", s.Server)
	row("certificate until", s.CertificateUntil.Format(time.RFC3339))
	row("agent", s.Agent)
	if s.LastAnswerAt != nil {
		row("last answer", s.LastAnswerAt.Format(time.RFC3339))
	}
	row("woken by", s.Rung)
	row("last failure", s.LastFailure)
	return w.Flush()
}
