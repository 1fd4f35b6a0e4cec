package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/beckon-fleet/beckon/internal/cli"
	urfave "github.com/urfave/cli/v2"
)

func pushCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "push",
		Usage: "upload a folder, and make it what an app is",
		Description: "Nothing runs by it; `beckon deploy APP` does that. What an app that was pushed before is\n" +
			"otherwise stays, unless an option says it anew. Links are kept as links. What a line of the\n" +
			"file .beckonignore in the folder matches stays here: *.log anywhere, build/ as a folder,\n" +
			"doc/*.md below the folder; # begins a remark.",
		ArgsUsage: "APP DIR",
		Flags:     wishFlags(),
		Action:    verb(push),
	}
}

func push(ctx context.Context, op *operator) error {
	name, err := op.subject()
	if err != nil {
		return err
	}
	wish, err := op.pushedWish(ctx, name)
	if err != nil {
		return err
	}
	packed, err := pack(ctx, op.Args().Get(1))
	if err != nil {
		return err
	}
	defer packed.remove()
	file, err := upload(ctx, op, packed)
	if err != nil {
		return err
	}
	wish.Archive = &api.Archive{FileID: file.ID}
	wish.Write = write(0)
	res, err := call(ctx, op, api.PutApp, wish)
	if err != nil {
		return err
	}
	return op.print(res, func() error {
		a := res.Value.App
		if err := op.say("app %s is stored: %s (%d files, %s) on %s", a.Name, file.ID, packed.files, size(file.SizeBytes), place(a.Placement)); err != nil {
			return err
		}
		op.tell("run it with: beckon deploy %s", a.Name)
		return nil
	})
}

// pushedWish is what the app is already, but for its archive, with what flags
// say anew. It is checked before anything is sent.
func (op *operator) pushedWish(ctx context.Context, name string) (wish api.PutAppRequest, err error) {
	now, err := call(ctx, op, api.GetApp, api.AppRequest{App: name})
	switch {
	case errors.Is(err, api.NotFound):
	case err != nil:
		return wish, err
	case now.Value.Spec.Archive != nil:
		wish.AppSpec, wish.Placement = now.Value.Spec, now.Value.Placement
		name = now.Value.Name
	default: // of an image: its command and limits mean something else
		wish.Placement = now.Value.Placement
		name = now.Value.Name
	}
	wish.App = name
	if err := op.amend(&wish); err != nil {
		return wish, err
	}
	if len(wish.Command) == 0 {
		return wish, cli.Usagef("app push: --command is missing: the program to run in the folder, as ./server")
	}
	wish.Archive = &api.Archive{FileID: "pending"}
	if err := wish.Validate(); err != nil {
		return wish, cli.Usagef("app push: %s", api.AsError(err).Detail)
	}
	return wish, nil
}

func upload(ctx context.Context, op *operator, p *packed) (f api.File, err error) {
	if p.size > api.MaxFile {
		return f, cli.Usagef("app push: the folder is %s when packed, and %s is the most; name in .beckonignore what is not needed", size(p.size), size(api.MaxFile))
	}
	body := &progress{Reader: p.file, op: op, total: p.size, shown: isTerminal(op.note)}
	defer body.end()
	header := http.Header{}
	header.Set(api.HeaderDigest, api.Digest(p.sum))
	res, err := client.Upload[api.PutFileResponse](ctx, op.client, api.PutFile, header, io.NopCloser(body), p.size)
	if _, refused := errors.AsType[*api.Error](err); err != nil && !refused && ctx.Err() == nil {
		return f, cli.WithHint(cli.Unreachable(err), "nothing was kept of the upload; run it again")
	}
	if err == nil && res.SHA256 != hex.EncodeToString(p.sum) {
		return f, cli.Failedf("the server keeps something else than was sent (sha256 %s)", res.SHA256)
	}
	return res.File, err
}

// isTerminal reports whether a person may be looking.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progress says on a terminal how far an upload is.
type progress struct {
	io.Reader
	op    *operator
	total int64
	shown bool

	sent int64
	last time.Time
}

// Read counts.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.sent += int64(n)
	if p.shown && time.Since(p.last) > 200*time.Millisecond {
		p.last = time.Now()
		fmt.Fprintf(p.op.note, "\r\x1b[Kuploading: %s of %s", size(p.sent), size(p.total))
	}
	return n, err
}

// end clears the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.op.note, "\r\x1b[K")
	}
}
