package api

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// File is an archive that was uploaded. It never changes: other content is
// another file.
type File struct {
	ID        string    `json:"id"`
	SHA256    string    `json:"sha256"` // of its bytes, hex
	SizeBytes int64     `json:"size_bytes"`
	CreatedAt time.Time `json:"created_at"`
}

// PutFile stores an archive, a tar.gz or a tar, as it is sent. 201 when it is
// new; content that is there already answers with the file that has it. An
// upload that broke off leaves nothing, and is sent again as a whole.
var PutFile = Raw{
	Method: http.MethodPut, Path: "/api/v1/files", Takes: "application/octet-stream", ContentType: "application/json",
	Status: http.StatusCreated, Also: []int{http.StatusOK}, Params: PutFileRequest{}, Answer: PutFileResponse{}, Fails: []Code{TooLarge},
}

// PutFileRequest may say what the body holds.
type PutFileRequest struct {
	Digest string `header:"Content-Digest" json:"-"` // of the body, as sha-256=:BASE64: (RFC 9530); an upload that differs is refused
}

// SHA256 is the hex of the digest that the header says, "" where it says none.
// Algorithms other than sha-256 are for others.
func (r PutFileRequest) SHA256() (string, error) {
	for part := range strings.SplitSeq(r.Digest, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(part), "sha-256=")
		if !ok {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
		if err != nil || len(sum) != 32 || value != ":"+strings.Trim(value, ":")+":" {
			return "", Errorf(Invalid, "%s: sha-256 is 32 bytes in base64 between colons, as sha-256=:…:", HeaderDigest)
		}
		return hex.EncodeToString(sum), nil
	}
	return "", nil
}

// Digest is what a Content-Digest says of a body with this hash.
func Digest(sha256 []byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sha256) + ":"
}

// PutFileResponse is the file that holds what was sent.
type PutFileResponse struct {
	File
	Created bool `json:"-"`
}

// HTTPStatus is 201 when the file is new.
func (r PutFileResponse) HTTPStatus() int {
	if r.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// ListFiles lists the files, the newest first.
var ListFiles = Endpoint[ListFilesRequest, Page[File]]{Method: http.MethodGet, Path: "/api/v1/files"}

// ListFilesRequest pages.
type ListFilesRequest struct{ Cursor }

// DeleteFile removes a file that no app needs any more. One that nothing needs
// for a day goes by itself.
var DeleteFile = Endpoint[DeleteFileRequest, File]{
	Method: http.MethodDelete, Path: "/api/v1/files/{id}", Fails: []Code{NotFound, FileInUse},
}

// DeleteFileRequest names a file by its id.
type DeleteFileRequest struct {
	Write
	ID string `path:"id" json:"-"`
}

// GetFile is the content of a file, for a node that is to deploy it or has it
// deployed; for all others there is no such file. What broke off goes on with
// Range and If-Range. Its ETag is "sha256:" and the hash; what is checked is
// that of the signed command.
var GetFile = Raw{
	Method: http.MethodGet, Path: "/agent/v1/files/{id}", ContentType: "application/octet-stream",
	Params: GetFileRequest{}, Ranges: true, Fails: []Code{NotFound},
}

// HeadFile tells of a file what GetFile would, without its content.
var HeadFile = Raw{
	Method: http.MethodHead, Path: "/agent/v1/files/{id}", ContentType: "application/octet-stream",
	Params: HeadFileRequest{}, Ranges: true, Fails: []Code{NotFound},
}

// GetFileRequest names a file, and may ask for a part of it.
type GetFileRequest struct {
	ID          string `path:"id" json:"-"`
	Range       string `header:"Range" json:"-"`         // as bytes=100-; several parts are answered with the whole
	IfRange     string `header:"If-Range" json:"-"`      // the ETag of the part that is there: another file is answered with the whole
	IfNoneMatch string `header:"If-None-Match" json:"-"` // the ETag of what is there: 304 when it is still the same
}

// HeadFileRequest names a file.
type HeadFileRequest struct {
	ID          string `path:"id" json:"-"`
	IfNoneMatch string `header:"If-None-Match" json:"-"` // the ETag of what is there: 304 when it is still the same
}

// FileETag is the ETag of a file with this hash.
func FileETag(sha256 string) string { return `"sha256:` + sha256 + `"` }
