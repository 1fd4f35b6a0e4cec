package file_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/internal/durable/durabletest"
	"github.com/beckon-fleet/beckon/server/internal/servertest"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func put(t *testing.T, f *servertest.Fleet, text string) api.PutFileResponse {
	t.Helper()
	res, err := f.Files.Put(t.Context(), strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// onDisk is the names of what is kept.
func onDisk(t *testing.T, f *servertest.Fleet) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(f.Files.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func refused(t *testing.T, what string, err error, code api.Code, word string) {
	t.Helper()
	if !errors.Is(err, code) || !strings.Contains(err.Error(), word) {
		t.Errorf("%s: want %s with %q, got %v", what, code, word, err)
	}
}

// wish makes the app web of a file, on the one node.
func wish(f *servertest.Fleet, ctx context.Context, archive api.Archive) error {
	_, err := f.Apps.Put(ctx, api.PutAppRequest{
		App: "web", AppSpec: api.AppSpec{Archive: &archive, Command: []string{"./run"}}, Placement: api.Placement{Node: "node-1"},
	})
	return err
}

func deploy(t *testing.T, f *servertest.Fleet) api.Deployment {
	t.Helper()
	res, err := f.Apps.Deploy(t.Context(), api.ChangeAppRequest{App: "web"})
	if err != nil {
		t.Fatal(err)
	}
	return res.Items[0]
}

func ran() api.Result {
	return api.Result{Status: api.OutcomeSucceeded, Output: []byte(`{"instance": {"id": "i1", "runtime": "process"}}`)}
}

func TestPutKeepsContentOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		first := put(t, f, "one")
		if !first.Created || first.SHA256 != hash("one") || first.SizeBytes != 3 || !strings.HasPrefix(first.ID, "file_") {
			t.Errorf("stored %+v", first)
		}
		again := put(t, f, "one")
		if again.Created || again.ID != first.ID || !again.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("again %+v", again)
		}
		other := put(t, f, "two")
		page, err := f.Files.List(t.Context(), api.ListFilesRequest{})
		if err != nil || len(page.Items) != 2 || page.Items[0] != other.File || page.Items[1] != first.File {
			t.Errorf("listed %+v, %v", page, err)
		}
		if got := f.EventsOf(t, first.ID); !slices.Equal(got, []string{"file_stored"}) {
			t.Errorf("events %v", got)
		}
	})
}

// What is refused leaves nothing behind.
func TestPutRefuses(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		f.Files.Most = 10
		for name, c := range map[string]struct {
			body io.Reader
			want string
			code api.Code
			word string
		}{
			"empty":        {strings.NewReader(""), "", api.Invalid, "empty"},
			"too large":    {strings.NewReader("12345678901"), "", api.TooLarge, "larger than 10 bytes"},
			"other digest": {strings.NewReader("one"), hash("two"), api.Invalid, hash("one")},
			"broken off":   {io.MultiReader(strings.NewReader("one"), iotest.ErrReader(io.ErrUnexpectedEOF)), "", api.Invalid, "send it again"},
		} {
			_, err := f.Files.Put(t.Context(), c.body, c.want)
			refused(t, name, err, c.code, c.word)
		}
		if _, err := f.Files.Put(t.Context(), strings.NewReader("1234567890"), hash("1234567890")); err != nil {
			t.Errorf("the largest: %v", err)
		}
		if got := onDisk(t, f); len(got) != 1 || f.Count(t, `FROM files`) != 1 {
			t.Errorf("left: %v", got)
		}
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := servertest.New(t, servertest.SQLite(t))
	f.Files.Dir = durabletest.SmallDisk(t, 64<<10)
	_, err := f.Files.Put(t.Context(), strings.NewReader(strings.Repeat("x", 1<<20)), "")
	refused(t, "a file larger than the disk", err, api.StorageFull, "disk is full")
	if got := onDisk(t, f); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	put(t, f, "small")
}

func TestAppNamesAFile(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		f.Join(t, "node-1")
		file := put(t, f, "one")
		refused(t, "no file", wish(f, t.Context(), api.Archive{FileID: "file_1"}), api.NotFound, `"file_1"`)
		refused(t, "another hash", wish(f, t.Context(), api.Archive{FileID: file.ID, SHA256: hash("two")}), api.Invalid, hash("one"))
		refused(t, "another size", wish(f, t.Context(), api.Archive{FileID: file.ID, SizeBytes: 4}), api.Invalid, "3 bytes")
		if err := wish(f, t.Context(), api.Archive{FileID: file.ID}); err != nil {
			t.Fatal(err)
		}
		a, err := f.Apps.Get(t.Context(), api.AppRequest{App: "web"})
		if err != nil || *a.Spec.Archive != (api.Archive{FileID: file.ID, SHA256: hash("one"), SizeBytes: 3}) {
			t.Errorf("spec %+v, %v", a.Spec.Archive, err)
		}
		var sent api.DeployPayload
		d := deploy(t, f)
		payload(t, f, d.CommandID, &sent)
		if *sent.Archive != *a.Spec.Archive {
			t.Errorf("sent %+v", sent.Archive)
		}
	})
}

