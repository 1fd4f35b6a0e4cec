//go:build !faults

// Package fault ends the process at a named point of a command's life, in
// binaries that were built with -tags faults; in all others it does nothing.
// The names are the steps in PROTOCOL.md's life of a command.
package fault

// At does nothing.
func At(string) {}
