package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/beckon-fleet/beckon/internal/cli"
	"github.com/beckon-fleet/beckon/internal/version"
	"github.com/beckon-fleet/beckon/server"
	urfave "github.com/urfave/cli/v2"
)

// serverCommand is the control plane itself. It and its token command are the
// only ones that touch the data folder.
func serverCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "server",
		Usage: "run the control plane",
		Description: "The first start makes the folder, the keys, the database and one operator token, which is\n" +
			"printed once. Agents come in over TLS; operators over plain HTTP on this machine, and over\n" +
			"TLS with the cluster's certificate on any other address.",
		Flags: append(dataFlags(),
			&urfave.StringFlag{Name: "agent-listen", Value: ":8443", Usage: "where agents come in, as `ADDR:PORT`"},
			&urfave.StringFlag{Name: "operator-listen", Value: "127.0.0.1:8080", Usage: "where operators come in, as `ADDR:PORT`"},
			&urfave.StringFlag{Name: "agent-url", Usage: "the `URL` by which nodes reach the agent listener (https://<hostname>:<port> unless said)"},
			&urfave.StringSliceFlag{Name: "name", Usage: "another DNS name or IP address for the server certificate, as `NAME`; may repeat"},
			&urfave.BoolFlag{Name: "insecure-dev", Usage: "plain HTTP for operators on any address: tokens can be read on the way"},
		),
		Action:      runServer,
		Subcommands: []*urfave.Command{serverTokenCommand()},
	}
}

func dataFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "data", Required: true, Usage: "the `DIR` of all that must not be lost"},
		&urfave.StringFlag{Name: "database", EnvVars: []string{"BECKON_DATABASE"}, Usage: "a PostgreSQL `URL` (one SQLite file in the data folder unless said)"},
	}
}

func serverTokenCommand() *urfave.Command {
	return &urfave.Command{
		Name:        "token",
		Usage:       "mint another operator token, on the server's own machine",
		Description: "The way back in. The server may be running meanwhile.",
		Flags:       dataFlags(),
		Action: func(c *urfave.Context) error {
			token, err := server.MintToken(c.Context, server.Config{Data: c.String("data"), Database: c.String("database"), Log: discard()})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.App.Writer, token)
			return err
		},
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func runServer(c *urfave.Context) error {
	if text := c.String("agent-url"); text != "" && !strings.HasPrefix(text, "https://") {
		return cli.Usagef("--agent-url must begin with https://, as https://beckon.example.com:8443, not %q", text)
	}
	log := slog.New(slog.NewTextHandler(c.App.ErrWriter, nil))
	on, err := listen(c)
	if err != nil {
		return err
	}
	agentURL := c.String("agent-url")
	if agentURL == "" {
		agentURL = defaultAgentURL(on.Agents.Addr())
	}
	s, err := server.New(c.Context, server.Config{
		Data: c.String("data"), Database: c.String("database"), AgentURL: strings.TrimSuffix(agentURL, "/"),
		Names: c.StringSlice("name"), Version: version.String(), Log: log,
	})
	if err != nil {
		return err
	}
	if err := greet(c, s, on); err != nil {
		s.Close()
		return err
	}
	log.Info("serving", "version", version.String(), "agents", on.Agents.Addr().String(), "agent_url", agentURL,
		"operators", on.Operators.Addr().String(), "operators_tls", on.OperatorsTLS, "ca_sha256", string(s.Pin()))
	err = s.Run(c.Context, on)
	log.Info("stopped")
	return err
}

// listen opens both listeners before anything is made, so that a taken port
// leaves nothing behind.
func listen(c *urfave.Context) (on server.Listeners, err error) {
	if on.Agents, err = net.Listen("tcp", c.String("agent-listen")); err != nil {
		return on, cli.Failedf("listen for agents: %v; another address can be given with --agent-listen", err)
	}
	if on.Operators, err = net.Listen("tcp", c.String("operator-listen")); err != nil {
		on.Agents.Close()
		return on, cli.Failedf("listen for operators: %v; another address can be given with --operator-listen", err)
	}
	address, ok := on.Operators.Addr().(*net.TCPAddr)
	on.OperatorsTLS = !(ok && address.IP.IsLoopback()) && !c.Bool("insecure-dev")
	return on, nil
}

// defaultAgentURL is a guess that is right on one machine and in a network
// whose hosts know each other's names.
func defaultAgentURL(listening net.Addr) string {
	address, ok := listening.(*net.TCPAddr)
	if !ok {
		return "https://localhost:8443"
	}
	host, err := os.Hostname()
	switch {
	case !address.IP.IsUnspecified():
		host = address.IP.String()
	case err != nil || host == "":
		host = "localhost"
	}
	return "https://" + net.JoinHostPort(host, fmt.Sprint(address.Port))
}

// greet prints what is said once: the first operator token.
func greet(c *urfave.Context, s *server.Server, on server.Listeners) error {
	token, err := s.FirstToken(context.WithoutCancel(c.Context))
	if err != nil || token == "" {
		return err
	}
	scheme, pin := "http", ""
	if on.OperatorsTLS {
		scheme, pin = "https", fmt.Sprintf("  export BECKON_CA_SHA256=%s\n", s.Pin())
	}
	_, err = fmt.Fprintf(c.App.Writer, "operator token: %s\n\nIt is shown this once. To use it:\n\n  export BECKON_URL=%s://%s\n  export BECKON_TOKEN=%s\n%s  beckon token create --name web-1\n\n",
		token, scheme, on.Operators.Addr(), token, pin)
	return err
}
