package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beckon-fleet/beckon/api"
)

func TestEveryCodeHasItsVerdict(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z_]*$`)
	meanings := map[string]api.Code{}
	for _, code := range api.Codes() {
		switch {
		case !name.MatchString(string(code)) || len(code) > 40: // an agent's reason has 40 bytes
			t.Errorf("%q is no name", code)
		case code.Status() < 400 || code.Status() > 599 || http.StatusText(code.Status()) == "":
			t.Errorf("%s has the status %d", code, code.Status())
		case code.Exit() < 1 || code.Exit() > 125:
			t.Errorf("%s exits with %d", code, code.Exit())
		case len(code.Meaning()) < 20 || !strings.HasSuffix(code.Meaning(), "."):
			t.Errorf("%s means %q", code, code.Meaning())
		case meanings[code.Meaning()] != "":
			t.Errorf("%s and %s mean the same", code, meanings[code.Meaning()])
		case !slices.Contains([]api.Then{api.ThenRetry, api.ThenGiveUp, api.ThenSlow, api.ThenStop}, code.Then()):
			t.Errorf("nobody knows what follows %s", code)
		}
		meanings[code.Meaning()] = code
	}
	if codes := api.Codes(); !slices.IsSorted(codes) || len(codes) < 30 {
		t.Errorf("the codes are %v", codes)
	}
}

func TestVerdicts(t *testing.T) {
	for code, want := range map[api.Code]struct {
		status int
		then   api.Then
		exit   int
	}{
		api.Invalid:            {http.StatusBadRequest, api.ThenGiveUp, 2},
		api.NodeRevoked:        {http.StatusForbidden, api.ThenStop, 77},
		api.NodeUnknown:        {http.StatusUnauthorized, api.ThenSlow, 3},
		api.CertificateExpired: {http.StatusUnauthorized, api.ThenSlow, 3},
		api.CommandExpired:     {http.StatusGone, api.ThenGiveUp, 5},
		api.CommandCanceled:    {http.StatusGone, api.ThenGiveUp, 5},
		api.AckedElsewhere:     {http.StatusConflict, api.ThenGiveUp, 5},
		api.ResultDiffers:      {http.StatusConflict, api.ThenGiveUp, 5},
		api.TokenUsed:          {http.StatusConflict, api.ThenGiveUp, 5},
		api.MachineEnrolled:    {http.StatusConflict, api.ThenGiveUp, 5},
		api.TooLarge:           {http.StatusRequestEntityTooLarge, api.ThenGiveUp, 2},
		api.NotFound:           {http.StatusNotFound, api.ThenGiveUp, 4},
		api.Unavailable:        {http.StatusServiceUnavailable, api.ThenRetry, 6},
		api.UpgradeRequired:    {http.StatusUpgradeRequired, api.ThenSlow, 7},
		"of_a_newer_server":    {http.StatusInternalServerError, api.ThenRetry, 1},
		"":                     {http.StatusInternalServerError, api.ThenRetry, 1},
	} {
		if code.Status() != want.status || code.Then() != want.then || code.Exit() != want.exit {
			t.Errorf("%s: %d, %s, %d", code, code.Status(), code.Then(), code.Exit())
		}
	}
	for _, code := range api.Codes() {
		if code.Then() == api.ThenStop && code != api.NodeRevoked {
			t.Errorf("%s ends an identity, which only node_revoked may", code)
		}
	}
}

func TestErrorsHoldAcrossTheWire(t *testing.T) {
	made := api.Errorf(api.TokenUsed, "the token %s was used", "tok_1").Because(errors.New("a secret"))
	made.Instance = "urn:uuid:1"
	text, err := json.Marshal(made)
	want := `{"type":"/problems/token_used","title":"Conflict","status":409,"detail":"the token tok_1 was used","code":"token_used","then":"give_up","instance":"urn:uuid:1"}`
	if err != nil || string(text) != want {
		t.Errorf("on the wire it is %s, %v", text, err)
	}
	read := new(api.Error)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Errorf("join: %w", read)
	if !errors.Is(wrapped, api.TokenUsed) || errors.Is(wrapped, api.TokenExpired) || api.AsError(wrapped) != read || read.Error() != "token_used: the token tok_1 was used" {
		t.Errorf("read as %v", wrapped)
	}
	if !errors.Is(made, api.TokenUsed) || errors.Unwrap(made).Error() != "a secret" || errors.Unwrap(read) != nil {
		t.Error("the cause is on the wrong side")
	}
}

func TestUpgradeSaysWhichSide(t *testing.T) {
	e := api.Errorf(api.UpgradeRequired, "too old")
	e.Versions = &api.Versions{Reason: e.Detail, AgentVersion: "0.1.0", AgentProtocol: 1, SupportedMin: 2, SupportedMax: 3, Upgrade: "agent"}
	text, err := json.Marshal(e)
	want := `{"type":"/problems/upgrade_required","title":"Upgrade Required","status":426,"detail":"too old","code":"upgrade_required","then":"slow",` +
		`"error":"too old","agent_version":"0.1.0","agent_protocol":1,"supported_min":2,"supported_max":3,"upgrade":"agent"}`
	if err != nil || string(text) != want {
		t.Errorf("on the wire it is %s, %v", text, err)
	}
	read := new(api.Error)
	if err := json.Unmarshal(text, read); err != nil || *read.Versions != *e.Versions {
		t.Errorf("read as %+v, %v", read, err)
	}
}

// What has no code may hold what the caller should not read.
func TestUnknownErrorsSayNoMore(t *testing.T) {
	e := api.AsError(fmt.Errorf("open /etc/beckon/ca.key: %w", io.ErrUnexpectedEOF))
	text, err := json.Marshal(e)
	if err != nil || e.Code != api.Internal || strings.Contains(string(text), "ca.key") || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("on the wire it is %s, %v", text, err)
	}
}

// A newer server has codes that this agent does not know, and says what to do
// about them. It cannot end an identity by one.
func TestUnknownCodeSaysWhatNext(t *testing.T) {
	for _, c := range []struct {
		problem api.Error
		want    api.Then
	}{
		{api.Error{Code: "of_a_newer_server", Then: api.ThenGiveUp}, api.ThenGiveUp},
		{api.Error{Code: "of_a_newer_server", Then: api.ThenSlow}, api.ThenSlow},
		{api.Error{Code: "of_a_newer_server", Then: api.ThenStop}, api.ThenRetry},
		{api.Error{Code: "of_a_newer_server"}, api.ThenRetry},
		{api.Error{Code: api.NodeRevoked, Then: api.ThenRetry}, api.ThenStop},
		{api.Error{Code: api.TokenUsed, Then: api.ThenSlow}, api.ThenGiveUp},
	} {
		if got := c.problem.Next(); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.problem, got, c.want)
		}
	}
}
