// Package version says which build of Beckon this is.
package version

import (
	"regexp"
	"strings"
)

// version is set by the linker: -X github.com/beckon-fleet/beckon/internal/version.version=v1.2.3
var version string

// unset is the version of a build that was told none.
const unset = "0.0.0-dev"

var (
	semver  = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	foreign = regexp.MustCompile(`[^0-9A-Za-z.-]+`)
)

// String is the version in the words of semver.org, without a leading v. What
// the linker was told and is no such version, as the bare hash of a commit,
// stands behind the "+" of an unnumbered build.
func String() string { return clean(version) }

func clean(told string) string {
	text := strings.TrimPrefix(strings.TrimSpace(told), "v")
	if semver.MatchString(text) {
		return text
	}
	build := strings.Trim(foreign.ReplaceAllString(text, "-"), "-.")
	if build == "" {
		return unset
	}
	return unset + "+" + build
}
