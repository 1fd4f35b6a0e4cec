package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/client"
	"github.com/urfave/cli/v2"
)

// sample is a program with all that a line can hold. Its verbs print what
// reached them.
func sample(act cli.ActionFunc) *cli.App {
	if act == nil {
		act = func(c *cli.Context) error {
			_, err := fmt.Fprintf(c.App.Writer, "%s args=%q url=%s label=%q force=%v json=%v wait=%v\n",
				c.Command.Name, c.Args().Slice(), c.String("url"), c.StringSlice("label"), c.Bool("force"), JSON(c), c.Duration("wait"))
			return err
		}
	}
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "do it anyway"},
			&cli.StringSliceFlag{Name: "label", Usage: "only with the label `K=V`"},
			&cli.DurationFlag{Name: "wait", Usage: "wait `TIME`", Value: 30 * time.Second},
		}
	}
	data := func() cli.Flag { return &cli.StringFlag{Name: "data", Required: true} }
	return &cli.App{
		Name:    "sample",
		Usage:   "a program",
		Version: "1.2.3",
		Flags:   []cli.Flag{OutputFlag(), &cli.StringFlag{Name: "url", EnvVars: []string{"SAMPLE_URL"}, Usage: "call `URL`"}},
		Commands: []*cli.Command{
			{Name: "node", Usage: "machines", Subcommands: []*cli.Command{
				{Name: "list", Usage: "list them", Flags: flags(), Action: act},
				{Name: "show", Usage: "show one", Flags: flags(), Action: act, ArgsUsage: "NODE"},
			}},
			{Name: "run", Usage: "run words", ArgsUsage: "[HOST] WORD...", Action: act, Flags: []cli.Flag{
				&cli.StringFlag{Name: "set", Required: true, EnvVars: []string{"SAMPLE_SET"}},
			}},
			{Name: "serve", Usage: "serve", Action: act, Flags: append(flags(), data()), Subcommands: []*cli.Command{
				{Name: "token", Usage: "make a token", Action: act, Flags: append(flags()[1:], data())},
			}},
		},
	}
}

func try(app *cli.App, words ...string) (code int, stdout, stderr string) {
	var out, note bytes.Buffer
	code = Run(app, append([]string{"sample"}, words...), &out, &note)
	return code, out.String(), note.String()
}

func TestFlagsWorkWhereverTheyStand(t *testing.T) {
	plain := "label=[] force=false json=false wait=30s\n"
	for line, want := range map[string]string{
		"node list":                                   `list args=[] url= ` + plain,
		"node show web-1":                             `show args=["web-1"] url= ` + plain,
		"node show web-1 -o json":                     `show args=["web-1"] url= label=[] force=false json=true wait=30s` + "\n",
		"node -o json show web-1":                     `show args=["web-1"] url= label=[] force=false json=true wait=30s` + "\n",
		"--output=json node show web-1":               `show args=["web-1"] url= label=[] force=false json=true wait=30s` + "\n",
		"node show web-1 --force --wait 1m":           `show args=["web-1"] url= label=[] force=true json=false wait=1m0s` + "\n",
		"node show --force=false web-1":               `show args=["web-1"] url= ` + plain,
		"node show -force web-1 -url http://x":        `show args=["web-1"] url=http://x label=[] force=true json=false wait=30s` + "\n",
		"node list --label a=1,b --label=b=2 --url u": `list args=[] url=u label=["a=1,b" "b=2"] force=false json=false wait=30s` + "\n",
		"node show -- --force":                        `show args=["--force"] url= ` + plain,
		"node show --wait 1s -- -o":                   `show args=["-o"] url= label=[] force=false json=false wait=1s` + "\n",
		"node show -":                                 `show args=["-"] url= ` + plain,
		"node show help":                              `show args=["help"] url= ` + plain,
		"node show url":                               `show args=["url"] url= ` + plain,
		"node list --url --force":                     `list args=[] url=--force ` + plain,
		"serve --force --data d":                      `serve args=[] url= label=[] force=true json=false wait=30s` + "\n",
		"serve token --data d":                        `token args=[] url= ` + plain,
		"serve --data d token":                        `token args=[] url= ` + plain,
		"serve --data d token --force --wait 2s":      `token args=[] url= label=[] force=true json=false wait=2s` + "\n",
		"serve token --label a=1 --data d --label b=": `token args=[] url= label=["a=1" "b="] force=false json=false wait=30s` + "\n",
		"run --set s -- a --b -o json":                `run args=["a" "--b" "-o" "json"] url= label=[] force=false json=false wait=0s` + "\n",
	} {
		code, out, note := try(sample(nil), strings.Fields(line)...)
		if code != 0 || out != want || note != "" {
			t.Errorf("%s: exit %d\n got %swant %s%s", line, code, out, want, note)
		}
	}
}

func TestUsageErrorsNameWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"":                            `a command is missing; choose from node, run, serve`,
		"nod":                         `there is no command "nod"; choose from node, run, serve`,
		"node":                        `node: a command is missing; choose from list, show`,
		"node shw web-1":              `node: there is no command "shw"; choose from list, show`,
		"serve tokn":                  `serve: there is no command "tokn"; choose from token`,
		"node show":                   `node show: NODE is missing`,
		"node show a b":               `node show: "b" is one argument too many`,
		"node list a":                 `node list: "a" is one argument too many`,
		"node show a --bogus":         `node show: there is no flag --bogus`,
		"node show --bogus=1 a":       `node show: there is no flag --bogus`,
		"--bogus node show a":         `there is no flag --bogus`,
		"node --force show a":         `node: there is no flag --force`,
		"node show a -x":              `node show: there is no flag -x`,
		"node show a --wait":          `node show: --wait needs a value`,
		"node show a --wait soon":     `node show: --wait: "soon" is not a duration, as 30s, 2m or 1h`,
		"node show a --force=maybe":   `node show: --force: "maybe" is not true or false`,
		"node show a -o yaml":         `node show: --output: "yaml" is not table or json`,
		"run a":                       `run: --set is missing`,
		"serve":                       `serve: --data is missing`,
		"serve token":                 `serve token: --data is missing`,
		"run --set s":                 `run: WORD is missing`,
		"node list --version":         `node list: there is no flag --version`,
		"node list --label":           `node list: --label needs a value`,
		"node list --force --force=x": `node list: --force: "x" is not true or false`,
	} {
		code, out, note := try(sample(nil), strings.Fields(line)...)
		lines := strings.Split(strings.TrimSuffix(note, "\n"), "\n")
		if code != 2 || out != "" || lines[0] != "sample: "+want {
			t.Errorf("%q: exit %d, stdout %q, stderr\n%swant %s", line, code, out, note, want)
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[1], "hint: sample ") {
			t.Errorf("%q: want one line of hint, got %q", line, lines[1:])
		}
	}
	_, _, note := try(sample(nil), "node", "show")
	if want := "hint: sample node show [options] NODE (more: sample node show --help)\n"; !strings.HasSuffix(note, want) {
		t.Errorf("got %q, want it to end with %q", note, want)
	}
}

func TestRequiredFlagMayComeFromTheEnvironment(t *testing.T) {
	t.Setenv("SAMPLE_SET", "s")
	if code, out, note := try(sample(nil), "run", "a"); code != 0 || !strings.HasPrefix(out, `run args=["a"]`) {
		t.Errorf("exit %d, %s%s", code, out, note)
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	t.Setenv("SAMPLE_URL", "http://secret.example")
	for line, want := range map[string][]string{
		"--help":               {"sample: a program\n", "Usage: sample COMMAND [options]\n", "  node ", "-o, --output FORMAT", "(table unless said)", "[$SAMPLE_URL]", "  130 "},
		"help":                 {"sample: a program\n"},
		"-h":                   {"sample: a program\n"},
		"node --help":          {"sample node: machines\n", "  show   show one\n"},
		"help node":            {"sample node: machines\n"},
		"node help":            {"sample node: machines\n"},
		"node show --help":     {"sample node show: show one\n", "Usage: sample node show [options] NODE\n", "--label K=V", "(30s unless said)", "--url URL"},
		"help node show":       {"sample node show: show one\n"},
		"node help show":       {"sample node show: show one\n"},
		"node show a -h":       {"sample node show: show one\n"},
		"node show -o json -h": {"sample node show: show one\n"},
		"serve --help":         {"Usage: sample serve [COMMAND] [options]\n"},
		"--version":            {"sample 1.2.3\n"},
	} {
		code, out, note := try(sample(nil), strings.Fields(line)...)
		if code != 0 || note != "" {
			t.Errorf("%s: exit %d, stderr %q", line, code, note)
		}
		for _, part := range want {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q is missing in\n%s", line, part, out)
			}
		}
		if strings.Contains(out, "secret.example") {
			t.Errorf("%s shows what the environment holds:\n%s", line, out)
		}
	}
}

