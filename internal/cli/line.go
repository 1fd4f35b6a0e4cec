package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// line is a command line, understood: the library itself stops reading flags
// at the first argument and takes what follows for arguments.
type line struct {
	app     *cli.App
	path    []*cli.Command // the commands named, the outermost first
	flags   [][]string     // of the program, then of each command of path
	args    []string
	help    bool
	version bool
}

// parse puts each word of a command line where it belongs. The first word is
// the program's own name.
func parse(app *cli.App, words []string) (*line, error) {
	l := &line{app: app, flags: [][]string{nil}}
	for i := 1; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			l.args = append(l.args, words[i+1:]...)
			l.share()
			return l, nil
		case strings.HasPrefix(word, "-") && word != "-":
			taken, err := l.flag(word, words[i+1:])
			if err != nil {
				return nil, err
			}
			i += taken
		default:
			if err := l.word(word); err != nil {
				return nil, err
			}
		}
	}
	l.share()
	return l, nil
}

// share gives a flag that several commands of the path have, as "server --data"
// and "server token --data", to all of them: whoever gave it once gave it.
func (l *line) share() {
	for from := 1; from < len(l.flags); from++ {
		for to := 1; to < len(l.flags); to++ {
			for _, flag := range l.flagsAt(to) {
				if len(l.values(to, flag)) == 0 {
					l.flags[to] = append(l.flags[to], l.values(from, flag)...)
				}
			}
		}
	}
}

// values are the words that set a flag at one level.
func (l *line) values(level int, flag cli.Flag) (words []string) {
	name := "--" + flag.Names()[0]
	for _, word := range l.flags[level] {
		if word == name || strings.HasPrefix(word, name+"=") {
			words = append(words, word)
		}
	}
	return words
}

// word takes one that is no flag: a command as long as there are some to
// choose from, then arguments.
func (l *line) word(word string) error {
	choices := l.commands()
	if len(choices) == 0 {
		l.args = append(l.args, word)
		return nil
	}
	if word == "help" {
		l.help = true
		return nil
	}
	at := slices.IndexFunc(choices, func(c *cli.Command) bool { return c.HasName(word) })
	if at < 0 {
		return l.usage("there is no command %q; choose from %s", word, names(choices))
	}
	l.path = append(l.path, choices[at])
	l.flags = append(l.flags, nil)
	return nil
}

