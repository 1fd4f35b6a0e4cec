package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/beckon-fleet/beckon/api"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"web-1": true, "a": true, "7": true, "a--b": true, strings.Repeat("a", 40): true,
		"": false, strings.Repeat("a", 41): false, "-web": false, "web-": false, "-": false, "Web": false, "web_1": false, "web.1": false,
		"web 1": false, "web/1": false, "wéb": false, "web\n": false, "web\x00": false, "ｗｅｂ": false, "..": false, "{app}": false,
	} {
		if got := api.ValidName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestLabels(t *testing.T) {
	long := strings.Repeat("x", 63)
	many := api.Labels{}
	for i := range 33 {
		many[strings.Repeat("k", i+1)] = ""
	}
	for name, c := range map[string]struct {
		labels api.Labels
		good   bool
	}{
		"none":             {nil, true},
		"usual":            {api.Labels{"role": "web", "example.com/zone": "eu-1", "Rack_7": "a b: ü"}, true},
		"longest":          {api.Labels{long: long}, true},
		"empty value":      {api.Labels{"a": ""}, true},
		"too many":         {many, false},
		"empty key":        {api.Labels{"": "x"}, false},
		"long key":         {api.Labels{long + "x": ""}, false},
		"long key of dots": {api.Labels{"a" + strings.Repeat(".", 1000): ""}, false},
		"only dots":        {api.Labels{"../": ""}, false},
		"blank in the key": {api.Labels{"a b": ""}, false},
		"= in the key":     {api.Labels{"a=b": ""}, false},
		"long value":       {api.Labels{"a": long + "x"}, false},
		"comma":            {api.Labels{"a": "b,c"}, false},
		"=":                {api.Labels{"a": "b=c"}, false},
		"line break":       {api.Labels{"a": "b\nc"}, false},
		"NUL":              {api.Labels{"a": "\x00"}, false},
	} {
		err := c.labels.Validate()
		if c.good != (err == nil) || err != nil && !errors.Is(err, api.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInstance(t *testing.T) {
	long := strings.Repeat("e", 64)
	for text, want := range map[string]api.Instance{
		"abc.1.def":                   {Epoch: "abc", Starts: 1, Random: "def"},
		"A_b-9.9223372036854775807.Z": {Epoch: "A_b-9", Starts: 1<<63 - 1, Random: "Z"},
		long + ".7." + long:           {Epoch: long, Starts: 7, Random: long},
		"4sjfk3n5.3.k2":               {Epoch: "4sjfk3n5", Starts: 3, Random: "k2"},
	} {
		got, err := api.ParseInstance(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "a", "a.1", "a.1.b.c", "a.0.b", "a.-1.b", "a.x.b", "a..b", ".1.b", "a.1.", "a.9223372036854775808.b", "a. 1.b", "a.1.b ", "a.1.b\n",
		"a b.1.c", "a.1.ü", long + "e.1.b", "a.1." + long + "e", "a.1.5.b", "a,1,b",
	} {
		if got, err := api.ParseInstance(text); !errors.Is(err, api.Invalid) || !strings.Contains(err.Error(), api.HeaderAgentInstance) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// Field case: cloned machines. Two processes at one count, or an older one
// after a newer, are a fork.
func TestInherits(t *testing.T) {
	held := api.Instance{Epoch: "e1", Starts: 5, Random: "a"}
	for name, c := range map[string]struct {
		by   api.Instance
		want bool
	}{
		"itself":                    {held, true},
		"the next start":            {api.Instance{Epoch: "e1", Starts: 6, Random: "b"}, true},
		"a much later start":        {api.Instance{Epoch: "e1", Starts: 500, Random: "a"}, true},
		"another at the same count": {api.Instance{Epoch: "e1", Starts: 5, Random: "b"}, false},
		"an earlier start":          {api.Instance{Epoch: "e1", Starts: 4, Random: "a"}, false},
		"another journal":           {api.Instance{Epoch: "e2", Starts: 6, Random: "a"}, false},
		"nobody":                    {api.Instance{}, false},
	} {
		if got := c.by.Inherits(held); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWait(t *testing.T) {
	for text, want := range map[string]api.Wait{
		"wait=30": 30, "wait=0": 0, "respond-async, wait=5": 5, "wait=5,respond-async": 5, " wait=7 ": 7, "wait=900": api.MaxWait,
		"wait=2147483647": api.MaxWait, "return=minimal": 0, "": 0, "waits=5": 0, "handling=lenient, , ": 0,
	} {
		var got api.Wait
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"wait=", "wait=-1", "wait=soon", "wait=1.5", "wait=+5", "wait=99999999999999999999", "wait=5;x"} {
		if err := new(api.Wait).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	text, err := api.Wait(30).MarshalText()
	if err != nil || string(text) != "wait=30" || api.Wait(30).Duration() != 30*time.Second {
		t.Errorf("it is written %s: %v", text, err)
	}
}

func TestCutIsBetweenCharacters(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", 300), strings.Repeat("é", 300), "x" + strings.Repeat("€", 300), "xyz" + strings.Repeat("😀", 300)} {
		for most := 4; most < 64; most++ {
			got := api.Cut(s, most)
			whole := strings.TrimSuffix(got, " …")
			switch {
			case len(got) > most || !utf8.ValidString(got) || !strings.HasPrefix(s, whole):
				t.Errorf("%.10q in %d bytes became %q", s, most, got)
			case len(s) > most && (got == whole || len(got) < most-3):
				t.Errorf("%.10q in %d bytes is unmarked, or shorter than it need be: %q", s, most, got)
			case len(s) <= most && got != s:
				t.Errorf("%q was cut to %q", s, got)
			}
		}
	}
}

func TestOfflineAfter(t *testing.T) {
	for pace, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 10 * time.Second: 30 * time.Second, time.Minute: 3 * time.Minute} {
		if got := api.OfflineAfter(pace); got != want {
			t.Errorf("at %v: %v", pace, got)
		}
	}
}

func TestPageLimit(t *testing.T) {
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 200: 200, 201: 200, 1 << 40: 200} {
		if got := (api.Cursor{Limit: limit}).PageLimit(); got != want {
			t.Errorf("%d: %d", limit, got)
		}
	}
}

func TestNothingFollowsAnEndAndNothingExpiresAfterAnAck(t *testing.T) {
	all := []api.State{
		api.Queued, api.Delivered, api.Acked, api.Succeeded, api.Failed, api.Rejected, api.Superseded, api.Expired, api.Canceled, api.Lost, api.Abandoned,
	}
	legal := map[string]bool{}
	for from, to := range map[api.State][]api.State{
		api.Queued:    {api.Delivered, api.Canceled, api.Expired},
		api.Delivered: {api.Acked, api.Rejected, api.Canceled, api.Expired},
		api.Acked:     {api.Succeeded, api.Failed, api.Rejected, api.Superseded, api.Lost, api.Abandoned},
	} {
		for _, one := range to {
			legal[string(from+" "+one)] = true
		}
	}
	open := 0
	for _, from := range all {
		for _, to := range all {
			if from.May(to) != legal[string(from+" "+to)] {
				t.Errorf("%s to %s: %v", from, to, from.May(to))
			}
		}
		if !from.Ended() {
			open++
		}
	}
	if open != 3 || !api.State("of_a_newer_server").Ended() {
		t.Errorf("%d states are no end", open)
	}
}

func TestNeverRan(t *testing.T) {
	for state, want := range map[api.State]bool{
		api.Expired: true, api.Canceled: true, api.Rejected: true, api.Superseded: true,
		api.Queued: false, api.Delivered: false, api.Acked: false, api.Succeeded: false, api.Failed: false, api.Lost: false, api.Abandoned: false, "newer": false,
	} {
		if got := state.NeverRan(); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
	for outcome, want := range map[api.Outcome]api.State{
		api.OutcomeSucceeded: api.Succeeded, api.OutcomeFailed: api.Failed, api.OutcomeRejected: api.Rejected,
		api.OutcomeSuperseded: api.Superseded, api.OutcomeUnknown: api.Lost, "newer": "",
	} {
		if got := outcome.State(); got != want || want != "" && !api.Acked.May(got) {
			t.Errorf("%s ends as %q", outcome, got)
		}
	}
}

func TestKinds(t *testing.T) {
	names := map[string]bool{}
	for _, k := range api.Kinds {
		known := k.AfterCrash() == api.Repeat || k.AfterCrash() == api.Probe || k.AfterCrash() == api.Never
		if names[k.Name()] || k.Deadline() <= 0 || !known || k.Tier() < api.TierObserve || k.Tier() > api.TierManage {
			t.Errorf("%s: its name is taken, or it lacks a deadline, after_crash or a tier", k.Name())
		}
		names[k.Name()] = true
		if found, err := api.KindNamed(k.Name()); err != nil || found.Name() != k.Name() {
			t.Errorf("%s is not found: %v", k.Name(), err)
		}
		for _, payload := range []string{"", "null", "{}", "[]", "7", `"x"`, `{"app_id": 7}`, `{"app_id": "../x", "app": "web"}`, `{"app_id": "app_1", "app": "W E B"}`, "\x00", "{"} {
			if err := k.Check(json.RawMessage(payload)); !errors.Is(err, api.Invalid) {
				t.Errorf("%s takes %q: %v", k.Name(), payload, err)
			}
		}
	}
	if _, err := api.KindNamed("shell"); !errors.Is(err, api.Invalid) || !strings.Contains(err.Error(), `"shell"`) {
		t.Errorf("got %v", err)
	}
	// The server refuses a misspelt member by name; an agent reads on.
	newer := json.RawMessage(`{"app_id": "app_1", "app": "web-1", "of_a_newer_server": {"a": [1]}}`)
	for _, k := range []api.AnyKind{api.Restart, api.Stop, api.Remove} {
		if err := k.Check(newer); !errors.Is(err, api.Invalid) || !strings.Contains(err.Error(), "of_a_newer_server") {
			t.Errorf("%s: %v", k.Name(), err)
		}
		if err := k.Check(json.RawMessage(`{"app_id": "app_1", "app": "web-1"}`)); err != nil {
			t.Errorf("%s: %v", k.Name(), err)
		}
	}
	if _, err := api.Restart.Parse(newer); err != nil {
		t.Errorf("an agent reads of a newer server: %v", err)
	}
}

// Commands of one app share a lane, whatever they do; those of two never do.
func TestLanes(t *testing.T) {
	deploy := api.DeployPayload{AppID: "app_1"}
	lanes := []string{
		api.Deploy.Lane(deploy), api.Restart.Lane(api.RestartPayload{AppID: "app_1"}), api.Stop.Lane(api.StopPayload{AppID: "app_1"}),
		api.Remove.Lane(api.RemovePayload{AppID: "app_1"}),
	}
	for _, lane := range lanes {
		if lane != lanes[0] || lane == api.Deploy.Lane(api.DeployPayload{AppID: "app_2"}) {
			t.Errorf("the lanes are %v", lanes)
		}
	}
}
