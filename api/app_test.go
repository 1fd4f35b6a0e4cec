package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// good is a spec with everything in it.
func good() api.AppSpec {
	return api.AppSpec{
		Image: "registry.example:5000/team/web:1.2@sha256:00", Command: []string{"serve", "", "--all"}, Env: map[string]string{"A": "1", "b.c-d": "", "UNI": "ü\n"},
		Port: 8080, Publish: "0.0.0.0:80", Resources: api.Resources{CPUCores: 0.5, MemBytes: 6 << 20}, Restart: api.RestartOnFailure, ObserveS: 240,
	}
}

func TestAppSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*api.AppSpec)
		names  string // the member that is named; "" for a good one
	}{
		"everything":          {func(*api.AppSpec) {}, ""},
		"only an image":       {func(s *api.AppSpec) { *s = api.AppSpec{Image: "web"} }, ""},
		"no image":            {func(s *api.AppSpec) { s.Image = "" }, "image"},
		"long image":          {func(s *api.AppSpec) { s.Image = strings.Repeat("x", 256) }, "image"},
		"blank in the image":  {func(s *api.AppSpec) { s.Image = "a b" }, "image"},
		"line break in image": {func(s *api.AppSpec) { s.Image = "a\n" }, "image"},
		"NUL in the image":    {func(s *api.AppSpec) { s.Image = "a\x00" }, "image"},
		"many words":          {func(s *api.AppSpec) { s.Command = make([]string, 101) }, "command"},
		"most words":          {func(s *api.AppSpec) { s.Command = make([]string, 100) }, ""},
		"NUL in a word":       {func(s *api.AppSpec) { s.Command = []string{"a", "\x00"} }, "command"},
		"many variables":      {func(s *api.AppSpec) { s.Env = variables(201) }, "env"},
		"most variables":      {func(s *api.AppSpec) { s.Env = variables(200) }, ""},
		"= in a variable":     {func(s *api.AppSpec) { s.Env = map[string]string{"A=B": ""} }, "env"},
		"nameless variable":   {func(s *api.AppSpec) { s.Env = map[string]string{"": "x"} }, "env"},
		"NUL in a name":       {func(s *api.AppSpec) { s.Env = map[string]string{"A\x00": ""} }, "env"},
		"NUL in a value":      {func(s *api.AppSpec) { s.Env = map[string]string{"A": "x\x00"} }, "env"},
		"port below 0":        {func(s *api.AppSpec) { s.Port = -1 }, "port"},
		"port too high":       {func(s *api.AppSpec) { s.Port = 65536 }, "port"},
		"no port":             {func(s *api.AppSpec) { s.Port, s.Publish = 0, "" }, ""},
		"publish, no port":    {func(s *api.AppSpec) { s.Port = 0 }, "publish"},
		"cores below 0":       {func(s *api.AppSpec) { s.Resources.CPUCores = -0.1 }, "resources.cpu_cores"},
		"cores too many":      {func(s *api.AppSpec) { s.Resources.CPUCores = 1025 }, "resources.cpu_cores"},
		"no limits":           {func(s *api.AppSpec) { s.Resources = api.Resources{} }, ""},
		"memory too little":   {func(s *api.AppSpec) { s.Resources.MemBytes = 6<<20 - 1 }, "resources.mem_bytes"},
		"memory below 0":      {func(s *api.AppSpec) { s.Resources.MemBytes = -1 }, "resources.mem_bytes"},
		"observed below 0":    {func(s *api.AppSpec) { s.ObserveS = -1 }, "observe_s"},
		"observed too long":   {func(s *api.AppSpec) { s.ObserveS = 241 }, "observe_s"},
		"unknown policy":      {func(s *api.AppSpec) { s.Restart = "sometimes" }, "restart"},
		"never":               {func(s *api.AppSpec) { s.Restart = api.RestartNever }, ""},
	} {
		spec := good()
		c.change(&spec)
		err := spec.Validate()
		if c.names == "" && err != nil || c.names != "" && (!errors.Is(err, api.Invalid) || !strings.Contains(api.AsError(err).Detail, c.names)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func variables(n int) map[string]string {
	env := map[string]string{}
	for i := range n {
		env[fmt.Sprint("V", i)] = ""
	}
	return env
}

func TestPublish(t *testing.T) {
	for text, want := range map[string]bool{
		"0.0.0.0:80": true, "127.0.0.1:65535": true, "[::]:8080": true, "[fd00::1]:1": true, "": true,
		"8080": false, ":8080": false, "localhost:80": false, "web.example:80": false, "0.0.0.0": false, "0.0.0.0:": false, "0.0.0.0:0": false, "0.0.0.0:65536": false,
		"0.0.0.0:-1": false, "0.0.0.0:+80": false, "0.0.0.0:http": false, "0.0.0.0: 80": false, "::1:80": false, "256.0.0.1:80": false, "0.0.0.0:80:80": false,
		"0.0.0.0:80/udp": false, "1.2.3:80": false, "0.0.0.0:80\n": false,
	} {
		spec := good()
		spec.Publish = text
		if err := spec.Validate(); want != (err == nil) || err != nil && !strings.Contains(err.Error(), "publish must be ADDR:PORT") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestObserve(t *testing.T) {
	for seconds, want := range map[int]time.Duration{0: 10 * time.Second, 1: time.Second, 240: 4 * time.Minute} {
		if got := (api.AppSpec{ObserveS: seconds}).Observe(); got != want || got > api.Deploy.Deadline()/3 {
			t.Errorf("%d: %v", seconds, got)
		}
	}
}

func TestPlacement(t *testing.T) {
	for name, c := range map[string]struct {
		app   string
		place api.Placement
		good  bool
	}{
		"a node":     {"web", api.Placement{Node: "web-1"}, true},
		"labels":     {"web", api.Placement{Labels: api.Labels{"role": "web"}}, true},
		"nowhere":    {"web", api.Placement{}, false},
		"both":       {"web", api.Placement{Node: "web-1", Labels: api.Labels{"role": "web"}}, false},
		"bad name":   {"Web", api.Placement{Node: "web-1"}, false},
		"bad labels": {"web", api.Placement{Labels: api.Labels{"a b": ""}}, false},
	} {
		err := api.PutAppRequest{App: c.app, AppSpec: good(), Placement: c.place}.Validate()
		if c.good != (err == nil) || err != nil && !errors.Is(err, api.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeployPayload(t *testing.T) {
	payload := func(change func(*api.DeployPayload)) api.DeployPayload {
		p := api.DeployPayload{DeploymentID: "dep_1", AppID: "app_1", App: "web", Revision: 1, AppSpec: good()}
		change(&p)
		return p
	}
	if err := payload(func(*api.DeployPayload) {}).Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*api.DeployPayload){
		"deployment_id": func(p *api.DeployPayload) { p.DeploymentID = "../dep" },
		"revision":      func(p *api.DeployPayload) { p.Revision = 0 },
		"app_id":        func(p *api.DeployPayload) { p.AppID = strings.Repeat("x", 65) },
		"app is":        func(p *api.DeployPayload) { p.App = "a/b" },
		"image":         func(p *api.DeployPayload) { p.Image = "" },
	} {
		if err := payload(change).Validate(); !errors.Is(err, api.Invalid) || !strings.Contains(api.AsError(err).Detail, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
