package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
)

const capacity = `"cpu_cores": 8, "mem_bytes": 33554432000, "disk_bytes": 512000000000`

func beat(t *testing.T, members string) api.HeartbeatRequest {
	t.Helper()
	var req api.HeartbeatRequest
	if err := json.Unmarshal([]byte(`{`+capacity+`, `+members+`}`), &req); err != nil {
		t.Fatalf("%.100s: %v", members, err)
	}
	if err := req.Validate(); err != nil || req.CPUCores != 8 {
		t.Errorf("%.100s: the capacity is %+v: %v", members, req, err)
	}
	return req
}

// Field case: one bad sample kills the whole report. Only the capacity can; of
// anything else that does not fit nothing is taken, and it is named.
func TestHeartbeatTakesWhatFits(t *testing.T) {
	whole := `"n": 7, "self": {"rss_bytes": 5, "goroutines": 3}, "wake": {"rung": "stream"}, "applied": {"commands": 41}, "unacked_results": ["cmd_1"]`
	if req := beat(t, whole); req.Dropped != nil || req.N != 7 || req.Self.Goroutines != 3 || req.Applied.Commands != 41 || req.Wake.Rung != "stream" || len(req.UnackedResults) != 1 {
		t.Errorf("got %+v", req)
	}
	for members, dropped := range map[string]string{
		`"n": "7"`:                  "n",
		`"n": 1.5`:                  "n",
		`"n": 1e999`:                "n",
		`"n": 99999999999999999999`: "n",
		`"self": 7`:                 "self",
		`"self": {"rss_bytes": 5, "goroutines": "many"}`:         "self",
		`"self": {"rss_bytes": 1e999}`:                           "self",
		`"wake": "stream"`:                                       "wake",
		`"wake": {"rung": 7}`:                                    "wake",
		`"applied": {"commands": "41"}`:                          "applied",
		`"unacked_results": ["cmd_1", 7]`:                        "unacked_results",
		`"unacked_results": {"cmd_1": 1}`:                        "unacked_results",
		`"hello": []`:                                            "hello",
		`"hello": "hi"`:                                          "hello",
		`"hello": {"tier": 4}`:                                   "hello.tier",
		`"hello": {"tier": -1}`:                                  "hello.tier",
		`"hello": {"tier": "2", "os": "linux", "boot_id": 7}`:    "hello.boot_id hello.tier",
		`"hello": {"release": {"kind": 7}}`:                      "hello.release",
		`"hello": {"runtimes": {"docker": 28}}`:                  "hello.runtimes",
		`"hello": {"runtimes": ` + object(9) + `}`:               "hello.runtimes",
		`"hello": {"capabilities": "config-digest"}`:             "hello.capabilities",
		`"hello": {"capabilities": ["config-digest", {}]}`:       "hello.capabilities",
		`"n": [], "self": [], "wake": [], "hello": {"tier": []}`: "n self wake hello.tier",
		`"metrics": {"node": {"cpu_pct": 1e999}}`:                "", // nobody here knows it
		`"of_a_newer_agent": {"a": [[[]]]}`:                      "",
		`"n": null, "hello": null, "self": null`:                 "",
	} {
		req := beat(t, members)
		if got := strings.Join(req.Dropped, " "); got != dropped {
			t.Errorf("%s: dropped are %q, want %q", members, got, dropped)
		}
		hello := req.Hello
		req.Dropped, req.Hello = nil, nil
		if text, err := json.Marshal(req); err != nil || string(text) != `{`+strings.ReplaceAll(capacity, " ", "")+`}` {
			t.Errorf("%s: of what does not fit something was taken: %s, %v", members, text, err)
		}
		if hello != nil && (hello.Tier != nil || hello.Runtimes != nil || hello.Release != nil || hello.Capabilities != nil || hello.BootID != "") {
			t.Errorf("%s: of what does not fit something was taken: %+v", members, hello)
		}
	}
}

func object(n int) string {
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"r%d": "1"`, i))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func TestOnlyTheCapacityCanRefuseAHeartbeat(t *testing.T) {
	for text, want := range map[string]string{
		`{"cpu_cores": "8", "mem_bytes": 1, "disk_bytes": 1}`:   "cpu_cores does not fit",
		`{"cpu_cores": 8, "mem_bytes": 1e999, "disk_bytes": 1}`: "mem_bytes does not fit",
		`{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": 1.5}`:   "disk_bytes does not fit",
		`{"cpu_cores": 0, "mem_bytes": 1, "disk_bytes": 1}`:     "must be above 0",
		`{"cpu_cores": 8, "mem_bytes": -1, "disk_bytes": 1}`:    "must be above 0",
		`{"cpu_cores": 8, "mem_bytes": 1}`:                      "must be above 0",
		`{"cpu_cores": 8, "mem_bytes": 1, "disk_bytes": null}`:  "must be above 0",
		`{}`:   "must be above 0",
		`null`: "must be above 0",
	} {
		var req api.HeartbeatRequest
		err := json.Unmarshal([]byte(text), &req)
		if err == nil {
			err = req.Validate()
		}
		if !errors.Is(err, api.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{``, `[]`, `7`, `"x"`, `{"cpu_cores": NaN}`, `{"cpu_cores": 8`} {
		if err := json.Unmarshal([]byte(text), new(api.HeartbeatRequest)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestHelloIsCutToItsLimits(t *testing.T) {
	for name, text := range map[string]string{
		"short": "web-1", "exact": strings.Repeat("x", 255), "long": strings.Repeat("x", 10_000),
		"two bytes": strings.Repeat("é", 200), "three": "xy" + strings.Repeat("€", 200), "four": strings.Repeat("😀", 200),
	} {
		h := beat(t, fmt.Sprintf(`"hello": {"boot_id": %[1]q, "hostname": %[1]q, "os": %[1]q, "arch": %[1]q, "kernel": %[1]q}`, text)).Hello
		for _, got := range []string{h.BootID, h.Hostname, h.OS, h.Arch, h.Kernel} {
			if len(got) > 255 || !utf8.ValidString(got) || len(text) <= 255 && got != text || len(got) < min(len(text), 250) {
				t.Errorf("%s: %d bytes became %d: %q", name, len(text), len(got), got)
			}
		}
	}
}

func TestCapabilities(t *testing.T) {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf(`"c%d"`, i), fmt.Sprintf(`"c%d"`, i), `"no good"`, `""`, `"`+strings.Repeat("x", 41)+`"`)
	}
	got := beat(t, `"hello": {"capabilities": [`+strings.Join(names, ", ")+`]}`)
	kept := got.Hello.Capabilities
	if len(kept) != 32 || kept[0] != "c0" || kept[31] != "c31" || len(slices.Compact(slices.Clone(kept))) != 32 || got.Dropped != nil {
		t.Errorf("kept are %v, dropped %v", kept, got.Dropped)
	}
	if got := beat(t, `"hello": {"capabilities": ["`+strings.Repeat("x", 40)+`"], "tier": 0, "runtimes": `+object(8)+`}`).Hello; len(got.Capabilities) != 1 || *got.Tier != 0 || len(got.Runtimes) != 8 {
		t.Errorf("got %+v", got)
	}
}
