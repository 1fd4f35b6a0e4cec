package main

import (
	"log/slog"
	"os"

	"github.com/beckon-fleet/beckon/agent/internal/process"
	urfave "github.com/urfave/cli/v2"
)

// superviseCommand is how the agent calls itself to look after a program that
// must outlive the agent. People have no use for it.
func superviseCommand() *urfave.Command {
	return &urfave.Command{
		Name:      "supervise",
		Usage:     "look after one instance of an app; the agent calls this",
		ArgsUsage: "DIR",
		Hidden:    true,
		Action: func(c *urfave.Context) error {
			return process.Supervise(c.Args().First(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
		},
	}
}
