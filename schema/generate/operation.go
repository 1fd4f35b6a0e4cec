package main

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/beckon-fleet/beckon/api"
)

// describer makes the operations of one surface, and what they share.
type describer struct {
	surface
	source     *source
	schemas    *schemas
	parameters map[string]object
	problems   map[string]object // answers that refuse, by status and codes
}

func (d *describer) operation(call api.Description) object {
	v, ok := d.source.calls[call.Method+" "+call.Path]
	if !ok || v.comment == "" {
		d.schemas.problem("%s %s: no commented variable of package api declares it", call.Method, call.Path)
	}
	o := object{
		{"operationId", v.name},
		{"tags", list{tag(call.Path)}},
		{"summary", sentence(v.name, v.comment)},
	}
	if strings.Contains(v.comment, ". ") || reference.MatchString(v.comment) { // more than the summary says
		o.add("description", v.comment)
	}
	if call.Open {
		o.add("security", list{})
	}
	if p := d.parametersOf(call); len(p) > 0 {
		o.add("parameters", p)
	}
	if call.Takes != "" {
		o.add("requestBody", d.body(call))
	}
	return append(o, member{"responses", append(d.successes(call), d.refusals(call)...)})
}

// tag is the noun of a path: the first word after /api/v1.
func tag(path string) string {
	words := strings.Split(strings.TrimPrefix(path, "/"), "/")
	return words[min(2, len(words)-1)]
}

func (d *describer) body(call api.Description) object {
	if call.Request == nil {
		return object{{"required", true}, {"content", content(call.Takes, object{})}}
	}
	d.schemas.strict[nameOf(call.Request)] = d.strict
	_, required := d.schemas.members(call.Request, false)
	body := object{}
	if len(required) > 0 {
		body.add("required", true)
	}
	return append(body, member{"content", content(call.Takes, d.schemas.of(call.Request))})
}

func content(kind string, schema object) object { return object{{kind, object{{"schema", schema}}}} }

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

func (d *describer) parametersOf(call api.Description) (all list) {
	for _, name := range d.surface.headers {
		all = append(all, d.sharedParameter(name, d.agentHeader(name)))
	}
	for _, t := range []reflect.Type{call.Request, call.Params} {
		if t != nil {
			return append(all, d.tagged(t, "")...)
		}
	}
	for _, m := range placeholder.FindAllStringSubmatch(call.Path, -1) {
		all = append(all, parameter("path", m[1], object{{"type", "string"}}))
	}
	return all
}

// agentHeader describes what an agent says of itself with every request.
func (d *describer) agentHeader(name string) object {
	schema := map[string]object{
		api.HeaderProtocol: {{"type", "integer"}, {"minimum", 0}, {"description", "the protocol that the agent speaks; 1 unless said"}},
		api.HeaderAgentVersion: {
			{"type", "string"}, {"maxLength", 64}, {"description", "the version of the agent, for people"},
		},
		api.HeaderAgentInstance: {
			{"type", "string"},
			{"pattern", `^[A-Za-z0-9_-]{1,64}\.[0-9]+\.[A-Za-z0-9_-]{1,64}$`},
			{"description", "which process of which node speaks, as epoch.starts.random (PROTOCOL.md section 1)"},
		},
	}
	return parameter("header", name, schema[name])
}

// tagged are the parameters of a request, those of embedded structs under a
// name of their own.
func (d *describer) tagged(t reflect.Type, embedded string) (all list) {
	for field := range fields(t) {
		if field.Anonymous && field.Type.Kind() == reflect.Struct {
			all = append(all, d.tagged(field.Type, field.Name)...)
			continue
		}
		for _, in := range []string{"path", "query", "header"} {
			name, ok := field.Tag.Lookup(in)
			if !ok {
				continue
			}
			p := parameter(in, name, d.schemas.field(t, field))
			if embedded == "" {
				all = append(all, p)
			} else {
				all = append(all, d.sharedParameter(embedded+"."+field.Name, p))
			}
		}
	}
	return all
}

// parameter moves the description from the schema to where readers look.
func parameter(in, name string, schema object) object {
	p := object{{"name", name}, {"in", in}}
	if i := slices.IndexFunc(schema, func(m member) bool { return m.key == "description" }); i >= 0 {
		p = append(p, schema[i])
		schema = slices.Delete(slices.Clone(schema), i, i+1)
	}
	if in == "path" {
		p.add("required", true)
	}
	return append(p, member{"schema", schema})
}