// flag takes a flag and its value, which may be the next word, and reports how
// many of the next words it took. The innermost command's flags win.
func (l *line) flag(word string, next []string) (taken int, err error) {
	name, value, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if name == "help" || name == "h" {
		l.help = true
		return 0, nil
	}
	if name == "version" && len(l.path) == 0 {
		l.version = true
		return 0, nil
	}
	for level := len(l.path); level >= 0; level-- {
		at := slices.IndexFunc(l.flagsAt(level), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		if at < 0 {
			continue
		}
		flag := l.flagsAt(level)[at]
		if !assigned && takesValue(flag) {
			if len(next) == 0 {
				return 0, l.usage("%s needs a value", spelled(name))
			}
			value, assigned, taken = next[0], true, 1
		}
		return taken, l.set(level, flag, value, assigned)
	}
	return 0, l.usage("there is no flag %s", spelled(name))
}

func (l *line) set(level int, flag cli.Flag, value string, assigned bool) error {
	name := flag.Names()[0]
	if !assigned {
		l.flags[level] = append(l.flags[level], "--"+name)
		return nil
	}
	if want := misfit(flag, value); want != "" {
		return l.usage("%s: %q is not %s", spelled(name), value, want)
	}
	l.flags[level] = append(l.flags[level], "--"+name+"="+value)
	return nil
}

// misfit says what a value should have been, or nothing when it fits.
func misfit(flag cli.Flag, value string) string {
	var err error
	want := ""
	switch flag.(type) {
	case *cli.DurationFlag:
		_, err = time.ParseDuration(value)
		want = "a duration, as 30s, 2m or 1h"
	case *cli.IntFlag, *cli.Int64Flag:
		_, err = strconv.ParseInt(value, 0, 64)
		want = "a whole number"
	case *cli.Float64Flag:
		_, err = strconv.ParseFloat(value, 64)
		want = "a number"
	case *cli.BoolFlag:
		_, err = strconv.ParseBool(value)
		want = "true or false"
	}
	if flag.Names()[0] == outputFlag && value != formatTable && value != formatJSON {
		return formatTable + " or " + formatJSON
	}
	if err == nil {
		return ""
	}
	return want
}

// check says what is missing or too much.
func (l *line) check() error {
	if choices := l.commands(); len(choices) > 0 && !l.acts() {
		return l.usage("a command is missing; choose from %s", names(choices))
	}
	needed, most := arity(l.argsUsage())
	if len(l.args) < len(needed) {
		return l.usage("%s is missing", needed[len(l.args)])
	}
	if most >= 0 && len(l.args) > most {
		return l.usage("%q is one argument too many", l.args[most])
	}
	for level := range l.flags {
		for _, flag := range l.flagsAt(level) {
			if r, ok := flag.(cli.RequiredFlag); ok && r.IsRequired() && !l.given(level, flag) {
				return l.usage("%s is missing", spelled(flag.Names()[0]))
			}
		}
	}
	return nil
}

func (l *line) given(level int, flag cli.Flag) bool {
	if len(l.values(level, flag)) > 0 {
		return true
	}
	d, ok := flag.(cli.DocGenerationFlag)
	return ok && slices.ContainsFunc(d.GetEnvVars(), func(env string) bool {
		_, found := os.LookupEnv(env)
		return found
	})
}

// arity reads a usage like "NODE [APP]" or "WORD...": the arguments that must
// be there, and how many there are at most, -1 where there is no end.
func arity(usage string) (needed []string, most int) {
	for name := range strings.FieldsSeq(usage) {
		optional := strings.HasPrefix(name, "[")
		name, endless := strings.CutSuffix(strings.Trim(name, "[]"), "...")
		if !optional {
			needed = append(needed, name)
		}
		if endless || most < 0 {
			most = -1
		} else {
			most++
		}
	}
	return needed, most
}

// ordered is the line as the library reads it right.
func (l *line) ordered() []string {
	words := append([]string{l.app.Name}, l.flags[0]...)
	for i, c := range l.path {
		words = append(append(words, c.Name), l.flags[i+1]...)
	}
	return append(append(words, "--"), l.args...)
}

// commands are those that may follow.
func (l *line) commands() []*cli.Command {
	if len(l.path) == 0 {
		return l.app.Commands
	}
	return l.path[len(l.path)-1].Subcommands
}

func (l *line) acts() bool {
	if len(l.path) == 0 {
		return l.app.Action != nil
	}
	return l.path[len(l.path)-1].Action != nil
}

func (l *line) argsUsage() string {
	if len(l.path) == 0 {
		return l.app.ArgsUsage
	}
	return l.path[len(l.path)-1].ArgsUsage
}

func (l *line) flagsAt(level int) []cli.Flag {
	if level == 0 {
		return l.app.Flags
	}
	return l.path[level-1].Flags
}

// name is the program and the commands named, as "beckon node show".
func (l *line) name() string { return fullName(l.app, l.path) }

// usage is an error about the commands named, and how they are used.
func (l *line) usage(format string, args ...any) error {
	f := Usagef(format, args...)
	if len(l.path) > 0 {
		f.Detail = strings.TrimPrefix(l.name(), l.app.Name+" ") + ": " + f.Detail
	}
	f.Hint = fmt.Sprintf("%s (more: %s --help)", usageLine(l.app, l.path), l.name())
	return f
}

func fullName(app *cli.App, path []*cli.Command) string {
	words := []string{app.Name}
	for _, c := range path {
		words = append(words, c.Name)
	}
	return strings.Join(words, " ")
}

func names(commands []*cli.Command) string {
	var all []string
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, c.Name)
		}
	}
	return strings.Join(all, ", ")
}

func takesValue(flag cli.Flag) bool {
	d, ok := flag.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

func spelled(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// wantsJSON looks for the flag alone, since an error may lie before it on the
// line.
func wantsJSON(app *cli.App, words []string) bool {
	has := slices.ContainsFunc(app.Flags, func(f cli.Flag) bool { return f.Names()[0] == outputFlag })
	found := false
	for i, word := range words {
		if word == "--" {
			break
		}
		name, value, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") || name != "o" && name != outputFlag {
			continue
		}
		if !assigned && i+1 < len(words) {
			value = words[i+1]
		}
		found = value == formatJSON
	}
	return has && found
}
