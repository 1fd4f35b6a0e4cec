package store

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// Open with other migrations than the product's.
func OpenFiles(ctx context.Context, url string, files fs.FS) (*Store, error) {
	return open(ctx, url, time.Now, files)
}

// Golden applies the migrations to an empty database and returns the name and
// the text of the file that would prove it.
func Golden(ctx context.Context, url string, files fs.FS) (name, text string, err error) {
	s, err := connect(url, time.Now)
	if err != nil {
		return "", "", err
	}
	if err = s.migrate(ctx, files); err == nil {
		text, err = s.schema(ctx)
	}
	return s.dialect.golden(), text, errors.Join(err, s.Close())
}
