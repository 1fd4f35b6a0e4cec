package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/e2e/kit/contract"
)

// upload puts a file over the wire.
func (c *control) upload(body string, header http.Header) reply {
	c.t.Helper()
	all := http.Header{"Authorization": {"Bearer " + c.token}, "Content-Type": {"application/gzip"}}
	for name, values := range header {
		all[name] = values
	}
	return c.send(&http.Client{Transport: contract.New(c.t).Wrap(http.DefaultTransport)}, "PUT", c.operators+"/api/v1/files", body, all)
}

func TestUpload(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	sum := sha256.Sum256([]byte("content"))
	digest := func(value string) http.Header { return http.Header{"Content-Digest": {value}} }
	var first, again api.File
	c.upload("content", digest("sha-512=:AAAA:, "+api.Digest(sum[:]))).into(t, 201, &first)
	c.upload("content", nil).into(t, 200, &again)
	if first != again || first.SHA256 != hex.EncodeToString(sum[:]) || first.SizeBytes != 7 {
		t.Errorf("stored %+v and %+v", first, again)
	}
	for value, word := range map[string]string{
		"sha-256=:AAAA:": "32 bytes", "sha-256=" + hex.EncodeToString(sum[:]): "32 bytes", api.Digest(make([]byte, 32)): "not what was sent",
	} {
		got := c.upload("content", digest(value))
		got.refused(t, value, api.Invalid)
		if !strings.Contains(string(got.body), word) {
			t.Errorf("%s: %s", value, got.body)
		}
	}
	c.upload("", nil).refused(t, "an empty body", api.Invalid)
	c.upload("x", http.Header{"Content-Encoding": {"gzip"}}).refused(t, "an encoded body", api.Invalid)
	c.upload("x", http.Header{"Content-Range": {"bytes 0-0/2"}}).refused(t, "a part", api.Invalid)
	c.operate("PUT", "/api/v1/files?name=x", "x").refused(t, "a parameter", api.Invalid)
	c.operate("PUT", "/api/v1/apps/web", `{"archive": {"file_id": "file_1"}, "command": ["x"], "node": "n"}`).refused(t, "an app of no file", api.NotFound)
	var page api.Page[api.File]
	c.operate("GET", "/api/v1/files", "").into(t, 200, &page)
	if len(page.Items) != 1 || page.Items[0] != first {
		t.Errorf("listed %+v", page)
	}
	c.operate("DELETE", "/api/v1/files/"+first.ID, "").into(t, 200, &again)
	c.operate("DELETE", "/api/v1/files/"+first.ID, "").refused(t, "a second removal", api.NotFound)
	if left, err := os.ReadDir(filepath.Join(c.cfg.Data, "files")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A body is refused by the length that it says, before it is sent; and one that
// breaks off leaves nothing.
func TestUploadOnTheWire(t *testing.T) {
	t.Parallel()
	c := run(t, Config{})
	talk := func(head, body string) string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.operators, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /api/v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n%s\r\n\r\n%s", c.token, head, body)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := talk(fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue", api.MaxFile+1), ""); !strings.HasPrefix(got, "HTTP/1.1 413 ") || !strings.Contains(got, "too_large") {
		t.Errorf("too large: %s", got)
	}
	talk("Content-Length: 10", "123")
	if got := talk("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 201 ") {
		t.Errorf("in chunks: %s", got)
	}
	if left, err := os.ReadDir(filepath.Join(c.cfg.Data, "files")); err != nil || len(left) != 1 {
		t.Errorf("kept: %v, %v", left, err)
	}
}

// at is the path of a call about one thing.
func at(e api.Raw, id string) string { return strings.Replace(e.Path, "{id}", id, 1) }

// served is a file on a node that is to deploy it, and a way to ask for it.
func served(t *testing.T, c *control, content string) (ask func(method string, header ...string) reply, etag string) {
	t.Helper()
	var file api.File
	c.upload(content, nil).into(t, 201, &file)
	_, certificate := c.join("web")
	c.operate("PUT", "/api/v1/apps/shop", `{"archive": {"file_id": "`+file.ID+`"}, "command": ["x"], "node": "web"}`).into(t, 201, &api.App{})
	c.operate("POST", "/api/v1/apps/shop/deployments", `{}`).into(t, 201, &api.DeployAppResponse{})
	node := c.client(true, certificate)
	node.Transport = contract.New(t).Wrap(node.Transport)
	_, other := c.join("other")
	c.send(c.client(true, other), "GET", c.agents+at(api.GetFile, file.ID), "", nil).refused(t, "another node", api.NotFound)
	c.send(node, "GET", c.agents+at(api.HeadFile, "file_1"), "", nil).refused(t, "no file", api.NotFound)
	plain := c.client(true, certificate)
	return func(method string, header ...string) reply {
		by := node
		if method == "POST" { // which is no call of the documents
			by = plain
		}
		all := http.Header{}
		for i := 0; i < len(header); i += 2 {
			all.Set(header[i], header[i+1])
		}
		return c.send(by, method, c.agents+at(api.GetFile, file.ID), "", all)
	}, api.FileETag(file.SHA256)
}