func (d *describer) sharedParameter(name string, p object) object {
	d.parameters[name] = p
	return object{{"$ref", "#/components/parameters/" + name}}
}

// successes are the answers that are none of the problems.
func (d *describer) successes(call api.Description) (all object) {
	if call.Answer == nil {
		return d.contents(call)
	}
	if implements[interface{ HTTPStatus() int }](call.Answer) != (len(call.Also) > 0) {
		d.schemas.problem("%s %s: Also must list the statuses that HTTPStatus of its answer may return beside Status", call.Method, call.Path)
	}
	for _, status := range slices.Sorted(slices.Values(append([]int{call.Status}, call.Also...))) {
		text := http.StatusText(status)
		if about := phrase(base(call.Answer), d.source.types[base(call.Answer)]); about != "" {
			text += ": " + about
		}
		if status == http.StatusAccepted {
			text += ". What was asked still goes on"
		}
		answer := content(call.ContentType, d.schemas.of(call.Answer))
		for _, kind := range call.As {
			answer = append(answer, content(kind, object{{"type", "string"}})...)
		}
		all.add(strconv.Itoa(status), object{{"description", text}, {"headers", headersOf(headersOfSuccess(call, status)...)}, {"content", answer}})
	}
	if implements[interface{ ETag() string }](call.Answer) {
		all.add("304", notModified())
	}
	return all
}

// contents are the answers that hold no JSON, but a file or a stream.
func (d *describer) contents(call api.Description) (all object) {
	headers := map[int]object{call.Status: headersOf()}
	for _, status := range call.Also {
		headers[status] = headersOf()
	}
	if call.Ranges {
		headers[call.Status] = headersOf("ETag", "Accept-Ranges", "Content-Length")
	}
	if call.Ranges && call.Method == http.MethodGet {
		headers[http.StatusPartialContent] = headersOf("ETag", "Accept-Ranges", "Content-Length", "Content-Range")
	}
	for _, status := range slices.Sorted(maps.Keys(headers)) {
		answer := object{{"description", http.StatusText(status)}, {"headers", headers[status]}}
		if call.Method != http.MethodHead {
			answer.add("content", content(call.ContentType, object{{"type", "string"}}))
		}
		all.add(strconv.Itoa(status), answer)
	}
	if call.Ranges {
		all.add("304", notModified())
	}
	return all
}

func notModified() object {
	return object{{"description", "Not Modified: it is still what the caller has"}, {"headers", headersOf("ETag")}}
}

func headersOfSuccess(call api.Description, status int) (names []string) {
	if implements[interface{ ETag() string }](call.Answer) {
		names = append(names, "ETag")
	}
	if status != http.StatusOK && implements[interface{ Location() string }](call.Answer) {
		names = append(names, "Location")
	}
	if implements[interface{ Waited() bool }](call.Answer) {
		names = append(names, "Preference-Applied")
	}
	if slices.Contains(call.Codes(), api.KeyReused) {
		names = append(names, api.HeaderReplayed)
	}
	return names
}

func implements[I any](t reflect.Type) bool { return t.Implements(reflect.TypeFor[I]()) }

// refusals are the problems that may answer, by status.
func (d *describer) refusals(call api.Description) (all object) {
	codes := call.Codes() // in the order of their statuses
	for len(codes) > 0 {
		status, n := codes[0].Status(), 1
		for n < len(codes) && codes[n].Status() == status {
			n++
		}
		all.add(strconv.Itoa(status), d.refusal(status, codes[:n]))
		codes = codes[n:]
	}
	return all
}

// refusal is the problem of one status. Its name says its codes, so that who
// reads an operation sees them.
func (d *describer) refusal(status int, codes []api.Code) object {
	name, text, words := fmt.Sprintf("Problem%d", status), http.StatusText(status), list{}
	for i, c := range codes {
		name += "." + string(c)
		words = append(words, string(c))
		if i == 0 {
			text += "\n"
		}
		text += fmt.Sprintf("\n* `%s`: %s", c, c.Meaning())
	}
	d.problems[name] = object{
		{"description", text},
		{"headers", headersOfProblem(status)},
		{"content", content("application/problem+json", object{{"allOf", list{
			d.schemas.of(reflect.TypeFor[api.Error]()),
			object{{"properties", object{{"code", object{{"enum", words}}}}}},
		}}})},
	}
	return object{{"$ref", "#/components/responses/" + name}}
}
