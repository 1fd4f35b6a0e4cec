package main

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/beckon-fleet/beckon/api"
)

// surface is what one listener serves.
type surface struct {
	name, title, text string
	calls             []api.Call
	server            object
	scheme            member // how a caller proves who it is
	strict            bool   // unknown members are refused
	headers           []string
}

func surfaces() []surface {
	return []surface{
		{
			name: "agent", title: "Beckon, agent surface", calls: api.AgentSurface,
			text: "What an agent asks of its server, on the agent listener: TLS 1.3 under the cluster's own CA. " +
				"PROTOCOL.md is the whole contract; this document holds its routes and types.\n\n" +
				"A server may send members that are not described here, and ignores those that it does not know. " +
				shared,
			server: object{{"url", "https://{host}"}, {"description", "the agent listener"}, {"variables", object{
				{"host", object{{"default", "beckon.example.com:8443"}, {"description", "where the cluster's nodes reach it"}}},
			}}},
			scheme: member{"nodeCertificate", object{
				{"type", "mutualTLS"},
				{"description", "The node's certificate, which the join gave. It is judged with each request, not in the handshake."},
			}},
			headers: []string{api.HeaderProtocol, api.HeaderAgentVersion, api.HeaderAgentInstance},
		},
		{
			name: "operator", title: "Beckon, operator surface", calls: api.OperatorSurface, strict: true,
			text: "What people and scripts ask of a server, on the operator listener. PROTOCOL.md section 13 says more.\n\n" +
				"Members and query parameters that a call does not know are refused by name. A server may answer with " +
				"members that are not described here. " + shared,
			server: object{{"url", "http://127.0.0.1:8080"}, {"description", "the operator listener, unless said otherwise"}},
			scheme: member{"operatorToken", object{
				{"type", "http"},
				{"scheme", "bearer"},
				{"description", "An operator token, `bkn_op_…`. `beckon server token --data DIR` mints one on the server's machine."},
			}},
		},
	}
}

const shared = "Enums hold the words of this version; a newer server may have more. " +
	"What is absent is not known; it is never null. Bodies are at most 1 MiB, and requests may be sent " +
	"with `Content-Encoding: gzip`. Every refusal is a problem (RFC 9457) with a `code`, whose `type` is a page on the same " +
	"listener. An answer that is no JSON of this document came from something on the way, and is no verdict."

// document describes the surface.
func (s surface) document(source *source) (object, error) {
	d := &describer{
		surface: s, source: source, schemas: newSchemas(source),
		parameters: map[string]object{}, problems: map[string]object{},
	}
	paths := d.paths()
	headers := d.headers()
	if err := errors.Join(d.schemas.problems...); err != nil {
		return nil, err
	}
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", s.title},
			{"version", strconv.Itoa(api.Protocol)}, // the protocol's, so that no build changes it
			{"summary", "Made by `make generate` from package api"},
			{"description", s.text},
			{"license", object{{"name", "Apache 2.0"}, {"identifier", "Apache-2.0"}}},
		}},
		{"servers", list{s.server}},
		{"security", list{object{{s.scheme.key, list{}}}}},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", object{s.scheme}},
			{"parameters", sorted(d.parameters)},
			{"headers", headers},
			{"responses", sorted(d.problems)},
			{"schemas", d.schemas.components()},
		}},
	}, nil
}

// paths are all operations, in the order of the surface.
func (d *describer) paths() (paths object) {
	at := map[string]int{}
	for _, c := range d.calls {
		call := c.Describe()
		i, ok := at[call.Path]
		if !ok {
			i = len(paths)
			at[call.Path] = i
			paths.add(call.Path, object{})
		}
		operation := member{strings.ToLower(call.Method), d.operation(call)}
		paths[i].value = append(paths[i].value.(object), operation)
	}
	return paths
}

func sorted(m map[string]object) (all object) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all.add(name, m[name])
	}
	return all
}

// headers are those of answers.
func (d *describer) headers() (all object) {
	text := object{{"type", "string"}}
	number := object{{"type", "integer"}}
	for _, h := range []struct {
		name, text string
		schema     object
		always     bool // in each answer that refers to it
	}{
		{api.HeaderProtocolMin, "the lowest protocol that the server serves", number, true},
		{api.HeaderProtocolMax, "the highest protocol that the server serves", number, true},
		{api.HeaderRequestID, "names the request in the server's log", object{{"type", "string"}, {"format", "uuid"}}, true},
		{"ETag", "of the content, for If-None-Match", text, true},
		{"Accept-Ranges", "bytes: a part can be asked for", text, true},
		{"Content-Length", "how long the body is", number, true},
		{"Content-Range", "which part it is, as `bytes 0-9/10`; where there is none, `bytes */10`", text, true},
		{"Location", "where what was made can be looked at", text, true},
		{"Preference-Applied", "the wait that was followed", text, false},
		{api.HeaderReplayed, "true where the request is a repeat and the answer the first one's", object{{"type", "string"}, {"const", "true"}}, false},
		{"Retry-After", "seconds", number, true},
		{"WWW-Authenticate", "the credentials that are missing or wrong", text, true},
		{"Accept-Encoding", "the encoding to send instead", text, true},
		{"Upgrade", "over HTTP/1.1 only: `beckon/` and the highest protocol served", text, false},
	} {
		header := object{{"description", h.text}}
		if h.always {
			header.add("required", true)
		}
		all.add(h.name, append(header, member{"schema", h.schema}))
	}
	return all
}

// headersOf refers to headers of answers, beside those that each has.
func headersOf(names ...string) (all object) {
	for _, name := range append([]string{api.HeaderProtocolMin, api.HeaderProtocolMax, api.HeaderRequestID}, names...) {
		all.add(name, object{{"$ref", "#/components/headers/" + name}})
	}
	return all
}

// headersOfProblem are those that come with a status (PROTOCOL.md section 1).
func headersOfProblem(status int) object {
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		return headersOf("Content-Range")
	case http.StatusUnauthorized:
		return headersOf("WWW-Authenticate")
	case http.StatusUnsupportedMediaType:
		return headersOf("Accept-Encoding")
	case http.StatusUpgradeRequired:
		return headersOf("Upgrade")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		return headersOf("Retry-After")
	}
	return headersOf()
}
