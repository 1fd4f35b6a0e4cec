package version

import "testing"

func TestEveryBuildHasAVersionThatFitsAHeader(t *testing.T) {
	for told, want := range map[string]string{
		"":                            "0.0.0-dev",
		"  ":                          "0.0.0-dev",
		"v":                           "0.0.0-dev",
		"v1.2.3":                      "1.2.3",
		"1.2.3":                       "1.2.3",
		"v0.1.0-3-g0dd19de-dirty\n":   "0.1.0-3-g0dd19de-dirty",
		"1.2.3-rc.1+build.7":          "1.2.3-rc.1+build.7",
		"0dd19de":                     "0.0.0-dev+0dd19de",
		"0dd19de-dirty":               "0.0.0-dev+0dd19de-dirty",
		"my branch/1":                 "0.0.0-dev+my-branch-1",
		"1.2":                         "0.0.0-dev+1.2",
		"1.2.3\r\nX-Agent-Version: 9": "0.0.0-dev+1.2.3-X-Agent-Version-9",
	} {
		if got := clean(told); got != want {
			t.Errorf("clean(%q) = %q, want %q", told, got, want)
		}
	}
	if got := String(); got != "0.0.0-dev" {
		t.Errorf("String() of a test build = %q", got)
	}
}
