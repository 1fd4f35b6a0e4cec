package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func commandCommand() *urfave.Command {
	commands := list[api.ListCommandsRequest, api.CommandStatus]{
		usage: "list the commands, the newest first",
		flags: []urfave.Flag{
			&urfave.StringFlag{Name: "node", Usage: "only for `NODE`"},
			&urfave.StringFlag{Name: "app", Usage: "only about `APP`"},
			&urfave.StringFlag{Name: "state", Usage: "only those that are `STATE`, as queued, acked or failed"},
		},
		endpoint: api.ListCommands,
		request: func(op *operator, at api.Cursor) api.ListCommandsRequest {
			return api.ListCommandsRequest{Cursor: at, Node: op.String("node"), App: op.String("app"), State: api.State(op.String("state"))}
		},
		head: commandHead,
		row:  commandRow,
		none: "there are no commands",
	}
	return &urfave.Command{
		Name:  "command",
		Usage: "commands: work in the queue of a node",
		Subcommands: []*urfave.Command{
			commands.command(),
			{Name: "show", Usage: "show all that is known of a command", ArgsUsage: "ID", Action: verb(showCommand)},
			{Name: "cancel", Usage: "cancel a command that its agent has not acked", ArgsUsage: "ID", Action: verb(cancelCommand)},
			{
				Name:  "send",
				Usage: "put a command of any kind into the queue of a node",
				Flags: []urfave.Flag{
					&urfave.StringFlag{Name: "node", Required: true, Usage: "for `NODE`"},
					&urfave.StringFlag{Name: "kind", Required: true, Usage: "of the kind `KIND`: " + kinds()},
					&urfave.StringFlag{Name: "payload", Required: true, Usage: "with the payload `JSON`, @FILE or @- for stdin"},
					&urfave.DurationFlag{Name: "expires", Usage: "it expires when nobody acked it within `TIME`", DefaultText: "15m"},
					&urfave.DurationFlag{Name: "wait", Usage: "wait for the outcome at most `TIME`"},
				},
				Action: verb(sendCommand),
			},
		},
	}
}

func kinds() string {
	var names []string
	for _, k := range api.Kinds {
		names = append(names, k.Name())
	}
	return strings.Join(names, ", ")
}

func showCommand(ctx context.Context, op *operator) error {
	id, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.GetCommand, api.CommandRequest{ID: id})
	if err != nil {
		return err
	}
	return op.print(res, func() error { return op.fields(commandFields(op, res.Value)...) })
}

func cancelCommand(ctx context.Context, op *operator) error {
	id, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.CancelCommand, api.CancelCommandRequest{Write: write(0), ID: id})
	if err != nil {
		return err
	}
	c := res.Value
	return op.print(res, func() error {
		return op.say("command %s (%s on %s) is %s", c.ID, c.Kind, nodeOf(c), commandState(c))
	})
}

func sendCommand(ctx context.Context, op *operator) error {
	payload, err := op.payload()
	if err != nil {
		return err
	}
	expires, err := op.seconds("expires")
	if err != nil {
		return err
	}
	wait := op.Duration("wait")
	if wait < 0 {
		return cli.Usagef("--wait: %s is below 0", wait)
	}
	p := patience{wait, time.Now().Add(wait)}
	e := api.Endpoint[api.SendCommandRequest, api.CommandStatus](api.SendCommand)
	sent, err := call(ctx, op, e, api.SendCommandRequest{
		Write: write(p.first()), Node: op.String("node"), Kind: op.String("kind"), Payload: payload, ExpiresInS: expires,
	})
	if err != nil {
		return cutOff(ctx, err, "beckon command list --node "+op.String("node"))
	}
	one := []document[api.CommandStatus]{sent}
	hint := goesOn("beckon command show " + sent.Value.ID)
	if err := op.awaitCommands(ctx, p, one); err != nil {
		return cli.WithHint(err, hint)
	}
	if err := op.print(one[0], func() error { return op.fields(commandFields(op, one[0].Value)...) }); err != nil {
		return err
	}
	return op.verdict(p, "command "+sent.Value.ID, hint, one)
}

// payload is what --payload says: the JSON itself, or where it stands.
func (op *operator) payload() (json.RawMessage, error) {
	text := op.String("payload")
	if path, ok := strings.CutPrefix(text, "@"); ok {
		data, err := op.read(path)
		if err != nil {
			return nil, err
		}
		text = string(bytes.TrimSpace(data))
	}
	if !json.Valid([]byte(text)) {
		return nil, cli.Usagef("--payload is not JSON")
	}
	return json.RawMessage(text), nil
}

// read reads a file that goes into a request, or stdin where its name is "-".
func (op *operator) read(path string) ([]byte, error) {
	from := op.App.Reader
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, cli.Usagef("%v", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, api.MaxBody+1))
	if err != nil {
		return nil, cli.Usagef("read %s: %v", path, err)
	}
	if len(data) > api.MaxBody {
		return nil, cli.Usagef("%s is longer than %s, the most that a request may have", path, size(api.MaxBody))
	}
	return data, nil
}

const commandHead = "COMMAND | NODE | KIND | STATE | CREATED | NOTE"

func commandRow(op *operator, c api.CommandStatus) []string {
	return []string{c.ID, nodeOf(c), c.Kind, commandState(c), op.ago(&c.CreatedAt), brief(why(c), 60)}
}

func commandFields(op *operator, c api.CommandStatus) []field {
	all := []field{
		{"id", c.ID},
		{"kind", c.Kind},
		{"node", named(c.Node, c.NodeID)},
		{"state", commandState(c)},
		{"reason", c.Reason},
		{"waiting on", c.WaitingOn},
		{"created", op.moment(&c.CreatedAt)},
		{"expires", op.moment(&c.ExpiresAt)},
		{"delivered", op.moment(c.DeliveredAt)},
		{"acked", op.moment(c.AckedAt)},
		{"ended", op.moment(c.EndedAt)},
		{"payload", string(c.Payload)},
	}
	if c.Result != nil {
		all = append(all, field{"result", string(c.Result.Status)}, field{"output", string(c.Result.Output)}, field{"error", c.Result.Error})
	}
	return all
}

// commandState is the state in words, with what follows from it.
func commandState(c api.CommandStatus) string {
	switch {
	case c.State == api.Lost:
		return string(c.State) + ", outcome unknown"
	case c.NeverRan && c.State.Ended():
		return string(c.State) + ", never ran"
	}
	return string(c.State)
}

// why is what there is to say beside the state.
func why(c api.CommandStatus) string {
	if !c.State.Ended() {
		return c.WaitingOn
	}
	if c.Result != nil && c.Result.Error != "" {
		return c.Result.Error
	}
	if c.Reason == string(c.State) {
		return ""
	}
	return c.Reason
}

func nodeOf(c api.CommandStatus) string { return cmp.Or(c.Node, c.NodeID) }
