//go:build !race

package build

// raced says that the test runs without the race detector.
const raced = false
