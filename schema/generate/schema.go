package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// schemas makes a JSON schema of each type that travels. What cannot be said in
// one is kept as a problem.
type schemas struct {
	source   *source
	made     map[string]object // components, by name
	strict   map[string]bool   // types of requests whose unknown members are refused
	problems []error
}

func newSchemas(s *source) *schemas {
	return &schemas{source: s, made: map[string]object{}, strict: map[string]bool{}}
}

func (s *schemas) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf(format, args...))
}

// special is what neither a type nor a comment says: members that are kept raw
// so that one item which cannot be read hides no other, and the one word of a
// closed set that may be empty.
func (s *schemas) special(member string) (object, bool) {
	switch member {
	case "CommandsResponse.Commands":
		return object{{"type", "array"}, {"items", s.of(reflect.TypeFor[api.CommandItem]())}}, true
	case "ResultResponse.State":
		empty := object{{"type", "string"}, {"enum", list{""}}}
		return object{{"anyOf", list{s.of(reflect.TypeFor[api.State]()), empty}}}, true
	}
	return nil, false
}

// of is the schema of a type, by reference where it has a name of its own.
func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{} // any JSON
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{{"type", "string"}}
	case t.Kind() == reflect.Struct:
		return s.component(t, s.structure)
	case t.Kind() == reflect.String && s.source.values[t.Name()] != nil:
		return s.component(t, s.enum)
	case t.Kind() == reflect.Map && t.Name() != "":
		return s.component(t, s.mapping)
	}
	return s.plain(t)
}

func (s *schemas) plain(t reflect.Type) object {
	switch t.Kind() {
	case reflect.String:
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int:
		return object{{"type", "integer"}}
	case reflect.Int64:
		return object{{"type", "integer"}, {"format", "int64"}}
	case reflect.Float64:
		return object{{"type", "number"}, {"format", "double"}}
	case reflect.Map:
		return s.mapping(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{{"type", "string"}, {"contentEncoding", "base64"}}
		}
		return object{{"type", "array"}, {"items", s.of(t.Elem())}}
	}
	s.problem("%s: no schema is known for such a type", t)
	return object{}
}

// component makes the schema of a named type once, and returns a reference.
func (s *schemas) component(t reflect.Type, make func(reflect.Type) object) object {
	name := nameOf(t)
	if _, ok := s.made[name]; !ok {
		s.made[name] = nil // it may refer to itself
		schema := make(t)
		if text := s.words(t); text != "" {
			schema = append(object{{"description", text}}, schema...)
		}
		s.made[name] = schema
	}
	return object{{"$ref", "#/components/schemas/" + name}}
}

// nameOf is the name of a component: AppPage for Page[App].
func nameOf(t reflect.Type) string {
	name, of, generic := strings.Cut(t.Name(), "[")
	if generic {
		of = strings.TrimSuffix(of, "]")
		name = of[strings.LastIndex(of, ".")+1:] + name
	}
	return name
}

// base is the name under which the source knows a type: Page for Page[App].
func base(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

func (s *schemas) mapping(t reflect.Type) object {
	schema := object{{"type", "object"}}
	if key := s.of(t.Key()); key[0].key == "$ref" {
		schema.add("propertyNames", key)
	}
	return append(schema, member{"additionalProperties", s.of(t.Elem())})
}

func (s *schemas) enum(t reflect.Type) object {
	var words list
	for _, v := range s.source.values[t.Name()] {
		words = append(words, v.text)
	}
	return object{{"type", "string"}, {"enum", words}}
}

// words is the comment of a type, with those of its values.
func (s *schemas) words(t reflect.Type) string {
	var lines []string
	for _, v := range s.source.values[t.Name()] {
		if v.comment != "" {
			lines = append(lines, "* `"+v.text+"`: "+v.comment)
		}
	}
	return strings.TrimSpace(s.source.types[base(t)] + "\n\n" + strings.Join(lines, "\n"))
}

func (s *schemas) structure(t reflect.Type) object {
	schema := object{{"type", "object"}}
	properties, required := s.members(t, false)
	if len(required) > 0 {
		schema.add("required", required)
	}
	if len(properties) > 0 {
		schema.add("properties", properties)
	}
	if s.strict[nameOf(t)] {
		schema.add("additionalProperties", false)
	}
	return schema
}

// members are the properties of a struct, those of embedded ones included;
// optional says that all of them may be absent.
func (s *schemas) members(t reflect.Type, optional bool) (properties object, required list) {
	for field := range fields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			p, r := s.members(inner, optional || field.Type != inner)
			properties, required = append(properties, p...), append(required, r...)
			continue
		}
		if name == "-" || !field.IsExported() {
			continue
		}
		absent := strings.HasPrefix(options, "omit")
		if name == "" || field.Type.Kind() == reflect.Pointer && !absent {
			s.problem("%s.%s: it needs a name in JSON, and as a pointer omitempty: what is not known is absent, not null", t, field.Name)
		}
		if !absent && !optional {
			required = append(required, name)
		}
		properties.add(name, s.field(t, field))
	}
	return properties, required
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// field is the schema of one member or parameter, with its comment and limits.
func (s *schemas) field(t reflect.Type, field reflect.StructField) object {
	schema, ok := s.special(base(t) + "." + field.Name)
	if !ok {
		schema = s.of(field.Type)
	}
	if tag := field.Tag.Get("limit"); tag != "" {
		schema = append(slices.Clip(schema), s.limit(t, field, tag)...)
	}
	if text := s.source.fields[base(t)+"."+field.Name]; text != "" {
		schema = append(slices.Clip(schema), member{"description", text})
	}
	return schema
}

// limit reads a tag like "1..32": bounds of a number, or of the length of a
// text, a list or a map. JSON counts characters where we count bytes: what the
// schema refuses, the server refuses too.
func (s *schemas) limit(t reflect.Type, field reflect.StructField, tag string) (limits object) {
	least, most, ok := strings.Cut(tag, "..")
	kind := field.Type
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	names, known := map[reflect.Kind][2]string{
		reflect.Int: {"minimum", "maximum"}, reflect.Int64: {"minimum", "maximum"}, reflect.Float64: {"minimum", "maximum"},
		reflect.String: {"minLength", "maxLength"}, reflect.Slice: {"minItems", "maxItems"}, reflect.Map: {"minProperties", "maxProperties"},
	}[kind.Kind()]
	for i, text := range []string{least, most} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !ok || !known {
			s.problem("%s.%s: the limit %q is not like 1..32, or cannot be of a %s", t, field.Name, tag, kind)
		}
		limits.add(names[i], n)
	}
	return limits
}

// components are all that were made, by name.
func (s *schemas) components() (all object) {
	for _, name := range slices.Sorted(maps.Keys(s.made)) {
		all.add(name, s.made[name])
	}
	return all
}
