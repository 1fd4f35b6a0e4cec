package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// help describes the program, or the last command of path.
func help(w io.Writer, app *cli.App, path []*cli.Command) error {
	summary, description, flags, commands := app.Usage, app.Description, app.Flags, app.Commands
	if len(path) > 0 {
		c := path[len(path)-1]
		summary, description, flags, commands = c.Usage, c.Description, c.Flags, c.Subcommands
	}
	var page strings.Builder
	fmt.Fprintf(&page, "%s: %s\n\nUsage: %s\n", fullName(app, path), summary, usageLine(app, path))
	if description != "" {
		fmt.Fprintf(&page, "\n%s\n", strings.TrimSpace(description))
	}
	columns(&page, "Commands", commandRows(commands))
	if len(path) == 0 {
		columns(&page, "Options, anywhere on the line", flagRows(flags))
		columns(&page, "Exit codes", exitRows())
	} else {
		columns(&page, "Options", flagRows(flags))
		columns(&page, "Options of every command", flagRows(app.Flags))
	}
	_, err := io.WriteString(w, page.String())
	return err
}

// usageLine is "beckon node show [options] NODE".
func usageLine(app *cli.App, path []*cli.Command) string {
	l := &line{app: app, path: path}
	words := []string{l.name()}
	if choices := l.commands(); len(choices) > 0 && l.acts() {
		words = append(words, "[COMMAND]")
	} else if len(choices) > 0 {
		words = append(words, "COMMAND")
	}
	words = append(words, "[options]")
	if args := l.argsUsage(); args != "" {
		words = append(words, args)
	}
	return strings.Join(words, " ")
}

func columns(page *strings.Builder, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(page, "\n%s:\n", title)
	w := tabwriter.NewWriter(page, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "  %s\t%s\n", row[0], row[1])
	}
	w.Flush()
}

func commandRows(commands []*cli.Command) (rows [][2]string) {
	for _, c := range commands {
		if !c.Hidden {
			rows = append(rows, [2]string{c.Name, c.Usage})
		}
	}
	return rows
}

// placeholder is the word that stands for a flag's value, in backquotes in its
// usage.
var placeholder = regexp.MustCompile("`([^`]*)`")

func flagRows(flags []cli.Flag) (rows [][2]string) {
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if v, visible := f.(cli.VisibleFlag); !ok || visible && !v.IsVisible() {
			continue
		}
		var spellings []string
		for _, name := range slices.Backward(d.Names()) {
			spellings = append(spellings, spelled(name))
		}
		left := strings.Join(spellings, ", ")
		if m := placeholder.FindStringSubmatch(d.GetUsage()); m != nil {
			left += " " + m[1]
		}
		rows = append(rows, [2]string{left, flagText(d)})
	}
	return rows
}

func flagText(d cli.DocGenerationFlag) string {
	text := strings.ReplaceAll(d.GetUsage(), "`", "")
	value := Plain(strings.Trim(d.GetDefaultText(), `"`))
	if value != "" && !slices.Contains([]string{"0", "0s", "false"}, value) {
		text += " (" + value + " unless said)"
	}
	for _, env := range d.GetEnvVars() {
		text += " [$" + env + "]"
	}
	return text
}

// Plain takes from the text of a duration the zeros: "2m0s" is "2m".
func Plain(text string) string {
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}
