package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

// valid is a request of each type that has limits, with one item in each list
// whose items have some.
func valid() []any {
	tier := 2
	return []any{
		&api.TrustRequest{Nonce: "n"},
		&api.JoinRequest{Token: "t", CSR: "c", Tier: &tier},
		&api.RenewRequest{CSR: "c"},
		&api.HeartbeatRequest{CPUCores: 1, MemBytes: 1, DiskBytes: 1},
		&api.CursorsRequest{},
		&api.ResultRequest{Result: api.Result{Status: api.OutcomeFailed}},
		&api.Report{
			Deployments: []api.DeploymentReport{{DeploymentID: "dep_1", State: api.DeploymentRunning}},
			Events:      []api.EventReport{{Kind: "k", Message: "m", At: time.Unix(0, 0)}},
		},
		&api.CreateJoinTokenRequest{},
		&api.PutAppRequest{App: "web", AppSpec: api.AppSpec{Image: "i", Port: 1}, Placement: api.Placement{Node: "n"}},
		&api.RollbackAppRequest{},
		&api.SendCommandRequest{Node: "n", Kind: "stop", Payload: json.RawMessage(`{}`)},
	}
}

// What a limit tag says, Validate holds: no more and no less.
func TestLimitsAreHeld(t *testing.T) {
	examples := map[reflect.Type]bool{}
	for _, request := range valid() {
		v := reflect.ValueOf(request)
		examples[v.Type().Elem()] = true
		if err := validate(v); err != nil {
			t.Errorf("%s: the example is not valid: %v", v.Type().Elem(), err)
		}
		eachLimit(v.Elem(), "", func(name, tag string, field reflect.Value) { tryLimit(t, v, name, tag, field) })
	}
	for _, c := range slices.Concat(api.AgentSurface, api.OperatorSurface) {
		request := c.Describe().Request
		if request == nil || examples[request] {
			continue
		}
		eachLimit(reflect.New(request).Elem(), "", func(name, _ string, _ reflect.Value) {
			t.Errorf("%s%s has a limit; add an example to this test", request, name)
		})
	}
}

func validate(request reflect.Value) error {
	if v, ok := request.Interface().(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// eachLimit visits the fields with limits, but those of api.Write: package rest
// holds them.
func eachLimit(v reflect.Value, path string, do func(name, tag string, field reflect.Value)) {
	for i := range v.NumField() {
		decl, field := v.Type().Field(i), v.Field(i)
		name := path + "." + decl.Name
		if tag := decl.Tag.Get("limit"); tag != "" {
			do(name, tag, field)
		}
		switch {
		case !decl.IsExported() || field.Type() == reflect.TypeFor[api.Write]() || field.Type() == reflect.TypeFor[time.Time]():
		case field.Kind() == reflect.Struct:
			eachLimit(field, name, do)
		case field.Kind() == reflect.Slice && field.Len() > 0 && field.Type().Elem().Kind() == reflect.Struct:
			eachLimit(field.Index(0), name, do)
		}
	}
}

// tryLimit sets the field at each bound, and beyond it.
func tryLimit(t *testing.T, request reflect.Value, name, tag string, field reflect.Value) {
	was := reflect.ValueOf(field.Interface())
	defer field.Set(was)
	least, most, _ := strings.Cut(tag, "..")
	for _, bound := range []struct {
		text   string
		beyond int
	}{{least, -1}, {most, 1}} {
		n, err := strconv.Atoi(bound.text)
		if err != nil {
			continue
		}
		sized(field, was, n)
		if err := validate(request); err != nil {
			t.Errorf("%s%s: %d is within the limit %q, and refused: %v", request.Type().Elem(), name, n, tag, err)
		}
		if k := field.Kind(); n+bound.beyond < 0 && (k == reflect.String || k == reflect.Slice || k == reflect.Map) {
			continue // there is no such length
		}
		sized(field, was, n+bound.beyond)
		if validate(request) == nil {
			t.Errorf("%s%s: %d is outside of the limit %q, and taken", request.Type().Elem(), name, n+bound.beyond, tag)
		}
	}
}

// sized sets a number, or something as long.
func sized(field, was reflect.Value, n int) {
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		field.Elem().SetInt(int64(n))
	case reflect.Int, reflect.Int64:
		field.SetInt(int64(n))
	case reflect.Float64:
		field.SetFloat(float64(n))
	case reflect.String:
		field.SetString(strings.Repeat("a", n))
	case reflect.Map:
		field.Set(reflect.MakeMap(field.Type()))
		for i := range n {
			field.SetMapIndex(reflect.ValueOf(fmt.Sprint("k", i)), reflect.Zero(field.Type().Elem()))
		}
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), n, n))
		for i := range n {
			if was.Len() > 0 {
				field.Index(i).Set(was.Index(0))
			}
		}
	}
}