// failing runs the program with a verb that fails with err.
func failing(err error, words ...string) (code int, stdout, stderr string) {
	return try(sample(func(*cli.Context) error { return err }), append([]string{"node", "list"}, words...)...)
}

func refusal(t *testing.T, address string) error {
	t.Helper()
	c := client.New(address, &http.Transport{}, nil)
	_, err := client.Call(t.Context(), c, api.GetStatus, api.StatusRequest{})
	if err == nil {
		t.Fatal("the call went well")
	}
	return fmt.Errorf("ask: %w", err)
}

func TestExitCodes(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Access\x1b[2J denied", http.StatusForbidden)
	}))
	defer page.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	plainOverTLS := strings.Replace(page.URL, "http:", "https:", 1)
	tlsOverPlain := strings.Replace(secure.URL, "https:", "http:", 1)
	for name, c := range map[string]struct {
		err         error
		exit        int
		code, words string
	}{
		"api not found":  {api.Errorf(api.NotFound, "there is no node x"), 4, "not_found", "there is no node x\n"},
		"api wrapped":    {fmt.Errorf("show: %w", api.Errorf(api.NameTaken, "taken")), 5, "name_taken", "taken\n"},
		"api token":      {api.Errorf(api.OperatorTokenInvalid, "wrong token"), 3, "operator_token_invalid", "beckon server token --data DIR"},
		"api upgrade":    {api.Errorf(api.UpgradeRequired, "too old"), 7, "upgrade_required", "too old\n"},
		"api revoked":    {api.Errorf(api.NodeRevoked, "revoked"), 77, "node_revoked", "revoked\n"},
		"api internal":   {api.Errorf(api.Internal, "failed"), 1, "internal", "failed\n"},
		"api unknown":    {&api.Error{Code: "of_tomorrow", Detail: "new"}, 1, "of_tomorrow", "new\n"},
		"usage":          {Usagef("--x makes no sense"), 2, "usage", "--x makes no sense\n"},
		"failed":         {Failedf("1 of 2 failed"), 1, "failed", "1 of 2 failed\n"},
		"timed out":      {TimedOutf("still going on"), 8, "timed_out", "still going on\n"},
		"other":          {errors.New("disk on fire"), 1, "failed", "disk on fire\n"},
		"missing file":   {fmt.Errorf("read: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}), 1, "failed", "open x"},
		"hint":           {WithHint(errors.New("broken"), "mend it"), 1, "failed", "broken\nhint: mend it\n"},
		"canceled alone": {context.Canceled, 1, "failed", "context canceled\n"},
		"proxy's page":   {refusal(t, page.URL), 6, "unreachable", "proxies on the way"},
		"refused":        {refusal(t, closed.URL), 6, "unreachable", "cannot reach " + closed.URL + ": "},
		"refused hint":   {refusal(t, closed.URL), 6, "unreachable", "nothing listens there"},
		"unknown CA":     {refusal(t, secure.URL), 6, "unreachable", "BECKON_CA_SHA256"},
		"TLS to plain":   {refusal(t, plainOverTLS), 6, "unreachable", "begins with http://, not https://"},
		"plain to TLS":   {refusal(t, tlsOverPlain), 6, "unreachable", "begins with https://, not http://"},
		"alert":          {Unreachable(tls.AlertError(40)), 6, "unreachable", "check the address"},
		"own code":       {&Failure{Exit: 42, Code: "child", Detail: "the child failed"}, 42, "child", "the child failed\n"},
		"child":          {exec.Command("false").Run(), 1, "failed", "exit status 1\n"},
	} {
		exit, out, note := failing(c.err)
		if exit != c.exit || out != "" || !strings.HasPrefix(note, "sample: ") || !strings.Contains(note, c.words) || strings.Contains(note, "\x1b") {
			t.Errorf("%s: exit %d, want %d; stdout %q, stderr %q", name, exit, c.exit, out, note)
		}
		exit, out, note = failing(c.err, "-o", "json")
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal([]byte(note), &problem); err != nil || exit != c.exit || out != "" || problem.Code != c.code || problem.Detail == "" {
			t.Errorf("%s as JSON: exit %d, stdout %q, stderr %q, %v", name, exit, out, note, err)
		}
	}
}

func TestJSONErrorsAreTheServersOwn(t *testing.T) {
	_, _, note := failing(api.Errorf(api.NotFound, "there is no node <x>"), "-o=json")
	want := `{"type":"/problems/not_found","title":"Not Found","status":404,"detail":"there is no node <x>","code":"not_found","then":"give_up"}` + "\n"
	if note != want {
		t.Errorf("got %s, want %s", note, want)
	}
	for _, line := range []string{"node shw -o json", "-o json --bogus", "node list --bogus --output=json", "node show --wait x -o json"} {
		code, out, note := try(sample(nil), strings.Fields(line)...)
		var f Failure
		if err := json.Unmarshal([]byte(note), &f); err != nil || code != 2 || out != "" || f.Code != "usage" || f.Hint == "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, code, out, note)
		}
	}
	if _, _, note := try(sample(nil), "node", "list", "--bogus", "--", "-o", "json"); !strings.HasPrefix(note, "sample: ") {
		t.Errorf("what follows -- is no flag, got %q", note)
	}
}

