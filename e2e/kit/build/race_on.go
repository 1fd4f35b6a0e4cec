//go:build race

package build

// raced says that the test runs with the race detector: then so do the
// programs, and the compiler's cache serves both.
const raced = true
