package main

import (
	"github.com/beckon-fleet/beckon/agent"
	urfave "github.com/urfave/cli/v2"
)

func runCommand() *urfave.Command {
	return &urfave.Command{
		Name:        "run",
		Usage:       "run the agent of a machine that has joined",
		Description: "It runs until it is told to stop. Exit code 77 says that the node was revoked: join again\nwith a new token.",
		Flags:       []urfave.Flag{stateFlag(), dockerFlag()},
		Action:      run,
	}
}

func run(c *urfave.Context) error {
	cfg := config(c)
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	cfg.Log.Info("agent runs", "node", a.NodeID(), "version", cfg.Version, "state", cfg.State)
	err = a.Run(c.Context)
	cfg.Log.Info("agent stopped")
	return err
}
