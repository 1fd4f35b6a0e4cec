package main

import (
	"context"

	"github.com/beckon-fleet/beckon/api"
	urfave "github.com/urfave/cli/v2"
)

func fileCommand() *urfave.Command {
	files := list[api.ListFilesRequest, api.File]{
		usage:    "list the files, the newest first",
		endpoint: api.ListFiles,
		request:  func(_ *operator, at api.Cursor) api.ListFilesRequest { return api.ListFilesRequest{Cursor: at} },
		head:     "FILE | SIZE | UPLOADED | SHA256",
		row: func(op *operator, f api.File) []string {
			return []string{f.ID, size(f.SizeBytes), op.ago(&f.CreatedAt), f.SHA256}
		},
		none: "there are no files; upload a folder with: beckon app push APP DIR",
	}
	return &urfave.Command{
		Name:  "file",
		Usage: "files: archives that were uploaded",
		Subcommands: []*urfave.Command{
			files.command(),
			{
				Name: "remove", Usage: "remove a file that no app needs", ArgsUsage: "ID", Action: verb(removeFile),
				Description: "A file that nothing needs for a day goes by itself.",
			},
		},
	}
}

func removeFile(ctx context.Context, op *operator) error {
	id, err := op.subject()
	if err != nil {
		return err
	}
	res, err := call(ctx, op, api.DeleteFile, api.DeleteFileRequest{Write: write(0), ID: id})
	if err != nil {
		return err
	}
	return op.print(res, func() error { return op.say("file %s is removed", res.Value.ID) })
}
