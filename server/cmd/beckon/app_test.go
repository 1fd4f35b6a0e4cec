package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

func TestPutApp(t *testing.T) {
	f := newFar(t)
	answers(f, api.PutApp, api.PutAppResponse{App: webApp(), Created: true})
	spec := filepath.Join(t.TempDir(), "spec.json")
	if err := os.WriteFile(spec, []byte(`{"image":"x","labels":{"role":"web"},"resources":{"cpu_cores":1}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"app put web --image x --node web-1": `{"image":"x","node":"web-1"}`,
		"app put --image x:1 --node web-1 web --command serve~--dir~/srv --env A=1,2 --env B= --env C=a=b --port 80 --publish 0.0.0.0:8088 --cpu 0.5 --memory 256m --restart on_failure --observe 15s": `{"image":"x:1","command":["serve","--dir","/srv"],"env":{"A":"1,2","B":"","C":"a=b"},"port":80,"publish":"0.0.0.0:8088","resources":{"cpu_cores":0.5,"mem_bytes":268435456},"restart":"on_failure","observe_s":15,"node":"web-1"}`,
		"app put web --image x --arg sh --arg -c --arg echo~hi,~you --label role=web --label zone=a":                                                                                                   `{"image":"x","command":["sh","-c","echo hi, you"],"labels":{"role":"web","zone":"a"}}`,
		"app put web --file " + spec: `{"image":"x","resources":{"cpu_cores":1},"labels":{"role":"web"}}`,
	} {
		f.sent = nil
		code, out, note := f.run(line)
		expect(t, line, code, out, note, 0, "app web is stored: registry.example/web:4 on nodes with role=web\n", "run it with: beckon deploy web\n")
		if len(f.sent) != 1 || f.sent[0] != "PUT /api/v1/apps/web "+want {
			t.Errorf("%s:\nsent %s\nwant %s", line, f.sent, want)
		}
	}
	f.sent = nil
	code, _, note := f.beckon(`{"image": "x", "node": "web-1"}`, "app", "put", "web", "--file", "-")
	if code != 0 || f.sent[0] != `PUT /api/v1/apps/web {"image":"x","node":"web-1"}` {
		t.Errorf("from stdin: exit %d, sent %s, %s", code, f.sent, note)
	}
}

func TestPutAppThatMakesNoSense(t *testing.T) {
	f := newFar(t)
	spec := func(text string) string {
		path := filepath.Join(t.TempDir(), "spec.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for line, want := range map[string]string{
		"app put web --node n":                                           "--image is missing",
		"app put web --image x":                                          "either --node or --label",
		"app put web --image x --node n --label a=b":                     "either --node or --label",
		"app put web --image x --node n --env A":                         `--env: "A" is not like KEY=VALUE`,
		"app put web --image x --node n --env A=1 --env A=2":             "--env: A is given twice",
		"app put web --image x --node n --memory lots":                   `--memory: "lots" is not a size`,
		"app put web --image x --node n --memory -1m":                    `--memory: "-1m" is not a size`,
		"app put web --image x --node n --cpu NaN":                       "--cpu: NaN is not a number of cores",
		"app put web --image x --node n --cpu -1":                        "--cpu: -1 is not a number of cores",
		"app put web --image x --node n --observe 1500ms":                "--observe: 1.5s is not a number of whole seconds",
		"app put web --image x --node n --command echo~'a~b'":            "give each word by --arg",
		"app put web --image x --node n --command a --arg b":             "--command and --arg do not go together",
		"app put web --file x --image y":                                 "--file is the whole wish; --image does not go with it",
		"app put web --file /nowhere/spec.json":                          "no such file",
		"app put web --file " + spec(`{"image":"x","nod":"n"}`):          `"nod"`,
		"app put web --file " + spec(`{"image":"x"} {}`):                 "something follows the JSON",
		"app put web --file " + spec(`{"image":`):                        "is not the JSON of an app",
		"app put web --file " + spec(strings.Repeat(" ", api.MaxBody+1)): "is longer than 1 MiB",
		"app put web --port 80.5":                                        "--port: \"80.5\" is not a whole number",
		"app put --image x --node n":                                     "app put: APP is missing",
		"app put a b --image x":                                          `"b" is one argument too many`,
		"app restart web --timeout 0s":                                   "--timeout: 0s is not above 0",
	} {
		code, out, note := f.run(line)
		if code != 2 || out != "" || !strings.Contains(note, want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", line, code, out, note, want)
		}
	}
	if len(f.sent) > 0 {
		t.Errorf("sent %q", f.sent)
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1024": 1024, "1k": 1024, "256m": 256 << 20, "256M": 256 << 20, "256MB": 256 << 20, "256MiB": 256 << 20, "256 MiB": 256 << 20,
		"1.5g": 3 << 29, "2G": 2 << 30, "1t": 1 << 40, "10b": 10,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "m", "0", "-1", "1x", "NaN", "Inf", "99999999999t", "1 2", "k1"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestShowApp(t *testing.T) {
	f := newFar(t)
	answers(f, api.ListApps, api.Page[api.App]{Items: []api.App{webApp()}})
	answers(f, api.GetApp, webApp())
	answers(f, api.ListDeployments,
		api.Page[api.Deployment]{Items: []api.Deployment{
			deployment(idDep2, "web-2", api.DeploymentWaiting, ""), deployment(idDep1, "web-1", api.DeploymentRunning, ""),
			deployment("dep_old", "web-1", api.DeploymentReplaced, ""),
		}},
		api.Page[api.Deployment]{})
	code, out, note := f.run("app list")
	expect(t, "app list", code, out, note, 0, lines(
		"APP  IMAGE                   PLACE                REVISION  CHANGED",
		"web  registry.example/web:4  nodes with role=web  4         1h30m ago"), "")
	fields := []string{
		"name:          web",
		"id:            " + idApp,
		"place:         nodes with role=web",
		"revision:      4",
		"created:       2026-11-27 12:00:00 UTC (3d ago)",
		"changed:       2026-11-30 10:30:00 UTC (1h30m ago)",
		"image:         registry.example/web:4",
		"command:       serve --dir /srv",
		"port:          8080",
		"publish:       -",
		"cpu limit:     0.5 cores",
		"memory limit:  256 MiB",
		"restart:       always",
		"observe:       10s",
		"env:",
		"    GREETING=hello, world",
		"    MODE=fast",
	}
	code, out, note = f.run("app show web")
	expect(t, "app show", code, out, note, 0, lines(append(fields, "",
		"DEPLOYMENT                                APP  REVISION  NODE   STATE    ADDRESS          SINCE   MESSAGE",
		idDep2+"  web  4         web-2  waiting  -                5s ago  -",
		idDep1+"  web  4         web-1  running  127.0.0.1:34567  5s ago  -")...), "")
	code, out, note = f.run("app show web")
	expect(t, "app show", code, out, note, 0, lines(fields...), "it is deployed nowhere; run it with: beckon deploy web\n")
}

func TestChangeApp(t *testing.T) {
	f := newFar(t)
	two := api.AppCommands{Items: []api.CommandStatus{restart(idCmd1, "web-1", api.Succeeded), restart(idCmd2, "web-2", api.Queued)}}
	answers(f, api.RestartApp, two)
	answers(f, api.StopApp, api.AppCommands{})
	answers(f, api.DeleteApp, api.AppCommands{Items: []api.CommandStatus{restart(idCmd1, "web-1", api.Succeeded)}})
	answers(f, api.GetCommand, restart(idCmd2, "web-2", api.Queued), restart(idCmd2, "web-2", api.Failed), restart(idCmd2, "web-2", api.Succeeded), restart(idCmd2, "web-2", api.Queued))
	head := "COMMAND                                   NODE   KIND     STATE      CREATED  NOTE"
	one := idCmd1 + "  web-1  restart  succeeded  20s ago  -"

	code, out, note := f.run("app restart web")
	expect(t, "fails", code, out, note, 1, lines(head, one,
		idCmd2+"  web-2  restart  failed     20s ago  the instance exited with code 3 …"), lines(
		"web-2: restart queued: web-2, offline since 11:57",
		"web-2: restart failed: the instance exited with code 3",
		"    log line one",
		"    log line two",
		"beckon: restart of web did not succeed on web-2 (failed)"))
	code, out, note = f.run("app restart web")
	expect(t, "succeeds", code, out, note, 0, lines(head, one, idCmd2+"  web-2  restart  succeeded  20s ago  -"), lines(
		"web-2: restart queued: web-2, offline since 11:57",
		"web-2: restart succeeded"))
	code, out, note = f.run("app restart web --timeout 300ms")
	expect(t, "times out", code, out, note, 8, lines(head, one, idCmd2+"  web-2  restart  queued     20s ago  web-2, offline since 11:57"), lines(
		"web-2: restart queued: web-2, offline since 11:57",
		"beckon: after 300ms, restart of web is still going on, on web-2 (queued)",
		"hint: it goes on by itself; `beckon command list --app web` shows how far it is"))
	code, out, note = f.run("app restart web --detach")
	expect(t, "detached", code, out, note, 0, lines(head, one, idCmd2+"  web-2  restart  queued     20s ago  web-2, offline since 11:57"), "")
	code, out, note = f.run("app stop web")
	expect(t, "stop", code, out, note, 0, "stop of web: nothing to do: no active node has an instance of it (what a revoked node runs is out of reach)\n", "")
	code, out, note = f.run("app remove web")
	expect(t, "remove", code, out, note, 0, lines(head, one), "")
	if got := strings.Join(f.wait, " "); got != "wait=3 wait=3 wait=3 wait=3" {
		t.Errorf("asked to wait: %s", got)
	}
}

func TestSendCommand(t *testing.T) {
	f := newFar(t)
	payload := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(payload, []byte("{\"app\": \"web\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answers(f, api.SendCommand, api.SendCommandResponse{CommandStatus: restart(idCmd2, "web-2", api.Queued)})
	answers(f, api.GetCommand, restart(idCmd2, "web-2", api.Failed), restart(idCmd2, "web-2", api.Queued))
	line := "command send --node web-2 --kind restart --payload "
	for words, want := range map[string]string{
		`{"app":"web"}`:                 `{"node":"web-2","kind":"restart","payload":{"app":"web"}}`,
		"@" + payload + " --expires 1h": `{"node":"web-2","kind":"restart","payload":{"app":"web"},"expires_in_s":3600}`,
	} {
		f.sent = nil
		code, out, note := f.run(line + words)
		if code != 0 || note != "" || !strings.Contains(out, "state:       queued\n") || f.sent[0] != "POST /api/v1/commands "+want {
			t.Errorf("%s: exit %d, sent %s\n%s%s", words, code, f.sent, out, note)
		}
	}
	code, out, note := f.run(line + "{} --wait 30s")
	if code != 1 || !strings.Contains(out, "state:       failed\n") || !strings.HasSuffix(note, "beckon: command "+idCmd2+" did not succeed on web-2 (failed)\n") {
		t.Errorf("failed: exit %d\n%s%s", code, out, note)
	}
	code, _, note = f.run(line + "{} --wait 300ms")
	if code != 8 || !strings.Contains(note, "after 300ms, command "+idCmd2+" is still going on, on web-2 (queued)\n") {
		t.Errorf("timed out: exit %d\n%s", code, note)
	}
	for _, words := range []string{"{", "@/nowhere", "{}~{}", "{} --wait -1s", "{} --expires 10ms"} {
		if code, out, _ := f.run(line + words); code != 2 || out != "" {
			t.Errorf("%s: exit %d", words, code)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 59 * time.Second: "59s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m", time.Hour: "1h",
		90 * time.Minute: "1h30m", 11*time.Hour + 30*time.Minute: "11h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 9000 * time.Hour: "375d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "-", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1048575: "1 MiB", 256 << 20: "256 MiB", 1 << 62: "4 EiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
