package e2e

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/api/seal"
)

// protocolChecks hold PROTOCOL.md to the code. Each says what the document says
// and what the code says, by name. broken is a row of the document and a wrong
// one in its place, which the check must notice.
var protocolChecks = []struct {
	name   string
	said   func(protocolText, apiSource) (document, code map[string]string)
	broken [2]string
}{
	{"codes", saidOfCodes, [2]string{"| `not_found` | 404 |", "| `not_found` | 410 |"}},
	{"kinds", saidOfKinds, [2]string{"| 1 | 5 min | probe |", "| 1 | 5 min | repeat |"}},
	{"transitions", saidOfStates, [2]string{"| `queued` | `delivered`, ", "| `queued` | `acked`, `delivered`, "}},
	{"calls", saidOfCalls, [2]string{"| `POST /agent/v1/join` | 201 |", "| `POST /agent/v1/join` | 200 |"}},
	{"paths", saidOfPaths, [2]string{"$BECKON_URL/api/v1/status", "$BECKON_URL/api/v1/state"}},
	{"members", saidOfMembers, [2]string{"| `cpu_cores` | integer |", "| `cpu_cores`? | integer |"}},
	{"values", saidOfValues, [2]string{"| `replaced` | a newer", "| `superseded` | a newer"}},
	{"limits", saidOfLimits, [2]string{"| `RenewGrace` | 7 d |", "| `RenewGrace` | 8 d |"}},
	{"tiers", saidOfTiers, [2]string{"| 2 | deploy |", "| 2 | manage |"}},
	{"crash points", saidOfCrashPoints, [2]string{"| agent | `journalled` * |", "| agent | `journaled` * |"}},
	{"words", saidOfWords, [2]string{"1.3.6.1.4.1.32473.2451.1", "1.3.6.1.4.1.32473.2451.2"}},
	{"vector", saidOfVector, [2]string{"seq              1796029976715", "seq              1796029976716"}},
	{"links", saidOfLinks, [2]string{"(#64-fetch)", "(#65-fetch)"}},
}

// TestProtocol names what PROTOCOL.md lacks, has too much, or says otherwise
// than the code; and that each of its checks can fail.
func TestProtocol(t *testing.T) {
	text, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	source := parseAPI(t)
	for _, c := range protocolChecks {
		t.Run(c.name, func(t *testing.T) {
			for _, problem := range differences(c.said(protocolText(text), source)) {
				t.Error(problem)
			}
			if !strings.Contains(string(text), c.broken[0]) {
				t.Fatalf("PROTOCOL.md lacks %q, with which this check is tried", c.broken[0])
			}
			broken := strings.ReplaceAll(string(text), c.broken[0], c.broken[1])
			if len(differences(c.said(protocolText(broken), source))) == 0 {
				t.Errorf("the check does not notice %q instead of %q", c.broken[1], c.broken[0])
			}
		})
	}
}

// TestProtocolWithOpenSSL runs the worked example as a reader would, and once
// more with another number.
func TestProtocolWithOpenSSL(t *testing.T) {
	for _, tool := range []string{"bash", "openssl", "jq", "basenc"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("BECKON_CI") == "1" {
			t.Fatalf("%s is missing; install bash, openssl, jq and coreutils", tool)
		} else if err != nil {
			t.Skipf("%s is missing; install bash, openssl, jq and coreutils", tool)
		}
	}
	text, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	script := protocolText(text).block("test: openssl")
	vector, _ := saidOfVector(protocolText(text), apiSource{})
	out, err := runScript(t, script)
	for _, want := range []string{vector["key id"] + "\n", vector["sha256 of input"], "Signature Verified Successfully"} {
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("the example does not print %q (%v):\n%s", want, err, out)
		}
	}
	out, err = runScript(t, strings.ReplaceAll(script, `"seq":1796029976715`, `"seq":1796029976716`))
	if err == nil || strings.Contains(out, "Verified Successfully") {
		t.Errorf("the example takes another seq for good:\n%s", out)
	}
}

func runScript(t *testing.T, script string) (string, error) {
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	c.Dir = t.TempDir()
	out, err := c.CombinedOutput()
	return string(out), err
}

func differences(document, code map[string]string) (problems []string) {
	if len(code) == 0 {
		return []string{"nothing was found in the code: this test is broken"}
	}
	for name, want := range code {
		if got, ok := document[name]; !ok {
			problems = append(problems, fmt.Sprintf("%s is missing in PROTOCOL.md; the code says %q", name, want))
		} else if got != want {
			problems = append(problems, fmt.Sprintf("%s: PROTOCOL.md says %q, the code says %q", name, got, want))
		}
	}
	for name := range document {
		if _, ok := code[name]; !ok {
			problems = append(problems, name+" is in PROTOCOL.md and not in the code")
		}
	}
	slices.Sort(problems)
	return problems
}

// protocolText is the document. What is checked in it stands under a comment,
// which names it.
type protocolText string