// A node gets what it is to run or may run, and learns nothing of all else.
func TestWhoGetsAFile(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a, other := f.Join(t, "node-1"), f.Join(t, "node-2")
		one, two := put(t, f, "one"), put(t, f, "two")
		may := func(when string, node, id string, want bool) {
			t.Helper()
			_, content, err := f.Files.Open(t.Context(), node, id)
			if err == nil {
				content.Close()
			}
			if want != (err == nil) || !want && !errors.Is(err, api.NotFound) {
				t.Errorf("%s: %v", when, err)
			}
		}
		may("before any deploy", a.ID, one.ID, false)
		if err := wish(f, t.Context(), api.Archive{FileID: one.ID}); err != nil {
			t.Fatal(err)
		}
		may("only wished for", a.ID, one.ID, false)
		first := deploy(t, f)
		may("queued", a.ID, one.ID, true)
		may("another node", other.ID, one.ID, false)
		may("another file", a.ID, two.ID, false)
		may("no file", a.ID, "file_1", false)
		a.Run(t, first.CommandID, ran())
		may("runs", a.ID, one.ID, true)
		if err := wish(f, t.Context(), api.Archive{FileID: two.ID}); err != nil {
			t.Fatal(err)
		}
		a.Run(t, deploy(t, f).CommandID, ran())
		may("replaced", a.ID, one.ID, false)
		may("its replacement", a.ID, two.ID, true)
		a.Send(t, api.SendCommandRequest{Kind: "deploy", Payload: []byte(`{"deployment_id": "dep_x", "app_id": "app_x", "app": "x", "revision": 1,
			"archive": {"file_id": "` + one.ID + `", "sha256": "` + one.SHA256 + `", "size_bytes": 3}, "command": ["x"]}`)})
		may("sent by hand", a.ID, one.ID, true)
	})
}

func TestDamagedFileIsMended(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "node-1")
		file := put(t, f, "one")
		if err := wish(f, t.Context(), api.Archive{FileID: file.ID}); err != nil {
			t.Fatal(err)
		}
		deploy(t, f)
		path := filepath.Join(f.Files.Dir, file.SHA256)
		for what, damage := range map[string]func() error{
			"cut":    func() error { return os.Truncate(path, 1) },
			"gone":   func() error { return os.Remove(path) },
			"folder": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700), os.Remove(path)) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			_, _, err := f.Files.Open(t.Context(), a.ID, file.ID)
			refused(t, what, err, api.NotFound, "damaged on the server")
			put(t, f, "one")
			_, content, err := f.Files.Open(t.Context(), a.ID, file.ID)
			if err != nil {
				t.Fatalf("%s: not mended: %v", what, err)
			}
			if text, err := io.ReadAll(content); string(text) != "one" || err != nil {
				t.Errorf("%s: %q, %v", what, text, err)
			}
			content.Close()
		}
	})
}

func TestDelete(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		a := f.Join(t, "node-1")
		one, two := put(t, f, "one"), put(t, f, "two")
		remove := func(id string) error {
			_, err := f.Files.Delete(t.Context(), api.DeleteFileRequest{ID: id})
			return err
		}
		refused(t, "none", remove("file_1"), api.NotFound, "file_1")
		if err := wish(f, t.Context(), api.Archive{FileID: one.ID}); err != nil {
			t.Fatal(err)
		}
		refused(t, "of an app", remove(one.ID), api.FileInUse, "needed by web:")
		a.Run(t, deploy(t, f).CommandID, ran())
		if err := wish(f, t.Context(), api.Archive{FileID: two.ID}); err != nil {
			t.Fatal(err)
		}
		for range api.KeptRevisions {
			refused(t, "of a revision that may come back", remove(one.ID), api.FileInUse, "web")
			a.Run(t, deploy(t, f).CommandID, ran())
		}
		if err := remove(one.ID); err != nil {
			t.Errorf("of an old revision: %v", err)
		}
		refused(t, "again", remove(one.ID), api.NotFound, one.ID)
		if got := onDisk(t, f); !slices.Equal(got, []string{two.SHA256}) {
			t.Errorf("on disk: %v", got)
		}
		if got := f.EventsOf(t, one.ID); !slices.Equal(got, []string{"file_stored", "file_removed"}) {
			t.Errorf("events %v", got)
		}
	})
}

func TestSweep(t *testing.T) {
	servertest.Each(t, func(t *testing.T, f *servertest.Fleet) {
		f.Join(t, "node-1")
		needed, idle := put(t, f, "needed"), put(t, f, "idle")
		if err := wish(f, t.Context(), api.Archive{FileID: needed.ID}); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"orphan": "x", "1.tmp": "x"} {
			if err := os.WriteFile(filepath.Join(f.Files.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func(want ...string) {
			t.Helper()
			if err := f.Files.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			slices.Sort(want)
			if got := onDisk(t, f); !slices.Equal(got, want) {
				t.Errorf("on disk %v, want %v", got, want)
			}
		}
		f.Clock.Move(api.FileLife)
		sweep("1.tmp", needed.SHA256, idle.SHA256)
		f.Clock.Move(time.Second)
		sweep("1.tmp", needed.SHA256)
		sweep("1.tmp", needed.SHA256)
		if f.Count(t, `FROM files`) != 1 || f.EventsOf(t, idle.ID)[1] != "file_removed" {
			t.Errorf("events %v", f.EventsOf(t, idle.ID))
		}
		if err := f.Files.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Apps.Delete(t.Context(), api.ChangeAppRequest{App: "web"}); err != nil {
			t.Fatal(err)
		}
		sweep(needed.SHA256)
		f.Clock.Move(api.FileLife + time.Second)
		sweep()
	})
}

// payload is what a command carries.
func payload(t *testing.T, f *servertest.Fleet, command string, into *api.DeployPayload) {
	t.Helper()
	if err := json.Unmarshal(f.State(t, command).Payload, into); err != nil {
		t.Fatal(err)
	}
}
