package store_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/beckon-fleet/beckon/schema"
	"github.com/beckon-fleet/beckon/server/internal/store"
	"github.com/beckon-fleet/beckon/server/internal/store/storetest"
)

var update = flag.Bool("update", false, "write the golden files of package schema")

func TestGoldenFilesSayWhatTheMigrationsMake(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		name, got, err := store.Golden(t.Context(), url, schema.Files)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join("../../../schema", name), []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := fs.ReadFile(schema.Files, name)
		if err != nil || string(want) != got {
			t.Errorf("schema/%s is stale (%v): go test ./server/internal/store -run Golden -update", name, err)
		}
	})
}
