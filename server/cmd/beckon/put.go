package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func putAppCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "put",
		Usage: "say what an app is: all of it, what is left out is unset",
		Description: "Nothing runs by it; `beckon deploy APP` does that. --file takes the body of\n" +
			"PUT /api/v1/apps/APP instead of the other options.",
		ArgsUsage: "APP",
		Flags:     append(append(sourceFlags(), wishFlags()...), &urfave.StringFlag{Name: "file", Usage: "read the wish from `FILE` as JSON, or from stdin when it is -"}),
		Action:    verb(putApp),
	}
}

// sourceFlags say what an app is made of.
func sourceFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "image", Usage: "run `IMAGE`, as registry/name:tag"},
		&urfave.StringFlag{Name: "archive", Usage: "run --command among the files of the archive `FILE_ID`; `beckon app push` uploads one"},
	}
}

// wishFlags are the other members of the wish.
func wishFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "command", Usage: "run `WORDS` in it, split at spaces, instead of its own command"},
		&urfave.StringSliceFlag{Name: "arg", Usage: "like --command, one `WORD` that may hold spaces; repeatable"},
		&urfave.StringSliceFlag{Name: "env", Usage: "set the variable `K=V`; repeatable; not for secrets, proxies can read it"},
		&urfave.IntFlag{Name: "port", Usage: "its instances listen on `PORT`"},
		&urfave.StringFlag{Name: "publish", Usage: "lead `ADDR:PORT` of the node to that port; else a free one of 127.0.0.1"},
		&urfave.Float64Flag{Name: "cpu", Usage: "use at most `CORES`, as 0.5"},
		&urfave.StringFlag{Name: "memory", Usage: "use at most `SIZE`, as 256m or 2g"},
		&urfave.StringFlag{Name: "restart", Usage: "when an instance ends, restart it `WHEN`: always, on_failure or never", DefaultText: "always"},
		&urfave.DurationFlag{Name: "observe", Usage: "it counts as running after `TIME` without a restart", DefaultText: "10s"},
		&urfave.StringFlag{Name: "node", Usage: "run on `NODE`"},
		&urfave.StringSliceFlag{Name: "label", Usage: "run on every active node with the label `K=V`; repeatable"},
	}
}

func putApp(ctx context.Context, op *operator) error {
	name, err := op.subject()
	if err != nil {
		return err
	}
	wish, err := op.wish()
	if err != nil {
		return err
	}
	wish.Write, wish.App = write(0), name
	res, err := call(ctx, op, api.PutApp, wish)
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		a := res.Value.App
		if err := op.say("app %s is stored: %s on %s", a.Name, madeOf(a.Spec), place(a.Placement)); err != nil {
			return err
		}
		op.tell("run it with: beckon deploy %s", a.Name)
		return nil
	})
}

func (op *operator) wish() (api.PutAppRequest, error) {
	path := op.String("file")
	if path == "" {
		return op.wishOfFlags()
	}
	for _, f := range append(sourceFlags(), wishFlags()...) {
		if name := f.Names()[0]; op.IsSet(name) {
			return api.PutAppRequest{}, cli.Usagef("--file is the whole wish; --%s does not go with it", name)
		}
	}
	return op.wishOfFile(path)
}

func (op *operator) wishOfFile(path string) (wish api.PutAppRequest, err error) {
	data, err := op.read(path)
	if err != nil {
		return wish, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&wish); err != nil {
		return wish, cli.Usagef("--file: %s is not the JSON of an app: %v", path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return wish, cli.Usagef("--file: something follows the JSON in %s", path)
	}
	return wish, nil
}

func (op *operator) wishOfFlags() (wish api.PutAppRequest, err error) {
	switch image, archive := op.String("image"), op.String("archive"); {
	case image == "" && archive == "":
		return wish, cli.Usagef("app put: --image is missing (or --archive, or --file)")
	case image != "" && archive != "":
		return wish, cli.Usagef("app put: --image and --archive do not go together")
	case archive != "":
		wish.Archive = &api.Archive{FileID: archive}
	default:
		wish.Image = image
	}
	return wish, op.amend(&wish)
}

// amend sets what flags say, and leaves the rest of a wish as it is.
func (op *operator) amend(wish *api.PutAppRequest) (err error) {
	if op.IsSet("command") || op.IsSet("arg") {
		if wish.Command, err = op.words(); err != nil {
			return err
		}
	}
	if op.IsSet("env") {
		if wish.Env, err = op.keyValues("env"); err != nil {
			return err
		}
	}
	if op.IsSet("node") || op.IsSet("label") {
		wish.Placement = api.Placement{Node: op.String("node")}
		if wish.Placement.Labels, err = op.keyValues("label"); err != nil {
			return err
		}
	}
	if (wish.Node == "") == (len(wish.Placement.Labels) == 0) {
		return cli.Usagef("%s: an app needs a place: either --node or --label", op.Command.FullName())
	}
	if op.IsSet("port") {
		wish.Port = op.Int("port")
	}
	if op.IsSet("publish") {
		wish.Publish = op.String("publish")
	}
	if op.IsSet("restart") {
		wish.Restart = api.RestartPolicy(op.String("restart"))
	}
	if op.IsSet("observe") {
		if wish.ObserveS, err = op.seconds("observe"); err != nil {
			return err
		}
	}
	return op.limits(&wish.Resources)
}

// words are the command. One string is split at spaces only, so what a shell
// would do more is refused, not guessed.
func (op *operator) words() ([]string, error) {
	command := op.String("command")
	if command == "" {
		return op.StringSlice("arg"), nil
	}
	if op.IsSet("arg") {
		return nil, cli.Usagef("--command and --arg do not go together")
	}
	if strings.ContainsAny(command, "'\"\\$`") {
		return nil, cli.Usagef("--command is split at spaces and knows no quotes or variables; give each word by --arg")
	}
	return strings.Fields(command), nil
}

func (op *operator) limits(r *api.Resources) (err error) {
	if op.IsSet("cpu") {
		if r.CPUCores = op.Float64("cpu"); !(r.CPUCores > 0 && r.CPUCores <= 1024) {
			return cli.Usagef("--cpu: %v is not a number of cores above 0", r.CPUCores)
		}
	}
	if text := op.String("memory"); text != "" {
		if r.MemBytes, err = parseSize(text); err != nil {
			return cli.Usagef("--memory: %q is not a size, as 256m or 2g", text)
		}
	}
	return nil
}

// parseSize reads a number of bytes with an optional binary unit: 256m, 1.5g,
// 512MiB.
func parseSize(text string) (int64, error) {
	lower := strings.ToLower(strings.TrimSpace(text))
	lower = strings.TrimSuffix(strings.TrimSuffix(lower, "b"), "i")
	factor := 1.0
	if i := strings.IndexByte("kmgt", lastByte(lower)); i >= 0 {
		factor = math.Pow(1024, float64(i+1))
		lower = strings.TrimSpace(lower[:len(lower)-1])
	}
	n, err := strconv.ParseFloat(lower, 64)
	if err != nil {
		return 0, err
	}
	if !(n > 0 && n*factor < math.MaxInt64) {
		return 0, strconv.ErrRange
	}
	return int64(n * factor), nil
}

func lastByte(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}