type tableRow struct {
	first string
	cells map[string]string // by the column's title
}

// name is the first thing in the row that is set as code.
func (r tableRow) name() string { return cmp.Or(append(codeIn(r.first), r.first)...) }

func (d protocolText) table(marker string) (rows []tableRow) {
	_, after, _ := strings.Cut(string(d), "<!-- "+marker+" -->\n")
	var titles []string
	for line := range strings.Lines(after) {
		inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok {
			break
		}
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		r := tableRow{cells: map[string]string{}}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if i < len(titles) {
				r.cells[titles[i]] = cells[i]
			}
		}
		if r.first = cells[0]; titles == nil {
			titles = cells
		} else if r.first != "---" {
			rows = append(rows, r)
		}
	}
	return rows
}

// tables are those whose comments begin with kind, by what follows it.
func (d protocolText) tables(kind string) map[string][]tableRow {
	found := map[string][]tableRow{}
	for _, m := range regexp.MustCompile(`<!-- `+kind+`: (\w+) -->`).FindAllStringSubmatch(string(d), -1) {
		found[m[1]] = d.table(kind + ": " + m[1])
	}
	return found
}

func (d protocolText) block(marker string) string {
	_, after, _ := strings.Cut(string(d), "<!-- "+marker+" -->\n```")
	_, after, _ = strings.Cut(after, "\n")
	inside, _, _ := strings.Cut(after, "\n```")
	return inside
}

