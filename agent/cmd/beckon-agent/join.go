package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/beckon-fleet/beckon/agent"
	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func joinCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "join",
		Usage: "make a node of this machine, and run its agent",
		Description: "`beckon token create` prints the whole line. On a machine that has joined, join is run: the\n" +
			"token is not used.",
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "url", Required: true, Usage: "the control plane, `https://HOST:PORT`"},
			&urfave.StringFlag{Name: "token", Required: true, EnvVars: []string{"BECKON_JOIN_TOKEN"}, Usage: "the join `TOKEN`"},
			&urfave.StringFlag{Name: "ca-sha256", Required: true, Usage: "the fingerprint of the cluster's CA, 64 `HEX` digits"},
			&urfave.StringSliceFlag{Name: "label", Usage: "a label of the node, `KEY=VALUE`; may repeat"},
			&urfave.IntFlag{Name: "tier", Value: -1, Usage: "the most that the control plane may do here: `0` observe, 1 operate, 2 deploy, 3 manage"},
			&urfave.BoolFlag{Name: "only", Usage: "end after joining"},
			stateFlag(), dockerFlag(),
		},
		Action: join,
	}
}

func join(c *urfave.Context) error {
	labels, err := parseLabels(c.StringSlice("label"))
	if err != nil {
		return err
	}
	cfg := config(c)
	if tier := c.Int("tier"); tier >= 0 {
		if tier > int(api.TierManage) {
			return cli.Usagef("--tier must be 0 to %d", api.TierManage)
		}
		cfg.Tier = &tier
	}
	joined, err := agent.Join(c.Context, cfg, agent.JoinOptions{
		URL: c.String("url"), Token: c.String("token"), Pin: c.String("ca-sha256"), Labels: labels,
	})
	if err != nil {
		return err
	}
	told := "joined as"
	if joined.Already {
		told = "this machine has joined already, as"
	}
	fmt.Fprintf(c.App.ErrWriter, "%s node %s (%s) at %s\n", told, joined.Name, joined.NodeID, joined.Server)
	if c.Bool("only") {
		return nil
	}
	if onTerminal() {
		printUnit(c.App.ErrWriter, c.String("state"))
	}
	return run(c)
}

func parseLabels(words []string) (api.Labels, error) {
	labels := api.Labels{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, cli.Usagef("--label must be KEY=VALUE, not %q", word)
		}
		labels[key] = value
	}
	return labels, labels.Validate()
}

func onTerminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printUnit shows how to have the agent run for good: a person who joins by
// hand would have it end with the terminal.
func printUnit(w io.Writer, state string) {
	program, err := os.Executable()
	if err != nil {
		program = "/usr/local/bin/beckon-agent"
	}
	if absolute, err := filepath.Abs(state); err == nil {
		state = absolute
	}
	fmt.Fprintf(w, `
The agent now runs until you press Ctrl-C. To have it run for good, save this as
/etc/systemd/system/beckon-agent.service and run
  systemctl daemon-reload && systemctl enable --now beckon-agent

[Unit]
Description=Beckon agent
Wants=network-online.target
After=network-online.target docker.service

[Service]
ExecStart=%s run --state %s
Restart=always
RestartSec=5
RestartPreventExitStatus=77
KillMode=process

[Install]
WantedBy=multi-user.target

`, program, state)
}
