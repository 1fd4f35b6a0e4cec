// Package cli makes a command line of urfave/cli behave as people and scripts
// expect: flags work before and after arguments, what is not known is an error
// that names it, data goes to stdout and all else to stderr, and the exit code
// says what kind of failure it was.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// Run runs one command line and returns its exit code (see exitRows).
//
// How many arguments a command takes is read from its ArgsUsage: "NODE" is one,
// "[NODE]" at most one, "WORD..." one or more; without it there are none. Flags
// of the program and of outer commands may stand anywhere on the line; "--" ends
// them. The context of an action ends with the first SIGINT or SIGTERM; the
// second one ends the process.
//
// A reader of stdout that goes away changes nothing, not even the exit code: the
// action goes on and its outcome decides. Any other failure to write is one.
func Run(app *cli.App, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	pipe := make(chan os.Signal, 1) // whoever listens is not killed by a closed pipe
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	out, note := &output{to: stdout}, &output{to: stderr}
	err := run(ctx, app, args, out, note)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write output: %w", out.err)
	}
	if err == nil {
		return exitOK
	}
	failure := explain(ctx, err)
	failure.print(note, app.Name, wantsJSON(app, args))
	return failure.Exit
}

func run(ctx context.Context, app *cli.App, args []string, stdout, stderr io.Writer) error {
	prepare(app, stdout, stderr)
	line, err := parse(app, args)
	switch {
	case err != nil:
		return err
	case line.version:
		_, err = fmt.Fprintln(stdout, app.Name, app.Version)
		return err
	case line.help:
		return help(stdout, app, line.path)
	}
	if err := line.check(); err != nil {
		return err
	}
	return app.RunContext(ctx, line.ordered())
}

// prepare takes from the library what it would do by itself: help and usage
// errors on stdout, ending the process, and splitting values at commas.
func prepare(app *cli.App, stdout, stderr io.Writer) {
	app.Writer, app.ErrWriter = stdout, stderr
	app.HideHelp, app.HideVersion = true, true
	app.DisableSliceFlagSeparator = true
	app.ExitErrHandler = func(*cli.Context, error) {}
	app.OnUsageError = usageError
	prepareCommands(app.Commands)
}

func prepareCommands(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelp = true
		c.OnUsageError = usageError
		prepareCommands(c.Subcommands)
	}
}

func usageError(_ *cli.Context, err error, _ bool) error { return Usagef("%v", err) }

// OutputFlag is the program's flag by which a caller chooses between tables for
// people and JSON for programs. It rules how Run prints an error, too.
func OutputFlag() cli.Flag {
	return &cli.StringFlag{
		Name:    outputFlag,
		Aliases: []string{"o"},
		Usage:   "print `FORMAT`: table for people, json for programs",
		Value:   formatTable,
	}
}

// JSON reports whether the caller wants JSON.
func JSON(c *cli.Context) bool { return c.String(outputFlag) == formatJSON }

const (
	outputFlag  = "output"
	formatTable = "table"
	formatJSON  = "json"
)
