package main

import (
	"fmt"

	"github.com/beckon-fleet/beckon/agent"
	urfave "github.com/urfave/cli/v2"
)

func leaveCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "leave",
		Usage: "take this machine out of its cluster",
		Description: "The control plane must answer. It refuses while apps run here, unless --force says that they\n" +
			"are given up. What runs is left running; remove apps first to have them gone.",
		Flags: []urfave.Flag{
			stateFlag(),
			&urfave.BoolFlag{Name: "force", Usage: "leave though apps run here"},
		},
		Action: func(c *urfave.Context) error {
			name, err := agent.Leave(c.Context, config(c), c.Bool("force"))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.App.Writer, "node %s has left; a new token is needed to join again\n", name)
			return err
		},
	}
}
