package server

import (
	"strconv"
	"strings"
)

// http2Sound reports whether a Go release's HTTP/2 server is free of GO-2026-6617,
// by which anybody who can connect could end the process: fixed in 1.26.9 and
// in 1.27.2.
func http2Sound(version string) bool {
	minor, patch, ok := goRelease(version)
	switch {
	case !ok:
		return strings.HasPrefix(version, "devel") // newer than any release
	case minor == 26:
		return patch >= 9
	case minor == 27:
		return patch >= 2
	}
	return minor > 27
}

// goRelease reads "go1.27.3"; a release candidate counts as its release's .0.
func goRelease(version string) (minor, patch int, ok bool) {
	rest, ok := strings.CutPrefix(strings.Fields(version + " ")[0], "go1.")
	if !ok {
		return 0, 0, false
	}
	minorText, patchText, _ := strings.Cut(rest, ".")
	minorText, _, candidate := strings.Cut(minorText, "rc")
	minor, err := strconv.Atoi(minorText)
	if err != nil {
		return 0, 0, false
	}
	if candidate || patchText == "" {
		return minor, 0, true
	}
	patch, err = strconv.Atoi(strings.SplitN(patchText, "-", 2)[0])
	return minor, patch, err == nil
}
