// Command beckon is the control plane, and the operator's way to speak to one.
package main

import (
	"os"

	"github.com/beckon-fleet/beckon/internal/cli"
	"github.com/beckon-fleet/beckon/internal/version"
	urfave "github.com/urfave/cli/v2"
)

func main() { os.Exit(cli.Run(program(), os.Args, os.Stdout, os.Stderr)) }

func program() *urfave.App {
	return &urfave.App{
		Name:    "beckon",
		Usage:   "run software on machines that nobody can reach",
		Version: version.String(),
		Description: "`beckon server` is the control plane. All other commands ask one through its API, at\n" +
			"BECKON_URL and with the operator token in BECKON_TOKEN.",
		Flags: append([]urfave.Flag{cli.OutputFlag()}, operatorFlags()...),
		Commands: []*urfave.Command{
			serverCommand(),
			statusCommand(),
			tokenCommand(),
			nodeCommand(),
			appCommand(),
			fileCommand(),
			deployCommand(),
			deploymentCommand(),
			commandCommand(),
			eventCommand(),
		},
	}
}
