package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/e2e/kit/build"
	"github.com/beckon-fleet/beckon/e2e/kit/cluster"
	"github.com/beckon-fleet/beckon/e2e/kit/engine"
	"github.com/beckon-fleet/beckon/e2e/kit/proc"
)

// What the documents tell a reader to type works as it stands there: each line
// of a block under <!-- test: curl --> is run, in order, against a server with
// an active node web-1 and an engine. A comment may name in parentheses, as in
// (instance.publish), what the answer of the next line holds; a block of json
// that follows is the shape of the last answer.
func TestDocuments(t *testing.T) {
	needPrograms(t, "bash", "curl")
	engine.Need(t)
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	name, err := image.Name()
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range []string{"README.md", "PROTOCOL.md"} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, document))
			if err != nil {
				t.Fatal(err)
			}
			blocks := runnable(string(text))
			if len(blocks) == 0 {
				t.Fatalf("%s has no block to run", document)
			}
			c := fixture(t, programs.Dir(t))
			c.Start("")
			n := c.Join("web-1")
			t.Cleanup(func() {
				n.Process.Kill()
				if err := engine.Clear(n.ID); err != nil {
					t.Error(err)
				}
			})
			n.Start("")
			for _, b := range blocks {
				// The demo's image has another name here, which a demo on the
				// same machine does not use.
				b.script = strings.ReplaceAll(b.script, `"beckon-demo"`, `"`+name+`"`)
				b.run(t, c)
			}
		})
	}
}

// block is a runnable block of a document.
type block struct {
	script string
	shape  string // of the last answer; "" is not said
}

var marked = regexp.MustCompile("(?m)^<!-- test: curl -->\n```sh\n((?s:.*?))^```\n(?:\n*```json\n((?s:.*?))^```\n)?")

func runnable(text string) (all []block) {
	for _, m := range marked.FindAllStringSubmatch(text, -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

var promised = regexp.MustCompile(`\(([a-z_]+(?:\.[a-z_]+)*)\)`)

// run runs a block line by line: a comment is about the line that follows it.
func (b block) run(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var members []string
	var answer any
	for line := range strings.Lines(b.script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			for _, m := range promised.FindAllStringSubmatch(line, -1) {
				members = append(members, m[1])
			}
			continue
		}
		answer = ask(t, c, line)
		for _, member := range members {
			if !holds(answer, strings.Split(member, ".")) {
				t.Errorf("%s\nthe answer holds no %s: %v", line, member, answer)
			}
		}
		members = nil
	}
	if b.shape == "" {
		return
	}
	var shape any
	if err := json.Unmarshal([]byte(b.shape), &shape); err != nil {
		t.Fatalf("the answer shown is no JSON: %v\n%s", err, b.shape)
	}
	for _, wrong := range misfits("answer", shape, answer) {
		t.Error(wrong)
	}
}

// ask runs one line and returns the JSON that it wrote, or nil for text.
func ask(t *testing.T, c *cluster.Cluster, line string) (answer any) {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = t.TempDir()
	cmd.Env = proc.Environ("BECKON_URL="+c.URL, "BECKON_TOKEN="+c.Token, "no_proxy=*")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s\n%v: %s", line, err, out)
	}
	if len(bytes.TrimSpace(out)) == 0 {
		t.Errorf("%s\nit wrote nothing", line)
	}
	if !bytes.HasPrefix(out, []byte("{")) {
		return nil
	}
	var all []any // a document, or a line for each of a list
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		answer = nil
		if err := d.Decode(&answer); err != nil {
			t.Fatalf("%s\nthe answer is no JSON: %v: %s", line, err, out)
		}
		all = append(all, answer)
	}
	if len(all) > 1 {
		return all
	}
	if problem, ok := answer.(map[string]any); ok && problem["code"] != nil && problem["detail"] != nil {
		t.Errorf("%s\nit was refused: %v", line, problem["detail"])
	}
	return answer
}

// holds reports whether v holds a member with this path, at any depth.
func holds(v any, path []string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return holds(one, path) })
	case map[string]any:
		if member, ok := v[path[0]]; ok && (len(path) == 1 || holds(member, path[1:])) {
			return true
		}
		for _, member := range v {
			if holds(member, path) {
				return true
			}
		}
	}
	return false
}

// misfits says where got has not the shape of want: each member that is shown
// is there and of the same type. More members, and other values, are fine.
func misfits(at string, want, got any) (wrong []string) {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return []string{at + " is no object"}
		}
		for name, member := range want {
			if found, ok := object[name]; ok {
				wrong = append(wrong, misfits(at+"."+name, member, found)...)
			} else {
				wrong = append(wrong, at+"."+name+" is not there")
			}
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) == 0 && len(want) > 0 {
			return []string{at + " is no list, or an empty one"}
		}
		for i := range min(len(want), 1) {
			wrong = append(wrong, misfits(fmt.Sprintf("%s[%d]", at, i), want[i], list[i])...)
		}
	default:
		if reflect.TypeOf(want) != reflect.TypeOf(got) {
			return []string{fmt.Sprintf("%s is %T, and %T is shown", at, got, want)}
		}
	}
	return wrong
}

func TestShapes(t *testing.T) {
	for want, misfit := range map[string]bool{
		`{"a": 1, "b": {"c": ["x"]}}`: false,
		`{"b": {}}`:                   false,
		`{"a": "1"}`:                  true,
		`{"d": 1}`:                    true,
		`{"b": {"c": [1]}}`:           true,
		`[]`:                          true,
	} {
		var shape, got any
		if err := json.Unmarshal([]byte(want), &shape); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"a": 2, "b": {"c": ["y", "z"]}, "more": null}`), &got); err != nil {
			t.Fatal(err)
		}
		if wrong := misfits("it", shape, got); (len(wrong) > 0) != misfit {
			t.Errorf("%s: %v", want, wrong)
		}
		if !holds(got, []string{"b", "c"}) || holds(got, []string{"a", "c"}) {
			t.Error("holds finds what is not there, or not what is")
		}
	}
	blocks := runnable("<!-- test: curl -->\n```sh\ncurl x\n```\n\n```json\n{}\n```\n<!-- test: curl -->\n```sh\ncurl y\n```\ntext\n")
	if want := []block{{"curl x\n", "{}\n"}, {"curl y\n", ""}}; !slices.Equal(blocks, want) {
		t.Errorf("found %+v", blocks)
	}
}
