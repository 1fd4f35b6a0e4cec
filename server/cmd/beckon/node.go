package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func nodeCommand() *urfave.Command {
	nodes := list[api.ListNodesRequest, api.Node]{
		usage:    "list the nodes by name",
		flags:    []urfave.Flag{&urfave.StringFlag{Name: "status", Usage: "only those that are `STATUS`: pending, active, left or revoked"}},
		endpoint: api.ListNodes,
		request: func(op *operator, at api.Cursor) api.ListNodesRequest {
			return api.ListNodesRequest{Cursor: at, Status: api.NodeStatus(op.String("status"))}
		},
		head: "NODE | STATUS | PRESENCE | SEEN | AGENT | PLATFORM | LABELS",
		row: func(op *operator, n api.Node) []string {
			return []string{
				cmp.Or(n.Name, n.ID), string(n.Status), presence(n), op.ago(n.LastSeenAt),
				n.AgentVersion, platform(n), pairs(n.Labels, ", "),
			}
		},
		none: "there are no nodes; connect a machine with: beckon token create --name NODE",
	}
	return &urfave.Command{
		Name:  "node",
		Usage: "nodes: machines with an agent",
		Subcommands: []*urfave.Command{
			nodes.command(),
			{Name: "show", Usage: "show all that is known of a node", ArgsUsage: "NODE", Action: verb(showNode)},
			{
				Name:        "revoke",
				Usage:       "shut a node out, at once and for good",
				Description: "It asks nothing. The machine needs a new join token to come back, as another node.",
				ArgsUsage:   "NODE",
				Action:      verb(revokeNode),
			},
		},
	}
}

func showNode(ctx context.Context, op *operator) error {
	name, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.GetNode, api.NodeRequest{Node: name})
	if err != nil {
		return err
	}
	return op.print(res, func() error { return op.fields(nodeFields(op, res.Value)...) })
}

func revokeNode(ctx context.Context, op *operator) error {
	name, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.RevokeNode, api.RevokeNodeRequest{Write: write(0), Node: name})
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		return op.say("node %s is revoked: its calls are refused, commands it had not acked are canceled, acked ones are lost",
			named(res.Value.Name, res.Value.ID))
	})
}

func nodeFields(op *operator, n api.Node) []field {
	all := []field{
		{"name", n.Name},
		{"id", n.ID},
		{"status", string(n.Status)},
		{"presence", presence(n)},
		{"last seen", op.moment(n.LastSeenAt)},
		{"labels", pairs(n.Labels, ", ")},
		{"hostname", n.Hostname},
		{"platform", platform(n)},
		{"cpu cores", number(n.CPUCores)},
		{"memory", size(n.MemBytes)},
		{"disk", size(n.DiskBytes)},
		{"agent", n.AgentVersion},
		{"protocol", number(n.Protocol)},
		{"tier", tier(n.Tier)},
		{"wake", wake(n)},
		{"runtimes", runtimes(n)},
		{"certificate until", op.moment(n.CertificateExpiresAt)},
		{"created", op.moment(&n.CreatedAt)},
		{"joined", op.moment(n.JoinedAt)},
	}
	if n.RevokedAt != nil {
		all = append(all, field{"revoked", op.moment(n.RevokedAt)})
	}
	return all
}

// presence is of active nodes; the others are not expected.
func presence(n api.Node) string {
	if n.Status != api.StatusActive {
		return nothing
	}
	return string(n.Presence)
}

func platform(n api.Node) string {
	if n.OS == "" || n.Arch == "" {
		return n.OS + n.Arch
	}
	return n.OS + "/" + n.Arch
}

func tier(t *int) string {
	if t == nil {
		return nothing
	}
	switch api.Tier(*t) {
	case api.TierObserve:
		return "0, observe"
	case api.TierOperate:
		return "1, operate"
	case api.TierDeploy:
		return "2, deploy"
	case api.TierManage:
		return "3, manage"
	}
	return fmt.Sprint(*t)
}

func wake(n api.Node) string {
	if n.Wake == nil {
		return nothing
	}
	return strings.ReplaceAll(n.Wake.Rung, "_", " ")
}

func runtimes(n api.Node) string {
	if n.Hello == nil {
		return nothing
	}
	return pairs(n.Hello.Runtimes, ", ")
}