func codeIn(cell string) (spans []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// amount is "15 min" or "200 bytes" as the code prints it.
func amount(cell string) string {
	number, unit, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	length, ok := map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[unit]
	if err != nil || !ok {
		return number
	}
	return (time.Duration(n) * length).String()
}

func yes(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func saidOfCodes(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, r := range d.table("codes") {
		document[r.name()] = fmt.Sprintf("%s, %s, exit %s: %s", r.cells["status"], r.cells["agent"], r.cells["exit"], r.cells["meaning"])
	}
	words := map[api.Then]string{api.ThenRetry: "retry", api.ThenGiveUp: "give up", api.ThenSlow: "slow", api.ThenStop: "stop"}
	for _, c := range api.Codes() {
		code[string(c)] = fmt.Sprintf("%d, %s, exit %d: %s", c.Status(), words[c.Then()], c.Exit(), c.Meaning())
	}
	return document, code
}

func saidOfKinds(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, r := range d.table("kinds") {
		heading := strings.Contains(string(d), "\n#### `"+r.name()+"`\n")
		document[r.name()] = fmt.Sprintf("%s, %s, tier %s, %s, %s, supersedes %s, own heading %s", r.cells["payload"], r.cells["result"],
			r.cells["tier"], amount(r.cells["deadline"]), r.cells["after_crash"], r.cells["supersedes"], yes(heading))
	}
	for _, k := range api.Kinds {
		of := regexp.MustCompile(`api\.(\w+),.*api\.(\w+)\]$`).FindStringSubmatch(reflect.TypeOf(k).String())
		code[k.Name()] = fmt.Sprintf("%s, %s, tier %d, %v, %s, supersedes %s, own heading yes",
			of[1], of[2], k.Tier(), k.Deadline(), k.AfterCrash(), yes(k.Supersedes()))
	}
	return document, code
}

func saidOfStates(d protocolText, s apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, r := range d.table("transitions") {
		to := codeIn(r.cells["may become"])
		slices.Sort(to)
		document[r.name()] = fmt.Sprintf("%v, ended %s, never ran %s", to, r.cells["ended"], r.cells["never ran"])
	}
	for _, from := range s.values["State"] {
		to := slices.DeleteFunc(slices.Sorted(slices.Values(s.values["State"])), func(to string) bool { return !api.State(from).May(api.State(to)) })
		code[from] = fmt.Sprintf("%v, ended %s, never ran %s", to, yes(api.State(from).Ended()), yes(api.State(from).NeverRan()))
	}
	return document, code
}

// saidOfCalls compares the first status of each call: the one without a wait.
func saidOfCalls(d protocolText, s apiSource) (document, code map[string]string) {
	document = map[string]string{}
	for _, r := range append(d.table("calls: agent"), d.table("calls: operator")...) {
		document[r.name()], _, _ = strings.Cut(r.cells["success"], ",")
	}
	return document, s.calls
}

// saidOfPaths finds calls that are mentioned anywhere and do not exist.
func saidOfPaths(d protocolText, s apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, path := range regexp.MustCompile(`/(?:agent|api)/v1/[a-z][\w{}$/-]*`).FindAllString(string(d), -1) {
		document[path] = ""
		for call := range s.calls {
			_, pattern, _ := strings.Cut(call, " ")
			if regexp.MustCompile(`^` + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(pattern, `[^/]+`) + `$`).MatchString(path) {
				code[path] = ""
			}
		}
	}
	return document, code
}

func saidOfMembers(d protocolText, s apiSource) (document, code map[string]string) {
	document = map[string]string{}
	for name, rows := range d.tables("fields") {
		for _, r := range rows {
			document[name+"."+r.name()] = r.cells["type"] + map[bool]string{true: ", may be absent"}[strings.HasSuffix(r.first, "?")]
		}
	}
	return document, s.members
}

func saidOfValues(d protocolText, s apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for name, rows := range d.tables("values") {
		for _, r := range rows {
			document[name+" "+r.name()] = strings.Join(codeIn(r.cells["the command becomes"]), "")
		}
	}
	for name, values := range s.values {
		for _, v := range values {
			if name != "Code" && name != "State" { // they have tables of their own
				code[name+" "+v] = ""
			}
			if name == "Outcome" {
				code[name+" "+v] = string(api.Outcome(v).State())
			}
		}
	}
	return document, code
}

func saidOfLimits(d protocolText, s apiSource) (document, code map[string]string) {
	document = map[string]string{}
	for _, r := range d.table("limits") {
		document[r.name()] = amount(r.cells["value"])
	}
	return document, s.limits
}

func saidOfTiers(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, r := range d.table("tiers") {
		document[r.cells["name"]] = r.first
	}
	for tier, name := range map[api.Tier]string{api.TierObserve: "observe", api.TierOperate: "operate", api.TierDeploy: "deploy", api.TierManage: "manage"} {
		code[name] = strconv.Itoa(int(tier))
	}
	return document, code
}

func saidOfCrashPoints(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, r := range d.table("life") {
		if strings.HasSuffix(r.cells["step"], "*") {
			document[r.first+" "+codeIn(r.cells["step"])[0]] = ""
		}
	}
	point := regexp.MustCompile(`fault\.At\("([^"]+)"\)`)
	for _, side := range []string{"server", "agent"} {
		filepath.WalkDir("../"+side, func(path string, _ fs.DirEntry, _ error) error {
			if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(path, ".go") {
				for _, m := range point.FindAllStringSubmatch(string(text), -1) {
					code[side+" "+m[1]] = ""
				}
			}
			return nil
		})
	}
	return document, code
}

// saidOfWords are strings of the wire that must stand somewhere.
func saidOfWords(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	for _, word := range []string{
		seal.SignerUsage.String(), string(seal.TagCommand), string(seal.TagTrust), api.ServerName, api.HeaderProtocol, api.HeaderAgentVersion,
		api.HeaderAgentInstance, api.HeaderProtocolMin, api.HeaderProtocolMax, api.HeaderRequestID,
		api.StreamCursors, api.StreamReplaced, api.StreamRevoked,
	} {
		code[word] = ""
		if strings.Contains(string(d), "`"+word+"`") {
			document[word] = ""
		}
	}
	return document, code
}

// saidOfVector makes the worked example anew from its seed.
func saidOfVector(d protocolText, _ apiSource) (document, code map[string]string) {
	document = map[string]string{}
	for line := range strings.Lines(d.block("vector: envelope")) {
		words := strings.Fields(line)
		document[strings.Join(words[:len(words)-1], " ")] = words[len(words)-1]
	}
	document["envelope"] = regexp.MustCompile(`(?m)^\{"data".*\}$`).FindString(d.block("test: openssl"))
	var e api.Envelope
	seed, err := hex.DecodeString(document["seed"])
	if json.Unmarshal([]byte(document["envelope"]), &e) != nil || err != nil || len(seed) != ed25519.SeedSize {
		return document, nil
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	node := document["node id"]
	again := seal.Signer{ID: seal.KeyID(public), Private: private}.Sign(seal.TagCommand, node, e.Seq, []byte(e.Data))
	before := fmt.Appendf(nil, "%s%c%c%s", seal.TagCommand, 0, len(node), node)
	for shift := 56; shift >= 0; shift -= 8 {
		before = append(before, byte(e.Seq>>shift))
	}
	input := sha256.Sum256(append(slices.Clip(before), e.Data...))
	text, err := json.Marshal(again)
	if err != nil || seal.Verify(e, seal.TagCommand, node, seal.Keys{again.Key: public}) != nil {
		return document, nil
	}
	return document, map[string]string{
		"seed": hex.EncodeToString(seed), "public key": hex.EncodeToString(public), "key id": again.Key,
		"tag": string(seal.TagCommand), "node id": node, "seq": strconv.FormatInt(e.Seq, 10), "before data": hex.EncodeToString(before),
		"data length": strconv.Itoa(len(e.Data)), "sha256 of input": hex.EncodeToString(input[:]),
		"signature": hex.EncodeToString(again.Signature), "envelope": string(text),
	}
}

func saidOfLinks(d protocolText, _ apiSource) (document, code map[string]string) {
	document, code = map[string]string{}, map[string]string{}
	slugs := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(d), -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		slugs[strings.ReplaceAll(plain, " ", "-")] = true
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(string(d), -1) {
		if document[m[1]] = ""; slugs[m[1]] {
			code[m[1]] = ""
		}
	}
	return document, code
}