func TestInterrupt(t *testing.T) {
	wait := func(c *cli.Context) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			return err
		}
		<-c.Context.Done()
		return WithHint(fmt.Errorf("wait: %w", c.Context.Err()), "it goes on")
	}
	code, out, note := try(sample(wait), "node", "list")
	if code != 130 || out != "" || note != "sample: interrupted\nhint: it goes on\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, note)
	}
	orderly := func(c *cli.Context) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-c.Context.Done()
		return nil
	}
	if code, _, note := try(sample(orderly), "node", "list"); code != 0 || note != "" {
		t.Errorf("a program that ended in order: exit %d, stderr %q", code, note)
	}
}

func TestWritingFails(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader.Close()
	var note bytes.Buffer
	if code := Run(sample(nil), []string{"sample", "node", "list"}, writer, &note); code != 0 || note.Len() > 0 {
		t.Errorf("reader gone: exit %d, stderr %q", code, note.String())
	}
	failed := func(c *cli.Context) error {
		fmt.Fprintln(c.App.Writer, "table")
		return Failedf("it failed")
	}
	if code := Run(sample(failed), []string{"sample", "node", "list"}, writer, &note); code != 1 {
		t.Errorf("reader gone and the action failed: exit %d", code)
	}
	if code := Run(sample(failed), []string{"sample", "node", "list"}, io.Discard, writer); code != 1 {
		t.Errorf("reader of stderr gone: exit %d", code)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		if os.Getenv("BECKON_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("run this on Linux: %v", err)
	}
	defer full.Close()
	note.Reset()
	code := Run(sample(nil), []string{"sample", "node", "list"}, full, &note)
	if code != 1 || !strings.Contains(note.String(), "no space left") {
		t.Errorf("full disk: exit %d, stderr %q", code, note.String())
	}
}

// TestReaderOfStdoutGoes runs a process of its own: the runtime treats a closed
// pipe on the real stdout unlike any other.
func TestReaderOfStdoutGoes(t *testing.T) {
	if os.Getenv("SAMPLE_CHILD") != "" {
		os.Exit(Run(sample(nil), []string{"sample", "node", "list"}, os.Stdout, os.Stderr))
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	child := exec.Command(os.Args[0], "-test.run=^TestReaderOfStdoutGoes$")
	child.Env = append(os.Environ(), "SAMPLE_CHILD=1")
	var note bytes.Buffer
	child.Stdout, child.Stderr = writer, &note
	err = child.Run()
	writer.Close()
	if err != nil || note.Len() > 0 {
		t.Errorf("%v, stderr %q", err, note.String())
	}
}

func TestPrintable(t *testing.T) {
	if got := Printable("a\x1b[31mb\r\nc\td\x00\u202eé"); got != "a[31mb\nc\tdé" {
		t.Errorf("got %q", got)
	}
}
