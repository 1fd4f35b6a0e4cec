package server

import (
	"net/http"

	"github.com/beckon-fleet/beckon/api"
	"github.com/beckon-fleet/beckon/server/internal/auth"
	"github.com/beckon-fleet/beckon/server/internal/rest"
)

// putFile is api.PutFile. A body that says it is too large is refused before it
// is read.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request) error {
	var req api.PutFileRequest
	if err := rest.Params(r, &req); err != nil {
		return err
	}
	want, err := req.SHA256()
	switch {
	case err != nil:
		return err
	case r.Header.Get("Content-Encoding") != "":
		return api.Errorf(api.Invalid, "a file is kept as it is sent: leave Content-Encoding out, a tar.gz is fine as it is")
	case r.Header.Get("Content-Range") != "":
		return api.Errorf(api.Invalid, "an upload is one whole: leave Content-Range out, and after a failure send all of it again")
	case r.ContentLength > s.files.Limit():
		return api.Errorf(api.TooLarge, "the file has %d bytes, and %d is the most", r.ContentLength, s.files.Limit())
	}
	res, err := s.files.Put(r.Context(), rest.Body(w, r, s.files.Limit()), want)
	if err != nil {
		return err
	}
	rest.Answer(w, r, http.StatusCreated, res)
	return nil
}

// getFile is api.GetFile and api.HeadFile.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	var req api.HeadFileRequest
	if err := rest.Params(r, &req); err != nil {
		return err
	}
	f, content, err := s.files.Open(r.Context(), auth.From(r.Context()).Node, req.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	return rest.Content(w, r, api.FileETag(f.SHA256), f.SizeBytes, content)
}