// Parts are what RFC 9110 says (field case B74).
func TestDownload(t *testing.T) {
	t.Parallel()
	ask, etag := served(t, run(t, Config{}), "0123456789")
	weak, other := "W/"+etag, api.FileETag(strings.Repeat("0", 64))
	for _, c := range []struct {
		header []string
		status int
		body   string
		part   string // the Content-Range
	}{
		{nil, 200, "0123456789", ""},
		{[]string{"Range", "bytes=0-"}, 206, "0123456789", "bytes 0-9/10"},
		{[]string{"Range", "bytes=4-"}, 206, "456789", "bytes 4-9/10"},
		{[]string{"Range", "bytes=9-"}, 206, "9", "bytes 9-9/10"},
		{[]string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range", "bytes=2-99"}, 206, "23456789", "bytes 2-9/10"},
		{[]string{"Range", "bytes=-5"}, 206, "56789", "bytes 5-9/10"},
		{[]string{"Range", "bytes=-99"}, 206, "0123456789", "bytes 0-9/10"},
		{[]string{"Range", "bytes=2-99999999999999999999999"}, 206, "23456789", "bytes 2-9/10"},
		{[]string{"Range", "bytes=-0"}, 416, "", "bytes */10"},
		{[]string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		{[]string{"Range", "bytes=10-10"}, 416, "", "bytes */10"},
		{[]string{"Range", "bytes=99999999999999999999999-"}, 416, "", "bytes */10"},
		{[]string{"Range", "bytes=5-2"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=abc"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=-"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=1"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=+1-2"}, 200, "0123456789", ""},
		{[]string{"Range", "lines=1-2"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=0-0,2-3"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=4-", "If-Range", etag}, 206, "456789", "bytes 4-9/10"},
		{[]string{"Range", "bytes=4-", "If-Range", other}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=4-", "If-Range", weak}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=99-", "If-Range", other}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=4-", "If-Range", "Mon, 30 Nov 2026 12:00:00 GMT"}, 200, "0123456789", ""},
		{[]string{"If-None-Match", etag}, 304, "", ""},
		{[]string{"If-None-Match", other + ", " + weak}, 304, "", ""},
		{[]string{"If-None-Match", "*"}, 304, "", ""},
		{[]string{"If-None-Match", other, "Range", "bytes=4-5"}, 206, "45", "bytes 4-5/10"},
		{[]string{"Accept-Encoding", "gzip, br"}, 200, "0123456789", ""},
	} {
		got := ask("GET", c.header...)
		if got.StatusCode != c.status || got.Header.Get("Content-Range") != c.part || got.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q: %d, %v", c.header, got.StatusCode, got.Header)
		}
		if c.status == 416 {
			got.refused(t, c.header[1], api.RangeUnsatisfiable)
		} else if string(got.body) != c.body || got.Header.Get("ETag") != etag || got.Header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%q: %q, %v", c.header, got.body, got.Header)
		}
	}
	for _, header := range [][]string{nil, {"Range", "bytes=4-"}, {"Range", "bytes=99-"}} {
		got := ask("HEAD", header...)
		if got.StatusCode != 200 || len(got.body) != 0 || got.ContentLength != 10 || got.Header.Get("ETag") != etag {
			t.Errorf("HEAD %q: %d, %v", header, got.StatusCode, got.Header)
		}
	}
	if got := ask("HEAD", "If-None-Match", etag); got.StatusCode != 304 {
		t.Errorf("HEAD of what is there: %d", got.StatusCode)
	}
	got := ask("POST")
	if got.refused(t, "another method", api.MethodNotAllowed); got.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("allowed: %v", got.Header)
	}
}

// A large file comes as it is, in one piece or in parts.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	content := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
	ask, _ := served(t, run(t, Config{}), content)
	if got := ask("GET"); string(got.body) != content {
		t.Errorf("%d bytes of %d came", len(got.body), len(content))
	}
	if got := ask("GET", "Range", "bytes=4000000-"); string(got.body) != content[4000000:] {
		t.Errorf("%d bytes came", len(got.body))
	}
}
