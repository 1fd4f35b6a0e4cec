// Command beckon-agent is the program on a node.
package main

import (
	"log/slog"
	"os"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/internal/cli"
	"github.com/beckon-fleet/beckon/internal/version"
	urfave "github.com/urfave/cli/v2"
)

// defaultState is where the state folder is unless said.
const defaultState = "/var/lib/beckon-agent"

func main() { os.Exit(cli.Run(program(), os.Args, os.Stdout, os.Stderr)) }

func program() *urfave.App {
	return &urfave.App{
		Name:    "beckon-agent",
		Usage:   "the agent of a Beckon node",
		Version: version.String(),
		Description: "The agent calls out to its control plane; nothing listens on the node. It keeps who it is in\n" +
			"its state folder, which must survive restarts.",
		Flags: []urfave.Flag{cli.OutputFlag()},
		Commands: []*urfave.Command{
			joinCommand(),
			runCommand(),
			statusCommand(),
			leaveCommand(),
			superviseCommand(),
		},
	}
}

func stateFlag() urfave.Flag {
	return &urfave.StringFlag{
		Name: "state", Value: defaultState, EnvVars: []string{"BECKON_AGENT_STATE"}, Usage: "the state folder, `DIR`",
	}
}

func dockerFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "docker", Usage: "the engine's socket, as `unix:///PATH` (DOCKER_HOST, else the usual one)"}
}

func config(c *urfave.Context) agent.Config {
	return agent.Config{
		State: c.String("state"), Docker: c.String("docker"), Version: version.String(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}
